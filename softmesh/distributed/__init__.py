"""Ops that plan their own communication, as DTensor's do: say what you want, and see what was inserted and why.

`unified_op.py` is the class of these ops; modules such as `linear_and_embedding.py` and `attention.py` describe how
the work of one can be split, `generic_ops.py` how that of any other; `layout_planner.py` finds the cheapest plan,
`runnable_plan.py` runs it, `explanation.py` shows it.

TT-NN keeps its mesh functions in a module of this name too (`ttnn.distributed.ReplicateTensorToMesh`): the
top namespace answers for those.
"""

from __future__ import annotations

import importlib
import sys

# Names that are described here, and where; any other op is found out about by its own placement rule.
DESCRIBED = {
    "concat": "data_movement",
    "embedding": "linear_and_embedding",
    "explain": "explanation",
    "implicit": "communication_policy",
    "ImplicitCommunication": "communication_policy",
    "ImplicitCommunicationError": "communication_policy",
    "layer_norm": "softmax_and_norms",
    "linear": "linear_and_embedding",
    "matmul": "linear_and_embedding",
    "max": "reductions",
    "mean": "reductions",
    "mesh_mapper": "placement_requests",
    "min": "reductions",
    "paged_scaled_dot_product_attention_decode": "decode_attention",
    "permute": "data_movement",
    "redistribute": "data_movement",
    "reshape": "data_movement",
    "rms_norm": "softmax_and_norms",
    "scaled_dot_product_attention": "attention",
    "scaled_dot_product_attention_decode": "decode_attention",
    "slice": "data_movement",
    "softmax": "softmax_and_norms",
    "sum": "reductions",
    "transpose": "data_movement",
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
        found = importlib.import_module(f"{__name__}.generic_ops").unified(found)
    globals()[name] = found
    return found
