"""The programs of docs/clients.md print what it says, where the packages that they are written for are installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parent.parent / "docs" / "clients.md"
PROGRAM = re.compile(r"```py\n# (?P<name>\w+)\.py\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
PACKAGES = {"compiled": "torch_ttnn", "symbiote": "tt_symbiote"}


def programs() -> dict[str, re.Match[str]]:
    return {match["name"]: match for match in PROGRAM.finditer(DOCUMENT.read_text(encoding="utf-8"))}


def test_each_package_has_its_program() -> None:
    assert set(programs()) == set(PACKAGES)


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_program_for_another_package_prints_what_the_document_says(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} is not installed beside softmesh")
    program = tmp_path / f"{name}.py"
    program.write_text(programs()[name]["code"], encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "softmesh", str(program)]
    env = {**os.environ, "MESH_DEVICE": "T3K", "SOFTMESH_SYSTEM": "T3000"}
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    assert programs()[name]["output"].strip() in found.stdout
