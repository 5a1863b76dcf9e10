"""The --output option of `softmesh show` and `softmesh schedule`: a picture goes into an .svg or an .html file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def _parse_output(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() not in (".svg", ".html"):
        raise click.BadParameter(f"{str(path)!r} is neither .svg nor .html; choose one of the two.")
    return path


def output_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", callback=_parse_output, type=kind, help=about)


def is_page(path: Path) -> bool:
    return path.suffix.lower() == ".html"


def write_picture(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}.") from None
    click.echo(f"Wrote {path}")
