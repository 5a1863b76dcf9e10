"""Unified products against the same plan by hand, JAX's automatic partitioning and PyTorch's DTensor.

    softmesh bench unified [--quick] [--json] [--jax-python PATH]

a @ b in float32 on 8 and on 32 devices, small (dispatch and communication are most of it) and larger. The forms:

    replicated     both factors on every device, the product too
    column         b split by columns, the product alike
    row            a split by columns and b by rows, the contributions added up for all
    2-D            both factors split in both dims over a grid, the product alike

The peers, all of which take turns in one run, and whose results are checked bit for bit:

    by hand        the same plan with ttnn.matmul and the collectives written out
    JAX            jit with shardings of operands and result, 8 virtual CPU devices, in a process of its own
    DTensor        PyTorch's, in local-tensor mode: all ranks in one process of its own
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import torch

import softmesh as ttnn
from softmesh.bench.harness import (
    HIGHER,
    LOWER,
    Peer,
    connected_mesh,
    interleave,
    machine,
    options,
    repetitions_for,
    show,
    show_json,
    table,
    timed,
)
from softmesh.bench.peer_process import PROCESSES, PeerMissing, interpreted, peer_or_note
from softmesh.bench.unified_workload import FORMS, MeshWork, UnifiedPeer, Work, dtensor_process, jax_process
from softmesh.progress import tracked

OURS, HAND, JAX, DTENSOR = "unified", "by hand", "JAX", "DTensor"


@dataclass(frozen=True)
class Effort:
    devices: tuple[int, ...] = (8, 32)
    sizes: tuple[tuple[int, int, int], ...] = ((32, 256, 256), (512, 1024, 1024))  # rows, inner, columns
    rounds: int = 15
    seconds: float = 0.02  # of one peer's turn in a round

    def works(self) -> list[Work]:
        return [Work(form, n, *size) for size, n, form in product(self.sizes, self.devices, FORMS)]


QUICK = Effort(devices=(8,), sizes=((32, 64, 64),), rounds=2, seconds=0.0002)


@dataclass(frozen=True)
class Row:
    form: str
    devices: int
    rows: int
    inner: int
    columns: int
    microseconds: dict[str, float]  # by peer
    over_by_hand: float  # times as long as the same plan by hand
    over_unified: dict[str, float]  # how many times as long JAX and DTensor take
    same_plan: bool
    wrong: list[str]  # peers whose result is not what it should be


@dataclass(frozen=True)
class Summary:
    """The worst of each; None where nothing of the kind was measured."""

    highest_over_by_hand: float | None
    lowest_jax_over_unified: float | None
    lowest_dtensor_over_unified: float | None
    lowest_of_small: float | None  # over both, where dispatch and communication are most of it

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Summary:
        jax, dtensor = ([r.over_unified[peer] for r in rows if peer in r.over_unified] for peer in (JAX, DTENSOR))
        smallest = min((r.rows for r in rows), default=0)
        small = [ratio for r in rows if r.rows == smallest for ratio in r.over_unified.values()]
        return cls(
            max((r.over_by_hand for r in rows), default=None),
            min(jax, default=None),
            min(dtensor, default=None),
            min(small, default=None),
        )


def takes(peer: str, work: Work) -> bool:
    return peer != JAX or work.devices == PROCESSES


def measure(work: Work, effort: Effort, mesh: ttnn.MeshDevice, others: Mapping[str, UnifiedPeer | None]) -> Row:
    a, b = work.factors()
    expected = a @ b
    ours = MeshWork(work, mesh, a, b)
    able = {name: peer for name, peer in others.items() if peer is not None and takes(name, work)}
    right = {OURS: ours.gives(expected)}
    right |= {name: torch.equal(peer.prepare(work, a, b), expected) for name, peer in able.items()}
    repetitions = repetitions_for(ours.by_hand, effort.seconds)
    peers: dict[str, Peer] = {
        OURS: timed(ours.unified, repetitions),
        HAND: timed(ours.by_hand, repetitions),
        **{name: peer.timed(effort.seconds) for name, peer in able.items()},
    }
    seen = interleave(peers, effort.rounds)
    return Row(
        **asdict(work),
        microseconds={name: timing.median * 1e6 for name, timing in seen.items()},
        over_by_hand=seen[OURS].relative_to(seen[HAND]),
        over_unified={name: seen[name].relative_to(seen[OURS]) for name in able},
        same_plan=ours.is_the_same_plan(),
        wrong=[name for name, is_right in right.items() if not is_right],
    )


def measure_all(effort: Effort, others: Mapping[str, UnifiedPeer | None]) -> list[Row]:
    rows = []
    for work in tracked(effort.works(), "unified products"):
        with connected_mesh(*work.mesh) as mesh:
            rows.append(measure(work, effort, mesh, others))
    return rows


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            r.form + ("" if r.same_plan else " (another plan)") + (f" (!) {', '.join(r.wrong)}" if r.wrong else ""),
            f"{r.devices}",
            f"{r.rows} x {r.inner} x {r.columns}",
            f"{r.microseconds[OURS]:,.0f}",
            f"{r.over_by_hand:.2f}",
            *(f"{r.over_unified[peer]:.1f}" if peer in r.over_unified else "" for peer in (JAX, DTENSOR)),
        ]
        for r in rows
    ]


def in_words(summary: Summary) -> list[str]:
    parts = [
        (summary.highest_over_by_hand, "At most {:.2f} times as long as the same plan by hand."),
        (summary.lowest_jax_over_unified, "JAX takes at least {:.1f} times as long."),
        (summary.lowest_dtensor_over_unified, "DTensor takes at least {:.1f} times as long."),
        (summary.lowest_of_small, "On the smallest product either takes at least {:.1f} times as long."),
    ]
    return [sentence.format(value) for value, sentence in parts if value is not None]


def main(argv: Sequence[str] | None = None) -> int:
    parser = options("unified", __doc__, "a tiny product on 8 devices, two rounds", {"jax": "JAX"})
    given = parser.parse_args(argv)
    effort = QUICK if given.quick else Effort()
    try:
        rows, notes = measured_with_peers(effort, given.jax_python)
    except PeerMissing as gone:
        print(f"A peer went away during the run: {gone}", file=sys.stderr)
        return 1
    fell = present(rows, notes, effort, given)
    return 1 if any(r.wrong for r in rows) else fell


def measured_with_peers(effort: Effort, jax_python: str) -> tuple[list[Row], list[str]]:
    """The rows, and what to say of each peer."""
    of_jax = interpreted(JAX, jax_python, "'softmesh[bench]'")
    newer = "It needs torch 2.10 or newer, with its local-tensor mode."
    with (
        peer_or_note(JAX, lambda: jax_process(jax_python), **of_jax) as (jax, about_jax),
        peer_or_note(DTENSOR, dtensor_process, remedy=newer) as (dtensor, about_dtensor),
    ):
        return measure_all(effort, {JAX: jax, DTENSOR: dtensor}), [about_jax, about_dtensor]


def present(rows: Sequence[Row], notes: Sequence[str], effort: Effort, given: argparse.Namespace) -> int:
    summary = Summary.of(rows)
    if given.json:
        show_json(notes=list(notes), effort=asdict(effort), rows=[asdict(r) for r in rows], summary=asdict(summary))
        return 0
    columns = ["form", "devices", "product", "us", "/ by hand", f"{JAX} / it", f"{DTENSOR} / it"]
    ratios = {"/ by hand": LOWER, f"{JAX} / it": HIGHER, f"{DTENSOR} / it": HIGHER}
    title = "Unified products in float32; JAX and DTensor: their time / that of the unified op"
    remarks = ["(!) has a wrong result."] if any(r.wrong for r in rows) else []
    return show(
        machine(),
        *notes,
        table(title, columns, table_rows(rows), keys=3, ratios=ratios),
        *in_words(summary),
        *remarks,
        against=given.against,
    )


if __name__ == "__main__":
    sys.exit(main())
