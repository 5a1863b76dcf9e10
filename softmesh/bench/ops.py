"""Overhead of an op on a mesh above the bare torch call on the same data.

    softmesh bench ops [--quick] [--json]

Small ops: one 32x32 tile for each device, on 1 to 1,024 devices. Rates: tensors of many MiB on 8 devices.
torch is given the stacked data and its own best form of the call; a bfloat16 product is its own
bfloat16 matmul, where softmesh computes in fp32 and rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch

import softmesh as ttnn
from softmesh.bench.harness import (
    DTYPES,
    LOWER,
    Peer,
    Timing,
    digits,
    interleave,
    machine,
    options,
    put,
    repetitions_for,
    show,
    show_json,
    table,
    timed,
)
from softmesh.progress import tracked

MESHES = {1: (1, 1), 8: (2, 4), 32: (4, 8), 256: (16, 16), 1024: (32, 32)}
_TILE = 32


@dataclass(frozen=True)
class Effort:
    devices: tuple[int, ...] = tuple(MESHES)
    rounds: int = 101
    seconds: float = 0.001  # of one peer's turn in a round
    big_rows: int = 2048  # for each of 8 devices
    big_columns: int = 1024
    big_rounds: int = 15
    import_rounds: int = 7
    import_warm_ups: int = 1


QUICK = Effort(
    devices=(1, 8),
    rounds=3,
    seconds=0.0002,
    big_rows=32,
    big_columns=64,
    big_rounds=2,
    import_rounds=1,
    import_warm_ups=0,
)


class Case(NamedTuple):
    op: str
    operands: str
    on_mesh: Callable[[], object]
    in_torch: Callable[[], object]


@dataclass(frozen=True)
class SmallOp:
    op: str
    operands: str
    dtype: str
    devices: int
    softmesh_us: float
    torch_us: float
    above_us: float


@dataclass(frozen=True)
class Rate:
    op: str
    dtype: str
    unit: str
    softmesh: float
    torch: float
    time_ratio: float


@dataclass(frozen=True)
class ReplicatedMemory:
    devices: int
    bytes_of_one_copy: int
    bytes_stored: int


@dataclass(frozen=True)
class ImportTime:
    softmesh_s: float
    torch_s: float
    above_s: float


class Operands:
    """Values on a mesh, and the very same memory in torch: rows split over the devices, or held by all."""

    def __init__(self, mesh: ttnn.MeshDevice, dtype: str, rows: int, columns: int) -> None:
        _, torch_dtype = DTYPES[dtype]
        whole = torch.randn(2, mesh.get_num_devices() * rows, columns).to(torch_dtype)
        one = torch.randn(columns, columns).to(torch_dtype)
        self.sharded = [put(half, dtype, mesh, ttnn.ShardTensorToMesh(mesh, dim=0)) for half in whole]
        self.replicated = put(one, dtype, mesh, ttnn.ReplicateTensorToMesh(mesh))
        self.stacked = [tensor.view_data() for tensor in self.sharded]
        self.single = self.replicated.view_data()
        self.matrix = self.single.reshape(columns, columns)


def elementwise_cases(o: Operands) -> list[Case]:
    (s, t), (x, y) = o.sharded, o.stacked
    return [
        Case("add", "sharded", lambda: ttnn.add(s, t), lambda: torch.add(x, y)),
        Case("relu", "sharded", lambda: ttnn.relu(s), lambda: torch.relu(x)),
    ]


def data_parallel_product(o: Operands) -> Case:
    s, r, x, w = o.sharded[0], o.replicated, o.stacked[0], o.matrix
    return Case("matmul", "sharded, replicated", lambda: ttnn.matmul(s, r), lambda: torch.matmul(x, w))


def small_cases(o: Operands) -> list[Case]:
    (s, t), (x, y), r, single = o.sharded, o.stacked, o.replicated, o.single
    return [
        *elementwise_cases(o),
        Case("add", "replicated", lambda: ttnn.add(r, r), lambda: torch.add(single, single)),
        Case("relu", "replicated", lambda: ttnn.relu(r), lambda: torch.relu(single)),
        Case("matmul", "sharded", lambda: ttnn.matmul(s, t), lambda: torch.matmul(x, y)),
        data_parallel_product(o),
        Case("matmul", "replicated", lambda: ttnn.matmul(r, r), lambda: torch.matmul(single, o.matrix)),
    ]


def compare(cases: Sequence[Case], rounds: int, seconds: float) -> list[tuple[Timing, Timing]]:
    """softmesh's and torch's time for one call of each case; a round visits them all."""
    peers: dict[str, Peer] = {}
    for i, case in enumerate(cases):
        repetitions = repetitions_for(case.on_mesh, seconds)
        peers[f"{i} softmesh"] = timed(case.on_mesh, repetitions)
        peers[f"{i} torch"] = timed(case.in_torch, repetitions)
    seen = interleave(peers, rounds)
    return [(seen[f"{i} softmesh"], seen[f"{i} torch"]) for i in range(len(cases))]


def measure_small_ops(effort: Effort) -> list[SmallOp]:
    measured = []
    for devices in tracked(effort.devices, "small ops, on more and more devices"):
        with ttnn.create_mesh_device(ttnn.MeshShape(MESHES[devices])) as mesh:
            for dtype in DTYPES:
                cases = small_cases(Operands(mesh, dtype, _TILE, _TILE))
                compared = compare(cases, effort.rounds, effort.seconds)
                for case, (ours, theirs) in zip(cases, compared, strict=True):
                    us = ours.median * 1e6, theirs.median * 1e6, ours.above(theirs) * 1e6
                    measured.append(SmallOp(case.op, case.operands, dtype, devices, *us))
    return measured


def measure_rates(effort: Effort) -> list[Rate]:
    measured = []
    with ttnn.create_mesh_device(ttnn.MeshShape(MESHES[8])) as mesh:
        for dtype in tracked(list(DTYPES), "rates of big tensors"):
            o = Operands(mesh, dtype, effort.big_rows, effort.big_columns)
            elements, item = o.stacked[0].numel(), o.single.element_size()
            cases = [*elementwise_cases(o), data_parallel_product(o)]
            works = [("GB/s", 3 * elements * item), ("GB/s", 2 * elements * item)]
            works.append(("GFLOP/s", 2 * elements * effort.big_columns))
            compared = compare(cases, effort.big_rounds, effort.seconds)
            for case, (unit, work), (ours, theirs) in zip(cases, works, compared, strict=True):
                per_second = work / ours.median / 1e9, work / theirs.median / 1e9
                measured.append(Rate(case.op, dtype, unit, *per_second, ours.relative_to(theirs)))
    return measured


def measure_replicated_memory(devices: int = 1024) -> ReplicatedMemory:
    with ttnn.create_mesh_device(ttnn.MeshShape(MESHES[devices])) as mesh:
        o = Operands(mesh, "float32", _TILE, _TILE)
        stored = o.replicated.view_data().untyped_storage().nbytes()
    return ReplicatedMemory(devices, o.matrix.numel() * o.matrix.element_size(), stored)


def measure_import(effort: Effort) -> ImportTime:
    """As users meet it: with compiled files in place, which the first import leaves where it may."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def importing(module: str) -> Callable[[], object]:
        command = [sys.executable, "-c", f"import {module}"]
        return lambda: subprocess.run(command, env=environment, check=True)

    peers = {module: timed(importing(module)) for module in ("softmesh", "torch")}
    seen = interleave(peers, effort.import_rounds, effort.import_warm_ups)
    above = seen["softmesh"].above(seen["torch"])
    return ImportTime(seen["softmesh"].median, seen["torch"].median, above)


