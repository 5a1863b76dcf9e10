"""The laws: more of anything never takes less, parts add up, and the band contains what it is the band of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmesh.cost.calibration import LAWS, Calibration, law_of
from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.corrections import Neighbours
from softmesh.cost.fitting import fitted
from softmesh.cost.laws.sharded_products import row_blocks
from softmesh.cost.workloads import (
    TILE_BYTES,
    Chain,
    Dispatch,
    Elements,
    Exchange,
    HostTransfer,
    Movement,
    Product,
    TypicalOp,
    Workload,
    convolution,
)
from softmesh.systems.chip import N150, N300, P150, WH_GALAXY

CHIPS = st.sampled_from([N150, N300, WH_GALAXY, P150])
DTYPES = st.sampled_from(sorted(TILE_BYTES))
EXTENTS = st.integers(1, 300)
OPS = st.sampled_from(["all_gather", "reduce_scatter", "all_to_all", "all_reduce"])


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    devices = draw(st.integers(2, 64))
    is_ring = devices > 2 and draw(st.booleans())
    size = draw(st.integers(1, 1 << 34))
    return Exchange(draw(OPS), draw(CHIPS), devices, draw(st.integers(1, 4)), is_ring, size)


@st.composite
def products(draw: st.DrawFn) -> Product:
    chip, tile = draw(CHIPS), TILE_BYTES[draw(DTYPES)]
    m, k, n = draw(EXTENTS), draw(EXTENTS), draw(EXTENTS)
    return Product(chip, m, k, n, tile, tile, tile, draw(st.integers(1, 4)), chip.grid(), is_tuned=True)


@st.composite
def elements(draw: st.DrawFn) -> Elements:
    chip, dtype, tiles = draw(CHIPS), draw(DTYPES), draw(st.integers(1, 100_000))
    size = tiles * TILE_BYTES[dtype]
    return Elements("exp", chip, tiles, dtype, size, size, draw(st.booleans()), draw(st.integers(1, 64)))


@st.composite
def movements(draw: st.DrawFn) -> Movement:
    size = draw(st.integers(1, 1 << 30))
    return Movement("copy", draw(CHIPS), size, size, draw(st.booleans()), -(-size // 2048), draw(st.integers(1, 64)))


@st.composite
def transfers(draw: st.DrawFn) -> HostTransfer:
    return HostTransfer(draw(st.booleans()), draw(CHIPS), draw(st.integers(1, 1 << 30)), draw(st.integers(1, 4096)))


WORKS: st.SearchStrategy[Workload] = st.one_of(exchanges(), products(), elements(), movements(), transfers())


@given(WORKS)
def test_every_estimate_is_a_time_inside_its_band(work):
    made = default_calibration().estimate(work)
    assert 0 < made.low <= made.seconds <= made.high < math.inf
    assert made.law.startswith(law_of(work).name)


@given(exchanges(), st.integers(1, 1 << 30))
def test_more_bytes_never_take_less_by_the_law_of_one_algorithm(work, more):
    calibration = default_calibration()
    larger = work._replace(size=work.size + more)
    law = law_of(work)
    if law.position(work)[3:] == law.position(larger)[3:] and work.op != "all_reduce":
        assert calibration.formula(larger) >= calibration.formula(work)


@given(exchanges(), st.integers(1, 8))
def test_a_line_of_more_devices_takes_no_less(work, more):
    calibration = default_calibration()
    near = work._replace(devices=max(work.devices, 4), is_ring=False, op="all_gather")
    assert calibration.formula(near._replace(devices=near.devices + more)) >= calibration.formula(near)


@given(products(), st.sampled_from(["m", "k", "n"]), st.integers(1, 50))
def test_more_tiles_are_never_less_compute(work, side, more):
    law = law_of(work)
    grown = work._replace(**{side: getattr(work, side) + more})
    assert law.terms(grown)[0] >= law.terms(work)[0]


@given(products(), st.integers(1, 8), st.integers(1, 8))
def test_more_cores_never_have_more_tile_products_each(work, columns, rows):
    law = law_of(work)
    few = work._replace(grid=(columns, rows))
    many = work._replace(grid=(columns + 1, rows + 1))
    assert law.terms(many)[0] <= law.terms(few)[0]


@given(elements(), st.integers(1, 63))
def test_more_cores_never_slow_a_function_of_elements_by_more_than_their_start(work, more):
    calibration = default_calibration()
    few, many = work._replace(cores=1), work._replace(cores=1 + more)
    assert calibration.formula(many) <= calibration.formula(few) + 5e-6


@given(elements(), st.integers(1, 10_000))
def test_more_tiles_never_take_less(work, more):
    grown = work._replace(tiles=work.tiles + more)
    size = grown.tiles * TILE_BYTES[work.dtype]
    grown = grown._replace(read=size, written=size)
    assert default_calibration().formula(grown) >= default_calibration().formula(work)


@given(exchanges())
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(work):
    calibration = default_calibration()
    whole = calibration.formula(work._replace(op="all_reduce"))
    parts = (calibration.estimate(work._replace(op=op)).seconds for op in ("reduce_scatter", "all_gather"))
    assert whole == pytest.approx(sum(parts))


def test_the_regimes_that_were_published():
    """One link of Wormhole: 6.4 GB/s between two chips, 11.7 in longer lines; another algorithm up to 512 KiB."""
    calibration = default_calibration()

    def seconds(op: str, devices: int, size: int, is_ring: bool = False) -> float:
        return calibration.estimate(Exchange(op, N300, devices, 1, is_ring, size)).seconds

    gib = 1 << 30
    assert gib / 2 / seconds("all_gather", 2, gib) == pytest.approx(6.4e9, rel=0.03)
    assert gib * 3 / 4 / seconds("all_gather", 4, gib) == pytest.approx(11.7e9, rel=0.03)
    assert seconds("reduce_scatter", 8, 512 << 10, True) == pytest.approx(102.8e-6, rel=0.05)
    assert seconds("reduce_scatter", 8, 1 << 20, True) == pytest.approx(80.9e-6, rel=0.05)


def test_small_packets_are_slow_and_usual_ones_change_nothing():
    """A multicast in a line carried 5.9 GB/s in packets of 2 KiB, 10.2 in packets of 4 KiB; Blackhole's 15 and 29."""
    calibration = default_calibration()
    for chip, usual in ((N300, 6144), (P150, 8192)):
        work = Exchange("all_gather", chip, 4, 1, False, 1 << 30)
        times = [calibration.formula(work._replace(packet=packet)) for packet in (2048, 4096, usual)]
        assert times == sorted(times, reverse=True)
        assert 1.5 < times[0] / times[1] < 2
        assert times[-1] == pytest.approx(calibration.formula(work))


