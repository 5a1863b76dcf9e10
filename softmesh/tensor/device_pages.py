"""The bytes of a tensor in device memory, encoded lazily: what kernels and views at an address see of it.

Tensors keep values, not bytes. `TensorBytes` makes the bytes when they are asked for (tiles face by face, block
floats packed) and puts what was written into them back into the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch

from softmesh.errors import MeshError
from softmesh.hardware.memory_config import ShardDistributionStrategy, TensorMemoryLayout
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import pieces_at
from softmesh.placement.placements import LOCAL, Shard
from softmesh.runtime.buffers.buffer_config import BufferDistributionSpec
from softmesh.runtime.buffers.mesh_memory import TensorVersion, memory_provider
from softmesh.runtime.buffers.paged_memory import PagedBase, PageLayout, page_map
from softmesh.runtime.memory.memory_map import MemoryMap
from softmesh.storage_owners import without_view_base
from softmesh.tensor.page_bytes import from_pages, to_pages
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import Storage, is_sole_owner, share_memory
from softmesh.tensor.tensor import Tensor


class TensorBytes(PagedBase):
    """The pages of a tensor (see `PagedMemory`). Made anew when the tensor's values have changed meanwhile.

    `encoded` are the pages, and the values that they were made from; None until somebody asks.
    """

    Encoded = tuple[TensorVersion, torch.Tensor]

    def __init__(self, tensor: Tensor) -> None:
        tensor.check_readable("TensorBytes")
        device = tensor.storage.device
        if device is None:
            raise MeshError("TensorBytes: the tensor is on the host. Move it with ttnn.to_device(tensor, mesh).")
        super().__init__(page_layout(tensor.spec, device.memory.memory_map), tensor.storage.address)
        self.tensor = tensor
        self.encoded: TensorBytes.Encoded | None = None

    def __repr__(self) -> str:
        return f"TensorBytes({self.num_pages} pages of {self.page_size} bytes in {self.buffer_type.name})"

    @property
    def is_whole(self) -> bool:
        """Whether these are all bytes of the tensor's storage, and not those of some devices."""
        storage = self.tensor.storage
        return self.tensor.shard_positions is None and storage.spec == self.tensor.spec

    @property
    def data(self) -> torch.Tensor:
        if self.encoded is None or not self.encoded[0].is_unchanged(self._memory()):
            values, dist = self.tensor.view_data(), self.tensor.view_distribution()
            pages = to_pages(_by_mesh(values, dist), self.tensor.spec)
            self.encoded = (
                TensorVersion(self._memory()),
                pages.clone() if share_memory(pages, values) else pages,
            )
        return self.encoded[1]

    def replace(self, pages: torch.Tensor) -> None:
        """New bytes for all of it; the values may take their memory."""
        self.encoded = TensorVersion(self._memory()), pages
        self.store()
        self.encoded = None

    def materialise(self) -> torch.Tensor:
        data, mesh = self.data, self.tensor.view_distribution().mesh
        if data.shape[: len(mesh)] != mesh:
            data = data.expand(*mesh, -1, -1).contiguous()
            self.encoded = TensorVersion(self._memory()), data
        return data

    def store(self) -> None:
        """Decode the pages into the tensor's values. Devices that got bytes of their own are Local from then on."""
        data = self.data
        dist, room = self.tensor.view_distribution(), self._room()
        decoded = from_pages(data, self.tensor.spec, room)
        if decoded is room:
            self.tensor.storage.undefined = None
        else:
            self.tensor.overwrite(*_by_grid(decoded, dist))
            self._own_values()
        # Pages are changed in place, and values must not be.
        self.encoded = None if share_memory(data, self._memory()) else (TensorVersion(self._memory()), data)

    def _own_values(self) -> None:
        """Values that were made for this tensor are its own, and the next ones can be written over them."""
        held = self._memory()
        if held.is_contiguous() and not held.requires_grad:
            self.tensor.storage.data = without_view_base(held)

    def _room(self) -> torch.Tensor | None:
        """The memory of the tensor's values, where new ones can be written straight into it."""
        held = self._memory()
        return held if self.fits(self.data.shape[:-2]) and is_sole_owner(held) else None

    def fits(self, extents: Sequence[int]) -> bool:
        """Whether bytes of such extents are values where the tensor has its own, device by device."""
        dist = self.tensor.view_distribution()
        is_by_mesh = self.tensor.shard_positions is None and dist.coords is None and dist.grid == dist.mesh
        return is_by_mesh and tuple(extents) == tuple(dist.extents)

    def _memory(self) -> torch.Tensor:
        self.tensor.check_allocated("TensorBytes")
        held = self.tensor.storage.data
        assert held is not None
        return held


