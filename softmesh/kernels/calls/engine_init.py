"""Init calls: set the matrix engine up for an op. Strict mode reports a forgotten init; the chip computes nonsense.

One init serves until the next one. Circular buffers and other arguments are taken and not needed: each op
reads the formats from the circular buffers themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from softmesh.errors import MeshError
from softmesh.kernels.engine.scheduler import KernelThread, compute_kernel

Init = Callable[..., None]
_INITS: list[str] = []  # their names


def _init(name: str, op: str = "") -> Init:
    """A call that sets the matrix engine up for one op, or for none in particular."""

    def call(*args: object, **options: object) -> None:
        registers = compute_kernel(name).registers
        if op:
            registers.matrix_op = op

    call.__name__ = call.__qualname__ = name
    _INITS.append(name)
    return call


def check_set_up(thread: KernelThread, call: str, op: str) -> None:
    if thread.core.chip.is_strict and thread.registers.matrix_op != op:
        now = thread.registers.matrix_op or "nothing"
        raise MeshError(f"{call}: the matrix engine is set up for {now}. Call the init of {op} before.")


compute_kernel_hw_startup = _init("compute_kernel_hw_startup")
binary_op_init_common = _init("binary_op_init_common")
reconfig_data_format = _init("reconfig_data_format")
reconfig_data_format_srca = _init("reconfig_data_format_srca")
reconfig_data_format_srcb = _init("reconfig_data_format_srcb")
pack_reconfig_data_format = _init("pack_reconfig_data_format")
reduce_uninit = _init("reduce_uninit")

add_init = _init("add_init", "add")
sub_init = _init("sub_init", "sub")
mul_init = _init("mul_init", "mul")
add_tiles_init = _init("add_tiles_init", "add")
sub_tiles_init = _init("sub_tiles_init", "sub")
mul_tiles_init = _init("mul_tiles_init", "mul")

matmul_init = _init("matmul_init", "matmul")
mm_init = _init("mm_init", "matmul")
mm_init_short = _init("mm_init_short", "matmul")
matmul_block_init = _init("matmul_block_init", "matmul")
mm_block_init = _init("mm_block_init", "matmul")
mm_block_init_short = _init("mm_block_init_short", "matmul")

reduce_init = _init("reduce_init", "reduce")

copy_tile_init = _init("copy_tile_init", "copy")
copy_tile_to_dst_init_short = _init("copy_tile_to_dst_init_short", "copy")
unary_op_init_common = _init("unary_op_init_common", "copy")
init_sfpu = _init("init_sfpu", "copy")

transpose_init = _init("transpose_init", "transpose")
transpose_wh_init = _init("transpose_wh_init", "transpose")
transpose_wh_init_short = _init("transpose_wh_init_short", "transpose")

init_bcast = _init("init_bcast", "bcast")
add_bcast_rows_init_short = _init("add_bcast_rows_init_short", "bcast")
add_bcast_cols_init_short = _init("add_bcast_cols_init_short", "bcast")
add_bcast_scalar_init_short = _init("add_bcast_scalar_init_short", "bcast")
sub_bcast_rows_init_short = _init("sub_bcast_rows_init_short", "bcast")
sub_bcast_cols_init_short = _init("sub_bcast_cols_init_short", "bcast")
sub_tiles_bcast_scalar_init_short = _init("sub_tiles_bcast_scalar_init_short", "bcast")
mul_bcast_rows_init_short = _init("mul_bcast_rows_init_short", "bcast")
mul_bcast_cols_init_short = _init("mul_bcast_cols_init_short", "bcast")
mul_tiles_bcast_scalar_init_short = _init("mul_tiles_bcast_scalar_init_short", "bcast")

add_reuse_dest_init = _init("add_reuse_dest_init", "reuse_dest")
sub_reuse_dest_init = _init("sub_reuse_dest_init", "reuse_dest")
mul_reuse_dest_init = _init("mul_reuse_dest_init", "reuse_dest")
binary_dest_reuse_tiles_init = _init("binary_dest_reuse_tiles_init", "reuse_dest")

tilize_init = _init("tilize_init", "tilize")
tilize_init_short = _init("tilize_init_short", "tilize")
tilize_uninit = _init("tilize_uninit")
untilize_init = _init("untilize_init", "untilize")
untilize_init_short = _init("untilize_init_short", "untilize")
untilize_uninit = _init("untilize_uninit")
pack_untilize_init = _init("pack_untilize_init", "untilize")
pack_untilize_dest_init = _init("pack_untilize_dest_init")
pack_untilize_uninit = _init("pack_untilize_uninit")

__all__ = list(_INITS)