def test_a_prime_number_of_rows_is_made_one_by_one():
    """18 x 3 tiles in a core's L1: nine rows fit at once, ten in two turns, eleven in eleven."""
    space = N150.l1_bytes - N150.l1_base
    assert [row_blocks(rows, 18, 3, 2048, space) for rows in (9, 10, 11, 16, 20)] == [1, 2, 11, 4, 10]


def test_what_has_no_coefficients_is_told_with_a_wide_band():
    made = Calibration({}).estimate(Exchange("all_gather", N300, 4, 1, False, 1 << 20))
    assert not made.is_measured
    assert made.high / made.low == pytest.approx(4.0)


def test_a_chain_adds_up_its_parts_and_their_bands():
    calibration = default_calibration()
    product = Product(N150, 64, 64, 64, 2048, 2048, 2048, 2, (8, 8), is_tuned=True)
    one, two = (calibration.estimate(Chain("chain", (product,) * count)) for count in (1, 2))
    assert (two.seconds, two.low, two.high) == pytest.approx((2 * one.seconds, 2 * one.low, 2 * one.high))


def test_parts_that_overlap_take_what_the_slowest_takes():
    calibration = default_calibration()
    product = Product(N150, 64, 64, 64, 2048, 2048, 2048, 2, (8, 8), is_tuned=True)
    whole = calibration.estimate(convolution(product))
    parts = [calibration.estimate(part).seconds for part in convolution(product).parts]
    assert whole.seconds == max(parts)
    assert whole.high >= 2 * whole.seconds  # they were measured, and not together
    assert not whole.is_measured


