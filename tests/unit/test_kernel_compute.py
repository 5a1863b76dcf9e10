"""Compute kernels: tiles through the registers, held against torch; and the rules of those registers."""

from __future__ import annotations

import pytest
import torch
from kernel_programs import CORE, add_cb, compute_on, program_of, run, tiles

import softmesh as ttnn
from softmesh import kernels, metal
from softmesh.kernels import (
    BroadcastType,
    EltwiseBinaryReuseDestType,
    EltwiseBinaryType,
    InterleavedAddrGen,
    PoolType,
    ReduceDim,
    acquire_dst,
    add_binary_tile,
    add_init,
    add_int_tile,
    add_int_tile_init,
    add_tiles,
    add_tiles_bcast,
    binary_op_init_common,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    copy_block,
    copy_tile,
    copy_tile_init,
    exp_tile,
    exp_tile_init,
    fill_tile,
    float_bits,
    generate_reduce_scaler,
    get_read_ptr,
    get_write_ptr,
    init_bcast,
    matmul_block,
    matmul_init,
    matmul_tiles,
    mm_block_init,
    mm_init,
    mul_reuse_dest_init,
    mul_unary_tile,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    pack_reconfig_l1_acc,
    pack_tile,
    pack_tile_block,
    pack_untilize_block,
    pack_untilize_dest,
    pack_untilize_init,
    power_tile,
    reduce_init,
    reduce_tile,
    release_dst,
    sub_reuse_dest_tiles,
    tile_regs_acquire,
    tile_regs_commit,
    tile_regs_release,
    tile_regs_wait,
    tilize_block,
    tilize_init,
    transpose_init,
    transpose_tile,
    typecast_tile,
    untilize_block,
    untilize_init,
    where_tile,
)

torch.manual_seed(0)


@pytest.fixture(scope="module")
def chip():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh


def random_tiles(mesh, count=1, dtype=ttnn.float32, positive=False):
    values = torch.randn(1, 1, 32, 32 * count)
    return tiles(mesh, values.abs() + 0.1 if positive else values, dtype)


def result_of(mesh, math, inputs, count=1, dtype=ttnn.float32, strict=None, config=None):
    """`count` registers after `math`, packed into a tensor."""
    waited = [each.spec.num_pages() for each in inputs]
    output = tiles(mesh, torch.zeros(1, 1, 32, 32 * count), dtype)

    def compute():
        for index, pages in enumerate(waited):
            cb_wait_front(index, pages)
        cb_reserve_back(16, count)
        tile_regs_acquire()
        math()
        tile_regs_commit()
        tile_regs_wait()
        pack_tile_block(0, 16, count)
        tile_regs_release()
        cb_push_back(16, count)

    (found,) = compute_on(mesh, compute, inputs, output, strict=strict, config=config)
    return found


def test_tiles_are_added_in_float32_and_rounded_when_packed(chip):
    a, b = random_tiles(chip, dtype=ttnn.bfloat16), random_tiles(chip, dtype=ttnn.bfloat16)
    found = result_of(chip, lambda: (add_init(0, 1), add_tiles(0, 1, 0, 0, 0)), [a, b], dtype=ttnn.bfloat16)
    assert torch.equal(found, (ttnn.to_torch(a).float() + ttnn.to_torch(b).float()).bfloat16())


