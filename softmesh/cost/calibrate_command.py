"""`softmesh calibrate`: fits the cost model to measurements of a machine and writes the calibration."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from softmesh.cost.calibration import Calibration, law_of
from softmesh.cost.calibration_files import default_calibration, written
from softmesh.cost.calibration_from_measurements import calibrated, usable
from softmesh.cost.measurements import Measurement, read_measurements, shipped_tables
from softmesh.cost.repeats import contradicted
from softmesh.errors import SoftmeshError
from softmesh.terminal_text import echo

_REFUSED = 2
_REASONS = 10


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("measurements", nargs=-1, type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="The calibration to write, a YAML file.")
def calibrate(measurements: tuple[str, ...], output: str) -> None:
    """Fit the cost model to MEASUREMENTS, CSV tables of thirteen columns.

    What they do not measure keeps its shipped value. Without a table, the shipped measurements are fitted again.

    \b
    Examples:
      softmesh calibrate my_matmuls.csv my_links.csv -o my_machine.yaml
      softmesh bench cost --calibration my_machine.yaml --measurements held_out.csv
    """
    paths = [Path(path) for path in measurements] or shipped_tables()
    try:
        rows = [row for path in paths for row in read_measurements(path)]
        if not usable(rows):
            raise SoftmeshError(f"no row of {', '.join(path.name for path in paths)} tells a workload with its time")
        made = calibrated(rows, [path.name for path in paths], default_calibration() if measurements else None)
        Path(output).write_text(written(made), encoding="utf-8")
    except (SoftmeshError, OSError) as error:
        echo(f"Error: {error}", err=True)
        sys.exit(_REFUSED)
    echo("\n".join(_summary(rows, made)))
    echo(f"Wrote {output}")


def _summary(rows: list[Measurement], made: Calibration) -> list[str]:
    """How many rows each law was fitted on, and what was left aside."""
    used = usable(rows)
    counts = Counter(
        (law_of(row.workload).name, law_of(row.workload).key(row.workload)) for row in used if row.workload
    )
    lines = [f"{len(used)} of {len(rows)} rows were fitted:"]
    for (law, key), count in sorted(counts.items()):
        lines.append(f"  {count:5}  {law}: {key}")
    twice = contradicted(rows)
    fitted = set(used)
    other = "a ceiling, or composed of measured parts"
    aside = Counter(row.why or twice.get(row, other) for row in rows if row not in fitted)
    lines += [f"  {count:5}  left aside: {why}" for why, count in aside.most_common(_REASONS)]
    return lines
