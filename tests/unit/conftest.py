"""Meshes that unit tests ask for by name: one chip, two in a row, two rows of four."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import softmesh as ttnn
from softmesh.runtime.opening import open_meshes


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


@pytest.fixture
def idle_machine() -> Iterator[None]:
    """Nothing is open and no fabric is set, before the test and after it; then no machine is chosen either."""
    _close_all()
    yield
    _close_all()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)


def _close_all() -> None:
    for mesh in open_meshes():
        mesh.close()
