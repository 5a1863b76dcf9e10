"""Detects the kind of each file and runs the checker for it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from softmesh.errors import ArgumentValueError, did_you_mean
from softmesh.hardware import FabricConfig
from softmesh.input_files.text_files import FileError, Finding, Severity, read_text
from softmesh.lint.binding_checks import lint_bindings, lint_bindings_mapping, lint_descriptor_mapping
from softmesh.lint.descriptor_checks import lint_descriptor
from softmesh.lint.file_report import FileReport, LintContext, file_report
from softmesh.lint.machine_file_checks import DEVICES, lint_cluster, lint_trays
from softmesh.processes.bindings.mapping_files import DESCRIPTORS, MOCKS, RANK_BINDINGS
from softmesh.systems.machine import Machine
from softmesh.systems.machine_restriction import with_down
from softmesh.systems.named_systems import load

Checker = Callable[[Path, LintContext], FileReport]

_TOP_LEVEL_KEY = re.compile(r"^['\"]?(\w+)['\"]?\s*:", re.MULTILINE)
_PROTOBUF_TEXT = re.compile(
    r"^\s*(mesh_descriptors|switch_descriptors|graph_descriptors|top_level_instance)\s*:?\s*\{", re.MULTILINE
)
_CLUSTER_KEYS = {"arch", "chips", "ethernet_connections", "chips_with_mmio", "chip_to_boardtype"}
_OLD_DESCRIPTOR_KEYS = {"ChipSpec", "Board", "Mesh", "Graph", "HostMapping"}  # MGD 1.0
_YAML = (".yaml", ".yml")


def lint(
    paths: Sequence[str | Path],
    system: str | Machine | None = None,
    down: Sequence[str] = (),
    fabric: str | FabricConfig | None = None,
    runtime: bool = True,
) -> list[FileReport]:
    """A report on each file.

    >>> lint(["t3k.textproto"], system="T3000", fabric="FABRIC_2D")[0].verdict
    'valid; comes up as FABRIC_2D on T3000'
    """
    context = LintContext(_machine(system, down), _fabric(fabric), runtime)
    files = [Path(path) for path in paths]
    for file in files:
        if not os.path.isfile(file):
            reason = "is not a file" if os.path.exists(file) else "does not exist"
            raise ArgumentValueError(f"{file} {reason}.")
    return [_lint_file(file, context) for file in files]


def _machine(system: str | Machine | None, down: Sequence[str]) -> Machine | None:
    if system is None:
        if down:
            raise ArgumentValueError("Links and chips can be down only in a system: say which (--system T3000).")
        return None
    machine = load(system) if isinstance(system, str) else system
    return with_down(machine, down) if down else machine


def _fabric(fabric: str | FabricConfig | None) -> FabricConfig | None:
    if fabric is None or isinstance(fabric, FabricConfig):
        return fabric
    names = [config.name for config in FabricConfig]
    if fabric.upper() not in names:
        hint = did_you_mean(fabric.upper(), names)
        raise ArgumentValueError(f"There is no fabric config {fabric!r}.{hint} There are {', '.join(names)}.")
    return FabricConfig[fabric.upper()]


def _lint_file(path: Path, context: LintContext) -> FileReport:
    try:
        text = read_text(path)
    except FileError as error:
        finding = Finding(f"lint/{error.rule}", Severity.ERROR, error.what, line=error.line)
        return file_report(str(path), "file", "invalid", [finding])
    checker = checker_for(path, text)
    return checker(path, context) if checker else _unknown(path)


def checker_for(path: Path, text: str) -> Checker | None:
    """By content first; a YAML file that says nothing of its kind is taken for rank bindings."""
    if path.suffix == ".textproto" or _PROTOBUF_TEXT.search(text):
        return _descriptor
    keys = set(_TOP_LEVEL_KEY.findall(text))
    for key, checker in _BY_KEY.items():
        if key in keys:
            return checker
    if keys & _CLUSTER_KEYS:
        return lint_cluster
    if keys & _OLD_DESCRIPTOR_KEYS:
        return _descriptor
    return lint_bindings if path.suffix.lower() in _YAML else None


def _descriptor(path: Path, context: LintContext) -> FileReport:
    return lint_descriptor(path, context).report


_BY_KEY: dict[str, Checker] = {
    "rank_bindings": lint_bindings,
    RANK_BINDINGS: lint_bindings_mapping,
    DESCRIPTORS: lint_descriptor_mapping,
    MOCKS: lint_cluster,
    DEVICES: lint_trays,
}


def _unknown(path: Path) -> FileReport:
    message = (
        "this is neither a mesh graph descriptor nor rank bindings, a mapping, a cluster descriptor or the trays "
        "of a Galaxy"
    )
    fix = "descriptors end in .textproto, everything else in .yaml"
    finding = Finding("lint/unknown-kind", Severity.ERROR, message, fix)
    return file_report(str(path), "file", "unknown", [finding])
