"""Pictures on dark pages: every colour has its dark counterpart, texts stay readable, and nothing else is reached."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hand_made_estimates import hand_made_estimate
from hypothesis import given
from hypothesis import strategies as st

from softmesh.collectives.schedules.generators import schedule_for
from softmesh.report.dark_colours import dark, used_colours
from softmesh.report.drawing import (
    EMPTY,
    FADED,
    INK,
    PAPER,
    Panel,
    bare_picture,
    picture,
    scrolling,
    shaded_tints,
    tints,
)
from softmesh.report.estimates.estimate_page import estimate_page
from softmesh.report.mesh_svg import mesh_svg
from softmesh.report.schedules.player_page import schedule_page
from softmesh.report.schedules.schedule_replay import ScheduleReplay
from softmesh.report.wiring.machine_wiring import machine_wiring
from softmesh.report.wiring.wiring_page import wiring_page
from softmesh.systems.named_systems import load

COLOURS = st.integers(0, 0xFFFFFF).map(lambda number: f"#{number:06x}")
GREYS = st.integers(0, 255).map(lambda part: f"#{part:02x}{part:02x}{part:02x}")


def luminance(colour: str) -> float:
    """As in the Web Content Accessibility Guidelines."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def sheet(svg: str) -> str:
    return next(ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}style")).text or ""


@given(COLOURS)
def test_every_colour_has_a_dark_one(colour: str) -> None:
    assert re.fullmatch("#[0-9a-f]{6}", dark(colour))


@given(GREYS, GREYS)
def test_what_is_darker_on_light_is_lighter_on_dark(one: str, other: str) -> None:
    darker, lighter = sorted((one, other), key=luminance)
    assert luminance(dark(darker)) >= luminance(dark(lighter))


@pytest.mark.parametrize("count", [1, 8, 9, 32, 100])
def test_ink_reads_on_tints_of_either_kind(count: int) -> None:
    for tint in [*tints(count), *(shade for shades in shaded_tints(count, 4) for shade in shades), EMPTY, PAPER]:
        assert contrast(dark(INK), dark(tint)) > 3.5


def test_small_print_reads_on_dark_paper() -> None:
    assert contrast(dark(FADED), dark(PAPER)) > 4.5


def test_all_colours_of_a_picture_are_exchanged() -> None:
    svg = mesh_svg((2, 4), range(8))
    exchanged = re.findall(r'\[(fill|stroke)="(#\w+)"\]\{(?:fill|stroke):light-dark\((#\w+),(#\w+)\)', sheet(svg))
    assert {(use, colour) for use, colour, _, _ in exchanged} == used_colours(ElementTree.fromstring(svg))
    assert all(colour == light and dark(colour) == night for _, colour, light, night in exchanged)


def test_the_style_sheet_reaches_pictures_alone() -> None:
    """Inside a page `svg:root` is nobody; the file of a picture follows its reader."""
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", sheet(mesh_svg((2, 2), range(4))).partition("{")[2])
    assert rules[0] == "svg:root"
    assert all(rule.startswith(".softmesh-picture [") for rule in rules[1:])
    assert 'class="softmesh-picture"' in mesh_svg((2, 2), range(4))


def test_a_picture_on_a_page_with_colours_of_its_own_leaves_them_alone() -> None:
    panel = Panel()
    panel.rectangle(0, 0, 10, 10, PAPER)
    assert "<style>" in picture(panel, "a square")
    bare = bare_picture(panel, "a square", margin=4)
    assert "<style>" not in bare
    assert "softmesh-picture" not in bare


def test_pixels_are_those_of_the_light_picture() -> None:
    svg_to_bytes = pytest.importorskip("resvg_py").svg_to_bytes
    svg = mesh_svg((2, 2), range(4))
    without = re.sub("<style>.*?</style>", "", svg)
    assert bytes(svg_to_bytes(svg_string=svg)) == bytes(svg_to_bytes(svg_string=without))


def replay_of(name: str, shape: tuple[int, ...], wraps: tuple[bool, ...]) -> ScheduleReplay:
    return ScheduleReplay(schedule_for(name, shape, wraps, 1), shape, wraps, None)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(wiring_page(machine_wiring(load("Galaxy"))), id="a machine"),
        pytest.param(wiring_page(machine_wiring(load("N300"))), id="a small machine"),
        pytest.param(scrolling(mesh_svg((8, 4), range(32))), id="a mesh"),
        pytest.param(estimate_page(hand_made_estimate()), id="an estimate"),
        pytest.param(schedule_page(replay_of("all_reduce", (8, 4), (False, False))), id="a grid"),
        pytest.param(schedule_page(replay_of("all_gather", (64,), (True,))), id="a ring"),
    ],
)
def test_no_letter_of_a_picture_on_a_page_gets_smaller_than_nine_pixels(page: str) -> None:
    """However narrow the page: a picture scrolls in its frame from there on."""
    pictures = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    assert pictures
    for svg in pictures:
        letters = min(map(float, re.findall(r'font-size="([\d.]+)"', svg)), default=9.0)
        narrowest = re.search(r"min-width:([\d.]+)px", svg.partition(">")[0])
        width = float(svg.partition('viewBox="')[2].split()[2].rstrip('"'))
        assert narrowest is not None
        assert letters * float(narrowest[1]) / width == pytest.approx(9, abs=0.1)
        assert re.search(r"overflow-x:auto.>$", page[: page.index(svg)])
