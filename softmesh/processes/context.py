"""The distributed context: this process's rank among how many, and collectives and messages of bytes between them.

One process alone is a context too. What is received goes into memory that the caller gives. A buffer is anything that
holds contiguous bytes: bytes, numpy arrays, memoryviews, torch tensors on the CPU; `byte_view` views it without a
copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from softmesh.errors import MeshError
from softmesh.processes.subcontext_layout import SubcontextLayout
from softmesh.processes.wait_report import WaitKind
from softmesh.processes.waits import Group, Wait

Buffer = Any


def byte_view(buffer: Buffer, *, written: bool = False) -> memoryview:
    """The bytes of a buffer, without a copy."""
    view = memoryview(_bytes_of_tensor(buffer, written) if hasattr(buffer, "data_ptr") else buffer)
    if not view.contiguous:
        raise MeshError("a buffer that travels between processes must be contiguous")
    if written and view.readonly:
        raise MeshError("a buffer that is received into must be writable")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _bytes_of_tensor(tensor: Any, written: bool) -> Any:
    import torch

    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise MeshError("a tensor that travels between processes must be contiguous and on the CPU")
    if written and not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)  # torch does not see what comes through numpy
    # numpy does not know all of torch's types, but it knows bytes
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


class Pending(ABC):
    """A transfer under way. Its buffer must not be touched before `wait` returned."""

    @abstractmethod
    def test(self) -> bool: ...

    @abstractmethod
    def wait(self) -> None: ...


class SharedMemory(ABC):
    """Memory that all ranks of a context see: one block of bytes for each rank."""

    blocks: tuple[np.ndarray, ...]

    @abstractmethod
    def sync(self) -> None:
        """What this rank wrote is seen by others, and theirs by it, from here on; needs a barrier too."""

    @abstractmethod
    def close(self) -> None:
        """Every rank calls it; no block may be used afterwards. Left open, the memory ends with the job."""


class DistributedContext(ABC):
    """`op` and `fingerprint` name a transfer in reports: the user's call, and what all ranks must agree on.

    Where it is a text, ranks of a collective compare it: calls of other ops may have as many bytes.
    """

    rank: int
    size: int
    group: Group  # this context's ranks as world ranks, in order
    layout: SubcontextLayout
    _calls = 0  # collectives so far: the same on every rank of the group
    look_around: Callable[[], object] | None = None  # asked while a collective waits: raises where it is in vain

    def collective(self, op: str, fingerprint: object = None, nbytes: int = 0) -> Wait:
        """The wait of the next collective, for one that moves its bytes by means of its own."""
        self._calls += 1
        wait = Wait(op, WaitKind.COLLECTIVE, self.group, None, 0, self._calls, fingerprint, nbytes)
        wait.look_around = self.look_around
        return wait

    def with_peer(
        self, op: str, kind: WaitKind, peer: int, tag: int = 0, fingerprint: object = None, nbytes: int = 0
    ) -> Wait:
        """The wait for one other rank of this context."""
        return Wait(op, kind, self.group, self.group.ranks[peer], tag, None, fingerprint, nbytes)

    @abstractmethod
    def barrier(self, *, op: str = "barrier", fingerprint: object = None) -> None: ...

    @abstractmethod
    def allgather_int(self, value: int, *, op: str = "allgather_int") -> list[int]: ...

    @abstractmethod
    def allgather(
        self,
        source: Buffer,
        target: Buffer,
        *,
        op: str = "all_gather",
        fingerprint: object = None,
        salt: int | None = None,
    ) -> None:
        """Blocks of one size from every rank, in rank order. A `salt` must be the same on all of them."""

    @abstractmethod
    def allgather_bytes(self, data: Buffer, *, op: str = "all_gather", fingerprint: object = None) -> list[memoryview]:
        """Blocks that may differ in size."""

    @abstractmethod
    def all_to_all(
        self,
        source: Buffer,
        target: Buffer,
        *,
        op: str = "all_to_all",
        fingerprint: object = None,
        salt: int | None = None,
    ) -> None:
        """The i-th part of `source` goes to rank i; all parts have one size."""

    @abstractmethod
    def broadcast(self, buffer: Buffer, root: int, *, op: str = "broadcast", fingerprint: object = None) -> None: ...

    @abstractmethod
    def isend(
        self, source: Buffer, dest: int, tag: int = 0, *, op: str = "send", fingerprint: object = None
    ) -> Pending: ...

    @abstractmethod
    def irecv(
        self, target: Buffer, source: int, tag: int = 0, *, op: str = "recv", fingerprint: object = None
    ) -> Pending:
        """Exactly as many bytes as `target` holds must come."""

    def send(self, source: Buffer, dest: int, tag: int = 0, *, op: str = "send", fingerprint: object = None) -> None:
        self.isend(source, dest, tag, op=op, fingerprint=fingerprint).wait()

    def recv(self, target: Buffer, source: int, tag: int = 0, *, op: str = "recv", fingerprint: object = None) -> None:
        self.irecv(target, source, tag, op=op, fingerprint=fingerprint).wait()

    def send_recv(
        self, source: Buffer, dest: int, target: Buffer, origin: int, tag: int = 0, *, op: str = "send_recv"
    ) -> None:
        """Both at once: rings and pairs cannot block each other."""
        arriving = self.irecv(target, origin, tag, op=op)
        leaving = self.isend(source, dest, tag, op=op)
        arriving.wait()
        leaving.wait()

    @abstractmethod
    def incoming_size(self, source: int, tag: int = 0, *, op: str = "recv") -> int:
        """How many bytes the next message has; waits for it."""

    @abstractmethod
    def duplicate(self) -> DistributedContext:
        """The same ranks; messages of the two never mix."""

    @abstractmethod
    def split(self, color: int, key: int, *, about: str = "") -> DistributedContext | None:
        """One context for each colour, ranks ordered by key; colour -1 is in none. `about` is for reports."""

    @abstractmethod
    def create_sub_context(self, ranks: Sequence[int]) -> DistributedContext:
        """Only the listed ranks call it; they get the order of the list."""

    def translate_ranks_to_other_ctx(self, ranks: Sequence[int], other: DistributedContext) -> list[int]:
        """-1 for a rank that the other context does not have."""
        numbers = {world: rank for rank, world in enumerate(other.group.ranks)}
        return [numbers.get(self.group.ranks[self.checked_rank("rank", rank)], -1) for rank in ranks]

    @property
    @abstractmethod
    def one_host(self) -> bool:
        """Whether all ranks can share memory."""

    @abstractmethod
    def shared_array(self, nbytes: int) -> SharedMemory:
        """Every rank calls it and gives a block of `nbytes` bytes, which may differ."""

    @abstractmethod
    def abort(self, code: int) -> None:
        """End every process of the job."""

    def checked_rank(self, name: str, rank: int) -> int:
        if not 0 <= rank < self.size:
            ranks = "0" if self.size == 1 else f"0 to {self.size - 1}"
            raise MeshError(f"{name} {rank} is outside of the context, which has ranks {ranks}")
        return rank


class _LocalMemory(SharedMemory):
    def __init__(self, nbytes: int) -> None:
        self.blocks = (np.zeros(nbytes, dtype=np.uint8),)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        self.blocks = ()


def _unsupported(method: str) -> MeshError:
    return MeshError(
        f"method {method} is unsupported for single-host distributed contexts. "
        f"This process is alone: start the program with tt-run or mpirun to have others"
    )


def _refusing(method: str) -> Callable[..., Any]:
    def refuse(*args: object, **options: object) -> Any:
        raise _unsupported(method)

    return refuse


class SingleProcess(DistributedContext):
    """Rank 0 of 1: there is nobody to wait for, nor to send to."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1
        self.group = Group("world", (0,))
        self.layout = SubcontextLayout((1,))

    def barrier(self, *, op: str = "barrier", fingerprint: object = None) -> None:
        pass

    def allgather_int(self, value: int, *, op: str = "allgather_int") -> list[int]:
        return [value]

    def allgather(
        self,
        source: Buffer,
        target: Buffer,
        *,
        op: str = "all_gather",
        fingerprint: object = None,
        salt: int | None = None,
    ) -> None:
        byte_view(target, written=True)[:] = byte_view(source)

    def allgather_bytes(self, data: Buffer, *, op: str = "all_gather", fingerprint: object = None) -> list[memoryview]:
        return [memoryview(bytes(byte_view(data)))]

    all_to_all, broadcast = _refusing("all_to_all"), _refusing("broadcast")
    duplicate, create_sub_context = _refusing("duplicate"), _refusing("create_sub_context")
    incoming_size = _refusing("snoop_incoming_msg_size")

    def isend(
        self, source: Buffer, dest: int, tag: int = 0, *, op: str = "send", fingerprint: object = None
    ) -> Pending:
        raise _unsupported(op)

    def irecv(
        self, target: Buffer, source: int, tag: int = 0, *, op: str = "recv", fingerprint: object = None
    ) -> Pending:
        raise _unsupported(op)

    def split(self, color: int, key: int, *, about: str = "") -> DistributedContext | None:
        return self

    @property
    def one_host(self) -> bool:
        return True

    def shared_array(self, nbytes: int) -> SharedMemory:
        return _LocalMemory(nbytes)

    def abort(self, code: int) -> None:
        raise SystemExit(code)
