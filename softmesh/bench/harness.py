"""The benchmark harness: operands on a mesh, timing of peers in turns, tables and JSON.

Peers are interleaved round by round, so that a machine with other things to do disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich.console import Console
from rich.table import Table

import softmesh as ttnn
from softmesh.bench.against import TOLERANCE, RatioTable, Recorded
from softmesh.native.c_kernels import is_compiled
from softmesh.progress import tracked
from softmesh.runtime.native_bfloat16 import bfloat16_unit
from softmesh.tensor.mappers import Mapper
from softmesh.terminal_text import printable

DTYPES = {"float32": (ttnn.float32, torch.float32), "bfloat16": (ttnn.bfloat16, torch.bfloat16)}


def put(values: torch.Tensor, dtype: str, mesh: ttnn.MeshDevice, mapper: Mapper | None = None) -> ttnn.Tensor:
    made = ttnn.from_torch(values, DTYPES[dtype][0], layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
    assert made is not None
    return made


@contextmanager
def under_fabric() -> Iterator[None]:
    """With a fabric, which collectives need; without one again afterwards."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    try:
        yield
    finally:
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


@contextmanager
def connected_mesh(*shape: int) -> Iterator[ttnn.MeshDevice]:
    with under_fabric(), ttnn.create_mesh_device(ttnn.MeshShape(shape)) as mesh:
        yield mesh


_PATIENCE = 60.0  # seconds
Peer = Callable[[], float]  # does its work and tells the seconds of one call


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, round by round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def above(self, other: Timing) -> float:
        """Seconds more than `other`."""
        return statistics.median(a - b for a, b in zip(self.rounds, other.rounds, strict=True))

    def relative_to(self, other: Timing) -> float:
        """Times as long as `other`."""
        return statistics.median(a / b for a, b in zip(self.rounds, other.rounds, strict=True))


def timed(call: Callable[[], object], repetitions: int = 1) -> Peer:
    def peer() -> float:
        start = time.perf_counter()
        for _ in range(repetitions):
            call()
        return (time.perf_counter() - start) / repetitions

    return peer


def repetitions_for(call: Callable[[], object], seconds: float) -> int:
    """How many calls fill this time; warms `call` up on the way."""
    call()
    return max(1, round(seconds / timed(call, 3)()))


def interleave(
    peers: Mapping[str, Peer], rounds: int, warm_ups: int = 1, patience: float = _PATIENCE
) -> dict[str, Timing]:
    """Let the peers take turns, `rounds` times over after some that do not count.

    Every other round goes backwards: who comes second finds caches warm. A round that ends after `patience`
    seconds is the last one: a peer may be a hundred times slower on one machine than on another.
    """
    seen: dict[str, list[float]] = {name: [] for name in peers}
    order = list(peers)
    end = time.perf_counter() + patience
    for turn in tracked(range(warm_ups + rounds), " and ".join(order)[:60]):
        for name in order:
            seconds = peers[name]()
            if turn >= warm_ups:
                seen[name].append(seconds)
        if turn >= warm_ups and time.perf_counter() > end:
            break
        order.reverse()
    return {name: Timing(tuple(seconds)) for name, seconds in seen.items()}


# The command: its options, the machine that the numbers hold for, tables, and JSON.


class Parser(argparse.ArgumentParser):
    """The options of a benchmark, refused in printable words."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def options(
    name: str, about: str | None, quick: str, interpreters: Mapping[str, str] | None = None
) -> argparse.ArgumentParser:
    """Those of `softmesh bench NAME`; `interpreters` names the package that --KEY-python is to have."""
    parser = Parser(prog=f"softmesh bench {name}", description=(about or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    about_file = f"list the ratios that are worse than in this recorded output by more than {TOLERANCE * 100:.0f} %%"
    parser.add_argument("--against", type=Recorded.read, metavar="FILE", help=about_file)
    for peer, package in (interpreters or {}).items():
        about_python = f"the interpreter that has {package} (default: this)"
        parser.add_argument(f"--{peer}-python", default=sys.executable, metavar="PATH", help=about_python)
    return parser


_WIDTH_IN_FILES = 132


def machine() -> str:
    """The processor and the versions that decide the numbers, in one line."""
    return (
        f"softmesh {_version()}; {_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads; "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"{'compiled kernels' if is_compiled() else 'no compiled kernels'}, "
        f"bfloat16 products {'by ' + unit if (unit := bfloat16_unit()) else 'in fp32'}"
    )


def _version() -> str:
    """The commit of a checkout, `-dirty` where files differ from it; the version of an installed package."""
    root = Path(ttnn.__file__).parent.parent
    if (root / ".git").exists():
        asked = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
        if answer.returncode == 0:
            return f"at {answer.stdout.strip()}"
    return ttnn.__version__


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


HIGHER, LOWER = True, False  # the ratios that are better


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: int = 1,
    *,
    keys: int | None = None,
    ratios: Mapping[str, bool] | None = None,
) -> RatioTable:
    """Build a table whose first `words` columns hold words, and the others numbers.

    The first `keys` columns (by default, those of words) identify a row. `ratios` are the columns that can be compared
    with a recorded run: HIGHER or LOWER is better.
    """
    made = RatioTable(title=title, title_justify="left")
    made.keys, made.ratios = words if keys is None else keys, ratios or {}
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i < words else "right")
    for row in rows:
        made.add_row(*row)
    return made


def size(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def digits(us: float) -> str:
    return f"{us:.1f}" if us < 100 else f"{us:,.0f}"


def show(*parts: Table | str, against: Recorded | None = None) -> int:
    """Print tables and sentences. Return the exit code: 1 if a ratio is worse than the recorded one."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_IN_FILES, highlight=False, markup=False)
    for part in parts:
        console.print(part)
    if against is None:
        return 0
    falls, said = against.compared_with([part for part in parts if isinstance(part, RatioTable)])
    if falls:
        rows = [[fall.row, fall.column, fall.recorded, fall.today, f"{fall.share:.0%}"] for fall in falls]
        console.print(table("Worse than recorded", ["row", "ratio", "recorded", "today", "worse by"], rows, words=2))
    for sentence in said:
        console.print(sentence)
    return 1 if falls else 0


def show_json(**contents: Any) -> None:
    print(json.dumps({"machine": machine(), **contents}, indent=2))
