"""One example for each of the ops that programs use most, for their help: shapes in, shapes and placements out.

They run on a mesh of 1 x 4 devices, with `ttnn` and the names of `surroundings`.
"""

from __future__ import annotations

from typing import Any

import torch

from softmesh.cores import CoreCoord, CoreGrid, CoreRange, CoreRangeSet
from softmesh.hardware.memory_config import MemoryConfig, ShardStrategy
from softmesh.hardware.sharded_configs import create_sharded_memory_config
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.mappers import ReplicateTensorToMesh, ShardTensorToMesh
from softmesh.tensor.tensor import Tensor

EXPLAINED = "on 1 x 4 devices; split(8, 64, dim=1) has 8 x 16 of its elements on each, whole(8, 64) all of them"

# Where the results of functions and of ops with rules of their own lie.
PLACEMENTS = {
    "from_torch": "As `mesh_mapper` splits it; without one, the same on all devices.",
    "to_torch": "On the host, put together by `mesh_composer`.",
    "to_device": "As it was split on the host; otherwise the same on all devices.",
    "as_tensor": "As `mesh_mapper` splits it; without one, the same on all devices.",
    "from_device": "On the host, in the pieces that the devices held.",
    "copy_host_to_device_tensor": "The device tensor is placed as the host tensor is.",
    "allocate_tensor_on_device": "Whatever is written into it decides; until then its values are not defined.",
    "copy": "The second operand is placed as the first.",
    "zeros": "The same on all devices.",
    "ones": "The same on all devices.",
    "full": "The same on all devices.",
    "empty": "The same on all devices.",
    "arange": "The same on all devices.",
    "reallocate": "As the operand.",
    "move": "As the operand.",
    "conv2d": "Split by image where the input is, by channels where the weight is; otherwise Partial or Local.",
    "pad": "Splits of dims that it leaves alone stay; split along a padded dim, it is Local.",
    "stack": "Split as the operands are, where they are split alike; otherwise Local.",
    "embedding": "Split where the ids are, or in the last dim where the columns of the weight are; otherwise Local.",
    "experimental.nlp_create_qkv_heads": "Split by batch or sequence where the input is; otherwise Local.",
}


def surroundings(mesh: MeshDevice) -> dict[str, Any]:
    """The names that examples use beside their own."""

    def split(*shape: int, dim: int) -> Tensor:
        return from_torch(torch.zeros(shape), mesh_mapper=ShardTensorToMesh(mesh, dim=dim), **options)

    def whole(*shape: int) -> Tensor:
        return from_torch(torch.zeros(shape), mesh_mapper=ReplicateTensorToMesh(mesh), **options)

    options: dict[str, Any] = {"dtype": DataType.BFLOAT16, "layout": Layout.TILE, "device": mesh}
    return {
        "torch": torch,
        "mesh": mesh,
        "split": split,
        "whole": whole,
        "cores": CoreRangeSet({CoreRange(CoreCoord(0, 0), CoreCoord(7, 7))}),
        "one_core": _by_height(64, CoreGrid(x=1, y=1)),
        "two_cores": _by_height(32, CoreGrid(x=2, y=1)),
    }


def _by_height(rows: int, grid: CoreGrid) -> MemoryConfig:
    return create_sharded_memory_config(
        (rows, 32), grid, ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )


