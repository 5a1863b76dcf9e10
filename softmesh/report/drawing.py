"""The few shapes our pictures are made of, as SVG elements.

Built as a tree of XML elements, so texts are escaped and tags are closed by construction. All looks are
attributes: a style sheet inside one picture would reach the whole notebook page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree

INK = "#141b24"
FADED = "#5b6773"
PAPER = "#ffffff"
EMPTY = "#f3f5f7"
LINE = "#8a95a1"

_SANS = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
_MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
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


def picture(content: Panel, description: str, margin: float = 16) -> str:
    """A whole SVG document around one panel, on white so that it reads on dark pages too."""
    width, height = _number(content.width + 2 * margin), _number(content.height + 2 * margin)
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width} {height}",
            "width": width,  # the height follows from the viewBox, also where a page squeezes the width
            "style": "max-width:100%",
            "font-family": _MONO,
            "role": "img",
        },
    )
    ElementTree.SubElement(root, "title").text = description
    page = ElementTree.Element("rect", {"width": width, "height": height, "rx": "8", "fill": PAPER})
    root.append(page)
    content.element.set("transform", f"translate({_number(margin)} {_number(margin)})")
    root.append(content.element)
    return ElementTree.tostring(root, encoding="unicode")
