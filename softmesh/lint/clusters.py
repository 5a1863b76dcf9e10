"""Cluster descriptors under the lens: can they be loaded, and what is in them."""

from __future__ import annotations

from pathlib import Path

from softmesh.bounded_file import FileError
from softmesh.errors import MeshError
from softmesh.fabric.finding import Finding, Severity
from softmesh.lint.file_report import FileReport, Setting, file_report
from softmesh.systems.cluster_descriptor import load_cluster
from softmesh.systems.machine import Machine

KIND = "cluster descriptor"


def lint_cluster(path: Path, setting: Setting) -> FileReport:
    """`setting` does not matter: the file is a machine itself."""
    try:
        machine = load_cluster(path)
    except MeshError as error:
        return file_report(str(path), KIND, "invalid", [_refusal(path, error)])
    note = Finding("cluster/summary", Severity.NOTE, _summary(machine))
    return file_report(str(path), KIND, "valid", [note])


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
