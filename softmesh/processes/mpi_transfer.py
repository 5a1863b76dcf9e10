"""Transfers over MPI that are under way, and how they end: complete, in error, or given up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mpi4py import MPI

from softmesh.errors import MeshError
from softmesh.processes.context import Pending
from softmesh.processes.waiting import Wait, differing

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
                wait.stay_broken()
                raise
            if not agrees():
                wait.stay_broken()
                raise differing(wait)
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