EXAMPLES: dict[str, str] = {
    "from_torch": """
>>> x = ttnn.from_torch(torch.ones(8, 64), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=1))
>>> x.shape, ttnn.placements(x)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "to_torch": """
>>> composer = ttnn.ConcatMeshToTensor(mesh, dim=1)
>>> ttnn.to_torch(split(8, 64, dim=1), mesh_composer=composer).shape
torch.Size([8, 64])
""",
    "deallocate": """
>>> x = whole(8, 64)
>>> ttnn.deallocate(x)
>>> x.is_allocated()
False
""",
    "reshape": """
>>> y = ttnn.reshape(split(8, 64, dim=0), (1, 1, 2, 64))
>>> y.shape, ttnn.placements(y)
(Shape([1, 1, 2, 64]), (Replicate, Shard(2)))
""",
    "to_memory_config": """
>>> y = ttnn.to_memory_config(split(8, 64, dim=0), ttnn.L1_MEMORY_CONFIG)
>>> y.memory_config().buffer_type.name, ttnn.placements(y)
('L1', (Replicate, Shard(0)))
""",
    "to_layout": """
>>> y = ttnn.to_layout(split(8, 64, dim=0), ttnn.ROW_MAJOR_LAYOUT)
>>> y.layout.name, ttnn.placements(y)
('ROW_MAJOR', (Replicate, Shard(0)))
""",
    "add": """
>>> y = ttnn.add(split(8, 64, dim=1), 1.0)
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "linear": """
>>> y = ttnn.linear(whole(8, 64), split(64, 128, dim=1), bias=split(1, 128, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 32]), (Replicate, Shard(1)))
""",
    "permute": """
>>> y = ttnn.permute(split(2, 8, 64, dim=2), (0, 2, 1))
>>> y.shape, ttnn.placements(y)
(Shape([2, 16, 8]), (Replicate, Shard(1)))
""",
    "to_device": """
>>> y = ttnn.to_device(ttnn.from_torch(torch.ones(8, 64)), mesh)
>>> y.shape, ttnn.placements(y)
(Shape([8, 64]), (Replicate, Replicate))
""",
    "slice": """
>>> y = ttnn.slice(split(8, 64, dim=1), (0, 0), (4, 16))
>>> y.shape, ttnn.placements(y)
(Shape([4, 16]), (Replicate, Shard(1)))
""",
    "as_tensor": """
>>> y = ttnn.as_tensor(
...     torch.ones(8, 64), dtype=ttnn.bfloat16, device=mesh, memory_config=ttnn.DRAM_MEMORY_CONFIG
... )
>>> y.shape, ttnn.placements(y)
(Shape([8, 64]), (Replicate, Replicate))
""",
    "concat": """
>>> y = ttnn.concat([split(8, 64, dim=1), split(8, 64, dim=1)], dim=0)
>>> y.shape, ttnn.placements(y)
(Shape([16, 16]), (Replicate, Shard(1)))
""",
    "matmul": """
>>> y = ttnn.matmul(split(8, 64, dim=1), split(64, 128, dim=0))
>>> y.shape, ttnn.placements(y)
(Shape([8, 128]), (Replicate, Partial(sum)))
>>> ttnn.placements(ttnn.all_reduce(y, cluster_axis=1))
(Replicate, Replicate)
""",
    "from_device": """
>>> y = ttnn.from_device(split(8, 64, dim=1))
>>> y.shape, y.storage_type().name
(Shape([8, 16]), 'HOST')
""",
    "typecast": """
>>> y = ttnn.typecast(split(8, 64, dim=1), ttnn.bfloat8_b)
>>> y.dtype.name, ttnn.placements(y)
('BFLOAT8_B', (Replicate, Shard(1)))
""",
    "copy_host_to_device_tensor": """
>>> x = whole(8, 64)
>>> ttnn.copy_host_to_device_tensor(ttnn.from_device(whole(8, 64)), x)
>>> x.shape, ttnn.placements(x)
(Shape([8, 64]), (Replicate, Replicate))
""",
    "multiply": """
>>> y = ttnn.multiply(split(8, 64, dim=1), whole(8, 1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "unsqueeze": """
>>> y = ttnn.unsqueeze(split(8, 64, dim=1), 0)
>>> y.shape, ttnn.placements(y)
(Shape([1, 8, 16]), (Replicate, Shard(2)))
""",
    "transpose": """
>>> y = ttnn.transpose(split(8, 64, dim=1), 0, 1)
>>> y.shape, ttnn.placements(y)
(Shape([16, 8]), (Replicate, Shard(0)))
""",
    "layer_norm": """
>>> y = ttnn.layer_norm(split(32, 64, dim=0), weight=whole(1, 64))
>>> y.shape, ttnn.placements(y)
(Shape([8, 64]), (Replicate, Shard(0)))
""",
    "pad": """
>>> y = ttnn.pad(split(8, 64, dim=1), ((0, 24), (0, 0)), 0.0)
>>> y.shape, ttnn.placements(y)
(Shape([32, 16]), (Replicate, Shard(1)))
""",
    "clone": """
>>> y = ttnn.clone(split(8, 64, dim=1), dtype=ttnn.float32)
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "squeeze": """
>>> y = ttnn.squeeze(split(1, 8, 64, dim=2), 0)
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "unsqueeze_to_4D": """
>>> y = ttnn.unsqueeze_to_4D(split(8, 64, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([1, 1, 8, 16]), (Replicate, Shard(3)))
""",
    "experimental.all_gather_async": """
>>> ready = [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(2)]
>>> x = split(8, 128, dim=1)
>>> y = ttnn.experimental.all_gather_async(x, dim=1, multi_device_global_semaphore=ready)
>>> y.shape, ttnn.placements(y)
(Shape([8, 128]), (Replicate, Replicate))
""",
    "sharded_to_interleaved": """
>>> x = ttnn.to_memory_config(split(32, 128, dim=1), one_core)
>>> y = ttnn.sharded_to_interleaved(x, ttnn.L1_MEMORY_CONFIG)
>>> y.is_sharded(), ttnn.placements(y)
(False, (Replicate, Shard(1)))
""",
    "embedding": """
>>> y = ttnn.embedding(ttnn.typecast(whole(1, 8), ttnn.uint32), split(16, 64, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([1, 8, 16]), (Replicate, Shard(2)))
""",
    "allocate_tensor_on_device": """
>>> spec = ttnn.TensorSpec((8, 64), ttnn.bfloat16, ttnn.TILE_LAYOUT)
>>> y = ttnn.allocate_tensor_on_device(spec, mesh)
>>> y.shape
Shape([8, 64])
""",
    "sum": """
>>> y = ttnn.sum(split(8, 64, dim=1), dim=1, keepdim=True)
>>> y.shape, ttnn.placements(y)
(Shape([8, 1]), (Replicate, Partial(sum)))
>>> ttnn.placements(ttnn.sum(split(8, 64, dim=1), dim=0))
(Replicate, Shard(0))
""",
    "interleaved_to_sharded": """
>>> y = ttnn.interleaved_to_sharded(split(32, 128, dim=1), one_core)
>>> y.is_sharded(), ttnn.placements(y)
(True, (Replicate, Shard(1)))
""",
    "relu": """
>>> y = ttnn.relu(split(8, 64, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "fill_implicit_tile_padding": """
>>> y = ttnn.fill_implicit_tile_padding(split(8, 128, dim=1), 0.0)
>>> y.shape, ttnn.placements(y)
(Shape([8, 32]), (Replicate, Shard(1)))
""",
    "copy": """
>>> x = ttnn.clone(split(8, 64, dim=1))
>>> y = ttnn.copy(split(8, 64, dim=1), x)
>>> x.shape, ttnn.placements(x)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "repeat": """
>>> y = ttnn.repeat(split(8, 64, dim=1), (2, 1))
>>> y.shape, ttnn.placements(y)
(Shape([16, 16]), (Replicate, Shard(1)))
""",
    "rms_norm": """
>>> y = ttnn.rms_norm(split(32, 64, dim=0), weight=whole(1, 64))
>>> y.shape, ttnn.placements(y)
(Shape([8, 64]), (Replicate, Shard(0)))
""",
    "untilize": """
>>> y = ttnn.untilize(split(8, 64, dim=1))
>>> y.layout.name, ttnn.placements(y)
('ROW_MAJOR', (Replicate, Shard(1)))
""",
    "zeros": """
>>> y = ttnn.zeros((8, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
>>> y.shape, ttnn.placements(y)
(Shape([8, 64]), (Replicate, Replicate))
""",
    "silu": """
>>> y = ttnn.silu(split(8, 64, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "where": """
>>> y = ttnn.where(split(8, 64, dim=1), 1.0, split(8, 64, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "softmax": """
>>> y = ttnn.softmax(split(8, 64, dim=0), dim=-1)
>>> y.shape, ttnn.placements(y)
(Shape([2, 64]), (Replicate, Shard(0)))
>>> ttnn.placements(ttnn.softmax(split(8, 64, dim=1), dim=-1))
(Replicate, Local)
""",
    "div": """
>>> y = ttnn.div(split(8, 64, dim=1), 2.0)
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "transformer.scaled_dot_product_attention": """
>>> q, k, v = (split(1, 8, 32, 64, dim=1) for _ in range(3))
>>> y = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)
>>> y.shape, ttnn.placements(y)
(Shape([1, 2, 32, 64]), (Replicate, Shard(1)))
""",
    "gelu": """
>>> y = ttnn.gelu(split(8, 64, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "experimental.paged_update_cache": """
>>> cache, token = split(2, 4, 64, 32, dim=1), split(1, 2, 4, 32, dim=2)
>>> y = ttnn.experimental.paged_update_cache(cache, token, update_idxs=[0, 5])
>>> y.shape, ttnn.placements(y)
(Shape([2, 1, 64, 32]), (Replicate, Shard(1)))
""",
    "stack": """
>>> y = ttnn.stack([split(8, 64, dim=1), split(8, 64, dim=1)], dim=0)
>>> y.shape, ttnn.placements(y)
(Shape([2, 8, 16]), (Replicate, Shard(2)))
""",
    "subtract": """
>>> y = ttnn.subtract(split(8, 64, dim=1), split(8, 64, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "conv2d": """
>>> x = split(4, 8, 8, 16, dim=0)
>>> kernel = ttnn.from_torch(torch.ones(32, 16, 3, 3))
>>> sizes = dict(batch_size=1, input_height=8, input_width=8, in_channels=16, out_channels=32)
>>> y = ttnn.conv2d(
...     input_tensor=x, weight_tensor=kernel, device=mesh, kernel_size=(3, 3), padding=(1, 1), **sizes
... )
>>> y.shape, ttnn.placements(y)
(Shape([1, 1, 64, 32]), (Replicate, Shard(2)))
""",
    "all_gather": """
>>> y = ttnn.all_gather(split(8, 64, dim=1), dim=1, cluster_axis=1)
>>> y.shape, ttnn.placements(y)
(Shape([8, 64]), (Replicate, Replicate))
""",
    "reshard": """
>>> x = ttnn.to_memory_config(split(64, 128, dim=1), one_core)
>>> y = ttnn.reshard(x, two_cores)
>>> y.is_sharded(), ttnn.placements(y)
(True, (Replicate, Shard(1)))
""",
    "sigmoid": """
>>> y = ttnn.sigmoid(split(8, 64, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "reallocate": """
>>> y = ttnn.reallocate(ttnn.clone(split(8, 64, dim=1)))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "plus_one": """
>>> positions = ttnn.typecast(ttnn.to_layout(whole(1, 8), ttnn.ROW_MAJOR_LAYOUT), ttnn.int32)
>>> y = ttnn.plus_one(positions)
>>> y.shape, ttnn.placements(y)
(Shape([1, 8]), (Replicate, Replicate))
""",
    "experimental.rotary_embedding_llama": """
>>> cos, sin, turn = whole(1, 1, 32, 64), whole(1, 1, 32, 64), whole(1, 1, 32, 32)
>>> y = ttnn.experimental.rotary_embedding_llama(split(1, 8, 32, 64, dim=1), cos, sin, turn)
>>> y.shape, ttnn.placements(y)
(Shape([1, 2, 32, 64]), (Replicate, Shard(1)))
""",
    "experimental.paged_fill_cache": """
>>> pages = ttnn.typecast(ttnn.to_layout(whole(1, 2), ttnn.ROW_MAJOR_LAYOUT), ttnn.int32)
>>> cache, x = split(4, 4, 32, 64, dim=1), split(1, 4, 32, 64, dim=1)
>>> y = ttnn.experimental.paged_fill_cache(cache, x, pages, batch_idx=0)
>>> y.shape, ttnn.placements(y)
(Shape([4, 1, 32, 64]), (Replicate, Shard(1)))
""",
    "experimental.nlp_create_qkv_heads": """
>>> x = split(4, 1, 32, 256, dim=0)
>>> q, k, v = ttnn.experimental.nlp_create_qkv_heads(
...     x, num_heads=2, num_kv_heads=1, transpose_k_heads=False
... )
>>> q.shape, k.shape, ttnn.placements(q)
(Shape([1, 2, 32, 64]), Shape([1, 1, 32, 64]), (Replicate, Shard(0)))
""",
    "experimental.reduce_scatter_minimal_async": """
>>> ready = [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(3)]
>>> x = ttnn.matmul(split(32, 64, dim=1), split(64, 128, dim=0))
>>> y = ttnn.experimental.reduce_scatter_minimal_async(x, dim=1, multi_device_global_semaphore=ready)
>>> y.shape, ttnn.placements(y)
(Shape([32, 32]), (Replicate, Shard(1)))
""",
    "mesh_partition": """
>>> y = ttnn.mesh_partition(whole(8, 128), dim=1, cluster_axis=1)
>>> y.shape, ttnn.placements(y)
(Shape([8, 32]), (Replicate, Shard(1)))
""",
    "group_norm": """
>>> x = ttnn.to_layout(split(4, 1, 64, 64, dim=0), ttnn.ROW_MAJOR_LAYOUT)
>>> y = ttnn.group_norm(x, num_groups=2)
>>> y.shape, ttnn.placements(y)
(Shape([1, 1, 64, 64]), (Replicate, Shard(0)))
""",
    "pow": """
>>> y = ttnn.pow(split(8, 64, dim=1), 2)
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
""",
    "tilize": """
>>> y = ttnn.tilize(ttnn.to_layout(split(32, 128, dim=1), ttnn.ROW_MAJOR_LAYOUT))
>>> y.layout.name, ttnn.placements(y)
('TILE', (Replicate, Shard(1)))
""",
    "topk": """
>>> values, indices = ttnn.topk(split(32, 64, dim=0), k=4)
>>> values.shape, indices.dtype.name, ttnn.placements(values)
(Shape([8, 4]), 'UINT16', (Replicate, Shard(0)))
""",
    "all_reduce": """
>>> y = ttnn.all_reduce(ttnn.matmul(split(8, 64, dim=1), split(64, 128, dim=0)), cluster_axis=1)
>>> y.shape, ttnn.placements(y)
(Shape([8, 128]), (Replicate, Replicate))
""",
    "reduce_scatter": """
>>> x = ttnn.matmul(split(32, 64, dim=1), split(64, 128, dim=0))
>>> y = ttnn.reduce_scatter(x, dim=1, cluster_axis=1)
>>> y.shape, ttnn.placements(y)
(Shape([32, 32]), (Replicate, Shard(1)))
""",
    "fill_cache": """
>>> y = ttnn.fill_cache(split(2, 4, 64, 32, dim=1), split(1, 4, 32, 32, dim=1), 0)
>>> y.shape, ttnn.placements(y)
(Shape([2, 1, 64, 32]), (Replicate, Shard(1)))
""",
}
