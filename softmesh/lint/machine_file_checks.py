"""Checks files that describe machines: cluster descriptors, and which devices each tray of a Galaxy has."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from softmesh.errors import MeshError, did_you_mean
from softmesh.input_files.text_files import FileError, Finding, Severity, errors_of
from softmesh.input_files.yaml_files import Rows, Table, Value
from softmesh.lint.file_report import FileReport, LintContext, file_report
from softmesh.processes.bindings.galaxy_splits import devices_of_trays
from softmesh.processes.bindings.launch_files import FieldReader
from softmesh.systems.cluster_descriptor import load_cluster
from softmesh.systems.machine import Machine

# Cluster descriptors: can they be loaded, and what is in them.


CLUSTER_DESCRIPTOR = "cluster descriptor"


def lint_cluster(path: Path, context: LintContext) -> FileReport:
    """`context` does not matter: the file is a machine itself."""
    try:
        machine = load_cluster(path)
    except MeshError as error:
        return file_report(str(path), CLUSTER_DESCRIPTOR, "invalid", [_refusal(path, error)])
    note = Finding("cluster/summary", Severity.NOTE, _summary(machine))
    return file_report(str(path), CLUSTER_DESCRIPTOR, "valid", [note])


def _refusal(path: Path, error: MeshError) -> Finding:
    """File and line have places of their own here, unless the fault is in a file that this one names."""
    if isinstance(error, FileError) and Path(error.path) == path:
        return Finding("cluster/refused", Severity.ERROR, error.what, line=error.line)
    return Finding("cluster/refused", Severity.ERROR, str(error))


def _summary(machine: Machine) -> str:
    pairs = sum(len(near) for near in machine.neighbours.values()) // 2
    outside = f", {len(machine.outside)} links to others" if machine.outside else ""
    hosts = len(machine.hosts)
    return (
        f"{machine.cluster_type.name}: {len(machine.asics)} chips on {hosts} host{'s' * (hosts != 1)}, "
        f"{len(machine.links)} links between {pairs} pairs{outside}"
    )


TRAY_MAPPING = "tray mapping"
DEVICES = "device_mapping"
_ARCHES = ("wormhole_b0", "blackhole")
_TRAYS = range(1, 5)
_OF_A_TRAY = 8


def lint_trays(path: Path, context: LintContext) -> FileReport:
    reader = FieldReader(os.fspath(path), os.environ)
    root = reader.whole_file(f"with the keys arch and {DEVICES}")
    if root is not None:
        reader.known_keys("", root, ("arch", DEVICES))
        arch, trays = _arch(reader, root), _trays(reader, root)
        if context.machine is not None and not errors_of(reader.findings):
            _compare(reader, context.machine, arch, trays, root)
    findings = [replace(one, rule=one.rule.replace("bindings/", "trays/", 1)) for one in reader.findings]
    return file_report(str(path), TRAY_MAPPING, _verdict(findings, context.machine), findings)


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
        reader.error("arch", f"arch: {arch[:40]!r} has no Galaxy.{hint}", value.line, f"one of {', '.join(_ARCHES)}")
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


def _compare(reader: FieldReader, machine: Machine, arch: str | None, trays: dict[int, list[int]], root: Table) -> None:
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
            message = f"{DEVICES}.{tray}: {sorted(devices)}, while tray {tray} of {machine.name} has {own[tray]}"
            reader.error("other-machine", message, lines[DEVICES], fix)
