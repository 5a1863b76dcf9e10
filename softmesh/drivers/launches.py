"""Launches on one card: their cores and arguments, checked; and traces, which record launches and submit them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from softmesh.drivers.protocol import Args, Cores, Image, Scalar, Xy
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError

_LARGEST_U32 = 2**32 - 1


def chosen_cores(cores: Cores, available: Sequence[Xy]) -> list[Xy]:
    """
    >>> chosen_cores(2, [(0, 0), (1, 0), (2, 0)])
    [(0, 0), (1, 0)]
    """
    if isinstance(cores, str):
        if cores != "all":
            raise ArgumentValueError(f"cores={cores!r}: write 'all', a number, or a list of (x, y)")
        return list(available)
    if isinstance(cores, int):
        if not 0 < cores <= len(available):
            raise ArgumentValueError(f"cores={cores}: this card has {len(available)} cores for programs")
        return list(available[:cores])
    chosen = [(int(x), int(y)) for x, y in cores]
    missing = sorted(set(chosen) - set(available))
    if missing or len(set(chosen)) < len(chosen) or not chosen:
        cause = f"{missing[0]} is none of this card's" if missing else "each core once, and at least one"
        raise ArgumentValueError(f"cores={chosen}: {cause}")
    return chosen


def core_args(args: Args, cores: Sequence[Xy]) -> list[list[int]]:
    """The arguments of each core.

    >>> core_args(lambda index, xy, n: [index, n], [(0, 0), (1, 0)])
    [[0, 2], [1, 2]]
    """
    if callable(args):
        lists = [list(args(index, xy, len(cores))) for index, xy in enumerate(cores)]
    elif not args or isinstance(args[0], int):
        lists = [list(args) for _ in cores]  # type: ignore[arg-type]
    else:
        lists = [list(each) for each in args]  # type: ignore[arg-type]
    if len(lists) != len(cores):
        raise ArgumentValueError(f"there are arguments for {len(lists)} cores, and the program runs on {len(cores)}")
    for xy, values in zip(cores, lists, strict=True):
        for place, value in enumerate(values):
            checked_u32(value, f"argument {place} of core {xy}")
    return lists


def checked_u32(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentError(f"{what} must be an int, got {value!r}")
    if not 0 <= value <= _LARGEST_U32:
        raise ArgumentValueError(f"{what} must fit 32 bits without a sign, got {value}")
    return value


def scalars_in(args: Sequence[Sequence[int]]) -> dict[str, int]:
    """The named arguments among these lists, with their values."""
    return {value.name: int(value) for values in args for value in values if isinstance(value, Scalar)}


def with_scalars(args: Sequence[Sequence[int]], params: Mapping[str, int]) -> list[list[int]]:
    """The same arguments, with other values for some of the named ones."""
    return [
        [Scalar(v.name, params[v.name]) if isinstance(v, Scalar) and v.name in params else v for v in values]
        for values in args
    ]


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
            raise MeshError("end_trace: nothing was submitted since begin_trace(): there is nothing to replay")
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


def with_params(trace: Trace, params: Mapping[str, int] | None) -> Trace:
    """The launches with new values for the named arguments."""
    given = checked_params(trace, params)
    return tuple(launch._replace(args=with_scalars(launch.args, given)) for launch in trace)
