"""Products of bfloat16 and block floats: fp32 inside and one rounding, whichever unit of the processor multiplies."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh.ops.matmul import batched_gemm, matrix_product
from softmesh.runtime import native_bfloat16

ROWS, INNER, COLUMNS = 64, 128, 96  # large enough for a native GEMM


@pytest.fixture(params=["native", "fp32"])
def unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways on any processor: torch multiplies bfloat16 everywhere, only more slowly."""
    found = "forced" if request.param == "native" else None
    monkeypatch.setattr(matrix_product, "bfloat16_unit", lambda: found)
    return str(request.param)


@pytest.fixture
def mesh():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        yield mesh


def put(values: torch.Tensor, mesh: ttnn.MeshDevice, dtype: ttnn.DataType, split: int | None = None) -> ttnn.Tensor:
    mapper = ttnn.ReplicateTensorToMesh(mesh) if split is None else ttnn.ShardTensorToMesh(mesh, dim=split)
    return ttnn.from_torch(values, dtype, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def ulps(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far results in bfloat16 are from exact ones, in units of their last place."""
    exact = exact.double()
    return (found.double() - exact).abs() / (2.0 ** (exact.abs().log2().floor() - 7))


@pytest.mark.parametrize("split", [None, 0, 1])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_product_is_rounded_once(mesh: ttnn.MeshDevice, unit: str, split: int | None, has_bias: bool):
    x, w = torch.randn(4 * ROWS, INNER).bfloat16(), torch.randn(INNER, 4 * COLUMNS).bfloat16()
    bias = torch.randn(1, 4 * COLUMNS).bfloat16()
    a = put(x, mesh, ttnn.bfloat16, 0 if split == 0 else None)
    b = put(w, mesh, ttnn.bfloat16, 1 if split == 1 else None)
    z = put(bias, mesh, ttnn.bfloat16, 1 if split == 1 else None) if has_bias else None
    exact = x.double() @ w.double() + (bias.double() if has_bias else 0)
    for _ in range(2):  # planned, then compiled
        found = ttnn.compose(ttnn.linear(a, b, bias=z))
        assert (ulps(found, exact) <= 0.51).double().mean() > 0.999


def test_what_is_kept_in_fp32_or_in_blocks_is_not_rounded_to_bfloat16_before(mesh: ttnn.MeshDevice, unit: str):
    x, w = torch.randn(ROWS, INNER).bfloat16(), torch.randn(INNER, COLUMNS).bfloat16()
    a, b = put(x, mesh, ttnn.bfloat16), put(w, mesh, ttnn.bfloat16)
    exact = x.float() @ w.float()
    wide = ttnn.compose(ttnn.matmul(a, b, dtype=ttnn.float32))[:ROWS]
    torch.testing.assert_close(wide, exact, rtol=1e-5, atol=1e-4)
    blocks = ttnn.compose(ttnn.matmul(a, b, dtype=ttnn.bfloat8_b))[:ROWS]
    expected = ttnn.compose(put(exact, mesh, ttnn.bfloat8_b))[:ROWS]
    assert (blocks == expected).double().mean() > 0.99


def test_block_floats_are_multiplied_as_the_numbers_they_are(mesh: ttnn.MeshDevice, unit: str):
    x = torch.randn(ROWS, INNER).bfloat16()
    a, b = put(x, mesh, ttnn.bfloat16), put(torch.randn(INNER, COLUMNS), mesh, ttnn.bfloat8_b)
    held = ttnn.compose(b)[:INNER].double()
    assert (ulps(ttnn.compose(ttnn.matmul(a, b))[:ROWS], x.double() @ held) <= 0.51).double().mean() > 0.999


@pytest.mark.parametrize("activation", ["gelu", "silu", "relu", "softplus"])
def test_an_activation_is_within_a_rounding_of_its_product(mesh: ttnn.MeshDevice, unit: str, activation: str):
    x, w = torch.randn(ROWS, INNER).bfloat16(), torch.randn(INNER, COLUMNS).bfloat16() / 8
    made = ttnn.linear(put(x, mesh, ttnn.bfloat16), put(w, mesh, ttnn.bfloat16), activation=activation)
    exact = getattr(torch.nn.functional, activation)(x.double() @ w.double())
    torch.testing.assert_close(ttnn.compose(made)[:ROWS].double(), exact, rtol=2**-7, atol=2**-8)


def test_the_processors_unit_is_asked_for_or_measured(monkeypatch: pytest.MonkeyPatch):
    native_bfloat16.bfloat16_unit.cache_clear()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert native_bfloat16.bfloat16_unit() == "AVX-512 BF16"
    native_bfloat16.bfloat16_unit.cache_clear()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True}, raising=False)
    assert native_bfloat16.bfloat16_unit() is None
    native_bfloat16.bfloat16_unit.cache_clear()
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert native_bfloat16.bfloat16_unit() in (None, "bfloat16, by a measurement")
    native_bfloat16.bfloat16_unit.cache_clear()


@pytest.mark.parametrize("has_bias", [False, True])
def test_rows_that_all_devices_share_are_multiplied_as_one(
    mesh: ttnn.MeshDevice, monkeypatch: pytest.MonkeyPatch, has_bias: bool
):
    monkeypatch.setattr(matrix_product, "bfloat16_unit", lambda: "forced")
    monkeypatch.setattr(batched_gemm, "_MANY_ROWS", 0)
    x, w = torch.randn(3, ROWS, INNER).bfloat16(), torch.randn(INNER, 4 * COLUMNS).bfloat16()
    bias = torch.randn(1, 4 * COLUMNS).bfloat16()
    z = put(bias, mesh, ttnn.bfloat16, 1) if has_bias else None
    made = ttnn.linear(put(x, mesh, ttnn.bfloat16), put(w, mesh, ttnn.bfloat16, 1), bias=z)
    exact = x.double() @ w.double() + (bias.double() if has_bias else 0)
    assert (ulps(ttnn.compose(made), exact) <= 0.51).double().mean() > 0.999
