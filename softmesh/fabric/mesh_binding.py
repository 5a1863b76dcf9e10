"""The mesh binding of a process, read from its environment: descriptor, mesh id, host rank, and hosts of the job."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from softmesh.agreed_variables import agreed, switch
from softmesh.errors import MeshError

DESCRIPTOR = agreed("TT_MESH_GRAPH_DESC_PATH")
PASS_THROUGH = agreed("TT_METAL_ENABLE_FABRIC_MESH_PASS_THROUGH", meaning=switch)  # read where routes are made
MESH_ID = "TT_MESH_ID"
HOST_RANK = "TT_MESH_HOST_RANK"
PLACES = "SOFTMESH_PLACES"  # set by the launcher, see `places_text`
_MOST_DIGITS = 9
_MOST_PLACES = 1 << 20  # characters

Place = tuple[int, int]  # a mesh, and a host rank of it


@dataclass(frozen=True)
class Binding:
    """The environment of a process: its descriptor, its mesh, its host's rank in that mesh."""

    descriptor: str | None = None
    mesh_id: int | None = None
    host_rank: int | None = None
    places: tuple[tuple[Place, str], ...] = ()  # the host, by its name in the machine, of each process that has one

    @classmethod
    def from_environment(cls) -> Binding:
        path = os.environ.get(DESCRIPTOR) or None
        return cls(path, _number(MESH_ID), _number(HOST_RANK), places_in(os.environ.get(PLACES, "")))


def places_text(places: Mapping[Place, str]) -> str:
    """The value of SOFTMESH_PLACES.

    >>> places_text({(0, 1): "galaxy-2"})
    '[[0, 1, "galaxy-2"]]'
    """
    return json.dumps([[*place, host] for place, host in places.items()])


def places_in(text: str) -> tuple[tuple[Place, str], ...]:
    if not text:
        return ()
    try:
        if len(text) > _MOST_PLACES:
            raise ValueError
        return tuple(((int(mesh), int(host_rank)), str(host)) for mesh, host_rank, host in json.loads(text))
    except (ArithmeticError, ValueError, TypeError, RecursionError):
        raise MeshError(
            f"{PLACES}={text[:40]!r} is not what tt-run sets: a JSON list of [mesh id, host rank, host]. Unset it."
        ) from None


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise MeshError(f"{variable}={text[:20]!r} is not a number: set it to 0, 1, ... or leave it out.")
    return int(text)
