"""Logical meshes, their places on a machine, and the routes between their chips."""

from __future__ import annotations

import importlib
from typing import Any

_ASKED_FOR_LATE = ("machine", "network", "route")  # what needs a machine loads with the first question


def __getattr__(name: str) -> Any:
    if name in _ASKED_FOR_LATE:
        return getattr(importlib.import_module("softmesh.fabric.asking"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