@pytest.mark.parametrize("dtype", [ttnn.bfloat8_b, ttnn.bfloat4_b, ttnn.float32, ttnn.bfloat16])
def test_values_take_the_format_of_the_circular_buffer_on_the_way_in_and_out(chip, dtype):
    a = random_tiles(chip, 2)
    output = tiles(chip, torch.zeros(1, 1, 32, 64), dtype)
    held = ttnn.to_torch(ttnn.typecast(a, dtype)).float()

    def compute():
        cb_wait_front(0, 2)
        cb_reserve_back(16, 2)
        copy_tile_init(0)
        tile_regs_acquire()
        copy_block(0, 0, 0, 2)
        tile_regs_commit()
        tile_regs_wait()
        pack_tile(1, 16, 1)
        pack_tile(0, 16, 0)
        tile_regs_release()
        cb_push_back(16, 2)

    (found,) = compute_on(chip, compute, [a], output)
    assert torch.equal(found.float(), held)
    (again,) = compute_on(chip, compute, [output], tiles(chip, torch.zeros(1, 1, 32, 64), ttnn.float32))
    assert torch.equal(again, held)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("sub", torch.sub), ("mul", torch.mul), ("add", torch.add)],
)
@pytest.mark.parametrize("by_init", [False, True])
def test_element_wise_ops_agree_with_torch_and_may_accumulate(chip, name, expected, by_init):
    a, b = random_tiles(chip), random_tiles(chip)
    init, call = getattr(kernels, f"{name}_tiles_init"), getattr(kernels, f"{name}_tiles")

    def math():
        init(0, 1)
        call(0, 1, 0, 0, 0)
        if by_init:
            init(0, 1, True)
            call(0, 1, 0, 0, 0)
        else:
            call(0, 1, 0, 0, 0, acc_to_dest=True)

    assert torch.equal(result_of(chip, math, [a, b]), 2 * expected(ttnn.to_torch(a), ttnn.to_torch(b)))


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (BroadcastType.ROW, (slice(1), slice(None))),
        (BroadcastType.COL, (slice(None), slice(1))),
        (BroadcastType.SCALAR, (slice(1), slice(1))),
    ],
)
def test_a_row_a_column_or_a_value_is_used_for_the_whole_tile(chip, kind, part):
    a, b = random_tiles(chip), random_tiles(chip)
    down, across = part
    expected = ttnn.to_torch(a) + ttnn.to_torch(b)[..., down, across]
    init = init_bcast[EltwiseBinaryType.ELWADD, kind]
    by_kind = result_of(chip, lambda: (init(0, 1, 16), add_tiles_bcast[kind](0, 1, 0, 0, 0)), [a, b])
    assert torch.equal(by_kind, expected)
    short, named = {
        BroadcastType.ROW: (kernels.add_bcast_rows_init_short, kernels.add_tiles_bcast_rows),
        BroadcastType.COL: (kernels.add_bcast_cols_init_short, kernels.add_tiles_bcast_cols),
        BroadcastType.SCALAR: (kernels.add_bcast_scalar_init_short, kernels.add_tiles_bcast_scalar),
    }[kind]
    assert torch.equal(result_of(chip, lambda: (short(0, 1), named(0, 1, 0, 0, 0)), [a, b]), expected)


def test_products_accumulate_in_the_register(chip):
    a, b = random_tiles(chip, 3), tiles(chip, torch.randn(1, 1, 96, 32), ttnn.float32)

    def math():
        mm_init(0, 1, 16)
        for k in range(3):
            matmul_tiles(0, 1, k, k, 0)

    found = result_of(chip, math, [a, b])
    torch.testing.assert_close(found, ttnn.to_torch(a) @ ttnn.to_torch(b), rtol=1e-5, atol=1e-5)


