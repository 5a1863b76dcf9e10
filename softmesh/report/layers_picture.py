"""The layers of the code as a picture: reads docs/layers.yaml, draws a row for each layer.

python -m softmesh.report.layers_picture docs/layers.yaml docs/layers.svg
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import yaml

from softmesh.report.drawing import FADED, LINE, PAPER, Panel, picture, shaded_tints, text_width

_WIDTH = 900.0
_NAME, _SAID, _UNIT = 14.0, 11.5, 12.0  # font sizes
_PADDING, _GAP = 12.0, 8.0
_HEADING = 20.0
_BOX = 26.0
_BESIDE = 208.0  # where sentences begin
_HUES, _BLUE = 12, 7


class Layer(NamedTuple):
    """Packages (`tensor/`) and root modules (`mesh.py`); those to the left may import those to the right."""

    name: str
    says: str
    holds: tuple[str, ...]


class Late(NamedTuple):
    """A module of a layer above that a package or root module looks up when a user asks for it."""

    source: str
    target: str
    why: str


class Layers(NamedTuple):
    """From the top down."""

    layers: tuple[Layer, ...]
    late: tuple[Late, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Layers:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        layers = (Layer(one["name"], one["says"], tuple(one["holds"])) for one in found["layers"])
        late = (Late(one["from"], one["to"], one["why"]) for one in found.get("late") or ())
        return cls(tuple(layers), tuple(late))


def layers_svg(layers: Layers) -> str:
    content = Panel()
    y = 0.0
    for layer, tint in zip(layers.layers, _depths(len(layers.layers)), strict=True):
        row = _row(layer, tint)
        content.put(row, 0, y)
        y += row.height + _GAP
    content.text(_PADDING, y + _HEADING, "Imports point down, and within a layer to the right.", _SAID, fill=FADED)
    return picture(content, "The layers of softmesh, from programs down to the ground")


def _depths(count: int) -> list[str]:
    """One blue, darker from layer to layer: what lies deeper carries more."""
    return shaded_tints(_HUES, count)[_BLUE]


def _row(layer: Layer, tint: str) -> Panel:
    boxes: list[tuple[str, float, float, float]] = []  # name, x, y, width
    x, y = _PADDING, _PADDING + _HEADING
    for unit in layer.holds:
        width = text_width(unit, _UNIT) + 2 * _GAP
        if x + width > _WIDTH - _PADDING:
            x, y = _PADDING, y + _BOX + _GAP
        boxes.append((unit, x, y, width))
        x += width + _GAP
    row = Panel()
    row.rectangle(0, 0, _WIDTH, y + _BOX + _PADDING, tint, stroke=tint, radius=8, kind="layer")
    row.text(_PADDING, _PADDING + _NAME * 0.7, layer.name, _NAME, bold=True, mono=False)
    row.text(_BESIDE, _PADDING + _NAME * 0.7, layer.says.replace("`", ""), _SAID, mono=False)
    for unit, x, y, width in boxes:
        row.rectangle(x, y, width, _BOX, PAPER, stroke=LINE, radius=4, kind="unit")
        row.text(x + width / 2, y + _BOX / 2 + _UNIT * 0.35, unit, _UNIT, anchor="middle")
    return row


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
def draw(source: Path, target: Path) -> None:
    """Draw the layers that the file SOURCE lists into the SVG file TARGET."""
    target.write_text(layers_svg(Layers.read(source)), encoding="utf-8")


if __name__ == "__main__":
    draw()
