"""Everything that runs is a command; observers read the stream.

An op, a transfer, an allocation: each tells its name, what it read and wrote, its queue, where on the
mesh it ran, and the line of the user's program. While nobody observes, no Command is built: callers
ask `observed()` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from softmesh.arguments import described, refused
from softmesh.callsite import CallSite, user_call_site
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange, MeshCoordinateRangeSet

if TYPE_CHECKING:
    from softmesh.tensor.tensor import Tensor


class Cost(NamedTuple):
    """What one device does: floating-point operations, and bytes read and written."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class Command:
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    arguments: Mapping[str, object]  # as given, hardware-tuning ones included
    queue: int
    coords: Sequence[MeshCoordinate]
    site: CallSite
    cost: Cost

    @property
    def mesh_range(self) -> MeshCoordinateRangeSet:
        """The devices it ran on."""
        ranges = MeshCoordinateRangeSet()
        for coord in self.coords:
            ranges.merge(MeshCoordinateRange(coord, coord))
        return ranges


class Observer(Protocol):
    def on_command(self, command: Command) -> None:
        """Called after each command, in order."""
        ...


_OBSERVERS: list[Observer] = []


def observed() -> bool:
    return bool(_OBSERVERS)


def attach(observer: Observer) -> None:
    """Let `observer` read the stream for as long as the process lives."""
    _OBSERVERS.append(observer)


@contextmanager
def observe(observer: Observer) -> Iterator[Observer]:
    """Attach `observer` to the stream for the length of a `with` block."""
    if not callable(getattr(observer, "on_command", None)):
        raise refused(
            "observe", f"observer must have a method on_command(command), got {described(observer)}"
        )
    _OBSERVERS.append(observer)
    try:
        yield observer
    finally:
        _OBSERVERS.remove(observer)


def emit(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    coords: Sequence[MeshCoordinate],
    arguments: Mapping[str, object] | None = None,
    queue: int = 0,
    cost: Callable[[], Cost] | None = None,
) -> None:
    """Build the command and hand it to every observer; call only while `observed()`."""
    command = Command(
        name=name,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        arguments=dict(arguments or {}),
        queue=queue,
        coords=coords,
        site=user_call_site(),
        cost=cost() if cost else Cost(0, 0),
    )
    for observer in tuple(_OBSERVERS):
        observer.on_command(command)
