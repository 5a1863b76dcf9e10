"""Pictures of machines, mesh graphs and rank bindings: what is drawn, where it lies, and what is refused."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from softmesh.fabric.descriptors.loader import load_mesh_graph
from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, Pinning, Side
from softmesh.hardware import Arch
from softmesh.report.drawing import Box, scrolling, text_width
from softmesh.report.show import show
from softmesh.report.wiring.graph_wiring import graph_wiring
from softmesh.report.wiring.grid_embedding import grid_places
from softmesh.report.wiring.layout import Layout, laid_out
from softmesh.report.wiring.machine_wiring import machine_wiring, match_wiring
from softmesh.report.wiring.wiring_model import Path as WirePath
from softmesh.report.wiring.wiring_model import State, Wiring
from softmesh.report.wiring.wiring_page import wiring_page
from softmesh.report.wiring.wiring_svg import wiring_svg
from softmesh.report.wiring.wiring_text import WiringPicture
from softmesh.systems.machine_restriction import with_down
from softmesh.systems.named_systems import load

SVG = "{http://www.w3.org/2000/svg}"
WORMHOLE = Arch.WORMHOLE_B0


def mesh(number: int, shape: tuple[int, int], **more: object) -> LogicalMesh:
    return LogicalMesh(number, "Box", shape, **{"channels": 2, **more})  # type: ignore[arg-type]


def joined(a: int, b: int, count: int = 2, **more: bool) -> Connection:
    return Connection(Side((a,)), Side((b,)), count, strict=True, **more)


def split_galaxy() -> MeshGraph:
    meshes = (mesh(0, (4, 4), channels=4), mesh(1, (4, 4), channels=4))
    pinnings = (Pinning((Node(0, 0),), ((1, 1),)), Pinning((Node(1, 15),), ((3, 8), (4, 8))))
    return MeshGraph("split_galaxy.textproto", WORMHOLE, meshes, (joined(0, 1, 4),), pinnings)


def pods() -> MeshGraph:
    inside = [joined(4 * pod + a, 4 * pod + b) for pod in range(4) for a, b in combinations(range(4), 2)]
    sides = [Side(tuple(range(4 * pod, 4 * pod + 4))) for pod in range(4)]
    across = [Connection(a, b, 2, strict=True) for a, b in combinations(sides, 2)]
    return MeshGraph("pods.textproto", WORMHOLE, tuple(mesh(i, (2, 4)) for i in range(16)), (*inside, *across))


def pipeline(stages: int) -> MeshGraph:
    meshes = tuple(mesh(i, (4, 2), rings=(True, False)) for i in range(stages))
    ring = [joined(i, (i + 1) % stages, z=i == 0) for i in range(stages)]
    return MeshGraph("pipeline.textproto", WORMHOLE, meshes, tuple(ring))


def chip_to_chip() -> MeshGraph:
    links = [Connection(Side((0,), 2 * i + 1), Side((1,), 2 * i), 2, strict=True) for i in range(2)]
    return MeshGraph("chips.textproto", WORMHOLE, (mesh(0, (2, 2)), mesh(1, (2, 2))), tuple(links))


def many_hosts() -> MeshGraph:
    return MeshGraph("hosts.textproto", WORMHOLE, (mesh(0, (8, 8), rings=(True, True), hosts=(2, 4)),))


GRAPHS = {
    "split galaxy": split_galaxy,
    "pods": pods,
    "pipeline of 8": lambda: pipeline(8),
    "pipeline of 31": lambda: pipeline(31),
    "chip to chip": chip_to_chip,
    "many hosts": many_hosts,
    "long line": lambda: MeshGraph("line.textproto", WORMHOLE, (mesh(0, (1, 32)),)),
}
MACHINES = ["N150", "T3000", "Galaxy", "Closetbox", "Exabox", "BH-Galaxy-XYZ", "QuietBox-4x4", "torus:32x32"]
MACHINES += ["line:40", "mesh:2x16"]
ALL = [*MACHINES, *GRAPHS]


@cache
def wiring(name: str) -> Wiring:
    return graph_wiring(GRAPHS[name]()) if name in GRAPHS else machine_wiring(load(name))


@cache
def layout(name: str) -> Layout:
    return laid_out(wiring(name))


@cache
def drawn(name: str) -> ElementTree.Element:
    return ElementTree.fromstring(wiring_svg(wiring(name)))


def of_class(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if kind in element.get("class", "").split()]


def box_of(element: ElementTree.Element) -> Box:
    return Box(*(float(element.get(key, "0")) for key in ("x", "y", "width", "height")))


def printed(picture: Wiring, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(WiringPicture(picture))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def near_pairs(boxes: Iterable[Box], size: float = 400) -> Iterable[tuple[Box, Box]]:
    """Pairs that may touch: those in one square of the page, or in two side by side."""
    squares: dict[tuple[int, int], list[Box]] = defaultdict(list)
    for box in boxes:
        for x in range(int(box.x // size), int(box.right // size) + 1):
            for y in range(int(box.y // size), int(box.bottom // size) + 1):
                squares[x, y].append(box)
    for inside in squares.values():
        yield from combinations(inside, 2)


@pytest.mark.parametrize("name", ALL)
def test_no_cell_and_no_box_lies_on_another(name: str):
    size = 60 if wiring(name).size > 500 else 400
    assert not any(one.touches(other) for one, other in near_pairs(layout(name).cells.values(), size))
    assert not any(one.touches(other) for one, other in near_pairs(layout(name).groups))
    assert not any(one.touches(other) for one, other in near_pairs(layout(name).sections))


@pytest.mark.parametrize("name", ALL)
def test_cells_lie_in_their_box_boxes_in_their_section_and_all_on_the_page(name: str):
    picture, where = wiring(name), layout(name)
    for key, box in where.cells.items():
        assert where.groups[picture.group_of[key]].contains(box)
    for section, box in zip(picture.sections, where.sections, strict=True):
        assert all(box.contains(where.groups[group]) for group in section.groups)
    page = where.extent.grown(0.01)
    assert all(page.contains(box) for box in (*where.groups, *where.sections, *filter(None, where.labels)))


@pytest.mark.parametrize("name", ALL)
def test_the_svg_keeps_everything_inside_its_view_box(name: str):
    root = drawn(name)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    page = Box(0, 0, width, height)

    def check(element: ElementTree.Element, x: float, y: float) -> None:
        moved = element.get("transform", "translate(0 0)").removeprefix("translate(").rstrip(")").split()
        x, y = x + float(moved[0]), y + float(moved[1])
        if element.tag == f"{SVG}rect":
            assert page.contains(box_of(element).moved(x, y)), ElementTree.tostring(element)
        if element.tag == f"{SVG}text":
            assert page.holds((x + float(element.get("x", "")), y + float(element.get("y", ""))))
        for child in element:
            check(child, x, y)

    check(root, 0, 0)


@pytest.mark.parametrize("name", ALL)
def test_every_chip_and_every_link_is_drawn_once(name: str):
    picture, root = wiring(name), drawn(name)
    assert len(of_class(root, "chip")) == picture.size == len(picture.cells)
    assert len(of_class(root, "wire")) == len(picture.wires)
    assert len(of_class(root, "bundle")) == len(picture.bundles)
    assert len({frozenset((wire.a, wire.b)) for wire in picture.wires}) == len(picture.wires)


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_has_a_lane_for_each_of_its_links_and_a_tooltip_that_names_it(name: str):
    machine, picture = load(name), wiring(name)
    strands = (*picture.wires, *picture.bundles)
    assert sum(len(strand.lanes) for strand in strands) == len(machine.links)
    named = [line for strand in strands for line in strand.tip.splitlines() if " ch " in line]
    assert Counter(named) == Counter(map(str, machine.links))
    assert picture.size == len(machine.asics)


@pytest.mark.parametrize("name", ["T3000", "Galaxy", "Closetbox", "Exabox", "split galaxy", "pods"])
def test_each_channel_is_a_line_of_its_own_where_there_is_room(name: str):
    lines = [wire.findall(f"{SVG}path") for wire in of_class(drawn(name), "wire")]
    assert list(map(len, lines)) == [len(wire.lanes) for wire in wiring(name).wires]


@pytest.mark.parametrize("name", ALL)
def test_what_is_written_in_a_cell_fits_into_it(name: str):
    texts = [element for element in drawn(name).iter(f"{SVG}text") if element.get("text-anchor") == "middle"]
    where = layout(name)
    cells = list(where.cells.values()) if where.density.text else []
    for text in texts:
        place = float(text.get("x", "")), float(text.get("y", ""))
        inside = [cell for cell in cells if cell.holds(place)]
        if inside:
            assert text_width(text.text or "", float(text.get("font-size", ""))) <= inside[0].width


@pytest.mark.parametrize("name", ["Closetbox", "Exabox", "pods", "split galaxy", "QuietBox-4x4", "pipeline of 8"])
def test_lines_between_boxes_pass_behind_no_other_box_and_are_labelled_beside_them(name: str):
    picture, where = wiring(name), layout(name)
    for bundle, curve, label in zip(picture.bundles, where.bundles, where.labels, strict=True):
        ends = {*bundle.a, *bundle.b}
        others = [box for number, box in enumerate(where.groups) if number not in ends]
        assert not any(box.holds(point) for box in others for point in curve.points())
        assert label is not None
        assert not any(label.touches(box) for box in where.groups)
    assert not any(one.touches(other) for one, other in combinations(where.labels, 2))


def test_many_chips_get_small_cells_without_text():
    assert layout("torus:32x32").density.text == 0
    assert {text.text for text in drawn("torus:32x32").iter(f"{SVG}text")} & {"0", "4", "28"}  # edges only
    assert len(list(drawn("torus:32x32").iter(f"{SVG}text"))) < 30


def test_links_that_go_round_are_stubs_at_the_rim_and_not_lines_through_chips():
    picture = wiring("Galaxy")
    paths = Counter(picture.path_of(wire) for wire in picture.wires)
    assert paths == {WirePath.NEXT: 52, WirePath.ROUND: 12}
    for element, wire in zip(of_class(drawn("Galaxy"), "wire"), picture.wires, strict=True):
        if picture.path_of(wire) is WirePath.ROUND:
            stubs = element.findall(f"{SVG}path")[0].get("d", "")
            assert stubs.count("M") == 2


def test_hosts_are_boxed_and_pods_found_from_who_is_joined_with_whom():
    picture = wiring("Closetbox")
    assert [group.shape for group in picture.groups] == [(2, 4)] * 16
    assert [section.groups for section in picture.sections] == [
        tuple(range(first, first + 4)) for first in range(0, 16, 4)
    ]
    assert wiring("Exabox").sections == ()
    assert len(wiring("Exabox").bundles) == 10


def test_pods_and_clusters_are_called_by_their_names():
    file = Path(__file__).parent.parent / "fixtures/mgd/closetbox.textproto"
    found = graph_wiring(load_mesh_graph(file, runtime=False))
    assert found.summary.startswith("CLUSTER Closetbox: 16 meshes")
    assert [section.name for section in found.sections] == [f"POD {number} Pod" for number in range(4)]
    assert "POD 3 Pod" in wiring_svg(found)
    assert "POD 1 Pod: M4 LoudBox, M5 LoudBox, M6 LoudBox, M7 LoudBox" in printed(found, 200)


def test_tray_and_location_are_explained_where_they_are_drawn():
    legend = "t1 l2 on a chip: tray 1, location 2 on that tray."
    machine = machine_wiring(load("T3000"))
    assert legend in wiring_svg(machine)
    assert legend in printed(machine, 100)
    assert legend not in printed(machine, 30)  # too narrow for notes on chips
    assert legend not in wiring_svg(wiring("chip to chip"))


def test_what_is_down_keeps_its_place_and_is_red_and_dashed():
    machine = with_down(load("T3000"), ["chip:6", "link:0/8"])
    picture = machine_wiring(machine)
    assert [cell.place for cell in picture.cells.values()] == [cell.place for cell in wiring("T3000").cells.values()]
    assert picture.cells[6].state is State.DOWN
    root = ElementTree.fromstring(wiring_svg(picture))
    (chip,) = [element for element in of_class(root, "chip") if "down" in element.get("class", "")]
    assert chip.get("stroke-dasharray")
    assert "chip 6" in (chip.findtext(f"{SVG}title") or "")
    lines = [line for line in of_class(root, "down") if line.tag == f"{SVG}path"]
    assert len(lines) == len(machine.down_links) == 5
    assert all(line.get("stroke-dasharray") for line in lines)
    assert sum(wire.down for wire in picture.wires) == 5
    assert {wire.count_text for wire in picture.wires} == {"x2", "x0/2", "x1/2"}
    assert picture.remarks[0].startswith("down: chip 6, chip 0 ch 8 <-> ")


def test_a_pair_without_any_link_left_is_named_as_a_pair():
    assert machine_wiring(with_down(load("T3000"), ["link:0-1"])).remarks == ("down: every link of chips 0 and 1",)


def test_meshes_have_colours_names_dims_and_policies():
    picture = wiring("split galaxy")
    assert [group.name for group in picture.groups] == ["M0 Box", "M1 Box"]
    assert picture.groups[0].caption == "4 LINE x 4 LINE · x4 RELAXED"
    assert {cell.colour for cell in picture.groups[1].cells} == {1}
    fills = Counter(element.get("fill") for element in of_class(drawn("split galaxy"), "chip"))
    assert sorted(fills.values()) == [16, 16]
    assert picture.summary == "2 meshes, 32 wormhole_b0 chips, 1 STRICT connection"


def test_pinned_chips_are_marked():
    assert [key for key, cell in wiring("split galaxy").cells.items() if cell.is_pinned] == [0, 31]
    assert len(of_class(drawn("split galaxy"), "pin")) == 2
    assert "pinned to tray 3 location 8 or tray 4 location 8" in wiring("split galaxy").cells[31].tip


def test_the_z_direction_is_marked():
    assert [bundle.label for bundle in wiring("pipeline of 8").bundles] == ["x2 Z", *["x2"] * 7]


def test_connections_between_chips_join_those_chips():
    special = [wire for wire in wiring("chip to chip").wires if wire.is_special]
    assert [(wire.a, wire.b, wire.label) for wire in special] == [(1, 4, "x2"), (3, 6, "x2")]


def test_host_blocks_are_boxed_inside_a_mesh():
    assert len(of_class(drawn("many hosts"), "block")) == 8
    block = wiring("many hosts").groups[0].blocks[5]
    assert (block.place, block.end, block.label) == ((4, 2), (8, 4), "host 5")


def test_a_ring_of_meshes_is_drawn_as_a_round_trip():
    where = layout("pipeline of 8")
    for curve in where.bundles:
        assert curve.start[0] == curve.end[0] or curve.start[1] == curve.end[1]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_grid_is_found_whatever_its_chips_are_called(data: st.DataObject):
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    wraps = data.draw(st.tuples(st.booleans(), st.booleans()))
    ids = data.draw(st.permutations(range(rows * columns)))
    grid = LogicalMesh(0, "grid", (rows, columns), rings=wraps)
    near = {ids[chip]: [ids[other] for other in grid.neighbours(chip).values()] for chip in range(grid.size)}
    places = grid_places(near)
    assert len(set(places.values())) == len(ids)
    height = 1 + max(row for row, _ in places.values())
    width = 1 + max(column for _, column in places.values())
    if 1 in (rows, columns) and grid.size > 16:
        return  # folded
    assert height * width == grid.size  # a ring of four is a square: the shape itself is no one's
    for chip, others in near.items():
        for other in others:
            down, right = (abs(a - b) for a, b in zip(places[chip], places[other], strict=True))
            assert (down, right) in {(0, 1), (1, 0), (0, width - 1), (height - 1, 0)}


@given(st.dictionaries(st.integers(0, 20), st.sets(st.integers(0, 20), max_size=4), max_size=20))
@settings(max_examples=40, deadline=None)
def test_what_is_no_grid_is_still_laid_out_each_chip_at_a_place_of_its_own(links: dict[int, set[int]]):
    near: dict[int, set[int]] = {chip: set() for chip in links}
    for chip, others in links.items():
        for other in others & links.keys() - {chip}:
            near[chip].add(other)
            near[other].add(chip)
    if near:
        places = grid_places(near)
        assert places.keys() == near.keys()
        assert len(set(places.values())) == len(near)
        assert min(row for row, _ in places.values()) == min(column for _, column in places.values()) == 0


def test_the_terminal_draws_a_box_for_each_chip_and_counts_between_them():
    assert printed(wiring("T3000"), 80) == [
        "T3000",
        "Four n300 cards, 2x4 Wormhole chips (LoudBox, Wormhole QuietBox)",
        "┌ host-0: 2x4 · n300 ──────────────────────────────┐",
        "│ ╭───────╮    ╭───────╮    ╭───────╮    ╭───────╮ │",
        "│ │   4   ├─x2─┤   0   ├─x2─┤   2   ├─x2─┤   6   │ │",
        "│ │ t1 l1 │    │ t1 l0 │    │ t3 l0 │    │ t3 l1 │ │",
        "│ ╰───┬───╯    ╰───┬───╯    ╰───┬───╯    ╰───┬───╯ │",
        "│    x2           x2           x2           x2     │",
        "│ ╭───┴───╮    ╭───┴───╮    ╭───┴───╮    ╭───┴───╮ │",
        "│ │   5   ├─x2─┤   1   ├─x2─┤   3   ├─x2─┤   7   │ │",
        "│ │ t2 l1 │    │ t2 l0 │    │ t4 l0 │    │ t4 l1 │ │",
        "│ ╰───────╯    ╰───────╯    ╰───────╯    ╰───────╯ │",
        "└──────────────────────────────────────────────────┘",
        "t1 l2 on a chip: tray 1, location 2 on that tray.",
        "x2 between neighbours",
    ]


def test_the_terminal_shows_what_is_down():
    lines = printed(machine_wiring(with_down(load("T3000"), ["chip:6", "link:1-3"])), 80)
    assert any("├─x0/2─┤" in line for line in lines)
    assert any("│  down │" in line for line in lines)
    assert "down: chip 6, every link of chips 1 and 3" in lines


def test_many_hosts_are_small_grids_side_by_side_and_a_list_of_the_links_between_them():
    lines = printed(wiring("Closetbox"), 80)
    assert next(line for line in lines if "┌" in line).count("┌") == 4
    assert "  box-0  ── box-1 x2, box-2 x2, box-3 x2, box-4 x2" in lines
    drawn_lines = [line.replace("═", " ") for line in lines if line.startswith("│")]
    numbers = Counter(word for line in drawn_lines for word in line.split())
    assert all(numbers[str(chip)] == 1 for chip in range(128))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [50, 80, 160])
def test_no_line_in_the_terminal_is_longer_than_it_is_wide(name: str, width: int):
    frames = [line for line in printed(wiring(name), width) if line[:1] in "┌│└"]
    assert frames
    assert max(map(len, frames)) <= width
    assert {line[-1] for line in frames} <= set("┐│┘")


def test_a_page_has_the_picture_and_tables_of_all_there_is_and_no_script():
    page = wiring_page(wiring("Exabox"))
    assert scrolling(wiring_svg(wiring("Exabox"))) in page
    assert "<summary>Chips (160)</summary>" in page
    assert "<summary>Links between boxes (10)</summary>" in page
    assert f"<summary>Links between chips ({len(wiring('Exabox').wires)})</summary>" in page
    assert "<script" not in page


# The command, as a user types it.

DESCRIPTOR = """\
mesh_descriptors {
  name: "Half" arch: WORMHOLE_B0
  device_topology { dims: [ 2, 2 ] }
  host_topology { dims: [ 1, 1 ] }
  channels { count: 2 policy: RELAXED }
}
graph_descriptors {
  name: "G0" type: "FABRIC"
  instances { mesh { mesh_descriptor: "Half" mesh_id: 0 } }
  instances { mesh { mesh_descriptor: "Half" mesh_id: 1 } }
  connections {
    nodes { mesh { mesh_descriptor: "Half" mesh_id: 0 } }
    nodes { mesh { mesh_descriptor: "Half" mesh_id: 1 } }
    channels { count: 2 policy: RELAXED }
  }
}
top_level_instance { graph { graph_descriptor: "G0" graph_id: 0 } }
"""
BINDINGS = """\
rank_bindings:
  - { rank: 0, mesh_id: 0, mesh_host_rank: 0 }
  - { rank: 1, mesh_id: 1, mesh_host_rank: 0 }
