"""Tensor: a spec, the storage its values live in, and where on the mesh.

Metadata and queries only. What moves or computes values is bound to the class from the modules that do
it (`ops.tensor_methods`, `ops.tensor_operators`), so that nothing here depends on them.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from softmesh.arguments import checked, checked_int
from softmesh.callsite import resolved
from softmesh.cores import CoreCoord
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.hardware.shape import Shape
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Coordinates, Distribution, flatten, whole
from softmesh.placement.pieces import flattened, pieces_at
from softmesh.placement.tensor_topology import TensorTopology, distribution_from, topology_of
from softmesh.tensor.dtype import DataType, Layout, element_size, facts
from softmesh.tensor.pending_storage import value_memory
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tile import Tile

if TYPE_CHECKING:
    import numpy

    from softmesh.runtime.device import MeshDevice
    from softmesh.tensor.composers import MeshToTensor


class StorageType(Enum):
    HOST = 0
    DEVICE = 1

    __repr__ = Enum.__str__


class _Named:
    """An object that tells how often it is referred to while `deallocate` asks `is_shared`, as this Python counts."""

    def deallocate(self) -> int:
        return self.is_shared()

    def is_shared(self) -> int:
        return sys.getrefcount(self)


def _references_under_one_name() -> int:
    only = _Named()
    return only.deallocate()


_UNDER_ONE_NAME = _references_under_one_name()  # it differs from one Python to the next
_IDS = itertools.count(1)
_new = object.__new__


class Tensor:
    """A tensor on the host or on a mesh. `shape` is the shape of the piece on each device."""

    # Internal to softmesh, beside the spec: the storage with its values, the positions of a shard view in the
    # storage's flattened grid (None: all of it), and the topology as the user's mapper put it, where that differs
    # from the derived one.
    __slots__ = ("__weakref__", "_id", "shard_positions", "spec", "storage", "topology_label")

    storage: Storage
    spec: TensorSpec
    shard_positions: tuple[int, ...] | None
    topology_label: TensorTopology | None
    _id: int

    @classmethod
    def make(
        cls,
        storage: Storage,
        spec: TensorSpec,
        topology: TensorTopology | None = None,
        where: tuple[int, ...] | None = None,
    ) -> Tensor:
        if storage.spec is None and storage.device is not None:
            storage.place(spec)
        tensor = _new(cls)
        tensor.storage = storage
        tensor.spec = spec
        tensor.shard_positions = where
        tensor.topology_label = topology
        tensor._id = next(_IDS)
        return tensor

    # -- what it is ------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        return self.spec.shape

    @property
    def padded_shape(self) -> Shape:
        return self.spec.padded_shape

    @property
    def dtype(self) -> DataType:
        return self.spec.dtype

    @property
    def layout(self) -> Layout:
        return self.spec.layout

    @property
    def tile(self) -> Tile:
        return self.spec.tile

    @property
    def tensor_id(self) -> int:
        return self._id

    @tensor_id.setter
    def tensor_id(self, number: int) -> None:
        self._id = checked_int("Tensor", "tensor_id", number)

    def get_dtype(self) -> DataType:
        return self.spec.dtype

    def get_layout(self) -> Layout:
        return self.spec.layout

    def get_tile(self) -> Tile:
        return self.spec.tile

    def memory_config(self) -> MemoryConfig:
        return self.spec.memory_config

    def is_sharded(self) -> bool:
        return self.spec.memory_config.is_sharded()

    def logical_volume(self) -> int:
        return self.spec.logical_volume()

    def volume(self) -> int:
        return self.spec.volume()

    def element_size(self) -> int:
        if facts(self.dtype).is_block:
            raise ArgumentValueError(f"{self.dtype} shares exponents within a tile and has no element size.")
        return element_size(self.dtype)

    # -- where it is -----------------------------------------------------------------------------

    def storage_type(self) -> StorageType:
        return StorageType.HOST if self.storage.device is None else StorageType.DEVICE

    def device(self) -> MeshDevice | None:
        return self.storage.device if self.is_allocated() else None

    def devices(self) -> list[MeshDevice | None]:
        """Its mesh; of a host tensor None, and of one that was deallocated nothing."""
        device = self.device()
        return [] if device is None and self.storage.device is not None else [device]

    def device_coords(self) -> list[MeshCoordinate]:
        if self.storage.device is None:
            raise MeshError("StorageType::HOST doesn't support device_coords: move the tensor with ttnn.to_device.")
        return list(self.mesh_coordinates())

    def mesh_coordinates(self) -> Coordinates:
        """The occupied coordinates of the mesh, also where other processes hold some of them."""
        dist = self.view_distribution()
        return self.own_coordinates() if dist.spread is None else whole(dist).coordinates()

    def own_coordinates(self) -> Coordinates:
        """Where this process's pieces lie in the whole mesh, in the order of the flattened grid."""
        coords, device = self.view_distribution().coordinates(), self.storage.device
        if device is None or device.block is None:
            return coords
        origin = device.block.origin
        return tuple(MeshCoordinate([a + b for a, b in zip(origin, coord, strict=True)]) for coord in coords)

    def is_allocated(self) -> bool:
        return value_memory(self.storage) is not None

    def is_shared(self) -> bool:
        """Whether somebody besides the one who asks this, or asks `deallocate`, holds its values."""
        storage = self.storage
        if sys.getrefcount(storage) > 3 or storage.shares_now():
            return True
        # Where an op returned this very tensor, TT-NN has a second one: it may be what others hold besides the caller.
        return storage.is_handed_on and sys.getrefcount(self) > _UNDER_ONE_NAME

    def handed_on(self) -> Tensor:
        """Itself, as the result of an op: held under two names from then on (see `deallocate`)."""
        self.storage.is_handed_on = True
        return self

    def same_memory(self) -> Tensor:
        """Another tensor of the same values, which sees whatever is written to this one."""
        return Tensor.make(self.storage, self.spec, self.topology_label, self.shard_positions)

    def buffer_address(self) -> int:
        self._check_device_buffer("buffer_address")
        return self.storage.address

    def buffer_unique_id(self) -> int | None:
        """The number of its allocation, which no other one of this process has; None without memory."""
        self._check_device_buffer("buffer_unique_id")
        span = self.storage.span()
        return None if span is None else span.number

    def is_per_core_allocated(self) -> bool:
        return self.spec.memory_config.per_core_allocation

    def is_range_lockstep_allocated(self) -> bool:
        return self.spec.memory_config.range_lockstep_allocation

    def experimental_per_core_buffer_address(self, device_coord: MeshCoordinate, core: CoreCoord) -> int:
        """Where the shards of a core lie, on one chip of the mesh."""
        where = "experimental_per_core_buffer_address"
        self._check_device_buffer(where)
        at = checked(where, "device_coord", device_coord, MeshCoordinate, "a ttnn.MeshCoordinate")
        place = checked(where, "core", core, CoreCoord, "a ttnn.CoreCoord")
        if not self.is_per_core_allocated():
            raise MeshError(
                f"{where}: the tensor is not allocated per core; call experimental_set_per_core_allocation(True) on "
                "its memory config first."
            )
        if at not in self.mesh_coordinates():
            raise MeshError(f"{where}: the tensor has no piece at {device_coord}.")
        address = self.storage.address_on(at, place)
        if address is None:
            raise MeshError(
                f"{where}: the tensor has no shards on core {core}; it has some on those of its shard spec."
            )
        return address

    def buffer_page_size(self) -> int:
        self._check_device_buffer("buffer_page_size")
        return self.spec.page_size()

    def buffer_num_pages(self) -> int:
        self._check_device_buffer("buffer_num_pages")
        return self.spec.num_pages()

    def buffer_aligned_page_size(self) -> int:
        self._check_device_buffer("buffer_aligned_page_size")
        assert self.storage.device is not None
        alignment = self.storage.device.memory.get_alignment(self.spec.memory_config.buffer_type)
        return -(-self.spec.page_size() // alignment) * alignment

    def _check_device_buffer(self, method: str) -> None:
        if self.storage.device is None:
            raise MeshError(f"StorageType::HOST doesn't support {method} method: move the tensor with ttnn.to_device.")
        self.check_allocated(method)

    # -- how it is distributed -------------------------------------------------------------------

    def tensor_topology(self) -> TensorTopology:
        """In TT-NN's words; `softmesh.placements(t)` has all four."""
        if self.topology_label is None:
            self.topology_label = topology_of(
                whole(self.storage.dist if self.shard_positions is None else self.view_distribution())
            )
        return self.topology_label

    def update_tensor_topology(self, topology: TensorTopology) -> None:
        """Say anew how the pieces make up the tensor.

        A shard only takes the label, and what all devices share is still known to be the same.
        """
        checked("update_tensor_topology", "topology", topology, TensorTopology, "a ttnn.TensorTopology")
        if self.shard_positions is None:
            dist, device = self.storage.dist, self.storage.device
            labelled = distribution_from(topology, whole(dist), len(self.spec.shape))
            block = None if device is None else device.block
            self.storage.dist = labelled if block is None else block.narrow(labelled)
        self.topology_label = topology

    def view_distribution(self) -> Distribution:
        """The distribution of the pieces this tensor stands for."""
        dist = self.storage.dist
        return dist if self._is_whole() else flatten(dist, self._coordinates())

    def _is_whole(self) -> bool:
        """Whether it stands for all pieces of its storage, in their order; shards never do where others hold more."""
        if self.shard_positions is None:
            return True
        dist = self.storage.dist
        return dist.spread is None and self.shard_positions == tuple(range(len(dist.coordinates())))

    def _coordinates(self) -> Coordinates:
        coords = self.storage.dist.coordinates()
        return coords if self.shard_positions is None else tuple(coords[i] for i in self.shard_positions)

    def view_data(self) -> torch.Tensor:
        """The values, with the leading dims that `view_distribution()` names."""
        storage = self.storage
        if storage.data is None:
            self.check_allocated("reading it")
        assert storage.data is not None
        if self._is_whole():
            return storage.data
        if self.shard_positions is not None and len(self.shard_positions) == 1:
            return storage.piece(self.shard_positions[0]).unsqueeze(0)
        return flattened(storage.data, storage.dist, self._coordinates())

    def pieces(self) -> torch.Tensor:
        """(devices, *shape): what each occupied device holds, in grid order."""
        dist = self.view_distribution()
        return pieces_at(self.view_data(), dist, dist.coordinates())

    def overwrite(self, data: torch.Tensor, dist: Distribution) -> None:
        """Put new values in place, so that every tensor on this storage sees them.

        Devices that `dist` does not cover keep what they have.
        """
        mine, given = self.view_distribution().coordinates(), dist.coordinates()
        if self.shard_positions is None and mine == given:  # in this order: shards know their place by it
            self.storage.replace(data, dist)
            self.topology_label = None
            return
        positions = dict(zip(mine, self.shard_positions or range(len(mine)), strict=True))
        shared = tuple(coord for coord in given if coord in positions)
        if not shared:
            raise MeshError(f"Nothing to overwrite: the values are for {given[0]}, the tensor is at {mine[0]}.")
        for coord, piece in zip(shared, pieces_at(data, dist, shared), strict=True):
            self.storage.write_piece(positions[coord], piece)

    def check_writable(self, doing: str) -> None:
        """Refuse a tensor whose values are gone: deallocated, or on a mesh that was closed."""
        self.check_allocated(doing)
        if self.storage.device is not None:
            self.storage.device.check_open(doing)

    def check_readable(self, doing: str) -> None:
        """Refuse a tensor whose values are gone, or all in other processes."""
        self.check_writable(doing)
        if self.storage.device is not None:
            self.storage.device.check_local(doing)

    def check_allocated(self, doing: str) -> None:
        if value_memory(self.storage) is None:
            shared = (
                " It shared its memory with another tensor, as the result of an op does that moves nothing (a "
                "reshape, a partition among one device): deallocating one deallocates both."
                if self.storage.is_shared()
                else ""
            )
            freed = self.storage.freed
            at = "" if freed is None else f" at {resolved(freed)}"
            raise MeshError(
                f"Tensor is not allocated: {doing} needs its values, and it was deallocated{at} "
                f"({self.shape}, {self.dtype}).{shared} Drop the ttnn.deallocate(...) before this use, or compute it "
                "again."
            )

    __hash__ = object.__hash__

    if TYPE_CHECKING:  # bound in ops.tensor_methods, ops.tensor_operators and autograd.leaves
        requires_grad: bool
        grad: Tensor | None

        def requires_grad_(self, requires_grad: bool = True) -> Tensor: ...
        def backward(self, gradient: Tensor | None = None, retain_graph: bool = False) -> None: ...
        def detach(self) -> Tensor: ...
        def deallocate(self, force: bool = False) -> None: ...
        def to(self, *args: Any, **kwargs: Any) -> Tensor: ...
        def cpu(self, blocking: bool = True, cq_id: int | None = None) -> Tensor: ...
        def to_torch(self, mesh_composer: MeshToTensor | None = None) -> torch.Tensor: ...
        def to_list(self) -> list[Any]: ...
        def to_numpy(self, mesh_composer: MeshToTensor | None = None) -> numpy.ndarray[Any, Any]: ...
        def to_torch_with_padded_shape(self) -> torch.Tensor: ...
        def item(self) -> Any: ...
        def pad(
            self, output_tensor_shape: Sequence[int], input_tensor_start: Sequence[int], pad_value: float
        ) -> Tensor: ...
        def pad_to_tile(self, pad_value: float) -> Tensor: ...
        def unpad(self, output_tensor_start: Sequence[int], output_tensor_end: Sequence[int]) -> Tensor: ...
        def unpad_from_tile(self, output_tensor_shape: Sequence[int]) -> Tensor: ...
        def extract_shard(self, core: CoreCoord | int | None = None, *, core_id: int | None = None) -> Tensor: ...
        def reshape(self, *shape: int | Sequence[int]) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...


_Function = TypeVar("_Function", bound=Callable[..., Any])


def tensor_method(name: str) -> Callable[[_Function], _Function]:
    """Bind a function to Tensor as the method `name`."""

    def bind(function: _Function) -> _Function:
        setattr(Tensor, name, function)
        return function

    return bind
