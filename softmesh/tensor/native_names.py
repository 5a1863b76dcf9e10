"""Names of TT-NN modules in C++ (`ttnn._ttnn.tensor`, `ttnn._ttnn.core`), for suites that import them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from softmesh.arguments import checked, described, refused
from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware import NOC, DumpTensorMode
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.tensor_topology import PlacementReplicate
from softmesh.tensor.device_pages import shards_of
from softmesh.tensor.device_shards import distribute_tensor
from softmesh.tensor.dtype import DataType
from softmesh.tensor.files import dump_tensor, load_tensor
from softmesh.tensor.mappers import MeshMapperConfig, create_mesh_mapper
from softmesh.tensor.page_bytes import pack_tiles
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import Tile
from softmesh.tensor.transfer import to_device

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


def dump_tensor_flatbuffer(
    filename: str | Path, tensor: Tensor, mode: DumpTensorMode = DumpTensorMode.DISTRIBUTED_GATHER
) -> None:
    """`ttnn.dump_tensor`."""
    dump_tensor(filename, tensor, mode=mode)


def load_tensor_flatbuffer(file_name: str | Path, device: MeshDevice | None = None) -> Tensor:
    return load_tensor(file_name, device=device)


def experimental_to_single_device(
    host_tensor: Tensor, mesh_device: MeshDevice, coord: MeshCoordinate, memory_config: MemoryConfig
) -> Tensor:
    """The whole tensor on one device of the mesh; the others hold nothing of it."""
    where = "experimental_to_single_device"
    at = checked(where, "coord", coord, MeshCoordinate, "a MeshCoordinate")
    if not mesh_device.shape.contains(at):
        raise MeshError(f"{where}: {coord} is not in {mesh_device.shape}.")
    rank = mesh_device.shape.dims()
    config = MeshMapperConfig(
        [PlacementReplicate()] * rank, mesh_shape_override=MeshShape([1] * rank), mesh_offset_override=at
    )
    host = distribute_tensor(host_tensor, create_mesh_mapper(mesh_device, config))
    return to_device(host, mesh_device, memory_config)


def get_optimal_worker_cores_for_sharded_tensor(tensor: Tensor, noc: NOC = NOC.RISCV_0_default) -> list[CoreCoord]:
    """For each shard the worker core that reads it best: for DRAM that next to its bank, for L1 its own."""
    where = "get_optimal_worker_cores_for_sharded_tensor"
    config = checked(where, "tensor", tensor, Tensor, "a ttnn.Tensor").memory_config()
    device = tensor.device()
    shards = shards_of(tensor.spec)
    if device is None:
        raise MeshError(f"Tensor must be on device to compute optimal worker cores: {where} got one on the host.")
    if shards is None:
        raise MeshError(f"Tensor must be sharded to compute optimal worker cores: {where} got one in {config!r}.")
    cores = shards.cores_with_shards()
    if config.buffer_type is not BufferType.DRAM:
        return cores
    nearest = device.get_optimal_dram_bank_to_logical_worker_assignment(noc)
    return [nearest[core.x] for core in cores]


def tilize_and_pack_bfp8_b(data: Any, H: int, W: int, tile_h: int = 32, tile_w: int = 32) -> bytes:
    """A matrix of float32, row by row, as the bytes of its bfloat8_b tiles."""
    return _packed("tilize_and_pack_bfp8_b", data, (H, W), (tile_h, tile_w), DataType.BFLOAT8_B)


def tilize_and_pack_bfp4_b(data: Any, H: int, W: int, tile_h: int = 32, tile_w: int = 32) -> bytes:
    return _packed("tilize_and_pack_bfp4_b", data, (H, W), (tile_h, tile_w), DataType.BFLOAT4_B)


def _packed(where: str, data: Any, shape: tuple[int, int], tile_shape: tuple[int, int], dtype: DataType) -> bytes:
    if not isinstance(data, np.ndarray) or data.dtype != np.float32:
        raise refused(where, f"data must be a numpy array of float32, got {described(data)}")
    tile = Tile(tile_shape)
    rows, columns = shape
    if data.size != rows * columns or rows % tile.height or columns % tile.width:
        raise MeshError(
            f"{where}: {data.size} values do not make {rows}x{columns} in whole tiles of {list(tile_shape)}."
        )
    values = torch.from_numpy(np.ascontiguousarray(data)).reshape(
        rows // tile.height, tile.height, columns // tile.width, tile.width
    )
    return pack_tiles(values.movedim(-3, -2).flatten(0, 1), dtype, tile).numpy().tobytes()


@dataclass
class FaceGeometry:
    """The faces of a tile: how many rows each has, and how many there are."""

    face_r_dim: int = 16
    num_faces: int = 4
