"""The dark variant of a picture: a style sheet that exchanges each of its colours where the page around it is dark.

A dark colour is the light one with its lightness turned around, so what was dark on light reads as light on dark.
Lightness is that of Oklab (Ottosson 2020), which the eye agrees with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from xml.etree import ElementTree

CLASS = "softmesh-picture"

_PAPER, _INK = 0.23, 0.94  # lightness that white and black become
_LIGHT_INK = 0.22  # lightness of the ink on white paper
_LIFT = 0.9  # tints stand out from dark paper as they do from white
_CHROMA = 0.9  # of what it was
_TOWARDS_BLUE = -0.012  # dark paper is a little blue, as dark pages are
_HEX = re.compile(r"#[0-9a-f]{6}")

Use = tuple[str, str]  # "fill" or "stroke", and a colour
_Triple = tuple[float, float, float]
_Matrix = tuple[_Triple, _Triple, _Triple]

_TO_CONES: _Matrix = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_LAB: _Matrix = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
_FROM_LAB: _Matrix = (
    (1.0, 0.3963377774, 0.2158037573),
    (1.0, -0.1055613458, -0.0638541728),
    (1.0, -0.0894841775, -1.2914855480),
)
_FROM_CONES: _Matrix = (
    (4.0767416621, -3.3077115913, 0.2309699292),
    (-1.2684380046, 2.6097574011, -0.3413193965),
    (-0.0041960863, -0.7034186147, 1.7076147010),
)


def dark_sheet(uses: Iterable[Use], scope: str = f".{CLASS}") -> str:
    """Rules for elements in `scope` that carry these colours as attributes.

    A picture in a page follows the page's `color-scheme`, a file of its own that of the reader. What knows no
    `light-dark()`, as the library that draws PNGs, keeps the light colours.
    """
    rules = "".join(f'{scope} [{use}="{colour}"]{{{use}:{light_or_dark(colour)}}}' for use, colour in sorted(set(uses)))
    return f"@supports (color:light-dark(#000,#fff)){{svg:root{{color-scheme:light dark}}{rules}}}"


def light_or_dark(colour: str) -> str:
    return f"light-dark({colour},{dark(colour)})"


def used_colours(picture: ElementTree.Element) -> set[Use]:
    """Those given as six digits; a page's own variables are the page's."""
    found = ((use, element.get(use, "")) for element in picture.iter() for use in ("fill", "stroke"))
    return {(use, colour) for use, colour in found if _HEX.fullmatch(colour)}


@lru_cache(maxsize=4096)
def dark(colour: str) -> str:
    """
    >>> dark("#ffffff"), dark("#141b24")
    ('#191e24', '#e4edf8')
    """
    lightness, red_green, blue_yellow = _lab(colour)
    share = min(max(1 - lightness, 0.0) / (1 - _LIGHT_INK), 1.0)
    turned = _PAPER + share**_LIFT * (_INK - _PAPER)
    return _hex((turned, red_green * _CHROMA, blue_yellow * _CHROMA + _TOWARDS_BLUE * lightness))


def _lab(colour: str) -> _Triple:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    long, middle, short = _times(_TO_CONES, (red, green, blue))
    return _times(_TO_LAB, (long ** (1 / 3), middle ** (1 / 3), short ** (1 / 3)))


def _hex(lab: _Triple) -> str:
    long, middle, short = _times(_FROM_LAB, lab)
    linear = (min(max(part, 0.0), 1.0) for part in _times(_FROM_CONES, (long**3, middle**3, short**3)))
    parts = (part * 12.92 if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055 for part in linear)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def _times(matrix: _Matrix, vector: _Triple) -> _Triple:
    first, second, third = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return first, second, third
