"""Recorded runs as files: what a rank of a job, or the other program of a comparison, hands to who reads the clock.

JSON with tables: what many commands share (forms, lines, tensors) stands in it once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from softmesh.callsite import CallSite, resolved
from softmesh.cost.command_cost import Bound, CommandCost
from softmesh.cost.memory_journal import Entry, label_of
from softmesh.cost.recorded_run import Form, Recorded, RecordedRun
from softmesh.cost.timeline import DirectedLink, MemoryRegion, MeshRecord, TensorRecord, Traffic
from softmesh.errors import MeshError
from softmesh.input_files.sealed_json import is_sealed, sealed
from softmesh.kinds import Kind
from softmesh.systems.chip import CHIPS
from softmesh.systems.machine import Machine, Port
from softmesh.systems.named_systems import load
from softmesh.terminal_text import readable

_VERSION = 2
_MOST_BYTES = 1 << 30
_BOUND_AT = CommandCost._fields.index("bound")


class _Table:
    """Values in the order in which they were first met."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any, row: Any) -> int:
        """`row` is a function: it is asked once for each key."""
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.rows)
            self.rows.append(row())
        return known


def write_run(run: RecordedRun, path: Path) -> None:
    forms, sites, tensors = _Table(), _Table(), _Table()
    commands = []
    for command in run.commands:
        form, raw = command.form, command.raw_site
        ids = [[_noted(tensors, run, number) for number in group] for group in (command.inputs, command.outputs)]
        commands.append(
            [
                forms.number(id(form), lambda form=form: _form_row(form)),
                command.queue,
                sites.number(raw, lambda raw=raw: list(_site(raw))),
                *ids,
                list(command.within),
                command.is_blocking,
                command.trace,
                command.event,
                list(command.sends),
                list(command.receives),
                command.is_captured,
                command.mark,
            ]
        )
    memory = []
    for entry in run.memory:
        at = entry.raw_site
        site = None if at is None else sites.number(at, lambda at=at: list(_site(at)))
        memory.append([*entry[:6], label_of(entry.label), entry.tensor_id, site])
    down = () if run.machine is None else run.machine.down_links
    document = {
        "version": _VERSION,
        "rank": run.rank,
        "system": run.system,
        "is_elastic": run.machine is None,
        "down": [[*link.a, *link.b] for link in down],
        "fabric": run.fabric,
        "error": run.error,
        "chips": run.chips,
        "links": [[*link.source, *link.target] for link in run.links],
        "meshes": [_mesh_row(mesh) for mesh in run.meshes],
        "forms": forms.rows,
        "sites": sites.rows,
        "tensors": tensors.rows,
        "commands": commands,
        "memory": memory,
    }
    path.write_text(sealed(json.dumps(document)), encoding="utf-8")


def _noted(tensors: _Table, run: RecordedRun, number: int) -> int:
    """The place of a tensor in the table; its own number stands in its row."""
    assert run.tensors is not None
    known = run.tensors.record
    return tensors.number(number, lambda: list(known(number)))


class _ReadTensors(NamedTuple):
    """Tensors of a file, by their places in its table."""

    records: list[TensorRecord]

    def record(self, number: int) -> TensorRecord:
        return self.records[number]


def read_run(path: Path) -> RecordedRun:
    if not os.path.isfile(path):
        raise MeshError(f"{path}: {'not a plain file' if os.path.exists(path) else 'no such file'}.")
    if path.stat().st_size > _MOST_BYTES:
        raise MeshError(f"{path}: a recorded run of more than {_MOST_BYTES} bytes is not read.")
    try:
        text = path.read_text(encoding="utf-8")
        is_whole, found = is_sealed(text), json.loads(text)
        if not isinstance(found, dict) or found.get("version") != _VERSION or not is_whole:
            raise MeshError(f"{path}: not a recorded run of this version of softmesh.")
        return _run_of(found)
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        raise MeshError(f"{path}: not a whole recorded run ({readable(str(error))[:300]}). Record it again.") from None


def _run_of(found: dict[str, Any]) -> RecordedRun:
    forms = [_form_of(row) for row in found["forms"]]
    sites = [CallSite(*row) for row in found["sites"]]
    tensors = _ReadTensors([TensorRecord(*map(_tuples, row)) for row in found["tensors"]])
    commands = [_command_of(row, forms, sites) for row in found["commands"]]
    memory = [_entry_of(row, sites) for row in found["memory"]]
    return RecordedRun(
        found["rank"],
        commands,
        [_mesh_of(row) for row in found["meshes"]],
        [DirectedLink(Port(a, b), Port(c, d)) for a, b, c, d in found["links"]],
        found["chips"],
        memory,
        tensors,
        found["system"],
        None if found["is_elastic"] else _machine(found["system"], found["down"]),
        found["fabric"],
        found["error"],
    )


def _command_of(row: list[Any], forms: list[Form], sites: list[CallSite]) -> Recorded:
    form, queue, site, inputs, outputs, within, is_blocking, trace, event, sends, receives, is_captured, mark = row
    return Recorded(
        forms[form],
        queue,
        sites[site],
        tuple(inputs),
        tuple(outputs),
        tuple(within),
        is_blocking,
        trace,
        event,
        tuple(sends),
        tuple(receives),
        is_captured,
        mark,
    )


def _entry_of(row: list[Any], sites: list[CallSite]) -> Entry:
    command, mesh, buffer_type, address, size, number, label, tensor_id, site = row
    at = None if site is None else sites[site]
    return Entry(command, mesh, buffer_type, address, size, number, label, tensor_id, at)


def _site(raw: Any) -> CallSite:
    return raw if isinstance(raw, CallSite) else resolved(raw)


def _form_row(form: Form) -> list[Any]:
    cost = [*form.cost]
    cost[_BOUND_AT] = form.cost.bound.value
    traffic = None if form.traffic is None else form.traffic.bytes_by_link
    arguments = {name: _plain(value) for name, value in form.arguments.items()}
    return [form.name, form.kind.value, *form[2:5], cost, traffic, arguments, *form[8:]]


def _form_of(row: list[Any]) -> Form:
    name, kind, mesh, devices, places, cost, traffic, arguments, sub_devices, wait, writers = row
    cost[_BOUND_AT] = Bound(cost[_BOUND_AT])
    return Form(
        name,
        Kind(kind),
        mesh,
        tuple(devices),
        tuple(places),
        CommandCost(*cost),
        None if traffic is None else Traffic(_tuples(traffic)),
        arguments,
        tuple(sub_devices),
        tuple(wait),
        writers,
    )


def _mesh_row(mesh: MeshRecord) -> dict[str, Any]:
    return mesh._asdict() | {"chip": mesh.chip.kind, "regions": [list(region) for region in mesh.regions]}


def _mesh_of(row: dict[str, Any]) -> MeshRecord:
    row["chip"] = CHIPS[row["chip"]]
    row["regions"] = tuple(MemoryRegion(*region) for region in row["regions"])
    return MeshRecord(**{name: _tuples(value) for name, value in row.items()})


def _machine(name: str, down: list[list[int]]) -> Machine | None:
    """The machine of this name with what was broken; None where the name is that of a file elsewhere."""
    try:
        whole = load(name)
    except MeshError:
        return None
    broken = {(Port(a, b), Port(c, d)) for a, b, c, d in down}
    return whole.without(links=[link for link in whole.links if tuple(link) in broken]) if broken else whole


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
