"""Everything that runs is a command; observers read the stream.

An op, a transfer, an allocation: each tells its name, what it read and wrote, its queue, where on the
mesh it ran, and the line of the user's program. While nobody observes, no Command is built: callers
ask `observed()` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from softmesh.arguments import described, refused
from softmesh.callsite import CallSite, RawSite, raw_call_site, resolved
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange, MeshCoordinateRangeSet

if TYPE_CHECKING:
    from softmesh.runtime.buffers.paged import PagedMemory
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.queues.event import MeshEvent
    from softmesh.tensor.tensor import Tensor


class Cost(NamedTuple):
    """What one device does: floating-point operations, and bytes read and written."""

    flops: int
    bytes: int


class Access(NamedTuple):
    """Bytes that a command reads or writes beside its tensors: these pages (None: all) of a memory."""

    memory: PagedMemory
    pages: slice | None = None


Arguments = Mapping[str, object] | Callable[[], Mapping[str, object]] | None


class Command:
    """`inputs` and `reads` it read, `outputs` and `writes` it wrote, on the devices `coords` of `device`.

    Built while a program runs, so it keeps what it was given: the line, the arguments and the cost are worked
    out when an observer asks for them.
    """

    __slots__ = (
        "_arguments",
        "_cost",
        "blocking",
        "coords",
        "device",
        "event",
        "inputs",
        "name",
        "outputs",
        "queue",
        "raw_site",
        "reads",
        "receives",
        "sends",
        "sub_devices",
        "trace",
        "writes",
    )

    def __init__(
        self,
        name: str,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        coords: Sequence[MeshCoordinate],
        raw_site: RawSite,
        arguments: Arguments = None,
        queue: int = 0,
        cost: Callable[[], Cost] | None = None,
        device: MeshDevice | None = None,
        *,
        reads: tuple[Access, ...] = (),
        writes: tuple[Access, ...] = (),
        event: MeshEvent | None = None,
        trace: int | None = None,
        sub_devices: tuple[int, ...] = (),
        blocking: bool = False,
        sends: tuple[object, ...] = (),
        receives: tuple[object, ...] = (),
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.outputs = outputs
        self.coords = coords
        self.raw_site = raw_site
        self._arguments = arguments
        self.queue = queue
        self._cost = cost
        self.device = device  # None: the host
        self.reads = reads
        self.writes = writes
        self.event = event  # recorded, or waited for
        self.trace = trace  # the id of the trace that is captured or replayed
        self.sub_devices = sub_devices  # whose cores it runs on, or whose work it waits for
        self.blocking = blocking  # the host waited until it, and all before it on its queue, were done
        self.sends = sends  # channels that it puts a message into; `receives`: that it takes one from
        self.receives = receives

    @property
    def site(self) -> CallSite:
        return resolved(self.raw_site)

    @property
    def arguments(self) -> Mapping[str, object]:
        """As given, hardware-tuning ones included."""
        if not isinstance(self._arguments, dict):
            given = self._arguments() if callable(self._arguments) else self._arguments
            self._arguments = dict(given or {})
        return self._arguments

    @property
    def cost(self) -> Cost:
        return Cost(0, 0) if self._cost is None else self._cost()

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


def detach(observer: Observer) -> None:
    _OBSERVERS.remove(observer)


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
        detach(observer)


def emit(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    coords: Sequence[MeshCoordinate],
    arguments: Arguments = None,
    queue: int = 0,
    cost: Callable[[], Cost] | None = None,
    device: MeshDevice | None = None,
    **more: Any,
) -> None:
    """Build the command and hand it to every observer; call only while `observed()`.

    Without `device` it is that of the tensors. `more` are further fields of a Command. What is given as a function
    is called only if an observer asks.
    """
    if device is None:
        device = _device_of(outputs) or _device_of(inputs)
    site = raw_call_site(2)
    command = Command(
        name, tuple(inputs), tuple(outputs), coords, site, arguments, queue, cost, device, **more
    )
    for observer in tuple(_OBSERVERS):
        observer.on_command(command)


def _device_of(tensors: Sequence[Tensor]) -> MeshDevice | None:
    for tensor in tensors:
        device = tensor._storage.device
        if device is not None:
            return device
    return None
