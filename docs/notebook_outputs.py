"""Runs the tutorial notebooks, and keeps in them what their cells show: `python docs/notebook_outputs.py`.

The manual and GitHub show a notebook as it was last run, so this is to be called after a change of pictures or texts.
The suite holds what is kept against what the cells show today.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

NOTEBOOKS = sorted(Path(__file__).parent.glob("notebooks/*.ipynb"))
_KINDS = ("text/html", "text/plain")


def outputs_of(shell: InteractiveShell, cell: str, number: int) -> list[dict[str, Any]]:
    """What one cell prints, and what its last line is, as a notebook keeps them."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = shell.run_cell(cell, store_history=True, silent=False)
    result.raise_error()
    text = printed.getvalue()
    if result.result is None:
        return [{"name": "stdout", "output_type": "stream", "text": lines(text)}] if text else []
    shown, _ = shell.display_formatter.format(result.result, include=_KINDS)
    data = {kind: lines(shown[kind]) for kind in _KINDS if kind in shown}
    return [{"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}]


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(path: Path) -> None:
    shell = InteractiveShell.instance()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for number, cell in enumerate(code_cells(notebook), 1):
        cell["outputs"], cell["execution_count"] = outputs_of(shell, "".join(cell["source"]), number), number
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        run(Path(given))
    if len(sys.argv) == 1:
        for each in NOTEBOOKS:  # in a process of its own, as a kernel would
            subprocess.run([sys.executable, __file__, str(each)], check=True)
