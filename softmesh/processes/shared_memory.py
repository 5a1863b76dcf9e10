"""Anonymous shared memory (memfd) that the processes of one host map: a file without a name.

It is in no folder, so nothing of it is left once its processes have ended, however they end, and it takes only as
much memory as is written to. Where it cannot be had (several hosts, another kernel, SOFTMESH_SHARED_MEMORY=0) all
ranks of a context learn so together, and send messages instead. `Segment.order` is the memory fence, None on
processors that need none.
"""

from __future__ import annotations

import mmap
import os
import platform
import secrets
from collections.abc import Callable

import numpy as np
import torch

from softmesh.errors import MeshError
from softmesh.processes.context import DistributedContext

SHARED_MEMORY = "SOFTMESH_SHARED_MEMORY"
SPAN = 1 << 40  # addresses, not memory
BOARD = SPAN - (1 << 33)  # from here on is no room for tensors: see call_board
# These processors let others see writes in the order in which they were made, and make no read late.
_STRONGLY_ORDERED = ("x86_64", "AMD64", "i686")
_KEY_WORDS = 3  # process, descriptor, and a random number that stands in the file


class Segment:
    """One mapping of the file. `order` keeps what was written or read before apart from what comes after."""

    def __init__(self, descriptor: int, order: Callable[[], None] | None) -> None:
        self.map = mmap.mmap(descriptor, SPAN)
        self.map.madvise(mmap.MADV_DONTDUMP)
        self.words = memoryview(self.map).cast("Q")
        self.order = order
        self._bytes = np.frombuffer(self.map, dtype=np.uint8)

    def tensor(self, offset: int, size: int) -> torch.Tensor:
        """These bytes, as memory that torch counts the owners of."""
        return torch.frombuffer(self._bytes[offset : offset + size], dtype=torch.uint8)

    def release(self, offset: int, size: int) -> None:
        """Give the memory back to the machine; what is read there afterwards is zero."""
        self.map.madvise(mmap.MADV_REMOVE, offset, size)


def shared_segment(context: DistributedContext, op: str) -> Segment | None:
    """A segment for all ranks of a context, who call this together; None where they cannot have one."""
    if not context.one_host or not is_enabled():
        return None
    key = np.zeros(_KEY_WORDS, dtype=np.int64)
    descriptor = -1
    if context.rank == 0:
        descriptor = _made(key)
    context.broadcast(key, 0, op=op)
    if context.rank != 0:
        descriptor = _found(key)
    segment = _mapped(descriptor, context)
    everybody = min(context.allgather_int(int(segment is not None), op=op))
    if descriptor >= 0:
        os.close(descriptor)
    return segment if everybody else None


def is_enabled() -> bool:
    asked = os.environ.get(SHARED_MEMORY, "").strip()
    if asked not in ("", "0", "1"):
        raise MeshError(f"{SHARED_MEMORY}={asked[:20]!r}: set it to 0 to send messages instead, or to 1.")
    return asked != "0" and hasattr(os, "memfd_create")


def _made(key: np.ndarray) -> int:
    try:
        descriptor = os.memfd_create("softmesh", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, SPAN)
    except OSError:
        return -1
    proof = secrets.randbits(62)
    os.pwrite(descriptor, proof.to_bytes(8, "little"), SPAN - 8)
    key[:] = os.getpid(), descriptor, proof
    return descriptor


def _found(key: np.ndarray) -> int:
    """The first rank's file; another process of that number, in a container of its own, has not this one."""
    process, number, proof = key.tolist()
    if not process:
        return -1
    try:
        descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1
    if os.fstat(descriptor).st_size == SPAN and os.pread(descriptor, 8, SPAN - 8) == proof.to_bytes(8, "little"):
        return descriptor
    os.close(descriptor)
    return -1


def _mapped(descriptor: int, context: DistributedContext) -> Segment | None:
    order = None if platform.machine() in _STRONGLY_ORDERED else context.shared_array(8).sync
    if descriptor < 0:
        return None
    try:
        return Segment(descriptor, order)
    except (OSError, ValueError):
        return None
