"""Rich display in notebooks: importing this module binds `_repr_html_` of meshes, tensors, machines, schedules, logs.

Imported with softmesh itself, so it stays light: the pictures are loaded when the first one is asked for.
"""

from __future__ import annotations

from html import escape

from softmesh.collectives.schedules.chip_assignment import ChipAssignment
from softmesh.collectives.schedules.language import Schedule
from softmesh.report.command_log import CommandLog
from softmesh.runtime.device import MeshDevice
from softmesh.systems.machine import Machine
from softmesh.tensor.tensor import Tensor, tensor_method


def mesh_html(self: MeshDevice) -> str:
    from softmesh.report.mesh_svg import mesh_svg

    title = repr(self) if self.is_open else f"{self!r}, closed"
    return mesh_svg(tuple(self.shape), self.all_device_ids, title)


@tensor_method("_repr_html_")
def tensor_html(self: Tensor) -> str:
    """The shards; also the values, where there is one piece. What was deallocated says so."""
    from softmesh.report.mesh_svg import tensor_svg

    if not self.is_allocated():
        return _preformatted(self)
    picture = tensor_svg(self)
    return picture + _preformatted(self) if len(self.view_distribution().coordinates()) == 1 else picture


def _preformatted(tensor: Tensor) -> str:
    return f"<pre>{escape(repr(tensor))}</pre>"


def machine_html(self: Machine) -> str:
    """Its chips and cables."""
    from softmesh.report.wiring.machine_wiring import machine_wiring
    from softmesh.report.wiring.wiring_svg import wiring_svg

    return wiring_svg(machine_wiring(self))


def chip_assignment_html(self: ChipAssignment) -> str:
    """The machine, with the chips that play the devices coloured and numbered."""
    from softmesh.report.wiring.machine_wiring import assignment_wiring
    from softmesh.report.wiring.wiring_svg import wiring_svg

    return wiring_svg(assignment_wiring(self))


def schedule_html(self: Schedule) -> str:
    """The film strip, its devices in a line; `collectives.draw` knows other shapes."""
    from softmesh.report.schedules.draw import replay_of
    from softmesh.report.schedules.film_strip import schedule_svg

    last = self.devices - 1
    is_ring = last > 1 and any(abs(send.sender - send.receiver) == last for step in self.steps for send in step)
    return schedule_svg(replay_of(self, (self.devices,), (is_ring,), None))


def command_log_html(self: CommandLog) -> str:
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in self.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
    return f"<table><caption>{len(self)} commands</caption><tr>{head}</tr>{rows}</table>"


def _cell(text: str) -> str:
    return f"<td style='text-align:left;white-space:pre'>{escape(text)}</td>"


MeshDevice._repr_html_ = mesh_html  # type: ignore[attr-defined]
ChipAssignment._repr_html_ = chip_assignment_html  # type: ignore[attr-defined]
Machine._repr_html_ = machine_html  # type: ignore[attr-defined]
Schedule._repr_html_ = schedule_html  # type: ignore[attr-defined]
CommandLog._repr_html_ = command_log_html  # type: ignore[attr-defined]
