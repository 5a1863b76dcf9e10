"""The command stream: every op, transfer and allocation is a `Command`, which the attached observers read in order.

A command tells its name, its kind, what it read and wrote, its queue, where on the mesh it ran, and the line of the
user's program. While nobody observes, no Command is built: callers ask `observed()` first, compiled calls at every
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from softmesh.arguments import described, refused
from softmesh.callsite import CallSite, RawSite, raw_call_site, resolved
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange, MeshCoordinateRangeSet

if TYPE_CHECKING:
    from softmesh.runtime.buffers.paged_memory import PagedMemory
    from softmesh.runtime.command_tensor import CommandTensor
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.queues.events import MeshEvent


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

    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    event: MeshEvent | None = None  # recorded, or waited for
    trace: int | None = None  # the id of the trace that is captured or replayed
    sub_devices: tuple[int, ...] = ()  # whose cores it runs on, or whose work it waits for
    blocking: bool = False  # the host waited until it, and all before it on its queue, were done
    sends: tuple[object, ...] = ()  # channels that it puts a message into
    receives: tuple[object, ...] = ()  # channels that it takes a message from
    written_remotely: tuple[str, ...] = ()  # the arguments that other devices write into
    call: object | None = None  # the compiled call that made it: all of its commands are alike, but for their tensors
    has_extra_fields: bool = False  # whether any of these was given: an op has inputs and outputs only

    def __init__(
        self,
        name: str,
        kind: Kind,
        inputs: Sequence[CommandTensor],
        outputs: Sequence[CommandTensor],
        coords: Sequence[MeshCoordinate],
        queue: int,
        device: MeshDevice | None,
        raw_site: RawSite,
        arguments: Arguments = None,
        cost: Callable[[], Cost] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.coords = coords
        self.queue = queue
        self.device = device  # None: the host
        self.raw_site = raw_site
        self.within = _CALLS.get()  # functions of the public API that it is part of, the outermost first
        self._arguments = arguments
        self._cost = cost

    def __repr__(self) -> str:
        outputs = ", ".join(str(list(tensor.shape)) for tensor in self.outputs) or "nothing"
        return f"Command({self.name} -> {outputs}, queue {self.queue}, {len(self.coords)} devices, {self.site})"

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


observers: tuple[Observer, ...] = ()
# Functions of the public API that commands are part of, the outermost first; only kept while somebody observes.
_CALLS: ContextVar[tuple[str, ...]] = ContextVar("softmesh_public_calls", default=())


@contextmanager
def within(name: str) -> Iterator[None]:
    """Commands in the block belong to a call of this function."""
    token = _CALLS.set((*_CALLS.get(), name))
    try:
        yield
    finally:
        _CALLS.reset(token)


def is_within() -> bool:
    """Whether a composite or a unified op makes the calls that are made now."""
    return bool(_CALLS.get())


def observed() -> bool:
    return bool(observers)


def attach(observer: Observer) -> None:
    """Let `observer` read the stream until it is detached."""
    global observers
    observers = (*observers, observer)


def detach(observer: Observer) -> None:
    """Once, where it was attached twice."""
    global observers
    at = observers.index(observer)
    observers = (*observers[:at], *observers[at + 1 :])


@contextmanager
def observe(observer: Observer) -> Iterator[Observer]:
    """Attach `observer` to the stream for the length of a `with` block."""
    if not callable(getattr(observer, "on_command", None)):
        raise refused("observe", f"observer must have a method on_command(command), got {described(observer)}")
    attach(observer)
    try:
        yield observer
    finally:
        detach(observer)


def emit(
    name: str,
    kind: Kind,
    inputs: Sequence[CommandTensor],
    outputs: Sequence[CommandTensor],
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
    command = Command(name, kind, inputs, outputs, coords, queue, device, raw_call_site(), arguments, cost)
    for field, value in more.items():
        setattr(command, field, value)
    command.has_extra_fields = bool(more)
    tell(command)


def tell(command: Command) -> None:
    for observer in observers:
        observer.on_command(command)


def _device_of(tensors: Sequence[CommandTensor]) -> MeshDevice | None:
    for tensor in tensors:
        device = tensor.storage.device
        if device is not None:
            return device
    return None
