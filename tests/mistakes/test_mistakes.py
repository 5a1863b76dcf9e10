"""What softmesh says of each mistake on one process, in each mode; and that it says nothing of right programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
from catalogue import MISTAKES, RIGHT, Mistake, Program, Told, load, of_a_job, title, topic, wants

import softmesh as ttnn
from softmesh.errors import SoftmeshWarning
from softmesh.runtime.device_lifecycle import open_meshes

load()
ALONE = [mistake for mistake in MISTAKES if not of_a_job(mistake.program)]
NEIGHBOURS = [program for program in RIGHT if not of_a_job(program)]


class Said(NamedTuple):
    """All that softmesh said: its warnings, and the error that ended the program."""

    warnings: list[str]
    error: str | None


@contextmanager
def surroundings(program: Program, folder: Path) -> Iterator[dict[str, object]]:
    """What the program asks for."""
    wanted = wants(program)
    given: dict[str, object] = {"folder": folder} if "folder" in wanted else {}
    if "mesh" in wanted:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        given["mesh"] = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), trace_region_size=1 << 20)
    yield given


def said_of(program: Program, folder: Path) -> Said:
    with warnings.catch_warnings(record=True) as told, surroundings(program, folder) as given:
        warnings.simplefilter("always")
        error = error_of(lambda: program(**given))
        for mesh in open_meshes():  # what is said as they close belongs to the program
            closing = error_of(mesh.close)
            error = error or closing
    return Said([str(one.message) for one in told if issubclass(one.category, SoftmeshWarning)], error)


def error_of(work: Callable[[], object]) -> str | None:
    """Of whatever kind: its words are looked at."""
    try:
        work()
    except Exception as raised:
        return str(raised)
    return None


def has(texts: list[str], words: tuple[str, ...]) -> bool:
    """Whether one of the texts has all the words."""
    return any(all(word in text for word in words) for text in texts)


def name(case: Mistake | Program) -> str:
    program = case.program if isinstance(case, Mistake) else case
    return f"{topic(program)}-{title(program)}"


mistakes = pytest.mark.parametrize("mistake", ALONE, ids=name)
pytestmark = pytest.mark.usefixtures("idle_machine")


@mistakes
def test_by_default(mistake: Mistake, tmp_path, monkeypatch):
    monkeypatch.delenv("SOFTMESH_STRICT", raising=False)
    said = said_of(mistake.program, tmp_path)
    if mistake.told is Told.ERROR:
        assert has([said.error or ""], mistake.says), said
    else:
        assert said.error is None
    if mistake.told in (Told.WARNING, Told.REMARK):
        assert has(said.warnings, mistake.says), said
    elif mistake.told in (Told.STRICT, Told.SANITIZER, Told.NOTHING):
        assert said.warnings == []


@mistakes
def test_in_strict_mode(mistake: Mistake, tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with ttnn.sanitize() if mistake.told is Told.SANITIZER else nullcontext():
        said = said_of(mistake.program, tmp_path)
    if mistake.told in (Told.STRICT, Told.REMARK):
        assert said.error is None
        assert has(said.warnings, mistake.says), said
    elif mistake.told is Told.NOTHING:
        assert said == ([], None)
    else:
        assert has([said.error or ""], mistake.says), said


@pytest.mark.parametrize("program", NEIGHBOURS, ids=name)
@pytest.mark.parametrize("mode", ["default", "strict"])
def test_nothing_is_said_of_right_programs(program: Program, mode, tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", str(int(mode == "strict")))
    with ttnn.sanitize() if mode == "strict" else nullcontext([]) as findings:
        said = said_of(program, tmp_path)
    assert said == ([], None)
    assert findings == []
