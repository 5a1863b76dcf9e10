"""Colours for groups of devices: dark text reads on every one of them."""

from __future__ import annotations

import colorsys

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
    return [
        [_hex(hue / hues, 0.20 + 0.22 * step, 0.99 - 0.14 * step) for step in steps] for hue in range(hues)
    ]


def _hex(hue: float, saturation: float, value: float) -> str:
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, saturation, value))
    return f"#{red:02x}{green:02x}{blue:02x}"
