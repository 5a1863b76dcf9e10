"""What the benchmarks share in showing: the machine they ran on, tables, and JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from softmesh.native.library import is_compiled

_WIDTH_IN_FILES = 132


def machine() -> str:
    """The processor and the versions that decide the numbers, in one line."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads; "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"{'compiled kernels' if is_compiled() else 'no compiled kernels'}"
    )


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> Table:
    """The first `words` columns hold words, the others numbers."""
    made = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i < words else "right")
    for row in rows:
        made.add_row(*row)
    return made


def show(*parts: Table | str) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_IN_FILES, highlight=False, markup=False)
    for part in parts:
        console.print(part)


def show_json(**contents: Any) -> None:
    print(json.dumps({"machine": machine(), **contents}, indent=2))
