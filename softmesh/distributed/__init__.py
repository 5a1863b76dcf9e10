"""Ops that plan their own communication: say what you want, and see what was inserted and why.

TT-NN keeps its mesh functions in a module of this name too (`ttnn.distributed.ReplicateTensorToMesh`): the
top namespace answers for those.
"""

from __future__ import annotations

import importlib
import sys

_HERE = {
    "explain": "explanation",
    "implicit": "policy",
    "ImplicitCommunication": "policy",
    "ImplicitCommunicationError": "policy",
    "linear": "products",
    "matmul": "products",
    "mesh_mapper": "axes",
    "redistribute": "movement",
}


def __getattr__(name: str) -> object:
    """The unified op of that name, or one of TT-NN's names for meshes."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _HERE:
        found = getattr(importlib.import_module(f"{__name__}.{_HERE[name]}"), name)
    else:
        found = getattr(sys.modules[__name__.partition(".")[0]], name)
        found = importlib.import_module(f"{__name__}.catalogue").unified(found)
    globals()[name] = found
    return found
