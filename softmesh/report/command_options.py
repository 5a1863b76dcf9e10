"""Options of the commands that draw: parsed values, and the .svg, .png or .html files that they write."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from softmesh.terminal_text import echo

_Value = TypeVar("_Value")
_PIXELS_PER_UNIT = 2  # sharp on the screens of today


def when_given(
    parse: Callable[[Any], _Value],
) -> Callable[[click.Context, click.Parameter, Any], _Value | None]:
    """A callback of click that leaves alone what was not given."""
    return lambda context, option, value: None if value is None else parse(value)


def drawn_file(*kinds: str) -> Callable[[str | Path], Path]:
    """Parses the name of a file that something is drawn into, by its ending."""
    return lambda name: _checked(Path(name), kinds)


def _checked(path: Path, kinds: tuple[str, ...]) -> Path:
    kind = path.suffix.lower()
    if kind not in kinds:
        choice = kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        raise click.BadParameter(f"{str(path)!r} does not end in {choice}.")
    if kind == ".png" and importlib.util.find_spec("resvg_py") is None:
        raise click.BadParameter("PNG pictures are made by resvg: pip install 'softmesh[png]', or choose .svg.")
    return writable(path)


def writable(name: str | Path) -> Path:
    path = Path(name)
    if os.path.isdir(path):
        raise click.BadParameter(f"{str(path)!r} is a folder: name a file in it.")
    if not os.path.isdir(path.resolve().parent):
        raise click.BadParameter(f"There is no folder {path.resolve().parent} to write {path.name} into.")
    return path


def output_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "-o", "--output", metavar="FILE", callback=when_given(drawn_file(".svg", ".png", ".html")), help=about
    )


def is_page(path: Path) -> bool:
    return path.suffix.lower() == ".html"


def write_picture(path: Path, text: str) -> None:
    save(path, text)
    echo(f"Wrote {path}")


def save(path: Path, text: str) -> None:
    """`text` is a page, a program or an SVG; for a .png file the SVG is drawn as pixels."""
    try:
        path.write_bytes(_pixels(text) if path.suffix.lower() == ".png" else text.encode())
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}.") from None


def _pixels(svg: str) -> bytes:
    from resvg_py import svg_to_bytes

    return bytes(svg_to_bytes(svg_string=svg, zoom=_PIXELS_PER_UNIT))
