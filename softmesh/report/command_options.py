"""Options of `softmesh show` and `softmesh schedule`: values that are parsed, and --output, an .svg or .html file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Value = TypeVar("_Value")


def when_given(
    parse: Callable[[Any], _Value],
) -> Callable[[click.Context, click.Parameter, Any], _Value | None]:
    """A callback of click that leaves alone what was not given."""
    return lambda context, option, value: None if value is None else parse(value)


def _parse_output(path: Path) -> Path:
    if path.suffix.lower() not in (".svg", ".html"):
        raise click.BadParameter(f"{str(path)!r} is neither .svg nor .html; choose one of the two.")
    return path


def output_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", callback=when_given(_parse_output), type=kind, help=about)


def is_page(path: Path) -> bool:
    return path.suffix.lower() == ".html"


def write_picture(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}.") from None
    click.echo(f"Wrote {path}")
