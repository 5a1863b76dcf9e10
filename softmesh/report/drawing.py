"""Rectangles, colours and SVG elements: what all pictures are drawn with.

SVG is built as a tree of XML elements, so texts are escaped and tags are closed by construction. All looks are
attributes; the style sheet of a picture only exchanges its colours on a dark page, and reaches pictures alone. Ink
reads on every colour that stands for a group of devices, light or dark.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.etree import ElementTree

from softmesh.report.dark_colours import CLASS, dark_sheet, used_colours

# Light, and apart from one another for all common kinds of colour vision (after Okabe and Ito).
_FEW = ("#8fc1ee", "#f6b873", "#86d3b0", "#eeaacb", "#f1e27e", "#bfb6ee", "#d8b79b", "#c6cdd4")


def hue_wheel(count: int) -> list[str]:
    """TT-NN's own colours for the terminal: evenly spaced hues."""
    return [_hex(number / count, 0.48, 0.80) for number in range(count)]


def tints(count: int) -> list[str]:
    """Colours for pictures: a fixed set where it suffices, else hues of alternating brightness."""
    if count <= len(_FEW):
        return list(_FEW[:count])
    return [_hex(number / count, *((0.30, 0.97), (0.40, 0.84))[number % 2]) for number in range(count)]


def shaded_tints(hues: int, shades: int) -> list[list[str]]:
    """`shades` steps from light to dark in each of `hues` hues."""
    steps = [step / max(shades - 1, 1) for step in range(shades)]
    return [[_hex(hue / hues, 0.20 + 0.22 * step, 0.99 - 0.14 * step) for step in steps] for hue in range(hues)]


def _hex(hue: float, saturation: float, value: float) -> str:
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, saturation, value))
    return f"#{red:02x}{green:02x}{blue:02x}"


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def centre(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    def moved(self, right: float, down: float) -> Box:
        return Box(self.x + right, self.y + down, self.width, self.height)

    def grown(self, by: float) -> Box:
        return Box(self.x - by, self.y - by, self.width + 2 * by, self.height + 2 * by)

    def holds(self, point: tuple[float, float]) -> bool:
        return self.x <= point[0] <= self.right and self.y <= point[1] <= self.bottom

    def contains(self, other: Box) -> bool:
        return self.holds((other.x, other.y)) and self.holds((other.right, other.bottom))

    def touches(self, other: Box) -> bool:
        return self.shared_area(other) > 0

    def shared_area(self, other: Box) -> float:
        width = min(self.right, other.right) - max(self.x, other.x)
        height = min(self.bottom, other.bottom) - max(self.y, other.y)
        return max(width, 0) * max(height, 0)


def enclosing(boxes: Iterable[Box]) -> Box:
    kept = list(boxes)
    x, y = min(box.x for box in kept), min(box.y for box in kept)
    return Box(x, y, max(box.right for box in kept) - x, max(box.bottom for box in kept) - y)


INK = "#141b24"
FADED = "#5b6773"
PAPER = "#ffffff"
EMPTY = "#f3f5f7"
LINE = "#8a95a1"

_SANS = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
_MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SQUEEZED = "max-width:100%"  # no wider than the page
READABLE = 9.0  # pixels: no letter on a page is smaller
_MONO_ADVANCE = 0.61  # width of a character, in font sizes
_SANS_ADVANCE = 0.57
_BOLD_SANS_ADVANCE = 0.66


def text_width(text: str, size: float, *, mono: bool = True, bold: bool = False) -> float:
    sans = _BOLD_SANS_ADVANCE if bold else _SANS_ADVANCE
    return len(text) * size * (_MONO_ADVANCE if mono else sans)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass
class Panel:
    """A part of a picture with its own origin and a size known once it is drawn."""

    element: ElementTree.Element = field(default_factory=lambda: ElementTree.Element("g"))
    width: float = 0
    height: float = 0

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        *,
        stroke: str = LINE,
        radius: float = 0,
        dashed: bool = False,
        kind: str | None = None,
        tip: str | None = None,
    ) -> None:
        attributes = {
            "x": _number(x),
            "y": _number(y),
            "width": _number(width),
            "height": _number(height),
            "fill": fill,
            "stroke": stroke,
        }
        if radius:
            attributes["rx"] = _number(radius)
        if dashed:
            attributes["stroke-dasharray"] = "4 3"
        if kind is not None:
            attributes["class"] = kind
        element = ElementTree.SubElement(self.element, "rect", attributes)
        if tip is not None:
            ElementTree.SubElement(element, "title").text = tip
        self._reach(x + width, y + height)

    def text(
        self,
        x: float,
        y: float,
        content: str,
        size: float,
        *,
        anchor: str = "start",
        fill: str = INK,
        bold: bool = False,
        mono: bool = True,
    ) -> None:
        """One line with its baseline at `y`."""
        attributes = {
            "x": _number(x),
            "y": _number(y),
            "font-size": _number(size),
            "fill": fill,
        }
        if not mono:
            attributes["font-family"] = _SANS
        if anchor != "start":
            attributes["text-anchor"] = anchor
        if bold:
            attributes["font-weight"] = "600"
        ElementTree.SubElement(self.element, "text", attributes).text = content
        width = text_width(content, size, mono=mono, bold=bold)
        self._reach(x + width * {"start": 1, "middle": 0.5, "end": 0}[anchor], y + size * 0.3)

    def put(self, panel: Panel, x: float, y: float) -> None:
        panel.element.set("transform", f"translate({_number(x)} {_number(y)})")
        self.element.append(panel.element)
        self._reach(x + panel.width, y + panel.height)

    def _reach(self, right: float, bottom: float) -> None:
        self.width, self.height = max(self.width, right), max(self.height, bottom)


