"""How a Tensor prints itself, and queries that TT-NN has as functions."""

from __future__ import annotations

from softmesh.arguments import checked, checked_int
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.mesh import MeshShape
from softmesh.tensor.convert import from_storage
from softmesh.tensor.printing import format_deallocated, format_remote, format_shards
from softmesh.tensor.tensor import StorageType, Tensor, tensor_method
from softmesh.tensor.transfer import tell_host_use
from softmesh.tensor.undefined import warn_before_leaving


@tensor_method("__repr__")
def describe(self: Tensor) -> str:
    if not self.is_allocated():
        return format_deallocated(self.shape, self.dtype, self.layout)
    device = self.device()
    if device is not None and device.is_remote_only():
        return format_remote(self.shape, self.dtype, self.layout)
    if device is not None:
        device.note_read("print", None, blocking=True)
    tell_host_use(self, "print")
    warn_before_leaving(self, "print")
    pieces = from_storage(self.pieces().detach().cpu(), self.dtype)
    headers: list[str | None] = [None] * len(pieces)
    if device is not None and device.get_num_devices() > 1:
        headers = list(_shard_headers(self, device.get_device_ids()))
    return format_shards(list(zip(headers, pieces, strict=True)), self.shape, self.dtype, self.layout)


def _shard_headers(tensor: Tensor, ids: list[int]) -> list[str]:
    """By the shape the tensor was made under: the mesh may have been reshaped since."""
    dist = tensor.view_distribution()
    shape = MeshShape(dist.mesh)
    places = zip(dist.coordinates(), tensor.own_coordinates(), strict=True)
    return [f"device_id: {ids[shape.index(here)]}, {coord}" for here, coord in places]


@tensor_method("__bool__")
def is_true(self: Tensor) -> bool:
    """Always true, as in TT-NN."""
    return True


def is_tensor_storage_on_device(tensor: Tensor) -> bool:
    return _tensor("is_tensor_storage_on_device", tensor).storage_type() is StorageType.DEVICE


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is spread over cores (its MemoryConfig), not whether it is spread over devices."""
    return _tensor("is_sharded", tensor).is_sharded()


def get_memory_config(tensor: Tensor) -> MemoryConfig | None:
    """None for a tensor that has no memory on a device."""
    on_device = is_tensor_storage_on_device(_tensor("get_memory_config", tensor)) and tensor.is_allocated()
    return tensor.memory_config() if on_device else None


def has_tile_padding(tensor: Tensor, *, dim: int | None = None) -> bool:
    """Whether the layout rounds the shape up: in any dim, or in `dim`."""
    shape, padded = tuple(_tensor("has_tile_padding", tensor).shape), tuple(tensor.padded_shape)
    if dim is None:
        return tensor.volume() != tensor.logical_volume()
    rank, at = len(shape), checked_int("has_tile_padding", "dim", dim)
    if not -rank <= at < rank:
        raise MeshError(f"has_tile_padding: dim={at} is out of range for {tensor.shape}: use {-rank} to {rank - 1}.")
    return shape[at] != padded[at % rank - rank]


def _tensor(where: str, tensor: object) -> Tensor:
    return checked(where, "tensor", tensor, Tensor, "a ttnn.Tensor")
