"""How the checks of a descriptor make their findings: a rule under `mgd/`, and a place in the text."""

from __future__ import annotations

from softmesh.fabric.descriptors.positions import Place
from softmesh.fabric.finding import Finding, Severity


def error(rule: str, message: str, fix: str, place: Place) -> Finding:
    return Finding(f"mgd/{rule}", Severity.ERROR, message, fix, line=place.line)


def warning(rule: str, message: str, fix: str, place: Place) -> Finding:
    return Finding(f"mgd/{rule}", Severity.WARNING, message, fix, line=place.line)


def note(rule: str, message: str, fix: str, place: Place) -> Finding:
    return Finding(f"mgd/{rule}", Severity.NOTE, message, fix, line=place.line)
