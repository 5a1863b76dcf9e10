"""Rows of ops on one chip beside products: their kind is in the name, and their work in the extents of the operands.

An op whose row says no extents is expressed by its kind alone, with the time that such ops take in models.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from softmesh.cost.laws.elements import SORTING, STEP
from softmesh.cost.laws.movements import GATHERED_ROWS
from softmesh.cost.op_words import OpKind, kind_of
from softmesh.cost.row_texts import RowTexts, Unexpressed, cores_in, operands_in
from softmesh.cost.workloads import (
    TILE,
    TILE_BYTES,
    Chain,
    Elements,
    Movement,
    TypicalOp,
    attention,
    cores_of,
    tiles_of,
)
from softmesh.dispatch.operation import OPERATIONS
from softmesh.hardware.enums import DataType, Layout
from softmesh.systems.chip import Chip
from softmesh.tensor.spec import make_spec

_SAME_KINDS = {"binaryng": "binary", "embedding": "embeddings", "rmsnorm": "layernorm"}  # names of one op
_SELECTION_STEPS = 0.2  # of exp, for an element that is compared with the largest so far
_ELEMENT = make_spec((1,), DataType.BFLOAT16, Layout.ROW_MAJOR)
_SORTING_STEPS = 4.0  # where thousands are kept, in order
_VARIED_RESULTS = "ttnn-op-runtime-predictor"  # a source whose sweeps vary where results lie
_PREFILL = ("prefill", "cross attention", "encoder", "chunk", "vision")
_DECODE = ("decode", "batch")


def typical(row: RowTexts, chip: Chip, op: str) -> TypicalOp | None:
    """Of a model whose row says no shapes; of what is no model, where the name tells a kind."""
    kind = kind_of(op)
    phase = _phase(row, op)
    if kind is None:
        raise Unexpressed("no op of this name is known, so it has no price")
    if not row.is_of_a_model() and phase is None and kind in (OpKind.PRODUCT, OpKind.COLLECTIVE):
        return None
    of_several = "block" if "sum" in row.unit.lower().split() else ""  # not one op, but those of a part of a model
    return TypicalOp(_SAME_KINDS.get(op, op), chip, (phase or "decode") + of_several)


def _phase(row: RowTexts, op: str) -> str | None:
    text = f"{row.shapes} {row.config} {row.op}".lower()
    if any(word in text for word in _PREFILL):
        return "prefill"
    return "decode" if any(word in text for word in _DECODE) else None


def by_extents(row: RowTexts, chip: Chip, op: str) -> Elements | Movement | Chain | None:
    """None where the row tells none, or no kind of op."""
    kind = OpKind.ELEMENTS if "element-wise" in row.op.lower() else kind_of(op)
    make = _MAKERS.get(kind) if kind is not None else None
    found = operands_in(row.shapes)
    if make is None or not found:
        return None
    # Trailing zeros stand for dims that there are not.
    return make(row, chip, op, [_there(extents) for extents in found])


def _there(extents: Sequence[int]) -> list[int]:
    there = [extent for extent in extents if extent]
    if not there:
        raise Unexpressed("an empty shape")
    return there


def _tiles(extents: Sequence[int]) -> int:
    return math.prod(extents[:-2]) * tiles_of(extents[-2] if len(extents) > 1 else 1, extents[-1])


def _cores(row: RowTexts, chip: Chip) -> int:
    cores = cores_in(row.text())
    if cores == 0:
        raise Unexpressed("no core takes part")
    return cores or cores_of(chip)


def _elements(row: RowTexts, chip: Chip, op: str, operands: Sequence[Sequence[int]]) -> Elements:
    tiles = max(map(_tiles, operands))
    dtype = row.dtype()
    moved = tiles * TILE_BYTES[dtype]
    read = sum(map(_tiles, operands)) * TILE_BYTES[dtype] if len(operands) > 1 else moved * _operand_count(op)
    return Elements(op, chip, tiles, dtype, read, moved, row.is_in_l1(), _cores(row, chip), _steps(op), _moves(row))


def _moves(row: RowTexts) -> float:
    """Share of a row's runs whose result lay in the other memory.

    A published sweep ran each configuration with its result in DRAM and in L1, twice each, and kept what fitted: of
    only two runs both wrote to DRAM.
    """
    if _VARIED_RESULTS not in row.source:
        return 0.0
    return 0.5 if row.run_count() > 2 else float(row.is_in_l1())


def _operand_count(op: str) -> int:
    return 2 if op.startswith(("binary", "add", "mul", "sub", "div", "maximum", "minimum", "eq", "lt", "gt")) else 1


def _steps(op: str) -> float:
    """Of the vector unit, as far as the name tells."""
    known = OPERATIONS.get(op)
    if known is not None:
        return max(known.definition.cost([_ELEMENT], [_ELEMENT]).flops, 1) * STEP
    if "norm" in op:
        return 6 * STEP
    return 3 * STEP if op.startswith(("rotary", "rope")) else STEP


def _selection(row: RowTexts, chip: Chip, op: str, operands: Sequence[Sequence[int]]) -> Elements:
    """A core takes a row of tiles."""
    extents = operands[0]
    rows = math.prod(extents[:-2]) * -(-(extents[-2] if len(extents) > 1 else 1) // TILE)
    work = _elements(row, chip, op, operands[:1])
    return work._replace(cores=min(rows, work.cores), steps=_SELECTION_STEPS, written=TILE_BYTES[work.dtype])


def large_selection(row: RowTexts, chip: Chip, op: str) -> Elements | None:
    """The largest thousands of long rows: `rows 640 n 51200 k 1536`, of which `valid 40000` count."""
    found = re.search(r"rows\s*(\d+)\D+?n\s*(\d+)", row.shapes.lower())
    if kind_of(op) is not OpKind.SELECTION or found is None:
        return None
    valid = re.search(r"valid\s*(\d+)", row.shapes.lower())
    rows, long = int(found[1]), int((valid or found)[1 if valid else 2])
    tiles = rows * -(-long // (TILE * TILE))
    if not tiles:
        raise Unexpressed("an empty shape")
    size = TILE_BYTES[row.dtype()]
    cores = min(rows, cores_of(chip))
    each = -(-rows // cores) * (tiles // rows) * cores  # a core takes whole rows
    return Elements(SORTING, chip, each, row.dtype(), tiles * size, rows * size, row.is_in_l1(), cores, _SORTING_STEPS)


def _movement(row: RowTexts, chip: Chip, op: str, operands: Sequence[Sequence[int]]) -> Movement:
    dtype = row.dtype()
    tile = TILE_BYTES[dtype]
    read, written = _tiles(operands[0]) * tile, _tiles(operands[-1]) * tile
    is_by_row = any(word in f"{op} {row.memory.lower()}" for word in ("tilize", "row_major", "row major", "embedding"))
    page = max(operands[0][-1] * tile // (TILE * TILE), 32) if is_by_row else tile
    return Movement(op, chip, read, written, row.is_in_l1(), -(-max(read, written) // page), _cores(row, chip))


def _attention(row: RowTexts, chip: Chip, op: str, operands: Sequence[Sequence[int]]) -> Chain | None:
    """Of queries [batch, heads, length, dim] and keys of another length; decode has users where prefill has rows."""
    query, keys = operands[0], operands[1] if len(operands) > 1 else operands[0]
    if len(query) < 3 or len(keys) < 2 or (len(operands) == 1 and "decode" in op):
        return None
    tile = TILE_BYTES[row.dtype()]
    length = keys[-2]
    if "decode" in op:  # queries are [1, users, heads, dim]: the heads of a user share its keys
        return attention(chip, query[-3], -(-query[-2] // TILE), query[-1], length, tile, tile, False)
    is_causal = "causal" in row.text() and "non-causal" not in row.text()
    return attention(
        chip,
        math.prod(query[:-2]),
        -(-query[-2] // TILE),
        query[-1],
        length,
        tile,
        tile,
        is_causal or "is_causal" in op,
    )


_SPARSE_SHARES = (("dense", 1.0), ("half", 0.5), ("sparse", 0.125))  # of the keys that a query may choose


def sparse_attention(row: RowTexts, chip: Chip, op: str) -> Movement | None:
    """Each query reads keys of its own choice from DRAM: `Q[32,640,576] KV[56320,576] topk 2048 ... mask half`."""
    found = operands_in(row.shapes)
    chosen = re.search(r"topk\s*(\d+)", row.shapes.lower())
    if not op.startswith("sparsesdpa") or len(found) < 2 or chosen is None or len(found[0]) < 2:
        return None
    queries, dim, keys = found[0][-2], found[1][-1], int(chosen[1])
    mask = row.shapes.lower().partition("mask")[2]
    share = next((share for word, share in _SPARSE_SHARES if word in mask), 1.0)
    if "causal" in mask:
        share = min((queries + 1) / 2 / max(keys, 1), 1.0)
    size = int(queries * keys * share) * dim * TILE_BYTES[row.dtype()] // (TILE * TILE)
    return Movement(GATHERED_ROWS, chip, size, math.prod(found[0]) * 2, False, queries * keys, cores_of(chip))


def _pool(row: RowTexts, chip: Chip, op: str, operands: Sequence[Sequence[int]]) -> Elements:
    """A window's elements for each of the result."""
    window = re.search(r"\bk(?:ernel)?\D{0,8}(\d+)(?:\s*[x,]\s*(\d+))?", row.text())
    many = int(window[1]) * int(window[2] or window[1]) if window and "pool" in op else 1
    return _elements(row, chip, op, operands)._replace(steps=STEP * max(many, 1))


_MAKERS: dict[OpKind, Callable[[RowTexts, Chip, str, Sequence[Sequence[int]]], Elements | Movement | Chain | None]] = {
    OpKind.ELEMENTS: _elements,
    OpKind.NORM: _elements,
    OpKind.REDUCTION: _pool,
    OpKind.SELECTION: _selection,
    OpKind.MOVEMENT: _movement,
    OpKind.ATTENTION: _attention,
}
