"""The texts of a row of a measurement table, and the words that are looked for in them."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import NamedTuple

from softmesh.systems.chip import BH_GALAXY, N150, N300, P100, P150, P300, WH_GALAXY, Chip

_DTYPES = (
    ("bfloat16", ("bfloat16", "bf16", "float16_b")),
    ("bfloat8_b", ("bfloat8_b", "bfloat8", "bfp8_b", "bfp8", "bf8", "block_float8")),
    ("bfloat4_b", ("bfloat4_b", "bfloat4", "bfp4_b", "bfp4", "bf4", "bfp weights")),
    ("float32", ("float32", "fp32")),
    ("uint32", ("uint32",)),
    ("int32", ("int32",)),
    ("uint16", ("uint16",)),
    ("fp8_e4m3", ("fp8", "float8")),
    ("uint8", ("uint8",)),
    ("float16", ("float16", "fp16")),
)
_SYSTEMS = (  # the first that is found, and is of the row's architecture, counts
    (r"\bp100", (P100,)),
    (r"\bp300", (P300,)),
    (r"\bp150|dev board", (P150,)),
    (r"\bn300|t3k|t3000|loudbox|llmbox|quietbox", (N300,)),
    (r"\bn150", (N150,)),
    (r"galaxy|\btg\b|6u|4u", (WH_GALAXY, BH_GALAXY)),
)
_PLAIN = {"wormhole_b0": N150, "blackhole": P150}
_ARCHES = ((r"^(wormhole|wh)(?![a-z])", "wormhole_b0"), (r"^(blackhole|bh)(?![a-z])", "blackhole"))
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e\d+)?")
_RUNS = re.compile(r"median of (\d+) runs(?::((?:\s+\d+(?:\.\d+)?)+))?")
_SIZES = "bytes|b|kb|kib|mb|mib|gb|gib"
_TIMES = r"\s*[x×*]\s*"


class Unexpressed(Exception):
    """Why a row tells no workload."""


class RowTexts(NamedTuple):
    source: str
    arch: str
    system: str
    op: str
    shapes: str
    dtypes: str
    memory: str
    config: str
    devices: str
    links: str
    topology: str
    value: str
    unit: str

    def chip(self) -> Chip | None:
        arch = self._arch()
        if arch is None and self.arch:
            return None
        system = self.system.lower().replace("_", " ")
        for pattern, chips in _SYSTEMS:
            if re.search(pattern, system):
                for chip in chips:
                    if arch in (None, chip.arch_name):
                        return chip
        return None if arch is None else _PLAIN[arch]

    def _arch(self) -> str | None:
        """As its column says; where that is empty, as the name of its system begins."""
        said = (self.arch or self.system).lower().replace("_", " ")
        return next((arch for pattern, arch in _ARCHES if re.search(pattern, said)), None)

    def text(self) -> str:
        """All of a row that may describe its workload, in small letters."""
        return " ; ".join((self.shapes, self.dtypes, self.memory, self.config)).lower()

    def dtype(self, default: str = "bfloat16") -> str:
        """The first dtype that its columns name."""
        for text in (self.dtypes, self.shapes, self.config):
            found = dtype_in(text)
            if found is not None:
                return found
        return default

    def is_in_l1(self) -> bool:
        memory = self.memory.lower()
        return "l1" in memory or "sharded" in memory

    def number(self, text: str) -> int | None:
        """A whole number of a column; None where it is empty."""
        found = _NUMBER.search(text)
        return None if found is None else int(float(found[0]))

    def device_count(self) -> int | None:
        """Those of a collective: as the shapes say, or a mesh's along the axis that the config names.

        `8`, `2x4`, and `4 devices` in the shapes; `8x4` with `cluster_axis=0` are 8.
        """
        said = re.search(r"(\d+) (?:devices|chips)", self.shapes.lower())
        if said:
            return int(said[1])
        axis = re.search(r"(?:cluster_axis|axis)\s*[=: ]\s*([01])", self.config.lower())
        sides = self.mesh()
        if axis and sides:
            return sides[int(axis[1])]
        pair = re.search(rf"(\d+)(?:{_TIMES}|\s*,\s*)(\d+)", self.devices)
        return int(pair[1]) * int(pair[2]) if pair else self.number(self.devices)

    def mesh(self) -> tuple[int, int] | None:
        """Rows and columns, where the devices or the system name them."""
        for text in (self.devices, self.system):
            found = re.search(rf"(\d+){_TIMES}(\d+)", text)
            if found:
                return int(found[1]), int(found[2])
        return None

    def link_count(self) -> int | None:
        said = re.search(r"(?:num_)?links\s*[=:]\s*(\d+)", self.config.lower())
        return self.number(self.links) or (int(said[1]) if said else None)

    def run_count(self) -> int:
        """Runs of which the row is the median; 0 where it does not say."""
        said = _RUNS.search(self.config.lower())
        return 0 if said is None else int(said[1])

    def run_values(self) -> list[float]:
        """Return the time of each run, in the row's unit, if the row lists them: `median of 2 runs: 3.1 3.3`."""
        said = _RUNS.search(self.config.lower())
        return [] if said is None else [float(word) for word in (said[2] or "").split()]

    def is_of_a_model(self) -> bool:
        return "models/" in self.source or "batch" in self.shapes.lower()

    def series(self) -> str:
        """Rows that differ by no more than their size."""
        parts = (self.arch, self.op, self.dtypes, self.memory, _without_runs(self.config), self.devices, self.topology)
        return " | ".join(part for part in parts if part)

    def group(self) -> str:
        """The model, block or layer that the row is a part of."""
        if "," not in self.shapes or "models/" not in self.source:
            return ""
        model, _, rest = self.shapes.partition(",")
        block = rest.split(",")[0].strip() if rest.count(",") else ""
        return f"{model.strip()}, {block}" if block and not block.startswith(("[", "(")) else model.strip()


