"""Matrix engine calls on tiles: element-wise binary ops with broadcast, matrix products, and reductions.

Computed in float32 whatever the math fidelity; results are rounded when they are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache

import torch

from softmesh.errors import MeshError
from softmesh.kernels.calls.circular_buffers import cb_push_back, cb_reserve_back, fifo_of
from softmesh.kernels.calls.engine_init import check_set_up
from softmesh.kernels.calls.kernel_arguments import Templated, templated
from softmesh.kernels.calls.tile_registers import in_register, unpacked
from softmesh.kernels.data_formats import faces, matrix, pack
from softmesh.kernels.engine.scheduler import KernelThread, compute_kernel, here
from softmesh.tensor.tile import Tile


def operand(thread: KernelThread, call: str, cb_id: int, index: int) -> tuple[torch.Tensor, Tile]:
    values, tile = unpacked(thread, call, cb_id, index)
    if not values.is_floating_point():
        raise MeshError(
            f"{call}: circular buffer {int(cb_id)} holds integers, and the matrix engine computes floats: copy_tile "
            "and the integer ops of the vector unit (add_int_tile, ...) take them."
        )
    return values, tile


def operand_matrix(thread: KernelThread, call: str, cb_id: int, index: int) -> torch.Tensor:
    return matrix(*operand(thread, call, cb_id, index))


Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class BroadcastType(Enum):
    """Which part of the second tile is used for all: its first column, its first row, its first value."""

    NONE = 0
    COL = 1
    ROW = 2
    SCALAR = 3


class EltwiseBinaryType(Enum):
    """Which element-wise op an init is for: `init_bcast[EltwiseBinaryType.ELWADD, BroadcastType.ROW](...)`."""

    ELWMUL = 0
    ELWDIV = 1
    ELWADD = 2
    ELWSUB = 3


class EltwiseBinaryReuseDestType(Enum):
    """On which side of the op the register stands."""

    DEST_TO_SRCA = 1
    DEST_TO_SRCB = 2


def _binary(call: str, op: str, apply: Binary, cbs: Sequence[int], tiles: Sequence[int], idst: int, acc: bool) -> None:
    thread = compute_kernel(call)
    check_set_up(thread, call, op, cbs)
    (a, tile), (b, _) = (operand(thread, call, cb, i) for cb, i in zip(cbs, tiles, strict=True))
    result = apply(a, b)
    before = thread.registers.get(call, idst) if acc or thread.registers.setup.accumulates else None
    thread.registers.put(call, idst, result if before is None else before + result, tile)


def add_tiles(icb0: int, icb1: int, itile0: int, itile1: int, idst: int, acc_to_dest: bool = False) -> None:
    _binary("add_tiles", "add", torch.add, (icb0, icb1), (itile0, itile1), idst, acc_to_dest)


def sub_tiles(icb0: int, icb1: int, itile0: int, itile1: int, idst: int, acc_to_dest: bool = False) -> None:
    _binary("sub_tiles", "sub", torch.sub, (icb0, icb1), (itile0, itile1), idst, acc_to_dest)


def mul_tiles(icb0: int, icb1: int, itile0: int, itile1: int, idst: int, acc_to_dest: bool = False) -> None:
    _binary("mul_tiles", "mul", torch.mul, (icb0, icb1), (itile0, itile1), idst, acc_to_dest)


_USED = {
    BroadcastType.NONE: (slice(None), slice(None)),
    BroadcastType.COL: (slice(None), slice(1)),
    BroadcastType.ROW: (slice(1), slice(None)),
    BroadcastType.SCALAR: (slice(1), slice(1)),
}


def _bcast(name: str, op: str, apply: Binary) -> Templated[..., None]:
    def call(
        icb0: int,
        icb1: int,
        itile0: int,
        itile1: int,
        idst: int,
        *,
        tBcastDim: BroadcastType = BroadcastType.ROW,
    ) -> None:
        thread = compute_kernel(name)
        check_set_up(thread, name, "bcast", (icb0, icb1), (op, tBcastDim))
        (a, tile), (b, _) = operand(thread, name, icb0, itile0), operand(thread, name, icb1, itile1)
        rows, columns = _USED[tBcastDim]
        used = matrix(b, tile)[..., rows, columns].expand(*b.shape[:-1], tile.height, tile.width)
        thread.registers.put(name, idst, apply(a, faces(used, tile)), tile)

    call.__name__ = call.__qualname__ = name
    return templated(call)


add_tiles_bcast = _bcast("add_tiles_bcast", "add", torch.add)
sub_tiles_bcast = _bcast("sub_tiles_bcast", "sub", torch.sub)
mul_tiles_bcast = _bcast("mul_tiles_bcast", "mul", torch.mul)

add_tiles_bcast_rows = add_tiles_bcast[BroadcastType.ROW]
add_tiles_bcast_cols = add_tiles_bcast[BroadcastType.COL]
add_tiles_bcast_scalar = add_tiles_bcast[BroadcastType.SCALAR]
sub_tiles_bcast_rows = sub_tiles_bcast[BroadcastType.ROW]
sub_tiles_bcast_cols = sub_tiles_bcast[BroadcastType.COL]
sub_tiles_bcast_scalar = sub_tiles_bcast[BroadcastType.SCALAR]
mul_tiles_bcast_rows = mul_tiles_bcast[BroadcastType.ROW]
mul_tiles_bcast_cols = mul_tiles_bcast[BroadcastType.COL]
mul_tiles_bcast_scalar = mul_tiles_bcast[BroadcastType.SCALAR]


def _reuse(name: str, op: str, apply: Binary) -> Templated[..., None]:
    def call(
        icb: int,
        itile: int,
        idst: int,
        *,
        binary_reuse_dest: EltwiseBinaryReuseDestType = EltwiseBinaryReuseDestType.DEST_TO_SRCA,
    ) -> None:
        """Of the register and a tile; the other way round with DEST_TO_SRCB."""
        thread = compute_kernel(name)
        check_set_up(thread, name, "reuse_dest", (icb,), (op, binary_reuse_dest))
        values, tile = operand(thread, name, icb, itile)
        kept = in_register(thread, name, idst)
        is_first = binary_reuse_dest is EltwiseBinaryReuseDestType.DEST_TO_SRCA
        thread.registers.put(name, idst, apply(kept, values) if is_first else apply(values, kept), tile)

    call.__name__ = call.__qualname__ = name
    return templated(call)


add_reuse_dest_tiles = _reuse("add_reuse_dest_tiles", "add", torch.add)
sub_reuse_dest_tiles = _reuse("sub_reuse_dest_tiles", "sub", torch.sub)
mul_reuse_dest_tiles = _reuse("mul_reuse_dest_tiles", "mul", torch.mul)


# Matrix products, which add to what is in the registers.


def matmul_tiles(
    in0_cb_id: int,
    in1_cb_id: int,
    in0_tile_index: int,
    in1_tile_index: int,
    idst: int,
    transpose: bool = False,
) -> None:
    """The product of two tiles, added to what is in the register."""
    thread = compute_kernel("matmul_tiles")
    check_set_up(thread, "matmul_tiles", "matmul", (in0_cb_id, in1_cb_id))
    a = operand_matrix(thread, "matmul_tiles", in0_cb_id, in0_tile_index)
    b = operand_matrix(thread, "matmul_tiles", in1_cb_id, in1_tile_index)
    _accumulate(thread, "matmul_tiles", idst, a @ (b.mT if transpose or thread.registers.setup.transposes else b))


def matmul_block(
    in0_cb_id: int,
    in1_cb_id: int,
    in0_tile_index: int,
    in1_tile_index: int,
    idst: int,
    transpose: bool,
    ct_dim: int,
    rt_dim: int,
    kt_dim: int,
) -> None:
    """One step of a product of blocks: a column of `rt_dim` tiles, `kt_dim` apart, times a row of `ct_dim` tiles.

    Adds to `rt_dim * ct_dim` registers from `idst` on, row by row.
    """
    call = "matmul_block"
    thread = compute_kernel(call)
    check_set_up(thread, call, "matmul", (in0_cb_id, in1_cb_id), (int(ct_dim), int(rt_dim), int(kt_dim)))
    column = [operand_matrix(thread, call, in0_cb_id, in0_tile_index + r * kt_dim) for r in range(rt_dim)]
    row = [operand_matrix(thread, call, in1_cb_id, in1_tile_index + c) for c in range(ct_dim)]
    right = [tile.mT if transpose or thread.registers.setup.transposes else tile for tile in row]
    product = torch.cat(column, dim=-2) @ torch.cat(right, dim=-1)
    for r, band in enumerate(product.split(column[0].shape[-2], dim=-2)):
        for c, part in enumerate(band.split(right[0].shape[-1], dim=-1)):
            _accumulate(thread, call, idst + r * ct_dim + c, part)


def _accumulate(thread: KernelThread, call: str, idst: int, product: torch.Tensor) -> None:
    tile = _tile(*product.shape[-2:])
    values, before = faces(product, tile), thread.registers.get(call, idst)
    thread.registers.put(call, idst, values if before is None else before + values, tile)


@cache
def _tile(height: int, width: int) -> Tile:
    return Tile((height, width))


# Reductions: rows, columns or all of a tile together.


class PoolType(Enum):
    SUM = 0
    AVG = 1
    MAX = 2
    MIN = 3


class ReduceDim(Enum):
    """ROW takes each row together into column 0, COL each column into row 0, SCALAR everything into one value."""

    REDUCE_ROW = 0
    REDUCE_COL = 1
    REDUCE_SCALAR = 2


_ALONG = {
    ReduceDim.REDUCE_ROW: (-1,),
    ReduceDim.REDUCE_COL: (-2,),
    ReduceDim.REDUCE_SCALAR: (-2, -1),
}


@templated
def reduce_tile(
    icb: int,
    icb_scaler: int,
    itile: int,
    itile_scaler: int,
    idst: int,
    *,
    reduce_type: PoolType = PoolType.SUM,
    reduce_dim: ReduceDim = ReduceDim.REDUCE_SCALAR,
) -> None:
    """Rows, columns or all of a tile together, times the scaler, joined with what is in the register.

    The scaler is the first value of its tile: 1 for a sum or an extreme, 1/n for an average.
    """
    thread = compute_kernel("reduce_tile")
    check_set_up(thread, "reduce_tile", "reduce", (icb, icb_scaler), (reduce_type, reduce_dim))
    values, tile = operand(thread, "reduce_tile", icb, itile)
    scaler, _ = operand(thread, "reduce_tile", icb_scaler, itile_scaler)
    result = _pooled(matrix(values, tile), reduce_type, _ALONG[reduce_dim]) * scaler[..., :1, None]
    whole = torch.zeros(*result.shape[:-2], tile.height, tile.width, device=result.device)
    whole[..., : result.shape[-2], : result.shape[-1]] = result
    values, before = faces(whole, tile), thread.registers.get("reduce_tile", idst)
    joined = values if before is None else _JOIN.get(reduce_type, torch.add)(before, values)
    thread.registers.put("reduce_tile", idst, joined, tile)


_JOIN: dict[PoolType, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    PoolType.MAX: torch.maximum,
    PoolType.MIN: torch.minimum,
}


def _pooled(values: torch.Tensor, kind: PoolType, dims: tuple[int, ...]) -> torch.Tensor:
    if kind is PoolType.MAX:
        return values.amax(dims, keepdim=True)
    if kind is PoolType.MIN:
        return values.amin(dims, keepdim=True)
    return values.sum(dims, keepdim=True)


def generate_reduce_scaler(cb_id: int, scaler: int) -> None:
    """Push one tile whose values are the upper half of `scaler`, a bfloat16 packed twice into a word."""
    thread = here("generate_reduce_scaler")
    if scaler >> 16 != scaler & 0xFFFF:
        thread.complain(
            "scaler",
            f"generate_reduce_scaler({int(cb_id)}, {scaler:#x}): the scaler is a bfloat16 packed twice into a word, "
            "and the halves of this one differ: every other value would be another one. For 1.0 it is 0x3F803F80.",
        )
    cb_reserve_back(cb_id, 1)
    fifo = fifo_of(thread, "generate_reduce_scaler", cb_id)
    tile, chip = fifo.format.tile, thread.core.chip
    value = torch.tensor([scaler >> 16], dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    values = value.to(chip.mesh.torch_device).expand(*(1,) * chip.rank, tile.height * tile.width)
    thread.core.write(fifo.write_pointer, pack(values, fifo.format.dtype, tile))
    cb_push_back(cb_id, 1)
