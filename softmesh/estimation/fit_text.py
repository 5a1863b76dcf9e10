"""The answer of `softmesh fit` for a terminal: verdict, memories at their peaks, the largest tensors, what may help."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from softmesh.cost.memory_fit import Fit, MemoryUse, fit_of, help_for, smallest_system
from softmesh.cost.summaries import size_text
from softmesh.cost.timeline import Estimate
from softmesh.estimation.estimate_text import plain_table, say, show_table
from softmesh.systems.machine import Machine
from softmesh.systems.named_systems import entries, load

_LARGEST = 10
_MOST_HELP = 5


def show_fit(estimate: Estimate, to: Console, *, in_full: bool = True) -> Fit:
    """`in_full`: with the largest tensors and what would help, also where all fits."""
    fit = fit_of(estimate)
    say(to, verdict(fit, estimate))
    if fit.uses:
        rows = [
            (
                use.buffer_type,
                str(use.banks),
                size_text(use.size),
                size_text(use.peak),
                f"{use.peak / max(use.size, 1):.1%}",
                str(use.peak_site or "-"),
            )
            for use in fit.uses
        ]
        columns = ("memory", "banks", "bank has", "peak", "full", "peak at")
        show_table(to, plain_table("memory, bytes of each bank", columns, rows, (1, 2, 3, 4)))
    for use in fit.uses:
        if not use.fits or (in_full and use.buffer_type == "DRAM"):
            _show_use(use, fit, estimate, to)
    return fit


def verdict(fit: Fit, estimate: Estimate) -> str:
    on = f"{estimate.system}, {fit.devices} chip{'s' * (fit.devices != 1)}"
    if not fit.uses:
        return f"Nothing was put on a device of {on}."
    short = [use for use in fit.uses if not use.fits]
    if not short:
        return f"It fits on {on}{'' if estimate.error is None else ', up to where it ended'}."
    reasons = []
    for use in short:
        if use.missing:
            reasons.append(
                f"{use.buffer_type} lacks {size_text(use.missing)} in each of {use.banks} banks of "
                f"{size_text(use.size)} (first at {use.first_refusal})"
            )
        else:
            reasons.append(
                f"{use.buffer_type} has room, but not {size_text(use.fragmented)} of each bank in one piece "
                f"(first at {use.first_refusal})"
            )
    return f"It does not fit on {on}: {'; '.join(reasons)}."


def _show_use(use: MemoryUse, fit: Fit, estimate: Estimate, to: Console) -> None:
    rows = [
        (
            held.label,
            " x ".join(held.tensor.placement) if held.tensor is not None else "",
            size_text(held.bytes_per_bank),
            f"{held.bytes_per_bank / use.peak:.1%}",
            str(held.site or "-"),
        )
        for held in use.held[:_LARGEST]
    ]
    title = f"the largest of {len(use.held)} in {use.buffer_type} at its peak"
    show_table(to, plain_table(title, ("what", "placed", "of each bank", "of the peak", "made at"), rows, (2, 3)))
    found = help_for(use, estimate)
    for one in found[:_MOST_HELP]:
        say(to, f"would save {size_text(one.saves)} of each bank: {one.text}")
    if not use.fits:
        found_on = systems_that_hold(use, fit, estimate)
        names = ", or ".join(f"{one.name} ({len(one.asics)} x {one.chip.kind})" for one in found_on)
        text = f"the smallest known systems that hold it, sharded over all their chips: {names}"
        say(to, text if names else "no known system holds it")


def systems_that_hold(use: MemoryUse, fit: Fit, estimate: Estimate) -> list[Machine]:
    """The smallest of the same architecture, and the smallest of all where that is another."""
    arch = next((mesh.chip.arch for mesh in estimate.meshes), None)
    every = known_machines()
    alike = [machine for machine in every if machine.chip.arch is arch]
    found = (smallest_system(use, fit.devices, machines) for machines in (alike, every))
    return list({machine.name: machine for machine in found if machine is not None}.values())


def known_machines() -> list[Machine]:
    return [load(entry.name) for entry in entries()]


def fit_document(estimate: Estimate) -> dict[str, Any]:
    """For `--json`."""
    fit = fit_of(estimate)
    return {
        "program": estimate.program,
        "system": estimate.system,
        "error": estimate.error,
        "fits": fit.fits,
        "verdict": verdict(fit, estimate),
        "devices": fit.devices,
        "memories": [_use_document(use, fit, estimate) for use in fit.uses],
    }


def _use_document(use: MemoryUse, fit: Fit, estimate: Estimate) -> dict[str, Any]:
    systems = [] if use.fits else systems_that_hold(use, fit, estimate)
    return {
        "memory": use.buffer_type,
        "banks": use.banks,
        "bytes_per_bank": use.size,
        "peak_bytes_per_bank": use.peak,
        "peak_at": str(use.peak_site),
        "fits": use.fits,
        "missing_bytes_per_bank": use.missing,
        "fragmented_bytes_per_bank": use.fragmented,
        "first_refusal": None if use.first_refusal is None else str(use.first_refusal),
        "largest": [
            {"what": held.label, "bytes_per_bank": held.bytes_per_bank, "made_at": str(held.site)}
            for held in use.held[:_LARGEST]
        ],
        "help": [{"text": one.text, "saves_bytes_per_bank": one.saves} for one in help_for(use, estimate)],
        "smallest_systems": [machine.name for machine in systems],
    }
