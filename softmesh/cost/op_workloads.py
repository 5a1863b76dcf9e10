"""From a call of an op to the workload that one device has; None where a device has nothing to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from softmesh.cost.laws.elements import STEP
from softmesh.cost.link_costs import Line
from softmesh.cost.mesh_lines import is_two_dimensional, takes_ring
from softmesh.cost.workloads import (
    TILE,
    TILE_BYTES,
    Chain,
    Dispatch,
    Elements,
    Exchange,
    HostTransfer,
    Movement,
    Product,
    Workload,
    convolution,
    cores_of,
    tiles_of,
)
from softmesh.hardware import MathFidelity
from softmesh.hardware.enums import BufferType, Layout
from softmesh.hardware.memory_config import TensorMemoryLayout
from softmesh.kinds import Kind
from softmesh.systems.chip import Chip
from softmesh.tensor.dtype import FACTS
from softmesh.tensor.spec import TensorSpec

_PHASES = {MathFidelity.LoFi: 1, MathFidelity.HiFi2: 2, MathFidelity.HiFi3: 3, MathFidelity.HiFi4: 4}
NO_WORK = frozenset(
    {Kind.FINISH, Kind.RECORD_EVENT, Kind.SYNCHRONIZE_EVENT, Kind.WAIT_FOR_EVENT, *(one for one in Kind if one.is_note)}
)
MOST_READ = 4  # times what an op writes that takes a part of its operand
_LAWS = {
    Kind.ALL_REDUCE: "all_reduce",
    Kind.REDUCE: "reduce_scatter",
    Kind.REDUCE_SCATTER: "reduce_scatter",
    Kind.ALL_TO_ALL: "all_to_all",
}
_PAIRWISE = (Kind.POINT_TO_POINT, Kind.NEIGHBOURS, Kind.SHIFT)


class OpCall(NamedTuple):
    """A call of an op on one device: the specs of the pieces that it reads and makes, and its arguments.

    `in_place`: all results lie in the memory of the first operand. Collectives ask for the `lines` of the mesh, and
    for one operand at least.
    """

    op: str
    kind: Kind
    operands: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    arguments: Mapping[str, Any]
    flops: int = 0
    in_place: bool = False
    lines: tuple[Line, ...] = ()


def workload_of(call: OpCall, chip: Chip) -> Workload | None:
    """What the call asks of each device."""
    kind = call.kind
    if kind in (Kind.PROGRAM, Kind.REPLAY):
        return _launch(chip)
    if kind in NO_WORK or not (call.operands or call.results):
        return None
    if kind.is_exchange:
        return _exchange(call, chip)
    if kind.is_movement or kind is Kind.HOST_FILL:
        return _movement(call, chip)
    return _MAKERS.get(kind, _elements)(call, chip)


def _launch(chip: Chip) -> Dispatch:
    return Dispatch(chip, runtime_args=16, buffers=8)


def bytes_of(tensor: TensorSpec) -> int:
    """On one device, in whole tiles where it lies in tiles."""
    extents = list(tensor.shape)
    if tensor.layout is Layout.TILE:
        rows = extents[-2] if len(extents) > 1 else 1
        return math.prod(extents[:-2]) * tiles_of(rows, extents[-1] if extents else 1) * TILE_BYTES[dtype_of(tensor)]
    return math.prod(extents) * TILE_BYTES[dtype_of(tensor)] // (TILE * TILE)


def dtype_of(tensor: TensorSpec) -> str:
    name = tensor.dtype.name.lower()
    return name if name in TILE_BYTES else "uint8" if name == "int8" else "bfloat16"


def is_in_l1(tensors: Sequence[TensorSpec]) -> bool:
    return bool(tensors) and all(tensor.memory_config.buffer_type is not BufferType.DRAM for tensor in tensors)


def _cores(tensors: Sequence[TensorSpec], chip: Chip) -> int:
    """Those that hold the shards; all, where nothing is sharded."""
    for tensor in tensors:
        spec = tensor.memory_config.shard_spec
        if spec is not None:
            return min(spec.num_cores(), cores_of(chip))
    return cores_of(chip)


def _tiles(tensors: Sequence[TensorSpec]) -> int:
    def of(tensor: TensorSpec) -> int:
        extents = list(tensor.shape) or [1]
        if tensor.layout is not Layout.TILE:
            return -(-math.prod(extents) // TILE**2)
        return math.prod(extents[:-2]) * tiles_of(extents[-2] if len(extents) > 1 else 1, extents[-1])

    return max((of(tensor) for tensor in tensors), default=0)


def _movement(call: OpCall, chip: Chip) -> Movement | None:
    """Nothing, where nothing is made or another view of the same memory; else what is read and what is written.

    A slice or a lookup reads what it takes; what is written into a part of an operand, as into a cache, writes no more
    than it was given.
    """
    inputs, outputs = call.operands, call.results
    if not outputs:
        return None
    if call.in_place:
        if len(inputs) == 1:
            return None
        inputs = inputs[1:]
        read = written = sum(map(bytes_of, inputs))
    else:
        written = sum(map(bytes_of, outputs))
        read = min(sum(map(bytes_of, inputs)), MOST_READ * written)
    every = (*inputs, *outputs)
    page = min(_page(tensor) for tensor in every if _is_index(tensor) == _is_index(outputs[0]))
    pages = -(-max(read, written) // page)
    return Movement(call.op, chip, read, written, is_in_l1(every), pages, _cores(every, chip))


def _is_index(tensor: TensorSpec) -> bool:
    """True if it holds whole numbers: beside other values, they say which of those move."""
    return not FACTS[tensor.dtype].is_float


def _page(tensor: TensorSpec) -> int:
    """Bytes that lie together: a tile, or a row."""
    extents = list(tensor.shape)
    if tensor.layout is Layout.TILE or not extents:
        return TILE_BYTES[dtype_of(tensor)]
    return max(extents[-1] * TILE_BYTES[dtype_of(tensor)] // (TILE * TILE), 32)


def _elements(call: OpCall, chip: Chip) -> Elements:
    every = (*call.operands, *call.results)
    volume = max((math.prod(tensor.shape) for tensor in every), default=1)
    return Elements(
        call.op.rpartition(".")[2].rstrip("_"),
        chip,
        _tiles(every),
        max((dtype_of(tensor) for tensor in every), key=TILE_BYTES.__getitem__, default="bfloat16"),
        sum(map(bytes_of, call.operands)),
        sum(map(bytes_of, call.results)),
        is_in_l1(every),
        _cores(every, chip),
        max(call.flops / max(volume, 1), 1.0) * STEP,
    )


def phases_of(call: OpCall, dtype: str) -> int:
    config = call.arguments.get("compute_kernel_config")
    fidelity = getattr(config, "math_fidelity", None)
    if fidelity in _PHASES:
        return _PHASES[fidelity]
    return {4096: 4, 2048: 2}.get(TILE_BYTES[dtype], 1)


def _grid(call: OpCall, chip: Chip) -> tuple[tuple[int, int], bool]:
    """Columns and rows of cores, and whether a program config chose them."""
    config = call.arguments.get("program_config")
    size: Any = getattr(config, "compute_with_storage_grid_size", None) or call.arguments.get("core_grid")
    columns, rows = getattr(size, "x", 0), getattr(size, "y", 0)
    return ((columns, rows) if columns and rows else chip.grid()), config is not None


def _product(call: OpCall, chip: Chip) -> Product | Elements:
    if len(call.operands) < 2 or not call.results:
        return _elements(call, chip)
    in0, in1, out = call.operands[0], call.operands[1], call.results[0]
    extents = list(out.shape) or [1]
    rows, columns = (extents[-2] if len(extents) > 1 else 1), extents[-1]
    inner = call.flops // (2 * max(math.prod(extents), 1)) or in0.shape[-1]
    batch = math.prod(extents[:-2])
    count = max(math.prod(list(in1.shape)[:-2]), 1)
    grid, tuned = _grid(call, chip)
    cores = 0
    by_bank = _is_by_bank(in1)
    if by_bank:
        program = call.arguments.get("program_config")
        grid = chip.dram_banks * (getattr(program, "num_workers_per_dram_bank", None) or 1), 1
    config = in0.memory_config
    if config.memory_layout is TensorMemoryLayout.HEIGHT_SHARDED and is_in_l1([in0, out]):
        cores = _cores([in0], chip)
    return Product(
        chip,
        -(-rows // TILE),
        max(-(-int(inner) // TILE), 1),
        -(-columns // TILE),
        TILE_BYTES[dtype_of(in0)],
        TILE_BYTES[dtype_of(in1)],
        TILE_BYTES[dtype_of(out)],
        phases_of(call, dtype_of(in0)),
        grid,
        batch,
        count,
        is_in_l1([in0]),
        is_in_l1([in1]),
        is_in_l1([out]),
        is_tuned=tuned or batch > 1 or is_in_l1([in0]),
        height_cores=cores,
        in1_interleaved=not by_bank and batch * rows <= TILE * count and not is_in_l1([in1]),
        in1_by_bank=by_bank,
    )


def _is_by_bank(weights: TensorSpec) -> bool:
    config = weights.memory_config
    return config.buffer_type is BufferType.DRAM and config.memory_layout is TensorMemoryLayout.WIDTH_SHARDED


def _convolution(call: OpCall, chip: Chip) -> Chain | Elements:
    """One product with one matrix, in whatever form its weights are given: prepared, or as torch has them."""
    made = _product(call, chip)
    if isinstance(made, Elements):
        return made
    return convolution(made._replace(m=made.m * made.batch, batch=1, in1_count=1, height_cores=0, is_tuned=True))


def _attention(call: OpCall, chip: Chip) -> Chain | Elements:
    """Scores, their softmax and the weighted sum of values, held in L1; all keys and values come from DRAM."""
    tensors = [tensor for tensor in call.operands if len(tensor.shape) >= 3]
    work = call.flops // (2 * TILE**3)
    if len(tensors) < 2 or not work:
        return _elements(call, chip)
    query, keys = tensors[0], tensors[1]
    dim = max(-(-query.shape[-1] // TILE), 1)
    if call.arguments.get("is_causal", False) and query.shape[-2] > 1:
        work = max(work // 2, 1)
    scores = max(work // (2 * dim), 1)
    tile, kv_tile = TILE_BYTES[dtype_of(query)], TILE_BYTES[dtype_of(keys)]
    columns = max(-(-keys.shape[-2] // TILE), 1)
    rows = max(scores // columns, 1)
    grid, _ = _grid(call, chip)
    first = Product(
        chip,
        rows,
        dim,
        columns,
        tile,
        kv_tile,
        tile,
        2,
        grid,
        in1_count=max(math.prod(list(keys.shape)[:-2]), 1),
        in0_in_l1=True,
        out_in_l1=True,
        is_tuned=True,
    )
    softmax = Elements("softmax", chip, rows * columns, "bfloat16", 0, 0, True, math.prod(grid), 0.25)
    return Chain("attention", (first, softmax, first._replace(k=columns, n=dim)))


def _exchange(call: OpCall, chip: Chip) -> Workload | None:
    inputs = call.operands or call.results
    lines = call.lines
    axis = call.arguments.get("cluster_axis")
    is_axis = isinstance(axis, int) and 0 <= axis < len(lines)
    chosen = [line for at, line in enumerate(lines) if (at == axis or not is_axis) and line.devices > 1]
    links = call.arguments.get("num_links")
    parts = []
    held = bytes_of(inputs[0])
    op = _LAWS.get(call.kind, "all_gather")
    for line in chosen:
        if call.kind in _PAIRWISE:
            line = line._replace(devices=2, is_ring=False)
        wanted = call.arguments.get("topology")
        size = held * line.devices if op == "all_gather" else held
        parts.append(
            Exchange(
                op,
                line.chip,
                line.devices,
                min(links, line.links) if isinstance(links, int) and links > 0 else line.links,
                takes_ring(line, wanted),
                size,
                is_2d=is_two_dimensional(),
                in_l1=is_in_l1(inputs),
            )
        )
        held = size if op == "all_gather" else held // line.devices if op == "reduce_scatter" else held
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Chain(call.op.rpartition(".")[2], tuple(parts))


def _host_write(call: OpCall, chip: Chip) -> HostTransfer:
    return _transfer(call, chip, is_write=True)


def _host_read(call: OpCall, chip: Chip) -> HostTransfer:
    return _transfer(call, chip, is_write=False)


def _transfer(call: OpCall, chip: Chip, is_write: bool) -> HostTransfer:
    tensors = call.results or call.operands if is_write else call.operands or call.results
    size = sum(map(bytes_of, tensors))
    return HostTransfer(is_write, chip, max(size, 1), min(map(_page, tensors)), is_in_l1(tensors))


def _message(call: OpCall, chip: Chip) -> Exchange:
    size = sum(map(bytes_of, call.operands or call.results))
    links = max((line.links for line in call.lines), default=1)
    return Exchange("all_gather", chip, 2, links, False, 2 * max(size, 1), is_2d=is_two_dimensional())


_MAKERS: dict[Kind, Callable[[OpCall, Chip], Workload | None]] = {  # of others the elements
    Kind.PRODUCT: _product,
    Kind.CONVOLUTION: _convolution,
    Kind.ATTENTION: _attention,
    Kind.HOST_WRITE: _host_write,
    Kind.HOST_READ: _host_read,
    Kind.SEND: _message,
    Kind.RECEIVE: _message,
}
