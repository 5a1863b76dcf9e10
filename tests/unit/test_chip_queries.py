"""What the host API asks a mesh about its chips, its rows and columns, and walks through it."""

from __future__ import annotations

import pytest

import softmesh as ttnn
from softmesh.errors import MeshError


@pytest.fixture
def mesh():
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


def test_a_mesh_knows_its_rows_columns_and_chips(mesh):
    assert (mesh.num_devices(), mesh.num_rows(), mesh.num_cols()) == (8, 2, 4)
    assert mesh.num_dram_channels() * mesh.dram_size_per_channel() > 0
    assert mesh.l1_size_per_core() > 2**20
    assert mesh.get_clock_rate_mhz() >= 1000
    assert mesh.num_worker_cores() == mesh.worker_cores().num_cores()
    grid, logical = mesh.grid_size(), mesh.logical_grid_size()
    assert grid.x >= logical.x
    assert grid.y >= logical.y


def test_a_mesh_of_three_axes_has_no_rows():
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2, 2)) as mesh, pytest.raises(MeshError, match="3 axes"):
        mesh.num_rows()


def test_it_is_initialized_until_it_is_closed():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        assert mesh.is_initialized()
    assert not mesh.is_initialized()


def test_a_line_goes_through_neighbours_and_a_ring_around_the_border(mesh):
    view = mesh.get_view()
    around = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (1, 2), (1, 1), (1, 0)]
    assert [tuple(c) for c in view.get_line_coordinates()] == around
    assert [tuple(c) for c in view.get_line_coordinates(3)] == around[:3]
    assert [tuple(c) for c in view.get_ring_coordinates()] == around
    assert len(view.get_ring_coordinates(ttnn.MeshShape(2, 2))) == 4
    with pytest.raises(MeshError, match="no line of 9"):
        view.get_line_coordinates(9)
    with pytest.raises(MeshError, match="do not touch"):
        view.get_ring_coordinates(ttnn.MeshShape(1, 4))


def test_a_view_knows_what_it_contains(mesh):
    view = mesh.get_view()
    assert view.is_mesh_2d()
    assert view.contains(ttnn.MeshCoordinate(1, 3))
    assert not view.contains(ttnn.MeshCoordinate(2, 0))
