"""The memory of one bank over time as a picture: how much is held, and what lies at which address from when to when.

Allocation goes in lock-step, so one bank tells of all banks of all chips of a mesh. Allocations of one line of the
program have one colour.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from xml.etree import ElementTree

from softmesh.cost.summaries import size_text, time_text
from softmesh.report.drawing import Panel, bare_picture
from softmesh.report.estimates.link_and_memory_use import Allocation, MemoryUse
from softmesh.report.estimates.page_colours import FADED, GROUND, LINE, tint
from softmesh.report.estimates.quantities import share_text

_WIDTH = 1000.0
_LEFT = 74.0
_CURVE = 64.0
_MAP = 190.0
_GAP = 16.0
_MOST_SHOWN = 1500
_WIDEST_GAP = 0.06  # of all that was ever used
_LEAST = 0.6  # pixels of the smallest that is seen


def memory_map(use: MemoryUse, seconds: float) -> str:
    panel = Panel()
    _curve(panel, use, seconds)
    _addresses(panel, use, seconds)
    panel.width = _LEFT + _WIDTH
    text = f"{use.region.buffer_type} of each bank of mesh {use.mesh.mesh_id} over time"
    return bare_picture(panel, text, margin=4)


def left_out(use: MemoryUse) -> int:
    """How many of the smallest allocations the picture does without."""
    return max(0, len([each for each in use.allocations if each.taken.address is not None]) - _MOST_SHOWN)


def _x(moment: float, seconds: float) -> float:
    return _LEFT + (_WIDTH * min(moment / seconds, 1.0) if seconds > 0 else 0.0)


def _curve(panel: Panel, use: MemoryUse, seconds: float) -> None:
    """Bytes held; the top of it is the peak."""
    panel.text(_LEFT - 8, 10, size_text(use.peak), 10.5, anchor="end", fill=FADED)
    panel.text(_LEFT - 8, _CURVE, "0", 10.5, anchor="end", fill=FADED)
    panel.rectangle(_LEFT, 0, _WIDTH, _CURVE, GROUND, stroke="none")
    points, last = [f"M{_LEFT:.1f} {_CURVE:.1f}"], 0.0
    for moment, size in use.curve:
        x, y = _x(moment, seconds), _CURVE * (1 - size / max(use.peak, 1))
        points.append(f"H{x:.1f}V{y:.1f}")
        last = x
    points.append(f"H{max(last, _LEFT + _WIDTH):.1f}V{_CURVE:.1f}Z")
    attributes = {"d": "".join(points), "fill": "var(--area)", "stroke": "var(--area-edge)", "stroke-width": "1"}
    ElementTree.SubElement(panel.element, "path", attributes)
    x = _x(use.peak_time, seconds)
    mark = ElementTree.SubElement(
        panel.element, "circle", {"cx": f"{x:.1f}", "cy": "0", "r": "4", "fill": "var(--warm)"}
    )
    site = f", {use.peak_site}" if use.peak_site is not None else ""
    ElementTree.SubElement(mark, "title").text = f"peak: {size_text(use.peak)} after {time_text(use.peak_time)}{site}"


def _addresses(panel: Panel, use: MemoryUse, seconds: float) -> None:
    top = _CURVE + _GAP
    placed = [each for each in use.allocations if each.taken.address is not None]
    panel.rectangle(_LEFT, top, _WIDTH, _MAP, GROUND, stroke=LINE)
    if not placed:
        return
    scale = _AddressScale(placed, top)
    panel.text(_LEFT - 8, top + 9, f"{scale.high:#x}", 10.5, anchor="end", fill=FADED)
    panel.text(_LEFT - 8, top + _MAP, f"{scale.low:#x}", 10.5, anchor="end", fill=FADED)
    for y in scale.breaks:
        panel.rectangle(_LEFT, y, _WIDTH, 0, "none", dashed=True, tip="nothing was ever allocated in between")
    for at in range(5):
        x = _LEFT + _WIDTH * at / 4
        anchor = "start" if at == 0 else "end" if at == 4 else "middle"
        panel.text(x, top + _MAP + 15, time_text(seconds * at / 4), 10.5, anchor=anchor, fill=FADED)
    colours: dict[object, int] = {}
    shown = sorted(placed, key=lambda each: -each.bytes * (each.end - each.start))[:_MOST_SHOWN]
    for each in sorted(shown, key=lambda each: each.start):
        colour = colours.setdefault(each.taken.site, len(colours))
        _block(panel, each, seconds, scale, tint(colour))


class _AddressScale:
    """Addresses from the bottom up; of a wide gap in which nothing ever lay, only a little is shown."""

    def __init__(self, placed: Sequence[Allocation], top: float) -> None:
        used = _joined((each.taken.address or 0, (each.taken.address or 0) + each.bytes) for each in placed)
        self.low, self.high = used[0][0], used[-1][1]
        most = max(sum(end - start for start, end in used) * _WIDEST_GAP, 1.0)
        gaps = [(end, start) for (_, end), (start, _) in pairwise(used)]
        shown = [min(end - start, most) for start, end in gaps]
        self._starts, self._places = [used[0][0]], [0.0]
        for (start, end), gap, wide in zip(used, [*gaps, None], [*shown, 0.0], strict=True):
            after = self._places[-1] + end - start
            if gap is not None:
                self._starts += [end, gap[1]]
                self._places += [after, after + wide]
        self._whole = max(self._places[-1] + used[-1][1] - used[-1][0], 1.0)
        self._bottom = top + _MAP
        self.breaks = [
            self.y(start) - _MAP / self._whole * wide / 2
            for (start, end), wide in zip(gaps, shown, strict=True)
            if end - start > most
        ]

    def y(self, address: int) -> float:
        at = bisect_right(self._starts, address) - 1
        place = self._places[at] + address - self._starts[at]
        return self._bottom - place * _MAP / self._whole

    def height(self, size: int) -> float:
        return max(_LEAST, size * _MAP / self._whole)


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What overlaps or touches as one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _block(panel: Panel, each: Allocation, seconds: float, scale: _AddressScale, colour: str) -> None:
    x, right = _x(each.start, seconds), _x(each.end, seconds)
    height = scale.height(each.bytes)
    y = scale.y(each.taken.address or 0) - height
    width = max(_LEAST, right - x)
    site = f"\n{each.taken.site}" if each.taken.site is not None else ""
    tip = (
        f"{each.taken.label}\n{size_text(each.bytes)} at {each.taken.address:#x} of each bank{site}\n"
        f"{time_text(each.start)} .. {time_text(each.end)}"
    )
    is_roomy = height > 3 and width > 3
    panel.rectangle(x, y, width, height, colour, stroke="var(--paper)" if is_roomy else "none", tip=tip)
    if height >= 13 and width >= 7.0 * len(each.taken.label):
        panel.text(x + 4, y + height / 2 + 3.5, each.taken.label, 10, fill="#141b24", mono=False)


def memory_sentence(use: MemoryUse) -> str:
    """`DRAM: at most 1.2 MiB of 1 GiB in each of 12 banks (0.1 %), after 1.2 ms, at model.py:12`."""
    region = use.region
    site = f", at {use.peak_site}" if use.peak_site is not None else ""
    return (
        f"at most {size_text(use.peak)} of {size_text(region.size)} in each of {region.banks} banks "
        f"({share_text(use.peak, region.size)}), after {time_text(use.peak_time)}{site}"
    )
