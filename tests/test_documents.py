"""README and docs tell the truth: each Python block and each softmesh command prints what the document says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import softmesh
from softmesh.cli import commands
from softmesh.runtime.device_lifecycle import open_meshes

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<output>.*?)```)?", re.DOTALL)

EXAMPLES = [
    pytest.param(document.stem, match["code"], match["output"], id=f"{document.stem}-{i}")
    for document in DOCUMENTS
    for i, match in enumerate(BLOCK.finditer(document.read_text(encoding="utf-8")))
]


PICTURE = re.compile(r"`softmesh (?P<command>[^`]* -o docs/\w+\.svg)`")

DRAWN = sorted(
    {
        " ".join(match["command"].split())
        for document in DOCUMENTS
        for match in re.finditer(
            r"`softmesh (?P<command>[^`]* -o docs/\w+\.svg)`", document.read_text(encoding="utf-8")
        )
    }
)

SESSION = re.compile(r"```console\n\$ softmesh (?P<command>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)

SESSIONS = [
    pytest.param(match["command"], match["output"], id=f"{document.stem}-{i}")
    for document in DOCUMENTS
    for i, match in enumerate(SESSION.finditer(document.read_text(encoding="utf-8")))
]


def run(code: str, name: str) -> str:
    """What a user would see: printed text, and warnings as Python shows them."""
    output, lines = io.StringIO(), code.splitlines()

    def show(message: Warning | str, category: type[Warning], file: str, line: int, *_: object) -> None:
        output.write(warnings.formatwarning(message, category, file, line, lines[line - 1]))

    with warnings.catch_warnings(), contextlib.redirect_stdout(output):
        warnings.simplefilter("always")
        warnings.showwarning = show
        exec(compile(code, f"{name}.py", "exec"), {"__name__": "__main__"})
    return output.getvalue()


@pytest.mark.parametrize(("name", "code", "expected"), EXAMPLES)
def test_a_documented_example_prints_what_the_document_says(name: str, code: str, expected: str | None) -> None:
    printed = run(code, name)
    if expected is not None:
        assert printed == expected


@pytest.mark.parametrize(("command", "expected"), SESSIONS)
def test_a_documented_command_prints_what_the_document_says(
    command: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    result = CliRunner().invoke(commands, shlex.split(command))
    assert result.output == expected


@pytest.fixture(autouse=True)
def _find_and_leave_nothing():  # type: ignore[no-untyped-def]
    _close_all()
    yield
    _close_all()


def _close_all() -> None:
    for mesh in open_meshes():
        softmesh.close_mesh_device(mesh)
    softmesh.set_fabric_config(softmesh.FabricConfig.DISABLED)
    softmesh.use_system(None)


def test_the_log_that_the_readme_shows_has_the_new_tensor_and_the_ops() -> None:
    code = next(example.values[1] for example in EXAMPLES if "log_commands" in str(example.values[1]))
    printed = run(str(code), "README")
    assert re.findall(r"^ \d +(\w+)", printed, re.MULTILINE) == ["rand", "add", "relu"]


def test_there_are_examples_to_run() -> None:
    assert len(EXAMPLES) >= 5
    assert len(SESSIONS) >= 2


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_of_the_project_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|reference/)([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("command", DRAWN)
def test_a_picture_of_the_documents_is_what_its_command_draws(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *words, _, file = shlex.split(command)
    monkeypatch.chdir(ROOT)
    drawn = tmp_path / "drawn.svg"
    assert CliRunner().invoke(commands, [*words, "-o", str(drawn)]).exit_code == 0
    assert drawn.read_text(encoding="utf-8") == Path(file).read_text(encoding="utf-8"), f"draw it again: {command}"
