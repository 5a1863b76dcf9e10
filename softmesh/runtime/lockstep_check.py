"""SOFTMESH_LOCKSTEP=1: processes that hold one mesh compare every command, also those that each runs for itself.

Calls that all of them must make alike are compared in any case (`processes.lockstep`). On silicon plain ops and
allocations must agree as well: programs that drift apart in these give wrong numbers there, or hang much later. What a
process does on devices that are its own alone is its own affair.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

import torch

from softmesh.agreed_variables import agreed
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.processes.lockstep import described
from softmesh.runtime.commands import Command, attach

if TYPE_CHECKING:
    from softmesh.placement.placements import Placement
    from softmesh.processes.rank_grid import RankGrid
    from softmesh.runtime.command_tensor import CommandTensor
    from softmesh.runtime.device import MeshDevice

VARIABLE = agreed("SOFTMESH_LOCKSTEP")
_PLAIN = (bool, int, float, str, Enum)
_VALUES = ("softmesh.hardware", "softmesh.cores", "softmesh.mesh")  # configurations, core ranges, coordinates


class LockstepCheck:
    """Notes each command on a mesh of several processes, and looks whether the others made it too."""

    def on_command(self, command: Command) -> None:
        mesh = command.device
        ranks = None if mesh is None else mesh.ranks
        if mesh is None or ranks is None or _only_reads(command):
            return
        operands = [f"{t.dtype} {list(t.shape)}" for t in (*command.inputs, *command.outputs)]
        written = [] if _on_devices(command.inputs) else [t for t in command.outputs if t.storage.data is not None]
        said = [*operands, *plain_arguments(command.arguments), *_values(ranks, written)]
        tensors = _on_devices((*command.inputs, *command.outputs))
        addresses = tuple(tensor.storage.address for tensor in tensors)
        ranks.calls.note(described(command.name, said, mesh.told_place), addresses)
        ranks.calls.check()
        for text in _compared(ranks, written):
            ranks.calls.note(described(command.name, [text], mesh.told_place))
            ranks.calls.check()


def _only_reads(command: Command) -> bool:
    """What one rank may do for itself: nothing on the devices is another after it."""
    if command.kind is Kind.SYNCHRONIZE_EVENT:
        return True
    is_read = bool(command.inputs or command.reads) and command.kind is not Kind.DEALLOCATION
    return is_read and not command.writes and not _on_devices(command.outputs)


def _on_devices(tensors: tuple[CommandTensor, ...]) -> list[CommandTensor]:
    return [tensor for tensor in tensors if tensor.storage.device is not None]


def plain_arguments(arguments: Mapping[str, object]) -> Iterator[str]:
    """Those that read the same in every process; others, such as a socket, are objects of one."""
    for name, value in sorted(arguments.items()):
        items = value if isinstance(value, list | tuple) else (value,)
        if all(isinstance(item, _PLAIN) or type(item).__module__.startswith(_VALUES) for item in items):
            yield f"{name}={value}"


def _digest(tensor: CommandTensor) -> int:
    data = tensor.storage.data
    assert data is not None
    return _digest_of(data)


def _digest_of(data: torch.Tensor) -> int:
    return zlib.crc32(data.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def _values(ranks: RankGrid, written: Sequence[CommandTensor]) -> Iterator[str]:
    """A digest of what the host wrote, where all processes say that they hold the same."""
    for tensor in written:
        placements = tensor.storage.dist.placements
        if ranks.shared_axes(placements) and ranks.share(placements):
            yield f"replicated values {_digest(tensor):08x}"


def _compared(ranks: RankGrid, written: Sequence[CommandTensor]) -> Iterator[str]:
    """What the host wrote where some of the processes hold the same; others hold another part."""
    for tensor in written:
        placements = tensor.storage.dist.placements
        if not ranks.shared_axes(placements) or ranks.share(placements):
            continue
        own, first = _digest(tensor), ranks.first_holder(placements)
        its = ranks.context.allgather_int(own, op="lockstep check")[first]
        unlike = f" {own:08x}, unlike {its:08x} of rank {ranks.context.group.ranks[first]}" if own != its else ""
        yield f"replicated values{unlike}"


def note_whole(mesh: MeshDevice, data: torch.Tensor, placements: Sequence[Placement]) -> None:
    """Compare all of what the host has before it is split over processes: each keeps another part of it."""
    ranks = mesh.ranks
    if _is_attached and ranks is not None and not ranks.share(placements):
        whole = f"all values of the host {_digest_of(data):08x}"
        ranks.calls.note(described("split_over_ranks", [whole], mesh.told_place))
        ranks.calls.check()


_CHECK = LockstepCheck()
_is_attached = False


def watch() -> None:
    """Where the environment asks for it, compare from now on."""
    global _is_attached
    if is_wanted() and not _is_attached:
        attach(_CHECK)
        _is_attached = True


def is_wanted() -> bool:
    asked = os.environ.get(VARIABLE, "").strip()
    if asked not in ("", "0", "1"):
        raise MeshError(f"{VARIABLE}={asked[:20]!r}: set it to 1 to compare every command of the ranks, or to 0.")
    return asked == "1"
