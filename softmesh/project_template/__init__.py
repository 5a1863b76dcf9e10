"""`softmesh new`: a small mesh program with its test and the CI file that runs it without cards."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Iterator
from pathlib import Path

import click

from softmesh.terminal_text import echo
from softmesh.version import __version__

_FILES = Path(__file__).parent / "files"
_SUFFIX = ".template"  # so that nothing takes them for files of softmesh's own
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def written_files(name: str) -> Iterator[tuple[Path, str]]:
    """Each file of the new project, relative to its folder, with its text."""
    for source in sorted(_FILES.rglob(f"*{_SUFFIX}")):
        target = source.relative_to(_FILES).as_posix().removesuffix(_SUFFIX).replace("NAME", name).replace("dot-", ".")
        text = source.read_text(encoding="utf-8")
        yield Path(target), text.replace("@NAME@", name).replace("@VERSION@", __version__)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name")
def new(name: str) -> None:
    """Write a small mesh program with its test and its CI file into a new folder NAME.

    The program is tensor parallel on any mesh; the test holds it against torch; the CI file (GitHub Actions) runs the
    test on a machine without cards.

    \b
    Example:
      softmesh new my_model
    """
    folder = Path(name)
    if _NAME.fullmatch(folder.name) is None or keyword.iskeyword(folder.name):
        raise click.UsageError(
            f"{folder.name[:80]!r} cannot name a Python module: begin with a letter, go on with letters, digits and _. "
            "Words of Python's own, such as class, are no names."
        )
    if os.path.exists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise click.UsageError(f"{folder} exists and is not empty: choose another name, or an empty folder.")
    try:
        for path, text in written_files(folder.name):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            echo(f"Wrote {target}")
    except OSError as error:
        raise click.ClickException(f"cannot write into {folder}: {error.strerror}.") from None
    echo(f"\nNext:\n    cd {os.fspath(folder)}\n    softmesh run {folder.name}.py\n    pytest")
