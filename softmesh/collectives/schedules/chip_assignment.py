"""Chip assignment: the devices of a schedule as chips of a machine, its links as their Ethernet channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from softmesh.arguments import checked
from softmesh.collectives.schedules.language import Schedule, checked_mesh
from softmesh.collectives.schedules.link_traffic import Lane, PieceBytes, bytes_per_link
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.fabric.mesh_binding import Binding
from softmesh.mesh import MeshShape
from softmesh.systems.machine import Machine
from softmesh.systems.machine_restriction import with_down


@dataclass(frozen=True)
class ChipAssignment:
    """Which chip each device of a group is; made by `on_system`."""

    machine: Machine
    shape: tuple[int, ...]
    chips: tuple[int, ...]

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"ChipAssignment({shape} on {self.machine.name}, chips {', '.join(map(str, self.chips))})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"chip {chip}" for chip in self.chips)

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Of each axis, whether the links of the machine make rings of its lines."""
        return tuple(self.closes(axis) for axis in range(len(self.shape)))

    def joined(self, one: int, other: int) -> bool:
        return self.links_between(one, other) > 0

    def links_between(self, one: int, other: int) -> int:
        """How many; none for devices that do not exist."""
        if not {one, other} <= set(range(len(self.chips))):
            return 0
        return len(self.machine.links_between(self.chips[one], self.chips[other]))

    def bytes_per_link(self, schedule: Schedule, piece_bytes: PieceBytes) -> dict[str, int]:
        """As `softmesh.collectives.bytes_per_link`, by the names that the links have on this machine."""
        carried = bytes_per_link(schedule, piece_bytes)
        return {name: carried[lane] for lane, name in self.lane_names(carried).items()}

    def lane_names(self, lanes: Iterable[Lane]) -> dict[Lane, str]:
        return {lane: self._lane_name(lane) for lane in lanes}

    def _lane_name(self, lane: Lane) -> str:
        beyond = max(lane.sender, lane.receiver)
        if beyond >= len(self.chips):
            raise MeshError(
                f"there is no device {beyond} among the {len(self.chips)} chips for a shape of {list(self.shape)}: "
                "call on_system with the shape that the schedule is for."
            )
        one, other = self.chips[lane.sender], self.chips[lane.receiver]
        links = self.machine.links_between(one, other)
        if lane.link >= len(links):
            raise MeshError(
                f"link {lane.link} from chip {one} to chip {other} is needed, and {self.machine.name} has "
                f"{len(links)} there; ask for fewer links, or for a line instead of a ring."
            )
        link = links[lane.link]
        return f"{link.near_end(one)} → {link.far_end(one)}"

    def closes(self, axis: int) -> bool:
        """Whether every line along the axis is longer than two and has its ends joined."""
        return self.shape[axis] > 2 and all(self.machine.links_between(line[0], line[-1]) for line in self._lines(axis))

    def _lines(self, axis: int) -> Iterator[list[int]]:
        stride = 1
        for extent in self.shape[axis + 1 :]:
            stride *= extent
        block = stride * self.shape[axis]
        for first, inner in product(range(0, len(self.chips), block), range(stride)):
            yield [self.chips[first + inner + stride * number] for number in range(self.shape[axis])]


def on_system(name: str, shape: Sequence[int], down: Sequence[str] = ()) -> ChipAssignment:
    """The chips that a program gets when it opens a mesh of this shape on a machine: "T3000", "torus:4x4".

    `down` is what is broken there: "chip:5", "link:3-7".

    >>> seats = on_system("T3000", (8,))
    >>> seats.wraps, seats.joined(0, 7), seats.links_between(0, 4)
    ((True,), True, 0)
    """
    # Loaded late: they bring the readers of descriptors and of YAML, which a program without a machine never needs.
    from softmesh.fabric.machine_system import MachineSystem
    from softmesh.systems.named_systems import load

    extents, _ = checked_mesh("on_system", shape, False)
    checked("on_system", "name", name, str, "the name of a machine such as 'T3000'")
    machine = with_down(load(name), tuple(down))
    if len(machine.hosts) > 1:
        machine = machine.only(machine.chips_of(machine.hosts[0]))
    system = MachineSystem(machine, Binding(), settings.active())
    opened = MeshShape(*(extents if len(extents) > 1 else (1, *extents)))
    return ChipAssignment(machine, extents, tuple(system.choose_devices(opened, None, ())))
