"""The distributed context over MPI. Nothing blocks inside MPI: calls are started as non-blocking requests, then
polled.

The few calls that MPI has no non-blocking form of (making groups and shared memory) begin with a barrier of all that
take part, so that they find everybody there. A message larger than MPI can count goes in pieces.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from softmesh.errors import MeshError
from softmesh.processes.context import Buffer, DistributedContext, Pending, SharedMemory, byte_view
from softmesh.processes.subcontext_layout import SubcontextLayout
from softmesh.processes.wait_report import WaitKind, ranges
from softmesh.processes.waits import CallMismatch, Group, Wait

# MPI counts with 32 bits; larger messages go in pieces.
LARGEST_PIECE = 1 << 30

# Transfers that were given up may still be written to by MPI: their memory stays until the process ends.
_given_up: list[MPI.Request] = []


class Transfer(Pending):
    """One message, in as many pieces as it needs; `expected` bytes must come, where that is known."""

    def __init__(self, pieces: list[MPI.Request], wait: Wait, expected: int | None = None) -> None:
        self._pieces, self._wait, self._expected = pieces, wait, expected
        self._statuses = None if expected is None else [MPI.Status() for _ in pieces]
        self._done = False

    def test(self) -> bool:
        try:
            if not self._done and MPI.Request.Testall(self._pieces, self._statuses):
                self._done = True
                self._check()
        except MPI.Exception as error:
            raise failed(self._wait.op, error) from error
        return self._done

    def wait(self) -> None:
        if self._done:
            return
        try:
            with self._wait as wait:
                wait.until(self._look())
        except MPI.Exception as error:
            raise failed(self._wait.op, error) from error
        except BaseException:
            _given_up.extend(self._pieces)
            raise
        self._done = True
        self._check()

    def _look(self) -> Callable[[], bool]:
        """The cheapest question whether it is over: it is asked often."""
        if len(self._pieces) > 1:
            return partial(MPI.Request.Testall, self._pieces, self._statuses)
        test = self._pieces[0].Test
        return test if self._statuses is None else partial(test, self._statuses[0])

    def _check(self) -> None:
        if self._statuses is None:
            return
        came = sum(status.Get_count(MPI.BYTE) for status in self._statuses)
        if came != self._expected:
            raise MeshError(
                f"{self._wait.op} from rank {self._wait.peer} of the world wanted {self._expected} bytes, "
                f"and {came} came: both sides must agree on the size"
            )


def in_pieces(view: memoryview) -> list[memoryview]:
    """At least one: an empty message is a message."""
    if view.nbytes <= LARGEST_PIECE:
        return [view]
    return [view[at : at + LARGEST_PIECE] for at in range(0, view.nbytes, LARGEST_PIECE)]


def finish(requests: list[MPI.Request], wait: Wait, agrees: Callable[[], bool]) -> None:
    """See a collective through to its end, after which all must be found to agree."""
    look = requests[0].Test if len(requests) == 1 else partial(MPI.Request.Testall, requests)
    try:
        with wait:
            try:
                wait.until(look)
            except MPI.Exception:
                wait.linger_for_report()
                raise
            if not agrees():
                raise CallMismatch(wait)
    except MPI.Exception as error:
        raise failed(wait.op, error) from error
    except BaseException:
        _given_up.extend(requests)
        raise


def failed(op: str, error: MPI.Exception) -> MeshError:
    return MeshError(
        f"{op} failed: {error.Get_error_string()} (rank {MPI.COMM_WORLD.rank}, error code "
        f"{error.Get_error_code()}): most often the ranks are in different calls, or disagree on the size"
    )


def world() -> MpiContext:
    comm = MPI.COMM_WORLD
    nodes = _nodes(comm)
    group = Group("world", tuple(range(comm.size)))
    return MpiContext(comm, group, nodes, SubcontextLayout((comm.size,)))


def _nodes(comm: MPI.Intracomm) -> tuple[int, ...]:
    """For each rank the first rank of its host: equal numbers can share memory."""
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = np.array(_world_ranks_of(here)[:1], dtype=np.int64)
    here.Free()
    all_first = np.empty(comm.size, dtype=np.int64)
    comm.Allgather(first, all_first)
    return tuple(all_first.tolist())


def _world_ranks_of(comm: MPI.Comm) -> tuple[int, ...]:
    whole, part = MPI.COMM_WORLD.Get_group(), comm.Get_group()
    ranks = tuple(part.Translate_ranks(list(range(part.size)), whole))
    whole.Free()
    part.Free()
    return ranks


class _Window(SharedMemory):
    def __init__(self, window: MPI.Win, size: int, meet: Callable[[], None]) -> None:
        self._window, self._meet = window, meet
        parts: list[Any] = [window.Shared_query(rank)[0] for rank in range(size)]
        self.blocks = tuple(np.frombuffer(part, dtype=np.uint8) for part in parts)

    def sync(self) -> None:
        self._window.Sync()

    def close(self) -> None:
        self.blocks = ()
        self._meet()
        self._window.Free()


class MpiContext(DistributedContext):
    def __init__(self, comm: MPI.Intracomm, group: Group, nodes: tuple[int, ...], layout: SubcontextLayout) -> None:
        self._comm, self.group, self._nodes, self.layout = comm, group, nodes, layout
        self.rank, self.size = comm.rank, comm.size
        self._children: dict[str, int] = {}

    def barrier(self, *, op: str = "barrier", fingerprint: object = None) -> None:
        self._collective(op, fingerprint, 0, self._comm.Ibarrier)

    def allgather_int(self, value: int, *, op: str = "allgather_int") -> list[int]:
        values = np.empty(self.size, dtype=np.int64)
        self.allgather(np.array([value], dtype=np.int64), values, op=op)
        return [int(value) for value in values]

    def allgather(
        self,
        source: Buffer,
        target: Buffer,
        *,
        op: str = "all_gather",
        fingerprint: object = None,
        salt: int | None = None,
    ) -> None:
        mine, all_of_them = byte_view(source), byte_view(target, written=True)
        size = mine.nbytes
        self._check_total("all_gather", size, all_of_them.nbytes)
        if size <= LARGEST_PIECE:
            self._collective(
                op,
                fingerprint,
                all_of_them.nbytes,
                partial(self._comm.Iallgather, [mine, size, MPI.BYTE], [all_of_them, size, MPI.BYTE]),
                salt,
            )
            return
        all_of_them[self.rank * size : (self.rank + 1) * size] = mine
        for root in range(self.size):
            self.broadcast(all_of_them[root * size : (root + 1) * size], root, op=op, fingerprint=fingerprint)

    def allgather_bytes(self, data: Buffer, *, op: str = "all_gather", fingerprint: object = None) -> list[memoryview]:
        mine = byte_view(data)
        sizes = self.allgather_int(mine.nbytes, op=op)
        total = memoryview(bytearray(sum(sizes)))
        ends = np.cumsum(sizes).tolist()
        blocks = [total[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        blocks[self.rank][:] = mine
        if len(total) <= LARGEST_PIECE:
            offsets = [end - size for size, end in zip(sizes, ends, strict=True)]
            self._collective(
                op,
                fingerprint,
                len(total),
                partial(self._comm.Iallgatherv, MPI.IN_PLACE, [total, sizes, offsets, MPI.BYTE]),
            )
            return blocks
        for root, block in enumerate(blocks):
            self.broadcast(block, root, op=op, fingerprint=fingerprint)
        return blocks

    def all_to_all(
        self,
        source: Buffer,
        target: Buffer,
        *,
        op: str = "all_to_all",
        fingerprint: object = None,
        salt: int | None = None,
    ) -> None:
        mine, theirs = byte_view(source), byte_view(target, written=True)
        part = mine.nbytes // self.size
        self._check_total("all_to_all", part, mine.nbytes)
        self._check_total("all_to_all", part, theirs.nbytes)
        if part > LARGEST_PIECE:
            self._all_to_all_in_pieces(mine, theirs, part, op)
            return
        self._collective(
            op,
            fingerprint,
            theirs.nbytes,
            partial(self._comm.Ialltoall, [mine, part, MPI.BYTE], [theirs, part, MPI.BYTE]),
            salt,
        )

    def _all_to_all_in_pieces(self, mine: memoryview, theirs: memoryview, part: int, op: str) -> None:
        """Rank by rank, each to the one so many places further on."""
        places = [slice(rank * part, (rank + 1) * part) for rank in range(self.size)]
        theirs[places[self.rank]] = mine[places[self.rank]]
        for distance in range(1, self.size):
            to, origin = (self.rank + distance) % self.size, (self.rank - distance) % self.size
            self.send_recv(mine[places[to]], to, theirs[places[origin]], origin, op=op)

    def broadcast(self, buffer: Buffer, root: int, *, op: str = "broadcast", fingerprint: object = None) -> None:
        self.checked_rank("root", root)
        for piece in in_pieces(byte_view(buffer, written=self.rank != root)):
            message = [piece, piece.nbytes, MPI.BYTE]
            self._collective(op, fingerprint, piece.nbytes, partial(self._comm.Ibcast, message, root))

    def isend(
        self, source: Buffer, dest: int, tag: int = 0, *, op: str = "send", fingerprint: object = None
    ) -> Pending:
        view = byte_view(source)
        pieces = self._started(op, self._comm.Isend, view, dest, tag)
        return Transfer(pieces, self.with_peer(op, WaitKind.SEND, dest, tag, fingerprint, view.nbytes))

    def irecv(
        self, target: Buffer, source: int, tag: int = 0, *, op: str = "recv", fingerprint: object = None
    ) -> Pending:
        view = byte_view(target, written=True)
        pieces = self._started(op, self._comm.Irecv, view, source, tag)
        wait = self.with_peer(op, WaitKind.RECEIVE, source, tag, fingerprint, view.nbytes)
        return Transfer(pieces, wait, view.nbytes)

    def incoming_size(self, source: int, tag: int = 0, *, op: str = "recv") -> int:
        self._check_peer(op, source, tag)
        status = MPI.Status()
        with self.with_peer(op, WaitKind.RECEIVE, source, tag, None, 0) as wait:
            wait.until(lambda: self._comm.Iprobe(source, tag, status))
        return int(status.Get_count(MPI.BYTE))

    def duplicate(self) -> MpiContext:
        self.barrier(op="duplicate")
        number = self._number_of_child("copy")
        return self._child(self._comm.Dup(), f"copy{number}", self.group.ranks, f"a copy of {self._called}")

    def split(self, color: int, key: int, *, about: str = "") -> MpiContext | None:
        if color < -1:
            raise MeshError(f"split: a colour is 0 or more, or -1 for none, got {color}")
        self.barrier(op="split")
        comm = MPI.Intracomm(self._comm.Split(MPI.UNDEFINED if color == -1 else color, key))
        number = self._number_of_child("split")
        if comm == MPI.COMM_NULL:
            return None
        about = about or f"split of {self._called} by color {color}"
        return self._child(comm, f"split{number}:{color}", _world_ranks_of(comm), about)

    def create_sub_context(self, ranks: Sequence[int]) -> MpiContext:
        members = [self.checked_rank("create_sub_context: rank", rank) for rank in ranks]
        if len(set(members)) != len(members):
            raise MeshError(f"create_sub_context: a rank is listed twice in {members}")
        if self.rank not in members:
            raise MeshError(f"create_sub_context: rank {self.rank} is not in the list {members}, and must not call it")
        self._meet(members)
        group = self._comm.Get_group().Incl(members)
        comm = MPI.Intracomm(self._comm.Create_group(group))
        group.Free()
        name = f"[{ranges(members)}]"
        name += str(self._number_of_child(name) or "")
        return self._child(comm, name, _world_ranks_of(comm), f"a part of {self._called}")

    @property
    def one_host(self) -> bool:
        return len({self._nodes[rank] for rank in self.group.ranks}) == 1

    def shared_array(self, nbytes: int) -> SharedMemory:
        if not self.one_host:
            raise MeshError("shared_array: the ranks of this context are on several hosts, which share no memory")
        self.barrier(op="shared_array")
        window = MPI.Win.Allocate_shared(nbytes, 1, comm=self._comm)
        return _Window(window, self.size, lambda: self.barrier(op="shared_array"))

    def abort(self, code: int) -> None:
        MPI.COMM_WORLD.Abort(code)

    def _collective(
        self, op: str, fingerprint: object, nbytes: int, call: Callable[..., MPI.Request], salt: int | None = None
    ) -> None:
        """`call` takes no arguments: it starts the operation. What ranks must agree on is under way meanwhile."""
        wait = self.collective(op, fingerprint, nbytes)
        digests = np.zeros(self.size if isinstance(fingerprint, str) else 0, dtype=np.int64)
        try:
            requests = [call()]
            if digests.size:
                own = np.array([zlib.crc32(f"{op} {fingerprint}".encode()) ^ (salt or 0)], dtype=np.int64)
                requests.append(self._comm.Iallgather(own, digests))
        except MPI.Exception as error:
            raise failed(op, error) from error
        try:
            finish(requests, wait, lambda: len(set(digests.tolist())) <= 1)
        except CallMismatch:
            if salt is None:
                wait.linger_for_report()
            raise

    def _started(
        self, op: str, call: Callable[..., MPI.Request], view: memoryview, peer: int, tag: int
    ) -> list[MPI.Request]:
        self._check_peer(op, peer, tag)
        try:
            return [call([piece, piece.nbytes, MPI.BYTE], peer, tag) for piece in in_pieces(view)]
        except MPI.Exception as error:
            raise failed(op, error) from error

    def _check_peer(self, op: str, peer: int, tag: int) -> None:
        self.checked_rank(f"{op}: rank", peer)
        if peer == self.rank:
            raise MeshError(f"{op}: rank {peer} is this process itself, which cannot send and receive at once")
        if tag < 0:
            raise MeshError(f"{op}: a tag is 0 or more, got {tag}")

    def _check_total(self, op: str, each: int, total: int) -> None:
        if total != each * self.size:
            raise MeshError(f"{op}: {each} bytes from each of {self.size} ranks do not make a buffer of {total} bytes")

    def _meet(self, members: Sequence[int]) -> None:
        """A barrier of some ranks, before they have a group of their own."""
        first, nothing, tag = members[0], bytearray(), self._comm.Get_attr(MPI.TAG_UB) or 0
        if self.rank != first:
            self.send_recv(nothing, first, nothing, first, tag, op="create_sub_context")
            return
        for member in members[1:]:
            self.recv(nothing, member, tag, op="create_sub_context")
        for member in members[1:]:
            self.send(nothing, member, tag, op="create_sub_context")

    def _number_of_child(self, kind: str) -> int:
        number = self._children.get(kind, 0)
        self._children[kind] = number + 1
        return number

    @property
    def _called(self) -> str:
        return self.group.about or self.group.name

    def _child(self, comm: MPI.Intracomm, name: str, ranks: tuple[int, ...], about: str) -> MpiContext:
        group = Group(f"{self.group.name}/{name}", ranks, about)
        return MpiContext(comm, group, self._nodes, SubcontextLayout((comm.size,)))
