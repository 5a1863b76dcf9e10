"""Kernels: what matrix engine, vector unit, unpacker and packer are set up for."""

from catalogue import Told, mistake, right
from kernel_launches import fill, launched, pages_of, tiles

import softmesh as ttnn
from softmesh.kernels import (
    BroadcastType,
    EltwiseBinaryType,
    PoolType,
    ReduceDim,
    add_init,
    add_tiles,
    binary_op_init_common,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    compute_kernel_hw_startup,
    copy_tile,
    copy_tile_init,
    copy_tile_to_dst_init_short,
    exp_tile,
    exp_tile_init,
    fill_tile,
    generate_reduce_scaler,
    get_read_ptr,
    get_write_ptr,
    init_bcast,
    init_sfpu,
    matmul_block,
    matmul_init,
    matmul_tiles,
    mm_block_init,
    mm_init,
    mm_init_short,
    mul_bcast_rows_init_short,
    mul_init,
    mul_tiles,
    mul_tiles_bcast,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    pack_reconfig_data_format,
    pack_tile,
    recip_tile,
    recip_tile_init,
    reconfig_data_format,
    reconfig_data_format_srca,
    reduce_init,
    reduce_tile,
    sub_tiles_bcast_rows,
    tile_regs_acquire,
    tile_regs_commit,
    tile_regs_release,
    tile_regs_wait,
)

A, B, KEPT, OUT = 0, 1, 24, 16


def computed(mesh, start, math, *, end=None, kept=ttnn.bfloat16, second=ttnn.bfloat16):
    """Two tiles of one tensor, and of another, through `math(...)` into a third; `end` works on what lies in KEPT."""
    a, b, out = tiles(mesh), ttnn.typecast(tiles(mesh, 2.0), second), tiles(mesh, 0.0)
    formats = {A: ttnn.bfloat16, B: second, KEPT: kept, OUT: ttnn.bfloat16}
    sizes = {index: ttnn.tile_size(dtype) for index, dtype in formats.items()}

    def reader():
        for page in range(2):
            for index, tensor in ((A, a), (B, b)):
                cb_reserve_back(index, 1)
                noc_async_read_tile(page, pages_of(tensor, sizes[index]), get_write_ptr(index))
                noc_async_read_barrier()
                cb_push_back(index, 1)

    def step(work, *, to):
        tile_regs_acquire()
        work()
        tile_regs_commit()
        cb_reserve_back(to, 1)
        tile_regs_wait()
        if to == OUT and end is not None:
            pack_reconfig_data_format(OUT)
        pack_tile(0, to)
        tile_regs_release()
        cb_push_back(to, 1)

    def compute():
        start()
        for _ in range(2):
            cb_wait_front(A, 1)
            cb_wait_front(B, 1)
            step(math, to=OUT if end is None else KEPT)
            cb_pop_front(A, 1)
            cb_pop_front(B, 1)
            if end is not None:
                cb_wait_front(KEPT, 1)
                step(end, to=OUT)
                cb_pop_front(KEPT, 1)

    def writer():
        for page in range(2):
            cb_wait_front(OUT, 1)
            noc_async_write_tile(page, pages_of(out), get_read_ptr(OUT))
            noc_async_write_barrier()
            cb_pop_front(OUT, 1)

    launched(mesh, reader, writer, compute, indexes=formats)


# -- ops and their inits -----------------------------------------------------------------------------


@mistake(
    Told.WARNING,
    "add_tiles: the matrix engine is set up for nothing",
    "add_init(icb0, icb1)",
    symptom="The sums are nonsense, or those of the op that ran before on this core.",
    mend="Call add_init(a, b) behind binary_op_init_common.",
)
def the_init_of_an_op_is_forgotten(mesh):
    computed(mesh, lambda: binary_op_init_common(A, B, OUT), lambda: add_tiles(A, B, 0, 0, 0))


@mistake(
    Told.WARNING,
    "mul_tiles: the matrix engine is set up for add",
    "mul_init(icb0, icb1)",
    symptom="The result is a sum where a product was meant.",
    mend="Call the init of the op that follows, each time that it changes.",
)
def the_init_of_another_op_is_called(mesh):
    def start():
        binary_op_init_common(A, B, OUT)
        add_init(A, B)

    computed(mesh, start, lambda: mul_tiles(A, B, 0, 0, 0))


@mistake(
    Told.WARNING,
    "matmul_tiles: the matrix engine is set up for copy",
    "matmul_init(in0_cb, in1_cb)",
    symptom="The first block is right, and all later ones are nonsense.",
    mend="Call mm_init_short or matmul_init again once something else was computed in between.",
)
def a_product_goes_on_after_another_op(mesh):
    def math():
        copy_tile_to_dst_init_short(A)
        copy_tile(A, 0, 0)
        matmul_tiles(A, B, 0, 0, 0)

    computed(mesh, lambda: mm_init(A, B, OUT), math)


@right
def a_product_is_set_up_again_after_another_op(mesh):
    def math():
        copy_tile_to_dst_init_short(A)
        copy_tile(A, 0, 0)
        mm_init_short(A, B)
        matmul_tiles(A, B, 0, 0, 0)

    computed(mesh, lambda: mm_init(A, B, OUT), math)


