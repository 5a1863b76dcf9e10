"""From a row of a measurement table to the workload that it describes, or the reason why it describes none."""

from __future__ import annotations

import re

from softmesh.cost.row_texts import RowTexts, bytes_in, dtype_in, extents_in, grid_in, mkn_in, phases_in
from softmesh.cost.workloads import (
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


class Unexpressed(Exception):
    """Why a row tells no workload."""


def workload_of_row(row: RowTexts) -> Workload:
    chip = row.chip()
    if chip is None:
        raise Unexpressed(f"the architecture {row.arch or '(none)'} has no chip here")
    unit, op = row.unit.lower(), _plain(row.op)
    if "op-to-op gap" in unit or op.endswith("op2op"):
        return TypicalOp("gap", chip, "traced" if "traced" in row.config.lower() else "untraced")
    if op.startswith(("hostread", "hostwrite")):
        return _host_transfer(row, chip, op)
    if op == "programdispatch":
        return _dispatch(row, chip)
    if "b/cycle" in unit:
        raise Unexpressed("a lower bound of a NoC rate, no time of an op")
    if any(word in op for word in ("prefilltime", "decodet", "tokens", "timetofirst", "ttft")):
        raise Unexpressed("a figure of a whole model")
    if "expert" in op:
        return _expert(row, chip)
    for name, word in _EXCHANGES:
        if op.startswith(word) or (word in op and "[" in row.shapes):
            found = _exchange(row, chip, name)
            if found is not None:
                return found
    if op.startswith(_PRODUCTS):
        found_product = _product(row, chip)
        if found_product is not None:
            return found_product
    if op.startswith("conv2d"):
        return _convolution(row, chip)
    extents = extents_in(row.shapes)
    if extents is not None and ("element-wise" in row.op.lower() or op in FUNCTIONS):
        return _elements(row, chip, op, extents)
    if any(word in row.source for word in _MODEL_ROWS) or "batch" in row.shapes.lower():
        return _typical(row, chip, op)
    raise Unexpressed("its shapes are not told in a form that is known here")


FUNCTIONS = ("exp", "gelu", "silu", "relu", "tanh", "sigmoid", "sqrt", "rsqrt", "log", "add", "mul", "multiply", "sub")


def _plain(op: str) -> str:
    """`AllGatherAsyncDeviceOperation` is `allgather`."""
    plain = re.sub(r"\(.*?\)", "", op).lower()
    plain = re.sub(r"[^a-z0-9]", "", plain)
    for word in _WORDS_OF_LAYOUT:
        plain = plain.replace(word, "")
    return plain


def _typical(row: RowTexts, chip: Chip, op: str) -> TypicalOp:
    text = f"{row.shapes} {row.config}".lower()
    phase = "prefill" if "prefill" in text or "cross attention" in text else "decode"
    return TypicalOp(op, chip, phase)


def _exchange(row: RowTexts, chip: Chip, op: str) -> Exchange | None:
    text = row.shapes.lower()
    said = re.search(r"(\d+) devices", text)
    devices = int(said[1]) if said else row.number(row.devices)
    if not devices or devices < 2:
        raise Unexpressed("how many devices take part is not told")
    size = bytes_in(text, "total")
    if size is None:
        extents = extents_in(text)
        if extents is None:
            if any(word in row.source for word in _MODEL_ROWS):
                return None
            raise Unexpressed("how many bytes are exchanged is not told")
        rows = 1
        for extent in extents[:-2]:
            rows *= extent
        high, wide = (extents[-2], extents[-1]) if len(extents) > 1 else (1, extents[-1])
        size = rows * tiles_of(high, wide) * TILE_BYTES[row.dtype()]
        is_output = bool(re.search(r"\bout(put)?\b", text))
        if op == "all_gather" and not is_output:
            size *= devices
        if op == "reduce_scatter" and is_output:
            size *= devices
    config = row.config.lower()
    topology = f"{row.topology} {config}".lower()
    links = row.number(row.links) or _LINKS.get(chip.kind, 1)
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


def _product(row: RowTexts, chip: Chip) -> Product | None:
    found = mkn_in(row.shapes)
    text = row.text()
    if found is None:
        if any(word in row.source for word in _MODEL_ROWS) or "batch" in row.shapes.lower():
            return None
        raise Unexpressed("the extents M x K x N are not told")
    m, k, n = (-(-extent // 32) for extent in found)
    in0, in1, out = _operand_dtypes(row)
    phases = phases_in(text) or (2 if TILE_BYTES[in1] >= 1024 else 1)
    memory = row.memory.lower()
    cores = re.search(r"cores\s*=\s*(\d+)", text)
    given = grid_in(text)
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
        height_cores=int(cores[1]) if "height sharded" in memory and cores else 0,
    )


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


def _convolution(row: RowTexts, chip: Chip) -> Chain:
    """Windows that are gathered, and the product of pixels by the window's elements by output channels."""
    text = f"{row.shapes} {row.config}".lower()
    channels = re.search(r"c(\d+)->(\d+)", text)
    image = re.search(r"->\d+\s+(\d+)x(\d+)", text)
    window = re.search(r"\bk(\d+)(?:x(\d+))?", text)
    if channels is None or image is None or window is None:
        raise Unexpressed("channels, image or window of the convolution are not told")
    high, wide = int(window[1]), int(window[2] or window[1])
    stride = int(found[1]) if (found := re.search(r"\bs(\d+)", text)) else 1
    pad = int(found[1]) if (found := re.search(r"\bp(\d+)", text)) else 0
    batch = int(found[1]) if (found := re.search(r"\bn(\d+)\b", text)) else 1
    rows = (int(image[1]) + 2 * pad - high) // stride + 1
    columns = (int(image[2]) + 2 * pad - wide) // stride + 1
    _, in1, out = _operand_dtypes(row)
    padded = max(int(channels[1]), 8)  # channels are padded so that a window's row is aligned
    in0 = "bfloat16" if "bfloat16" in text else out
    pixels, window_tiles = -(-batch * rows * columns // 32), -(-padded * high * wide // 32)
    product = Product(
        chip,
        pixels,
        window_tiles,
        -(-int(channels[2]) // 32),
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


def _elements(row: RowTexts, chip: Chip, op: str, extents: list[int]) -> Elements:
    there = [extent for extent in extents if extent]  # trailing zeros stand for dims that there are not
    if not there:
        raise Unexpressed("an empty shape")
    rows = 1
    for extent in there[:-2]:
        rows *= extent
    tiles = rows * tiles_of(there[-2] if len(there) > 1 else 1, there[-1])
    dtype = row.dtype()
    moved = tiles * TILE_BYTES[dtype]
    return Elements(op, chip, tiles, dtype, moved, moved, row.is_in_l1(), _cores(row, chip))


def _cores(row: RowTexts, chip: Chip) -> int:
    found = re.search(r"cores\s*=\s*(\d+)", row.text())
    return int(found[1]) if found else cores_of(chip)


def _host_transfer(row: RowTexts, chip: Chip, op: str) -> HostTransfer:
    text = row.shapes.lower()
    memory = row.memory.lower()
    is_sharded = "sharded" in op
    size = bytes_in(text, "transfer" if not is_sharded else "size") or bytes_in(text, "size")
    page = bytes_in(text, "contiguity" if is_sharded else "page")
    if size is None or page is None:
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


def _dispatch(row: RowTexts, chip: Chip) -> Dispatch:
    text = row.shapes.lower()
    name = text.split(",")[0]
    size = bytes_in(text, "kernel size") or 0

    def number(pattern: str) -> int:
        found = re.search(pattern, name)
        return int(found[1]) if found else 0

    if "shadow" in name or "load_prefetcher" in name or "eth_dispatch" in name or "maxed" in name:
        raise Unexpressed("a stress of the dispatcher whose programs are not told")
    run = number(r"^(\d+)_kernel") or (size if name.startswith("256_bytes") else 0)
    groups = number(r"_(\d+)g\b") or (8 if "kernel_groups" in name else 1)
    processors = 5 if "all_processors" in name else 4 if "brisc_trisc" in name else 3 if "trisc" in name else 1
    return Dispatch(
        chip,
        processors,
        "1_core" not in name and ("all_cores" in name or "groups" in name or bool(run)),
        number(r"_(\d+)_rta"),
        number(r"_(\d+)_crta"),
        number(r"_(\d+)_?cb") or (1 if "1cb" in name else 0),
        1 if "sem" in name else 0,
        groups,
        0 if run else size,
        run * 1e-3 / chip.clock_ghz,
    )


def _expert(row: RowTexts, chip: Chip) -> Chain:
    text = row.shapes.lower()
    emb, hidden = re.search(r"emb\s*(\d+)", text), re.search(r"hidden\s*(\d+)", text)
    tokens = re.search(r"tokens\s*(\d+)", text)
    if emb is None or hidden is None or tokens is None:
        raise Unexpressed("the expert's extents or tokens are not told")
    if int(tokens[1]) == 0:
        raise Unexpressed("no token is active")
    m, e, h = (-(-int(found[1]) // 32) for found in (tokens, emb, hidden))
    up = Product(chip, m, e, h, 2048, 1088, 2048, 2, chip.grid(), is_tuned=True)
    down = up._replace(k=h, n=e)
    return Chain("routed expert", (up, up, down))
