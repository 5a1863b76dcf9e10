"""The cost model's predictions held against measurements: errors by table and op, and what could not be expressed.

    softmesh bench cost [--measurements FILE ...] [--calibration FILE] [--leave-series] [--json]

Without a file the shipped measurements are predicted by calibrations that never saw them; with `--measurements` the
shipped calibration, or one of yours, is held against any table of the same columns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from softmesh.bench.harness import Parser, show_json
from softmesh.cost.calibration_files import default_calibration, read_calibration
from softmesh.cost.error_tables import (
    ErrorLine,
    ErrorTables,
    Judged,
    consistent,
    cross_judged,
    error_line,
    error_tables,
    judged,
    unfitted,
)
from softmesh.cost.measurements import Measurement, read_measurements, shipped_tables
from softmesh.cost.repeats import BOUND
from softmesh.cost.workloads import Elements, Exchange, Product, Workload
from softmesh.errors import SoftmeshError

_HEAD = ("table", "op", "points", "median", "p90", "worst", "bias", "in band", "half band", "of p90")
_SHOWN = 40  # reasons for rows without a workload
Kind = Callable[[Workload | None], bool]


def _is_gemm(work: Workload | None) -> bool:
    return isinstance(work, Product) and not work.height_cores and work.clock == "device"


_FAMILIES: tuple[tuple[str, Kind], ...] = (
    ("collectives", lambda work: isinstance(work, Exchange)),
    ("products, device time", _is_gemm),
    ("height-sharded products", lambda work: isinstance(work, Product) and bool(work.height_cores)),
    ("element-wise", lambda work: isinstance(work, Elements)),
)


def main(argv: Sequence[str] | None = None) -> int:
    given = _options().parse_args(argv)
    try:
        rows, found, told = _held(given.measurements, given.calibration, given.leave_series)
    except SoftmeshError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    tables, families = error_tables(rows, found), family_lines(found)
    if given.json:
        parts = tables._asdict() | {"families": families}
        show_json(rows=len(rows), **{name: [line._asdict() for line in lines] for name, lines in parts.items()})
        return 0
    print(f"{len(rows)} rows: {told}.\n")
    print("\n".join(report(tables, families)))
    return 0


def _options() -> argparse.ArgumentParser:
    parser = Parser(
        prog="softmesh bench cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measurements", nargs="+", default=[], metavar="FILE", help="tables of thirteen columns")
    parser.add_argument("--calibration", metavar="FILE", help="another calibration than the shipped one")
    parser.add_argument("--leave-series", action="store_true", help="leave out whole series, not single shapes")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _held(
    paths: Sequence[str], calibration: str | None, leave_series: bool
) -> tuple[list[Measurement], list[Judged], str]:
    """All rows, those that were predicted, and what was held against what."""
    chosen = default_calibration() if calibration is None else read_calibration(calibration)
    if paths:
        rows = [row for path in paths for row in read_measurements(path)]
        tables = f"{len(paths)} table{'s' if len(paths) > 1 else ''}"
        return rows, judged(rows, chosen), f"{tables} against {calibration or 'the shipped calibration'}"
    rows = [row for path in shipped_tables() for row in read_measurements(path)]
    found = cross_judged(rows, leave_series) + judged(unfitted(rows), chosen)
    return rows, found, f"the shipped tables, each {'series' if leave_series else 'shape'} predicted without it"


def family_lines(found: Sequence[Judged]) -> list[ErrorLine]:
    """Errors over all tables."""
    return [
        error_line("all", name, of)
        for name, is_kind in _FAMILIES
        if (of := [one for one in consistent(found) if is_kind(one.row.workload) and not one.row.is_ceiling])
    ]


def report(tables: ErrorTables, families: Sequence[ErrorLine]) -> list[str]:
    lines = _aligned([_HEAD, *(_error_row(line) for line in tables.errors)])
    if families:
        lines += ["", *_aligned([_HEAD, *(_error_row(line) for line in families)])]
    return lines + _further(tables)


def _further(tables: ErrorTables) -> list[str]:
    parts = (_ceilings, _blocks, _wide, _contradicted, _unexpressed)
    return [line for part in parts if (lines := part(tables)) for line in ("", *lines)]


def _ceilings(tables: ErrorTables) -> list[str]:
    rows = [(line.table, line.op, str(line.points), _percent(line.below)) for line in tables.ceilings]
    head = "Ceilings of a CI, no means: the share of predictions below them."
    return [head, *_aligned([("table", "op", "points", "below"), *rows])] if rows else []


def _blocks(tables: ErrorTables) -> list[str]:
    rows = [
        (
            line.name,
            str(line.ops),
            f"{line.measured * 1e6:.1f} us",
            f"{line.predicted * 1e6:.1f} us",
            f"{line.error:+.1%}",
            str(line.unexpressed),
        )
        for line in tables.blocks
    ]
    names = ("block", "ops", "measured", "predicted", "error", "rows not expressed")
    return ["Blocks of models, summed over their ops.", *_aligned([names, *rows])] if rows else []


def _wide(tables: ErrorTables) -> list[str]:
    ops: dict[str, list[str]] = {}
    for line in tables.errors:
        if line.why_wide:
            ops.setdefault(line.why_wide, []).append(line.op)
    lines = [f"  {why}: {', '.join(of)}" for why, of in ops.items()]
    return ["Bands wider than half of the estimate, and why.", *lines] if lines else []


def _contradicted(tables: ErrorTables) -> list[str]:
    rows = [
        (line.table, line.op, str(line.rows), line.why, _percent(line.p90), _percent(line.worst))
        for line in tables.contradicted
    ]
    head = f"Left out by rule: what the source itself measured twice, more than {BOUND:.0%} apart."
    names = ("table", "op", "rows", "why", "p90 with all rows", "worst")
    return [head, *_aligned([names, *rows])] if rows else []


def _unexpressed(tables: ErrorTables) -> list[str]:
    every = sorted(tables.unexpressed, key=lambda line: -line.rows)
    if not every:
        return []
    lines = [f"{sum(line.rows for line in every)} rows were not expressed as workloads:"]
    lines += [f"  {line.rows:4}  {line.table}: {line.op} - {line.why}" for line in every[:_SHOWN]]
    if len(every) > _SHOWN:
        rest = sum(line.rows for line in every[_SHOWN:])
        lines.append(f"  {rest:4}  of {len(every) - _SHOWN} other ops, for the same reasons")
    return lines


def _error_row(line: ErrorLine) -> tuple[str, ...]:
    shares = (line.median, line.p90, line.worst)
    return (
        line.table,
        line.op,
        str(line.points),
        *(_percent(share) for share in shares),
        f"{line.bias:+.1%}",
        _percent(line.inside),
        _percent(line.half_band),
        f"{line.half_band / max(line.p90, 1e-4):.1f}",
    )


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 10 else f"{share:.0%}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text; all but the first two to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at < 2 and not cell[:1].isdigit() else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
