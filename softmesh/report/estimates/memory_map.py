"""The memory of one bank over time as a picture: how much is held, and what lies at which address from when to when.

Allocation goes in lock-step, so one bank tells of all banks of all chips of a mesh. Allocations of one line of the
program have one colour.
"""

from __future__ import annotations

from xml.etree import ElementTree

from softmesh.report.drawing import Panel, picture
from softmesh.report.estimates.page_colours import FADED, GROUND, LINE, tint
from softmesh.report.estimates.quantities import share_text, size_text, time_text
from softmesh.report.estimates.summaries import Allocation, MemoryUse

_WIDTH = 1000.0
_LEFT = 74.0
_CURVE = 64.0
_MAP = 190.0
_GAP = 16.0
_MOST_SHOWN = 1500
_LEAST = 0.6  # pixels of the smallest that is seen


def memory_map(use: MemoryUse, seconds: float) -> str:
    panel = Panel()
    _curve(panel, use, seconds)
    _addresses(panel, use, seconds)
    panel.width = _LEFT + _WIDTH
    text = f"{use.region.buffer_type} of each bank of mesh {use.mesh.mesh_id} over time"
    return picture(panel, text, margin=4).replace('fill="#ffffff"', 'fill="none"', 1)


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
    low = min(each.taken.address or 0 for each in placed)
    high = max((each.taken.address or 0) + each.bytes for each in placed)
    panel.text(_LEFT - 8, top + 9, f"{high:#x}", 10.5, anchor="end", fill=FADED)
    panel.text(_LEFT - 8, top + _MAP, f"{low:#x}", 10.5, anchor="end", fill=FADED)
    for at in range(5):
        x = _LEFT + _WIDTH * at / 4
        anchor = "start" if at == 0 else "end" if at == 4 else "middle"
        panel.text(x, top + _MAP + 15, time_text(seconds * at / 4), 10.5, anchor=anchor, fill=FADED)
    colours: dict[object, int] = {}
    shown = sorted(placed, key=lambda each: -each.bytes * (each.end - each.start))[:_MOST_SHOWN]
    for each in sorted(shown, key=lambda each: each.start):
        colour = colours.setdefault(each.taken.site, len(colours))
        _block(panel, each, seconds, top, (low, high), tint(colour))


def _block(panel: Panel, each: Allocation, seconds: float, top: float, span: tuple[int, int], colour: str) -> None:
    low, high = span
    scale = _MAP / max(high - low, 1)
    x, right = _x(each.start, seconds), _x(each.end, seconds)
    height = max(_LEAST, each.bytes * scale)
    y = top + _MAP - ((each.taken.address or 0) - low) * scale - height
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
