"""TT-NN's functions on the distributed context, and its number types: `Rank(3)` is no list index and never equals 3."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.arguments import checked, checked_int
from softmesh.errors import ArgumentValueError
from softmesh.processes import current_context


@dataclass(frozen=True)
class _Number:
    value: int

    def __post_init__(self) -> None:
        checked_int(type(self).__name__, "value", self.value)

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"


@dataclass(frozen=True, order=True, repr=False)
class Rank(_Number):
    """The number of a process in its context.

    >>> Rank(3), str(Rank(3)), Rank(3) == 3, Rank(2) < Rank(3)
    (Rank(3), '3', False, True)
    """


@dataclass(frozen=True, order=True, repr=False)
class Size(_Number):
    """How many processes a context has."""


@dataclass(frozen=True, repr=False)
class SubcontextId(_Number):
    """The number of a sub-context of the job."""


_INT_MAX = 2**31 - 1


def init_distributed_context() -> None:
    """Join the other processes of the job, if there are any. Opening a device does it too."""
    current_context.init()


def distributed_context_is_initialized() -> bool:
    return current_context.is_initialized()


def using_distributed_env() -> bool:
    """Whether there are other processes."""
    return current_context.is_initialized() and current_context.world_context().size > 1


def distributed_context_get_rank() -> Rank:
    """In the sub-context, where the job is split."""
    return Rank(current_context.current_world().rank)


def distributed_context_get_size() -> Size:
    return Size(current_context.current_world().size)


def distributed_context_world_rank() -> Rank:
    return Rank(current_context.world_context().rank)


def distributed_context_world_size() -> Size:
    return Size(current_context.world_context().size)


def distributed_context_barrier() -> None:
    current_context.current_world().barrier()


def distributed_context_allgather_int(value: int) -> list[int]:
    """Every rank's value, in rank order."""
    where = "distributed_context_allgather_int"
    value = checked_int(where, "value", value)
    if not -(2**63) <= value < 2**63:
        raise ArgumentValueError(f"{where}: value must fit into 64 bits, got {value}")
    return current_context.current_world().allgather_int(value)


def distributed_context_send_bytes(data: bytes, dest: int, tag: int = 0) -> None:
    where = "distributed_context_send_bytes"
    data = checked(where, "data", data, bytes, "bytes")
    dest, tag = _number(where, "dest", dest), _tag(where, tag)
    _check_size(where, len(data))
    current_context.current_world().send(data, dest, tag, op="send_bytes")


def distributed_context_recv_bytes(size: int, source: int, tag: int = 0) -> bytes:
    """Exactly `size` bytes."""
    where = "distributed_context_recv_bytes"
    size, source = checked_int(where, "size", size), _number(where, "source", source)
    tag = _tag(where, tag)
    _check_size(where, size)
    world = current_context.current_world()
    data = bytearray(size)
    world.recv(data, source, tag, op="recv_bytes")
    return bytes(data)


def distributed_context_subcontext_id() -> int | None:
    """None unless the job is split."""
    return current_context.world_context().layout.id


def distributed_context_subcontext_count() -> int:
    return len(current_context.world_context().layout.sizes)


def distributed_context_subcontext_sizes() -> list[int]:
    return list(current_context.world_context().layout.sizes)


def distributed_context_subcontext_size(subcontext_id: int | SubcontextId) -> Size:
    layout = current_context.world_context().layout
    return Size(layout.size(_number("distributed_context_subcontext_size", "subcontext_id", subcontext_id)))


def distributed_context_local_to_world_rank(subcontext_id: int | SubcontextId, local_rank: int | Rank) -> Rank:
    where = "distributed_context_local_to_world_rank"
    layout = current_context.world_context().layout
    return Rank(
        layout.world_rank(_number(where, "subcontext_id", subcontext_id), _number(where, "local_rank", local_rank))
    )


def _tag(where: str, tag: object) -> int:
    number = checked_int(where, "tag", tag)
    if not 0 <= number < _INT_MAX:  # the largest one is softmesh's own
        raise ArgumentValueError(f"{where}: a tag is 0 or more and less than {_INT_MAX}, got {number}")
    return number


def _check_size(where: str, size: int) -> None:
    if size < 0:
        raise ArgumentValueError(f"{where}: size must not be negative, got {size}")
    if size > _INT_MAX:
        raise ArgumentValueError(
            f"{where}: a message has at most {_INT_MAX} bytes, as in MPI, and this one {size}: send it in parts"
        )


def _number(where: str, name: str, value: object) -> int:
    """A plain int, or one of TT-NN's wrapped ones."""
    return int(value) if isinstance(value, Rank | SubcontextId) else checked_int(where, name, value)
