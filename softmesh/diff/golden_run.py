"""A run as TT-NN's golden functions would have it: every op once more in torch, from what the program gave it."""

from __future__ import annotations

from dataclasses import replace

import torch

from softmesh.diff.assembly import measured, own_axes, value_of, whole_of
from softmesh.diff.golden_values import golden_of, wholes
from softmesh.diff.recording import READS, Entry, Recording
from softmesh.diff.tolerances import UNITS, unit
from softmesh.diff.value_store import Stored, ValueStore
from softmesh.hardware.enums import DataType
from softmesh.placement.distribution import HOST
from softmesh.placement.placements import LOCAL, REPLICATE
from softmesh.train.equivalence.values import Value, whole

_NEAR = 4.0  # roundings by which a sum over devices may differ from the sum of what they hold


def golden_run(mine: Recording) -> Recording:
    """Values that no golden function tells, and those of the host, are left as they are or left out."""
    theirs = Recording(ValueStore(), is_by_op=True)
    for entry in mine.entries:
        made = _made(mine, entry)
        outputs = [_put(theirs, stored, None if made is None else made[at]) for at, stored in enumerate(entry.outputs)]
        theirs.entries.append(replace(entry, outputs=tuple(outputs), inputs=()))
    return theirs


def _made(run: Recording, entry: Entry) -> list[Value] | None:
    if not entry.inputs or entry.name in READS:
        return _own(run, entry)
    if entry.sends:
        return _moved(run, entry) if len(entry.outputs) == 1 else None
    read = wholes(run, entry)
    found = None if read is None else golden_of(entry, read)
    if read is None or found is None or len(found) != len(entry.outputs):
        return _unchanged(run, entry)
    return [_on_host(one) if not read.devices else _on_devices(run, entry, one) for one in found]


def _unchanged(run: Recording, entry: Entry) -> list[Value] | None:
    """Return what the op read if its result has the same bits: it only moved a value to other memory or devices."""
    if len(entry.inputs) != 1 or len(entry.outputs) != 1:
        return None
    read, made = value_of(run, entry.inputs[0]), value_of(run, entry.outputs[0])
    if read is None or made is None:
        return None
    if LOCAL in (*read.words, *made.words):
        return [made] if read.dist is made.dist and torch.equal(read.data, made.data) else None
    before, after = (whole("a value", one) for one in (read, made))
    return [_on_host(before)] if torch.equal(before, after) else None


def _moved(run: Recording, entry: Entry) -> list[Value] | None:
    """What a collective read, put together, where it moves a value and leaves it what it is; others are not told."""
    value = value_of(run, entry.inputs[0])
    if value is None:
        return None
    if LOCAL not in value.words and entry.kind is not None and entry.kind.keeps_whole:
        return [_on_host(whole("a value", value))]
    made, dtype = whole_of(run, entry.outputs[0]), entry.outputs[0].dtype
    read = None if made is None else measured(value, made, dtype)
    if read is None or read.severity > _NEAR * max(unit(dtype), UNITS[DataType.FLOAT32]) or LOCAL in read.value.words:
        return None
    return [_on_host(whole("a value", read.value))]


def _on_host(values: torch.Tensor) -> Value:
    return Value(values[None, None], HOST)


def _on_devices(run: Recording, entry: Entry, values: torch.Tensor) -> Value:
    """By device along the axes along which the op read something of each device's own."""
    read = [one for one in (value_of(run, operand) for operand in entry.inputs) if one is not None]
    dist, axes = read[0].dist, own_axes(*read)
    words = tuple(LOCAL if axis in axes else REPLICATE for axis in range(dist.lead))
    lead = [n if axis in axes else 1 for axis, n in enumerate(dist.grid)]
    return Value(values.reshape(*lead, *values.shape[len(axes) :]), dist.with_placements(words))


def _own(run: Recording, entry: Entry) -> list[Value] | None:
    found = [value_of(run, stored) for stored in entry.outputs]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


def _put(run: Recording, stored: Stored, value: Value | None) -> Stored:
    if value is None:
        empty = run.store.put(torch.zeros(1, 1, 0), HOST, stored.dtype)
        missing = empty._replace(offset=-1)
        run.store.values[missing.number] = missing
        return missing
    kept = value.data.float() if value.data.is_floating_point() else value.data
    return run.store.put(kept, value.dist, stored.dtype)
