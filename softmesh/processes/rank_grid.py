"""The grid of processes that hold one mesh together, each a block of it; and which mesh each rank is bound to."""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
from collections.abc import Sequence
from itertools import product

import torch

from softmesh.agreed_variables import agreed_values, difference
from softmesh.errors import MeshError
from softmesh.placement.placements import Placement, Replicate
from softmesh.processes.call_board import CallBoard
from softmesh.processes.context import DistributedContext
from softmesh.processes.exchange import AllGatherExchange, ExchangeLayout, RankGroup
from softmesh.processes.lockstep import Lockstep, LockstepError
from softmesh.processes.mpi_startup import exit_of_the_program
from softmesh.processes.shm_barrier import ShmBarrier, shm_barrier_of

MESH_IDS = "SOFTMESH_MESH_IDS"  # one for each rank of the job in order, such as `0,0,1,1`


def mesh_ids(world: DistributedContext) -> list[int] | None:
    """Of each rank of this context; None where nobody said."""
    text = os.environ.get(MESH_IDS, "")
    if not text:
        return None
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers) or max(world.group.ranks) >= len(numbers):
        raise MeshError(f"{MESH_IDS}={text[:80]!r} must list one mesh id for each rank of the job")
    return [int(numbers[rank]) for rank in world.group.ranks]


_MOST_PLANS = 256


