"""From a row of a measurement table to the workload that it describes, or the reason why it describes none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from softmesh.cost.row_texts import RowTexts, bytes_in, cores_in, dtype_in, extents_in, grid_in, mkn_in, phases_in
from softmesh.cost.workloads import (
    TILE,
    TILE_BYTES,
    Chain,
    Dispatch,
    Elements,
    Exchange,
    HostTransfer,
    Product,
    TypicalOp,
    Workload,
    convolution,
    cores_of,
    tiles_of,
)
from softmesh.systems.chip import Chip

_EXCHANGES = (
    ("all_gather", "allgather"),
    ("reduce_scatter", "reducescatter"),
    ("all_reduce", "allreduce"),
    ("all_to_all", "alltoall"),
)
_PRODUCTS = ("matmul", "linear", "gemm", "bmm", "minimalmatmul", "ringmatmul")
_LINKS = {"wh_galaxy": 4, "bh_galaxy": 2, "p150": 2, "p300": 2}
_PREFETCH_GRID = 8, 3  # the ring of cores that weights are streamed to
_MOST_PREFETCHED = 16 << 20  # bytes of weights: beyond, they are read while the product runs
_WORDS_OF_LAYOUT = ("deviceoperation", "operation", "async", "device")
_MODEL_ROWS = ("models/",)
_LONGEST_SIDE = 1 << 26  # elements of a product's side
_MOST_DEVICES = 4096  # of a collective
_SAME_KINDS = {"binaryng": "binary"}  # two generations of one op
_FIGURES_OF_MODELS = ("prefilltime", "decodet", "tokens", "timetofirst", "ttft")


class Unexpressed(Exception):
    """Why a row tells no workload."""


def workload_of_row(row: RowTexts) -> Workload:
    chip = row.chip()
    if chip is None:
        raise Unexpressed(f"the architecture {row.arch or '(none)'} has no chip here")
    op = _plain(row.op)
    for read in _READERS:
        found = read(row, chip, op)
        if found is not None:
            return found
    raise Unexpressed("its shapes are not told in a form that is known here")


FUNCTIONS = ("exp", "gelu", "silu", "relu", "tanh", "sigmoid", "sqrt", "rsqrt", "log", "add", "mul", "multiply", "sub")


def _plain(op: str) -> str:
    """`AllGatherAsyncDeviceOperation` is `allgather`."""
    plain = re.sub(r"\(.*?\)", "", op).lower()
    plain = re.sub(r"[^a-z0-9]", "", plain)
    for word in _WORDS_OF_LAYOUT:
        plain = plain.replace(word, "")
    return plain


def _is_of_a_model(row: RowTexts) -> bool:
    return any(word in row.source for word in _MODEL_ROWS) or "batch" in row.shapes.lower()


def _gap(row: RowTexts, chip: Chip, op: str) -> TypicalOp | None:
    if "op-to-op gap" not in row.unit.lower() and not op.endswith("op2op"):
        return None
    return TypicalOp("gap", chip, "traced" if "traced" in row.config.lower() else "untraced")


def _no_op(row: RowTexts, chip: Chip, op: str) -> None:
    """Rows that are of no op at all are told so."""
    if "b/cycle" in row.unit.lower():
        raise Unexpressed("a lower bound of a NoC rate, no time of an op")
    if any(word in op for word in _FIGURES_OF_MODELS):
        raise Unexpressed("a figure of a whole model")


def _typical(row: RowTexts, chip: Chip, op: str) -> TypicalOp | None:
    if not _is_of_a_model(row):
        return None
    text = f"{row.shapes} {row.config}".lower()
    phase = "prefill" if "prefill" in text or "cross attention" in text else "decode"
    return TypicalOp(_SAME_KINDS.get(op, op), chip, phase)


def _exchange(row: RowTexts, chip: Chip, op: str) -> Exchange | None:
    for name, word in _EXCHANGES:
        if op.startswith(word) or (word in op and "[" in row.shapes):
            return _exchange_of(row, chip, name)
    return None


def _exchange_of(row: RowTexts, chip: Chip, op: str) -> Exchange | None:
    """None where a model's row says no bytes: its kind is what is known."""
    devices = row.device_count()
    size = _exchanged_bytes(row, op, devices or 0)
    if size is None and any(word in row.source for word in _MODEL_ROWS):
        return None
    if not devices or not 2 <= devices <= _MOST_DEVICES:
        raise Unexpressed("how many devices take part is not told")
    if not size:
        raise Unexpressed("how many bytes are exchanged is not told")
    config = row.config.lower()
    topology = f"{row.topology} {config}".lower()
    links = row.link_count() or _LINKS.get(chip.kind, 1)
    return Exchange(
        op,
        chip,
        devices,
        links,
        ("ring" in topology or "torus" in row.topology.lower()) and devices > 2,
        size,
        packet=bytes_in(config, "packet") or 0,
        is_2d="fabric_2d" in config or "mesh" in row.topology.lower(),
        in_l1="sharded" in row.memory.lower(),
    )


