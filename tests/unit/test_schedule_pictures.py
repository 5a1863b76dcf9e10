"""Pictures of collectives: everything inside, nothing twice, nothing on top of something else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from rich.console import Console

from softmesh import collectives
from softmesh.collectives.schedules.generators import schedule_for
from softmesh.collectives.schedules.language import Action, Schedule, Send
from softmesh.collectives.schedules.link_traffic import bytes_per_link, piece_sizes
from softmesh.errors import ArgumentError, ArgumentValueError
from softmesh.report.drawing import Box
from softmesh.report.schedules.device_layouts import geometry_of
from softmesh.report.schedules.draw import SchedulePicture
from softmesh.report.schedules.film_strip import bar_colours, chunk_colours, legend, schedule_svg
from softmesh.report.schedules.player_page import embedded, schedule_page
from softmesh.report.schedules.schedule_command import schedule as command
from softmesh.report.schedules.schedule_replay import ScheduleReplay, bytes_text, letters, sentence, summary

SVG = "{http://www.w3.org/2000/svg}"
GROUPS = [
    ("all_reduce", (8,), (True,), 1),
    ("all_reduce", (8,), (True,), 2),
    ("all_reduce", (3,), (True,), 1),
    ("all_gather", (4,), (False,), 1),
    ("all_gather", (16,), (True,), 1),
    ("all_reduce", (2, 4), (False, False), 1),
    ("all_gather", (4, 4), (True, True), 1),
    ("reduce_scatter", (2, 2, 2), (False, False, False), 1),
    ("all_to_all", (4,), (True,), 1),
    ("all_to_all", (4,), (False,), 1),
    ("all_reduce_direct", (4,), (True,), 1),
    ("all_reduce", (2,), (True,), 1),
    ("barrier", (5,), (False,), 1),
]


def replay_of(name: str, shape: tuple[int, ...], wraps: tuple[bool, ...], links: int = 1) -> ScheduleReplay:
    schedule = schedule_for(name, shape, wraps, links)
    return ScheduleReplay(schedule, shape, wraps, piece_sizes(schedule, 65536))


@pytest.fixture(params=GROUPS, ids=lambda group: f"{group[0]}-{group[1]}-{group[3]}")
def replay(request: pytest.FixtureRequest) -> ScheduleReplay:
    return replay_of(*request.param)


def two_on_a_line(title: str = "") -> ScheduleReplay:
    """Device 0 adds to device 1, which sends the sum back."""
    held = {(0, 0): frozenset({0}), (1, 0): frozenset({1})}
    both = {(0, 0): frozenset({0, 1}), (1, 0): frozenset({0, 1})}
    steps = ((Send(0, 1, 0, Action.ADD, 0),), (Send(1, 0, 0, Action.STORE, 0),))
    return ScheduleReplay(Schedule("there and back", 2, 1, 1, steps, held, both), (2,), (False,), 1024, title)


def panels(svg: str) -> list[ElementTree.Element]:
    return [rect for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect") if rect.get("class") == "panel"]


def test_the_strip_has_a_panel_for_the_start_each_step_and_the_total(replay: ScheduleReplay) -> None:
    assert len(panels(schedule_svg(replay))) == len(replay.schedule.steps) + 2


def test_every_send_is_drawn_once(replay: ScheduleReplay) -> None:
    root = ElementTree.fromstring(schedule_svg(replay))
    drawn = [element for element in root.iter() if element.get("class") == "send"]
    assert sum(int(element.get("data-sends", 0)) for element in drawn) == len(list(replay.schedule.sends()))
    told = [line for element in drawn for line in (element.findtext(f"{SVG}title") or "").split("\n")]
    expected = [
        sentence(replay, each) for step in range(len(replay.schedule.steps)) for each in replay.send_effects(step)
    ]
    assert sorted(told) == sorted(expected)


def test_every_lane_in_use_has_its_total(replay: ScheduleReplay) -> None:
    root = ElementTree.fromstring(schedule_svg(replay))
    drawn = [element for element in root.iter() if element.get("class") == "traffic"]
    assert len(drawn) == len(replay.carried)


def test_devices_and_slots_are_on_the_stage_and_apart(replay: ScheduleReplay) -> None:
    geometry = geometry_of(replay)
    whole = Box(-0.01, -0.01, geometry.size[0] + 0.02, geometry.size[1] + 0.02)
    assert all(whole.contains(box) for box in geometry.boxes)
    assert not any(one.touches(other) for one, other in combinations(geometry.boxes, 2))
    for box, corner in zip(geometry.boxes, geometry.corners, strict=True):
        shown = 1 if geometry.slots.is_summed_up else replay.schedule.slots
        bars = [geometry.slots.bar_at(slot, corner) for slot in range(shown)]
        assert all(box.contains(bar) for bar in bars)
        assert not any(one.touches(other) for one, other in combinations(bars, 2))


def label_boxes(replay: ScheduleReplay, step: int) -> list[Box]:
    geometry = geometry_of(replay)
    outer = {(lane.sender, lane.receiver): lane for lane in sorted(geometry.arrow_paths)}
    return [geometry.arrow_paths[outer[ends]].label_box(text) for ends, text in replay.labels(step).items()]


def test_labels_lie_apart_on_the_stage_and_beside_the_devices(replay: ScheduleReplay) -> None:
    geometry = geometry_of(replay)
    whole = Box(0, 0, *geometry.size).grown(6)
    for step in range(len(replay.schedule.steps)):
        labels = label_boxes(replay, step)
        assert all(whole.contains(label) for label in labels)
        assert not any(one.shared_area(other) > 0.5 for one, other in combinations(labels, 2))
        assert not any(label.touches(box) for label in labels for box in geometry.boxes)


def test_all_panels_are_inside_the_view_box(replay: ScheduleReplay) -> None:
    root = ElementTree.fromstring(schedule_svg(replay))
    _, _, width, height = map(float, root.get("viewBox", "").split())
    strip = next(g for g in root.iter(f"{SVG}g") if any(rect.get("class") == "panel" for rect in g.iterfind("*/*")))
    for group in strip:
        x, y = map(float, re.findall(r"[-\d.]+", group.get("transform", "")))
        frame = group.find(f"{SVG}rect")
        assert frame is not None
        assert 0 <= x <= x + float(frame.get("width", 0)) <= width - 31.9
        assert 0 <= y <= y + float(frame.get("height", 0)) <= height - 31.9


def test_an_eight_ring_all_reduce_fits_a_readme() -> None:
    root = ElementTree.fromstring(schedule_svg(replay_of("all_reduce", (8,), (True,))))
    assert float(root.get("width", 0)) <= 950


def test_long_schedules_leave_out_steps_in_the_middle() -> None:
    replay = replay_of("all_reduce", (32,), (True,))
    svg = schedule_svg(replay)
    assert len(panels(svg)) < len(replay.schedule.steps)
    assert re.search(r"steps \d+ to \d+", svg)


def test_a_partial_sum_says_how_many_it_has() -> None:
    replay = two_on_a_line()
    first, second = (sentence(replay, replay.send_effects(step)[0]) for step in (0, 1))
    assert first == "device 0 sends its own chunk A to device 1, which adds its own: complete now"
    assert second == "device 1 sends the complete chunk A to device 0, which stores it over what it had"
    assert summary(replay, 0) == "1 device sends 1 chunk, added where it arrives"


def test_a_value_is_spent_when_it_will_be_overwritten() -> None:
    replay = two_on_a_line()
    assert not replay.is_spent(0, 0, 0)  # about to be sent
    assert replay.is_spent(1, 0, 0)  # about to be overwritten
    assert not replay.is_spent(2, 0, 0)  # the goal


def test_chunks_of_all_to_all_are_named_by_their_journey() -> None:
    replay = replay_of("all_to_all", (4,), (False,))
    assert replay.chunk(7) == "1›3"
    assert replay_of("all_gather", (4,), (False,)).chunk(2) == "C"


def test_a_link_of_a_ring_carries_seven_eighths_of_the_bytes_each_way() -> None:
    replay = replay_of("all_reduce", (8,), (True,))
    assert {replay.amount(carried) for carried in replay.carried.values()} == {"56 KiB"}


def test_all_pictures_tell_the_bytes_of_the_links() -> None:
    """Ten bytes over three links are 4, 3 and 3; not 3.333 each."""
    line = schedule_for("all_gather", (3,), num_links=3)
    replay = ScheduleReplay(line, (3,), (False,), 10)
    assert replay.carried == bytes_per_link(line, 10)
    assert max(replay.carried.values()) == 8
    assert "the busiest link carries 8 B a way" in schedule_svg(replay)
    data = json.loads(re.search(r'id="data">(.*?)</script>', schedule_page(replay))[1])  # type: ignore[index]
    over = [sum(token[3] for step in data["steps"] for token in step if token[0] == lane) for lane in range(12)]
    assert over == list(replay.carried.values())
    options = ["--devices", "3", "--topology", "line", "--links", "3", "--bytes", "10"]
    told = CliRunner().invoke(command, ["all_gather", *options])
    assert "1 → 0, link 0         8 B" in told.output
    assert "1 → 0, link 1         6 B" in told.output


def test_links_that_carry_nothing_are_drawn_too() -> None:
    replay = ScheduleReplay(schedule_for("all_gather", (3,), num_links=3), (3,), (False,), 0)
    assert "0 B" in schedule_svg(replay)
    assert schedule_page(replay)


def test_what_is_broken_or_does_not_fit_its_shape_is_not_drawn() -> None:
    line = schedule_for("broadcast", (2,), root=0)
    astray = replace(line, steps=((Send(0, 5, 0, Action.STORE, 0),),))
    with pytest.raises(ArgumentValueError, match=r"draw\(\): the schedule 'broadcast' is broken:\n .* no device 5"):
        ScheduleReplay(astray, (2,), (False,))
    with pytest.raises(ArgumentValueError, match=r"is for 2 devices, and a shape of \[2, 2\] has 4"):
        ScheduleReplay(line, (2, 2), (False, False))


def test_the_page_is_whole_in_itself_and_plays(replay: ScheduleReplay) -> None:
    page = schedule_page(replay)
    outside = [url for url in re.findall(r"https?://[^\s\"'<>)]+", page) if url != "http://www.w3.org/2000/svg"]
    assert outside == []
    assert not re.search(r"<link|<img|@import|\bsrc=", page)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))  # type: ignore[union-attr]
    steps = len(replay.schedule.steps)
    assert len(data["steps"]) == steps
    assert len(data["states"]) == len(data["captions"]) == len(data["sentences"]) == steps + 1
    assert len(data["slots"]) == len(data["states"][0])
    assert sum(token[3] for step in data["steps"] for token in step) == sum(replay.carried.values())


def test_without_scripts_the_page_shows_the_strip_and_no_player() -> None:
    page = schedule_page(two_on_a_line())
    assert re.search(r'<section id="player"[^>]* hidden>', page)
    assert "<details open>" in page


def test_nothing_in_the_data_ends_the_script() -> None:
    assert "</script>" not in embedded({"title": "</script><script>alert(1)</script>"})
    assert json.loads(embedded("</script>\u2028")) == "</script>\u2028"
    page = schedule_page(two_on_a_line("</script><b>"))
    assert page.count("</script>") == 2
    assert "<b>" not in page


def test_the_terminal_shows_sends_slots_and_links() -> None:
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(SchedulePicture(two_on_a_line()))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert "  0 → 1 +A 1/2" in lines
    assert "  1  2/2" in lines
    assert any(line.startswith("  0 → 1") and "1 KiB" in line for line in lines)


def test_many_devices_are_summed_up_in_the_terminal() -> None:
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(SchedulePicture(replay_of("all_gather", (32,), (True,))))
    assert capture.get().count("step ") == 16
    assert len(capture.get().splitlines()) < 60


def test_numbers_and_letters_are_short() -> None:
    assert [letters(number) for number in (0, 25, 26, 701, 702)] == ["A", "Z", "AA", "ZZ", "AAA"]
    assert [bytes_text(count) for count in (512, 1536, 2**30)] == ["512 B", "1.5 KiB", "1 GiB"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all_redce"], "Did you mean 'all_reduce'"),
        (["all_reduce", "--devices", "0"], "--devices"),
        (["all_reduce", "--devices", "9999"], "--devices"),
        (["all_reduce", "--shape", "2y4"], "write its extents as in 2x4"),
        (["all_reduce", "--shape", "2x0"], "at least 1"),
        (["all_reduce", "--shape", "2x4", "--devices", "6"], "give one of them"),
        (["all_reduce", "--devices", "8", "--shape", "2x4"], "give one of them"),
        (["all_to_all", "--devices", "32"], "too many to draw"),
        (["broadcast", "--root", "8"], "devices 0 to 7"),
        (["all_reduce", "--root", "1"], "has no --root"),
        (["all_reduce", "--system", "T300"], "T300"),
        (["all_reduce", "--devices", "16", "--system", "T3000"], "8 devices"),
        (
            ["all_reduce", "--shape", "2x4", "--topology", "ring", "--system", "T3000"],
            "a line instead of a ring",
        ),
        (["all_reduce", "--links", "3", "--devices", "4", "--system", "T3000"], "ask for fewer links"),
        (["all_reduce", "--down", "chip:1"], "--system"),
        (["all_reduce", "-o", "x.jpg"], "does not end in .svg, .png or .html"),
        (["all_reduce", "-o", "no/such/folder/x.svg"], "There is no folder"),
        (["all_reduce", "--steps", "one", "-o", "x.svg"], "is not a list of steps"),
        (["all_reduce", "--steps", "99", "-o", "x.svg"], "--steps 99: the schedule has"),
        (["all_reduce", "--steps", "1"], "give -o FILE.svg"),
    ],
)
def test_mistakes_are_explained_and_exit_with_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert message in re.sub(r"\s+", " ", result.output)


def test_on_a_machine_devices_are_chips_and_links_have_channels() -> None:
    result = CliRunner().invoke(command, ["all_gather", "--devices", "4", "--system", "T3000"])
    assert result.exit_code == 0
    assert re.search(r"chip \d+ ch \d+ → chip \d+ ch \d+ +\d+ KiB", result.output)


def test_a_schedule_of_ones_own_is_drawn_by_the_public_name(tmp_path: Path) -> None:
    own = two_on_a_line().schedule
    text = collectives.draw(own, piece_bytes=1024)
    assert text.startswith("there and back: 2 devices in a line\n2 steps · 1 KiB per device")
    assert "0 → 1       1 KiB" in text
    assert "1 chunk " in collectives.draw(own)
    seats = collectives.on_system("T3000", (2,))
    assert re.search(r"chip \d ch \d+ → chip \d ch \d+", collectives.draw(own, seats=seats))
    for name, start in (("a.svg", "<svg"), ("b.HTML", "<!DOCTYPE html>")):
        drawn = collectives.draw(own, path=tmp_path / name)
        assert drawn.startswith(start)
        assert (tmp_path / name).read_text(encoding="utf-8") == drawn
    ring = collectives.schedule_for("all_gather", (4,), wraps=True)
    assert "4 devices in a ring" in collectives.draw(ring, (4,), wraps=True)
    with pytest.raises(ArgumentError, match=r"path must end in \.svg or \.html, got 'x\.png'"):
        collectives.draw(own, path="x.png")
    with pytest.raises(ArgumentError, match="schedule must be a Schedule"):
        collectives.draw("all_gather")


def test_the_command_writes_strips_and_pages(tmp_path: Path) -> None:
    for name, start in (("a.svg", "<svg"), ("a.html", "<!DOCTYPE html>")):
        result = CliRunner().invoke(command, ["all_gather", "--devices", "4", "-o", str(tmp_path / name)])
        assert result.exit_code == 0
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_chosen_steps_are_the_only_panels_and_drawn_larger(tmp_path: Path) -> None:
    sizes = []
    for chosen in ([], ["--steps", "0,1,8"]):
        path = tmp_path / "ring.svg"
        result = CliRunner().invoke(command, ["all_reduce", *chosen, "-o", str(path)])
        assert result.exit_code == 0, result.output
        root = ElementTree.fromstring(path.read_text())
        sizes.append(
            (len(panels(path.read_text())), float(root.get("width", 0)) / float(root.get("viewBox", "").split()[2]))
        )
    assert [count for count, _ in sizes] == [10, 4]
    assert sizes[0][1] == 1.0 < sizes[1][1]


@pytest.mark.parametrize("width", [460.0, 916.0])
def test_the_legend_keeps_to_its_width(replay: ScheduleReplay, width: float) -> None:
    drawn = legend(replay, width)
    assert drawn.width <= width + 1


def test_many_chunks_are_shown_in_order_and_not_by_letters_that_no_eye_could_find() -> None:
    many = ElementTree.tostring(legend(replay_of("all_reduce", (8, 4), (False, False))).element, encoding="unicode")
    few = ElementTree.tostring(legend(replay_of("all_reduce", (8,), (True,))).element, encoding="unicode")
    assert "32 chunks, coloured by their place" in many
    assert ">A<" not in many
    assert ">A<" in few


def test_a_bar_that_stands_for_all_chunks_has_the_colour_of_none() -> None:
    crowded = replay_of("all_reduce", (8, 4), (False, False))
    assert not set(bar_colours(crowded)) & set(chunk_colours(crowded))
    assert bar_colours(crowded)[0] in schedule_page(crowded)