@given(exchanges())
def test_persistent_buffers_in_l1_take_more_for_more_hops_and_bytes(work):
    calibration = default_calibration()
    decode = work._replace(in_l1=True)
    assert law_of(decode).name == "persistent exchange"
    made = calibration.estimate(decode).seconds
    assert calibration.estimate(decode._replace(size=2 * decode.size)).seconds >= made
    assert calibration.estimate(decode._replace(devices=decode.devices + 1)).seconds >= made


def test_an_op_that_was_never_published_takes_the_time_of_its_likes():
    calibration = default_calibration()
    known, unknown, strange = (
        calibration.estimate(TypicalOp(kind, WH_GALAXY)) for kind in ("reshard", "transpose", "frobnicate")
    )
    assert known.is_measured
    assert not unknown.is_measured
    assert unknown.seconds < 20e-6
    assert unknown.low < known.seconds < unknown.high
    assert strange.high / strange.low >= 4


def test_launches_and_gaps_have_laws():
    calibration = default_calibration()
    few, many = (calibration.estimate(Dispatch(N300, runtime_args=count)).seconds for count in (1, 128))
    assert 1e-6 < few < many < 10e-6
    gap = calibration.estimate(TypicalOp("gap", WH_GALAXY, "traced"))
    assert 0.5e-6 < gap.seconds < 1e-6


def test_a_result_in_l1_is_written_faster_than_one_in_dram():
    calibration = default_calibration()
    size = 9000 * TILE_BYTES["float32"]
    stays = Elements("exp", N150, 9000, "float32", size, size, False, 64)
    to_dram, to_l1 = (calibration.estimate(stays._replace(moves=moves)).seconds for moves in (0.0, 1.0))
    half = calibration.estimate(stays._replace(moves=0.5)).seconds
    assert to_l1 < 0.85 * to_dram
    assert half == pytest.approx((to_dram + to_l1) / 2)


def test_calls_one_by_one_take_what_the_host_or_the_device_takes():
    calibration = default_calibration()
    small = Product(N150, 16, 16, 16, 2048, 2048, 2048, 2, (8, 8), clock="untraced")
    large = small._replace(m=256, k=256, n=256)
    device, calls = (
        [calibration.estimate(work._replace(clock=clock)).seconds for work in (small, large)]
        for clock in ("traced", "untraced")
    )
    assert calls[0] > 2 * device[0]
    assert calls[1] == pytest.approx(device[1], rel=0.15)


def test_every_law_starts_with_positive_coefficients():
    for law in LAWS.values():
        for arch in ("wormhole_b0", "blackhole"):
            assert all(value > 0 for value in law.starting(f"{arch} all_gather").values()), law.name


def test_neighbours_are_interpolated_and_fade_out():
    known = Neighbours([[0.0], [2.0]], [0.1, 0.3], reach=[4.0], doubt=0.2, noise=0.001)
    assert known.at([0.0]).log_factor == pytest.approx(0.1, abs=0.01)
    assert 0.1 < known.at([1.0]).log_factor < 0.3
    assert known.at([100.0]).log_factor == pytest.approx(0.0, abs=1e-3)
    assert known.at([0.0]).unknown < known.at([1.0]).unknown < known.at([100.0]).unknown
    assert known.at([100.0]).unknown == pytest.approx(1.0)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_fitting_finds_the_coefficients_and_ignores_a_bad_row(start, slope):
    x = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0])
    measured = start + x / slope
    measured[3] *= 5
    found = fitted(lambda c: c[0] + x / c[1], np.array([start * 3, slope / 3]), measured)
    made = found[0] + x / found[1]
    assert np.delete(made / (start + x / slope), 3) == pytest.approx(1.0, rel=0.08)
