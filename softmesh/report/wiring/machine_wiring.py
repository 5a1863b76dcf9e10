"""The wiring picture of a machine: its hosts as groups, chips as cells, and the meshes of a match as colours."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os.path import basename

from softmesh.collectives.schedules.chip_assignment import ChipAssignment
from softmesh.errors import MeshError
from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph, Node
from softmesh.hardware import RoutingDirection
from softmesh.report.wiring.graph_wiring import mesh_title
from softmesh.report.wiring.grid_embedding import Place, grid_places, row_by_row, turned
from softmesh.report.wiring.wiring_model import Bundle, Cell, Group, Path, Section, State, Wire, Wiring
from softmesh.systems.machine import Asic, Link, Machine

_SHOWN_LINKS = 16  # in a tooltip
_SMALLEST_POD = 3


def machine_wiring(machine: Machine) -> Wiring:
    return _Picture(machine).wiring(machine.summary or _described(machine))


def match_wiring(match: Match) -> Wiring:
    """The machine with the meshes of a descriptor coloured onto the chips that play them."""
    picture = _Picture(match.machine, match)
    wiring = picture.wiring(f"{len(match.chips)} of {len(match.machine.asics)} chips in use")
    return replace(
        wiring,
        title=f"{basename(match.graph.source)} on {match.machine.name}",
        meshes=tuple(map(mesh_title, match.graph.meshes)),
        remarks=(*match.warnings, *wiring.remarks, *_meshes_in_pieces(match, wiring)),
    )


def assignment_wiring(assignment: ChipAssignment) -> Wiring:
    """The machine with the devices of a group, M0D0, M0D1 and so on, on their chips."""
    shape = math.prod(assignment.shape[:-1]), assignment.shape[-1]
    wraps = len(assignment.shape) == 2 and assignment.wraps[0], assignment.wraps[-1]
    group = LogicalMesh(0, "M0", shape, rings=wraps)
    title = f"{'x'.join(map(str, assignment.shape))} devices"
    graph = MeshGraph(title, assignment.machine.chip.arch, (group,))
    return match_wiring(Match(graph, assignment.machine, dict(zip(graph.nodes, assignment.chips, strict=True))))


def _meshes_in_pieces(match: Match, wiring: Wiring) -> list[str]:
    """Meshes that the rim of the picture cuts: neighbours along a line that are drawn at opposite ends of the grid."""
    cut = []
    for mesh in match.graph.meshes:
        wires = (
            Wire(match.chips[Node(mesh.id, chip)], match.chips[Node(mesh.id, other)], ())
            for chip, other, direction in mesh.edges()
            if not mesh.rings[0 if direction is RoutingDirection.S else 1]
        )
        if any(wiring.path_of(wire) is Path.ROUND for wire in wires):
            cut.append(f"{mesh_title(mesh)} reaches across the rim: it goes on at the opposite side")
    return cut


class _Picture:
    def __init__(self, machine: Machine, match: Match | None = None) -> None:
        self.machine = machine
        self.nodes = match.nodes if match is not None else None
        self.used = _used_pairs(match) if match is not None else None
        self.whole = machine.restored()  # what is down keeps its place in the picture
        self.down_chips = {asic.id for asic in machine.down_chips}
        self.down_links = set(machine.down_links)

    def wiring(self, summary: str) -> Wiring:
        hosts = {host: number for number, host in enumerate(self.whole.hosts)}
        inside, between = self._sorted_links(hosts)
        exits = {port.chip for links in between.values() for link in links for port in link}
        groups = tuple(self._group(host, exits) for host in hosts)
        bundles = tuple(self._bundle(pair, links) for pair, links in sorted(between.items()))
        return Wiring(
            self.machine.name,
            summary,
            groups,
            tuple(Wire(*pair, self._lanes(links), self._tip(links)) for pair, links in inside.items()),
            bundles,
            pods(len(groups), [(bundle.a[0], bundle.b[0]) for bundle in bundles]),
            remarks=tuple(self._remarks()),
        )

    def _sorted_links(
        self, hosts: Mapping[str, int]
    ) -> tuple[dict[tuple[int, int], list[Link]], dict[tuple[int, int], list[Link]]]:
        """Links by pair of chips inside a host, and by pair of hosts."""
        inside: dict[tuple[int, int], list[Link]] = defaultdict(list)
        between: dict[tuple[int, int], list[Link]] = defaultdict(list)
        for link in sorted(self.whole.links):
            a, b = (hosts[self.whole.asics[port.chip].host] for port in link)
            if a == b:
                inside[link.a.chip, link.b.chip].append(link)
            else:
                between[min(a, b), max(a, b)].append(link)
        return inside, between

    def _group(self, host: str, exits: set[int]) -> Group:
        asics = [asic for asic in self.whole.asics.values() if asic.host == host]
        places = machine_places(self.whole, host)
        shape = _extent(places.values())
        if self.used:
            places = turned(places, shape, self.used, self.whole.neighbours)
        cells = tuple(self._cell(asic, places[asic.id], asic.id in exits) for asic in asics)
        boards = ", ".join(dict.fromkeys(asic.board for asic in asics if asic.board))
        rows, columns = self.whole.grid or shape  # a long line is folded, and still a line
        caption = " · ".join(filter(None, (f"{rows}x{columns}", boards)))
        return Group(host or "host", caption, shape, cells)

    def _cell(self, asic: Asic, place: Place, is_exit: bool) -> Cell:
        node = None if self.nodes is None else self.nodes.get(asic.id)
        position = f"t{asic.tray} l{asic.location}"
        lines = [f"chip {asic.id}", f"tray {asic.tray}, location {asic.location}", f"board {asic.board}"]
        lines.append("no PCIe: reached through another chip" if asic.pcie is None else f"PCIe {asic.pcie}")
        if node is not None:
            lines.insert(1, f"plays {node}")
        state = State.UP
        if asic.id in self.down_chips:
            state = State.DOWN
            lines.append("DOWN")
        elif self.nodes is not None and node is None:
            state = State.UNUSED
            lines.append("not used")
        return Cell(
            asic.id,
            place,
            str(asic.id),
            (position if node is None else str(node),),
            "\n".join([*lines, *self._reaches(asic.id)]),
            node.mesh if node is not None else None,
            state,
            is_exit=is_exit,
        )

    def _reaches(self, chip: int) -> list[str]:
        """What links of this chip lead out of its host, for the tooltip."""
        asics = self.whole.asics
        lines = [
            f"ch {link.near_end(chip).channel} <-> {asics[other].host} {link.far_end(chip)}"
            for other, links in self.whole.neighbours[chip].items()
            if asics[other].host != asics[chip].host
            for link in links
        ]
        lines += [
            f"ch {link.near.channel} <-> a chip outside, ch {link.far_channel}"
            for link in self.machine.outside
            if link.near.chip == chip
        ]
        return _shortened(lines)

    def _bundle(self, pair: tuple[int, int], links: Sequence[Link]) -> Bundle:
        one, other = self.whole.hosts[pair[0]], self.whole.hosts[pair[1]]
        return Bundle((pair[0],), (pair[1],), self._lanes(links), f"{one} <-> {other}\n{self._tip(links)}")

    def _lanes(self, links: Sequence[Link]) -> tuple[State, ...]:
        return tuple(self._state(link) for link in links)

    def _state(self, link: Link) -> State:
        if link in self.down_links:
            return State.DOWN
        is_unused = self.used is not None and (link.a.chip, link.b.chip) not in self.used
        return State.UNUSED if is_unused else State.UP

    def _tip(self, links: Sequence[Link]) -> str:
        return "\n".join(_shortened([f"{link}{' DOWN' if link in self.down_links else ''}" for link in links]))

    def _remarks(self) -> list[str]:
        down = [f"chip {asic.id}" for asic in self.machine.down_chips]
        lost: dict[tuple[int, int], list[Link]] = defaultdict(list)
        for link in self.machine.down_links:
            if not {link.a.chip, link.b.chip} & self.down_chips:
                lost[link.a.chip, link.b.chip].append(link)
        for (one, other), links in lost.items():
            is_all = len(links) == len(self.whole.links_between(one, other))
            down += [f"every link of chips {one} and {other}"] if is_all else map(str, links)
        remarks = [f"down: {', '.join(_shortened(down))}"] if down else []
        if self.machine.outside:
            remarks.append(f"{len(self.machine.outside)} links lead to chips outside this machine")
        return remarks


def machine_places(whole: Machine, host: str) -> dict[int, Place]:
    """As the mesh that programs see, where the host's chips are one; else as their links suggest."""
    machine = whole if len(whole.hosts) == 1 else whole.only(whole.chips_of(host))
    if machine.grid is not None:
        return row_by_row(sorted(machine.asics), machine.grid)
    return _mesh_places(machine) or grid_places(machine.neighbours)


