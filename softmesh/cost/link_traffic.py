"""Link traffic of commands: bytes out of each channel, by the collective's algorithm and the routes.

A collective runs along lines of devices. On a line pieces travel outwards both ways; on a ring half of them go each way
round. What goes from one device to its neighbour is shared by the links between them; devices that are no neighbours
are joined by the fabric's route. The elastic machine has as many channels as it has links to each neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from softmesh.cost.link_costs import Line
from softmesh.cost.mesh_lines import lines_of, takes_ring
from softmesh.cost.op_workloads import bytes_of
from softmesh.cost.timeline import DirectedLink, Traffic
from softmesh.errors import MeshError
from softmesh.fabric.machine_system import MachineSystem
from softmesh.fabric.mesh_graph import Node
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.commands import Command
from softmesh.runtime.device import MeshDevice
from softmesh.systems.machine import Port

Hops = Iterator[tuple[int, int, float]]  # the places of two neighbours in a line, and the bytes from one to the other


class LinkTable:
    """Numbers links as they are met, and turns commands into traffic over them."""

    def __init__(self) -> None:
        self.links: list[DirectedLink] = []
        self._numbers: dict[DirectedLink, int] = {}
        self._between: dict[tuple[int, int, int, int], list[list[int]]] = {}

    def traffic_of(self, command: Command) -> Traffic | None:
        """None where it sends nothing."""
        device = command.device
        if device is None or not _sends(command):
            return None
        found: dict[int, float] = {}
        for one, other, size, links in _hops_of(command, device):
            lanes = self._lanes(device, one, other, links)
            for lane in lanes:
                for link in lane:
                    found[link] = found.get(link, 0.0) + size / len(lanes)
        return Traffic(tuple((link, round(size)) for link, size in sorted(found.items()) if size)) if found else None

    def _lanes(self, device: MeshDevice, one: int, other: int, wanted: int | None) -> list[list[int]]:
        """The ways from one chip to another that are used side by side, each a list of links."""
        key = (device.unique_id, one, other, wanted or 0)
        known = self._between.get(key)
        if known is None:
            lanes = _machine_lanes(device.system, one, other) or _elastic_lanes(device, one, other)
            known = [[self._number(link) for link in lane] for lane in lanes[: wanted or len(lanes)]]
            self._between[key] = known
        return known

    def _number(self, link: DirectedLink) -> int:
        number = self._numbers.setdefault(link, len(self.links))
        if number == len(self.links):
            self.links.append(link)
        return number


def _machine_lanes(system: object, one: int, other: int) -> list[list[DirectedLink]]:
    if not isinstance(system, MachineSystem):
        return []
    direct = system.machine.links_between(one, other)
    if direct:
        planes = min(len(direct), system.settings.num_planes or len(direct))
        return [[DirectedLink(link.near_end(one), link.far_end(one))] for link in direct[:planes]]
    try:
        source, target = (Node(*system.node_of(chip)) for chip in (one, other))
        hops = system.network.route(source, target).hops
    except MeshError:  # without a fabric, or without a way: nothing can be said of links
        return []
    return [[DirectedLink(hop.link.near_end(hop.chip), hop.link.far_end(hop.chip)) for hop in hops]]


def _elastic_lanes(device: MeshDevice, one: int, other: int) -> list[list[DirectedLink]]:
    """Channels are numbered by the neighbour they lead to: forwards first, then backwards."""
    count = device.system.links_along([], None) if not isinstance(device.system, MachineSystem) else 1
    first = 0 if one < other else count
    back = count if one < other else 0
    return [[DirectedLink(Port(one, first + lane), Port(other, back + lane))] for lane in range(count)]


# Which devices talk, and how many bytes go from one neighbour to the next.


def _sends(command: Command) -> bool:
    return command.kind is Kind.SEND or command.kind.is_exchange


def _hops_of(command: Command, device: MeshDevice) -> Iterator[tuple[int, int, float, int | None]]:
    """Pairs of neighbouring chips, the bytes between them, and how many links share those; None: all there are."""
    if not command.inputs:
        return
    held, arguments = float(bytes_of(command.inputs[0].spec)), command.arguments
    if command.kind is Kind.SEND:
        yield from ((one, other, held, 1) for one, other in _socket_pairs(arguments, device))
        return
    pair = _pair_of(arguments, device)
    if pair is not None:
        yield *pair, held, _wanted_links(command)
        return
    algorithm = _ALGORITHMS.get(command.kind, _gathered)
    made = float(bytes_of(command.outputs[0].spec)) if command.outputs else held
    for axis, line in _axes(device, arguments.get("cluster_axis")):
        is_ring = takes_ring(line, arguments.get("topology"))
        links = min(_wanted_links(command) or line.links, line.links)
        for chips in device.lines_along(axis):
            for here, there, size in algorithm(len(chips), is_ring, held, made):
                yield chips[here], chips[there], size, links
        held *= line.devices if algorithm is _gathered else 1
        held /= line.devices if algorithm is _scattered else 1


def _axes(device: MeshDevice, asked: object) -> list[tuple[int, Line]]:
    """The axes that it runs along, one after the other: the one that was asked for, or all of them."""
    lines = [(axis, line) for axis, line in enumerate(lines_of(device)) if line.devices > 1]
    return [one for one in lines if one[0] == asked] if isinstance(asked, int) else lines


def _pair_of(arguments: Mapping[str, object], device: MeshDevice) -> tuple[int, int] | None:
    """Of a message from one device to another."""
    ends = [arguments.get(name) for name in ("sender_coord", "receiver_coord")]
    if not all(isinstance(end, MeshCoordinate) for end in ends):
        return None
    one, other = (device.get_device_id(end) for end in ends if isinstance(end, MeshCoordinate))
    return one, other


def _socket_pairs(arguments: Mapping[str, object], device: MeshDevice) -> list[tuple[int, int]]:
    """Chips that a socket joins; of those in this machine."""
    pairs = getattr(arguments.get("mesh_socket"), "node_pairs", None)
    nodes = pairs() if callable(pairs) else []
    found = [(_chip_of(device, one), _chip_of(device, other)) for one, other in nodes]
    return [(one, other) for one, other in found if one is not None and other is not None and one != other]


def _chip_of(device: MeshDevice, node: tuple[int, int]) -> int | None:
    if isinstance(device.system, MachineSystem):
        return device.system.match.chips.get(Node(*node))
    return node[1]


def _wanted_links(command: Command) -> int | None:
    asked = command.arguments.get("num_links")
    return asked if isinstance(asked, int) and asked > 0 else None


def _gathered(devices: int, is_ring: bool, given: float, made: float) -> Hops:
    """Everybody gets the pieces of all: a piece goes on to every device beyond."""
    yield from _spread_out(devices, is_ring, given)


def _scattered(devices: int, is_ring: bool, given: float, made: float) -> Hops:
    """Sums travel towards the device that gets them: a gather backwards."""
    for here, there, size in _spread_out(devices, is_ring, given / devices):
        yield there, here, size


def _reduced(devices: int, is_ring: bool, given: float, made: float) -> Hops:
    yield from _scattered(devices, is_ring, given, made)
    yield from _spread_out(devices, is_ring, given / devices)


def _exchanged(devices: int, is_ring: bool, given: float, made: float) -> Hops:
    """Everybody sends each other an equal share, on the shorter way."""
    share = given / devices
    for here, there in _neighbours(devices, is_ring):
        if is_ring:
            reach = (devices - 1) // 2
            crossing = reach * (reach + 1) / 2 + (0 if devices % 2 else devices / 4)
        else:
            left = max(here, there)
            crossing = float(left * (devices - left))
        yield here, there, share * crossing


def _broadcast(devices: int, is_ring: bool, given: float, made: float) -> Hops:
    for here in range(devices - 1):
        yield here, here + 1, given


def _shifted(devices: int, is_ring: bool, given: float, made: float) -> Hops:
    for here in range(devices if is_ring else devices - 1):
        yield here, (here + 1) % devices, given


def _at_the_edges(devices: int, is_ring: bool, given: float, made: float) -> Hops:
    """Neighbours exchange what one of them has more of before or afterwards."""
    for here, there in _neighbours(devices, is_ring):
        yield here, there, abs(made - given) / 2


def _spread_out(devices: int, is_ring: bool, piece: float) -> Hops:
    for here, there in _neighbours(devices, is_ring):
        passing = (devices - 1) / 2 if is_ring else (here + 1 if there > here else devices - here)
        yield here, there, piece * passing


def _neighbours(devices: int, is_ring: bool) -> Iterator[tuple[int, int]]:
    """Both ways of each pair."""
    order = [*range(devices), 0] if is_ring else list(range(devices))
    for here, there in pairwise(order):
        yield here, there
        yield there, here


_ALGORITHMS: dict[Kind, Callable[[int, bool, float, float], Hops]] = {  # of others `_gathered`
    Kind.REDUCE_SCATTER: _scattered,
    Kind.ALL_REDUCE: _reduced,
    Kind.ALL_TO_ALL: _exchanged,
    Kind.BROADCAST: _broadcast,
    Kind.NEIGHBOURS: _at_the_edges,
    Kind.SHIFT: _shifted,
}
