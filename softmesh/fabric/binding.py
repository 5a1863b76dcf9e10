"""Which mesh a process works on, as its environment says."""

from __future__ import annotations

import os
from dataclasses import dataclass

from softmesh.errors import MeshError

DESCRIPTOR = "TT_MESH_GRAPH_DESC_PATH"
MESH_ID = "TT_MESH_ID"
HOST_RANK = "TT_MESH_HOST_RANK"
_MOST_DIGITS = 9


@dataclass(frozen=True)
class Binding:
    """The environment of a process: its descriptor, its mesh, its host's rank in that mesh."""

    descriptor: str | None = None
    mesh_id: int | None = None
    host_rank: int | None = None

    @classmethod
    def from_environment(cls) -> Binding:
        path = os.environ.get(DESCRIPTOR) or None
        return cls(path, _number(MESH_ID), _number(HOST_RANK))


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise MeshError(f"{variable}={text[:20]!r} is not a number: set it to 0, 1, ... or leave it out.")
    return int(text)
