"""What a command costs: every family of ops has a law, and the cost says what it is made of."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch

import softmesh as ttnn
from softmesh.cost.command_cost import FREE, Bound, CommandCost
from softmesh.cost.pricing import price_of
from softmesh.kinds import Kind
from softmesh.runtime.commands import emit
from softmesh.systems.chip import N300, P150, Chip


class Prices:
    """An observer that prices what runs."""

    def __init__(self, chip: Chip = N300) -> None:
        self.chip, self.found = chip, []

    def on_command(self, command: ttnn.Command) -> None:
        self.found.append((command.name, price_of(command, self.chip)))

    def of(self, name: str) -> CommandCost:
        return next(cost for known, cost in self.found if known == name)


@pytest.fixture
def mesh(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as opened:
        yield opened


def tensor(mesh: ttnn.MeshDevice, *shape: int) -> ttnn.Tensor:
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    return ttnn.from_torch(torch.ones(*shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def test_a_command_that_tells_of_no_tensor_has_no_price_and_says_so(mesh):
    with ttnn.observe(Prices()) as prices:
        emit("decode step", Kind.ELEMENTWISE, (), (), coords=(), device=mesh)
        emit("signpost decode step", Kind.SIGNPOST, (), (), coords=(), device=mesh)
    unknown, marker = (cost for _, cost in prices.found)
    assert unknown.law == "no price: it tells of no tensor"
    assert not unknown.is_measured
    assert marker == FREE


@pytest.mark.parametrize("chip", [N300, P150], ids=lambda chip: chip.kind)
def test_a_cost_is_a_time_inside_its_band_with_a_bound_and_the_name_of_its_law(mesh, chip):
    with ttnn.observe(Prices(chip)) as prices:
        x = tensor(mesh, 1, 1, 512, 512)
        y = ttnn.matmul(x, x)
        ttnn.gelu(y)
        ttnn.exp(y)
        ttnn.softmax(y, dim=-1)
        ttnn.permute(y, (0, 1, 3, 2))
        z = ttnn.all_gather(y, dim=3, cluster_axis=1)
        q = ttnn.reshape(y, (1, 8, 512, 64))
        ttnn.transformer.scaled_dot_product_attention(q, q, q, is_causal=False)
        ttnn.to_torch(z, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
    for name, cost in prices.found:
        assert 0 < cost.low <= cost.seconds <= cost.high < 1, name
        assert isinstance(cost.bound, Bound)
        assert cost.law
        assert cost.low < cost.high, name


def test_a_cost_tells_arithmetic_traffic_and_cores(mesh):
    with ttnn.observe(Prices()) as prices:
        x = tensor(mesh, 1, 1, 512, 512)
        ttnn.matmul(x, x)
        ttnn.all_gather(x, dim=3, cluster_axis=1, num_links=1)
    size = 512 * 512 * 2
    product, gather = prices.of("matmul"), prices.of("all_gather")
    assert product.flops == 2 * 512**3
    assert product.dram_bytes == 3 * size
    assert product.l1_bytes == 0
    assert product.cores == math.prod(N300.grid())
    assert gather.link_bytes == 3 * size
    assert gather.bound is Bound.LINK
    assert product.is_measured
    assert gather.is_measured


def test_what_was_never_measured_says_so_with_a_wide_band(mesh):
    with ttnn.observe(Prices()) as prices:
        x = tensor(mesh, 1, 1, 512, 512)
        ttnn.cosh(x)
        ttnn.permute(x, (0, 1, 3, 2))
    for name in ("cosh", "permute"):
        cost = prices.of(name)
        assert not cost.is_measured
        assert cost.high / cost.low > 2


def test_fidelity_and_a_grid_of_cores_count(mesh):
    def seconds(**options: object) -> float:
        with ttnn.observe(Prices()) as prices:
            ttnn.matmul(x, x, **options)
        return prices.of("matmul").seconds

    x = tensor(mesh, 1, 1, 2048, 2048)
    fast, slow = (
        seconds(compute_kernel_config=ttnn.WormholeComputeKernelConfig(math_fidelity=fidelity))
        for fidelity in (ttnn.MathFidelity.LoFi, ttnn.MathFidelity.HiFi4)
    )
    assert slow > 1.3 * fast
    assert seconds(core_grid=ttnn.CoreGrid(x=4, y=4)) > 2 * seconds(core_grid=ttnn.CoreGrid(x=8, y=8))


def test_views_events_and_the_host_are_free(mesh):
    with ttnn.observe(Prices()) as prices:
        x = tensor(mesh, 1, 1, 64, 64)
        ttnn.unsqueeze(x, 0)
        ttnn.record_event(mesh, 0)
        ttnn.deallocate(x)
    costs = dict(prices.found)
    assert all(cost == FREE for name, cost in costs.items() if name != "from_torch")
    assert costs["from_torch"].bound is Bound.HOST


def test_a_price_that_is_remembered_keeps_no_tensor_alive_and_repeats_itself(mesh):
    with ttnn.observe(Prices()) as prices:
        x = tensor(mesh, 1, 1, 64, 64)
        for _ in range(3):
            y = ttnn.matmul(x, x)
        storage = weakref.ref(y.storage)
        del y
    first, *others = (cost for name, cost in prices.found if name == "matmul")
    assert all(cost == first for cost in others)
    gc.collect()
    assert storage() is None
