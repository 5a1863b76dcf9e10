"""The processes that hold one mesh, as the grid of their blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from softmesh.errors import MeshError
from softmesh.processes.context import DistributedContext


class RankGrid:
    """`hosts` processes along each axis; ranks of `context` run through the grid row by row."""

    def __init__(self, context: DistributedContext, hosts: tuple[int, ...]) -> None:
        self.context = context
        self.hosts = hosts
        self.at = _place(context.rank, hosts)
        self.before_gathering: Callable[[str, torch.Tensor, DistributedContext], None] | None = None
        self._lines = {axis: self._along(axis) for axis, n in enumerate(hosts) if n > 1}

    def _along(self, axis: int) -> DistributedContext:
        """The processes that differ from this one along one axis only, in order."""
        others = _number([0 if a == axis else i for a, i in enumerate(self.at)], self.hosts)
        line = self.context.split(others, self.at[axis])
        assert line is not None
        return line

    def gather(self, data: torch.Tensor, axis: int, op: str) -> list[torch.Tensor]:
        """What each process along an axis holds, in order."""
        own = data.detach().cpu().contiguous()
        line = self._lines[axis]
        if self.before_gathering is not None:
            self.before_gathering(op, own, line)
        together = own.new_empty((line.size, *own.shape))
        print_of = (op, tuple(own.shape), str(own.dtype), axis)
        line.allgather(own, together, op=op, fingerprint=print_of)
        return list(together.to(data.device))

    def barrier(self, op: str) -> None:
        self.context.barrier(op=op)


def join(world: DistributedContext, mesh: int, host_rank: int | None, hosts: tuple[int, ...]) -> RankGrid:
    """Meet the processes that are bound to the same mesh; host ranks left open follow the ranks."""
    key = world.rank if host_rank is None else host_rank
    together = world.split(mesh, key)
    assert together is not None
    wanted = math.prod(hosts)
    if together.size != wanted:
        raise MeshError(
            f"Mesh {mesh} lies over {wanted} hosts, but {together.size} processes are bound to it "
            f"(ranks {', '.join(map(str, together.group.ranks))}): start one rank for each host rank, with tt-run and "
            "a rank binding that names them all."
        )
    if host_rank is not None and together.rank != host_rank:
        raise MeshError(
            f"TT_MESH_HOST_RANK={host_rank} of mesh {mesh} is claimed twice or leaves a gap: this is process "
            f"{together.rank} of {wanted}. Bind the host ranks 0 to {wanted - 1} to one rank each."
        )
    return RankGrid(together, hosts)


def _place(number: int, extents: Sequence[int]) -> tuple[int, ...]:
    place = []
    for n in reversed(extents):
        number, i = divmod(number, n)
        place.append(i)
    return tuple(reversed(place))


def _number(place: Sequence[int], extents: Sequence[int]) -> int:
    number = 0
    for i, n in zip(place, extents, strict=True):
        number = number * n + i
    return number
