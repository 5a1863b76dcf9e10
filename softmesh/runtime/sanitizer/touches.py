"""What a command touches of its mesh's memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from softmesh.runtime.sanitizer.address_space import AddressSpace
from softmesh.runtime.sanitizer.clock import Step
from softmesh.runtime.sanitizer.history import EVERYWHERE, Touch, Where
from softmesh.runtime.sanitizer.spans import span_of_memory

if TYPE_CHECKING:
    from softmesh.runtime.commands import Access, Command
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.memory.pool import Pool
    from softmesh.runtime.traces.trace import Trace
    from softmesh.tensor.tensor import Tensor

_ARRIVING = frozenset(
    {"experimental.recv_async", "experimental.recv_direct_async", "experimental.recv_async_h2d"}
)


Memories = Mapping["Pool | None", AddressSpace]


def touches_of(command: Command, device: MeshDevice, step: Step, memories: Memories) -> list[Touch]:
    """Those that may meet others; where nobody else is about, the memory itself notes the touch."""
    inputs, outputs = command.inputs, command.outputs
    touches: list[Touch] = []
    if inputs and outputs and outputs[0].storage.is_shared() and _moves_nothing(inputs, outputs[0]):
        return touches
    # To ask for what is on its way is to wait for it.
    arriving = Where(frozenset(command.coords)) if command.name in _ARRIVING else None
    is_write = False
    for tensors in (inputs, outputs):
        for tensor in tensors:
            storage = tensor.storage
            span = storage._span or storage.span()
            if span is None:  # on the host, or without a byte
                continue
            where = arriving
            if where is None and (tensor.shard_positions is not None or storage.dist.coords is not None):
                where = Where(frozenset(tensor.view_distribution().coordinates()))
            if where is not None or not memories[span.pool].note(step, is_write, span):
                touches.append(Touch(step, is_write, where or EVERYWHERE, span))
        is_write = True
    if command.says_more:
        touches += _memories(command.reads, command, device, step, is_write=False)
        touches += _memories(command.writes, command, device, step, is_write=True)
    return touches


def touches_of_replay(trace: Trace, step: Step) -> list[Touch]:
    """Results that were freed in the capture are not among them: nobody else may look at those anyway."""
    reads = [(memory.span(), False) for memory in trace.inputs()]
    writes = [(memory.span(), True) for memory in (*trace.changed(), *trace.outputs())]
    return [Touch(step, is_write, EVERYWHERE, span) for span, is_write in reads + writes if span is not None]


def _moves_nothing(inputs: Sequence[Tensor], made: Tensor) -> bool:
    """A reshape in place: its result is another tensor that lies where its operand does."""
    address = made.storage.address
    return all(t is not made for t in inputs) and any(t.storage.address == address for t in inputs)


def _memories(
    accesses: Iterable[Access], command: Command, device: MeshDevice, step: Step, *, is_write: bool
) -> Iterator[Touch]:
    is_everywhere = len(command.coords) == device.get_num_devices()
    places = None if is_everywhere else frozenset(command.coords)
    for memory, pages in accesses:
        span = span_of_memory(device, memory)
        if span is None:
            continue
        is_whole = pages is None or pages.stop - pages.start == memory.num_pages
        where = EVERYWHERE
        if pages is not None and not is_whole:
            where = Where(places, range(pages.start, pages.stop), (memory.address, span.what))
        elif places is not None:
            where = Where(places)
        yield Touch(step, is_write, where, span)
