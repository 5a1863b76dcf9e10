"""`price`: the seconds, bytes and bound of a call of an op, by the law of its kind."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple
from weakref import WeakKeyDictionary

from softmesh.cost.calibration import Calibration
from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.command_cost import FREE, UNPRICED, CommandCost
from softmesh.cost.laws.exchanges import link_bytes
from softmesh.cost.mesh_lines import is_two_dimensional, lines_of
from softmesh.cost.op_workloads import NO_WORK, OpCall, workload_of
from softmesh.cost.workloads import (
    Chain,
    Dispatch,
    Elements,
    Exchange,
    HostTransfer,
    Movement,
    Product,
    TypicalOp,
    Workload,
)
from softmesh.kinds import Kind
from softmesh.runtime.commands import Command
from softmesh.systems.chip import Chip


def price(call: OpCall, chip: Chip, calibration: Calibration | None = None) -> CommandCost:
    """What a call of an op takes on each device, which is a `chip`: the one price that everybody asks for.

    It is the device's time. What the host takes to launch the call is told by softmesh.cost.launches.
    """
    work = workload_of(call, chip)
    if work is not None:
        return cost_of(work, calibration or default_calibration(), call.flops)
    is_known = call.operands or call.results or call.kind in NO_WORK
    return FREE if is_known else UNPRICED  # a view takes no time; an op without a tensor tells nothing


def price_of(command: Command, chip: Chip, calibration: Calibration | None = None) -> CommandCost:
    """What a command of the stream takes on each device it ran on, which is a `chip`."""
    if command.device is None:
        return FREE
    by = calibration or default_calibration()
    form = _form_of(command, chip)
    key = tuple(map(id, form))
    known = _PRICED.setdefault(by, {}).get(key)
    if known is None:
        if len(_PRICED[by]) > _MOST_PRICED:
            _PRICED[by].clear()
        known = _PRICED[by][key] = _Priced(form, price(call_of(command), chip, by))
    return known.cost


def call_of(command: Command) -> OpCall:
    """Return the call that a command of the stream is on each device of its mesh."""
    operands, results = command.inputs, command.outputs
    return OpCall(
        command.name,
        command.kind,
        tuple(tensor.spec for tensor in operands),
        tuple(tensor.spec for tensor in results),
        command.arguments,
        command.cost.flops,
        bool(operands) and all(made.storage.address == operands[0].storage.address for made in results),
        () if command.device is None else lines_of(command.device),
    )


def forget_prices() -> None:
    """Price all calls anew: an op has been defined again."""
    _PRICED.clear()


class _Priced(NamedTuple):
    """A cost, and the objects that it is known by: kept, so that no other object gets their ids."""

    form: tuple[object, ...]
    cost: CommandCost


_PRICED: WeakKeyDictionary[Calibration, dict[tuple[int, ...], _Priced]] = WeakKeyDictionary()
_MOST_PRICED = 20_000
_SAME = object()
_ARGUMENTS = (
    "cluster_axis",
    "num_links",
    "topology",
    "program_config",
    "compute_kernel_config",
    "core_grid",
    "is_causal",
)
_WITH_ARGUMENTS = (Kind.PRODUCT, Kind.CONVOLUTION, Kind.ATTENTION, Kind.SEND, Kind.RECEIVE)


def _form_of(command: Command, chip: Chip) -> tuple[object, ...]:
    """All objects that the cost of a command depends on: a program repeats its calls, and their specs with them.

    Tensors and meshes are not among them: whoever keeps a form keeps no memory alive.
    """
    name, inputs, outputs = sys.intern(command.name), command.inputs, command.outputs
    kind = command.kind
    form: list[object] = [
        name,
        kind,
        chip,
        *(tensor.spec for tensor in inputs),
        None,
        *(tensor.spec for tensor in outputs),
    ]
    if (kind.is_movement or kind is Kind.HOST_FILL) and inputs and outputs:
        form.append(_SAME if outputs[0].storage.address == inputs[0].storage.address else None)
    if kind.is_exchange or kind in _WITH_ARGUMENTS:
        assert command.device is not None
        given = command.arguments
        form += [lines_of(command.device), is_two_dimensional(), *(given.get(name) for name in _ARGUMENTS)]
    return tuple(form)


def cost_of(work: Workload, calibration: Calibration, flops: int = 0) -> CommandCost:
    """An estimate with the traffic behind it."""
    estimate = calibration.estimate(work)
    traffic = _Traffic()
    traffic.add(work)
    return CommandCost(
        estimate.seconds,
        estimate.low,
        estimate.high,
        estimate.bound,
        estimate.law,
        flops=flops or traffic.flops,
        dram_bytes=traffic.dram,
        l1_bytes=traffic.l1,
        link_bytes=traffic.link,
        cores=traffic.cores,
        is_measured=estimate.is_measured,
    )


class _Traffic:
    """Bytes by memory and by link, arithmetic and cores of a workload and its parts."""

    flops = dram = l1 = link = cores = 0

    def add(self, work: Workload) -> None:
        if isinstance(work, Chain):
            for part in work.parts:
                self.add(part)
        elif isinstance(work, Exchange):
            self.link += math.ceil(link_bytes(work)) * (2 if work.op == "all_reduce" else 1)
            self._memory(work.size, work.in_l1)
        elif isinstance(work, Product):
            self._product(work)
        elif isinstance(work, Elements | Movement):
            self._memory(work.read + work.written, work.in_l1)
            self.cores = max(self.cores, work.cores)
        elif isinstance(work, HostTransfer):
            self._memory(work.size, work.in_l1)
        elif isinstance(work, Dispatch | TypicalOp):
            pass

    def _memory(self, size: int, in_l1: bool) -> None:
        if in_l1:
            self.l1 += size
        else:
            self.dram += size

    def _product(self, work: Product) -> None:
        self.flops += 2 * 32**3 * work.batch * work.m * work.k * work.n
        self._memory(work.batch * work.m * work.k * work.in0_tile, work.in0_in_l1)
        self._memory(work.in1_count * work.k * work.n * work.in1_tile, work.in1_in_l1)
        self._memory(work.batch * work.m * work.n * work.out_tile, work.out_in_l1)
        self.cores = max(self.cores, work.height_cores or math.prod(work.grid))