def _without_runs(config: str) -> str:
    return re.sub(r"cores=\d+", "", _RUNS.sub("", config)).strip("; ")


def dtype_in(text: str) -> str | None:
    """The dtype that is named first.

    >>> dtype_in("bf16 act, bfp8 w"), dtype_in("nothing")
    ('bfloat16', None)
    """
    text = text.lower()
    best: tuple[int, int, str] | None = None
    for name, spellings in _DTYPES:
        for spelling in spellings:
            at = text.find(spelling)
            if at >= 0 and (best is None or (at, -len(spelling)) < best[:2]):
                best = (at, -len(spelling), name)
    return None if best is None else best[2]


def operands_in(text: str) -> list[list[int]]:
    """The extents of each operand: in brackets, or joined by signs of multiplication.

    >>> operands_in("Q[32,640,576] KV[56320,576]"), operands_in("1x1x32x64 x 64x96"), operands_in("nothing")
    ([[32, 640, 576], [56320, 576]], [[1, 1, 32, 64], [64, 96]], [])
    >>> operands_in("32 x 64 x 96"), operands_in("1,1,32,64")
    ([[32, 64, 96]], [[1, 1, 32, 64]])
    """
    for pattern in _OPERANDS:
        found = re.findall(pattern, text.lower())
        if found:
            return [[int(number) for number in re.findall(r"\d+", operand)] for operand in found]
    return []


_OPERANDS = (  # the first that is found counts
    r"[\[(]\s*(\d+(?:\s*[,x×]\s*\d+)*)\s*,?\s*[\])]",
    r"(?<![\w.])(\d+(?:[x×]\d+)+)(?![\w.])",
    rf"(?<!\w)(\d+(?:{_TIMES}\d+)+)(?!\w)",
    r"^\s*(\d+(?:\s*,\s*\d+)+)\s*$",
)


def mkn_in(text: str) -> tuple[int, int, int, int] | None:
    """Batch, rows, inner extent and columns: of two operands, or as `32x2048x1280`, `M=32 K=2048 N=1280`.

    >>> mkn_in("per device 32x2048x1280, bf16"), mkn_in("M=64,K=32,N=96"), mkn_in("8x8")
    ((1, 32, 2048, 1280), (1, 64, 32, 96), None)
    >>> mkn_in("[1, 8, 32, 2048] x [1, 1, 2048, 1280]"), mkn_in("8x32x64 @ 8x64x96")
    ((1, 256, 2048, 1280), (8, 32, 64, 96))
    """
    named = re.search(r"\bm\s*[=:]?\s*(\d+)\D+?k\s*[=:]?\s*(\d+)\D+?n\s*[=:]?\s*(\d+)", text, re.IGNORECASE)
    if named is not None:
        return 1, int(named[1]), int(named[2]), int(named[3])
    operands = [one for one in operands_in(text) if len(one) > 1]
    for first, second in pairwise(operands):
        if first[-1] == second[-2]:
            batch = math.prod(second[:-2])
            rows = math.prod(first[:-1])
            return (batch, rows // batch, first[-1], second[-1]) if batch and rows % batch == 0 else None
    three = next((one for one in operands if len(one) == 3), None)
    return None if three is None or "[" in text else (1, three[0], three[1], three[2])


def grid_in(text: str) -> tuple[int, int] | None:
    """Columns, rows.

    >>> grid_in("grid=8x8"), grid_in("core_grid=(8, 7)"), grid_in("grid_size: 13x10"), grid_in("8x4 grid")
    ((8, 8), (8, 7), (13, 10), (8, 4))
    """
    found = re.search(r"grid(?:[_ ]size)?\s*[=:]?\s*[(\[]?\s*(\d+)\s*[x,×]\s*(\d+)", text)
    found = found or re.search(r"(\d+)\s*[x×]\s*(\d+)\s+(?:core )?grid", text)
    return None if found is None else (int(found[1]), int(found[2]))


def cores_in(text: str) -> int | None:
    """`cores=10`, `num_cores: 10`, `10 cores`."""
    found = re.search(r"cores\s*[=:]\s*(\d+)|(?<![\dx])(\d+) cores", text)
    return None if found is None else int(found[1] or found[2])


def phases_in(text: str) -> int | None:
    """Passes of the multiplier by the fidelity that is named."""
    found = re.search(r"\b(lofi|hifi([234]))", text.lower())
    if found is None:
        return None
    return 1 if found[2] is None else int(found[2])


def bytes_in(text: str, word: str) -> int | None:
    """`total 4096 B`, `transfer 64 KiB`, `page_size:32 B`, `64 KiB total`.

    >>> bytes_in("total 4096 B", "total"), bytes_in("64 KiB total", "total"), bytes_in("64 KiB", "total")
    (4096, 65536, None)
    """
    text = text.lower()
    found = re.search(rf"{word}\D{{0,12}}?(\d+(?:\.\d+)?)\s*({_SIZES})?\b", text)
    return _size(found or re.search(rf"(\d+(?:\.\d+)?)\s*({_SIZES})\s*{word}", text))


def bare_bytes_in(text: str) -> int | None:
    """`1048576 B`, `4 MiB`: a size with its unit, whatever it is said to be."""
    return _size(re.search(rf"(?<![\w.-])(\d+(?:\.\d+)?)\s*({_SIZES})\b", text.lower()))


def _size(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    scale = {None: 1, "b": 1, "bytes": 1, "kb": 1e3, "kib": 2**10, "mb": 1e6, "mib": 2**20, "gb": 1e9, "gib": 2**30}
    return int(float(found[1]) * scale[found[2]])
