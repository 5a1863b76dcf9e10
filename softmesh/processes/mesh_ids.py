"""Which mesh each rank of the job is bound to: what the launcher tells all of them."""

from __future__ import annotations

import os

from softmesh.errors import MeshError
from softmesh.processes.context import DistributedContext

VARIABLE = "SOFTMESH_MESH_IDS"  # one for each rank of the job in order, such as `0,0,1,1`


def mesh_ids(world: DistributedContext) -> list[int] | None:
    """Of each rank of this context; None where nobody said."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers) or max(world.group.ranks) >= len(numbers):
        raise MeshError(f"{VARIABLE}={text[:80]!r} must list one mesh id for each rank of the job")
    return [int(numbers[rank]) for rank in world.group.ranks]
