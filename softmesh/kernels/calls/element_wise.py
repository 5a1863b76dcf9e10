"""The matrix engine's element-wise ops: on two tiles, on a tile and part of another, on a tile and a register.

Computed in float32 whatever the math fidelity; results are rounded when they are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import torch

from softmesh.kernels.calls.inits import check_set_up
from softmesh.kernels.calls.operands import operand
from softmesh.kernels.calls.template import templated
from softmesh.kernels.calls.tile_registers import in_register
from softmesh.kernels.engine.thread import computer
from softmesh.kernels.engine.tiles import faces, matrix

Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class BroadcastType(Enum):
    """Which part of the second tile is used for all: its first column, its first row, its first value."""

    NONE = 0
    COL = 1
    ROW = 2
    SCALAR = 3


class EltwiseBinaryReuseDestType(Enum):
    """On which side of the op the register stands."""

    DEST_TO_SRCA = 1
    DEST_TO_SRCB = 2


def _binary(
    call: str, op: str, apply: Binary, cbs: Sequence[int], tiles: Sequence[int], idst: int, acc: bool
) -> None:
    thread = computer(call)
    check_set_up(thread, call, op)
    (a, tile), (b, _) = (operand(thread, call, cb, i) for cb, i in zip(cbs, tiles, strict=True))
    result = apply(a, b)
    before = thread.registers.get(call, idst) if acc else None
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


def _bcast(
    call: str, apply: Binary, kind: BroadcastType, icb0: int, icb1: int, itile0: int, itile1: int, idst: int
) -> None:
    thread = computer(call)
    check_set_up(thread, call, "bcast")
    (a, tile), (b, _) = operand(thread, call, icb0, itile0), operand(thread, call, icb1, itile1)
    rows, columns = _USED[kind]
    used = matrix(b, tile)[..., rows, columns].expand(*b.shape[:-1], tile.height, tile.width)
    thread.registers.put(call, idst, apply(a, faces(used, tile)), tile)


@templated
def add_tiles_bcast(
    icb0: int, icb1: int, itile0: int, itile1: int, idst: int, *, tBcastDim: BroadcastType = BroadcastType.ROW
) -> None:
    _bcast("add_tiles_bcast", torch.add, tBcastDim, icb0, icb1, itile0, itile1, idst)


@templated
def sub_tiles_bcast(
    icb0: int, icb1: int, itile0: int, itile1: int, idst: int, *, tBcastDim: BroadcastType = BroadcastType.ROW
) -> None:
    _bcast("sub_tiles_bcast", torch.sub, tBcastDim, icb0, icb1, itile0, itile1, idst)


@templated
def mul_tiles_bcast(
    icb0: int, icb1: int, itile0: int, itile1: int, idst: int, *, tBcastDim: BroadcastType = BroadcastType.ROW
) -> None:
    _bcast("mul_tiles_bcast", torch.mul, tBcastDim, icb0, icb1, itile0, itile1, idst)


add_tiles_bcast_rows = add_tiles_bcast[BroadcastType.ROW]
add_tiles_bcast_cols = add_tiles_bcast[BroadcastType.COL]
add_tiles_bcast_scalar = add_tiles_bcast[BroadcastType.SCALAR]
sub_tiles_bcast_rows = sub_tiles_bcast[BroadcastType.ROW]
sub_tiles_bcast_cols = sub_tiles_bcast[BroadcastType.COL]
sub_tiles_bcast_scalar = sub_tiles_bcast[BroadcastType.SCALAR]
mul_tiles_bcast_rows = mul_tiles_bcast[BroadcastType.ROW]
mul_tiles_bcast_cols = mul_tiles_bcast[BroadcastType.COL]
mul_tiles_bcast_scalar = mul_tiles_bcast[BroadcastType.SCALAR]


def _reuse(
    call: str, apply: Binary, icb: int, itile: int, idst: int, side: EltwiseBinaryReuseDestType
) -> None:
    thread = computer(call)
    check_set_up(thread, call, "reuse_dest")
    values, tile = operand(thread, call, icb, itile)
    kept = in_register(thread, call, idst)
    is_first = side is EltwiseBinaryReuseDestType.DEST_TO_SRCA
    thread.registers.put(call, idst, apply(kept, values) if is_first else apply(values, kept), tile)


@templated
def add_reuse_dest_tiles(
    icb: int,
    itile: int,
    idst: int,
    *,
    binary_reuse_dest: EltwiseBinaryReuseDestType = EltwiseBinaryReuseDestType.DEST_TO_SRCA,
) -> None:
    """The register plus a tile."""
    _reuse("add_reuse_dest_tiles", torch.add, icb, itile, idst, binary_reuse_dest)


@templated
def sub_reuse_dest_tiles(
    icb: int,
    itile: int,
    idst: int,
    *,
    binary_reuse_dest: EltwiseBinaryReuseDestType = EltwiseBinaryReuseDestType.DEST_TO_SRCA,
) -> None:
    """The register minus a tile; the other way round with DEST_TO_SRCB."""
    _reuse("sub_reuse_dest_tiles", torch.sub, icb, itile, idst, binary_reuse_dest)


@templated
def mul_reuse_dest_tiles(
    icb: int,
    itile: int,
    idst: int,
    *,
    binary_reuse_dest: EltwiseBinaryReuseDestType = EltwiseBinaryReuseDestType.DEST_TO_SRCA,
) -> None:
    """The register times a tile."""
    _reuse("mul_reuse_dest_tiles", torch.mul, icb, itile, idst, binary_reuse_dest)
