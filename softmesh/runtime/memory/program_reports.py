"""Memory reports: while they are on, a line for every new program tells what the memories held when it first ran."""

from __future__ import annotations

import csv

from softmesh.errors import MeshError
from softmesh.hardware.buffer_type import BufferType
from softmesh.runtime.commands import Command, attach, detach
from softmesh.runtime.memory.reports import REPORTS

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
        for kind in _KINDS:
            self._append([len(self._seen), command.name, kind.name, *allocator.get_statistics(kind)])

    def _append(self, row: list[object]) -> None:
        path = REPORTS / _FILE
        try:
            REPORTS.mkdir(parents=True, exist_ok=True)
            is_new = not path.exists()
            with open(path, "a", newline="", encoding="utf-8") as file:
                table = csv.writer(file)
                if is_new:
                    table.writerow(
                        [
                            "Program",
                            "Name",
                            "Memory",
                            "Allocatable (B)",
                            "Allocated (B)",
                            "Free (B)",
                            "Largest Free (B)",
                        ]
                    )
                table.writerow(row)
        except OSError as error:
            raise MeshError(f"memory reports: cannot write {path}: {error}.") from None


_ON: list[_Reports] = []


def EnableMemoryReports() -> None:
    """From now on, `generated/reports/tt_metal/program_memory_usage_summary.csv` grows by a line for each memory."""
    if not _ON:
        _ON.append(_Reports())
        attach(_ON[0])


def DisableMemoryReports() -> None:
    if _ON:
        detach(_ON.pop())
