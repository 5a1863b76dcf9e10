"""The fabric between chips: mesh graph descriptors, their match onto a machine, and routing."""

from __future__ import annotations

import importlib
from typing import Any

_LAZY_NAMES = ("machine", "network", "route")  # what needs a machine loads with the first question


def __getattr__(name: str) -> Any:
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module("softmesh.fabric.queries"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
