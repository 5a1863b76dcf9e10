"""QueueId, the number of a command queue; and the current queue of each thread, for calls that name none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from softmesh.arguments import checked_int, described, refused
from softmesh.errors import ArgumentValueError

_MAX = 255


class NumberedId:
    """A number of one kind; equal to the plain int."""

    __slots__ = ("_id",)

    def __init__(self, number: int) -> None:
        self._id = number

    def __int__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return self._id == other._id
        return self._id == other if isinstance(other, int) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._id})"


class QueueId(NumberedId):
    """The number of a command queue; equal to the plain int.

    >>> QueueId(1) == 1
    True
    """

    __slots__ = ()

    def __init__(self, arg: int | QueueId) -> None:
        super().__init__(checked_int("QueueId", "arg", arg))
        if not 0 <= self._id <= _MAX:
            raise refused("QueueId", f"a queue has a number of 0 to {_MAX}, got {self._id}")

    def __index__(self) -> int:
        return self._id


class _Current(threading.local):
    number = 0
    outer: tuple[int, ...] = ()


_CURRENT = _Current()
on_change: Callable[[int], None] | None = None  # told of a thread's new queue: on a GPU it is a stream
is_pushed = False  # whether any thread ever chose a queue: asking a thread for its own costs more


def current_queue() -> int:
    return _CURRENT.number if is_pushed else 0


def chosen_queue(where: str, cq_id: int | QueueId | None) -> int:
    """The number of the queue a call names, or of the thread's current one."""
    return _CURRENT.number if cq_id is None else checked_int(where, "cq_id", cq_id)


def get_current_command_queue_id_for_thread() -> QueueId:
    return QueueId(_CURRENT.number)


def push_current_command_queue_id_for_thread(cq_id: int | QueueId) -> None:
    global is_pushed
    number = int(QueueId(cq_id))
    is_pushed = True
    _CURRENT.outer = (*_CURRENT.outer, _CURRENT.number)
    _CURRENT.number = number
    if on_change is not None:
        on_change(number)


def pop_current_command_queue_id_for_thread() -> None:
    if not _CURRENT.outer:
        raise ArgumentValueError(
            "pop_current_command_queue_id_for_thread: nothing was pushed by this thread; use "
            "`with ttnn.command_queue(cq_id):`, which keeps both in step."
        )
    *outer, _CURRENT.number = _CURRENT.outer
    _CURRENT.outer = tuple(outer)
    if on_change is not None:
        on_change(_CURRENT.number)


@contextmanager
def command_queue(cq_id: int | QueueId) -> Iterator[None]:
    """Let what this thread calls in a `with` block go to this queue, where the call names none."""
    if cq_id is None:
        raise ArgumentValueError(f"command_queue: cq_id must be the number of a queue, got {described(cq_id)}.")
    push_current_command_queue_id_for_thread(cq_id)
    try:
        yield
    finally:
        pop_current_command_queue_id_for_thread()
