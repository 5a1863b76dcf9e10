"""The cost of ops and links: the published figures it was made from, and how it grows."""

from __future__ import annotations

import pytest

import softmesh as ttnn
from softmesh.collectives import bytes_per_link, schedule_for
from softmesh.cost import chip_costs, link_costs
from softmesh.cost.link_costs import Line
from softmesh.cost.op_workloads import OpCall
from softmesh.cost.pricing import price
from softmesh.kinds import Kind
from softmesh.systems.chip import N150, N300, P150, Chip
from softmesh.tensor.spec import make_spec

_MIB = 1 << 20


def product_seconds(chip: Chip, m: int, k: int, n: int, memory: ttnn.MemoryConfig = ttnn.DRAM_MEMORY_CONFIG) -> float:
    given, weights, made = (
        make_spec(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, memory) for shape in ((m, k), (k, n), (m, n))
    )
    return price(OpCall("matmul", Kind.PRODUCT, (given, weights), (made,), {}, 2 * m * k * n), chip).seconds


@pytest.mark.parametrize(("chip", "teraflops"), [(N150, 85.3), (P150, 317.6)])
def test_a_large_product_comes_near_the_published_rate(chip, teraflops):
    extent = 8192
    rate = 2 * extent**3 / product_seconds(chip, extent, extent, extent) / 1e12
    assert rate == pytest.approx(teraflops, rel=0.4)


def test_a_product_with_few_rows_takes_at_least_what_memory_takes():
    moved = 2 * 8192 * 8192
    assert product_seconds(N150, 32, 8192, 8192) > moved / (N150.dram_gb_per_s * 1e9)


def test_extents_count_in_whole_tiles():
    in_l1 = ttnn.L1_MEMORY_CONFIG
    assert product_seconds(N150, 1, 8192, 8192, in_l1) == product_seconds(N150, 32, 8192, 8192, in_l1)


def test_nothing_is_free_of_its_start():
    nothing = make_spec((0,), ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)
    assert 0 < price(OpCall("relu", Kind.ELEMENTWISE, (nothing,), (nothing,), {}), N300).seconds < 5e-6
    assert 0 < chip_costs.copy_seconds(N300, 0) < 5e-6


def test_a_ring_halves_the_way_and_more_links_the_bytes():
    row, ring = Line(N300, 8, 1, False), Line(N300, 8, 1, True)
    assert link_costs.all_gather(row, _MIB).bytes_per_link == 7 * _MIB
    assert link_costs.all_gather(ring, 2 * _MIB).bytes_per_link == 7 * _MIB
    assert link_costs.all_gather(ring._replace(links=4), 8 * _MIB).bytes_per_link == 7 * _MIB
    assert link_costs.all_gather(ring, _MIB).seconds < link_costs.all_gather(row, _MIB).seconds


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    row = Line(N300, 4, 2, False)
    parts = link_costs.reduce_scatter(row, 4 * _MIB), link_costs.all_gather(row, _MIB)
    whole = link_costs.all_reduce(row, 4 * _MIB)
    assert whole.seconds == pytest.approx(sum(part.seconds for part in parts), rel=0.15)


@pytest.mark.parametrize("links", [1, 2, 4])
@pytest.mark.parametrize(
    ("devices", "is_ring"), [*((n, False) for n in (2, 3, 4, 5, 8, 9)), *((n, True) for n in (3, 4, 5, 8, 9))]
)
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_the_busiest_link_carries_what_the_schedule_sends_over_it(name, devices, is_ring, links):
    piece = 16 * 9 * 1024
    schedule = schedule_for(name, (devices,), is_ring, links)
    carried = max(bytes_per_link(schedule, piece).values())
    given = piece if name == "all_gather" else piece * devices
    line = Line(N300, devices, links, is_ring)
    assert getattr(link_costs, name)(line, given).bytes_per_link == carried


def test_an_exchange_sends_half_of_the_devices_shares_through_the_middle():
    row = Line(N300, 4, 1, False)
    assert link_costs.all_to_all(row, 4 * _MIB).bytes_per_link == 2 * 2 * _MIB
    assert link_costs.all_to_all(row._replace(is_ring=True), 4 * _MIB).bytes_per_link == 2 * _MIB


def test_one_device_sends_nothing():
    alone = Line(N300, 1, 1, False)
    for cost in (
        link_costs.all_gather(alone, _MIB),
        link_costs.all_reduce(alone, _MIB),
        link_costs.all_to_all(alone, _MIB),
        link_costs.ring_passes(alone, _MIB),
    ):
        assert cost == link_costs.FREE


def test_a_collective_of_a_galaxys_ring_stays_below_its_published_ceiling():
    ring = Line(N300, 8, 4, True)
    seconds = link_costs.all_gather(ring, 128 * 256 * 17 // 16).seconds
    assert 7e-6 < seconds < 26e-6