def test_blocks_multiply_as_matrices_do(chip):
    """Two rows of three tiles times three rows of two: one step of the inner dim at a time."""
    a, b = (
        tiles(chip, torch.randn(1, 1, 64, 96), ttnn.float32),
        tiles(chip, torch.randn(1, 1, 96, 64), ttnn.float32),
    )
    expected = ttnn.to_torch(a) @ ttnn.to_torch(b)

    def math():
        mm_block_init(0, 1, 16, False, 2, 2, 3)
        for k in range(3):
            matmul_block(0, 1, k, 2 * k, 0, False, 2, 2, 3)

    found = result_of(chip, math, [a, b], count=4)  # row after row of tiles, side by side
    expected = torch.cat([expected[..., :32, :], expected[..., 32:, :]], dim=-1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_product_may_take_its_second_operand_transposed(chip):
    a, b = random_tiles(chip), random_tiles(chip)
    expected = ttnn.to_torch(a) @ ttnn.to_torch(b).mT

    def by_argument():
        matmul_init(0, 1)
        matmul_tiles(0, 1, 0, 0, 0, True)

    def by_init():
        mm_init(0, 1, 16, True)
        matmul_tiles(0, 1, 0, 0, 0)

    for math in (by_argument, by_init):
        torch.testing.assert_close(result_of(chip, math, [a, b]), expected)


@pytest.mark.parametrize("pool", [PoolType.SUM, PoolType.MAX, PoolType.MIN])
@pytest.mark.parametrize("dim", [ReduceDim.REDUCE_ROW, ReduceDim.REDUCE_COL, ReduceDim.REDUCE_SCALAR])
def test_a_reduction_goes_over_rows_columns_or_all_and_over_several_tiles(chip, pool, dim):
    a = random_tiles(chip, 2)
    scaler = tiles(chip, torch.full((1, 1, 32, 32), 0.5), ttnn.float32)

    def math():
        reduce_init[pool, dim](0, 1, 16)
        for i in range(2):
            reduce_tile[pool, dim](0, 1, i, 0, 0)

    both = torch.stack(ttnn.to_torch(a).split(32, dim=-1))[:, 0, 0]
    dims = {"REDUCE_ROW": (0, 2), "REDUCE_COL": (0, 1), "REDUCE_SCALAR": (0, 1, 2)}[dim.name]
    take = {"SUM": torch.sum, "MAX": torch.amax, "MIN": torch.amin}[pool.name]
    expected = take(both, dim=dims) * 0.5
    found = result_of(chip, math, [a, scaler])[0, 0]
    part = {"REDUCE_ROW": found[:, 0], "REDUCE_COL": found[0, :], "REDUCE_SCALAR": found[0, 0]}[dim.name]
    torch.testing.assert_close(part, expected, rtol=1e-5, atol=1e-5)


def test_a_reader_makes_the_scaler_of_a_reduction(chip):
    seen = []

    def reader():
        generate_reduce_scaler(2, 0x3F003F00)  # 0.5 as bfloat16, twice
        cb_wait_front(2, 1)
        seen.append(kernels.L1Pointer(get_write_ptr(2) - 2048, kernels.uint16_t)[0:2])

    program = program_of(reader=reader)
    add_cb(program, 2, 2)
    run(chip, program)
    assert seen == [[0x3F00, 0x3F00]]


def test_a_tile_is_transposed(chip):
    a = random_tiles(chip)
    turned = result_of(chip, lambda: (transpose_init(0), transpose_tile(0, 0, 0)), [a])
    assert torch.equal(turned, ttnn.to_torch(a).mT)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", torch.exp),
        ("log", torch.log),
        ("sqrt", torch.sqrt),
        ("rsqrt", torch.rsqrt),
        ("recip", torch.reciprocal),
        ("sin", torch.sin),
        ("cos", torch.cos),
        ("tanh", torch.tanh),
        ("sigmoid", torch.sigmoid),
        ("gelu", torch.nn.functional.gelu),
        ("silu", torch.nn.functional.silu),
        ("relu", torch.relu),
        ("abs", torch.abs),
        ("negative", torch.neg),
        ("square", torch.square),
        ("gtz", lambda x: (x > 0).float()),
    ],
)
def test_functions_of_the_vector_unit_agree_with_torch(chip, name, expected):
    a = random_tiles(chip, positive=name in ("log", "sqrt", "rsqrt", "recip"))

    def math():
        copy_tile_init(0)
        copy_tile(0, 0, 0)
        getattr(kernels, f"{name}_tile_init")()
        getattr(kernels, f"{name}_tile")(0)

    assert torch.equal(result_of(chip, math, [a], strict=True), expected(ttnn.to_torch(a)))


def test_the_vector_unit_takes_scalars_as_bits_and_combines_registers(chip):
    a, b = random_tiles(chip), random_tiles(chip)

    def math():
        copy_tile_init(0)
        copy_tile(0, 0, 0)
        copy_tile(1, 0, 1)
        kernels.binop_with_scalar_tile_init()
        mul_unary_tile(0, float_bits(3.0))
        kernels.add_binary_tile_init()
        add_binary_tile(0, 1, 2)
        kernels.power_tile_init()
        power_tile(2, 2)
        fill_tile(3, 0.25)
        kernels.where_tile_init()
        where_tile(1, 2, 3, 0)

    x, y = ttnn.to_torch(a), ttnn.to_torch(b)
    found = result_of(chip, math, [a, b])
    assert torch.equal(found, torch.where(y != 0, (x * 3 + y) ** 2, 0.25))


def test_one_operand_may_already_be_in_the_register(chip):
    a, b = random_tiles(chip), random_tiles(chip)

    def math():
        copy_tile_init(0)
        copy_tile(0, 0, 0)
        kernels.sub_reuse_dest_init[EltwiseBinaryReuseDestType.DEST_TO_SRCB](1)
        sub_reuse_dest_tiles[EltwiseBinaryReuseDestType.DEST_TO_SRCB](1, 0, 0)
        kernels.sub_reuse_dest_init(1)
        sub_reuse_dest_tiles(1, 0, 0)

    x, y = ttnn.to_torch(a), ttnn.to_torch(b)
    assert torch.equal(result_of(chip, math, [a, b]), (y - x) - y)


