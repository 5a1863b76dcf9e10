"""What one message is: the distinct pieces of a tensor that a socket's routes need, and a description.

A route is a pair of devices, whatever number of connections it is split over. A piece that several devices
share is carried once. Knows nothing of how messages travel.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch

from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import stored_index
from softmesh.placement.words import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import alias
from softmesh.tensor.tensor import Tensor


class Route(NamedTuple):
    """This end of a pair of devices: where this process holds the shard."""

    coord: MeshCoordinate
    connections: int  # that share its pages


@dataclass(frozen=True, eq=False)
class Routes:
    """`straight`: each goes to the same place of its mesh. Both ends list them in the same order.

    One object for the life of a socket: what follows from it is worked out once.
    """

    each: tuple[Route, ...]
    straight: bool

    @cached_property
    def coords(self) -> tuple[MeshCoordinate, ...]:
        return tuple(route.coord for route in self.each)

    @cached_property
    def devices(self) -> frozenset[MeshCoordinate]:
        return frozenset(self.coords)


class Words(NamedTuple):
    """How the sent tensor lay on its mesh, where all of it was sent."""

    mesh: tuple[int, ...]
    grid: tuple[int, ...]
    spread: tuple[int, ...] | None
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class Description:
    """`facts` are the spec in words; `which` is the piece that each route carries."""

    facts: tuple[tuple[str, str], ...]
    pieces: int
    which: tuple[int, ...]
    words: Words | None

    @cached_property
    def _hash(self) -> int:
        return hash((self.facts, self.pieces, self.which, self.words))

    def __hash__(self) -> int:
        return self._hash

    def encoded(self) -> bytes:
        words = self.words and [*self.words[:3], list(map(repr, self.words.placements))]
        return json.dumps([self.facts, self.pieces, self.which, words]).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Description:
        facts, pieces, which, words = json.loads(data)
        return cls(tuple(map(tuple, facts)), pieces, tuple(which), _words(words))

    @property
    def fingerprint(self) -> str:
        """For reports: `[1, 1, 32, 64] BFLOAT16`."""
        known = dict(self.facts)
        return f"{known['shape']} {known['dtype']}"


def _words(data: Any) -> Words | None:
    if data is None:
        return None
    mesh, grid, spread, names = data
    placements = tuple(map(_word, names))
    return Words(tuple(mesh), tuple(grid), None if spread is None else tuple(spread), placements)


def _word(text: str) -> Placement:
    if found := re.fullmatch(r"Shard\((\d+)(?:, size=(\d+))?\)", text):
        return Shard(int(found[1]), int(found[2]) if found[2] else None)
    if found := re.fullmatch(r"Partial\((\w+)\)", text):
        return Partial(found[1])
    return {"Replicate": REPLICATE}.get(text, LOCAL)


@lru_cache(maxsize=256)
def spec_facts(spec: TensorSpec) -> tuple[tuple[str, str], ...]:
    return (
        ("shape", str(list(spec.shape))),
        ("padded shape", str(list(spec.padded_shape))),
        ("dtype", spec.dtype.name),
        ("layout", spec.layout.name),
        ("tile", str(spec.tile.tile_shape)),
        ("memory config", str(spec.memory_config)),
    )


@lru_cache(maxsize=256)
def fingerprint(spec: TensorSpec) -> str:
    return f"{list(spec.shape)} {spec.dtype.name}"


@dataclass(frozen=True)
class Parcel:
    """`payload` is (pieces, *shape), contiguous and on the CPU; it may share memory with the tensor."""

    description: Description
    payload: torch.Tensor
    load: int  # bytes in the fullest FIFO of the socket, were all of it there


def is_sent_whole(tensor: Tensor, routes: Routes) -> bool:
    """Whether a parcel of it has all its values, in the order in which they are stored."""
    return _packing(tensor.view_distribution(), routes, tensor.spec).indices is None


def packed(tensor: Tensor, routes: Routes, op: str) -> Parcel:
    """Later writes to the tensor do not reach the parcel: they see that its memory is shared, and move."""
    check_covered(op, tensor, routes, "sender")
    data, dist = tensor.view_data().detach(), tensor.view_distribution()
    packing = _packing(dist, routes, tensor.spec)
    if packing.indices is None:
        pieces = data.reshape(-1, *data.shape[dist.lead :])
    else:
        taken = [data[index] for index in packing.indices]
        pieces = taken[0].unsqueeze(0) if len(taken) == 1 else torch.stack(taken)
    return Parcel(packing.description, alias(pieces.cpu().contiguous()), packing.load)


class _Packing(NamedTuple):
    indices: tuple[tuple[int, ...], ...] | None  # None: all there is, in the order in which it is stored
    description: Description
    load: int


@lru_cache(maxsize=1024)
def _packing(dist: Distribution, routes: Routes, spec: TensorSpec) -> _Packing:
    position = {coord: at for at, coord in enumerate(dist.coordinates())}
    stored = [stored_index(dist, position[coord]) for coord in routes.coords]
    number = {index: at for at, index in enumerate(sorted(set(stored)))}
    which = tuple(number[index] for index in stored)
    description = Description(spec_facts(spec), len(number), which, _sent(dist, routes))
    indices = None if len(number) == math.prod(dist.extents) else tuple(number)
    return _Packing(indices, description, load_of(spec, routes))


def _sent(dist: Distribution, routes: Routes) -> Words | None:
    """The words survive where every device of the tensor sends to the same place of a mesh like its own."""
    if not routes.straight or dist.coords is not None or len(routes.each) != len(dist.coordinates()):
        return None
    return Words(dist.mesh, dist.grid, dist.spread, dist.placements)


@lru_cache(maxsize=1024)
def load_of(spec: TensorSpec, routes: Routes) -> int:
    return max(-(-spec.num_pages() // route.connections) for route in routes.each) * spec.aligned_page_size()


def check_covered(op: str, tensor: Tensor, routes: Routes, end: str) -> None:
    dist = tensor.view_distribution()
    missing = _uncovered(dist, routes)
    if missing is not None:
        raise MeshError(
            f"{op}: the tensor holds nothing on {missing}, a {end} coordinate of the socket. It lies on "
            f"{len(dist.coordinates())} of the {math.prod(dist.mesh)} devices of its mesh."
        )


@lru_cache(maxsize=1024)
def _uncovered(dist: Distribution, routes: Routes) -> MeshCoordinate | None:
    held = set(dist.coordinates())
    return next((coord for coord in routes.coords if coord not in held), None)


def check_spec(op: str, description: Description, spec: TensorSpec) -> None:
    """Refuse a message that does not fit; it stays where it is."""
    if description.facts == spec_facts(spec):
        return
    mine = dict(spec_facts(spec))
    for name, sent in description.facts:
        if mine.get(name) != sent:
            raise MeshError(
                f"{op}: the output tensor has another spec than the one that was sent: {name} is {mine.get(name)}, "
                f"sent was {sent}. Allocate it with ttnn.allocate_tensor_on_device(spec_of_the_sent_tensor, device)."
            )
