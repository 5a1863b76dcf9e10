"""Traces for cards that have none of their own: what was submitted is kept, and submitted again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from softmesh.drivers.launching import checked_u32, scalars_in, with_scalars
from softmesh.drivers.protocol import Image, Xy
from softmesh.errors import MeshError


class Launch(NamedTuple):
    """One submission: an image, its cores, and the arguments of each of them."""

    image: Image
    cores: Sequence[Xy]
    args: Sequence[Sequence[int]]


Trace = tuple[Launch, ...]


class Recording:
    """The launches since `begin`, while there is a trace to be made of them."""

    def __init__(self) -> None:
        self._launches: list[Launch] | None = None

    @property
    def is_on(self) -> bool:
        return self._launches is not None

    def begin(self) -> None:
        if self._launches is not None:
            raise MeshError("begin_trace: a trace is being recorded already; end it with end_trace()")
        self._launches = []

    def keep(self, launch: Launch) -> None:
        assert self._launches is not None
        self._launches.append(launch)

    def end(self) -> Trace:
        launches, self._launches = self._launches, None
        if launches is None:
            raise MeshError("end_trace: no trace is being recorded; start one with begin_trace()")
        if not launches:
            raise MeshError(
                "end_trace: nothing was submitted since begin_trace(): there is nothing to replay"
            )
        return tuple(launches)


def names_in(trace: Trace) -> list[str]:
    """The arguments that a replay may change."""
    return sorted({name for launch in trace for name in scalars_in(launch.args)})


def checked_params(trace: Trace, params: Mapping[str, int] | None) -> dict[str, int]:
    """KeyError for a name that no recorded argument has."""
    known = names_in(trace)
    given = dict(params or {})
    for name, value in given.items():
        if name not in known:
            raise KeyError(f"the trace has no argument named {name!r}; it has {known}")
        checked_u32(value, f"params[{name!r}]")
    return given


def replayed(trace: Trace, params: Mapping[str, int] | None) -> Trace:
    """The launches with new values for the named arguments."""
    given = checked_params(trace, params)
    return tuple(launch._replace(args=with_scalars(launch.args, given)) for launch in trace)
