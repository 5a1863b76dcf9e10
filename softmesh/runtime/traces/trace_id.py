"""MeshTraceId: the number of a trace, counted up through the life of the process."""

from __future__ import annotations

import itertools

from softmesh.arguments import checked_int

_NUMBERS = itertools.count()


class MeshTraceId:
    """
    >>> int(MeshTraceId(3))
    3
    """

    __slots__ = ("_id",)

    def __init__(self, value: int) -> None:
        self._id = checked_int("MeshTraceId", "value", value)

    @classmethod
    def next(cls) -> MeshTraceId:
        return cls(next(_NUMBERS))

    def __int__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MeshTraceId):
            return self._id == other._id
        return self._id == other if isinstance(other, int) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"MeshTraceId({self._id})"
