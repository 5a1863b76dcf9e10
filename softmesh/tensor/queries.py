"""Questions about a tensor that TT-NN asks by functions instead of methods."""

from __future__ import annotations

from softmesh.arguments import checked, checked_int
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.tensor.tensor import StorageType, Tensor


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
        raise MeshError(
            f"has_tile_padding: dim={at} is out of range for {tensor.shape}: use {-rank} to {rank - 1}."
        )
    return shape[at] != padded[at % rank - rank]


def _tensor(where: str, tensor: object) -> Tensor:
    return checked(where, "tensor", tensor, Tensor, "a ttnn.Tensor")
