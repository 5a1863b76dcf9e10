"""Parts of models at the head counts and memory layouts of real programs, each against torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from chip_row import Semaphores
from machines import opened_on
from model_tensors import assert_agrees
from sharding import (
    ATTENTION,
    DRAM,
    HIFI2,
    L1_WIDTH,
    dram_matmul,
    dram_sharded,
    height_sharded,
    sdpa_program,
    width_sharded,
)

import softmesh as ttnn

USERS, HEADS, GROUPS, WIDTH, BLOCK = 8, 32, 8, 64, 32


@pytest.fixture
def row() -> Iterator[ttnn.MeshDevice]:
    with opened_on("T3000", (1, 8), ttnn.FabricConfig.FABRIC_1D_RING) as mesh:
        yield mesh


def put(values: torch.Tensor, mesh: ttnn.MeshDevice, dim: int | None = None, **options: object) -> ttnn.Tensor:
    mapper = ttnn.ReplicateTensorToMesh(mesh) if dim is None else ttnn.ShardTensorToMesh(mesh, dim=dim)
    kinds = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "memory_config": DRAM, **options}
    return ttnn.as_tensor(values, device=mesh, mesh_mapper=mapper, **kinds)


def of_chip(tensor: ttnn.Tensor, chip: int = 0) -> torch.Tensor:
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[chip]).float()


def test_32_heads_decode_over_8_groups_of_paged_caches_in_block_floats(row):
    torch.manual_seed(0)
    starts, pages = torch.tensor([0, 31, 32, 63, 64, 90, 5, 95]), 4
    table = torch.randperm(USERS * pages).reshape(USERS, pages).int()
    past = [torch.randn(USERS, GROUPS, pages * BLOCK, WIDTH) for _ in range(2)]
    caches = []
    for x in past:
        paged = torch.zeros(USERS * pages, GROUPS, BLOCK, WIDTH)
        paged[table.flatten().long()] = x.unflatten(2, (pages, BLOCK)).transpose(1, 2).flatten(0, 1)
        caches.append(put(paged, row, dtype=ttnn.bfloat8_b))
    numbers = {"dtype": ttnn.int32, "layout": ttnn.ROW_MAJOR_LAYOUT}
    places = put(table, row, **numbers)
    first, second = (ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, y), ttnn.CoreCoord(7, y))}) for y in range(2))
    for step in range(2):
        at = starts + step
        q, k, v = (torch.randn(1, USERS, heads, WIDTH) for heads in (HEADS, GROUPS, GROUPS))
        for x, new in zip(past, (k, v), strict=True):
            x[torch.arange(USERS), :, at] = new[0]
        positions = put(at.int(), row, **numbers)
        new = [put(x, row, memory_config=height_sharded(WIDTH, cores)) for x, cores in ((k, first), (v, second))]
        ttnn.experimental.paged_fused_update_cache(
            caches[0], new[0], caches[1], new[1], update_idxs_tensor=positions, page_table=places
        )
        out = ttnn.transformer.paged_scaled_dot_product_attention_decode(
            put(q, row),
            *caches,
            cur_pos_tensor=positions,
            page_table_tensor=places,
            scale=WIDTH**-0.5,
            program_config=sdpa_program(),
            compute_kernel_config=ATTENTION,
            memory_config=DRAM,
        )
        seen = torch.arange(pages * BLOCK) <= at[:, None, None, None]
        keys, values = (x.repeat_interleave(HEADS // GROUPS, 1) for x in past)
        wanted = F.scaled_dot_product_attention(q[0].unsqueeze(2), keys, values, seen)[:, :, 0]
        assert_agrees(of_chip(out)[0], wanted, at_least=0.999)


@pytest.mark.parametrize("dtype", [ttnn.bfloat8_b, ttnn.bfloat4_b], ids=str)
@pytest.mark.parametrize(("k", "n", "cores"), [(512, 768, 8), (1024, 512, 16), (512, 1792, 8)])
def test_weights_in_banks_of_dram_serve_a_decode_step(row, dtype, k, n, cores):
    """Columns that do not divide over the twelve banks are filled up there, and not in the result."""
    torch.manual_seed(1)
    x, weight = torch.randn(1, 1, USERS, k), torch.randn(1, 1, k, n) * k**-0.5
    held = put(weight, row, dtype=dtype, memory_config=dram_sharded(row, k, n))
    out = ttnn.linear(
        put(x, row, memory_config=width_sharded(k, cores)),
        held,
        program_config=dram_matmul(k, n, cores),
        compute_kernel_config=HIFI2,
        memory_config=L1_WIDTH,
        dtype=ttnn.bfloat16,
    )
    assert (list(out.shape), out.memory_config().memory_layout) == ([1, 1, USERS, n], L1_WIDTH.memory_layout)
    assert_agrees(of_chip(out), x.bfloat16().float() @ of_chip(held), at_least=0.9999, factor=0.01)
    assert_agrees(of_chip(out), x @ weight, at_least=0.9995 if dtype is ttnn.bfloat8_b else 0.98)


@pytest.mark.parametrize("topology", [ttnn.Topology.Linear, ttnn.Topology.Ring], ids=str)
def test_an_mlp_in_parts_sums_over_the_row_by_asynchronous_collectives(row, topology):
    torch.manual_seed(2)
    width, hidden, rows = 256, 1024, 64
    up, gate, down = (torch.randn(a, b) * a**-0.5 for a, b in ((width, hidden), (width, hidden), (hidden, width)))
    w_up, w_gate = (put(w[None, None], row, -1, dtype=ttnn.bfloat8_b) for w in (up, gate))
    w_down, link = put(down[None, None], row, -2, dtype=ttnn.bfloat8_b), {"num_links": 1, "topology": topology}
    semaphores = Semaphores(row)
    room = put(torch.zeros(1, 1, rows, width), row)
    for _ in range(2):  # the second time over the buffer and the semaphores of the first
        x = torch.randn(1, 1, rows, width)
        given = put(x, row)
        gated = ttnn.linear(given, w_gate, activation="silu", compute_kernel_config=HIFI2)
        both = ttnn.multiply(ttnn.linear(given, w_up, compute_kernel_config=HIFI2), gated)
        parts = ttnn.linear(both, w_down, compute_kernel_config=HIFI2)
        own = ttnn.experimental.reduce_scatter_minimal_async(parts, dim=3, **semaphores.scatter(), **link)
        whole = ttnn.experimental.all_gather_async(
            own, persistent_output_buffer=room, dim=3, **semaphores.gather(), **link
        )
        assert list(own.shape) == [1, 1, rows, width // 8]
        assert whole.buffer_address() == room.buffer_address()
        wanted = (F.silu(x @ gate) * (x @ up)) @ down
        for chip in (0, 7):
            assert_agrees(of_chip(whole, chip), wanted, at_least=0.999)


@pytest.mark.parametrize("axis", [0, 1])
def test_image_and_prompt_attend_together_around_either_axis_of_a_grid(axis):
    torch.manual_seed(3)
    length, prompt, heads, valid = 256, 64, 8, 250
    grid = (2, 4)
    dims = (2, 1) if axis == 0 else (1, 2)
    own = [torch.randn(1, heads, length, WIDTH) for _ in range(3)]
    joint = [torch.randn(1, heads, prompt, WIDTH) for _ in range(3)]
    with opened_on("T3000", grid, ttnn.FabricConfig.FABRIC_1D) as mesh:
        options = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": mesh, "memory_config": DRAM}

        def cut(x: torch.Tensor, over: tuple[int | None, int | None]) -> ttnn.Tensor:
            mapper = ttnn.ShardTensor2dMesh(mesh, mesh_shape=grid, dims=over)
            return ttnn.from_torch(x, mesh_mapper=mapper, **options)

        only_heads = (None, 1) if axis == 0 else (1, None)
        buffers = [cut(torch.zeros(1, heads, length, WIDTH), only_heads) for _ in range(2)]
        out, joint_out, _ = ttnn.transformer.ring_joint_scaled_dot_product_attention(
            *(cut(x, dims) for x in own),
            *(cut(x, only_heads) for x in joint),
            persistent_output_buffer_k=buffers[0],
            persistent_output_buffer_v=buffers[1],
            joint_strategy="rear",
            logical_n=valid,
            program_config=sdpa_program(),
            compute_kernel_config=ATTENTION,
            dim=2,
            multi_device_global_semaphore=Semaphores(mesh).gather()["multi_device_global_semaphore"],
            num_links=1,
            cluster_axis=axis,
            mesh_device=mesh,
            topology=ttnn.Topology.Linear,
            ccl_core_grid_offset=(0, 6),
        )
        composer = ttnn.ConcatMesh2dToTensor(mesh, mesh_shape=grid, dims=dims)
        found = ttnn.to_torch(out, mesh_composer=composer).float()
        of_prompt = ttnn.to_torch(joint_out, mesh_composer=composer).float()[:, :, :prompt]
    q, k, v = (torch.cat([x[:, :, :valid], y], 2) for x, y in zip(own, joint, strict=True))
    wanted = F.scaled_dot_product_attention(q, k, v)
    assert_agrees(found[:, :, :valid], wanted[:, :, :valid], at_least=0.999)
    assert_agrees(of_prompt, wanted[:, :, valid:], at_least=0.999)
