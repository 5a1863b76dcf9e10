"""Options of `softmesh show` and `softmesh schedule`: parsed values, and --output, an .svg, .png or .html file."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Value = TypeVar("_Value")
_PIXELS_PER_UNIT = 2  # sharp on the screens of today


def when_given(
    parse: Callable[[Any], _Value],
) -> Callable[[click.Context, click.Parameter, Any], _Value | None]:
    """A callback of click that leaves alone what was not given."""
    return lambda context, option, value: None if value is None else parse(value)


def _parse_output(path: Path) -> Path:
    kind = path.suffix.lower()
    if kind not in (".svg", ".png", ".html"):
        raise click.BadParameter(f"{str(path)!r} is neither .svg, .png nor .html; choose one of the three.")
    if kind == ".png" and importlib.util.find_spec("resvg_py") is None:
        raise click.BadParameter("PNG pictures are made by resvg: pip install 'softmesh[png]', or choose .svg.")
    return path


def output_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", callback=when_given(_parse_output), type=kind, help=about)


def is_page(path: Path) -> bool:
    return path.suffix.lower() == ".html"


def write_picture(path: Path, text: str) -> None:
    """`text` is a page or an SVG; for a .png file the SVG is drawn as pixels."""
    try:
        path.write_bytes(_pixels(text) if path.suffix.lower() == ".png" else text.encode())
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}.") from None
    click.echo(f"Wrote {path}")


def _pixels(svg: str) -> bytes:
    from resvg_py import svg_to_bytes

    return bytes(svg_to_bytes(svg_string=svg, zoom=_PIXELS_PER_UNIT))
