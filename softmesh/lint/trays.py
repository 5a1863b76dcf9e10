"""The file that says which devices each tray of a Galaxy has: its form, and whether a machine agrees."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from softmesh.errors import MeshError, did_you_mean
from softmesh.fabric.finding import Finding, errors_of
from softmesh.lint.file_report import FileReport, Setting, file_report
from softmesh.processes.field_reader import FieldReader
from softmesh.processes.presets import devices_of_trays
from softmesh.systems.machine import Machine
from softmesh.yaml_tree import Rows, Table, Value

KIND = "tray mapping"
DEVICES = "device_mapping"
_ARCHES = ("wormhole_b0", "blackhole")
_TRAYS = range(1, 5)
_OF_A_TRAY = 8


def lint_trays(path: Path, setting: Setting) -> FileReport:
    reader = FieldReader(os.fspath(path), os.environ)
    root = reader.whole_file(f"with the keys arch and {DEVICES}")
    if root is not None:
        reader.known_keys("", root, ("arch", DEVICES))
        arch, trays = _arch(reader, root), _trays(reader, root)
        if setting.machine is not None and not errors_of(reader.findings):
            _compare(reader, setting.machine, arch, trays, root)
    findings = [_of_trays(finding) for finding in reader.findings]
    return file_report(str(path), KIND, _verdict(findings, setting.machine), findings)


def _of_trays(finding: Finding) -> Finding:
    return replace(finding, rule=finding.rule.replace("bindings/", "trays/", 1))


def _verdict(findings: list[Finding], machine: Machine | None) -> str:
    wrong = errors_of(findings)
    if machine is None:
        return "invalid" if wrong else "valid"
    if wrong and all(finding.rule == "trays/other-machine" for finding in wrong):
        return f"valid; not the trays of {machine.name}"
    return "invalid" if wrong else f"valid; the trays of {machine.name}"


def _arch(reader: FieldReader, root: Table) -> str | None:
    value = reader.required("", root, "arch")
    arch = None if value is None else reader.string("arch", value)
    if value is not None and arch is not None and arch not in _ARCHES:
        hint = did_you_mean(arch, _ARCHES)
        reader.error(
            "arch", f"arch: {arch[:40]!r} has no Galaxy.{hint}", value.line, f"one of {', '.join(_ARCHES)}"
        )
    return arch


def _trays(reader: FieldReader, root: Table) -> dict[int, list[int]]:
    value = reader.required("", root, DEVICES)
    table = None if value is None else reader.table(DEVICES, value)
    trays: dict[int, list[int]] = {}
    owners: dict[int, int] = {}
    for key, devices in (table or Table()).entries():
        where = f"{DEVICES}.{str(key)[:20]}"
        tray = reader.natural(f"{where}.[key]", key)
        if tray is None:
            continue
        if tray not in _TRAYS:
            reader.error("tray", f"{where}: a Galaxy has the trays 1 to 4", key.line)
        trays[tray] = _devices(reader, where, devices)
        for device in trays[tray]:
            if (owner := owners.setdefault(device, tray)) != tray:
                reader.error("shared", f"{where}: device {device} is in tray {owner} already", devices.line)
    if table is not None and (missing := [tray for tray in _TRAYS if tray not in trays]):
        reader.error("tray", f"{DEVICES}: tray {', '.join(map(str, missing))} is missing", table.line)
    return trays


def _devices(reader: FieldReader, where: str, value: Value) -> list[int]:
    if not isinstance(value, Rows):
        reader.error("not-a-list", f"{where}: Input should be a valid list", value.line)
        return []
    read = [reader.natural(f"{where}.{i}", entry) for i, entry in enumerate(value)]
    devices = [device for device in read if device is not None]
    if len(set(devices)) != len(devices):
        reader.error("shared", f"{where}: a device is listed twice", value.line)
    if len(value) != _OF_A_TRAY:
        reader.error("tray", f"{where}: {len(value)} devices; a tray has {_OF_A_TRAY}", value.line)
    return devices


def _compare(
    reader: FieldReader, machine: Machine, arch: str | None, trays: dict[int, list[int]], root: Table
) -> None:
    fix = f"softmesh bindings --system {machine.name} writes the trays of this machine"
    lines = {str(key): key.line for key, _ in root.entries()}
    try:
        own = devices_of_trays(machine)
    except MeshError:
        message = f"{DEVICES}: {machine.name} is not a single Galaxy with 32 devices, and has no such trays"
        reader.error("other-machine", message, lines[DEVICES])
        return
    if arch != machine.chip.arch_name:
        message = f"arch: {arch}, while {machine.name} has {machine.chip.arch_name}"
        reader.error("other-machine", message, lines["arch"], fix)
    for tray, devices in trays.items():
        if sorted(devices) != own[tray]:
            message = (
                f"{DEVICES}.{tray}: {sorted(devices)}, while tray {tray} of {machine.name} has {own[tray]}"
            )
            reader.error("other-machine", message, lines[DEVICES], fix)
