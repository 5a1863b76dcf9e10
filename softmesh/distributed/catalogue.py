"""The unified form of an op that has no description of its own."""

from __future__ import annotations

from softmesh.collectives.collective import Collective
from softmesh.distributed.derived import describe
from softmesh.distributed.elementwise import shape_of
from softmesh.distributed.unified import Unified
from softmesh.errors import NotModelled
from softmesh.ops.registry import Operation


def unified(found: object) -> object:
    """What `softmesh.distributed.X` is for `ttnn.X`: a plain op plans its communication, anything else is itself."""
    if isinstance(found, Collective):
        raise NotModelled(
            f"softmesh.distributed has no {found.name!r}: unified ops insert the collectives they need. "
            f"ttnn.{found.name} is the collective itself; softmesh.distributed.redistribute(x, placements) changes a "
            "placement."
        )
    return Unified(found.name, describe, shape_of) if isinstance(found, Operation) else found