class RankGrid:
    """`hosts` processes along each axis; ranks of `context` run through the grid row by row."""

    def __init__(self, context: DistributedContext, hosts: tuple[int, ...]) -> None:
        self.context = context
        self.hosts = hosts
        self.at = _place(context.rank, hosts)
        _check_environment(context)
        self.calls = lockstep_of(context)
        split = tuple(axis for axis, n in enumerate(hosts) if n > 1)
        self._groups: dict[tuple[int, ...], RankGroup] = {split: RankGroup(context, self.calls)}
        if len(split) > 1:
            self._groups |= {(axis,): self._along(axis) for axis in split}
        self._gathers: dict[tuple[object, ...], AllGatherExchange] = {}

    def _along(self, axis: int) -> RankGroup:
        """The processes that differ from this one along one axis only, in order."""
        others = _number([0 if a == axis else i for a, i in enumerate(self.at)], self.hosts)
        about = f"{self.context.group.about or self.context.group.name} along axis {axis}"
        line = self.context.split(others, self.at[axis], about=about)
        assert line is not None
        _restarted_barrier(line)
        return RankGroup(line, self.calls)

    def group(self, axes: Sequence[int]) -> RankGroup | None:
        """The processes that differ along these axes only; None where such are not kept together."""
        return self._groups.get(self.split_axes(axes))

    def split_axes(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Those of the axes along which there are several processes."""
        return tuple(axis for axis in axes if self.hosts[axis] > 1)

    def shared_axes(self, placements: Sequence[Placement]) -> list[int]:
        """The axes along which several processes hold the same of what lies so over the mesh."""
        words = enumerate(zip(placements, self.hosts, strict=False))
        return [axis for axis, (word, n) in words if n > 1 and isinstance(word, Replicate)]

    def first_holder(self, placements: Sequence[Placement]) -> int:
        """The first of the processes that hold the same as this one."""
        shared = self.shared_axes(placements)
        return _number([0 if axis in shared else at for axis, at in enumerate(self.at)], self.hosts)

    def share(self, placements: Sequence[Placement]) -> bool:
        """Whether all processes hold the same."""
        return len(self.shared_axes(placements)) == len(self.split_axes(range(len(self.hosts))))

    def places(self, axes: Sequence[int]) -> list[tuple[int, ...]]:
        """Of each rank of the group along these axes: where it is along each axis of the grid, 0 along others."""
        return list(product(*(range(n) if axis in axes else (0,) for axis, n in enumerate(self.hosts))))

    def gather(self, data: torch.Tensor, axes: Sequence[int], op: str) -> torch.Tensor:
        """What the processes along these axes hold, side by side: on the CPU, and not to be written to."""
        split = self.split_axes(axes)
        if split not in self._groups:  # of three axes two: one after the other
            for axis in split:
                data = self.gather(data, (axis,), op)
            return data
        group = self._groups[split]
        assembly = self._gathering(group, split, data, op)
        assembly.open(lambda own: own[0].copy_(data.detach()))
        return assembly.keep()

    def _gathering(self, group: RankGroup, axes: tuple[int, ...], data: torch.Tensor, op: str) -> AllGatherExchange:
        key = (op, data.shape, data.dtype, axes)
        found = self._gathers.get(key)
        if found is None:
            if len(self._gathers) >= _MOST_PLANS:
                self._gathers.clear()
            whole = self.side_by_side(tuple(data.shape), data.dtype, axes)
            found = self._gathers[key] = AllGatherExchange(group, op, self.described(data, axes), whole)
        return found

    def described(self, data: torch.Tensor, axes: Sequence[int]) -> str:
        """`float32 [32, 64], 1x4 pieces, axis 1`: what the processes of a collective must agree on."""
        lead = len(self.hosts)
        pieces = "x".join(map(str, data.shape[:lead]))
        along = ", ".join(map(str, axes))
        dtype = str(data.dtype).removeprefix("torch.")
        return f"{dtype} {list(data.shape[lead:])}, {pieces} pieces, ax{'i' if len(axes) == 1 else 'e'}s {along}"

    def side_by_side(
        self, shape: tuple[int, ...], dtype: torch.dtype, axes: Sequence[int], first: int = 0
    ) -> ExchangeLayout:
        """Blocks of this shape along some axes; the grid's first axis is dim `first` of them."""
        places = self.places(axes)
        extents = [(axis, shape[first + axis]) for axis in axes]

        def place(whole: torch.Tensor, rank: int) -> torch.Tensor:
            for axis, n in extents:
                whole = whole.narrow(first + axis, places[rank][axis] * n, n)
            return whole

        wide = list(shape)
        for axis, n in extents:
            wide[first + axis] = n * self.hosts[axis]
        return ExchangeLayout(tuple(wide), dtype, place)

    def barrier(self, op: str) -> None:
        self.calls.compare(op)


def _check_environment(context: DistributedContext) -> None:
    """Refuse, on all ranks, variables that let each run its program in another way."""
    told = context.allgather_bytes(json.dumps(agreed_values()).encode(), op=_OPENING)
    differs = difference(context.group.ranks, [json.loads(bytes(own)) for own in told])
    if differs is not None:
        raise MeshError(
            f"The ranks of one mesh have different environments: {differs}. Each would run the program in another "
            "way. Set it alike for all of them, in the shell or with global_env of the rank bindings, before the mesh "
            "is opened."
        )


# By their ranks in the world: the board of a mesh serves the next one that the same processes open.
_OPENING = "open_mesh_device"
_LOCKSTEPS: dict[tuple[int, ...], Lockstep] = {}


def lockstep_of(context: DistributedContext) -> Lockstep:
    """Of the ranks of a context, who call this together whenever they open a mesh: it begins anew."""
    ranks, barrier = context.group.ranks, _restarted_barrier(context)
    if ranks not in _LOCKSTEPS:
        board = None if barrier is None else CallBoard(barrier.segment, context.rank, context.size)
        _LOCKSTEPS[ranks] = lockstep = Lockstep(context, board)
        atexit.register(_end, lockstep)
    _LOCKSTEPS[ranks].restart(context)
    return _LOCKSTEPS[ranks]


def _restarted_barrier(context: DistributedContext) -> ShmBarrier | None:
    """One rank may have left the last barrier when it found that the others had gone another way."""
    barrier = shm_barrier_of(context, _OPENING)
    if barrier is not None:
        barrier.restart(max(context.allgather_int(barrier.step, op=_OPENING)))
        context.barrier(op=_OPENING)
    return barrier


def _end(lockstep: Lockstep) -> None:
    """The program ends: told here, for nobody would see an error that is raised now.

    One that left with `sys.exit(3)` is told as that.
    """
    how, _ = exit_of_the_program()
    try:
        if not how:
            lockstep.end()
    except LockstepError as error:
        sys.excepthook(LockstepError, error.with_traceback(None), None)


def join(world: DistributedContext, mesh: int, host_rank: int | None, hosts: tuple[int, ...]) -> RankGrid:
    """Meet the processes that are bound to the same mesh; host ranks left open follow the ranks."""
    key = world.rank if host_rank is None else host_rank
    together = _bound_to(mesh, world).split(mesh, key, about=f"mesh {mesh}")
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


def _bound_to(mesh: int, world: DistributedContext) -> DistributedContext:
    """The ranks of one mesh, where the launcher told of it: others may have a mesh that they hold alone."""
    ids = mesh_ids(world)
    if ids is None or set(ids) == {mesh}:
        return world
    return world.create_sub_context([rank for rank, id in enumerate(ids) if id == mesh])


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
