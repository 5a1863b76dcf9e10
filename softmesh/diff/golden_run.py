"""A run as TT-NN's golden functions would have it: every op once more in torch, from what the program gave it."""

from __future__ import annotations

from dataclasses import replace

import torch

from softmesh.diff.assembly import whole_of
from softmesh.diff.golden_values import golden_of, wholes
from softmesh.diff.recording import READS, Entry, Recording
from softmesh.diff.value_store import Stored, ValueStore
from softmesh.placement.distribution import HOST


def golden_run(mine: Recording) -> Recording:
    """Values that no golden function tells, and those of the host, are left as they are or left out."""
    theirs = Recording(ValueStore())
    for entry in mine.entries:
        made = _made(mine, entry)
        outputs = [_put(theirs, stored, None if made is None else made[at]) for at, stored in enumerate(entry.outputs)]
        theirs.entries.append(replace(entry, outputs=tuple(outputs), inputs=()))
    return theirs


def _made(run: Recording, entry: Entry) -> list[torch.Tensor] | None:
    if not entry.inputs or entry.name in READS:
        return _own(run, entry)
    inputs = wholes(run, entry)
    if inputs is None:
        return None
    if entry.sends:
        return inputs[:1] if len(entry.outputs) == 1 else None  # it moves a value, and leaves it what it is
    found = golden_of(entry, inputs)
    return found if found is not None and len(found) == len(entry.outputs) else None


def _own(run: Recording, entry: Entry) -> list[torch.Tensor] | None:
    found = [whole_of(run, stored) for stored in entry.outputs]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


def _put(run: Recording, stored: Stored, values: torch.Tensor | None) -> Stored:
    if values is None:
        empty = run.store.put(torch.zeros(1, 1, 0), HOST, stored.dtype)
        missing = empty._replace(offset=-1)
        run.store.values[missing.number] = missing
        return missing
    kept = values.float() if values.is_floating_point() else values
    return run.store.put(kept[None, None], HOST, stored.dtype)
