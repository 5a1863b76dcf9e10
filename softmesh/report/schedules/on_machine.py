"""A group of devices as chips of a machine, and its lanes as channels of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from softmesh.collectives.traffic import Lane
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.fabric.control_plane import Binding
from softmesh.fabric.machine_system import MachineSystem
from softmesh.mesh import MeshShape
from softmesh.systems.breakage import with_down
from softmesh.systems.catalogue import load
from softmesh.systems.machine import Machine


@dataclass(frozen=True)
class Seats:
    """Which chip each device of a group is."""

    machine: Machine
    shape: tuple[int, ...]
    chips: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"chip {chip}" for chip in self.chips)

    def lane_names(self, lanes: Iterable[Lane]) -> dict[Lane, str]:
        return {lane: self._lane_name(lane) for lane in lanes}

    def _lane_name(self, lane: Lane) -> str:
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
        return self.shape[axis] > 2 and all(
            self.machine.links_between(line[0], line[-1]) for line in self._lines(axis)
        )

    def _lines(self, axis: int) -> Iterator[list[int]]:
        stride = 1
        for extent in self.shape[axis + 1 :]:
            stride *= extent
        block = stride * self.shape[axis]
        for first, inner in product(range(0, len(self.chips), block), range(stride)):
            yield [self.chips[first + inner + stride * number] for number in range(self.shape[axis])]


def seated(spec: str, shape: tuple[int, ...], down: tuple[str, ...] = ()) -> Seats:
    """The chips that a program gets when it opens a mesh of this shape on the machine."""
    machine = with_down(load(spec), down)
    if len(machine.hosts) > 1:
        machine = machine.only(machine.chips_of(machine.hosts[0]))
    system = MachineSystem(machine, Binding(), settings.active())
    opened = MeshShape(*(shape if len(shape) > 1 else (1, *shape)))
    return Seats(machine, shape, tuple(system.choose_devices(opened, None, ())))
