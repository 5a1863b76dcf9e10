"""The page of an estimate: what it shows is escaped, nothing comes from outside, and it stays readable when large."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hand_made_estimates import hand_made_estimate

from softmesh.cost.summaries import by_bound, time_text
from softmesh.cost.timeline import Estimate
from softmesh.report.estimates.estimate_page import estimate_page, notebook_html
from softmesh.report.estimates.link_and_memory_use import memory_uses
from softmesh.report.estimates.link_map import link_map
from softmesh.report.estimates.memory_map import memory_map
from softmesh.report.estimates.quantities import count_text, share_text
from softmesh.report.estimates.timeline_lanes import chips_text, lanes, timeline_data


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    return hand_made_estimate()


class Page(HTMLParser):
    """Tags that are open, scripts, texts and what is loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[dict[str, str | None]] = []
        self.outside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "input"):
            self.open.append(tag)
        if tag == "script":
            self.scripts.append(dict(attrs))
        self.outside += [
            value or "" for name, value in attrs if name in ("src", "href") and not str(value).startswith("#")
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_texts_of_the_program_are_texts_on_the_page(estimate: Estimate):
    text = estimate_page(replace(estimate, error="Boom: </script><b>no"))
    page = Page(text)
    assert page.open == []
    assert len(page.scripts) == 2, "the data and the script"
    assert page.outside == []
    assert "url(" not in text
    shown = "".join(page.texts)
    assert "model <b>&\"'.py on T3000" in shown
    assert "Boom: </script><b>no" in shown


def test_the_page_tells_the_figures(estimate: Estimate):
    shown = " ".join("".join(Page(estimate_page(estimate)).texts).split())
    low, high = estimate.band()
    for words in (
        time_text(estimate.seconds),
        f"between {time_text(low)} and {time_text(high)}",
        "Where the time goes",
    ):
        assert words in shown
    assert low < estimate.seconds < high
    assert f"{estimate.tokens_per_second():,.0f}" in shown
    assert "at most 176 kB of 1.07 GB in each of 12 banks" in shown


def test_the_data_of_the_timeline_can_be_read_back(estimate: Estimate):
    text = estimate_page(estimate)
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    data = json.loads(found)
    assert data == timeline_data(estimate)
    assert len(data["commands"]) == len(estimate.commands)
    assert data["marks"][1][0] == "replay & <more>"


@pytest.mark.parametrize(("system", "shape"), [("T3000", (2, 4)), ("torus:8x16", (8, 16))])
def test_chips_that_do_the_same_share_a_lane(system: str, shape: tuple[int, int]):
    found = lanes(hand_made_estimate(system, shape))
    count = shape[0] * shape[1]
    assert [lane.label for lane in found] == ["host", f"all {count} chips · queue 0", f"all {count} chips · queue 1"]
    for lane in found:
        assert all(one.end <= other.start + 1e-12 for one, other in pairwise(lane.commands))


def test_chips_are_named_in_runs():
    assert chips_text((5,)) == "chip 5"
    assert chips_text((0, 1, 2, 8)) == "chips 0-2, 8"
    assert chips_text((0, 2, 4, 6, 8)).endswith(", …")


@pytest.mark.parametrize(("system", "shape"), [("T3000", (2, 4)), ("torus:8x16", (8, 16)), ("mesh:1x1", (1, 1))])
def test_the_mesh_has_a_cell_for_each_chip_and_a_line_for_each_way(system: str, shape: tuple[int, int]):
    estimate = hand_made_estimate(system, shape)
    drawing = ElementTree.fromstring(link_map(estimate))
    tips = [title.text or "" for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(tip.startswith("chip") and " at (" in tip for tip in tips) == shape[0] * shape[1]
    ways = {(use.link.source.chip, use.link.target.chip) for use in estimate.links}
    assert sum(" → " in tip for tip in tips) == len(ways)


def test_memory_is_drawn_with_what_lay_where(estimate: Estimate):
    dram, l1 = memory_uses(estimate)
    assert (dram.peak, len(dram.allocations)) == (2 * 88064, 2)
    assert all(each.end == estimate.seconds for each in dram.allocations), "never given back"
    assert [each.end < estimate.seconds for each in l1.allocations] == [True, True]
    drawing = ElementTree.fromstring(memory_map(dram, estimate.seconds))
    tips = [title.text or "" for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert any("tensor 2\n88.1 kB at 0x200000 of each bank" in tip for tip in tips)


def test_an_estimate_of_nothing_is_a_page_too(estimate: Estimate):
    empty = replace(estimate, commands=(), links=(), memory=(), steps=(), marks=(), meshes=(), seconds=0.0)
    page = estimate_page(empty)
    assert "Nothing ran on a device" in "".join(Page(page).texts)
    assert "<table" not in page
    assert 'href="#timeline-part"' not in page
    assert by_bound(empty) == []


def test_a_notebook_shows_the_page_in_a_frame(estimate: Estimate):
    frame = Page(notebook_html(estimate))
    assert frame.scripts == [], "the page is an attribute, and reaches nothing around it"
    assert frame.open == []
    assert 'sandbox="allow-scripts"' in notebook_html(estimate)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (count_text(67_108_864, "FLOP"), "67.1 MFLOP"),
        (share_text(1, 3), "33.3 %"),
        (share_text(1, 100_000), "< 0.1 %"),
        (share_text(2, 0), "0 %"),
        (share_text(3, 3), "100 %"),
    ],
)
def test_quantities_have_three_digits_and_a_unit(found: str, wanted: str):
    assert found == wanted