def _exchanged_bytes(row: RowTexts, op: str, devices: int) -> int | None:
    """Of the whole tensor."""
    text = row.shapes.lower()
    whole = bytes_in(text, "total")
    if whole is not None:
        return whole
    is_output = bool(re.search(r"\bout(put)?\b", text))
    grows, shrinks = op == "all_gather" and not is_output, op == "reduce_scatter" and is_output
    times = devices if grows or shrinks else 1
    each = bytes_in(text, "per device")
    extents = extents_in(text)
    if extents is None:
        return None if each is None else each * times
    rows = math.prod(extents[:-2])
    high, wide = (extents[-2], extents[-1]) if len(extents) > 1 else (1, extents[-1])
    return rows * tiles_of(high, wide) * TILE_BYTES[row.dtype()] * times


def _product(row: RowTexts, chip: Chip, op: str) -> Product | None:
    if not op.startswith(_PRODUCTS):
        return None
    found = mkn_in(row.shapes)
    text = row.text()
    if found is None:
        if _is_of_a_model(row):
            return None
        raise Unexpressed("the extents M x K x N are not told")
    m, k, n = _tile_counts(found)
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
        in0_in_l1=places.get("in0", all_in_l1),
        in1_in_l1=places.get("in1", prefetched),
        out_in_l1=places.get("out", all_in_l1),
        is_tuned="out_of_box" not in text,
        clock=_clock(row),
        height_cores=(cores_in(text) or 0) if re.search(r"height[-_ ]sharded", memory) else 0,
    )


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


def _elements(row: RowTexts, chip: Chip, op: str) -> Elements | None:
    extents = extents_in(row.shapes)
    if extents is None or ("element-wise" not in row.op.lower() and op not in FUNCTIONS):
        return None
    there = [extent for extent in extents if extent]  # trailing zeros stand for dims that there are not
    if not there:
        raise Unexpressed("an empty shape")
    tiles = math.prod(there[:-2]) * tiles_of(there[-2] if len(there) > 1 else 1, there[-1])
    cores = cores_in(row.text())
    if cores == 0:
        raise Unexpressed("no core takes part")
    dtype = row.dtype()
    moved = tiles * TILE_BYTES[dtype]
    return Elements(op, chip, tiles, dtype, moved, moved, row.is_in_l1(), cores or cores_of(chip))


def _host_transfer(row: RowTexts, chip: Chip, op: str) -> HostTransfer | None:
    if not op.startswith(("hostread", "hostwrite")):
        return None
    text = row.shapes.lower()
    memory = row.memory.lower()
    is_sharded = "sharded" in op
    size = bytes_in(text, "transfer" if not is_sharded else "size") or bytes_in(text, "size")
    page = bytes_in(text, "contiguity" if is_sharded else "page")
    if not size or not page:
        raise Unexpressed("page and transfer sizes are not told")
    return HostTransfer(
        op.startswith("hostwrite"),
        chip,
        size,
        page,
        in_l1=memory == "l1" or memory.endswith("type:1"),
        is_sharded=is_sharded,
        is_pinned="pinned" in op,
        is_remote=(row.number(row.config) or 0) > 0,
        has_iommu="iommu" in row.system.lower(),
    )


_PROCESSORS = (("all_processors", 5), ("brisc_trisc", 4), ("trisc", 3))  # the first that is named counts
_STRESSES = ("shadow", "load_prefetcher", "eth_dispatch", "maxed")


def _dispatch(row: RowTexts, chip: Chip, op: str) -> Dispatch | None:
    if op != "programdispatch":
        return None
    text = row.shapes.lower()
    name = text.split(",")[0]
    size = bytes_in(text, "kernel size") or 0
    if any(word in name for word in _STRESSES):
        raise Unexpressed("a stress of the dispatcher whose programs are not told")

    def number(pattern: str) -> int:
        found = re.search(pattern, name)
        return int(found[1]) if found else 0

    run = number(r"^(\d+)_kernel") or (size if name.startswith("256_bytes") else 0)
    on_all = bool(run) or any(word in name for word in ("all_cores", "groups"))
    return Dispatch(
        chip,
        next((count for word, count in _PROCESSORS if word in name), 1),
        on_all and "1_core" not in name,
        runtime_args=number(r"_(\d+)_rta"),
        common_args=number(r"_(\d+)_crta"),
        buffers=number(r"_(\d+)_?cb"),
        semaphores=int("sem" in name),
        groups=number(r"_(\d+)g\b") or (8 if "kernel_groups" in name else 1),
        kernel_bytes=0 if run else size,
        run_us=run * 1e-3 / chip.clock_ghz,
    )


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
    _gap,
    _host_transfer,
    _dispatch,
    _no_op,
    _expert,
    _exchange,
    _product,
    _convolution,
    _elements,
    _typical,
)