@right
def ops_change_with_their_inits(mesh):
    def math():
        add_init(A, B)
        add_tiles(A, B, 0, 0, 0)
        mul_init(A, B)
        mul_tiles(A, B, 0, 0, 1)

    computed(mesh, lambda: compute_kernel_hw_startup(A, B, OUT), math)


def product_of_blocks(mesh, *dims):
    computed(
        mesh,
        lambda: mm_block_init(A, B, OUT, False, *dims),
        lambda: matmul_block(A, B, 0, 0, 0, False, 1, 1, 1),
    )


@mistake(
    Told.WARNING,
    "matmul_block: the matrix engine is set up for matmul 2 1 1",
    symptom="Tiles of the product are nonsense, or the core hangs.",
    mend="Give mm_block_init and matmul_block the same dims.",
)
def a_product_of_blocks_has_the_init_of_other_dims(mesh):
    product_of_blocks(mesh, 2, 1, 1)


@right
def a_product_of_blocks_has_its_init(mesh):
    product_of_blocks(mesh, 1, 1, 1)


@mistake(
    Told.STRICT,
    "unpackers and packer were not set up",
    "compute_kernel_hw_startup",
    symptom="The results are those of the formats that the program before has left, or the core hangs.",
    mend="Call compute_kernel_hw_startup(a, b, out) first.",
)
def a_compute_kernel_begins_without_startup(mesh):
    computed(mesh, lambda: matmul_init(A, B), lambda: matmul_tiles(A, B, 0, 0, 0))


@mistake(
    Told.WARNING,
    "sub_tiles_bcast: the matrix engine is set up for bcast mul ROW",
    symptom="The rows are multiplied where they should be taken off.",
    mend="Call the init of this op and this broadcast.",
)
def a_broadcast_has_the_init_of_another_op(mesh):
    def start():
        binary_op_init_common(A, B, OUT)
        mul_bcast_rows_init_short(A, B)

    computed(mesh, start, lambda: sub_tiles_bcast_rows(A, B, 0, 0, 0))


@mistake(
    Told.WARNING,
    "mul_tiles_bcast: the matrix engine is set up for bcast mul ROW",
    symptom="The first row is used where the first column was meant.",
    mend="Give init and op the same broadcast.",
)
def a_broadcast_has_the_init_of_another_dim(mesh):
    init = init_bcast[EltwiseBinaryType.ELWMUL, BroadcastType.ROW]
    computed(mesh, lambda: init(A, B, OUT), lambda: mul_tiles_bcast[BroadcastType.COL](A, B, 0, 0, 0))


@right
def a_broadcast_has_its_init(mesh):
    init = init_bcast[EltwiseBinaryType.ELWMUL, BroadcastType.COL]
    computed(mesh, lambda: init(A, B, OUT), lambda: mul_tiles_bcast[BroadcastType.COL](A, B, 0, 0, 0))


@mistake(
    Told.WARNING,
    "reduce_tile: the matrix engine is set up for reduce SUM REDUCE_COL",
    symptom="Columns are summed where rows were meant.",
    mend="Give reduce_init and reduce_tile the same words in brackets.",
)
def a_reduction_has_the_init_of_another_dim(mesh):
    init, reduce = reduce_init[PoolType.SUM, ReduceDim.REDUCE_COL], reduce_tile[PoolType.SUM, ReduceDim.REDUCE_ROW]

    def start():
        compute_kernel_hw_startup(A, B, OUT)
        init(A, B, OUT)

    computed(mesh, start, lambda: reduce(A, B, 0, 0, 0))


@right
def a_reduction_has_its_init(mesh):
    init, reduce = reduce_init[PoolType.SUM, ReduceDim.REDUCE_ROW], reduce_tile[PoolType.SUM, ReduceDim.REDUCE_ROW]

    def start():
        compute_kernel_hw_startup(A, B, OUT)
        init(A, B, OUT)

    computed(mesh, start, lambda: reduce(A, B, 0, 0, 0))


def averaged(mesh, scaler):
    out = tiles(mesh, 0.0)

    def reader():
        fill(A)
        generate_reduce_scaler(B, scaler)

    def compute():
        compute_kernel_hw_startup(A, B, OUT)
        reduce_init[PoolType.SUM, ReduceDim.REDUCE_ROW](A, B, OUT)
        cb_wait_front(B, 1)
        cb_wait_front(A, 1)
        tile_regs_acquire()
        reduce_tile[PoolType.SUM, ReduceDim.REDUCE_ROW](A, B, 0, 0, 0)
        tile_regs_commit()
        cb_pop_front(A, 1)
        cb_reserve_back(OUT, 1)
        tile_regs_wait()
        pack_tile(0, OUT)
        tile_regs_release()
        cb_push_back(OUT, 1)

    def writer():
        cb_wait_front(OUT, 1)
        noc_async_write_tile(0, pages_of(out), get_read_ptr(OUT))
        noc_async_write_barrier()
        cb_pop_front(OUT, 1)

    launched(mesh, reader, writer, compute, indexes=(A, B, OUT))


