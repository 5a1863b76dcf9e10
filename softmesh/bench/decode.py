"""Predicted decode speeds of published models on real systems, against the speeds that were published.

    softmesh bench decode [--rows FILE] [--json]

Each row of the table is a model, a system and tokens per second for each user. Its decode step is run by `softmesh
estimate` without values: a full batch, 128 cached tokens, tensor parallelism over all chips, greedy sampling. One
number of the cost model comes from these rows, the host's work between two steps. In the column `left out` it is
fitted on the other rows. `--rows` judges rows of your own, with the shipped number.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

import softmesh as ttnn
from softmesh.bench.decode_workload import DecodeStep, ModelShape, mesh_shape
from softmesh.bench.harness import show, show_json, table
from softmesh.cost.laws.dispatches import TURN_AROUND_US
from softmesh.errors import MeshError, SoftmeshError
from softmesh.fabric import settings
from softmesh.input_files.text_files import read_text
from softmesh.progress import tracked
from softmesh.systems.system_choice import use_system
from softmesh.value_free import without_values

PUBLISHED = Path(ttnn.__file__).parent / "cost" / "data" / "decode_published.csv"
_CACHED = 128
_COLUMNS = ("model", *ModelShape._fields[:-1], "system", "chips", "batch", "tokens_per_second_per_user")
_MOST_BYTES = 1 << 20
_TRACE_REGION = 1 << 28
_STEPS = 1000  # of the search for the host's time


class Published(NamedTuple):
    model: str
    shape: ModelShape
    system: str
    chips: int
    batch: int
    rate: float  # tokens per second for each user


class Judged(NamedTuple):
    """A row with what is predicted for a step: `low` to `high` is its band."""

    row: Published
    seconds: float
    low: float
    high: float

    def ratio(self, host: float = TURN_AROUND_US * 1e-6) -> float:
        """Predicted over published speed, with another time of the host."""
        return 1 / (self.seconds - TURN_AROUND_US * 1e-6 + host) / self.row.rate


def main(argv: Sequence[str] | None = None) -> int:
    given = _options().parse_args(argv)
    try:
        rows = read_rows(given.rows or PUBLISHED)
        found = [judged(row) for row in tracked(rows, "Estimating")]
    except SoftmeshError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    left_out = (
        None if given.rows else [one.ratio(fitted([*found[:at], *found[at + 1 :]])) for at, one in enumerate(found)]
    )
    tau = kendall_tau([one.row.rate for one in found], [1 / one.seconds for one in found])
    host = None if given.rows else fitted(found) * 1e6
    if given.json:
        lines = [
            one.row._asdict() | {"shape": one.row.shape._asdict(), "seconds": one.seconds, "ratio": one.ratio()}
            for one in found
        ]
        show_json(rows=lines, left_out=left_out, tau=tau, fitted_host_us=host)
        return 0
    show(_table(found, left_out), _summary(found, left_out, tau, host))
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="softmesh bench decode", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", metavar="FILE", help=f"a CSV file with the columns {', '.join(_COLUMNS)}")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def read_rows(path: str | Path) -> list[Published]:
    """The rows of a table; a column `head_dim` may say what is not hidden / heads."""
    reader = csv.DictReader(read_text(path, _MOST_BYTES, "decode table").splitlines())
    missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise MeshError(f"{path}: the column {missing[0]} is missing; a decode table has {', '.join(_COLUMNS)}.")
    rows = []
    for line in reader:
        try:
            sizes = [int(line.get(name) or 0) for name in ModelShape._fields]
            chips, batch, rate = int(line["chips"]), int(line["batch"]), float(line["tokens_per_second_per_user"])
        except ValueError as error:
            raise MeshError(f"{path}, line {reader.line_num}: {error}.") from None
        if min(*sizes[:-1], chips, batch) < 1 or not 0 < rate < math.inf:
            raise MeshError(f"{path}, line {reader.line_num}: sizes and speeds must be positive.")
        rows.append(Published(line["model"], ModelShape(*sizes), line["system"], chips, batch, rate))
    if not rows:
        raise MeshError(f"{path}: there are no rows.")
    return rows


def judged(row: Published) -> Judged:
    """Run the row's decode step on its system, without values."""
    use_system(row.system)
    before = settings.active().config
    try:
        if row.chips > 1:
            ring = ttnn.FabricConfig.FABRIC_1D_RING if row.chips > 2 else ttnn.FabricConfig.FABRIC_1D
            ttnn.set_fabric_config(ring)
        extents = ttnn.MeshShape(*mesh_shape(row.shape, row.chips))
        with ttnn.create_mesh_device(extents, trace_region_size=_TRACE_REGION) as mesh:
            return _estimated(mesh, row)
    finally:
        ttnn.set_fabric_config(before)
        use_system(None)


def _estimated(mesh: ttnn.MeshDevice, row: Published) -> Judged:
    with without_values():
        step = DecodeStep(mesh, row.shape, row.batch, _CACHED)
        step()  # compiles it
    with ttnn.estimate(mesh, values=False) as cost:
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        made = step()
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
        ttnn.to_torch(ttnn.get_device_tensors(made)[0])
        ttnn.release_trace(mesh, trace)
    return Judged(row, cost.seconds, *cost.band)


def fitted(found: Sequence[Judged]) -> float:
    """The host's seconds between two steps by which the ratios of these rows are nearest to one, in logarithms."""
    most = max(1 / one.row.rate for one in found)

    def miss(host: float) -> float:
        return sum(math.log(one.ratio(host)) ** 2 for one in found)

    return min((most * at / _STEPS for at in range(_STEPS)), key=miss)


def kendall_tau(published: Sequence[float], predicted: Sequence[float]) -> float:
    """Return the share of pairs in the same order less that of pairs in the other; published ties are left out.

    >>> round(kendall_tau([3, 2, 1], [30, 10, 20]), 3)
    0.333
    """
    pairs = list(combinations(range(len(published)), 2))
    signs = [_sign(published[a] - published[b]) * _sign(predicted[a] - predicted[b]) for a, b in pairs]
    counted = sum(published[a] != published[b] for a, b in pairs)
    return sum(signs) / counted if counted else 1.0


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)


def _table(found: Sequence[Judged], left_out: Sequence[float] | None) -> Table:
    columns = (
        "model",
        "system",
        "batch",
        "published",
        "predicted",
        "band",
        "ratio",
        *(("left out",) if left_out else ()),
    )
    rows = [
        (
            one.row.model,
            one.row.system,
            str(one.row.batch),
            f"{one.row.rate:.1f}",
            f"{1 / one.seconds:.1f}",
            f"{1 / one.high:.1f} .. {1 / one.low:.1f}",
            f"{one.ratio():.2f}",
            *((f"{left_out[at]:.2f}",) if left_out else ()),
        )
        for at, one in enumerate(found)
    ]
    return table("Tokens per second for each user.", columns, rows, words=2)


def _summary(found: Sequence[Judged], left_out: Sequence[float] | None, tau: float, host: float | None) -> str:
    ratios = left_out or [one.ratio() for one in found]
    how = ", each left out in turn" if left_out else ""
    inside = sum(one.low <= 1 / one.row.rate <= one.high for one in found)
    text = (
        f"ratios {min(ratios):.2f} to {max(ratios):.2f}{how}; Kendall tau {tau:.2f}; "
        f"{inside} of {len(found)} inside the band"
    )
    return (
        text
        if host is None
        else f"{text}\nthe host between two steps: {host:.0f} us fit best, {TURN_AROUND_US:.0f} are modelled"
    )
