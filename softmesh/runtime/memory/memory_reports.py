"""Memory reports: memory views, CSV tables, base addresses and alignments, and what each program found in use."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from softmesh.arguments import checked, refused, reject_unknown_keywords
from softmesh.errors import MeshError
from softmesh.fabric.system import current_system
from softmesh.hardware.enums import BufferType
from softmesh.runtime.commands import Command, attach, detach
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.runtime.memory.allocator import Allocator

REPORTS = Path("generated", "reports", "tt_metal")  # below the current directory
_A_BUFFER_TYPE = "a ttnn.BufferType such as ttnn.BufferType.DRAM"
_BLOCK_FIELDS = ("blockID", "address", "size", "prevID", "nextID", "allocated")


@dataclass(frozen=True)
class MemoryView:
    """One memory at one moment; sizes are those of each of its banks."""

    num_banks: int
    total_bytes_per_bank: int
    total_bytes_allocated_per_bank: int
    total_bytes_free_per_bank: int
    largest_contiguous_bytes_free_per_bank: int
    block_table: list[dict[str, str]]  # every allocation and every hole, in address order


@reject_unknown_keywords
def get_memory_view(device: MeshDevice, buffer_type: BufferType) -> MemoryView:
    return _view(
        _allocator("get_memory_view", device),
        checked("get_memory_view", "buffer_type", buffer_type, BufferType, _A_BUFFER_TYPE),
    )


def _allocator(where: str, device: object) -> Allocator:
    mesh = checked_open(where, "device", device)
    return mesh.allocator()


def _view(allocator: Allocator, buffer_type: BufferType) -> MemoryView:
    blocks = list(allocator.pools[buffer_type].blocks())
    last = len(blocks) - 1
    table = [
        (i, address, size, i - 1, i + 1 if i < last else -1, "yes" if is_allocated else "no")
        for i, (address, size, is_allocated) in enumerate(blocks)
    ]
    return MemoryView(
        allocator.get_num_banks(buffer_type),
        *allocator.get_statistics(buffer_type),
        [dict(zip(_BLOCK_FIELDS, map(str, row), strict=True)) for row in table],
    )


@reject_unknown_keywords
def dump_device_memory_state(device: MeshDevice, prefix: str = "") -> None:
    """Three tables below `generated/reports/tt_metal`, their names beginning with `prefix`.

    `memory_usage_summary.csv` has a line for each memory, `l1_usage_summary.csv` what still fits into L1, and
    `detailed_memory_usage.csv` every block of every memory, and whose it is.
    """
    where = "dump_device_memory_state"
    allocator = _allocator(where, device)
    if not isinstance(prefix, str) or os.path.basename(prefix) != prefix or "\0" in prefix:
        raise refused(where, f"prefix must be the beginning of a file name, got {prefix!r}")
    _write(
        "dump_device_memory_state",
        prefix + "memory_usage_summary.csv",
        (
            "Memory",
            "Banks",
            "Total Allocatable (B)",
            "Total Allocated (B)",
            "Total Free (B)",
            "Largest Free Block (B)",
        ),
        ((kind.name, allocator.get_num_banks(kind), *allocator.get_statistics(kind)) for kind in BufferType),
    )
    largest = allocator.get_statistics(BufferType.L1).largest_free_block_bytes
    _write(
        "dump_device_memory_state",
        prefix + "l1_usage_summary.csv",
        (
            "Largest Free L1 Block (B)",
            "Total Size of Interleavable L1 Buffer (B)",
            "Lowest Occupied L1 Address",
        ),
        [
            (
                largest,
                largest * allocator.get_num_banks(BufferType.L1),
                allocator.lowest_occupied_compute_l1_address(),
            )
        ],
    )
    _write(
        "dump_device_memory_state",
        prefix + "detailed_memory_usage.csv",
        ("Memory", "Address (B)", "Size (B)", "Allocated", "Owner", "Allocated At"),
        (line for kind in BufferType for line in _detailed(allocator, kind)),
    )


def _detailed(allocator: Allocator, kind: BufferType) -> Iterable[Sequence[object]]:
    owners = {allocation.address: allocation for allocation in allocator.pools[kind].live()}
    for address, size, is_allocated in allocator.pools[kind].blocks():
        held = owners.get(address) if is_allocated else None
        whose = ("", "") if held is None else (held.label, held.site or "")
        yield kind.name, address, size, "yes" if is_allocated else "no", *whose


def _write(
    where: str, name: str, header: Sequence[str], lines: Iterable[Sequence[object]], *, appends: bool = False
) -> None:
    path = REPORTS / name
    try:
        REPORTS.mkdir(parents=True, exist_ok=True)
        has_header = appends and path.exists()
        with open(path, "a" if appends else "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerows(lines if has_header else [header, *lines])
    except OSError as error:
        raise MeshError(f"{where}: cannot write {path}: {error}.") from error


@reject_unknown_keywords
def get_allocator_base_address(device: MeshDevice, buffer_type: BufferType) -> int:
    """Where a memory begins in each of its banks."""
    return _allocator("get_allocator_base_address", device).get_base_allocator_addr(buffer_type)


def get_dram_alignment() -> int:
    return current_system().chip.dram_alignment


def get_l1_alignment() -> int:
    return current_system().chip.l1_alignment


def get_max_worker_l1_unreserved_size() -> int:
    """The most that `worker_l1_size` of `open_mesh_device` can ask for."""
    chip = current_system().chip
    return chip.l1_bytes - chip.firmware_bytes


def DeallocateBuffers(device: MeshDevice) -> None:
    """Free everything on the device, whoever holds it."""
    _allocator("DeallocateBuffers", device).deallocate_buffers()


# Per-program reports: while they are on, each new program appends what the memories held when it first ran.


_FILE = "program_memory_usage_summary.csv"
_COLUMNS = ("Program", "Name", "Memory", "Allocatable (B)", "Allocated (B)", "Free (B)", "Largest Free (B)")
_KINDS = (BufferType.DRAM, BufferType.L1)


class _Reports:
    """An observer; counts a program by its name and the specs of its tensors."""

    def __init__(self) -> None:
        self._seen: set[tuple[object, ...]] = set()

    def on_command(self, command: Command) -> None:
        if command.device is None:
            return
        program = (command.name, *(t.spec for t in command.inputs), *(t.spec for t in command.outputs))
        if program in self._seen:
            return
        self._seen.add(program)
        allocator = command.device.memory
        number = len(self._seen)
        rows = [(number, command.name, kind.name, *allocator.get_statistics(kind)) for kind in _KINDS]
        _write("memory reports", _FILE, _COLUMNS, rows, appends=True)


_ON: list[_Reports] = []


def EnableMemoryReports() -> None:
    """From now on, `generated/reports/tt_metal/program_memory_usage_summary.csv` grows by a line for each memory."""
    if not _ON:
        _ON.append(_Reports())
        attach(_ON[0])


def DisableMemoryReports() -> None:
    if _ON:
        detach(_ON.pop())
