"""Collectives fused with products, heads and borders, against loops over devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import softmesh as ttnn

TILE, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
LINEAR = ttnn.Topology.Linear
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
OFFSET = ttnn.CoreCoord(0, 4)
X = ttnn.experimental


@pytest.fixture
def mesh(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


def semaphores(mesh: ttnn.MeshDevice, count: int = 2) -> list[Any]:
    return [ttnn.create_global_semaphore(mesh, CORES, 0) for _ in range(count)]


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def put(
    pieces: torch.Tensor,
    mesh: ttnn.MeshDevice,
    layout: ttnn.Layout = TILE,
    dtype: ttnn.DataType = ttnn.float32,
) -> ttnn.Tensor:
    """pieces (devices, *local)"""
    flat = pieces.reshape(-1, *pieces.shape[2:])
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    return ttnn.from_torch(flat, dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper)


def shared(values: torch.Tensor, mesh: ttnn.MeshDevice, layout: ttnn.Layout = TILE) -> ttnn.Tensor:
    return ttnn.from_torch(values, layout=layout, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))


def shards(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


def members(axis: int, device: int) -> list[int]:
    row, column = divmod(device, 4)
    return [row * 4 + c for c in range(4)] if axis == 1 else [column, column + 4]


def joined(x: torch.Tensor, dim: int, axis: int = 1) -> list[torch.Tensor]:
    return [torch.cat([x[d] for d in members(axis, device)], dim) for device in range(8)]


def summed(x: torch.Tensor, axis: int = 1) -> list[torch.Tensor]:
    return [torch.stack([x[d] for d in members(axis, device)]).sum(0) for device in range(8)]


def dealt(whole: list[torch.Tensor], dim: int, axis: int = 1) -> list[torch.Tensor]:
    size = 4 if axis == 1 else 2
    return [one.chunk(size, dim)[members(axis, d).index(d)] for d, one in enumerate(whole)]


def assert_shards(tensor: ttnn.Tensor, wanted: list[torch.Tensor], tolerance: float = 1e-3) -> None:
    for got, one in zip(shards(tensor), wanted, strict=True):
        torch.testing.assert_close(got, one, atol=tolerance, rtol=tolerance)


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_a_lean_product_is_summed_and_dealt_out(mesh, axis):
    x, weight = numbers(8, 1, 1, 32, 64), numbers(8, 1, 1, 64, 128)
    target = put(torch.zeros(8, 1, 1, 32, 128 // (4 if axis == 1 else 2)), mesh)
    product, total = X.minimal_matmul_strided_reduce_scatter_async(
        put(x, mesh),
        put(weight, mesh),
        3,
        semaphores(mesh, 3),
        OFFSET,
        compute_kernel_config=None,
        cluster_axis=axis,
        topology=LINEAR,
        optional_rs_output_tensor=target,
    )
    assert total.buffer_address() == target.buffer_address()
    assert_shards(product, list(x @ weight))
    assert_shards(total, dealt(summed(x @ weight, axis), 3, axis))


def test_two_inputs_of_a_lean_product_are_joined_in_whole_tiles(mesh):
    prefix, suffix, weight = numbers(8, 1, 1, 32, 40), numbers(8, 1, 1, 32, 32), numbers(8, 1, 1, 96, 128)
    given = put(weight, mesh), 3, semaphores(mesh, 3), OFFSET
    options = {"compute_kernel_config": None, "cluster_axis": 1, "topology": LINEAR}
    parts = [put(prefix, mesh), put(suffix, mesh)]
    product, total = X.minimal_matmul_strided_reduce_scatter_async(parts, *given, **options)
    wanted = torch.cat([torch.nn.functional.pad(prefix, (0, 24)), suffix], -1) @ weight
    assert_shards(product, list(wanted))
    assert_shards(total, dealt(summed(wanted, 1), 3, 1))
    with pytest.raises(RuntimeError, match="list input must be exactly 2 tensors"):
        X.minimal_matmul_strided_reduce_scatter_async(parts[:1], *given, **options)


def test_a_gated_addition_is_made_of_what_was_dealt_out(mesh):
    x, weight = numbers(8, 1, 1, 32, 64), numbers(8, 1, 1, 64, 128)
    addend, factor = numbers(8, 1, 1, 32, 32), numbers(8, 1, 1, 1, 32)
    _, total = X.minimal_matmul_strided_reduce_scatter_async(
        put(x, mesh),
        put(weight, mesh),
        3,
        semaphores(mesh, 3),
        OFFSET,
        compute_kernel_config=None,
        cluster_axis=1,
        topology=LINEAR,
        fused_ternary_scalar=0.5,
        addcmul_input_tensor1=put(addend, mesh),
        addcmul_input_tensor2=put(factor, mesh),
    )
    pieces = dealt(summed(x @ weight), 3)
    assert_shards(total, [a + 0.5 * p * f for a, p, f in zip(addend, pieces, factor, strict=True)])


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_strided_gather_and_a_lean_product_return_the_product_first(mesh, chunks):
    x, weight, bias = numbers(8, 1, 1, 32, 32), numbers(1, 1, 128, 64), numbers(1, 1, 1, 64)
    addend, factor = numbers(1, 1, 32, 64), numbers(1, 1, 1, 64)
    buffer = put(torch.zeros(8, 1, 1, 32, 128), mesh)
    *pieces, gathered = X.strided_all_gather_minimal_matmul_async(
        put(x, mesh),
        shared(weight, mesh),
        buffer,
        3,
        semaphores(mesh),
        OFFSET,
        cluster_axis=1,
        topology=LINEAR,
        bias=shared(bias, mesh),
        chunks=chunks,
        fused_ternary_scalar=2.0,
        fused_ternary_input_a=shared(addend, mesh),
        fused_ternary_input_b=shared(factor, mesh),
        memory_config_mm=ttnn.L1_MEMORY_CONFIG,
    )
    whole = joined(x, 3)
    assert gathered.buffer_address() == buffer.buffer_address()
    assert_shards(gathered, whole)
    assert len(pieces) == chunks
    wanted = [addend + 2.0 * (one @ weight + bias) * factor for one in whole]
    for i, piece in enumerate(pieces):
        assert_shards(piece, [one.chunk(chunks, -1)[i] for one in wanted])
    assert chunks > 1 or pieces[0].memory_config() == ttnn.L1_MEMORY_CONFIG


@pytest.mark.parametrize("options", [{}, {"chunks": 2}, {"chunk_sizes": [32, 96]}], ids=str)
def test_gathering_the_summed_dim_before_a_lean_product(mesh, options):
    x, weight = numbers(8, 1, 1, 32, 32), numbers(1, 1, 128, 128)
    pieces = X.all_gather_minimal_matmul_async(
        put(x, mesh),
        shared(weight, mesh),
        multi_device_global_semaphore=semaphores(mesh),
        cluster_axis=1,
        topology=LINEAR,
        fused_activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU),
        **options,
    )
    sizes = options.get("chunk_sizes") or [128 // options.get("chunks", 1)] * options.get("chunks", 1)
    wanted = [(one @ weight).relu().split(sizes, -1) for one in joined(x, 3)]
    assert len(pieces) == len(sizes)
    for i, piece in enumerate(pieces):
        assert_shards(piece, [one[i] for one in wanted])


def test_fused_products_refuse_half_a_gated_addition_and_widths_that_do_not_cut(mesh):
    x, weight = put(numbers(8, 1, 1, 32, 32), mesh), shared(numbers(1, 1, 128, 96), mesh)
    common = {"multi_device_global_semaphore": semaphores(mesh), "cluster_axis": 1, "topology": LINEAR}
    with pytest.raises(RuntimeError, match="are given, or none"):
        X.all_gather_minimal_matmul_async(x, weight, **common, scalar=1.0, addcmul_input_tensor1=weight)
    with pytest.raises(RuntimeError, match="a width of 96 cannot be cut into chunks=5"):
        X.all_gather_minimal_matmul_async(x, weight, **common, chunks=5)
    with pytest.raises(RuntimeError, match="must be positive and add up to the width 96"):
        X.all_gather_minimal_matmul_async(x, weight, **common, chunk_sizes=[32, 32])
    with pytest.raises(ttnn.NotModelled, match="fsdp_cluster_axis"):
        X.all_gather_minimal_matmul_async(x, weight, **common, fsdp_cluster_axis=0)
    with pytest.raises(TypeError, match=r"no argument 'chunk'\..*chunks"):
        X.all_gather_minimal_matmul_async(x, weight, **common, chunk=2)


def test_the_gather_and_product_of_llama_return_the_product(mesh):
    x, weight = numbers(8, 1, 1, 32, 32), numbers(1, 1, 128, 64)
    scratch = put(torch.zeros(8, 1, 1, 32, 128), mesh)
    got = X.llama_all_gather_matmul_async(
        put(x, mesh),
        shared(weight, mesh),
        scratch,
        3,
        1,
        mesh,
        LINEAR,
        semaphores(mesh, 1),
        mm_memory_config=ttnn.L1_MEMORY_CONFIG,
        dtype=ttnn.bfloat16,
    )
    assert got.dtype is ttnn.bfloat16
    assert got.memory_config() == ttnn.L1_MEMORY_CONFIG
    assert_shards(scratch, joined(x, 3))
    for one, wanted in zip(shards(got), joined(x, 3), strict=True):
        torch.testing.assert_close(one.float(), wanted @ weight, atol=0.1, rtol=0.02)


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=str)
def test_a_lean_product_with_a_gated_addition_on_each_device(mesh, dtype):
    x, weight, bias = numbers(8, 1, 1, 32, 64), numbers(1, 1, 64, 96), numbers(1, 1, 1, 96)
    addend, factor = numbers(1, 1, 32, 96), numbers(1, 1, 1, 96)
    got = X.dit_minimal_matmul_addcmul_fused(
        put(x, mesh),
        shared(weight, mesh),
        0.25,
        shared(addend, mesh),
        shared(factor, mesh),
        shared(bias, mesh),
        dtype=dtype,
    )
    assert got.dtype is dtype
    for one, piece in zip(shards(got), x, strict=True):
        wanted = addend + 0.25 * (piece @ weight + bias) * factor
        torch.testing.assert_close(one.float(), wanted, atol=0.05, rtol=0.02)


# -- heads -----------------------------------------------------------------------------------------


def test_users_are_gathered_and_their_heads_joined(mesh):
    x = numbers(8, 1, 4, 32, 64)
    buffer = put(torch.zeros(8, 1, 16, 32, 64), mesh)
    got = X.all_gather_concat(
        put(x, mesh), buffer, 1, 1, mesh, semaphores(mesh, 1), 8, ttnn.L1_MEMORY_CONFIG, topology=LINEAR
    )
    assert got.memory_config() == ttnn.L1_MEMORY_CONFIG
    assert_shards(got[:, :, :16, :], [one[:, :, :8].reshape(1, 1, 16, 8 * 64) for one in joined(x, 1)])


@pytest.mark.parametrize("slice_size", [None, 8])
def test_a_sum_is_split_into_heads(mesh, slice_size):
    x = numbers(8, 1, 1, 32, (4 + 2) * 32)
    offset = put(torch.tensor([8 * (d % 4) for d in range(8)]).int().reshape(8, 1, 1, 1, 1), mesh, ROWS, ttnn.uint32)
    total, q, k, v = X.all_reduce_create_qkv_heads(
        put(x, mesh),
        put(torch.zeros(8, 1, 1, 32, 192 * 4), mesh),
        offset,
        1,
        mesh,
        semaphores(mesh, 1),
        4,
        num_kv_heads=1,
        slice_size=slice_size,
        topology=LINEAR,
        num_links=1,
    )
    wanted = summed(x)
    assert_shards(total, wanted)
    for device, one in enumerate(wanted):
        users = one[0, 0] if slice_size is None else one[0, 0, 8 * (device % 4) :][:8]
        heads = users.reshape(1, len(users), 6, 32)
        parts = (heads[:, :, :4], heads[:, :, 4:5], heads[:, :, 5:])
        for got, part in zip((q, k, v), parts, strict=True):
            torch.testing.assert_close(shards(got)[device], part, atol=1e-3, rtol=1e-3)


def test_each_device_gets_the_heads_of_its_part_of_the_users(mesh):
    x = numbers(8, 1, 1, 32, (2 + 2) * 32)
    q, k, v = X.llama_rs_create_heads(
        put(x, mesh),
        put(torch.zeros(8, 1, 1, 32, 32), mesh),
        3,
        semaphores(mesh, 1),
        ttnn.SubDeviceId(0),
        1,
        mesh,
        LINEAR,
        num_heads=2,
        num_kv_heads=1,
        qkv_memory_config=ttnn.L1_MEMORY_CONFIG,
    )
    heads = [one.reshape(1, 8, 4, 32) for one in dealt(summed(x), 2)]
    assert_shards(q, [one[:, :, :2] for one in heads])
    assert_shards(k, [one[:, :, 2:3] for one in heads])
    assert_shards(v, [one[:, :, 3:] for one in heads])
    assert q.memory_config() == ttnn.L1_MEMORY_CONFIG
    with pytest.raises(RuntimeError, match="runs along dim 3 only"):
        X.llama_rs_create_heads(
            put(x, mesh), q, 2, semaphores(mesh, 1), None, 1, mesh, LINEAR, num_heads=2, num_kv_heads=1
        )


# -- borders ---------------------------------------------------------------------------------------


def bordered(whole: torch.Tensor, h: int, w: int, mode: str) -> list[torch.Tensor]:
    """Pieces of a picture (1, T, H, W, C) on a 2x4 mesh, cut with `h` rows and `w` columns around them."""
    kind = "constant" if mode == "zeros" else "replicate"
    padded = torch.nn.functional.pad(whole.movedim(-1, 1), (w, w, h, h, 0, 0), mode=kind).movedim(1, -1)
    high, wide = whole.shape[2] // 2, whole.shape[3] // 4
    return [
        padded[:, :, row * high : (row + 1) * high + 2 * h, column * wide : (column + 1) * wide + 2 * w]
        for row in range(2)
        for column in range(4)
    ]


def pad_halo(x: ttnn.Tensor, buffer: ttnn.Tensor, h: int, w: int, mesh: Any, **more: Any) -> ttnn.Tensor:
    one, two, three = semaphores(mesh, 3)
    return X.neighbor_pad_halo(x, buffer, h, w, 0, 1, LINEAR, one, two, three, 3, w, w, 1, 1, **more)


@pytest.mark.parametrize("mode", ["zeros", "replicate"])
@pytest.mark.parametrize(("h", "w"), [(1, 1), (2, 1), (0, 1), (1, 0)])
def test_a_border_from_the_neighbours_fits_around_its_piece(mesh, h, w, mode):
    whole = numbers(1, 3, 8, 8, 5)
    x = ttnn.from_torch(
        whole,
        layout=ROWS,
        device=mesh,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh, dims=(2, 3), mesh_shape=(2, 4)),
    )
    pixels = 3 * (2 * h * 2 + 2 * w * (4 + 2 * h))
    buffer = put(torch.zeros(8, pixels, 5), mesh, ROWS)
    border = pad_halo(x, buffer, h, w, mesh, padding_mode=mode)
    assert border is buffer
    assert_shards(X.halo_scatter(border, x, h, w), bordered(whole, h, w, mode), 0.0)


@pytest.mark.parametrize("logical", [0, 6])
def test_a_convolution_of_pieces_reads_their_borders_from_the_buffer(mesh, logical):
    whole, weight = numbers(1, 3, 8, 8, 32), numbers(16, 32, 1, 3, 3)
    on_grid = ttnn.ShardTensor2dMesh(mesh, dims=(2, 3), mesh_shape=(2, 4))
    x = ttnn.from_torch(whole, layout=ROWS, device=mesh, mesh_mapper=on_grid)
    starts = torch.tensor([[4 * (d // 4), 2 * (d % 4)] for d in range(8)]).int()
    border = pad_halo(x, put(torch.zeros(8, 3 * 20, 32), mesh, ROWS), 1, 1, mesh)
    rows = X.prepare_conv3d_weights(weight_tensor=ttnn.from_torch(weight), device=mesh)
    made = X.conv3d(
        input_tensor=x,
        weight_tensor=rows,
        halo_buffer=border,
        dtype=ttnn.float32,
        output_channels=16,
        kernel_size=(1, 3, 3),
        padding=(0, 1, 1),
        logical_h_mask=logical,
        pad_offset_tensor=put(starts.reshape(8, 1, 2), mesh, ROWS, ttnn.uint32),
        output_pad_h=2,
    )
    whole[:, :, logical or 8 :] = 0
    wanted = torch.nn.functional.conv3d(whole.movedim(-1, 1), weight, padding=(0, 1, 1)).movedim(1, -1)
    for device, got in enumerate(shards(made)):
        row, column = starts[device].tolist()
        torch.testing.assert_close(
            got[:, :, 2:6], wanted[:, :, row : row + 4, column : column + 2], atol=1e-3, rtol=1e-3
        )
        assert got.shape == (1, 3, 8, 2, 16)


def test_a_border_is_rows_above_and_below_then_columns_with_their_corners(mesh):
    whole = torch.arange(1.0, 33.0).reshape(1, 1, 4, 8, 1)
    x = ttnn.from_torch(
        whole,
        layout=ROWS,
        device=mesh,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh, dims=(2, 3), mesh_shape=(2, 4)),
    )
    border = pad_halo(x, put(torch.zeros(8, 12, 1), mesh, ROWS), 1, 1, mesh)
    first = shards(border)[1].flatten().tolist()  # holds 3 4 / 11 12
    assert first == [0, 0, 19, 20, 0, 2, 10, 18, 0, 5, 13, 21]


def test_each_section_of_a_border_has_all_frames(mesh):
    whole = torch.arange(1.0, 65.0).reshape(1, 2, 4, 8, 1)
    x = ttnn.from_torch(
        whole,
        layout=ROWS,
        device=mesh,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh, dims=(2, 3), mesh_shape=(2, 4)),
    )
    longer = put(torch.full((8, 30, 1), -1.0), mesh, ROWS)
    first = shards(pad_halo(x, longer, 1, 1, mesh))[1].flatten().tolist()  # holds 3 4 / 11 12, 35 36 / 43 44
    top, bottom = [0, 0, 0, 0], [19, 20, 51, 52]
    left, right = [0, 2, 10, 18, 0, 34, 42, 50], [0, 5, 13, 21, 0, 37, 45, 53]
    assert first == [*top, *bottom, *left, *right, *[-1] * 6]


def test_a_piece_with_a_border_is_filled_in_place_and_counts_without_it(mesh):
    whole = 1 + numbers(1, 2, 8, 8, 3)
    split = ttnn.ShardTensor2dMesh(mesh, dims=(2, 3), mesh_shape=(2, 4))
    x = ttnn.from_torch(whole, layout=ROWS, device=mesh, mesh_mapper=split)
    wanted = bordered(whole, 1, 1, "zeros")
    buffer = put(torch.zeros(8, 40, 3), mesh, ROWS)
    target = put(torch.zeros(8, 1, 2, 6, 4, 3), mesh, ROWS)
    assert pad_halo(x, buffer, 1, 1, mesh, padded_output=target) is target
    assert_shards(target, wanted, 0.0)
    outer = put(torch.nn.functional.pad(torch.stack(shards(x)), (0, 0, 1, 1, 1, 1), value=-7.0), mesh, ROWS)
    before = shards(buffer)
    pad_halo(outer, buffer, 1, 1, mesh, input_pad_h=1, input_pad_w=1)
    assert_shards(buffer, before, 0.0)
    assert X.halo_scatter(buffer, outer, 1, 1, border_only=True) is outer
    assert_shards(outer, wanted, 0.0)


def test_borders_refuse_buffers_of_another_size_and_what_is_not_known(mesh):
    x = put(numbers(8, 1, 1, 4, 4, 2), mesh, ROWS)
    buffer = put(torch.zeros(8, 7, 2), mesh, ROWS)
    with pytest.raises(RuntimeError, match=r"halo_buffer holds 7 pages but the .* sections need 20"):
        pad_halo(x, buffer, 1, 1, mesh)
    with pytest.raises(ttnn.NotModelled, match="border_only"):
        pad_halo(x, buffer, 1, 1, mesh, border_only=True)
    with pytest.raises(RuntimeError, match=r"compact_buffer \[7, 2\] must hold 20 pixels"):
        X.halo_scatter(buffer, x, 1, 1)
    with pytest.raises(RuntimeError, match=r"compact_buffer \[7, 2\] must hold 12 pixels"):
        X.halo_scatter(buffer, x, 1, 1, border_only=True)
    one, two, three = semaphores(mesh, 3)
    with pytest.raises(RuntimeError, match="np_pad_dim2=2"):
        X.neighbor_pad_halo(x, buffer, 1, 1, 0, 1, LINEAR, one, two, three, 2, 1, 1, 1, 1)


def test_scattering_a_border_on_one_device_is_padding(device):
    inside, value = numbers(2, 3, 4, 6), 7.0
    buffer = ttnn.from_torch(torch.full((2 * (2 * 4 + 2 * 2 * 5), 6), value), device=device)
    got = X.halo_scatter(buffer, ttnn.from_torch(inside, device=device), 1, 2, memory_config=ttnn.L1_MEMORY_CONFIG)
    wanted = torch.nn.functional.pad(inside, (0, 0, 2, 2, 1, 1), value=value)
    assert torch.equal(ttnn.to_torch(got), wanted)
    assert got.memory_config() == ttnn.L1_MEMORY_CONFIG


# -- norms of split rows ---------------------------------------------------------------------------


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def layer(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)


@pytest.mark.parametrize(("name", "norm"), [("rmsnorm", rms), ("layernorm", layer)], ids=["rms", "layer"])
@pytest.mark.parametrize("heads", [1, 2])
def test_norms_of_split_rows_with_heads_behind(mesh, name, norm, heads):
    x, weight = numbers(1, 1, 32, 4 * 64), numbers(1, 1, 1, 4 * 64)

    def split(values: torch.Tensor) -> ttnn.Tensor:
        mapper = ttnn.ShardTensor2dMesh(mesh, dims=(None, 3), mesh_shape=(2, 4))
        return ttnn.from_torch(values, layout=TILE, device=mesh, mesh_mapper=mapper)

    op = getattr(X, f"dit_fused_distributed_{name}")
    buffer = getattr(X, f"dit_fused_distributed_{name}_create_stats_buffer")(split(x), 1, mesh)
    got = op(
        split(x),
        1,
        mesh,
        semaphores(mesh),
        weight=split(weight),
        topology=LINEAR,
        num_heads_per_device=heads,
        persistent_output_buffer=buffer,
        memory_config=ttnn.L1_MEMORY_CONFIG,
    )
    assert got.memory_config() == ttnn.L1_MEMORY_CONFIG
    pieces = (norm(x) * weight).chunk(4, -1) * 2
    wanted = [piece.reshape(1, 32, heads, 64 // heads).transpose(1, 2) for piece in pieces]
    assert_shards(got, wanted)


@pytest.mark.parametrize(("name", "norm"), [("rmsnorm", rms), ("layernorm", layer)], ids=["rms", "layer"])
def test_norms_of_whole_rows_send_nothing(device, name, norm):
    x = numbers(1, 1, 32, 64)
    on = ttnn.from_torch(x, layout=TILE, device=device)
    op = getattr(X, f"dit_fused_distributed_{name}")
    assert getattr(X, f"dit_fused_distributed_{name}_create_stats_buffer")(on, None, device) is None
    got = op(on, None, device, semaphores(device), dtype=ttnn.bfloat16)
    assert got.dtype is ttnn.bfloat16
    torch.testing.assert_close(ttnn.to_torch(got).float(), norm(x), atol=0.02, rtol=0.02)
    with pytest.raises(RuntimeError, match="are given together, or none"):
        op(on, None, device, semaphores(device), rope_cos=on)
    with pytest.raises(RuntimeError, match="does not hold 3 heads"):
        op(on, None, device, semaphores(device), num_heads_per_device=3)


def test_a_norm_of_each_head_is_not_known(device):
    on = ttnn.from_torch(numbers(1, 1, 32, 64), layout=TILE, device=device)
    with pytest.raises(ttnn.NotModelled, match="per_head_norm"):
        X.dit_fused_distributed_rmsnorm(on, None, device, semaphores(device), per_head_norm=True)


def test_normed_heads_are_rotated(device):
    x = numbers(1, 1, 32, 64)
    angles = numbers(1, 1, 32, 16).repeat_interleave(2, -1)
    swap = torch.zeros(1, 1, 32, 32)
    for i in range(0, 32, 2):
        swap[..., i, i + 1], swap[..., i + 1, i] = 1.0, -1.0
    parts = [ttnn.from_torch(v, layout=TILE, device=device) for v in (x, angles.cos(), angles.sin(), swap)]
    got = X.dit_fused_distributed_rmsnorm(
        parts[0],
        None,
        device,
        semaphores(device),
        num_heads_per_device=2,
        rope_cos=parts[1],
        rope_sin=parts[2],
        transformation_mat=parts[3],
    )
    heads = rms(x).reshape(1, 32, 2, 32).transpose(1, 2)
    wanted = heads * angles.cos() + (heads @ swap) * angles.sin()
    torch.testing.assert_close(ttnn.to_torch(got), wanted, atol=1e-3, rtol=1e-3)


def test_a_fused_op_is_one_program_of_the_chips(mesh):
    x, scratch = put(numbers(8, 1, 1, 32, 128), mesh), put(torch.zeros(8, 1, 1, 32, 128), mesh)
    mesh.clear_program_cache()
    ttnn.relu(x)
    for heads, programs in ((2, 2), (2, 2), (6, 3)):
        X.llama_rs_create_heads(
            x, scratch, 3, semaphores(mesh, 1), None, 1, mesh, LINEAR, num_heads=heads, num_kv_heads=1
        )
        assert mesh.num_program_cache_entries() == programs
    mesh.clear_program_cache()
    assert mesh.num_program_cache_entries() == 0
