"""The dotted names of TT-NN's ops (`ttnn.transformer.x`, `ttnn.experimental.y`) as modules, and late names."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from softmesh.errors import NotModelled, did_you_mean
from softmesh.ops.registry import OPERATIONS, operations_under

# Modules of the package that TT-NN's users reach as attributes; each loads when first asked for.
_LATE = ("model_preprocessing",)


def publish(root: str) -> None:
    """Make a module for each dotted prefix of the registry, below the package `root`."""
    prefixes = {name.rpartition(".")[0] for name in OPERATIONS if "." in name}
    prefixes |= {prefix.rpartition(".")[0] for prefix in prefixes if "." in prefix}
    for prefix in sorted(prefixes):
        full = f"{root}.{prefix}"
        module = ModuleType(full, f"The operations of ttnn.{prefix}.")
        module.__dict__.update(operations_under(f"{prefix}."))
        module.__path__ = []
        sys.modules[full] = module
        parent, _, short = full.rpartition(".")
        setattr(sys.modules[parent], short, module)


def load_late(root: str, name: str) -> object:
    """The attribute `name` of the package, loaded now; NotModelled where there is none."""
    if name in _LATE:
        return importlib.import_module(f"{root}.{name}")
    if name.startswith("__"):
        raise AttributeError(f"module {root!r} has no attribute {name!r}")
    known = [known for known in vars(sys.modules[root]) if not known.startswith("_")]
    raise NotModelled(f"softmesh has no {name!r}: it is not modelled, or not a name of TT-NN.{did_you_mean(name, known)}")
