"""Measurements that contradict themselves: found by rule, left out of fits and errors, and listed with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_measurement_tables import table

from softmesh.bench import cost as bench_cost
from softmesh.cost.calibration_from_measurements import usable
from softmesh.cost.measurements import Measurement, read_measurements
from softmesh.cost.repeats import OTHER_ROW, OWN_RUNS, SAME_SHAPE, contradicted

EXP = {"op": "exp (element-wise unary)", "shapes": "[1, 1, 320, 128]", "memory/layout": "DRAM interleaved TILE"}
SWEEP = EXP | {"source path": "github ttnn-op-runtime-predictor exp.csv"}  # results in either memory, two runs each


def rows_of(path: Path, *rows: dict[str, str]) -> list[Measurement]:
    return read_measurements(table(path, *({"measured value": "100"} | row for row in rows)))


def exp(runs: str, dtype: str = "bfloat16", **more: str) -> dict[str, str]:
    return EXP | {"config": f"median of {len(runs.split())} runs: {runs}", "dtypes": dtype} | more


def test_runs_that_agree_contradict_nothing(tmp_path):
    rows = rows_of(tmp_path, exp("98 100 102"), exp("100 119", "float32"), exp("", "uint16"))
    assert contradicted(rows) == {}
    assert usable(rows) == rows


def test_runs_further_apart_than_the_bound_take_their_shape_with_them(tmp_path):
    slipped, neighbour = exp("7.1 680"), exp("680 681", "float32")
    other = exp("100 101", shapes="[1, 1, 640, 640]")
    first, second, third = rows = rows_of(tmp_path, slipped, neighbour, other)
    assert contradicted(rows) == {first: OWN_RUNS, second: SAME_SHAPE}
    assert usable(rows) == [third]


def test_equal_work_in_two_rows_contradicts_itself_where_the_times_differ(tmp_path):
    same, far = exp(""), exp("", shapes="[1, 1, 128, 320]") | {"measured value": "150"}
    near = exp("110 110", shapes="[1, 1, 64, 320]"), exp("100 100", shapes="[1, 1, 320, 64]")
    first, second, *_ = rows = rows_of(tmp_path, same, far, *near)
    assert contradicted(rows) == {first: OTHER_ROW, second: OTHER_ROW}


def test_dtypes_of_equal_size_are_the_same_work_for_the_vector_unit(tmp_path):
    plain, twin = exp(""), exp("", "uint16") | {"measured value": "150"}
    wide, elsewhere = exp("", "float32") | {"measured value": "150"}, exp("", shapes="[1, 1, 640, 640]")
    first, second, third, fourth = rows = rows_of(tmp_path, plain, twin, wide, elsewhere)
    assert contradicted(rows) == {first: OTHER_ROW, second: OTHER_ROW, third: SAME_SHAPE}
    assert usable(rows) == [fourth]


@pytest.mark.parametrize(
    ("runs", "agree"),
    [
        ("100 102 70 71", True),  # the result in DRAM, then in L1
        ("100 102 101", True),
        ("100 102 71", False),  # nobody knows which is of which memory
        ("100 70 100 70", False),
        ("100 140 200", False),
    ],
)
def test_runs_with_results_in_two_memories_are_held_against_their_own_kind(tmp_path, runs, agree):
    rows = rows_of(tmp_path, SWEEP | exp(runs) | {"source path": SWEEP["source path"]})
    assert (contradicted(rows) == {}) is agree


def test_a_list_of_runs_is_no_part_of_a_series(tmp_path):
    first, second = rows_of(tmp_path, exp("98 100 102"), exp("1 1 1", shapes="[1, 1, 32, 32]"))
    assert first.series == second.series
    assert first.runs == pytest.approx((98e-6, 100e-6, 102e-6))


def test_bench_cost_lists_what_it_left_out_and_why_bands_are_wide(tmp_path, capsys):
    typical = {"op": "Untilize", "shapes": "a model, decode batch 32, tail", "source path": "models/a.json"}
    path = table(tmp_path, exp("3 30"), exp("3.6 3.7", shapes="[1, 1, 640, 640]"), typical)
    assert bench_cost.main(["--measurements", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "Left out by rule: what the source itself measured twice, more than 20% apart." in printed
    assert OWN_RUNS in printed
    assert "half band" in printed
    assert "only names are published of these ops, no shapes: Untilize" in printed
