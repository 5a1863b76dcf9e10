"""Names of the leaves of a graph: by the path on which the program reaches a tensor, such as `layers.3.wq`."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any

from softmesh.callsite import is_ours
from softmesh.dispatch.entry_point import EntryPoint
from softmesh.tensor.tensor import Tensor

_MOST_OBJECTS = 200_000
_DEEPEST = 8
_UNSAID = ("self", "model", "module")  # roots that tell nothing


class LeafNames:
    """Looks for tensors where the function could have them: its arguments, what it closes over, its frames."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function = function
        self._given = _bound_names(function, args, kwargs)
        self._said: dict[int, str] = {}  # by the program, as it made the tensor
        self._paths: dict[int, str] = {}
        self._taken: set[str] = set()

    def note(self, op: EntryPoint, made: Tensor, kwargs: Mapping[str, Any]) -> None:
        """A tensor that was made with a name."""
        file = kwargs.get("cache_file_name")
        if file is not None:
            self._said[id(made)] = os.path.basename(str(file))

    def say(self, tensor: Tensor, name: str) -> None:
        """Name a tensor that the program itself does not have."""
        self._paths[id(tensor)] = name

    def name(self, tensor: Tensor, number: int) -> str:
        found = self._paths.get(id(tensor))
        if found is None:
            self._search()
            found = self._paths.get(id(tensor)) or self._said.get(id(tensor)) or f"w{number}"
        name, count = found, 2
        while name in self._taken:
            name, count = f"{found}_{count}", count + 1
        self._taken.add(name)
        return name

    def _search(self) -> None:
        """From the outermost frame to the innermost: the longest path is the one that tells most."""
        seen: set[int] = set()
        for root, value in self._roots():
            for path, tensor in _tensors_below(value, "" if root in _UNSAID else root, seen, _DEEPEST):
                self._paths.setdefault(id(tensor), path or root)

    def _roots(self) -> Iterator[tuple[str, Any]]:
        yield from self._given.items()
        yield "self", getattr(self._function, "__self__", None)
        frames: list[FrameType] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if not is_ours(frame.f_code.co_filename) and frame.f_globals.get("__name__") != "runpy":
                frames.append(frame)
            elif frame.f_code.co_name == "captured":
                break
            frame = frame.f_back
        for one in reversed(frames):
            yield from list(one.f_locals.items())
        code = getattr(self._function, "__code__", None)
        scope = getattr(self._function, "__globals__", {})
        yield from ((name, scope[name]) for name in (code.co_names if code else ()) if name in scope)


def _bound_names(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        bound = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {f"input{at}": value for at, value in enumerate(args)} | kwargs
    found = dict(bound)
    cells = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    return found | {name: value for name, value in cells.items() if name not in found}


def _tensors_below(value: Any, path: str, seen: set[int], depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
        return
    if depth == 0 or id(value) in seen or len(seen) > _MOST_OBJECTS or isinstance(value, type | ModuleType):
        return
    if isinstance(value, Mapping):
        items: Any = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(getattr(value, "_asdict", lambda: dict(enumerate(value)))().items())
    else:
        if type(value).__module__.startswith(("softmesh.", "torch.")) and not _is_train_module(value):
            return
        items = list(getattr(value, "__dict__", {}).items())
    seen.add(id(value))
    for name, item in items:
        yield from _tensors_below(item, f"{path}.{name}" if path else str(name), seen, depth - 1)


def _is_train_module(value: Any) -> bool:
    return type(value).__module__.startswith("softmesh.train")
