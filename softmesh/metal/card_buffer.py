"""Mesh buffers over cards: memory allocated at one address of every card (lock-step), replicated or sharded.

Values are tiles on the cards and torch tensors here. Which card holds which part of a 2-D array is TT-Metal's rule
for sharded mesh buffers, row-major. Memory is freed on all cards together: by `free`, or after the buffer was
garbage-collected, when the next one is allocated.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import torch

from softmesh.drivers.heap import unplaced_handle
from softmesh.drivers.protocol import Handle, MemoryKind, aligned
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.metal.card import Card
from softmesh.metal.card_mesh import CardMesh
from softmesh.runtime.buffers.buffer_config import Shape2D, ShardedBufferConfig
from softmesh.runtime.buffers.sharded_layout import ShardedLayout
from softmesh.tensor.convert import from_storage, to_storage
from softmesh.tensor.page_bytes import from_pages, to_pages
from softmesh.tensor.spec import TensorSpec


class LockstepMemory:
    """`pages` pages on each card. Freed by `free`, or when nobody refers to it any more."""

    def __init__(self, mesh: CardMesh, pages: int, page_size: int, mem: MemoryKind, label: str) -> None:
        self.mesh, self.pages, self.page_size, self.mem = mesh, pages, page_size, mem
        self.size = pages * page_size
        self._epoch = mesh.epoch
        _free_orphans(mesh)
        self.address = self._reserved(mem, label)
        self.handles = self._allocated(mem)
        self._release = weakref.finalize(self, mesh.orphans.append, (self.address, mem, self.handles))
        self._release.atexit = False

    @property
    def is_allocated(self) -> bool:
        return self._release.alive and self._epoch == self.mesh.epoch and self.mesh.is_open

    def check_alive(self, what: str) -> None:
        self.mesh.check_usable(what)
        if not self._release.alive:
            raise MeshError(f"{what}: the buffer at {hex(self.address)} was deallocated")
        if self._epoch != self.mesh.epoch:
            raise MeshError(f"{what}: the buffer is from before the mesh was reset; create it anew")

    def free(self) -> None:
        """Does nothing the second time, nor after the mesh was reset or closed."""
        is_gone = not self.is_allocated
        detached = self._release.detach()
        if detached and not is_gone:
            _, _, args, _ = detached
            _freed(self.mesh, *args[0])

    def _reserved(self, mem: MemoryKind, label: str) -> int:
        pool = self.mesh.pool(mem)
        room = unplaced_handle(self.mesh.cards[0].info, self.size, mem, self.page_size, self.mesh.banks(mem))
        per_bank = aligned(room.bytes_per_bank, pool.region.grain)
        return pool.allocate_labelled(per_bank, self.size, self, label)

    def _allocated(self, mem: MemoryKind) -> dict[Card, Handle]:
        """Where one card refuses, none keeps it."""
        mesh, what = self.mesh, "create_mesh_buffer"
        jobs = {card: self._allocating(card, mem) for card in mesh.cards}
        handles, failures = mesh.outcomes(what, jobs, mesh.timeouts.transfer)
        if failures:
            _freed(mesh, self.address, mem, handles)
            raise mesh.error(what, failures)
        return handles

    def _allocating(self, card: Card, mem: MemoryKind) -> Callable[[], Handle]:
        driver, size, page_size, address = card.driver, self.size, self.page_size, self.address
        banks = self.mesh.banks(mem)

        def allocate() -> Handle:
            handle = driver.alloc(size, mem=mem, page_size=page_size, banks=banks, address=address)
            if handle.address != address:
                driver.free(handle)
                raise MemoryError(f"asked for {hex(address)}, and got {hex(handle.address)}")
            return handle

        return allocate


def _free_orphans(mesh: CardMesh) -> None:
    """What belonged to buffers that nobody holds any more; they die in any thread, so they wait for this."""
    while mesh.orphans:
        _freed(mesh, *mesh.orphans.pop())


def _freed(mesh: CardMesh, address: int, mem: MemoryKind, handles: Mapping[Card, Handle]) -> None:
    mesh.pool(mem).free(address)
    if not mesh.failed:
        jobs = {card: partial(card.driver.free, handle) for card, handle in handles.items()}
        mesh.each("deallocate", jobs, mesh.timeouts.transfer)


class Block(NamedTuple):
    """Rows and columns of the array."""

    rows: slice
    columns: slice


def blocks_by_rank(shape: MeshShape, whole: Shape2D, shard: Shape2D) -> dict[int, Block]:
    """The block of each rank that holds one; the others have room for one, and nothing in it.

    >>> blocks_by_rank(MeshShape(1, 2), Shape2D(4, 8), Shape2D(0, 4))[1]
    Block(rows=slice(0, 4, None), columns=slice(4, 8, None))
    """
    columns = tuple(shape)[-1]
    layout = ShardedLayout(
        ShardedBufferConfig(whole.height * whole.width, whole, shard), shape.mesh_size() // columns, columns
    )
    layout.check_fits()
    numbers = {rank: _shard_of(layout, *divmod(rank, columns)) for rank in range(shape.mesh_size())}
    return {rank: _block(layout.config, number) for rank, number in numbers.items() if number < layout.num_shards}


def _shard_of(layout: ShardedLayout, row: int, column: int) -> int:
    """Counted along the mesh dims that hold different shards."""
    rows, columns = layout.extents
    return row % rows * columns + column % columns


def _block(config: ShardedBufferConfig, number: int) -> Block:
    height, width = config.physical_shard_shape()
    down, across = divmod(number, config.shard_grid().width)
    return Block(slice(down * height, (down + 1) * height), slice(across * width, (across + 1) * width))


BufferLayout = Literal["replicated", "sharded"]
_ALL = Block(slice(None), slice(None))


class CardMeshBuffer:
    """Made by `create_mesh_buffer`. Every card spends the same bytes at the same address, with a shard or without."""

    def __init__(
        self,
        memory: LockstepMemory,
        layout: BufferLayout,
        global_shape: tuple[int, ...],
        spec: TensorSpec,
        blocks: Mapping[int, Block],
    ) -> None:
        self.memory, self.layout, self.global_shape, self.spec = memory, layout, global_shape, spec
        self._blocks = blocks

    @property
    def mesh(self) -> CardMesh:
        return self.memory.mesh

    @property
    def address(self) -> int:
        return self.memory.address

    @property
    def mem(self) -> MemoryKind:
        return self.memory.mem

    @property
    def dtype(self) -> Any:
        return self.spec.dtype

    @property
    def shard_shape(self) -> tuple[int, ...]:
        """What each card holds."""
        return tuple(self.spec.shape)

    @property
    def page_size(self) -> int:
        return self.spec.page_size()

    @property
    def num_pages(self) -> int:
        """Of one card."""
        return self.spec.num_pages()

    @property
    def is_allocated(self) -> bool:
        return self.memory.is_allocated

    @property
    def holders(self) -> list[Card]:
        """The cards that hold a shard, in the order of their ranks."""
        return [self.mesh.cards[rank] for rank in sorted(self._blocks)]

    def part_of(self, card: Card) -> tuple[slice, ...]:
        """Which part of the whole a card holds, as an index."""
        return self._index(self._blocks[card.rank])

    def write(self, values: Any) -> None:
        """A whole array: to every card, or to each card its shard."""
        whole = _shaped(values, self.global_shape)
        if self.layout == "replicated":
            self.put(dict.fromkeys(self.holders, self._storage(whole)))
        else:
            self.put({card: self._storage(whole[self.part_of(card)]) for card in self.holders})

    def write_shard(self, coordinate: MeshCoordinate, values: Any) -> None:
        card = self.mesh.card(coordinate)
        self.put({card: self._storage(_shaped(values, self.shard_shape))})

    def read_shard(self, coordinate: MeshCoordinate) -> torch.Tensor:
        card = self.mesh.card(coordinate)
        return from_storage(self.take([card])[card], self.spec.dtype)

    def read(self) -> torch.Tensor:
        """The whole array. Where several cards hold the same part of it, they must agree."""
        shards = self.take(self.holders)
        whole = torch.empty(self.global_shape, dtype=next(iter(shards.values())).dtype)
        seen: dict[str, Card] = {}
        for card, values in shards.items():
            block = self._blocks[card.rank]
            other = seen.setdefault(str(block), card)
            self._check_agree(other, shards[other], card, values)
            whole[self._index(block)] = values
        return from_storage(whole, self.spec.dtype)

    def deallocate(self) -> None:
        """Frees the memory on all cards; does nothing the second time."""
        self.memory.free()

    def as_replicated(self) -> CardMeshBuffer:
        """The same memory, once every card holds the same values in it."""
        everything = dict.fromkeys(range(self.mesh.num_devices), _ALL)
        return CardMeshBuffer(self.memory, "replicated", self.shard_shape, self.spec, everything)

    def put(self, shards: Mapping[Card, torch.Tensor]) -> None:
        """Values in the dtype's storage type, to some cards at once."""
        seconds = self.mesh.timeouts.transfer
        self.memory.check_alive("write")
        packed = {id(values): self._bytes(values) for values in shards.values()}  # once where all get the same
        jobs = {card: self._writing(card, packed[id(values)], seconds) for card, values in shards.items()}
        self.mesh.each("write", jobs, seconds)

    def take(self, cards: list[Card]) -> dict[Card, torch.Tensor]:
        """The shards of some cards at once, in the dtype's storage type."""
        self.memory.check_alive("read")
        found = self.mesh.each("read", {card: self._reading(card) for card in cards}, self.mesh.timeouts.transfer)
        return {card: self._values(data) for card, data in found.items()}

    def _writing(self, card: Card, data: torch.Tensor, seconds: float) -> Callable[[], None]:
        def write() -> None:
            event = card.driver.write(self.memory.handles[card], data.numpy())
            if event is not None:
                card.driver.wait(event, seconds)

        return write

    def _reading(self, card: Card) -> Callable[[], memoryview]:
        def read() -> memoryview:
            handle = self.memory.handles[card]
            found = card.driver.read(handle)
            if len(found) != handle.size:
                raise OSError(f"a read of {handle.size} bytes came short: {len(found)} bytes")
            return found

        return read

    def _bytes(self, values: torch.Tensor) -> torch.Tensor:
        return to_pages(values, self.spec).reshape(-1)

    def _values(self, data: memoryview) -> torch.Tensor:
        pages = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return from_pages(pages.reshape(self.num_pages, self.page_size), self.spec)

    def _storage(self, shard: torch.Tensor) -> torch.Tensor:
        """Rounded on its own: a shard's block floats share exponents with no other card's."""
        return to_storage(shard, self.spec.dtype)

    def _index(self, block: Block) -> tuple[slice, ...]:
        return tuple(block) if self.layout == "sharded" else ()

    def _check_agree(self, one: Card, ones: torch.Tensor, other: Card, others: torch.Tensor) -> None:
        if one is not other and not torch.equal(self._bytes(ones), self._bytes(others)):
            raise MeshError(
                f"read: {one} and {other} hold different values, so the buffer has no one value: "
                "read_shard(coordinate) reads one card's, all_reduce(buffer) adds them up"
            )

    def __repr__(self) -> str:
        return (
            f"CardMeshBuffer({self.layout}, {list(self.global_shape)}, {list(self.shard_shape)} on each card, "
            f"{self.spec.dtype}, at {hex(self.address)})"
        )


