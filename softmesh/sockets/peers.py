"""Who is on the other end: the ranks that a configuration names, and a context of two of them."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate
from softmesh.placement.blocks import Block
from softmesh.processes.context import DistributedContext
from softmesh.processes.mesh_ids import mesh_ids
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.config import SocketConfig, SocketEndpoint
from softmesh.sockets.validation import ALONE, check_ranks

_PAIRS: weakref.WeakKeyDictionary[DistributedContext, dict[int, DistributedContext]] = (
    weakref.WeakKeyDictionary()
)
_COUNTS: weakref.WeakKeyDictionary[DistributedContext, int] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Side:
    """The processes at one end; where they hold its mesh together, each has a block of it."""

    ranks: tuple[int, ...]
    blocks: tuple[Block, ...] = ()

    def rank_of(self, coord: MeshCoordinate) -> int:
        if not self.blocks:
            return self.ranks[0]
        return next(
            rank for rank, block in zip(self.ranks, self.blocks, strict=True) if block.contains(tuple(coord))
        )


Sides = tuple[Side, Side]


def sides_of(
    config: SocketConfig, mesh: MeshDevice, world: DistributedContext
) -> tuple[Sides, SocketEndpoint]:
    """Sender and receiver as ranks of the context, and which of the two this process is."""
    sender, receiver = config._mesh_ids
    if sender is None or receiver is None:
        ranks = check_ranks(config._ranks, world.rank, world.size)
        return (Side(ranks[:1]), Side(ranks[1:])), SocketEndpoint(ranks.index(world.rank))
    if world.size == 1 or sender == receiver:
        alone = f" {ALONE}" if world.size == 1 else ""
        raise MeshError(
            f"MeshSocket must only be used for communication between different host ranks: mesh {sender} and mesh "
            f"{receiver} are not in different processes.{alone} Use ttnn.create_socket_pair(...) in one process."
        )
    ids = mesh_ids(world) or list(range(world.size))  # where nobody said, rank and mesh id are the same
    sides = (_side(sender, ids, mesh), _side(receiver, ids, mesh))
    for endpoint, side in zip(SocketEndpoint, sides, strict=True):
        if world.rank in side.ranks:
            return sides, endpoint
    raise MeshError(
        f"MeshSocket: this is rank {world.rank} with mesh {ids[world.rank]}, and the socket goes from mesh {sender} to "
        f"mesh {receiver}. Only their processes make it; let the others pass by."
    )


def _side(mesh_id: int, ids: Sequence[int], mesh: MeshDevice) -> Side:
    ranks = tuple(rank for rank, id in enumerate(ids) if id == mesh_id)
    if len(ranks) == 1:
        return Side(ranks)
    declared = next((one for one in mesh.system.meshes if one.id == mesh_id), None)
    if not ranks or declared is None or math.prod(declared.hosts) != len(ranks):
        why = f"ranks {list(ranks)} have it" if ranks else "no rank has it"
        raise MeshError(
            f"Invalid socket mesh id {mesh_id} specified: {why}, and the mesh graph does not say how they share it. "
            f"The mesh ids of the ranks are {list(ids)}; give sender_rank and receiver_rank instead."
        )
    places = product(*(range(n) for n in declared.hosts))
    return Side(ranks, tuple(Block(tuple(declared.shape), tuple(declared.hosts), at) for at in places))


def bound_mesh_id() -> int | None:
    """The mesh that the launcher bound this process to."""
    from softmesh.fabric.control_plane import Binding

    return Binding.from_environment().mesh_id


def pair_with(peer: int, world: DistributedContext) -> DistributedContext:
    """A context of this rank and another one, where the messages of sockets mix with no others."""
    pairs = _PAIRS.setdefault(world, {})
    if peer not in pairs:
        pairs[peer] = world.create_sub_context(sorted((world.rank, peer)))
    return pairs[peer]


def next_number(pair: DistributedContext) -> int:
    """Sockets of a pair are numbered as they are made; the handshake compares the numbers."""
    number = _COUNTS.get(pair, 0)
    _COUNTS[pair] = number + 1
    return number