mesh_graph_desc_path: "halves.textproto"
"""


def run(*arguments: str | Path, columns: int = 100) -> Result:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(show, list(map(str, arguments)), prog_name="softmesh show")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    path = tmp_path / "halves.textproto"
    path.write_text(DESCRIPTOR, encoding="utf-8")
    return path


@pytest.fixture
def bindings(halves: Path) -> Path:
    path = halves.with_name("ranks.yaml")
    path.write_text(BINDINGS, encoding="utf-8")
    return path


def test_a_descriptor_is_drawn(halves: Path):
    result = run(halves)
    assert result.exit_code == 0
    assert "2 meshes, 8 wormhole_b0 chips, 1 RELAXED connection" in result.output
    assert "  M0 Half ── M1 Half x2" in result.output


def test_a_descriptor_is_drawn_onto_a_machine(halves: Path, tmp_path: Path):
    output = tmp_path / "onto.svg"
    assert run(halves, "--system", "T3000", "-o", output).output == f"Wrote {output}\n"
    root = ElementTree.parse(output).getroot()
    assert root.findtext(f"{SVG}title") == "halves.textproto on T3000"
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {f"M{number}D{chip}" for number in range(2) for chip in range(4)} <= texts
    assert len({element.get("fill") for element in of_class(root, "chip")}) == 2


def test_chips_that_no_mesh_uses_are_grey(halves: Path, tmp_path: Path):
    output = tmp_path / "onto.svg"
    assert run(halves, "--system", "mesh:4x4", "-o", output).exit_code == 0
    tips = [chip.findtext(f"{SVG}title") or "" for chip in of_class(ElementTree.parse(output).getroot(), "chip")]
    assert sum("not used" in tip for tip in tips) == 8
    assert sum("plays M" in tip for tip in tips) == 8


def test_a_descriptor_that_does_not_fit_is_not_drawn(halves: Path, tmp_path: Path):
    output = tmp_path / "onto.svg"
    result = run(halves, "--system", "N300", "-o", output)
    assert result.exit_code == 1
    assert "Graph specified in MGD could not fit in the discovered physical topology" in result.output
    assert "Nothing is drawn. Without --system the descriptor is drawn by itself." in result.output
    assert not output.exists()


def test_rank_bindings_show_the_rank_on_each_host_block(bindings: Path, tmp_path: Path):
    result = run(bindings)
    assert result.exit_code == 0, result.output
    assert "2 ranks on halves.textproto" in result.output
    assert "M0 Half (rank 0)" in result.output
    assert "M1 Half (rank 1)" in result.output
    output = tmp_path / "ranks.svg"
    run(bindings, "-o", output)
    root = ElementTree.parse(output).getroot()
    assert [block.findtext(f"{SVG}title") for block in of_class(root, "block")] == ["rank 0", "rank 1"]


def test_a_rank_without_a_host_rank_goes_to_the_next_block_that_is_free(halves: Path):
    halves.write_text(DESCRIPTOR.replace("1, 1", "1, 2"), encoding="utf-8")
    path = halves.with_name("ranks.yaml")
    ranks = "".join(f"  - {{ rank: {rank}, mesh_id: {rank // 2} }}\n" for rank in range(4))
    path.write_text(f"rank_bindings:\n{ranks}mesh_graph_desc_path: halves.textproto\n", encoding="utf-8")
    output = run(path).output
    assert all(output.count(f"rank {rank}") == 2 for rank in range(4))


def test_ranks_that_the_descriptor_has_no_place_for_are_named(bindings: Path):
    bindings.write_text(BINDINGS.replace("mesh_id: 1", "mesh_id: 7"), encoding="utf-8")
    result = run(bindings)
    assert "rank 1: the descriptor has no mesh 7 with host rank 0" in result.output
    assert "M1 Half (no rank)" in result.output


def test_rank_bindings_are_drawn_onto_a_machine(bindings: Path):
    output = run(bindings, "--system", "T3000").output
    assert "ranks.yaml on T3000" in output
    assert "M1 Half (rank 1)" in output


def test_long_names_are_cut_to_the_width_of_the_terminal():
    long = LogicalMesh(0, "a_name_" * 30, (1, 2), channels=2)
    picture = graph_wiring(MeshGraph("x.textproto", WORMHOLE, (long,)))
    assert max(map(len, printed(picture, 60))) <= 60
    assert "…" in printed(picture, 60)[2]
    ElementTree.fromstring(wiring_svg(picture))


def test_names_from_files_can_neither_break_the_svg_nor_command_the_terminal():
    odd = LogicalMesh(0, "a\x1b[31m\x00\t<b>&\ud800", (1, 2), channels=2)
    picture = graph_wiring(MeshGraph("x\x07.textproto", WORMHOLE, (odd,)))
    assert printed(picture, 60)[2].startswith("┌ M0 a�[31m��<b>&�")
    root = ElementTree.fromstring(wiring_svg(picture))
    assert root.findtext(f"{SVG}title") == "x�.textproto"
    assert "\x1b" not in wiring_page(picture)
    assert "<b>" not in wiring_page(picture)


def test_a_mesh_across_the_seam_of_a_torus_is_drawn_in_one_piece(tmp_path):
    """Three rows of four that avoid row 1 are rows 2, 3 and 0: these stand one below the other."""
    source = tmp_path / "part.textproto"
    source.write_text(
        'mesh_descriptors { name: "Part" arch: WORMHOLE_B0 device_topology { dims: [ 3, 4 ] }\n'
        "  host_topology { dims: [ 1, 1 ] } channels { count: 1 policy: STRICT } }\n"
        'top_level_instance { mesh { mesh_descriptor: "Part" mesh_id: 0 } }\n'
    )
    output = run(source, "--system", "torus:4x4", "--down", "chip:5").output
    rows = [line for line in output.splitlines() if "M0D" in line]
    assert [line.split()[2] for line in rows] == ["M0D8", "M0D4", "M0D0"]
    assert "across the rim" not in output


def test_a_mesh_that_cannot_be_drawn_in_one_piece_says_so():
    machine = load("torus:4x4")
    corner = LogicalMesh(0, "Corner", (2, 2), channels=1)
    others = LogicalMesh(1, "Row", (1, 4), rings=(False, True), channels=1)
    graph = MeshGraph("corner.textproto", WORMHOLE, (corner, others))
    chips = dict(zip(graph.nodes, (0, 3, 12, 15, 4, 5, 6, 7), strict=True))
    assert match_wiring(Match(graph, machine, chips)).remarks == ()  # turned by one row and one column
    line = LogicalMesh(0, "Line", (1, 6), channels=1)
    graph = MeshGraph("line.textproto", WORMHOLE, (line,))
    chips = dict(zip(graph.nodes, (1, 0, 3, 2, 6, 5), strict=True))
    remarks = match_wiring(Match(graph, machine, chips)).remarks
    assert remarks == ("M0 Line reaches across the rim: it goes on at the opposite side",)


def test_a_fabric_leaves_links_that_go_round_unused():
    assert "48 links are not used, 48 of them wrap around" in run("Galaxy", "--fabric", "FABRIC_2D").output
    output = run("Galaxy", "--fabric", "fabric_2d_torus_xy").output
    assert "not used" not in output
    assert "Galaxy as FABRIC_2D_TORUS_XY uses it" in output


def test_the_system_may_be_given_as_an_option_alone():
    assert run("--system", "T3000").output == run("t3k").output


def test_a_page_is_written(tmp_path: Path):
    output = tmp_path / "t3000.html"
    assert run("T3000", "--down", "chip:5", "--down", "link:0-1", "-o", output).exit_code == 0
    page = output.read_text(encoding="utf-8")
    assert "<title>T3000</title>" in page
    assert "down: chip 5, every link of chips 0 and 1" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("T3001",), "No system is called 'T3001'. Did you mean 'T3000'?"),
        (("nothing.textproto",), "There is no file 'nothing.textproto'."),
        (("nowhere/ranks.yaml",), "There is no file 'nowhere/ranks.yaml'."),
        (("mesh:65x65",), "mesh:65x65 would have 4225 chips"),
        (("T3000", "--system", "T3000"), "--system goes with a descriptor or rank bindings"),
        (("T3000", "--down", "chip:9"), "--down chip:9: T3000 has no chip 9"),
        (("T3000", "--down", "everything"), "'everything' names nothing that can be down"),
        (("T3000", "--fabric", "FABRIC_3D"), "'FABRIC_3D' is no fabric. Did you mean 'FABRIC_2D'?"),
        (("T3000", "--mesh", "2x4"), "--mesh, --shape and --shard draw a tensor on a mesh"),
        (("--down", "chip:1"), "--down and --fabric need something to draw"),
        (("T3000", "-o", "/nowhere/at/all.svg"), "There is no folder /nowhere/at to write all.svg into"),
        (("T3000\0",), "No system is called"),
        (("",), "No system is called ''"),
    ],
)
def test_a_mistake_in_the_command_exits_with_2(arguments: tuple[str, ...], sentence: str):
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output


def test_down_needs_a_system(halves: Path):
    result = run(halves, "--down", "chip:1")
    assert result.exit_code == 2
    assert "--down takes chips and links out of a system; say which with --system." in result.output


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("bad.textproto", "mesh_descriptors {", "Failed to parse MeshGraphDescriptor textproto"),
        ("bad.textproto", "", "bad.textproto"),
        ("bad.textproto", DESCRIPTOR.replace("2, 2", "0, 2"), "bad.textproto:3: error: Device topology"),
        ("bad.yaml", "rank_bindings: []\n", "bad.yaml"),
        ("bad.yaml", "- 1\n- 2\n", "bad.yaml"),
        ("bad.yaml", BINDINGS.replace("halves", "missing"), "Mesh graph descriptor not found"),
        ("bad.yaml", "subcontext_id_to_rank_bindings: {0: a.yaml}\n", "a file for each sub-context"),
    ],
)
def test_a_file_that_cannot_be_used_exits_with_1_and_says_where(tmp_path: Path, name: str, text: str, sentence: str):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    result = run(path, "-o", tmp_path / "out.svg")
    assert result.exit_code == 1
    assert sentence in result.output
    assert not (tmp_path / "out.svg").exists()


def test_a_descriptor_of_too_many_chips_is_refused(tmp_path: Path):
    path = tmp_path / "huge.textproto"
    path.write_text(DESCRIPTOR.replace("2, 2", "64, 64"), encoding="utf-8")
    result = run(path)
    assert result.exit_code == 2
    assert "has 8192 chips; at most 4096 can be drawn." in result.output
