"""Calibrations: refitting gives the shipped one, files are checked, and own measurements replace what they speak of."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from test_measurement_tables import table

from softmesh.bench import cost as bench_cost
from softmesh.cli import commands
from softmesh.cost.calibration import Calibration
from softmesh.cost.calibration_files import SHIPPED, default_calibration, read_calibration, written
from softmesh.cost.calibration_from_measurements import calibrated, left_out, shape_of, usable
from softmesh.cost.error_tables import cross_judged, error_tables, judged
from softmesh.cost.measurements import read_measurements, shipped_tables
from softmesh.cost.workloads import Exchange, TypicalOp
from softmesh.input_files.text_files import FileError
from softmesh.systems.chip import N300, WH_GALAXY


def shipped_rows(*names: str):
    return [row for path in shipped_tables() if path.name.split(".")[0] in names for row in read_measurements(path)]


def test_refitting_the_shipped_tables_gives_the_shipped_coefficients_and_points():
    rows = [row for path in shipped_tables() for row in read_measurements(path)]
    again = calibrated(rows, with_bands=False)
    known = default_calibration()
    assert {law: set(of) for law, of in again.fits.items()} == {law: set(of) for law, of in known.fits.items()}
    for law, of in again.fits.items():
        for key, fit in of.items():
            shipped = known.fits[law][key]
            assert dict(fit.coefficients) == pytest.approx(dict(shipped.coefficients), rel=0.02), (law, key)
            assert [point.position for point in fit.points] == [point.position for point in shipped.points]
            assert [point.residual for point in fit.points] == pytest.approx(
                [point.residual for point in shipped.points], abs=0.01
            )


def test_a_calibration_is_written_and_read_without_loss(tmp_path):
    known = default_calibration()
    path = tmp_path / "again.yaml"
    path.write_text(written(known))
    again = read_calibration(path)
    assert (again.fits, again.sources) == (known.fits, known.sources)
    assert written(read_calibration(path)) == SHIPPED.read_text()


def test_collectives_that_were_left_out_stay_within_the_bounds():
    rows = usable(shipped_rows("ccl_tables"))
    errors = sorted(
        abs(calibration.estimate(row.workload).seconds / row.seconds - 1)
        for row, calibration in left_out(rows, shape_of, folds=10)
    )
    assert errors[len(errors) // 2] < 0.04
    assert errors[int(0.9 * len(errors))] < 0.12
    assert errors[-1] < 0.30


def test_series_that_were_left_out_stay_within_the_bounds_in_bands_no_wider_than_they_must_be():
    found = cross_judged(shipped_rows("ccl_tables", "runtime_micro"), by_series=True)
    lines = [line for line in error_tables([], found).errors if line.points >= 20]
    assert {line.op for line in lines} >= {"all_gather", "all_reduce", "all_to_all", "reduce_scatter", "host read"}
    for line in lines:
        assert line.p90 < 0.20, line
        assert line.inside >= 0.87, line  # of single families; the bands are made of all tables together
        assert line.half_band < 1.6 * line.p90, line
        assert line.table != "ccl_tables" or line.worst < 0.30, line


def test_a_part_that_nobody_measured_alone_is_told_by_the_whole():
    """Pairs of chips: what reduce_scatter carries is found from all_reduce and all_gather."""
    rows = usable(shipped_rows("ccl_tables"))
    hidden = [row for row in rows if row.op == "reduce_scatter" and row.workload.devices == 2 and row.seconds > 1e-3]
    seen = [row for row in rows if row.op != "reduce_scatter" or row.workload.devices != 2]
    made = calibrated(seen, with_bands=False)
    assert len(hidden) > 5
    for row in hidden:
        assert made.estimate(row.workload).seconds == pytest.approx(row.seconds, rel=0.1), row


def test_the_model_stays_within_the_bounds_on_what_it_was_fitted_on():
    names = ("gemm", "matmul_height_sharded", "elementwise_exp")
    lines = error_tables([], judged(shipped_rows(*names), default_calibration())).errors
    for line in lines:
        assert line.median < 0.06, line
        assert line.inside > 0.85, line


OWN = {
    "op": "all_gather",
    "dtypes": "bfloat16",
    "memory/layout": "DRAM interleaved TILE",
    "config": "traced",
    "devices": "4",
    "links": "1",
    "topology": "line",
}


def own_table(tmp_path: Path) -> Path:
    """A machine whose links are half as fast."""
    known = default_calibration()
    rows = []
    for power in range(12, 28):
        work = Exchange("all_gather", N300, 4, 1, False, 1 << power)
        value = f"{2 * known.estimate(work).seconds * 1e6:.3f}"
        rows.append(OWN | {"shapes": f"total {1 << power} B", "measured value": value})
    return table(tmp_path, *rows)


def test_own_measurements_replace_what_they_speak_of_and_nothing_else(tmp_path):
    output = tmp_path / "mine.yaml"
    result = CliRunner().invoke(commands, ["calibrate", str(own_table(tmp_path)), "-o", str(output)])
    assert result.exit_code == 0, result.output
    assert "16 of 16 rows were fitted" in result.output
    mine, known = read_calibration(output), default_calibration()
    gather = Exchange("all_gather", N300, 4, 1, False, 3 << 20)
    scatter = gather._replace(op="reduce_scatter")
    assert mine.estimate(gather).seconds == pytest.approx(2 * known.estimate(gather).seconds, rel=0.1)
    assert mine.estimate(scatter) == known.estimate(scatter)


def test_bench_cost_holds_a_table_against_a_calibration(tmp_path, capsys):
    path = own_table(tmp_path)
    path.write_text(path.read_text() + path.read_text().splitlines()[1].replace("total 4096 B", "long") + "\n")
    assert bench_cost.main(["--measurements", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "all_gather" in printed
    assert "50.0%" in printed  # twice as slow as predicted
    assert "1 rows were not expressed as workloads" in printed
    assert "how many bytes are exchanged is not told" in printed


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is it a calibration"),
        ("sources: []\n", "'laws' is missing"),
        ("lows: {}\n", "unknown key"),
        ("laws:\n  exchanges: {}\n", "no law is called 'exchanges'. Did you mean 'exchange'"),
        ("laws:\n  movement:\n    wormhole_b0: {rows: 1, band: 0}\n", "band: 0 is outside"),
        ("laws:\n  movement:\n    wormhole_b0: {rows: 1, band: nan}\n", "band: expected a number"),
        ("laws:\n  movement:\n    wormhole_b0: {rows: -1, band: 1}\n", "rows"),
        ("laws:\n  movement:\n    wormhole_b0: {rows: 1}\n", "the key 'band' is missing"),
        ("laws:\n  movement:\n    wormhole_b0: {rows: 1, band: 1}\n", "the key 'coefficients' is missing"),
        ("laws:\n  movement:\n    a: {rows: 1, band: 1, coefficients: {start_us: -1}}\n", "is missing"),
        ("laws:\n  typical op:\n    a: {rows: 1, band: 1, coefficients: {typical_us: -1}}\n", "-1 is outside"),
        ("laws:\n  typical op:\n    a: {rows: 1, band: 1, coefficients: {typical: 1}}\n", "no coefficient 'typical'"),
        ("laws:\n  exchange:\n    a: {rows: 1, band: 1, points: [1 2 3]}\n", "a point of exchange has 4 coordinates"),
        ("laws:\n  exchange:\n    a: {rows: 1, band: 1, points: [1 2 0 0 > 99]}\n", "no measured point"),
        ("- 1\n", "expected keys"),
    ],
)
def test_a_broken_calibration_is_refused_with_its_line(tmp_path, text, what):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(FileError) as error:
        read_calibration(path)
    assert what in str(error.value)
    assert "broken.yaml" in str(error.value)


def test_commands_refuse_what_they_cannot_use(tmp_path, capsys):
    missing = str(tmp_path / "none.csv")
    result = CliRunner().invoke(commands, ["calibrate", missing, "-o", str(tmp_path / "x.yaml")])
    assert result.exit_code == 2
    assert "no such file" in result.output
    assert not (tmp_path / "x.yaml").exists()
    assert bench_cost.main(["--measurements", missing]) == 2
    assert "no such file" in capsys.readouterr().err
    nothing = table(tmp_path, {"op": "something", "shapes": "?"})
    result = CliRunner().invoke(commands, ["calibrate", str(nothing), "-o", str(tmp_path / "x.yaml")])
    assert result.exit_code == 2
    assert "tells a workload" in result.output


def test_what_a_group_tells_is_lent_to_its_members_and_told_as_unmeasured():
    gather, scatter = (TypicalOp(kind, WH_GALAXY) for kind in ("allgather", "broadcast"))
    rows = [row for row in shipped_rows("model_per_op") if isinstance(row.workload, TypicalOp)]
    made = calibrated(rows, with_bands=False)
    assert made.estimate(gather).is_measured
    lent = made.estimate(scatter)
    assert not lent.is_measured
    assert lent.seconds == pytest.approx(
        made.fits["typical op"]["any decode collective"].coefficients["typical_us"] / 1e6
    )


def test_without_any_fit_there_is_still_a_law():
    assert Calibration({}).estimate(Exchange("all_reduce", N300, 8, 1, True, 1 << 20)).seconds > 0
