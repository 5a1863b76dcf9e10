"""Meshes that unit tests ask for by name: one chip, two in a row, two rows of four."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

import softmesh as ttnn
from softmesh.collectives import sum_kernels
from softmesh.native.c_kernels import is_compiled


@pytest.fixture
def device() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh


@pytest.fixture
def pair() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        yield mesh


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        yield mesh


def _add_by_torch(patch: pytest.MonkeyPatch, *, multiplies_bfloat16: bool) -> None:
    patch.setattr(sum_kernels, "native_sum", lambda *stack: None)
    patch.setattr(sum_kernels, "_MULTIPLIES_BFLOAT16", multiplies_bfloat16)


@pytest.fixture
def adds_by_torch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has sums added up as where no kernel was compiled, on a CPU that multiplies bfloat16 or on one that does not."""
    return partial(_add_by_torch, monkeypatch)


@pytest.fixture(scope="module", params=["compiled", "pools", "multiplies"])
def any_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Adds up with a compiled kernel, and as two kinds of CPUs do without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "compiled":
            _add_by_torch(patch, multiplies_bfloat16=request.param == "multiplies")
        elif not is_compiled():
            pytest.skip("the kernels in C were not compiled")
        yield
