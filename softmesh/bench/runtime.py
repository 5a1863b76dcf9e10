"""The low-level runtime: what traces, queues, the allocator and kernels cost beside the work itself.

    softmesh bench runtime [--quick] [--json]

A trace is compared with a bare torch loop of the same ops and with the ops called one by one; the sanitizer
with a run without it; a kernel program on 32 devices with one on a single device, alone and with the values of what
it wrote; the rest is told in microseconds. Peers take turns, figures are medians.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import softmesh as ttnn
from softmesh.bench import runtime_workload as work
from softmesh.bench.harness import (
    LOWER,
    Peer,
    Timing,
    interleave,
    machine,
    options,
    repetitions_for,
    show,
    show_json,
    table,
    timed,
)


@dataclass(frozen=True)
class Effort:
    rounds: int = 25
    seconds: float = 0.003  # of one peer's turn in a round
    rounds_of_products: int = 99  # those of an MLP: one product differs from the next by a tenth
    rows: int = 256
    width: int = 512
    live_buffers: int = 10_000
    devices: int = 32
    tiles: int = 32


QUICK = Effort(rounds=3, seconds=0.0005, rounds_of_products=3, rows=64, width=64, live_buffers=200, devices=8, tiles=2)


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
            *_replays(
                "MLP",
                work.mlp(mesh, effort.rows, effort.width),
                replace(effort, rounds=effort.rounds_of_products),
            ),
            _alone("event, recorded and waited for", work.event(mesh), effort),
            _alone("empty workload, enqueued", work.empty_workload(mesh), effort),
            *_allocations(mesh, effort),
        ]
    with opened(2, 4) as mesh:
        rows.append(_sanitized(work.small_ops(mesh), effort))
    return [*rows, *_kernels(effort)]


@contextmanager
def opened(*shape: int) -> Iterator[ttnn.MeshDevice]:
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape), num_command_queues=2) as mesh:
        yield mesh


def _against(calls: Mapping[str, work.Work], effort: Effort) -> dict[str, Timing]:
    return interleave({name: _timed(call, effort) for name, call in calls.items()}, effort.rounds)


def _timed(call: work.Work, effort: Effort) -> Peer:
    return timed(call, repetitions_for(call, effort.seconds))


def _replays(what: str, replay: work.Replay, effort: Effort) -> list[Row]:
    seen = _against(replay._asdict(), effort)
    bare = seen["by_hand"]
    return [
        Row(f"{what}: {how}", seen[name].median * 1e6, "bare torch", seen[name].relative_to(bare))
        for name, how in (("trace", "trace replay"), ("eager", "op by op"))
    ]


def _alone(what: str, call: work.Work, effort: Effort) -> Row:
    return Row(what, _against({what: call}, effort)[what].median * 1e6, "", None)


def _allocations(mesh: ttnn.MeshDevice, effort: Effort) -> list[Row]:
    churn = work.Churn(mesh, effort.live_buffers)
    seen = interleave({"allocation": churn.allocating, "freeing": churn.freeing}, effort.rounds)
    return [
        Row(f"{what} among {effort.live_buffers:,}", seen[what].median * 1e6, "", None)
        for what in ("allocation", "freeing")
    ]


def _sanitized(call: work.Work, effort: Effort) -> Row:
    plain = _timed(call, effort)

    def watched() -> float:
        with ttnn.sanitize():
            return plain()

    seen = interleave({"plain": plain, "watched": watched}, effort.rounds)
    ratio = seen["watched"].relative_to(seen["plain"])
    return Row("20 small ops under the sanitizer", seen["watched"].median * 1e6, "without it", ratio)


def _kernels(effort: Effort) -> list[Row]:
    tiles, devices = effort.tiles, effort.devices
    with opened(1, 1) as one, opened(1, devices) as many:
        copies = [work.CopyProgram(mesh, tiles) for mesh in (one, many)]
        alike = work.CopyProgram(many, tiles, alike=True)
        calls = {
            "one": copies[0].run,
            "many": copies[1].run,
            "alike": alike.run,
            "one, read": copies[0].run_and_read,
            "many, read": copies[1].run_and_read,
        }
        seen = _against(calls, effort)
    what = f"kernels copying {tiles} tiles on {devices} devices"
    return [
        _row(f"{what}, alike on all", seen["alike"], seen["one"]),
        _row(f"{what}, other ones on each", seen["many"], seen["one"]),
        _row("  the same, and the values read", seen["many, read"], seen["one, read"]),
    ]


def _row(what: str, timing: Timing, one: Timing) -> Row:
    return Row(what, timing.median * 1e6, "on one device", timing.relative_to(one))


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [row.what, f"{row.microseconds:,.1f}", "" if row.ratio is None else f"{row.ratio:.2f}", row.against]
        for row in rows
    ]


def main(argv: Sequence[str] | None = None) -> int:
    given = options("runtime", __doc__, "small sizes, few rounds").parse_args(argv)
    effort = QUICK if given.quick else Effort()
    rows = measure(effort)
    if given.json:
        show_json(effort=asdict(effort), rows=[asdict(row) for row in rows])
        return 0
    columns = ["what", "us", "times", "as long as"]
    made = table("The runtime, on 2x4 devices", columns, table_rows(rows), ratios={"times": LOWER})
    return show(machine(), made, against=given.against)


if __name__ == "__main__":
    sys.exit(main())
