"""SOFTMESH_LOCKSTEP=1: processes that hold one mesh compare what they did, at each collective.

On silicon they must make the same allocations and the same calls in the same order; programs that drift apart
give wrong numbers there, or hang much later. Here the first command that differs is named, with both lines.
What a process does on devices that are its own alone is its own affair.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial

import torch

from softmesh.errors import MeshError
from softmesh.processes.context import DistributedContext
from softmesh.processes.lockstep import Lockstep
from softmesh.processes.rank_grid import RankGrid
from softmesh.processes.wait_report import Site
from softmesh.runtime.commands import Command, attach

VARIABLE = "SOFTMESH_LOCKSTEP"
_PLAIN = (bool, int, float, str, Enum)


class LockstepCheck:
    """A running hash for each group of processes, of the commands on what they hold together."""

    def __init__(self) -> None:
        self._streams: weakref.WeakKeyDictionary[RankGrid, Lockstep] = weakref.WeakKeyDictionary()

    def watch(self, ranks: RankGrid) -> None:
        self._streams[ranks] = Lockstep()
        ranks.before_gathering = partial(_compare, self._streams[ranks])

    def on_command(self, command: Command) -> None:
        ranks = None if command.device is None else command.device.ranks
        stream = None if ranks is None else self._streams.get(ranks)
        if stream is not None:
            tensors = (*command.inputs, *command.outputs)
            shapes, dtypes = [tuple(t.shape) for t in tensors], [t.dtype for t in tensors]
            details = (*_plain(command.arguments), *_addresses(command))
            stream.feed(command.name, shapes, dtypes, Site(*command.site), details)


def _plain(arguments: Mapping[str, object]) -> Iterator[str]:
    """Those that read the same in every process; others, such as a socket, are objects of one."""
    for name, value in sorted(arguments.items()):
        items = value if isinstance(value, list | tuple) else (value,)
        if all(isinstance(item, _PLAIN) for item in items):
            yield f"{name}={value}"


def _addresses(command: Command) -> Iterator[str]:
    """Where results lie: memory that one process frees later than the others moves all that follows."""
    for tensor in command.outputs:
        if tensor.storage.device is not None:
            yield f"into {tensor.storage.address:#x}"


def _compare(stream: Lockstep, op: str, data: torch.Tensor, line: DistributedContext) -> None:
    stream.feed(op, [tuple(data.shape)], [data.dtype])
    stream.compare(line)


_CHECK = LockstepCheck()
_is_attached = False


def watch(ranks: RankGrid) -> None:
    """Where the environment asks for it, compare from now on."""
    global _is_attached
    if not is_wanted():
        return
    if not _is_attached:
        attach(_CHECK)
        _is_attached = True
    _CHECK.watch(ranks)


def is_wanted() -> bool:
    asked = os.environ.get(VARIABLE, "").strip()
    if asked not in ("", "0", "1"):
        raise MeshError(f"{VARIABLE}={asked[:20]!r}: set it to 1 to compare ranks at each collective, or to 0.")
    return asked == "1"
