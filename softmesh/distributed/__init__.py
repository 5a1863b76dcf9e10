"""Ops that plan their own communication: say what you want, and see what was inserted and why.

TT-NN keeps its mesh functions in a module of this name too (`ttnn.distributed.ReplicateTensorToMesh`): the
top namespace answers for those.
"""

from __future__ import annotations

import importlib
import sys

# Names that are described here, and where; any other op is found out about by its own placement rule.
DESCRIBED = {
    "concat": "movement",
    "embedding": "embeddings",
    "explain": "explanation",
    "implicit": "policy",
    "ImplicitCommunication": "policy",
    "ImplicitCommunicationError": "policy",
    "layer_norm": "statistics",
    "linear": "products",
    "matmul": "products",
    "max": "reductions",
    "mean": "reductions",
    "mesh_mapper": "axes",
    "min": "reductions",
    "permute": "movement",
    "redistribute": "movement",
    "reshape": "movement",
    "rms_norm": "statistics",
    "scaled_dot_product_attention": "attention",
    "slice": "movement",
    "softmax": "statistics",
    "sum": "reductions",
    "transpose": "movement",
}


def __getattr__(name: str) -> object:
    """The unified op of that name, or one of TT-NN's names for meshes."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "ttrun":  # the launcher, which TT-NN keeps here as a module
        return importlib.import_module(f"{__name__}.ttrun")
    if name in DESCRIBED:
        found = getattr(importlib.import_module(f"{__name__}.{DESCRIBED[name]}"), name)
    else:
        found = getattr(sys.modules[__name__.partition(".")[0]], name)
        found = importlib.import_module(f"{__name__}.catalogue").unified(found)
    globals()[name] = found
    return found