@memory_provider
def _of_storage(owner: object) -> TensorBytes | None:
    """What the allocator knows as the owner of a tensor's memory is its storage."""
    if not isinstance(owner, Storage) or owner.spec is None:
        return None
    return TensorBytes(Tensor.make(owner, owner.spec))


def _by_mesh(values: torch.Tensor, dist: Distribution) -> torch.Tensor:
    """Under the mesh's own dims; zeros on devices that hold nothing."""
    local = values.shape[dist.lead :]
    if dist.coords is None and dist.grid == dist.mesh:
        return values
    if dist.coords is None and dist.is_replicated:
        return values.reshape(*(1,) * len(dist.mesh), *local)
    coords = dist.coordinates()
    held = pieces_at(values, dist, coords)
    if dist.coords is None:
        return held.reshape(*dist.mesh, *local)
    whole = values.new_zeros((math.prod(dist.mesh), *local))
    whole[_places(dist)] = held
    return whole.reshape(*dist.mesh, *local)


def _by_grid(values: torch.Tensor, dist: Distribution) -> tuple[torch.Tensor, Distribution]:
    """The inverse of `_by_mesh`: where devices are told apart now, `dist` has other words."""
    lead = len(dist.mesh)
    if dist.coords is None and dist.grid == dist.mesh:
        if values.shape[:lead] == dist.extents:
            return values, dist
        apart = _localized(dist)
        return values.expand(*apart.extents, *values.shape[lead:]).contiguous(), apart
    if dist.coords is None and dist.is_replicated and values.shape[:lead].numel() == 1:
        return values.reshape(*dist.extents, *values.shape[lead:]), dist
    flat = values.expand(*dist.mesh, *values.shape[lead:]).flatten(0, lead - 1)
    apart = _localized(dist)
    return flat[_places(dist)].reshape(*apart.extents, *values.shape[lead:]), apart


def _localized(dist: Distribution) -> Distribution:
    """A split stays a split; any other word becomes Local."""
    return dist.with_placements(tuple(word if isinstance(word, Shard) else LOCAL for word in dist.placements))


def _places(dist: Distribution) -> list[int]:
    shape = MeshShape(dist.mesh)
    return [shape.index(coord) for coord in dist.coordinates()]


@lru_cache(maxsize=4096)
def page_layout(spec: TensorSpec, memory_map: MemoryMap) -> PageLayout:
    """Where the pages of such a tensor lie in the banks."""
    kind = spec.memory_config.buffer_type
    alignment = memory_map.regions[kind].page_alignment
    stride = -(-spec.page_size() // alignment) * alignment
    pages = page_map(spec.num_pages(), shards_of(spec), kind, memory_map)
    return PageLayout(kind, spec.page_size(), stride, spec.num_pages(), pages)


def shards_of(spec: TensorSpec) -> BufferDistributionSpec | None:
    """Its shards, counted in pages; None where pages are interleaved, or nobody said how to cut."""
    config = spec.memory_config
    cut, flat = config.nd_shard_spec, config.shard_spec
    if cut is not None:
        orientation, strategy = cut.orientation, cut.shard_distribution_strategy
        shard, grid = tuple(cut.shard_shape), cut.grid
    elif flat is not None and not config.interleaved:
        is_block = config.memory_layout is TensorMemoryLayout.BLOCK_SHARDED
        strategy = ShardDistributionStrategy.GRID_2D if is_block else ShardDistributionStrategy.ROUND_ROBIN_1D
        shard, grid, orientation = tuple(flat.shape), flat.grid, flat.orientation
    else:
        return None
    height, width = spec.page_shape()
    return BufferDistributionSpec.dealt(
        _in_pages(folded(tuple(spec.padded_shape), len(shard)), height, width),
        _in_pages(shard, height, width),
        grid,
        orientation,
        strategy,
    )


def folded(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """With `rank` dims: leading ones folded into one, or ones put in front."""
    if len(shape) <= rank:
        return (1,) * (rank - len(shape)) + shape
    return (math.prod(shape[: len(shape) - rank + 1]), *shape[len(shape) - rank + 1 :])


def _in_pages(shape: tuple[int, ...], height: int, width: int) -> tuple[int, ...]:
    units = [1] * len(shape)
    units[-2:] = [height, width][-len(shape) :]
    return tuple(-(-n // unit) for n, unit in zip(shape, units, strict=True))