def titled_page(heading: str, subheading: str) -> Panel:
    page = Panel()
    page.text(0, 13, heading, 15, bold=True, mono=False)
    page.text(0, 32, subheading, 12, fill=FADED, mono=False)
    return page


def picture(content: Panel, description: str, margin: float = 16, scale: float = 1.0) -> str:
    """A whole SVG document around one panel, on paper of its own: white, or dark where the page is."""
    root = _document(content, description, margin, scale)
    root.set("class", CLASS)
    width, height = root.attrib["viewBox"].split()[2:]
    paper = ElementTree.Element("rect", {"width": width, "height": height, "rx": "8", "fill": PAPER})
    root.insert(1, paper)
    sheet = ElementTree.Element("style")
    sheet.text = dark_sheet(used_colours(root))
    root.insert(1, sheet)
    return ElementTree.tostring(root, encoding="unicode")


def bare_picture(content: Panel, description: str, margin: float) -> str:
    """As `picture`, for a page that brings ground and colours of its own."""
    return ElementTree.tostring(_document(content, description, margin, 1.0), encoding="unicode")


def scrolling(svg: str) -> str:
    """Put a picture into a frame of a page, where it scrolls before its smallest letters get hard to read."""
    smallest = min(map(float, re.findall(r'font-size="([\d.]+)"', svg)), default=READABLE)
    width = float(svg.partition('viewBox="')[2].split()[2].rstrip('"')) * READABLE / smallest
    sized = svg.replace(_SQUEEZED, f"{_SQUEEZED};min-width:{width:.0f}px", 1)
    return f'<div style="overflow-x:auto">{sized}</div>'


def _document(content: Panel, description: str, margin: float, scale: float) -> ElementTree.Element:
    width, height = _number(content.width + 2 * margin), _number(content.height + 2 * margin)
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width} {height}",
            "width": _number(
                float(width) * scale
            ),  # the height follows from the viewBox, also where a page squeezes the width
            "style": _SQUEEZED,
            "font-family": _MONO,
            "role": "img",
        },
    )
    ElementTree.SubElement(root, "title").text = description
    content.element.set("transform", f"translate({_number(margin)} {_number(margin)})")
    root.append(content.element)
    return root