def _mesh_places(machine: Machine) -> dict[int, Place] | None:
    from softmesh.fabric.descriptors.default_graphs import default_graph
    from softmesh.fabric.matching.find_match import match

    graph = default_graph(machine.cluster_type)
    if graph is None or graph.size != len(machine.asics) or len(graph.meshes) != 1:
        return None
    try:
        found = match(graph, machine)
    except MeshError:
        return None
    return {chip: graph.mesh(0).coordinate(node.chip) for node, chip in found.chips.items()}


def pods(count: int, pairs: Iterable[tuple[int, int]]) -> tuple[Section, ...]:
    """Runs of groups that are all joined to one another, where they divide the whole evenly."""
    joined = {frozenset(pair) for pair in pairs}
    runs: list[list[int]] = []
    for number in range(count):
        if runs and all(frozenset((number, other)) in joined for other in runs[-1]):
            runs[-1].append(number)
        else:
            runs.append([number])
    sizes = {len(run) for run in runs}
    if len(runs) < 2 or len(sizes) != 1 or sizes.pop() < _SMALLEST_POD:
        return ()
    return tuple(Section(f"pod {number}", tuple(run)) for number, run in enumerate(runs))


def _used_pairs(match: Match) -> set[tuple[int, int]]:
    """Chips that are neighbours in a mesh, or that a connection between meshes may use."""
    pairs: set[tuple[int, int]] = set()
    for mesh in match.graph.meshes:
        pairs |= {
            (min(ends), max(ends))
            for chip, other, _ in mesh.edges()
            for ends in [(match.chips[Node(mesh.id, chip)], match.chips[Node(mesh.id, other)])]
        }
    joined = {
        frozenset((a, b))
        for connection in match.graph.connections
        for a in connection.a.meshes
        for b in connection.b.meshes
    }
    for link in match.machine.links:
        one, other = match.nodes.get(link.a.chip), match.nodes.get(link.b.chip)
        if one is not None and other is not None and frozenset((one.mesh, other.mesh)) in joined:
            pairs.add((link.a.chip, link.b.chip))
    return pairs


def _extent(places: Iterable[Place]) -> tuple[int, int]:
    rows, columns = zip(*places, strict=True)
    return max(rows) + 1, max(columns) + 1


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN_LINKS
    return [*lines[:_SHOWN_LINKS], f"and {more} more"] if more > 0 else lines


def _described(machine: Machine) -> str:
    chips = len(machine.asics) + len(machine.down_chips)
    return f"{chips} {machine.chip.arch_name} chips, {len(machine.links)} links"
