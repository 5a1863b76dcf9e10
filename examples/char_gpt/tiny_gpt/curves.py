"""Losses as a table, and as curves in an SVG picture."""

from collections.abc import Sequence
from dataclasses import dataclass

_COLOURS = ("#222222", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
_DARK = "<style>@media (prefers-color-scheme: dark) { :root { filter: invert(0.9) hue-rotate(180deg) } }</style>"
_WIDTH, _HEIGHT, _MARGIN = 720, 400, 50


@dataclass(frozen=True)
class Curve:
    name: str
    losses: Sequence[float]
    seconds: float

    def strays_from(self, other: "Curve") -> float:
        return max(abs(a - b) for a, b in zip(self.losses, other.losses, strict=True))


def table(curves: Sequence[Curve]) -> str:
    steps = len(curves[0].losses)
    shown = sorted({0, *range(0, steps, max(1, steps // 5)), steps - 1})
    wide = max(len(curve.name) for curve in curves)
    head = " ".join([" " * wide, *(f"{f'step {step}':>10}" for step in shown), "   strays   s/step"])
    lines = [
        " ".join(
            [
                f"{curve.name:<{wide}}",
                *(f"{curve.losses[step]:10.5f}" for step in shown),
                f"{curve.strays_from(curves[0]):9.1e}",
                f"{curve.seconds / steps:8.3f}",
            ]
        )
        for curve in curves
    ]
    return "\n".join([head, *lines])


def drawn(curves: Sequence[Curve]) -> str:
    """Curves that lie on each other are dashed in turn, so that each can be seen."""
    steps = len(curves[0].losses)
    top = max(max(curve.losses) for curve in curves)
    bottom = min(min(curve.losses) for curve in curves)

    def x(step: float) -> float:
        return _MARGIN + (_WIDTH - 2 * _MARGIN) * step / max(1, steps - 1)

    def y(loss: float) -> float:
        return _MARGIN + (_HEIGHT - 2 * _MARGIN) * (top - loss) / (top - bottom or 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        _DARK,
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for i in range(5):
        loss, step = bottom + (top - bottom) * i / 4, (steps - 1) * i / 4
        parts += [
            f'<line x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" stroke="#dddddd"/>',
            f'<text x="{_MARGIN - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.2f}</text>',
            f'<text x="{x(step):.1f}" y="{_HEIGHT - _MARGIN + 18}" text-anchor="middle">{step:.0f}</text>',
        ]
    for i, curve in enumerate(curves):
        points = " ".join(f"{x(step):.1f},{y(loss):.2f}" for step, loss in enumerate(curve.losses))
        dash = f'stroke-dasharray="6 {6 * (len(curves) - 1)}" stroke-dashoffset="{-6 * i}"' if i else ""
        colour = _COLOURS[i % len(_COLOURS)]
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{2.5 if i else 1.5}" {dash}/>',
            f'<line x1="{_WIDTH - 190}" x2="{_WIDTH - 160}" y1="{70 + 18 * i}" y2="{70 + 18 * i}" stroke="{colour}" '
            'stroke-width="3"/>',
            f'<text x="{_WIDTH - 152}" y="{74 + 18 * i}">{curve.name}</text>',
        ]
    parts += [
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">step</text>',
        f'<text x="{_MARGIN}" y="30">loss: {len(curves)} forms of one training</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
