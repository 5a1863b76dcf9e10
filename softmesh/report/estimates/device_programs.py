"""Device programs of an estimate: the commands that run on chips, and how far each is from its chip's best.

The tools that read a profiler's tables know programs only: what the host does, events, and memory that is given back
have no place there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from softmesh.cost.command_cost import Bound
from softmesh.cost.timeline import Estimate, TensorRecord, TimedCommand
from softmesh.dispatch.operation import OPERATIONS, kind_of
from softmesh.graph.native_calls import Form, native_name
from softmesh.kinds import Kind
from softmesh.systems.chip import Chip

_FLOPS_PER_CYCLE_LOFI = 4096  # of one core: an 8x16 by 16x16 product
_PHASES = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}
_LOW_PRECISION = ("BFLOAT8_B", "BFLOAT4_B")
_ON_MATRIX_ENGINE = (Kind.PRODUCT, Kind.CONVOLUTION, Kind.ATTENTION)


class Roofline(NamedTuple):
    """Nanoseconds at the rates of the data sheet."""

    compute: float
    bandwidth: float
    link: float

    @property
    def ideal(self) -> float:
        return max(self)


def is_program(command: TimedCommand) -> bool:
    """Ops and collectives; a transfer between host and device is no program."""
    on_devices = command.mesh >= 0 and bool(command.devices) and command.cost.bound is not Bound.HOST
    return on_devices and command.seconds > 0 and command.name in OPERATIONS


def is_host_work(command: TimedCommand) -> bool:
    """Ops that the host computes itself."""
    return command.cost.bound is Bound.HOST and command.seconds > 0 and command.name in OPERATIONS


def op_code(command: TimedCommand) -> str:
    """Name the program as TT-NN's profiler does: `MatmulDeviceOperation`; without one, by the function: `ttnn::add`."""
    if not is_program(command):
        return f"ttnn::{command.name.replace('.', '::')}"
    return native_name(command.name, _form(command.inputs), _form(command.outputs))


def _form(tensors: Sequence[TensorRecord]) -> Form | None:
    return Form(tensors[0].layout, tensors[0].memory_layout) if tensors else None


def math_fidelity(command: TimedCommand) -> str:
    """Of what the matrix engine does: as given, or what TT-NN takes for these operands. Else nothing."""
    given = _config_field(command.arguments.get("compute_kernel_config"), "math_fidelity")
    if given is not None:
        return str(getattr(given, "name", given)).rpartition(".")[2]
    if kind_of(command.name) not in _ON_MATRIX_ENGINE:
        return ""
    return "LoFi" if all(tensor.dtype in _LOW_PRECISION for tensor in command.inputs[:2]) else "HiFi2"


def _config_field(config: object, name: str) -> object:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def roofline(command: TimedCommand, chip: Chip) -> Roofline:
    cost = command.cost
    phases = _PHASES.get(math_fidelity(command), 1)
    flops_per_ns = max(cost.cores, 1) * chip.clock_ghz * _FLOPS_PER_CYCLE_LOFI / phases
    return Roofline(
        cost.flops / flops_per_ns, cost.dram_bytes / chip.dram_gb_per_s, cost.link_bytes / chip.link_gb_per_s
    )


def available_cores(estimate: Estimate, command: TimedCommand) -> int:
    columns, rows = estimate.meshes[command.mesh].grid
    return columns * rows
