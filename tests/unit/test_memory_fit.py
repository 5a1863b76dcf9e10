"""Whether programs fit the memory of chips: peaks of each bank, what is missing, what would help."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh.cost.memory_fit import Fit, MemoryUse, fit_of, help_for
from softmesh.cost.timeline import Estimate
from softmesh.estimation.fit_text import systems_that_hold, verdict

_LAYERS, _WIDTH, _INNER, _VOCABULARY = 24, 4096, 10_240, 32_128  # of T5-XXL's encoder


@pytest.fixture(autouse=True)
def tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full memory is counted, and is no error."""
    monkeypatch.setenv("SOFTMESH_MEMORY", "track")


def weight(mesh: ttnn.MeshDevice, rows: int, columns: int, split: int, dtype: ttnn.DataType) -> ttnn.Tensor:
    return ttnn.from_torch(
        torch.randn(rows, columns),
        dtype,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=split),
    )


def t5_encoder(system: str, devices: int, dtype: ttnn.DataType = ttnn.float32) -> Estimate:
    """Its weights, and one layer's products, split over the devices of a row."""
    ttnn.use_system(system)
    if devices > 1:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, devices))
    with ttnn.estimate(mesh, values=False) as cost:
        held = [weight(mesh, _VOCABULARY, _WIDTH, 1, dtype)]
        for _ in range(_LAYERS):
            held += [weight(mesh, _WIDTH, _WIDTH, 1, dtype) for _ in "qkv"]
            held.append(weight(mesh, _WIDTH, _WIDTH, 0, dtype))
            held += [weight(mesh, _WIDTH, _INNER, 1, dtype) for _ in range(2)]
            held.append(weight(mesh, _INNER, _WIDTH, 0, dtype))
        x = ttnn.from_torch(torch.randn(512, _WIDTH), dtype, layout=ttnn.TILE_LAYOUT, device=mesh)
        ttnn.matmul(ttnn.gelu(ttnn.matmul(x, held[5])), held[7])
    ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)
    return cost.estimate


def dram(fit: Fit) -> MemoryUse:
    use = fit.use("DRAM")
    assert use is not None
    return use


@pytest.mark.filterwarnings("ignore::softmesh.DeviceMemoryWarning")
def test_t5_xxl_in_fp32_does_not_fit_one_wormhole_chip_and_fits_two() -> None:
    alone = t5_encoder("N150", 1)
    fit = fit_of(alone)
    assert not fit.fits
    use = dram(fit)
    assert use.banks == 12
    weights = _LAYERS * (4 * _WIDTH**2 + 3 * _WIDTH * _INNER) + _VOCABULARY * _WIDTH
    assert use.peak * use.banks == pytest.approx(4 * weights, rel=0.01)
    assert use.missing == use.peak - use.size
    assert "does not fit on N150, 1 chip: DRAM lacks" in verdict(fit, alone)
    helps = help_for(use, alone)
    assert helps[0].text.startswith("bfloat16 in place of float32")
    assert helps[0].saves == pytest.approx(use.peak / 2, rel=0.01)
    assert [machine.name for machine in systems_that_hold(use, fit, alone)] == ["N300", "P100"]

    assert fit_of(t5_encoder("N300", 2)).fits


def test_bank_bytes_are_pages_dealt_to_the_banks() -> None:
    ttnn.use_system("N150")
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh, ttnn.estimate(mesh) as cost:
        held = [
            ttnn.from_torch(torch.zeros(100, 70), dtype, layout=ttnn.TILE_LAYOUT, device=mesh)
            for dtype in (ttnn.float32, ttnn.bfloat16, ttnn.bfloat8_b)
        ]
        held.append(ttnn.from_torch(torch.zeros(100, 70), ttnn.bfloat16, device=mesh))
    ttnn.use_system(None)
    tiles, rows = 4 * 3, 100
    pages = [(tiles, 4096), (tiles, 2048), (tiles, 1088), (rows, 160)]  # a row of 140 B is aligned to 32
    expected = [-(-count // 12) * size for count, size in pages]
    assert len(held) == 4
    assert [event.bytes_per_bank for event in cost.estimate.memory] == expected
    assert dram(fit_of(cost.estimate)).peak == sum(expected)


def test_the_peak_knows_its_line_and_what_could_have_been_freed() -> None:
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 4)) as mesh, ttnn.estimate(mesh) as cost:
        x = ttnn.from_torch(torch.zeros(1024, 1024), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        early = ttnn.gelu(x)
        later = ttnn.matmul(x, x)
        peak = ttnn.add(later, later)
    fit = fit_of(cost.estimate)
    assert fit.fits
    use = dram(fit)
    assert use.peak_site is not None
    add = next(command for command in cost.estimate.commands if command.name == "add")
    assert use.peak_site == add.site
    assert len(use.held) == 4
    assert early.shape == peak.shape
    texts = [one.text for one in help_for(use, cost.estimate)]
    unused = [text for text in texts if "is not read after" in text]
    assert len(unused) == 2  # what gelu made, and x, which nothing reads any more
    assert any("shard it over the 4 devices of axis 1" in text for text in texts)


def test_room_that_is_in_pieces_is_told() -> None:
    ttnn.use_system("N150")
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh, ttnn.estimate(mesh, values=False) as cost:
        rows = 12 * 32 * 1024 * 10  # ten mebibytes of each bank, in bfloat8_b tiles of 32 columns, and a little
        held = [
            ttnn.from_torch(torch.zeros(rows, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
            for _ in range(51)
        ]
        for at in range(0, 51, 2):
            ttnn.deallocate(held[at])
        with pytest.warns(ttnn.DeviceMemoryWarning, match="not in one piece"):
            held.append(ttnn.from_torch(torch.zeros(2 * rows, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh))
    ttnn.use_system(None)
    fit = fit_of(cost.estimate)
    use = dram(fit)
    assert not use.missing
    assert use.fragmented == 2 * 1024 * 10 * 2048
    assert "has room, but not" in verdict(fit, cost.estimate)


def test_submeshes_share_the_memory_of_their_chips() -> None:
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
    half = mesh.create_submesh(ttnn.MeshShape(1, 2))
    with ttnn.estimate(mesh) as cost:
        whole = ttnn.zeros((256, 256), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
        part = ttnn.zeros((256, 256), ttnn.bfloat16, ttnn.TILE_LAYOUT, half)
    assert whole.shape == part.shape
    sizes = [event.bytes_per_bank for event in cost.estimate.memory]
    assert dram(fit_of(cost.estimate)).peak == sum(sizes)
    mesh.quiesce_devices()
    ttnn.close_mesh_device(half)
    ttnn.close_mesh_device(mesh)


def test_meshes_that_are_opened_one_after_the_other_do_not_add_up() -> None:
    with ttnn.estimate() as cost:
        for _ in range(3):
            with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
                held = ttnn.ones((256, 256), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
    assert held.shape == (256, 256)
    assert len(cost.estimate.meshes) == 3
    first = next(event for event in cost.estimate.memory if event.bytes_per_bank > 0)
    assert dram(fit_of(cost.estimate)).peak == first.bytes_per_bank