def test_integers_pass_through_and_are_added_by_the_vector_unit(chip):
    values = torch.randint(0, 2**20, (1, 1, 32, 32), dtype=torch.int32)
    a = tiles(chip, values, ttnn.int32)

    def math():
        copy_tile_init(0)
        copy_tile(0, 0, 0)
        copy_tile(0, 0, 1)
        add_int_tile_init()
        add_int_tile(0, 1)

    assert torch.equal(result_of(chip, math, [a], dtype=ttnn.int32), 2 * values)
    with pytest.raises(ttnn.MeshError, match="holds integers, and the matrix engine computes floats"):
        result_of(chip, lambda: (add_init(0, 0), add_tiles(0, 0, 0, 0, 0)), [a], dtype=ttnn.int32)


def test_a_typecast_rounds_in_the_register(chip):
    a = random_tiles(chip)

    def math():
        copy_tile_init(0)
        copy_tile(0, 0, 0)
        kernels.typecast_tile_init()
        typecast_tile[metal.DataFormat.Float32, metal.DataFormat.Float16_b](0)

    assert torch.equal(result_of(chip, math, [a]), ttnn.to_torch(a).bfloat16().float())


def test_the_packer_adds_to_what_is_in_memory_when_told_to(chip):
    a = random_tiles(chip, 3)
    output = tiles(chip, torch.zeros(1, 1, 32, 32), ttnn.float32)

    def compute():
        cb_wait_front(0, 3)
        cb_reserve_back(16, 1)
        for i in range(3):
            tile_regs_acquire()
            copy_tile_init(0)
            copy_tile(0, i, 0)
            tile_regs_commit()
            tile_regs_wait()
            pack_reconfig_l1_acc(i > 0)
            pack_tile[True](0, 16, 0)
            tile_regs_release()
        cb_push_back(16, 1)

    (found,) = compute_on(chip, compute, [a], output, strict=True)
    torch.testing.assert_close(found, torch.stack(ttnn.to_torch(a).split(32, dim=-1)).sum(0))


def through_rows(mesh, compute, values, *, to_tiles):
    """Two tiles' worth of values through a compute kernel that changes between rows and tiles."""
    layouts = (ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT) if to_tiles else (ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT)
    source = ttnn.from_torch(values, dtype=ttnn.bfloat16, layout=layouts[0], device=mesh)
    target = ttnn.from_torch(torch.zeros_like(values), dtype=ttnn.bfloat16, layout=layouts[1], device=mesh)
    (found,) = compute_on(mesh, compute, [source], target)
    return found


def test_rows_become_tiles(chip):
    values = torch.randn(32, 64).bfloat16()

    def compute():
        tilize_init(0, 2, 16)
        cb_wait_front(0, 32)
        cb_reserve_back(16, 2)
        tilize_block(0, 2, 16)
        cb_push_back(16, 2)
        cb_pop_front(0, 32)

    assert torch.equal(through_rows(chip, compute, values, to_tiles=True), values)


@pytest.mark.parametrize("way", ["untilize_block", "pack_untilize_block", "pack_untilize_dest", "in parts"])
def test_tiles_become_rows(chip, way):
    values = torch.randn(32, 64).bfloat16()

    def compute():
        untilize_init(0)
        cb_wait_front(0, 2)
        cb_reserve_back(16, 32)
        if way == "untilize_block":
            untilize_block(0, 2, 16)
        elif way == "pack_untilize_block":
            pack_untilize_init(0, 16)
            pack_untilize_block[2](0, 1, 16)
        else:
            copy_tile_init(0)
            tile_regs_acquire()
            copy_block(0, 0, 0, 2)
            tile_regs_commit()
            tile_regs_wait()
            if way == "in parts":
                pack_untilize_dest[1, 2](16)
            else:
                pack_untilize_dest[2](16)
            tile_regs_release()
        cb_push_back(16, 32)

    found = through_rows(chip, compute, values, to_tiles=False)
    if way == "in parts":
        values[:, 32:] = 0
    assert torch.equal(found, values)


