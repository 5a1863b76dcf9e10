"""Characters on a grid, each with a style: what terminal drawings are composed on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from softmesh.report.wiring.picture import printable

if TYPE_CHECKING:  # rich is loaded by the first picture
    from rich.text import Text


class Canvas:
    """Grows to the right and downwards as things are put on it."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, int], tuple[str, str]] = {}
        self.width = 0
        self.height = 0

    def put(self, row: int, column: int, text: str, style: str = "") -> None:
        for i, character in enumerate(printable(text)):
            self._marks[row, column + i] = character, style
        self.width = max(self.width, column + len(text))
        self.height = max(self.height, row + 1)

    def paste(self, other: Canvas, row: int, column: int) -> None:
        for (down, right), (character, style) in other._marks.items():
            self.put(row + down, column + right, character, style)

    def lines(self) -> list[Text]:
        from rich.text import Text

        lines = []
        for row in range(self.height):
            line = Text(no_wrap=True, overflow="crop")
            for column in range(self.width):
                line.append(*self._marks.get((row, column), (" ", "")))
            line.rstrip()
            lines.append(line)
        return lines


def framed(content: Canvas, title: str, style: str = "") -> Canvas:
    """In a box with its name in the upper edge."""
    frame = Canvas()
    inner = max(content.width + 2, len(title) + 3)
    frame.put(0, 0, f"┌ {title} ".ljust(inner + 1, "─") + "┐", style)
    for row in range(content.height):
        frame.put(row + 1, 0, "│", style)
        frame.put(row + 1, inner + 1, "│", style)
    frame.put(content.height + 1, 0, "└" + "─" * inner + "┘", style)
    frame.paste(content, 1, 2)
    return frame


def flowed(parts: Sequence[Canvas], room: int) -> Canvas:
    """Side by side while there is room, then below."""
    whole = Canvas()
    top = column = 0
    for part in parts:
        if column and column + part.width > room:
            top, column = whole.height, 0
        whole.paste(part, top, column)
        column += part.width + 1
    return whole


def longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)