def small_op_rows(measured: Sequence[SmallOp]) -> list[list[str]]:
    """One row for each op, operands and dtype; a cell for each number of devices."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for m in measured:
        cell = f"{digits(m.softmesh_us)}/{digits(m.torch_us)} {m.above_us:+.1f}"
        rows.setdefault((m.op, m.operands, m.dtype), []).append(cell)
    return [[*names, *cells] for names, cells in rows.items()]


def rate_rows(measured: Sequence[Rate]) -> list[list[str]]:
    return [[m.op, m.dtype, m.unit, f"{m.softmesh:.1f}", f"{m.torch:.1f}", f"{m.time_ratio:.2f}"] for m in measured]


def main(argv: Sequence[str] | None = None) -> int:
    given = options("ops", __doc__, "a few rounds on 1 and 8 devices").parse_args(argv)
    effort = QUICK if given.quick else Effort()
    small, rates = measure_small_ops(effort), measure_rates(effort)
    memory, importing = measure_replicated_memory(), measure_import(effort)
    if given.json:
        show_json(
            small_ops=[asdict(m) for m in small],
            rates=[asdict(m) for m in rates],
            replicated_memory=asdict(memory),
            import_time=asdict(importing),
        )
        return 0
    counts = [f"{devices:,} device{'s' * (devices > 1)}" for devices in effort.devices]
    return show(
        machine(),
        table(
            "One 32x32 tile for each device, microseconds: softmesh/torch, and the difference",
            ["op", "operands", "dtype", *counts],
            small_op_rows(small),
            words=3,
            ratios=dict.fromkeys(counts, LOWER),
        ),
        table(
            f"Big tensors, 8 devices x {effort.big_rows} x {effort.big_columns}",
            ["op", "dtype", "unit", "softmesh", "torch", "time / torch"],
            rate_rows(rates),
            words=3,
            ratios={"time / torch": LOWER},
        ),
        f"Replicated on {memory.devices:,} devices: {memory.bytes_stored:,} bytes stored, "
        f"{memory.bytes_of_one_copy:,} bytes in one copy.",
        f"import softmesh: {importing.softmesh_s:.2f} s; import torch: {importing.torch_s:.2f} s; "
        f"{importing.above_s:+.2f} s.",
        against=given.against,
    )


if __name__ == "__main__":
    sys.exit(main())
