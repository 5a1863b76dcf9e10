"""A model of ttnn beside a torch module: outputs of modules of the same name are compared.

The modules of a ttnn model are the objects that it holds as attributes, in lists and in dicts, whatever their class.
What a module made is the last result of an op that ran inside of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from softmesh.callsite import CallSite
from softmesh.diff.comparison import Comparison
from softmesh.diff.recording import READS, Entry, Recording, recorded
from softmesh.diff.value_store import ValueStore
from softmesh.errors import MeshError
from softmesh.placement.distribution import HOST
from softmesh.tensor.tensor import Tensor

_MOST_OBJECTS = 100_000
_MOST_FRAMES = 200
_PLAIN = (str, bytes, int, float, bool, torch.Tensor, Tensor, type(None), type)


def compare_modules(
    program: Callable[..., object],
    reference: Callable[..., object],
    inputs: Any,
    names: Mapping[str, str],
    tolerance: float | None,
    compared: Callable[..., Comparison],
) -> Comparison:
    """`names`: of a module of ours, that of torch's where it is another. `compared` holds two recordings together."""
    if not isinstance(reference, torch.nn.Module):
        raise MeshError("compare: with inputs, the reference must be a torch.nn.Module.")
    given = tuple(inputs) if isinstance(inputs, list | tuple) else () if inputs is None else (inputs,)
    theirs = _recorded_torch(reference, given)
    paths = named_parts(program)
    mine = recorded(lambda: program(*given), lambda: _running(paths))
    pairs = _pairs(mine, theirs, names)
    if not pairs and mine.error is None:
        raise MeshError(
            "compare: no module of the program has the name of a torch module. Ours: "
            f"{_shown(sorted({entry.module for entry in mine.entries if entry.module}))}; torch's: "
            f"{_shown([entry.module for entry in theirs.entries])}. Give names={{ours: torch's}}."
        )
    return compared(mine, theirs, against="the torch module", tolerance=tolerance, lifted=True, pairs=pairs)


def _shown(names: list[str]) -> str:
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "") if names else "none"


def _recorded_torch(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Recording:
    """The outputs of all modules, in the order in which they ended; of several calls each."""
    run = Recording(ValueStore())

    def ended(name: str) -> Callable[..., None]:
        def hook(_: torch.nn.Module, __: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                stored = run.store.put(output[None, None], HOST, None)
                site = CallSite(name or type(module).__name__, 0, "")
                run.entries.append(Entry(len(run.entries), "module", site, (), (stored,), {}, False, (), name))

        return hook

    hooks = [part.register_forward_hook(ended(name)) for name, part in module.named_modules()]
    try:
        with torch.no_grad():
            run.result = module(*inputs)
    except Exception as error:
        raise MeshError(f"compare: the torch module raised {type(error).__name__}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    return run


def named_parts(model: object) -> dict[int, str]:
    """The objects that a model is made of, by id: their names as torch would have them."""
    found: dict[int, str] = {}
    waiting: list[tuple[str, object]] = [("", getattr(model, "__self__", model))]
    while waiting and len(found) < _MOST_OBJECTS:
        path, part = waiting.pop()
        if id(part) in found or isinstance(part, _PLAIN):
            continue
        if not isinstance(part, list | tuple | dict):
            found[id(part)] = path
        waiting += [(f"{path}.{name}" if path else name, item) for name, item in _held(part)]
    return found


def _held(part: object) -> list[tuple[str, object]]:
    if isinstance(part, dict):
        return [(str(name), item) for name, item in part.items()]
    if isinstance(part, list | tuple):
        return [(str(at), item) for at, item in enumerate(part)]
    own = getattr(part, "__dict__", None)
    if own is None or type(part).__module__.startswith(("softmesh.runtime", "builtins", "torch")):
        return []
    return [(name.lstrip("_"), item) for name, item in own.items()]


def _running(paths: dict[int, str]) -> str:
    """The innermost part of the model that is being called."""
    frame = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame.f_back is None:
            break
        own = frame.f_locals.get("self")
        if own is not None and paths.get(id(own)):
            return paths[id(own)]
        frame = frame.f_back
    return ""


def _pairs(mine: Recording, theirs: Recording, names: Mapping[str, str]) -> dict[int, int]:
    """The last op of each call of a module, with the output of that call."""
    ends: dict[str, list[int]] = {}
    entries = [entry for entry in mine.entries if entry.inputs and entry.name not in READS]
    for at, entry in enumerate(entries):
        following = entries[at + 1].module if at + 1 < len(entries) else ""
        for path in _with_parents(entry.module):
            if path != following and not following.startswith(f"{path}."):
                ends.setdefault(names.get(path, path), []).append(entry.number)
    calls: dict[str, list[int]] = {}
    for entry in theirs.entries:
        calls.setdefault(entry.module, []).append(entry.number)
    pairs: dict[int, int] = {}
    for name, ours in ends.items():
        if len(ours) == len(calls.get(name, ())):
            for number, other in zip(ours, calls[name], strict=True):
                pairs.setdefault(number, other)
    if entries and "" in calls and entries[-1].number not in pairs:
        pairs[entries[-1].number] = calls[""][-1]
    return pairs


def _with_parents(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return [".".join(parts[: n + 1]) for n in range(len(parts))]
