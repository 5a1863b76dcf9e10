"""The names that `softmesh.distributed` defines itself: unified ops whose splits are described, and a few functions."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from softmesh.distributed.unified_op import Unified

# Modules that describe how the work of ops can be split; any other op is found out about by its own placement rule.
_SPLITS = (
    *("attention", "data_movement", "decode_attention", "linear_and_embedding"),
    *("reductions", "softmax_and_norms"),
)
_OTHERS = {
    "explain": "explanation",
    "implicit": "communication_policy",
    "ImplicitCommunication": "communication_policy",
    "ImplicitCommunicationError": "communication_policy",
    "mesh_mapper": "placement_requests",
}


@cache
def described() -> Mapping[str, object]:
    """Return what this package defines itself, by name."""
    modules = (importlib.import_module(f"{__package__}.{name}") for name in _SPLITS)
    ops = {name: value for module in modules for name, value in vars(module).items() if isinstance(value, Unified)}
    others = {
        name: getattr(importlib.import_module(f"{__package__}.{module}"), name) for name, module in _OTHERS.items()
    }
    return ops | others
