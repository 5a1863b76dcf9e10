"""`%load_ext softmesh`: `import ttnn` works in a notebook, and messages name its cells: `cell 3, line 2`."""

from __future__ import annotations

import re
import warnings
from typing import Any

from softmesh import alias, callsite

_NUMBER = re.compile(r"In\s*\[(\d+)\]")
_plain_format = warnings.formatwarning


def load_ipython_extension(shell: Any) -> None:
    """IPython calls it; `shell` is its InteractiveShell."""

    def cell_of(file: str) -> str | None:
        label = shell.compile.format_code_name(file)
        number = None if label is None else _NUMBER.search(label[1])
        return None if number is None else f"cell {number[1]}"

    alias.install()
    callsite.name_cells_with(cell_of)
    warnings.formatwarning = _formatted


def unload_ipython_extension(shell: Any) -> None:
    alias.uninstall()
    callsite.name_cells_with(None)
    warnings.formatwarning = _plain_format


def _formatted(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    site = callsite.CallSite(filename, lineno, "")
    if site.cell is None:
        return _plain_format(message, category, filename, lineno, line)
    return f"{site}: {category.__name__}: {message}\n"
