"""From a row of a measurement table to the workload that it describes, or the reason why it describes none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from softmesh.cost.op_words import OpKind, kind_of, plain_name
from softmesh.cost.row_ops import by_extents, large_selection, sparse_attention, typical
from softmesh.cost.row_runtime import dispatch, gap, host_transfer
from softmesh.cost.row_texts import (
    RowTexts,
    Unexpressed,
    bare_bytes_in,
    bytes_in,
    cores_in,
    dtype_in,
    grid_in,
    mkn_in,
    operands_in,
    phases_in,
)
from softmesh.cost.workloads import (
    TILE,
    TILE_BYTES,
    Chain,
    Exchange,
    Product,
    Workload,
    convolution,
    tiles_of,
)
from softmesh.systems.chip import Chip

_EXCHANGES = (
    ("all_gather", ("allgather",)),
    ("reduce_scatter", ("reducescatter", "matmulrs")),
    ("all_reduce", ("allreduce",)),
    ("all_to_all", ("alltoall",)),
    ("broadcast", ("allbroadcast", "broadcast")),
    ("point_to_point", ("pointtopoint", "neighborpad")),
)
_SAME_EXCHANGE = {"broadcast": "all_gather", "point_to_point": "all_gather"}  # the law that they are told by
_GROWING = ("all_gather", "broadcast", "point_to_point")
_PAIRWISE = ("point_to_point",)
_LINKS = {"wh_galaxy": 4, "bh_galaxy": 2, "p150": 2, "p300": 2}
_PREFETCH_GRID = 8, 3  # the ring of cores that weights are streamed to
_MOST_PREFETCHED = 16 << 20  # bytes of weights: beyond, they are read while the product runs
_USUAL_WIDTH, _WIDTHS = 4096, 4.0  # elements of a token in a prefill, and the factor by which models differ
_LONGEST_SIDE = 1 << 26  # elements of a product's side
_MOST_DEVICES = 4096  # of a collective
_FIGURES_OF_MODELS = ("prefilltime", "decodet", "tokens", "timetofirst", "ttft")


def workload_of_row(row: RowTexts) -> Workload:
    chip = row.chip()
    if chip is None:
        raise Unexpressed(f"the architecture {row.arch or '(none)'} has no chip here")
    op = plain_name(row.op)
    for read in _READERS:
        found = read(row, chip, op)
        if found is not None:
            return found
    raise Unexpressed("its shapes are not told in a form that is known here")


def _no_op(row: RowTexts, chip: Chip, op: str) -> None:
    """Rows that are of no op at all are told so."""
    if "b/cycle" in row.unit.lower():
        raise Unexpressed("a lower bound of a NoC rate, no time of an op")
    if any(word in op for word in _FIGURES_OF_MODELS):
        raise Unexpressed("a figure of a whole model")


def _exchange(row: RowTexts, chip: Chip, op: str) -> Exchange | Chain | None:
    if kind_of(op) not in (OpKind.COLLECTIVE, OpKind.ATTENTION, OpKind.PRODUCT, OpKind.EXPERTS):
        return None
    for name, words in _EXCHANGES:
        if any(op.startswith(word) or (word in op and operands_in(row.shapes)) for word in words):
            return _fused(row, chip, name) if "matmul" in op else _exchange_of(row, chip, name)
    return None


def _exchange_of(row: RowTexts, chip: Chip, op: str, size: int | None = None) -> Exchange | None:
    """None where a row says no bytes, and a model: its kind is what is known."""
    devices = 2 if op in _PAIRWISE else row.device_count()
    size = _exchanged_bytes(row, op, devices or 0) if size is None else size
    if size is None and (row.is_of_a_model() or _names_a_phase(row)):
        return None
    if not devices or not 2 <= devices <= _MOST_DEVICES:
        raise Unexpressed("how many devices take part is not told")
    if not size:
        raise Unexpressed("how many bytes are exchanged is not told")
    config = row.config.lower()
    topology = f"{row.topology} {config}".lower()
    return Exchange(
        _SAME_EXCHANGE.get(op, op),
        chip,
        devices,
        row.link_count() or _LINKS.get(chip.kind, 1),
        ("ring" in topology or "torus" in row.topology.lower()) and devices > 2,
        size,
        packet=bytes_in(config, "packet") or 0,
        is_2d="fabric_2d" in config or "mesh" in row.topology.lower(),
        in_l1="sharded" in row.memory.lower(),
    )


def _prefill_exchange(row: RowTexts, chip: Chip, op: str) -> Chain | None:
    """A collective of a prefill of which only the tokens are told: a model of usual width, in a band as wide as widths.

    Times of such ops go with the tokens, and those of other prefills tell nothing of them.
    """
    tokens = re.search(r"(?:prefill|seq(?:uence)?[ _]?(?:len(?:gth)?)?)[ =:]*(\d+)", row.shapes.lower())
    name = next((name for name, words in _EXCHANGES if any(word in op for word in words)), None)
    if kind_of(op) is not OpKind.COLLECTIVE or tokens is None or name is None or not int(tokens[1]):
        return None
    sides = row.mesh()
    devices = row.device_count() if sides is None or "axis" in row.config.lower() else max(sides)
    size = int(tokens[1]) * _USUAL_WIDTH * TILE_BYTES["bfloat16"] // (TILE * TILE)
    exchange = _exchange_of(row._replace(devices=str(devices or "")), chip, name, size)
    return None if exchange is None else Chain("collective of a prefill", (exchange,), doubt=_WIDTHS)


def _names_a_phase(row: RowTexts) -> bool:
    return any(word in row.shapes.lower() for word in ("decode", "prefill"))


def _fused(row: RowTexts, chip: Chip, op: str) -> Chain | None:
    """A collective in one kernel with the product before or after it: what is gathered, or what is scattered."""
    product = _product(row, chip, "matmul")
    if product is None:
        return None
    tiles = product.m * (product.k if op == "all_gather" else product.n)
    exchange = _exchange_of(row, chip, op, tiles * (product.in0_tile if op == "all_gather" else product.out_tile))
    return None if exchange is None else Chain(f"{op} and product", (exchange, product), overlaps=True)


def _exchanged_bytes(row: RowTexts, op: str, devices: int) -> int | None:
    """Of the whole tensor."""
    text = row.shapes.lower()
    whole = bytes_in(text, "total")
    if whole is not None:
        return whole
    found = operands_in(text)
    said = re.findall(r"\b(in|out)(?:put)?\b", text.partition("[")[0] if found else text)
    is_output = bool(said) and said[-1] == "out"
    grows, shrinks = op in _GROWING and not is_output, op == "reduce_scatter" and is_output
    times = devices if grows or shrinks else 1
    if not found:
        each = bytes_in(text, r"(?:per[ -]device|/\s*device|each)")
        if each is None:
            return None if row.is_of_a_model() else bare_bytes_in(text)  # a 70B is no size of a tensor
        return each * times
    extents = found[0]
    rows = math.prod(extents[:-2])
    high, wide = (extents[-2], extents[-1]) if len(extents) > 1 else (1, extents[-1])
    return rows * tiles_of(high, wide) * TILE_BYTES[row.dtype()] * times


def _product(row: RowTexts, chip: Chip, op: str) -> Product | None:
    if kind_of(op) is not OpKind.PRODUCT:
        return None
    found = mkn_in(row.shapes)
    text = row.text()
    if found is None:
        if row.is_of_a_model():
            return None
        raise Unexpressed("the extents M x K x N are not told")
    m, k, n = _tile_counts(found[1:])
    in0, in1, out = _operand_dtypes(row)
    phases = phases_in(text) or (2 if TILE_BYTES[in1] >= 1024 else 1)
    memory = row.memory.lower()
    given = grid_in(text)
    if given is not None and 0 in given:
        raise Unexpressed("a grid of no core")
    places = {name: "l1" in place for name, place in re.findall(r"(in0|in1|out)\s*=\s*(\w+)", memory)}
    all_in_l1 = not places and row.is_in_l1()
    prefetched = all_in_l1 and "prefetch" in text and k * n * TILE_BYTES[in1] <= _MOST_PREFETCHED
    return Product(
        chip,
        m,
        k,
        n,
        TILE_BYTES[in0],
        TILE_BYTES[in1],
        TILE_BYTES[out],
        phases,
        given or (_PREFETCH_GRID if prefetched else chip.grid()),
        found[0],
        found[0],
        in0_in_l1=places.get("in0", all_in_l1),
        in1_in_l1=places.get("in1", prefetched),
        out_in_l1=places.get("out", all_in_l1),
        is_tuned="out_of_box" not in text,
        clock=_clock(row),
        height_cores=(cores_in(text) or 0) if re.search(r"height[-_ ]sharded", memory) else 0,
    )


def _minimal_product(row: RowTexts, chip: Chip, op: str) -> Chain | None:
    """Another algorithm than that of the measured sweeps: their law, in a band of its own."""
    product = _product(row, chip, op) if op.startswith("minimalmatmul") else None
    return None if product is None else Chain("minimal_matmul", (product,))


def _tile_counts(extents: Sequence[int]) -> list[int]:
    if 0 in extents:
        raise Unexpressed("an empty shape")
    if max(extents) > _LONGEST_SIDE:
        raise Unexpressed("a side that no memory holds")
    return [-(-extent // TILE) for extent in extents]


def _clock(row: RowTexts) -> str:
    if "wall" not in row.unit.lower() and "host" not in row.unit.lower():
        return "device"
    return "traced" if "trace=true" in row.config.lower() else "untraced"


def _operand_dtypes(row: RowTexts) -> tuple[str, str, str]:
    """Of the activations, the weights and the result."""
    text = f"{row.dtypes} ; {row.shapes}".lower()
    every = row.dtype()
    weights = re.search(r"(\w+)\s*w\b|\bw\s+(\S+)", text)
    act = re.search(r"(\w+)\s*act\b", text)
    in1 = (dtype_in(weights[1] or weights[2]) if weights else None) or every
    in0 = (dtype_in(act[1]) if act else None) or every
    out = re.search(r"\bout\s+(\S+)", text)
    return in0, in1, (dtype_in(out[1]) if out else None) or in0


def _convolution(row: RowTexts, chip: Chip, op: str) -> Chain | None:
    """Windows that are gathered, and the product of pixels by the window's elements by output channels."""
    if not op.startswith("conv2d"):
        return None
    text = f"{row.shapes} {row.config}".lower()
    channels = re.search(r"c(\d+)->(\d+)", text)
    image = re.search(r"->\d+\s+(\d+)x(\d+)", text)
    window = re.search(r"\bk(\d+)(?:x(\d+))?", text)
    if channels is None or image is None or window is None:
        if row.is_of_a_model():
            return None
        raise Unexpressed("channels, image or window of the convolution are not told")
    high, wide = int(window[1]), int(window[2] or window[1])
    stride = max(int(found[1]), 1) if (found := re.search(r"\bs(\d+)", text)) else 1
    pad = int(found[1]) if (found := re.search(r"\bp(\d+)", text)) else 0
    batch = int(found[1]) if (found := re.search(r"\bn(\d+)\b", text)) else 1
    rows = max((int(image[1]) + 2 * pad - high) // stride + 1, 0)
    columns = max((int(image[2]) + 2 * pad - wide) // stride + 1, 0)
    _, in1, out = _operand_dtypes(row)
    padded = max(int(channels[1]), 8)  # channels are padded so that a window's row is aligned
    in0 = "bfloat16" if "bfloat16" in text else out
    pixels, window_tiles, made = _tile_counts([batch * rows * columns, padded * high * wide, int(channels[2])])
    product = Product(
        chip,
        pixels,
        window_tiles,
        made,
        TILE_BYTES[in0],
        TILE_BYTES[in1],
        TILE_BYTES[out],
        phases_in(text) or 1,
        chip.grid(),
        in0_in_l1=True,
        out_in_l1=True,
        is_tuned=True,
    )
    return convolution(product)


def _expert(row: RowTexts, chip: Chip, op: str) -> Chain | None:
    if "expert" not in op:
        return None
    text = row.shapes.lower()
    emb, hidden = re.search(r"emb\s*(\d+)", text), re.search(r"hidden\s*(\d+)", text)
    tokens = re.search(r"tokens\s*(\d+)", text)
    if emb is None or hidden is None or tokens is None:
        raise Unexpressed("the expert's extents or tokens are not told")
    if int(tokens[1]) == 0:
        raise Unexpressed("no token is active")
    m, e, h = _tile_counts([int(found[1]) for found in (tokens, emb, hidden)])
    up = Product(chip, m, e, h, 2048, 1088, 2048, 2, chip.grid(), is_tuned=True)
    down = up._replace(k=h, n=e)
    return Chain("routed expert", (up, up, down))


_READERS: tuple[Callable[[RowTexts, Chip, str], Workload | None], ...] = (  # the first that finds one counts
    gap,
    host_transfer,
    dispatch,
    _no_op,
    _expert,
    _exchange,
    _minimal_product,
    _product,
    _convolution,
    large_selection,
    sparse_attention,
    by_extents,
    _prefill_exchange,
    typical,
)