@pytest.mark.parametrize(
    ("config", "capacity"),
    [
        (metal.ComputeConfig(), 8),
        (metal.ComputeConfig(dst_full_sync_en=True), 16),
        (metal.ComputeConfig(fp32_dest_acc_en=True), 4),
        (metal.ComputeConfig(fp32_dest_acc_en=True, dst_full_sync_en=True), 8),
    ],
)
def test_as_many_tiles_fit_the_registers_as_the_mode_says(chip, config, capacity):
    a = random_tiles(chip)
    result_of(chip, lambda: [copy_tile_init(0), *(copy_tile(0, 0, i) for i in (0, capacity - 1))], [a], config=config)
    with pytest.raises(ttnn.MeshError, match=rf"there is no tile register {capacity}: DST holds {capacity} tiles"):
        result_of(chip, lambda: (copy_tile_init(0), copy_tile(0, 0, capacity)), [a], config=config)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([tile_regs_acquire] * 2, "tile_regs_acquire.. comes out of turn: .*math holds them"),
        ([tile_regs_commit], "tile_regs_commit.. comes out of turn: .*nobody holds them"),
        ([tile_regs_acquire, tile_regs_wait], "tile_regs_wait.. comes out of turn: .*call tile_regs_commit"),
        ([lambda: fill_tile(0, 1.0)], "fill_tile.. writes tile registers, and nobody holds them"),
        (
            [tile_regs_acquire, lambda: pack_tile(0, 16)],
            "pack_tile.. packs tile registers, and math holds them",
        ),
        ([acquire_dst, tile_regs_release], "tile_regs_release.. comes out of turn: .*call release_dst"),
    ],
)
def test_the_registers_change_hands_in_turn(chip, calls, message):
    def compute():
        cb_reserve_back(16, 1)
        for call in calls:
            call()

    with pytest.raises(ttnn.MeshError, match=message):
        run(chip, program_of(compute=compute, cbs=[16]))


def test_the_older_way_gives_the_registers_to_math_and_packer_at_once(chip):
    def compute():
        kernels.init_sfpu(16, 16)
        cb_reserve_back(16, 1)
        acquire_dst()
        fill_tile(0, 1.0)
        pack_tile(0, 16)
        release_dst()

    run(chip, program_of(compute=compute, cbs=[16]))


def test_a_tile_that_was_not_waited_for_is_not_read(chip):
    def compute():
        tile_regs_acquire()
        copy_tile(0, 0, 0)

    message = r"copy_tile: page 0 of circular buffer 0 is not in the window of 0 pages"
    with pytest.raises(ttnn.MeshError, match=message):
        run(chip, program_of(compute=compute, cbs=[0]))


def test_a_tile_without_a_reserved_page_is_not_packed(chip):
    def compute():
        kernels.init_sfpu(16, 16)
        acquire_dst()
        fill_tile(0, 1.0)
        pack_tile(0, 16)

    message = r"page 0 of circular buffer 16 is not in the window of 0 pages .*reserved"
    with pytest.raises(ttnn.MeshError, match=message):
        run(chip, program_of(compute=compute, cbs=[16]))


def test_tiles_of_another_shape_compute_as_well(chip):
    half = ttnn.Tile((16, 32))
    values = torch.randn(1, 1, 16, 32)
    tensor = ttnn.from_torch(values, dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=chip, tile=half)
    other = ttnn.from_torch(torch.randn(1, 1, 32, 32), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=chip)
    output = ttnn.from_torch(
        torch.zeros(1, 1, 16, 32), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=chip, tile=half
    )
    program = metal.CreateProgram()

    def reader():
        for index, (address, size) in enumerate(((tensor, 2048), (other, 4096))):
            cb_reserve_back(index, 1)
            source = kernels.InterleavedAddrGen(address.buffer_address(), size)
            kernels.noc_async_read_tile(0, source, get_write_ptr(index))
            noc_async_read_barrier()
            cb_push_back(index, 1)

    def compute():
        mm_init(0, 1, 16)
        for index in (0, 1):
            cb_wait_front(index, 1)
        cb_reserve_back(16, 1)
        acquire_dst()
        matmul_tiles(0, 1, 0, 0, 0)
        pack_tile(0, 16)
        release_dst()
        cb_push_back(16, 1)

    def writer():
        cb_wait_front(16, 1)
        target = kernels.InterleavedAddrGen(output.buffer_address(), 2048)
        kernels.noc_async_write_tile(0, target, kernels.get_read_ptr(16))
        kernels.noc_async_write_barrier()

    metal.CreateKernel(program, reader, CORE, metal.ReaderDataMovementConfig())
    metal.CreateKernel(program, writer, CORE, metal.WriterDataMovementConfig())
    metal.CreateKernel(program, compute, CORE, metal.ComputeConfig())
    for index, tile in ((0, half), (1, ttnn.Tile((32, 32))), (16, half)):
        size = tile.get_tile_size(ttnn.float32)
        config = metal.CircularBufferConfig(size, {index: ttnn.float32}).set_page_size(index, size)
        metal.CreateCircularBuffer(program, CORE, config.set_tile_dims(index, tile))
    run(chip, program)
    torch.testing.assert_close(ttnn.to_torch(output), values @ ttnn.to_torch(other), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("math", "init"),
    [
        (lambda: add_tiles(0, 0, 0, 0, 0), lambda: add_init(0, 0)),
        (lambda: matmul_tiles(0, 0, 0, 0, 0), lambda: mm_init(0, 0, 16)),
        (lambda: copy_tile(0, 0, 0), lambda: copy_tile_init(0)),
        (lambda: transpose_tile(0, 0, 0), lambda: transpose_init(0)),
        (lambda: reduce_tile(0, 0, 0, 0, 0), lambda: reduce_init(0, 0, 16)),
        (lambda: add_tiles_bcast(0, 0, 0, 0, 0), lambda: init_bcast(0, 0, 16)),
    ],
    ids=["add", "matmul", "copy", "transpose", "reduce", "bcast"],
)
def test_strict_mode_misses_a_forgotten_init(chip, math, init):
    a = random_tiles(chip)

    def with_init():
        init()
        math()

    result_of(chip, with_init, [a], strict=True)

    def with_another():
        init()
        mul_reuse_dest_init(0)
        math()

    with pytest.raises(ttnn.MeshError, match=r"the matrix engine is set up for reuse_dest mul\. Call the init of"):
        result_of(chip, with_another, [a], strict=True)


