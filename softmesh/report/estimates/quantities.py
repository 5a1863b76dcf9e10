"""Counts and shares as people read them: three digits and the unit that fits."""

from __future__ import annotations

_COUNTS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def count_text(count: float, unit: str) -> str:
    """
    >>> count_text(67_108_864, "FLOP"), count_text(12, "FLOP")
    ('67.1 MFLOP', '12 FLOP')
    """
    for factor, prefix in _COUNTS:
        if abs(count) >= factor:
            text = f"{count / factor:.3g}"
            return f"{count / factor:.0f} {prefix}{unit}" if "e" in text else f"{text} {prefix}{unit}"
    return f"{round(count)} {unit}"


def share_text(part: float, whole: float) -> str:
    """`12.5 %`; a little that is not nothing is `< 0.1 %`."""
    if whole <= 0:
        return "0 %"
    percent = 100 * part / whole
    return "< 0.1 %" if 0 < percent < 0.05 else f"{percent:.3g} %" if percent < 99.95 else f"{percent:.0f} %"