@mistake(
    Told.WARNING,
    "generate_reduce_scaler(1, 0x3d00)",
    "packed twice into a word",
    symptom="All sums are zero.",
    mend="Pack the bfloat16 twice: 0x3D003D00 for 1/32.",
)
def the_scaler_of_a_reduction_is_packed_once(mesh):
    averaged(mesh, 0x3D00)


@right
def the_scaler_of_a_reduction_is_packed_twice(mesh):
    averaged(mesh, 0x3D003D00)


# -- the vector unit ---------------------------------------------------------------------------------


def exponential():
    copy_tile(A, 0, 0)
    exp_tile(0)


@mistake(
    Told.WARNING,
    "exp_tile: the vector unit is set up for nothing",
    "exp_tile_init()",
    symptom="The values are nonsense: the constants of the function are not loaded.",
    mend="Call exp_tile_init() before.",
)
def the_init_of_a_function_is_forgotten(mesh):
    computed(mesh, lambda: init_sfpu(A, OUT), exponential)


@mistake(
    Told.WARNING,
    "recip_tile: the vector unit is set up for exp_tile",
    "recip_tile_init()",
    symptom="One of two functions in a row computes with the constants of the other.",
    mend="Call the init of a function right before it.",
)
def two_functions_share_an_init(mesh):
    def start():
        init_sfpu(A, OUT)
        exp_tile_init()

    def math():
        exponential()
        recip_tile(0)

    computed(mesh, start, math)


@right
def each_function_has_its_init(mesh):
    def math():
        copy_tile(A, 0, 0)
        exp_tile_init()
        exp_tile(0)
        recip_tile_init()
        recip_tile(0)

    computed(mesh, lambda: init_sfpu(A, OUT), math)


# -- registers ---------------------------------------------------------------------------------------


@mistake(
    Told.WARNING,
    "pack_tile: nothing has been put into tile register 0",
    symptom="The output is zero, or what the register held before.",
    mend="Pack the register that the op has filled.",
)
def another_register_is_packed_than_was_filled(mesh):
    computed(mesh, lambda: init_sfpu(A, OUT), lambda: copy_tile(A, 0, 1))


@right
def a_constant_is_packed(mesh):
    computed(mesh, lambda: init_sfpu(A, OUT), lambda: fill_tile(0, 0.5))


# -- formats -----------------------------------------------------------------------------------------


def added():
    add_init(A, B)
    add_tiles(A, B, 0, 0, 0)


def kept_copied():
    reconfig_data_format_srca(KEPT)
    copy_tile_init(KEPT)
    copy_tile(KEPT, 0, 0)


@mistake(
    Told.WARNING,
    "circular buffer 24 holds DataType.BFLOAT8_B",
    "pack_reconfig_data_format(24)",
    symptom="The next op reads nonsense: the packer writes another format than the circular buffer has.",
    mend="Call pack_reconfig_data_format(cb) when the output changes to a circular buffer of another format.",
)
def the_packer_keeps_the_format_of_another_circular_buffer(mesh):
    def math():
        reconfig_data_format_srca(A)
        added()

    computed(mesh, lambda: compute_kernel_hw_startup(A, B, OUT), math, end=kept_copied, kept=ttnn.bfloat8_b)


@mistake(
    Told.WARNING,
    "circular buffer 24 holds DataType.BFLOAT8_B",
    "reconfig_data_format_srca(24)",
    symptom="The values that were kept in between come back as other numbers.",
    mend="Call reconfig_data_format_srca(cb) when the input changes to a circular buffer of another format.",
)
def the_unpacker_keeps_the_format_of_another_circular_buffer(mesh):
    def math():
        added()
        pack_reconfig_data_format(KEPT)

    def end():
        copy_tile_init(KEPT)
        copy_tile(KEPT, 0, 0)

    computed(mesh, lambda: compute_kernel_hw_startup(A, B, OUT), math, end=end, kept=ttnn.bfloat8_b)


@right
def formats_are_set_up_as_circular_buffers_change(mesh):
    def math():
        reconfig_data_format(A, B)
        pack_reconfig_data_format(KEPT)
        added()

    computed(mesh, lambda: compute_kernel_hw_startup(A, B, OUT), math, end=kept_copied, kept=ttnn.bfloat8_b)


@mistake(
    Told.WARNING,
    "circular buffer 1 holds DataType.BFLOAT8_B",
    "reconfig_data_format_srcb(1)",
    symptom="The second operand is read as other numbers.",
    mend="Name the circular buffers of the op in compute_kernel_hw_startup.",
)
def startup_names_one_input_twice(mesh):
    computed(mesh, lambda: compute_kernel_hw_startup(A, A, OUT), added, second=ttnn.bfloat8_b)


@right
def inputs_have_formats_of_their_own(mesh):
    computed(mesh, lambda: mm_init(A, B, OUT), lambda: matmul_tiles(A, B, 0, 0, 0), second=ttnn.bfloat8_b)