def test_strict_mode_misses_the_init_of_the_vector_unit_and_a_register_that_nobody_filled(chip):
    def forgets():
        fill_tile(0, 1.0)
        exp_tile(0)

    a = random_tiles(chip)
    with pytest.raises(ttnn.MeshError, match=r"the vector unit is set up for nothing. Call exp_tile_init\(\) before"):
        result_of(chip, forgets, [a], strict=True)

    def empty():
        exp_tile_init()
        exp_tile(0)

    with pytest.raises(ttnn.MeshError, match="exp_tile: nothing has been put into tile register 0"):
        result_of(chip, empty, [a], strict=True)
    with pytest.warns(ttnn.SoftmeshWarning, match="exp_tile: nothing has been put into tile register 0"):
        assert torch.equal(result_of(chip, empty, [a]), torch.ones(1, 1, 32, 32))


def test_computing_belongs_into_compute_kernels(chip):
    message = r"tile_regs_acquire\(\) computes on tiles: it belongs into a kernel with a C"
    with pytest.raises(ttnn.MeshError, match=message):
        run(chip, program_of(reader=tile_regs_acquire))
    run(chip, program_of(compute=lambda: binary_op_init_common(0, 1, 16)))


def test_a_register_keeps_its_tile_when_the_page_it_came_from_is_filled_again(device):
    """One page of float32: the second tile comes to where the first one was unpacked from."""
    values = torch.randn(1, 1, 32, 64)
    source, target = (tiles(device, each, ttnn.float32) for each in (values, torch.zeros_like(values)))

    def reader():
        for page in range(2):
            cb_reserve_back(0, 1)
            noc_async_read_tile(page, InterleavedAddrGen(source.buffer_address(), 4096), get_write_ptr(0))
            noc_async_read_barrier()
            cb_push_back(0, 1)

    def compute():
        kernels.unary_op_init_common(0, 16)
        cb_reserve_back(16, 2)
        tile_regs_acquire()
        for register in range(2):
            cb_wait_front(0, 1)
            copy_tile(0, 0, register)
            cb_pop_front(0, 1)
        tile_regs_commit()
        tile_regs_wait()
        pack_tile_block(0, 16, 2)
        tile_regs_release()
        cb_push_back(16, 2)

    def writer():
        cb_wait_front(16, 2)
        for page in range(2):
            place = InterleavedAddrGen(target.buffer_address(), 4096)
            noc_async_write_tile(page, place, get_read_ptr(16) + 4096 * page)
        noc_async_write_barrier()

    program = program_of(reader=reader, compute=compute, writer=writer)
    for index, pages in ((0, 1), (16, 2)):
        add_cb(program, index, pages, page_size=4096, dtype=ttnn.float32)
    run(device, program)
    assert torch.equal(ttnn.to_torch(target), values)
