"""The modules that get a stub, and what is in them: the top namespace, TT-NN's dotted ones, the unified ops."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import softmesh
from softmesh import distributed
from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.operation import Operation
from softmesh.distributed.described_ops import described
from softmesh.distributed.unified_op import Unified
from softmesh.namespaces import FLAT, LAZY, SUBMODULES
from softmesh.type_stubs.stub_module import StubModule

_ROOT = "softmesh"
# Of the package's own making.
_OWN = {
    "Any",
    "annotations",
    "behind_the_door",
    "keep_freed_memory",
    "load_lazily",
    "operations_under",
    "publish",
}


def stubs() -> dict[str, str]:
    """The text of each stub by its path below the package."""
    published = _published()
    made = [_top(published), _distributed()]
    for name, home in SUBMODULES.items():
        if name != home:
            made.append(StubModule(f"{_ROOT}.{name}", {}, stars=[f"{_ROOT}.{home}"]))
    made += [_namespace(module, published) for module in published.values()]
    return {_path(stub.name, published): stub.text() for stub in sorted(made, key=lambda stub: stub.name)}


def _published() -> dict[str, ModuleType]:
    """The modules that are made at run time, by their names."""
    root = f"{_ROOT}."
    found = {
        name: module
        for name, module in sys.modules.items()
        if name.startswith(root) and module.__name__ == name  # and not another name of it, loaded when it is asked for
        if getattr(module, "__file__", None) is None and module.__spec__ is None
    }
    return dict(sorted(found.items()))


def _members(module: ModuleType) -> dict[str, object]:
    return {
        name: value for name, value in vars(module).items() if not name.startswith("_") and not inspect.ismodule(value)
    }


def _below(name: str, published: dict[str, ModuleType]) -> Iterator[str]:
    for other in published:
        parent, _, short = other.rpartition(".")
        if parent == name:
            yield short


def _top(published: dict[str, ModuleType]) -> StubModule:
    members = {name: getattr(softmesh, name) for name in LAZY}
    modules = [name for name, value in members.items() if inspect.ismodule(value)]
    members |= {name: value for name, value in _members(softmesh).items() if name not in _OWN}
    members["__version__"] = softmesh.__version__
    plain = {name: value for name, value in members.items() if not inspect.ismodule(value)}
    return StubModule(_ROOT, plain, submodules=[*modules, *SUBMODULES, *_below(_ROOT, published)])


def _namespace(module: ModuleType, published: dict[str, ModuleType]) -> StubModule:
    short = module.__name__.removeprefix(f"{_ROOT}.")
    homes = [f"{_ROOT}.{home}" for home in FLAT.get(short, ())]
    # The first to have a name is asked for its type, and in the top namespace ops have theirs.
    stars = sorted([_ROOT, *homes], key=lambda home: (home not in published, home)) if short in FLAT else []
    return StubModule(module.__name__, _members(module), stars, _below(module.__name__, published), softmesh)


def _distributed() -> StubModule:
    """The unified ops, and the names for meshes that TT-NN has in its module of this name."""
    tops = _members(softmesh)
    members = dict(described())
    for name, value in tops.items():
        if name in members or name in _OWN or is_collective(value):
            continue
        members[name] = getattr(distributed, name) if isinstance(value, Operation) else value
    stub = StubModule(distributed.__name__, members, submodules=["ttrun"])
    for name, module in vars(softmesh).items():
        ops = _unified_below(name, module)
        if ops:
            stub.add_namespace(name, ops)
    return stub


def _unified_below(name: str, module: object) -> dict[str, object]:
    if not inspect.ismodule(module) or module.__spec__ is not None or name.startswith("_"):
        return {}
    plain = {short: op for short, op in _members(module).items() if isinstance(op, Operation)}
    space = getattr(distributed, name)
    found = {short: getattr(space, short) for short, op in plain.items() if not is_collective(op)}
    return {short: op for short, op in found.items() if isinstance(op, Unified)}


def _path(name: str, published: dict[str, ModuleType]) -> str:
    parts = name.split(".")[1:]
    real = importlib.util.find_spec(name) if name not in published else None
    is_package = real.submodule_search_locations is not None if real else any(_below(name, published))
    return str(Path(*parts, "__init__.pyi") if is_package else Path(*parts[:-1], f"{parts[-1]}.pyi"))
