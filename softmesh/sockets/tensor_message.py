"""A socket message: the distinct pieces of a tensor that the routes need, their description, and where they land.

A route is a pair of devices, whatever number of connections it is split over. A piece that several devices share is
carried once. `ReceiveTarget` is the memory that a message is received into. Knows nothing of how messages travel.
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
from softmesh.placement.distribution import Distribution, distribution
from softmesh.placement.pieces import stored_index
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.runtime.pinned_memory import empty_on_host, to_device, to_host
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import Storage, alias, is_sole_owner
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


class SourceLayout(NamedTuple):
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
    source_layout: SourceLayout | None

    @cached_property
    def _hash(self) -> int:
        return hash((self.facts, self.pieces, self.which, self.source_layout))

    def __hash__(self) -> int:
        return self._hash

    def encoded(self) -> bytes:
        words = self.source_layout and [
            *self.source_layout[:3],
            list(map(repr, self.source_layout.placements)),
        ]
        return json.dumps([self.facts, self.pieces, self.which, words]).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Description:
        facts, pieces, which, words = json.loads(data)
        return cls(tuple(map(tuple, facts)), pieces, tuple(which), _source_layout_from(words))

    @property
    def fingerprint(self) -> str:
        """For reports: `[1, 1, 32, 64] BFLOAT16`."""
        known = dict(self.facts)
        return f"{known['shape']} {known['dtype']}"


def _source_layout_from(data: Any) -> SourceLayout | None:
    if data is None:
        return None
    mesh, grid, spread, names = data
    placements = tuple(map(_placement_from, names))
    return SourceLayout(tuple(mesh), tuple(grid), None if spread is None else tuple(spread), placements)


def _placement_from(text: str) -> Placement:
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
class TensorMessage:
    """`payload` is (pieces, *shape), contiguous and on the CPU; it may share memory with the tensor."""

    description: Description
    payload: torch.Tensor
    load: int  # bytes in the fullest FIFO of the socket, were all of it there


def is_sent_whole(tensor: Tensor, routes: Routes) -> bool:
    """Whether a message of it has all its values, in the order in which they are stored."""
    return _packing(tensor.view_distribution(), routes, tensor.spec).indices is None


def pack_message(tensor: Tensor, routes: Routes, op: str) -> TensorMessage:
    """Later writes to the tensor do not reach the message: they see that its memory is shared, and move."""
    check_covered(op, tensor, routes, "sender")
    data, dist = tensor.view_data().detach(), tensor.view_distribution()
    packing = _packing(dist, routes, tensor.spec)
    if packing.indices is None:
        pieces = data.reshape(-1, *data.shape[dist.lead :])
    else:
        taken = [data[index] for index in packing.indices]
        pieces = taken[0].unsqueeze(0) if len(taken) == 1 else torch.stack(taken)
    return TensorMessage(packing.description, alias(to_host(pieces).contiguous()), packing.load)


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


def _sent(dist: Distribution, routes: Routes) -> SourceLayout | None:
    """The words survive where every device of the tensor sends to the same place of a mesh like its own."""
    if not routes.straight or dist.coords is not None or len(routes.each) != len(dist.coordinates()):
        return None
    return SourceLayout(dist.mesh, dist.grid, dist.spread, dist.placements)


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


# The receiving side: the memory a message is received into, and what the receiving tensor is afterwards.


@lru_cache(maxsize=1024)
def received_distribution(dist: Distribution, description: Description, routes: Routes) -> Distribution | None:
    """How a tensor that is received into lies afterwards; None where pieces must be put in one by one."""
    coords, words = dist.coordinates(), description.source_layout
    if routes.devices != frozenset(coords):
        return None
    if words is not None and (words.mesh, words.spread, None) == (dist.mesh, dist.spread, dist.coords):
        return distribution(dist.mesh, words.grid, words.placements, None, dist.label, dist.spread)
    if description.pieces == 1 and dist.spread is None:
        return dist.with_placements((REPLICATE,) * dist.lead)
    order = dict(zip(routes.coords, description.which, strict=True))
    if [order[coord] for coord in coords] == list(range(description.pieces)):
        return dist.with_placements((LOCAL,) * dist.lead)
    return None


class ReceiveTarget:
    """Where a message goes: memory to receive into, and what the tensor's storage is afterwards."""

    def __init__(self, storage: Storage, output: Tensor, description: Description, routes: Routes) -> None:
        self._storage, self._output, self._description, self._routes = storage, output, description, routes
        self._dist = (
            None if output.shard_positions is not None else received_distribution(storage.dist, description, routes)
        )
        lead = (description.pieces,) if self._dist is None else self._dist.extents
        assert storage.data is not None
        self.shape, self.dtype = (*lead, *output.spec.shape), storage.data.dtype
        self._buffer: torch.Tensor | None = None

    @property
    def buffer(self) -> torch.Tensor:
        """The memory that is there, where nothing else reads it; or what was put in its place, of this shape."""
        if self._buffer is None:
            self._buffer = self._memory()
        return self._buffer

    @buffer.setter
    def buffer(self, memory: torch.Tensor) -> None:
        self._buffer = memory

    def _memory(self) -> torch.Tensor:
        old = self._storage.data
        if self._dist is not None and old is not None and is_usable(old, self.shape):
            return old
        mesh = self._storage.device
        return empty_on_host(self.shape, self.dtype, None if mesh is None else mesh.torch_device)

    def fill(self, payload: torch.Tensor) -> None:
        """From a message in this process: shares its memory where it can, as a later write is then a copy."""
        if self._dist is None:
            self.buffer = payload
        elif self._storage.data is self.buffer:
            self.buffer.copy_(payload.reshape(self.buffer.shape))
        else:
            self.buffer = alias(payload.reshape(self.buffer.shape))

    def finish(self) -> None:
        """`buffer` is full: make it the tensor's. Devices without a route keep what they have."""
        storage, device = self._storage, self._storage.device
        values = self.buffer if device is None else to_device(self.buffer, device.torch_device)
        if self._dist is not None:
            storage.data, storage.dist, storage.undefined = values, self._dist, None
            self._output.topology_label = None
            return
        position = {coord: at for at, coord in enumerate(storage.dist.coordinates())}
        for coord, piece in zip(self._routes.coords, self._description.which, strict=True):
            storage.write_piece(position[coord], values[piece])


def is_usable(memory: torch.Tensor, shape: tuple[int, ...]) -> bool:
    """Whether values of this shape can be put there, and nothing else reads it."""
    return memory.shape == shape and memory.is_contiguous() and memory.is_cpu and is_sole_owner(memory)
