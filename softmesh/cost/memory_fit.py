"""Memory fit of a program on its chips: what each bank holds at the peak, what is missing, what would help.

Memory is taken in lock step, so every bank of every chip of a mesh holds the same number of bytes; meshes that share a
chip share its banks. A memory that is full does not end an estimate: what did not fit is counted beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from softmesh.callsite import CallSite
from softmesh.cost.timeline import Estimate, MemoryEvent, MeshRecord, TensorRecord
from softmesh.hardware.enums import DataType
from softmesh.systems.chip import Chip
from softmesh.systems.machine import Machine
from softmesh.tensor.dtype import tile_size

_SMALLER = {"FLOAT32": "BFLOAT16", "BFLOAT16": "BFLOAT8_B", "BFLOAT8_B": "BFLOAT4_B"}


class Held(NamedTuple):
    """Something that lay in a memory at its peak."""

    label: str
    bytes_per_bank: int
    site: CallSite | None
    tensor: TensorRecord | None
    last_use: CallSite | None  # of a tensor that nothing read at the peak or later: its last reader
    is_used_later: bool


class MemoryUse(NamedTuple):
    """One memory of the chip that needs most of it. Sizes are bytes of one bank."""

    buffer_type: str
    banks: int
    size: int
    peak: int
    peak_site: CallSite | None  # the line at which most was held
    peak_command: int
    held: tuple[Held, ...]  # at the peak, the largest first
    missing: int  # bytes that there were not; 0 where all fitted
    fragmented: int  # bytes of the largest request that found room enough, but not in one piece
    first_refusal: CallSite | None  # the line that first asked for more than there was

    @property
    def fits(self) -> bool:
        return not self.missing and not self.fragmented


class Fit(NamedTuple):
    """`uses` has each memory that anything lay in, the fullest first."""

    uses: tuple[MemoryUse, ...]
    devices: int

    @property
    def fits(self) -> bool:
        return all(use.fits for use in self.uses)

    def use(self, buffer_type: str) -> MemoryUse | None:
        return next((use for use in self.uses if use.buffer_type == buffer_type), None)


def fit_of(estimate: Estimate) -> Fit:
    """Of the chip that needs most, for each memory."""
    uses: dict[str, MemoryUse] = {}
    tensors = _tensors(estimate)
    for meshes in _sharing_a_chip(estimate.meshes):
        for region in meshes[0].regions:
            own = {mesh.index for mesh in meshes}
            events = [e for e in estimate.memory if e.mesh in own and e.buffer_type == region.buffer_type]
            found = _use(region.buffer_type, region.banks, region.size, events, estimate, tensors)
            known = uses.get(region.buffer_type)
            if found is not None and (known is None or found.peak > known.peak):
                uses[region.buffer_type] = found
    devices = len({device for mesh in estimate.meshes for device in mesh.devices})
    return Fit(tuple(sorted(uses.values(), key=lambda use: -use.peak / max(use.size, 1))), devices)


def _sharing_a_chip(meshes: Sequence[MeshRecord]) -> list[list[MeshRecord]]:
    """For each chip the meshes that it is part of, each set of meshes once."""
    by_chip: dict[tuple[int, int], list[MeshRecord]] = {}
    for mesh in meshes:
        for device in mesh.devices:
            by_chip.setdefault((mesh.rank, device), []).append(mesh)
    return list({tuple(mesh.index for mesh in group): group for group in by_chip.values()}.values())


class _Tensors(NamedTuple):
    records: dict[int, TensorRecord]
    uses: dict[int, list[int]]  # the commands that read or write each tensor


def _tensors(estimate: Estimate) -> _Tensors:
    records: dict[int, TensorRecord] = {}
    uses: dict[int, list[int]] = {}
    for command in estimate.commands:
        for tensor in (*command.inputs, *command.outputs):
            records[tensor.tensor_id] = tensor
            if command.name != "deallocate":
                uses.setdefault(tensor.tensor_id, []).append(command.index)
    return _Tensors(records, uses)


def _use(
    kind: str, banks: int, size: int, events: Sequence[MemoryEvent], estimate: Estimate, tensors: _Tensors
) -> MemoryUse | None:
    if not events:
        return None
    live: dict[int, MemoryEvent] = {}
    held = peak = fragmented = 0
    at_peak: list[MemoryEvent] = []
    peak_event, refused = events[0], None
    for event in events:
        if event.bytes_per_bank > 0:
            if event.address is None:
                refused = refused or event
                if held + event.bytes_per_bank <= size:
                    fragmented = max(fragmented, event.bytes_per_bank)
            live[event.number] = event
        else:
            live.pop(event.number, None)
        held += event.bytes_per_bank
        if held > peak:
            peak, peak_event, at_peak = held, event, list(live.values())
    if not peak:
        return None
    largest = sorted(at_peak, key=lambda one: -one.bytes_per_bank)
    return MemoryUse(
        kind,
        banks,
        size,
        peak,
        peak_event.site,
        peak_event.command,
        tuple(_held(one, peak_event.command, estimate, tensors) for one in largest),
        max(peak - size, 0),
        fragmented,
        None if refused is None else refused.site,
    )


def _held(event: MemoryEvent, peak: int, estimate: Estimate, tensors: _Tensors) -> Held:
    record = None if event.tensor_id is None else tensors.records.get(event.tensor_id)
    uses = [] if event.tensor_id is None else tensors.uses.get(event.tensor_id, [])
    is_used = not uses or uses[-1] >= peak
    last = None if is_used else estimate.commands[uses[-1]].site
    return Held(event.label, event.bytes_per_bank, event.site, record, last, is_used)


# -- what would help ---------------------------------------------------------------------------------


class Help(NamedTuple):
    """One thing to do, and the bytes of each bank that it saves at the peak."""

    text: str
    saves: int


def help_for(use: MemoryUse, estimate: Estimate) -> list[Help]:
    """What saves most first."""
    together: dict[str, list[int]] = {}
    for one in (*_smaller_dtypes(use), *_shards(use, estimate), *_early_frees(use)):
        if one.saves > 0:
            together.setdefault(one.text, []).append(one.saves)
    found = [
        Help(f"{len(saves)} times {text}" if len(saves) > 1 else text, sum(saves)) for text, saves in together.items()
    ]
    return sorted(found, key=lambda one: -one.saves)


def _smaller_dtypes(use: MemoryUse) -> Iterable[Help]:
    by_dtype: dict[str, int] = {}
    for held in use.held:
        if held.tensor is not None and held.tensor.layout == "TILE":
            by_dtype[held.tensor.dtype] = by_dtype.get(held.tensor.dtype, 0) + held.bytes_per_bank
    for dtype, size in by_dtype.items():
        smaller = _SMALLER.get(dtype)
        if smaller is not None:
            share = 1 - tile_size(DataType[smaller]) / tile_size(DataType[dtype])
            yield Help(f"{smaller.lower()} in place of {dtype.lower()} for what is held in it", int(size * share))


def _shards(use: MemoryUse, estimate: Estimate) -> Iterable[Help]:
    """Of the largest tensors that every device of an axis has a copy of."""
    shape = max((mesh.shape for mesh in estimate.meshes), key=len, default=())
    for held in [one for one in use.held if one.tensor is not None][:10]:
        assert held.tensor is not None
        for axis, (word, devices) in enumerate(zip(held.tensor.placement, shape, strict=False)):
            if word == "Replicate" and devices > 1:
                saves = held.bytes_per_bank - held.bytes_per_bank // devices
                yield Help(f"{held.label} of {held.site}: shard it over the {devices} devices of axis {axis}", saves)


def _early_frees(use: MemoryUse) -> Iterable[Help]:
    for held in use.held[:50]:
        if not held.is_used_later and held.last_use is not None:
            yield Help(
                f"{held.label} of {held.site} is not read after {held.last_use}: ttnn.deallocate it there",
                held.bytes_per_bank,
            )


def smallest_system(use: MemoryUse, devices: int, machines: Iterable[Machine]) -> Machine | None:
    """The first of the machines whose chips hold it, if what they hold is sharded over all of them."""
    whole = use.peak * use.banks * devices
    for machine in sorted(machines, key=lambda one: (len(one.asics), room_of(one.chip, use.buffer_type))):
        if len(machine.asics) * room_of(machine.chip, use.buffer_type) >= whole:
            return machine
    return None


def room_of(chip: Chip, buffer_type: str) -> int:
    """Bytes of one chip, all banks together."""
    if buffer_type == "DRAM":
        return chip.dram_banks * (chip.dram_bank_bytes - chip.dram_reserved_bytes)
    columns, rows = chip.grid()
    return columns * rows * (chip.l1_bytes - chip.l1_base)
