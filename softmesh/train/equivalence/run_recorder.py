"""Records one forward and backward pass of a model: its ops, and all values and gradients of its modules."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from softmesh.autograd.function import Function
from softmesh.errors import MeshError, PartialWarning, SoftmeshWarning
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement
from softmesh.runtime.commands import Command, observe
from softmesh.strictness import listening
from softmesh.tensor.tensor import Tensor
from softmesh.train.equivalence.values import Value
from softmesh.train.module import WATCHERS, Module


class Place(NamedTuple):
    """Where in a model a value is met: the n-th call of a module, and which of its inputs or outputs."""

    path: str
    call: int
    kind: str
    position: int

    def __str__(self) -> str:
        which = f" {self.position + 1}" if self.position else ""
        again = f" (call {self.call + 1})" if self.call else ""
        return f"{self.kind}{which} of {self.path or 'the model'}{again}"


class Point(NamedTuple):
    place: Place
    value: Value
    ops: int  # that had run before


class Op(NamedTuple):
    number: int
    command: Command
    path: str
    problem: str | None  # what the op itself warned of
    is_doubted: bool = False  # it may be right all the same, as a bias that was divided by the number of devices

    @property
    def key(self) -> tuple[str, str, int]:
        """What the same op of another run has too."""
        return self.path, self.command.name, len(self.command.inputs)

    def describe(self, with_place: bool = False) -> str:
        inside = f" in {self.path}" if self.path else ""
        place = f" ({self.command.site}{inside})" if with_place else ""
        return f"op {self.number}, {self.command.name}{place}"


class Returned(NamedTuple):
    """A gradient that came to a place, after so many commands of the backward pass."""

    value: Value
    commands: int


class Run:
    """Reads the stream of commands and makes the calls of modules while a model runs."""

    def __init__(self, model: Module) -> None:
        self._paths = {id(module): path for path, module in reversed(list(model.named_modules()))}
        self._stack: list[str] = []
        self._calls: Counter[str] = Counter()
        self._warned: list[warnings.WarningMessage] = []
        self._warnings_seen = 0
        self._doubts: list[str] = []  # of the op that runs
        self._is_forward = True
        self.points: list[Point] = []
        self.ops: list[Op] = []
        self.returning: list[Command] = []
        self.gradients: dict[Place, Returned] = {}

    @property
    def here(self) -> str:
        """The module that is running."""
        return self._stack[-1] if self._stack else ""

    def forward(self, function: Callable[..., Any], model: Module, batch: Sequence[Any]) -> Tensor:
        with self._recording(), _watching(self.called):
            loss = function(model, *batch)
        if not isinstance(loss, Tensor) or loss.logical_volume() != 1:
            got = f"shape {loss.shape}" if isinstance(loss, Tensor) else type(loss).__name__
            raise MeshError(
                f"check: the model must return a loss, one value on each device, and it returned {got}. "
                "Give loss=function(model, *batch)."
            )
        return loss

    def backward(self, loss: Tensor) -> None:
        self._is_forward = False
        with self._recording():
            loss.backward()

    @contextmanager
    def _recording(self) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as warned, observe(self), listening(self._hear):
            warnings.simplefilter("always")
            self._warned, self._warnings_seen = warned, 0
            yield
        for other in warned:
            if not issubclass(other.category, PartialWarning):
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)

    def _hear(self, message: str, warning: type[SoftmeshWarning]) -> None:
        if issubclass(warning, PartialWarning):
            self._doubts.append(message)

    def on_command(self, command: Command) -> None:
        doubts, self._doubts = self._doubts, []
        if not (command.inputs and command.outputs):
            return
        if not self._is_forward:
            self.returning.append(command)
            return
        new_warnings, self._warnings_seen = self._warned[self._warnings_seen :], len(self._warned)
        problems = [str(one.message) for one in new_warnings if issubclass(one.category, PartialWarning)]
        problem = next(iter(problems + doubts), None)
        self.ops.append(Op(len(self.ops), command, self.here, problem, is_doubted=problem in doubts))

    def called(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        path = self._paths.get(id(module), type(module).__name__)
        number = self._calls[path]
        self._calls[path] += 1
        names = list(kwargs)
        given = [*args, *kwargs.values()]
        tapped = [self._tapped(Place(path, number, "input", i), item) for i, item in enumerate(given)]
        self._stack.append(path)
        out = module.forward(*tapped[: len(args)], **dict(zip(names, tapped[len(args) :], strict=True)))
        self._stack.pop()  # not after an error: it tells where that was
        if not isinstance(out, list | tuple):
            return self._tapped(Place(path, number, "output", 0), out)
        left = [self._tapped(Place(path, number, "output", i), item) for i, item in enumerate(out)]
        return left if isinstance(out, list) else tuple(left)

    def _tapped(self, place: Place, item: Any) -> Any:
        if not isinstance(item, Tensor):
            return item
        value = Value.of(item)
        self.points.append(Point(place, value, len(self.ops)))

        def note(gradient: Tensor) -> None:
            data, dist = Value.of(gradient)
            words = tuple(map(_gradient_word, value.words, dist.placements))
            returned = Value(data, dist.with_placements(words))
            self.gradients[place] = Returned(returned, len(self.returning))

        return _Tap.apply(item, note)


class _Tap(Function):
    """What goes through it is seen again as a gradient on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, note: Callable[[Tensor], None]) -> Tensor:
        ctx.note = note
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.note(gradient)
        return gradient, None


def _gradient_word(value: Placement, gradient: Placement) -> Placement:
    """The gradient of a sum is the gradient of each of its contributions: not one of several to be added up."""
    return LOCAL if isinstance(value, Partial) and gradient is not REPLICATE else gradient


@contextmanager
def _watching(watcher: Callable[..., Any]) -> Iterator[None]:
    WATCHERS.append(watcher)
    try:
        yield
    finally:
        WATCHERS.remove(watcher)
