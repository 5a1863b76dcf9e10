"""The low-level runtime: what traces, queues, the allocator and kernels cost beside the work itself.

    softmesh bench runtime [--quick] [--json]

A trace is compared with a bare torch loop of the same ops and with the ops called one by one; the sanitizer
with a run without it; a kernel program on 32 devices with one on a single device; the rest is told in
microseconds. Peers take turns, figures are medians.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import softmesh as ttnn
from softmesh.bench import runtime_work as work
from softmesh.bench.presentation import machine, show, show_json, table
from softmesh.bench.timing import Timing, interleave, repetitions_for, timed


@dataclass(frozen=True)
class Effort:
    rounds: int = 25
    seconds: float = 0.003  # of one peer's turn in a round
    rows: int = 256
    width: int = 512
    live_buffers: int = 10_000
    devices: int = 32
    tiles: int = 32


QUICK = Effort(rounds=3, seconds=0.0005, rows=64, width=64, live_buffers=200, devices=8, tiles=2)


@dataclass(frozen=True)
class Row:
    what: str
    microseconds: float
    against: str  # what the ratio is to; empty where there is none
    ratio: float | None


def measure(effort: Effort) -> list[Row]:
    with opened(2, 4) as mesh:
        rows = [
            *_replays("20 small ops", work.chain(mesh), effort),
            *_replays("MLP", work.mlp(mesh, effort.rows, effort.width), effort),
            _alone("event, recorded and waited for", work.event(mesh), effort),
            _alone("empty workload, enqueued", work.empty_workload(mesh), effort),
            _alone(
                f"allocation among {effort.live_buffers:,}",
                work.allocation(mesh, effort.live_buffers),
                effort,
            ),
            _sanitized(work.chain(mesh).eager, effort),
        ]
    return [*rows, _kernels(effort)]


@contextmanager
def opened(*shape: int) -> Iterator[ttnn.MeshDevice]:
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape), num_command_queues=2) as mesh:
        yield mesh


def _against(calls: dict[str, work.Work], effort: Effort) -> dict[str, Timing]:
    peers = {name: timed(call, repetitions_for(call, effort.seconds)) for name, call in calls.items()}
    return interleave(peers, effort.rounds)


def _replays(what: str, replay: work.Replay, effort: Effort) -> list[Row]:
    seen = _against(replay._asdict(), effort)
    bare = seen["by_hand"]
    return [
        Row(f"{what}: {how}", seen[name].median * 1e6, "bare torch", seen[name].relative_to(bare))
        for name, how in (("trace", "trace replay"), ("eager", "op by op"))
    ]


def _alone(what: str, call: work.Work, effort: Effort) -> Row:
    return Row(what, _against({what: call}, effort)[what].median * 1e6, "", None)


def _sanitized(call: work.Work, effort: Effort) -> Row:
    def watched() -> object:
        with ttnn.sanitize():
            return call()

    seen = _against({"plain": call, "watched": watched}, effort)
    ratio = seen["watched"].relative_to(seen["plain"])
    return Row("20 small ops under the sanitizer", seen["watched"].median * 1e6, "without it", ratio)


def _kernels(effort: Effort) -> Row:
    with opened(1, 1) as one, opened(1, effort.devices) as many:
        calls = {"one": work.copy_program(one, effort.tiles), "many": work.copy_program(many, effort.tiles)}
        seen = _against(calls, effort)
    ratio = seen["many"].relative_to(seen["one"])
    what = f"kernels copying {effort.tiles} tiles on each of {effort.devices} devices"
    return Row(what, seen["many"].median * 1e6, "on one device", ratio)


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [row.what, f"{row.microseconds:,.1f}", "" if row.ratio is None else f"{row.ratio:.2f}", row.against]
        for row in rows
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="softmesh bench runtime", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    given = parser.parse_args(argv)
    effort = QUICK if given.quick else Effort()
    rows = measure(effort)
    if given.json:
        show_json(effort=asdict(effort), rows=[asdict(row) for row in rows])
    else:
        show(
            machine(),
            table("The runtime, on 2x4 devices", ["what", "us", "times", "as long as"], table_rows(rows)),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
