"""Pinnings: which chips must land on which positions, checked and with their patterns expanded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from softmesh.fabric.descriptors.complaints import error, warning
from softmesh.fabric.descriptors.patterns import Pattern, PatternError
from softmesh.fabric.descriptors.positions import Place
from softmesh.fabric.finding import Finding
from softmesh.fabric.mesh_graph import LogicalMesh, Node, Pinning

_FIELDS = {
    "logical_fabric_node_id": ("mesh_id", "chip_id"),
    "physical_asic_position": ("tray_id", "asic_location"),
}
_POSITIONS = range(256)  # what tray and location patterns range over
MOST_SELECTED = 65_536  # numbers tried, in one file


def pinning_errors(pinning: Any, place: Place) -> Iterator[Finding]:
    for name, fields in _FIELDS.items():
        entries = getattr(pinning, name)
        if not entries:
            yield error(
                "pinning-empty", f"Pinning entry has no {name}", f"add {name} {{ {fields[0]}: 0 }}", place
            )
        if len({_is_regex(entry, fields) for entry in entries}) > 1:
            yield error(
                "pinning-mixed",
                f"Pinning entry mixes regex and non-regex {name} fields; use separate entries",
                f"write two pinnings: one whose {name} use patterns, one whose do not",
                place.of(name),
            )
        for i, entry in enumerate(entries):
            for field in fields:
                yield from _field_errors(entry, name, field, place.of(name, i))


def _field_errors(entry: Any, name: str, field: str, place: Place) -> Iterator[Finding]:
    regex = f"{field}_regex"
    if not entry.HasField(regex):
        return
    if entry.HasField(field):
        text = f"{name} sets both {regex} and {field}; use one or the other"
        yield error("pinning-both", text, f"remove {field} or {regex}", place.of(regex))
    try:
        Pattern(getattr(entry, regex))
    except PatternError as wrong:
        fix = 'write numbers and ranges ("0,2,4-6") or a regular expression ("[0-3]")'
        yield error("pinning-pattern", f"{name}.{regex}{wrong}", fix, place.of(regex))


def _is_regex(entry: Any, fields: tuple[str, str]) -> bool:
    return any(entry.HasField(f"{field}_regex") for field in fields)


class PinningError(Exception):
    def __init__(self, place: Place) -> None:
        text = f"The pinnings select more than {MOST_SELECTED} chips and positions"
        self.finding = error("pinning-too-many", text, "pin fewer chips, or write narrower patterns", place)
        super().__init__(text)


class Expansion:
    """The pinnings of a file over its meshes, with all patterns expanded.

    `pinnings` has one for each mesh that an entry speaks of; those of one entry share its positions.
    `findings` warns of entries that select no chip: the runtime passes over them.
    """

    def __init__(self, entries: Any, places: Place, meshes: tuple[LogicalMesh, ...]) -> None:
        self.meshes = meshes
        self.budget = MOST_SELECTED
        self.findings: list[Finding] = []
        self.pinnings = tuple(
            pinning
            for i, entry in enumerate(entries)
            for pinning in self._groups(entry, places.of("pinnings", i))
        )

    def _groups(self, entry: Any, place: Place) -> Iterator[Pinning]:
        positions = {
            (tray, location): None
            for position in entry.physical_asic_position
            for tray in self._numbers(position, "tray_id", _POSITIONS, place)
            for location in self._numbers(position, "asic_location", _POSITIONS, place)
        }
        groups: dict[int, dict[Node, None]] = {}
        for i, id in enumerate(entry.logical_fabric_node_id):
            nodes = list(self._nodes(id, place))
            if not nodes:
                self.findings.append(self._selects_nothing(id, place.of("logical_fabric_node_id", i)))
            for node in nodes:
                groups.setdefault(node.mesh, {})[node] = None
        for group in groups.values():
            yield Pinning(tuple(group), tuple(positions), place.line)

    def _nodes(self, id: Any, place: Place) -> Iterator[Node]:
        for mesh in self._numbers(id, "mesh_id", range(len(self.meshes)), place):
            if mesh < len(self.meshes):
                domain = range(self.meshes[mesh].size)
                for chip in self._numbers(id, "chip_id", domain, place):
                    if chip in domain:
                        yield Node(mesh, chip)

    def _numbers(self, entry: Any, field: str, domain: range, place: Place) -> list[int]:
        """What one field selects: a pattern over the domain, or a number; one left out counts as 0."""
        is_pattern = entry.HasField(f"{field}_regex")
        self.budget -= len(domain) if is_pattern else 1
        if self.budget < 0:
            raise PinningError(place)
        return (
            Pattern(getattr(entry, f"{field}_regex")).among(domain) if is_pattern else [getattr(entry, field)]
        )

    def _selects_nothing(self, id: Any, place: Place) -> Finding:
        what = ", ".join(f"{field.name} {value!r}" for field, value in id.ListFields())
        return warning(
            "pinning-selects-nothing",
            f"This pinning selects no chip: {what}",
            f"the meshes are 0..{len(self.meshes) - 1}, the chips of each count from 0; the runtime passes "
            "over it",
            place,
        )
