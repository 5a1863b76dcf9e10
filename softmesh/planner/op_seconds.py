"""Seconds of an op on pieces of given shapes: priced as the commands of a running program are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.chip_costs import copy_seconds
from softmesh.cost.command_cost import Bound
from softmesh.cost.command_workloads import bytes_of, workload_of
from softmesh.cost.op_families import Family, family_of
from softmesh.dispatch.operation import OPERATIONS
from softmesh.dispatch.plan import CostRule
from softmesh.hardware.enums import DataType, Layout
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.runtime.commands import Command
from softmesh.systems.chip import Chip
from softmesh.tensor.spec import TensorSpec

_NOWHERE: Any = object()  # prices of work on a chip ask whether there is a mesh, and not which


@dataclass(frozen=True)
class Piece:
    """A tensor as one device has it, of which there is nothing but the spec."""

    spec: TensorSpec
    address: int

    @property
    def storage(self) -> Any:
        return SimpleNamespace(address=self.address)

    @property
    def shape(self) -> Any:
        return self.spec.shape

    @property
    def dtype(self) -> DataType:
        return self.spec.dtype

    @property
    def layout(self) -> Layout:
        return self.spec.layout

    def memory_config(self) -> MemoryConfig:
        return self.spec.memory_config


class WorkTime(NamedTuple):
    seconds: float
    bound: Bound  # what it waits for most of its time


def work_time(
    op: str,
    chip: Chip,
    operands: Sequence[TensorSpec],
    results: Sequence[TensorSpec],
    arguments: dict[str, Any],
    cost: CostRule,
    *,
    is_in_place: bool,
) -> WorkTime:
    """`is_in_place`: the first result lies in the memory of the first operand."""
    read = [Piece(spec, at) for at, spec in enumerate(operands)]
    made = [Piece(spec, 0 if is_in_place else len(read) + at) for at, spec in enumerate(results)]
    flops = cost(operands, results)
    kind = OPERATIONS[op].definition.kind if op in OPERATIONS else Kind.MOVEMENT
    command: Any = Command(op, kind, read, made, (), 0, _NOWHERE, _NOWHERE, arguments, lambda: flops)  # type: ignore[arg-type]
    work = workload_of(command, chip)
    if work is None:
        return WorkTime(0.0, Bound.DISPATCH)
    seconds, _, _, bound, *_ = default_calibration().estimate(work)
    if family_of(op) is Family.ATTENTION:  # every user's keys and values are read, once
        kept: Any = read[1:]
        reading = copy_seconds(chip, sum(map(bytes_of, kept)) // 2)
        seconds, bound = (reading, Bound.DRAM) if reading > seconds else (seconds, bound)
    return WorkTime(seconds, bound)
