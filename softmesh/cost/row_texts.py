"""The texts of a row of a measurement table, and the words that are looked for in them."""

from __future__ import annotations

import re
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
_SYSTEMS = (  # the first that is found counts
    (r"\bp100", P100),
    (r"\bp300", P300),
    (r"\bp150|dev board", P150),
    (r"\bn300|t3k|t3000|loudbox|llmbox|wh_quietbox", N300),
    (r"\bn150", N150),
    (r"galaxy|\btg\b|6u|4u", None),
)
_BY_ARCH: dict[str, tuple[Chip, Chip]] = {"wormhole_b0": (N150, WH_GALAXY), "blackhole": (P150, BH_GALAXY)}
_ARCHES = {"wormhole": "wormhole_b0", "wormhole_b0": "wormhole_b0", "wh": "wormhole_b0", "wh_b0": "wormhole_b0"}
_ARCHES |= {"blackhole": "blackhole", "bh": "blackhole"}
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e\d+)?")


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
        arch = _ARCHES.get(self.arch.lower())
        if arch is None:
            return None
        system = self.system.lower()
        plain, galaxy = _BY_ARCH[arch]
        for pattern, chip in _SYSTEMS:
            if re.search(pattern, system):
                found = galaxy if chip is None else chip
                return found if found.arch_name == arch else plain
        return plain

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
    return re.sub(r"median of \d+ runs|cores=\d+", "", config).strip("; ")


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


def extents_in(text: str) -> list[int] | None:
    """The first list of extents in brackets: `[1, 1, 32, 2048]`.

    >>> extents_in("per device input [1,1,128,2048]")
    [1, 1, 128, 2048]
    """
    found = re.search(r"[\[(]\s*(\d+(?:\s*[,x]\s*\d+)*)\s*,?\s*[\])]", text)
    return None if found is None else [int(number) for number in re.findall(r"\d+", found[1])]


def mkn_in(text: str) -> tuple[int, int, int] | None:
    """`32x2048x1280` or `M=32 K=2048 N=1280`.

    >>> mkn_in("per device 32x2048x1280, bf16"), mkn_in("M=64,K=32,N=96"), mkn_in("8x8")
    ((32, 2048, 1280), (64, 32, 96), None)
    """
    found = re.search(r"(?<![\dx])(\d+)\s*[x×*]\s*(\d+)\s*[x×*]\s*(\d+)(?![\dx])", text)
    if found is None:
        found = re.search(r"\bm\s*=?\s*(\d+)\D+?k\s*=?\s*(\d+)\D+?n\s*=?\s*(\d+)", text, re.IGNORECASE)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def grid_in(text: str) -> tuple[int, int] | None:
    """`grid=8x8`, `grid 5x8`: columns, rows."""
    found = re.search(r"grid\s*[=:]?\s*\(?(\d+)\s*[x,×]\s*(\d+)", text)
    return None if found is None else (int(found[1]), int(found[2]))


def phases_in(text: str) -> int | None:
    """Passes of the multiplier by the fidelity that is named."""
    found = re.search(r"\b(lofi|hifi([234]))", text.lower())
    if found is None:
        return None
    return 1 if found[2] is None else int(found[2])


def bytes_in(text: str, word: str) -> int | None:
    """`total 4096 B`, `transfer 64 KiB`, `page_size:32 B`."""
    found = re.search(rf"{word}\D{{0,12}}?(\d+(?:\.\d+)?)\s*(b|kb|kib|mb|mib|gb|gib)?\b", text.lower())
    if found is None:
        return None
    scale = {None: 1, "b": 1, "kb": 1e3, "kib": 2**10, "mb": 1e6, "mib": 2**20, "gb": 1e9, "gib": 2**30}[found[2]]
    return int(float(found[1]) * scale)
