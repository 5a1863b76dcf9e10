"""Laws of all generated schedules: legal on the links they claim, right in value, and no byte too many."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_bytes import bytes_per_pair, total_bytes

from softmesh.collectives.schedules.checker import neighbours, violations
from softmesh.collectives.schedules.executor import run
from softmesh.collectives.schedules.generators import ENDPOINTS, GENERATORS, schedule_for
from softmesh.collectives.schedules.language import Schedule
from softmesh.collectives.schedules.link_traffic import bytes_per_link

LAWS = settings(max_examples=40, deadline=None)
SIZES = range(1, 13)


@dataclass(frozen=True)
class Mesh:
    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    links: int
    directions: int

    @property
    def devices(self) -> int:
        return math.prod(self.shape)

    def schedule(self, name: str, **endpoints: int) -> Schedule:
        return schedule_for(name, self.shape, self.wraps, self.links, directions=self.directions, **endpoints)


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    shape = draw(
        st.one_of(
            st.tuples(st.integers(1, 12)),
            st.tuples(st.integers(1, 5), st.integers(1, 5)),
            st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4)),
        )
    )
    wraps = draw(st.tuples(*(st.booleans() for _ in shape)))
    return Mesh(shape, wraps, draw(st.integers(1, 3)), draw(st.sampled_from([1, 2])))


def whole_numbers(*shape: int) -> torch.Tensor:
    """Float32 adds them without rounding, in any order."""
    return torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(0)).float()


@pytest.mark.parametrize("name", GENERATORS)
@LAWS
@given(mesh=meshes(), data=st.data())
def test_schedules_are_legal_on_neighbouring_links_alone(name: str, mesh: Mesh, data: st.DataObject) -> None:
    device = st.integers(0, mesh.devices - 1)
    endpoints = {argument: data.draw(device, label=argument) for argument in ENDPOINTS.get(name, ())}
    schedule = mesh.schedule(name, **endpoints)
    joined = neighbours(mesh.shape, mesh.wraps)
    links = mesh.links if name != "barrier" else 1
    assert violations(schedule, joined, links_between=lambda a, b: links if joined(a, b) else 0) == []


@LAWS
@given(mesh=meshes(), elements=st.integers(0, 9))
def test_all_gather_gives_everyone_everything(mesh: Mesh, elements: int) -> None:
    pieces = whole_numbers(mesh.devices, elements)
    result = run(mesh.schedule("all_gather"), [[piece] for piece in pieces])
    for device in range(mesh.devices):
        got = torch.cat([result[device, piece] for piece in range(mesh.devices)])
        assert torch.equal(got, pieces.flatten())


@LAWS
@given(mesh=meshes(), elements=st.integers(0, 9))
def test_reduce_scatter_gives_each_its_piece_of_the_sum(mesh: Mesh, elements: int) -> None:
    n = mesh.devices
    values = whole_numbers(n, n, elements)
    result = run(mesh.schedule("reduce_scatter"), [list(value) for value in values])
    assert set(result) == {(device, device) for device in range(n)}
    assert all(torch.equal(result[device, device], values.sum(0)[device]) for device in range(n))


@LAWS
@given(mesh=meshes(), elements=st.integers(0, 9), accumulate=st.sampled_from([None, torch.float32]))
def test_all_reduce_gives_everyone_the_sum(mesh: Mesh, elements: int, accumulate: torch.dtype | None) -> None:
    n = mesh.devices
    values = whole_numbers(n, n, elements)
    composed = run(mesh.schedule("all_reduce"), [list(value) for value in values], accumulate=accumulate)
    direct = run(mesh.schedule("all_reduce_direct"), [[value] for value in values], accumulate=accumulate)
    for device in range(n):
        assert torch.equal(torch.stack([composed[device, piece] for piece in range(n)]), values.sum(0))
        assert torch.equal(direct[device, 0], values.sum(0))


@LAWS
@given(mesh=meshes(), data=st.data())
def test_what_is_broadcast_is_what_the_root_has_and_reduce_to_brings_all_home(mesh: Mesh, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, mesh.devices - 1))
    values = whole_numbers(mesh.devices, 5)
    copies = run(mesh.schedule("broadcast", root=root), {(root, 0): values[root]})
    assert all(torch.equal(copies[device, 0], values[root]) for device in range(mesh.devices))
    total = run(mesh.schedule("reduce_to", root=root), [[value] for value in values])
    assert torch.equal(total[root, 0], values.sum(0))


@LAWS
@given(mesh=meshes())
def test_all_to_all_transposes(mesh: Mesh) -> None:
    n = mesh.devices
    values = whole_numbers(n, n, 3)
    result = run(mesh.schedule("all_to_all"), [list(value) for value in values])
    for device in range(n):
        got = torch.stack([result[device, source * n + device] for source in range(n)])
        assert torch.equal(got, values[:, device])


@LAWS
@given(mesh=meshes(), data=st.data())
def test_point_to_point_brings_the_value_by_a_shortest_way(mesh: Mesh, data: st.DataObject) -> None:
    device = st.integers(0, mesh.devices - 1)
    src, dst = data.draw(device), data.draw(device)
    schedule = schedule_for("point_to_point", mesh.shape, mesh.wraps, mesh.links, src=src, dst=dst)
    value = whole_numbers(4)
    assert torch.equal(run(schedule, {(src, 0): value})[dst, 0], value)
    assert len(schedule.steps) == distance(mesh, src, dst)


def distance(mesh: Mesh, src: int, dst: int) -> int:
    hops = 0
    for extent, wrap in zip(reversed(mesh.shape), reversed(mesh.wraps), strict=True):
        (src, a), (dst, b) = divmod(src, extent), divmod(dst, extent)
        hops += min(abs(a - b), extent - abs(a - b)) if wrap else abs(a - b)
    return hops


# Bytes, against the closed forms. 24 divides by all splits: 2 halves, 1 to 3 links.

PIECE = 24


@pytest.mark.parametrize("links", [1, 2, 3])
@pytest.mark.parametrize("n", range(3, 13))
def test_ring_links_carry_half_of_what_a_device_lacks_each_way(n: int, links: int) -> None:
    """(n - 1) / n of the B bytes in all, half of it each way; an all_reduce twice that."""
    for name, times in [
        ("all_gather", 1),
        ("reduce_scatter", 1),
        ("all_reduce", 2),
        ("all_reduce_direct", 1),
    ]:
        schedule = schedule_for(name, (n,), True, links)
        expected = times * (n - 1) * PIECE // 2
        pairs = bytes_per_pair(schedule, PIECE)
        assert pairs == {(d, (d + way) % n): expected for d in range(n) for way in (1, -1)}
        if links > 1:
            assert set(bytes_per_link(schedule, PIECE).values()) == {expected // links}


@pytest.mark.parametrize("n", range(2, 13))
def test_ring_of_one_direction_carries_all_of_it_that_way(n: int) -> None:
    for name in ("all_gather", "reduce_scatter"):
        schedule = schedule_for(name, (n,), True, directions=1)
        assert bytes_per_pair(schedule, PIECE) == {(d, (d + 1) % n): (n - 1) * PIECE for d in range(n)}
        assert len(schedule.steps) == n - 1


@pytest.mark.parametrize("links", [1, 2, 3])
@pytest.mark.parametrize("n", SIZES)
def test_line_links_carry_what_lies_behind_them(n: int, links: int) -> None:
    gather = bytes_per_pair(schedule_for("all_gather", (n,), num_links=links), PIECE)
    scatter = bytes_per_pair(schedule_for("reduce_scatter", (n,), num_links=links), PIECE)
    reduce = bytes_per_pair(schedule_for("all_reduce", (n,), num_links=links), PIECE)
    exchange = bytes_per_pair(schedule_for("all_to_all", (n,), num_links=links), PIECE)
    for i in range(n - 1):
        below, above = i + 1, n - 1 - i
        assert gather[i, i + 1] == scatter[i + 1, i] == below * PIECE
        assert gather[i + 1, i] == scatter[i, i + 1] == above * PIECE
        assert reduce[i, i + 1] == reduce[i + 1, i] == n * PIECE
        assert exchange[i, i + 1] == exchange[i + 1, i] == below * above * PIECE
    assert len(gather) == 2 * (n - 1)


@pytest.mark.parametrize("n", range(3, 13))
def test_ring_all_to_all_carries_an_eighth_of_the_square(n: int) -> None:
    pairs = bytes_per_pair(schedule_for("all_to_all", (n,), True), PIECE)
    assert set(pairs.values()) == {(n * n - n % 2) * PIECE // 8}
    assert len(pairs) == 2 * n


@LAWS
@given(mesh=meshes(), data=st.data())
def test_nobody_is_sent_what_it_has(mesh: Mesh, data: st.DataObject) -> None:
    n = mesh.devices
    root = data.draw(st.integers(0, n - 1))
    assert total_bytes(mesh.schedule("all_gather"), PIECE) == n * (n - 1) * PIECE
    assert total_bytes(mesh.schedule("reduce_scatter"), PIECE) == n * (n - 1) * PIECE
    assert total_bytes(mesh.schedule("all_reduce"), PIECE) == 2 * n * (n - 1) * PIECE
    assert total_bytes(mesh.schedule("broadcast", root=root), PIECE) == (n - 1) * PIECE
    assert total_bytes(mesh.schedule("reduce_to", root=root), PIECE) == (n - 1) * PIECE
    assert sum(len(step) for step in mesh.schedule("barrier").steps) == n * (n - 1)


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (4, 8), (5, 4)])
def test_torus_gathers_pieces_along_columns_and_columns_along_rows(rows: int, columns: int) -> None:
    pairs = bytes_per_pair(schedule_for("all_gather", (rows, columns), True), PIECE)
    for (sender, receiver), carried in pairs.items():
        in_a_column = sender % columns == receiver % columns
        assert carried == ((rows - 1) if in_a_column else rows * (columns - 1)) * PIECE // 2
