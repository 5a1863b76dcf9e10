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
from pathlib import Path

from softmesh.dispatch.operation import OPERATIONS, Operation


def __getattr__(name: str) -> object:
    """The unified op of that name, or one of TT-NN's names for meshes."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "ttrun":  # the launcher, which TT-NN keeps here as a module
        return importlib.import_module(f"{__name__}.ttrun")
    if (Path(__file__).parent / f"{name}.py").is_file():  # asked for before it is imported
        raise AttributeError(f"module {__name__!r} has no attribute {name!r} yet")
    found = importlib.import_module(f"{__name__}.described_ops").described().get(name)
    if found is None:
        package = sys.modules[__name__.partition(".")[0]]
        named = OPERATIONS[name] if name in OPERATIONS and not hasattr(package, name) else getattr(package, name)
        found = importlib.import_module(f"{__name__}.generic_ops").unified(named)
        if isinstance(named, Operation) and named.definition.namespace != "ttnn":
            return found  # a user's own op, which may be defined anew
    globals()[name] = found
    return found
