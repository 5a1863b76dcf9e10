"""`price`: the seconds, bytes and bound of one command of the stream, by the law of its family."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple
from weakref import WeakKeyDictionary

from softmesh.cost.calibration import Calibration
from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.command_cost import FREE, UNPRICED, CommandCost
from softmesh.cost.command_workloads import workload_of
from softmesh.cost.laws.exchanges import link_bytes
from softmesh.cost.mesh_lines import is_two_dimensional, lines_of
from softmesh.cost.op_families import Family, family_of
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
from softmesh.runtime.commands import Command
from softmesh.systems.chip import Chip


def price(command: Command, chip: Chip, calibration: Calibration | None = None) -> CommandCost:
    """What `command` takes on each device it ran on, which is a `chip`."""
    if command.device is None:
        return FREE
    by = calibration or default_calibration()
    form = _form_of(command, chip)
    key = tuple(map(id, form))
    known = _PRICED.setdefault(by, {}).get(key)
    if known is None:
        work = workload_of(command, chip)
        found = _without_work(command) if work is None else cost_of(work, by, command.cost.flops)
        if len(_PRICED[by]) > _MOST_PRICED:
            _PRICED[by].clear()
        known = _PRICED[by][key] = _Priced(form, found)
    return known.cost


def _without_work(command: Command) -> CommandCost:
    """A view and a marker take no time; a name that no op has, without a tensor, tells nothing of what it takes."""
    is_known = command.inputs or command.outputs or family_of(command.name) is Family.FREE
    return FREE if is_known else UNPRICED


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
_NO_ARGUMENTS = (Family.ELEMENTS, Family.MOVEMENT, Family.HOST_WRITE, Family.HOST_READ, Family.FREE, Family.LAUNCH)


def _form_of(command: Command, chip: Chip) -> tuple[object, ...]:
    """All objects that the cost of a command depends on: a program repeats its calls, and their specs with them.

    Tensors and meshes are not among them: whoever keeps a form keeps no memory alive.
    """
    name, inputs, outputs = sys.intern(command.name), command.inputs, command.outputs
    form: list[object] = [name, chip, *(tensor.spec for tensor in inputs), None, *(tensor.spec for tensor in outputs)]
    family = family_of(name)
    if family is Family.MOVEMENT and inputs and outputs:
        form.append(_SAME if outputs[0].storage.address == inputs[0].storage.address else None)
    if family not in _NO_ARGUMENTS:
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
