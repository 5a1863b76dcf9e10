"""What long sequences and large tensors take of the host's memory, by the peak of a process of its own."""

from __future__ import annotations

import os
import subprocess

from warm_python import warm_python

_PREAMBLE = """
import resource
import torch
import softmesh as ttnn

def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh = ttnn.open_mesh_device(ttnn.MeshShape({rows}, {columns}))

def tiles(x, mapper=None, dtype=ttnn.bfloat16):
    return ttnn.from_torch(x, dtype, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)

def integers(x):
    return ttnn.from_torch(x.to(torch.int32), ttnn.int32, device=mesh)
"""


def mib_taken_by(program: str, rows: int, columns: int, before: str = "") -> float:
    """How far the peak rises while `program` runs, after `before`."""
    lines = [_PREAMBLE.format(rows=rows, columns=columns), before, "start = peak()", program, "print(peak() - start)"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*warm_python(), "-c", "\n".join(lines)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[-1])


def test_attention_never_holds_all_scores():
    """Of 16 heads over 2,048 tokens they would take 256 MiB."""
    operands = """
n, heads = 2048, 16
q, k, v = (tiles(torch.randn(1, heads, n, 32)) for _ in range(3))
wide = tiles(torch.randn(1, 1, n, 64))
sink = tiles(torch.randn(1, heads, 1, 1))
pages = integers(torch.randperm(n // 64).reshape(1, -1))
cache = tiles(torch.randn(n // 64, heads, 64, 32))
parts = [tiles(torch.randn(1, heads, n, 32), ttnn.ShardTensorToMesh(mesh, dim=2)) for _ in range(3)]
buffers = [tiles(torch.zeros(1, heads, n, 32)) for _ in range(2)]
cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
semaphores = [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(2)]
ttnn.transformer.scaled_dot_product_attention(*(tiles(torch.randn(1, 1, 32, 32)) for _ in range(3)), is_causal=True)
"""
    forms = """
attention = ttnn.transformer.scaled_dot_product_attention
attention(q, k, v, is_causal=True)
attention(q, k, v, is_causal=True, sliding_window_size=200)
attention(q, k, v, is_causal=True, attention_sink=sink)
attention(q, k, v, is_causal=False, cu_window_seqlens=integers(torch.tensor([0, 1000, n])))
ttnn.transformer.flash_mla_prefill(tiles(torch.randn(1, heads, n, 64)), wide, 32)
ttnn.transformer.chunked_scaled_dot_product_attention(q, cache, cache, pages, 0)
ttnn.transformer.ring_distributed_scaled_dot_product_attention(q, k, v, 8)
for is_causal in (True, False):
    ttnn.transformer.ring_joint_scaled_dot_product_attention(
        *parts, persistent_output_buffer_k=buffers[0], persistent_output_buffer_v=buffers[1], joint_strategy="rear",
        logical_n=n, dim=2, multi_device_global_semaphore=semaphores, num_links=1, cluster_axis=1, mesh_device=mesh,
        topology=ttnn.Topology.Linear, program_config=None, ccl_core_grid_offset=(0, 0), is_causal=is_causal,
    )
"""
    assert mib_taken_by(forms, 1, 8, operands) < 128


def test_constants_take_no_memory_until_they_are_read():
    """They would take 448 MiB."""
    constants = """
shape = (1, 32, 1024, 1024)
kept = [make(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, where) for make in (ttnn.zeros, ttnn.ones, ttnn.empty)
        for where in (mesh, None)]
kept += [ttnn.full(shape, 2.5, ttnn.bfloat8_b, ttnn.TILE_LAYOUT, mesh)]
kept += [ttnn.allocate_tensor_on_device(ttnn.Shape(shape), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)]
"""
    assert mib_taken_by(constants, 1, 8) < 60


def test_collectives_take_no_more_than_twice_the_bytes_of_operands_and_results():
    """On 8x4 devices of 2 MiB each: 64 MiB. A result that lies where the operand does takes nothing."""
    operands = """
x = tiles(torch.randn(8, 4, 256, 4096), ttnn.ShardTensor2dMesh(mesh, mesh_shape=(8, 4), dims=(0, 1)))
small = tiles(torch.randn(8, 4, 32, 256), ttnn.ShardTensor2dMesh(mesh, mesh_shape=(8, 4), dims=(0, 1)))
forms = {
    "all_gather": lambda t: ttnn.all_gather(t, 3, cluster_axis=0),
    "all_broadcast": lambda t: ttnn.all_broadcast(t, cluster_axis=0)[0],
    "broadcast": lambda t: ttnn.broadcast(t, ttnn.MeshCoordinate(0, 0), cluster_axis=0),
    "reduce_scatter": lambda t: ttnn.reduce_scatter(t, 3, cluster_axis=0),
    "all_reduce": lambda t: ttnn.all_reduce(t, cluster_axis=0),
}
def all_of(t):
    return [form(t) for form in forms.values()]
all_of(small)
"""
    # Operand and results: three of 64 MiB at most, two of 8.
    assert mib_taken_by("kept = all_of(x)", 8, 4, operands) < 2 * (3 * 64 + 2 * 8)
