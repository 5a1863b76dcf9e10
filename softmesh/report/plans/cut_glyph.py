"""A tensor as a small rectangle, cut as its devices share it; a part has one colour wherever it lies."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.distributed.layouts import Layout
from softmesh.placement.placements import Partial, Shard
from softmesh.report.drawing import EMPTY, LINE, Panel, tints

WIDTH, HEIGHT = 44.0, 24.0
_MOST = 8  # parts that are drawn along a dim
_STEP = 2.5  # between cards


def cut_glyph(shape: Sequence[int], layout: Layout, mesh: Sequence[int], tip: str) -> Panel:
    """Columns are the last dim, rows the one before; what splits another dim is a stack of cards."""
    panel = Panel()
    rank = len(shape)
    parts = [1] * max(rank, 1)
    for n, word in zip(mesh, layout, strict=True):
        if isinstance(word, Shard) and n > 1:
            parts[word.dim] *= n
    is_sum = any(isinstance(word, Partial) and n > 1 for n, word in zip(mesh, layout, strict=True))
    columns = min(parts[-1], _MOST)
    rows = min(parts[-2], _MOST) if rank > 1 else 1
    cards = min(max([1, *parts[:-2]]), 4)
    colours = tints(rows * columns * cards) if rows * columns * cards > 1 else [EMPTY]
    for card in reversed(range(cards)):
        _card(panel, card, cards, (rows, columns), colours)
    panel.rectangle(0, 0, WIDTH, HEIGHT, "none", stroke=LINE, dashed=is_sum, radius=2, tip=tip)
    if is_sum:
        panel.text(WIDTH / 2, HEIGHT / 2 + 4.5, "sum", 11, anchor="middle", bold=True)
    return panel


def _card(panel: Panel, card: int, cards: int, cuts: tuple[int, int], colours: Sequence[str]) -> None:
    rows, columns = cuts
    width, height = WIDTH - (cards - 1) * _STEP, HEIGHT - (cards - 1) * _STEP
    for row in range(rows):
        for column in range(columns):
            panel.rectangle(
                card * _STEP + column * width / columns,
                (cards - 1 - card) * _STEP + row * height / rows,
                width / columns,
                height / rows,
                colours[(card * rows + row) * columns + column],
                stroke="#ffffff" if max(rows, columns) <= 4 else "none",
            )
