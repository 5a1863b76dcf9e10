"""TensorTopology: TT-NN's words for where the pieces of a tensor are, told truly after each op."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh import (
    MeshCoordinate,
    MeshDevice,
    MeshShape,
    PlacementReplicate,
    PlacementShard,
    Tensor,
    TensorTopology,
)


@pytest.fixture(scope="module")
def mesh() -> Iterator[MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), physical_device_ids=range(110, 118)) as mesh_device:
        yield mesh_device


def label(tensor: Tensor) -> tuple[list[int], list[str]]:
    topology = tensor.tensor_topology()
    return list(topology.distribution_shape()), list(map(repr, topology.placements()))


def on(mesh: MeshDevice, dims: Any, *shape: int) -> Tensor:
    """A tensor on the mesh: split by dims over rows and columns, or along one dim over all devices."""
    mapper = ttnn.ShardTensorToMesh(mesh, dims) if isinstance(dims, int) else ttnn.ShardTensor2dMesh(mesh, (2, 4), dims)
    return ttnn.from_torch(torch.ones(shape), layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


ALL = [MeshCoordinate(row, column) for row in range(2) for column in range(4)]


# -- the value -------------------------------------------------------------------------------------


def test_a_topology_answers_its_three_parts():
    topology = TensorTopology(MeshShape(1, 2), [PlacementReplicate(), PlacementShard(3)], ALL[:2])
    assert topology.distribution_shape() == MeshShape(1, 2)
    assert list(map(repr, topology.placements())) == ["PlacementReplicate()", "PlacementShard(3)"]
    assert topology.mesh_coords() == ALL[:2]


def test_topologies_compare_by_value():
    def make(dim: int = 3, coords: int = 2) -> TensorTopology:
        return TensorTopology(MeshShape([2]), [PlacementShard(dim)], ALL[:coords])

    assert make() == make()
    assert make() != make(dim=2)
    assert make() != make(coords=1)
    assert make() != TensorTopology(MeshShape([2]), [PlacementReplicate()], ALL[:2])


def test_a_topology_prints_as_ttnn_prints_it():
    topology = TensorTopology(MeshShape([8]), [PlacementShard(3)], ALL[:2])
    assert repr(topology) == (
        "TensorTopology(distribution_shape=MeshShape([8]), placements=SmallVector([PlacementShard(3)]), "
        "mesh_coords=MeshCoordinate([0, 0]), MeshCoordinate([0, 1]))"
    )


def test_the_lists_of_a_topology_are_copies():
    topology = TensorTopology(MeshShape([2]), [PlacementShard(3)], ALL[:2])
    topology.placements().clear()
    topology.mesh_coords().clear()
    assert len(topology.placements()) == 1
    assert len(topology.mesh_coords()) == 2


# -- as tensors are made ---------------------------------------------------------------------------


def test_a_plain_host_tensor_is_one_replica():
    x = ttnn.from_torch(torch.ones(2))
    assert label(x) == ([1], ["PlacementReplicate()"])
    assert x.tensor_topology().mesh_coords() == [MeshCoordinate(0, 0)]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda mesh: on(mesh, 3, 1, 1, 32, 256), ([8], ["PlacementShard(3)"])),
        (lambda mesh: on(mesh, -1, 1, 1, 32, 256), ([8], ["PlacementShard(-1)"])),
        (lambda mesh: on(mesh, 0, 5, 32), ([5], ["PlacementShard(0)"])),
        (lambda mesh: ttnn.from_torch(torch.ones(2), device=mesh), ([8], ["PlacementReplicate()"])),
        (lambda mesh: ttnn.zeros([2], device=mesh), ([8], ["PlacementReplicate()"])),
        (
            lambda mesh: ttnn.from_torch(torch.ones(2), mesh_mapper=ttnn.ReplicateTensorToMesh(mesh)),
            ([8], ["PlacementReplicate()"]),
        ),
        (lambda mesh: on(mesh, (0, 1), 2, 4), ([2, 4], ["PlacementShard(0)", "PlacementShard(1)"])),
        (lambda mesh: on(mesh, (None, 1), 2, 4), ([2, 4], ["PlacementReplicate()", "PlacementShard(1)"])),
        (
            lambda mesh: ttnn.allocate_tensor_on_device([2], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, mesh),
            ([2, 4], ["PlacementReplicate()", "PlacementReplicate()"]),
        ),
        (
            lambda mesh: ttnn.from_torch(torch.ones(4, 2), mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (4, 2), (0, 1))),
            ([4, 2], ["PlacementShard(0)", "PlacementShard(1)"]),
        ),
    ],
)
def test_the_topology_of_a_new_tensor_is_that_of_its_mapper(
    mesh: MeshDevice, make: Callable[[MeshDevice], Tensor], expected: tuple[list[int], list[str]]
):
    x = make(mesh)
    assert label(x) == expected
    assert x.tensor_topology().mesh_coords() == ALL[: MeshShape(expected[0]).mesh_size()]


def test_the_topology_survives_the_way_to_the_device_and_back(mesh: MeshDevice):
    host = ttnn.from_torch(torch.ones(2, 4), mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, -1)))
    there = ttnn.to_device(host, mesh)
    assert host.tensor_topology() == there.tensor_topology() == ttnn.from_device(there).tensor_topology()


# -- as ops compute --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (lambda mesh: ttnn.relu(on(mesh, 1, 32, 256)), ([8], ["PlacementShard(1)"])),
        (lambda mesh: ttnn.relu(ttnn.zeros([32, 32], device=mesh)), ([8], ["PlacementReplicate()"])),
        (
            lambda mesh: on(mesh, (0, 1), 64, 128) + ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh),
            ([2, 4], ["PlacementShard(0)", "PlacementShard(1)"]),
        ),
        (
            lambda mesh: ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh) + on(mesh, (0, 1), 64, 128),
            ([2, 4], ["PlacementShard(0)", "PlacementShard(1)"]),
        ),
        (
            lambda mesh: on(mesh, (0, None), 64, 32) * on(mesh, (0, None), 64, 32),
            ([2, 4], ["PlacementShard(0)", "PlacementReplicate()"]),
        ),
        (
            lambda mesh: on(mesh, (0, None), 64, 32) @ on(mesh, (None, 1), 32, 128),
            ([2, 4], ["PlacementShard(0)", "PlacementShard(1)"]),
        ),
    ],
)
def test_an_ordinary_op_keeps_the_first_shard_of_each_axis(
    mesh: MeshDevice, op: Callable[[MeshDevice], Tensor], expected: tuple[list[int], list[str]]
):
    assert label(op(mesh)) == expected


def test_the_label_follows_the_values_where_ttnn_leaves_it_behind(mesh: MeshDevice):
    x = on(mesh, 3, 1, 1, 32, 256)
    turned = ttnn.transpose(x, -2, -1)
    assert label(turned) == ([8], ["PlacementShard(2)"])
    assert set(map(repr, ttnn.placements(turned))) == {"Shard(2)"}


def test_a_partial_sum_has_no_word_of_its_own_in_ttnn(mesh: MeshDevice):
    product = on(mesh, 1, 32, 256) @ on(mesh, 0, 256, 32)
    assert label(product) == ([8], ["PlacementReplicate()"])
    assert set(map(repr, ttnn.placements(product))) == {"Partial(sum)"}


def test_ops_run_where_their_operands_are(mesh: MeshDevice):
    five = on(mesh, 0, 5, 32)
    y = five + ttnn.ones([1, 32], layout=ttnn.TILE_LAYOUT, device=mesh, dtype=ttnn.float32)
    assert y.device_coords() == ALL[:5]
    assert torch.equal(ttnn.compose(y), torch.full((5, 32), 2.0))


# -- relabelling -----------------------------------------------------------------------------------


def test_a_user_may_say_anew_what_the_pieces_are(mesh: MeshDevice):
    x = on(mesh, 0, 8, 8)
    x.update_tensor_topology(TensorTopology(MeshShape([8]), [PlacementShard(1)], ALL))
    assert label(x) == ([8], ["PlacementShard(1)"])
    assert ttnn.compose(x).shape == (1, 64)


def test_a_shard_takes_the_label_and_leaves_its_tensor_alone(mesh: MeshDevice):
    x = on(mesh, 0, 8, 8)
    shard = ttnn.get_device_tensors(x)[0]
    shard.update_tensor_topology(TensorTopology(MeshShape([8]), [PlacementShard(1)], ALL))
    assert label(shard) == ([8], ["PlacementShard(1)"])
    assert ttnn.compose(x).shape == (8, 8)


def test_a_topology_over_other_devices_is_refused(mesh: MeshDevice):
    x = on(mesh, 0, 8, 8)
    with pytest.raises(RuntimeError, match="does not describe this tensor"):
        x.update_tensor_topology(TensorTopology(MeshShape([3]), [PlacementShard(1)], ALL[:3]))
    with pytest.raises(TypeError, match=re.escape("topology must be a ttnn.TensorTopology, got None")):
        x.update_tensor_topology(None)
    assert torch.equal(ttnn.compose(x), torch.ones(8, 8))