def _shaped(values: Any, shape: tuple[int, ...]) -> torch.Tensor:
    given = torch.as_tensor(values).detach().cpu()
    if tuple(given.shape) != shape:
        raise ArgumentValueError(f"write: values have shape {tuple(given.shape)}, and the buffer {shape}")
    return given


def placed(
    mesh: CardMesh, layout: str, global_shape: tuple[int, ...], shard_shape: tuple[int, ...] | None
) -> tuple[tuple[int, ...], Mapping[int, Block]]:
    """What each card holds, and which part of the whole that is."""
    if layout == "replicated":
        if shard_shape not in (None, global_shape):
            raise ArgumentValueError(
                f"create_mesh_buffer: a replicated buffer is whole on each card: leave out shard_shape={shard_shape}"
            )
        return global_shape, dict.fromkeys(range(mesh.num_devices), _ALL)
    if layout != "sharded":
        raise ArgumentError(f"create_mesh_buffer: layout must be 'replicated' or 'sharded', got {layout!r}")
    if shard_shape is None or len(global_shape) != 2 or len(shard_shape) != 2:
        raise ArgumentValueError(
            "create_mesh_buffer: a sharded buffer has a global_shape and a shard_shape of (height, width), where 0 in "
            f"the latter replicates along that dim; got {global_shape} and {shard_shape}"
        )
    whole, shard = Shape2D(*global_shape), Shape2D(*shard_shape)
    blocks = blocks_by_rank(mesh.shape, whole, shard)
    return (shard.height or whole.height, shard.width or whole.width), blocks
