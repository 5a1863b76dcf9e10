"""Seconds, bytes and shares as people read them: three digits and the unit that fits."""

from __future__ import annotations

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_COUNTS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def time_text(seconds: float) -> str:
    """`1.25 ms`."""
    for unit, name in _TIMES:
        if abs(seconds) >= unit * 0.9995:
            return f"{_three(seconds / unit)} {name}"
    return "0" if not seconds else f"{_three(seconds * 1e9)} ns"


def size_text(size: float) -> str:
    """`1.5 MiB`."""
    for unit, name in _SIZES:
        if abs(size) >= unit:
            return f"{_three(size / unit)} {name}"
    return f"{round(size)} B"


def count_text(count: float, unit: str = "") -> str:
    """`67.1 MFLOP`."""
    for factor, prefix in _COUNTS:
        if abs(count) >= factor:
            return f"{_three(count / factor)} {prefix}{unit}"
    return f"{round(count)} {unit}".strip()


def share_text(part: float, whole: float) -> str:
    """`12.5 %`; a little that is not nothing is `< 0.1 %`."""
    if whole <= 0:
        return "0 %"
    percent = 100 * part / whole
    return "< 0.1 %" if 0 < percent < 0.05 else f"{percent:.3g} %" if percent < 99.95 else f"{percent:.0f} %"


def _three(value: float) -> str:
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e" in text else text
