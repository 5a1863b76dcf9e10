"""How one tensor becomes the pieces of a mesh, and how pieces become one tensor again."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh import (
    MeshComposerConfig,
    MeshCoordinate,
    MeshDevice,
    MeshMapperConfig,
    MeshShape,
    PlacementReplicate,
    PlacementShard,
    Tensor,
)


@pytest.fixture(scope="module")
def mesh() -> Iterator[MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), physical_device_ids=range(100, 108)) as mesh_device:
        yield mesh_device


def exactly(text: str) -> str:
    return re.escape(text)


def counting(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


def pieces(tensor: Tensor) -> list[torch.Tensor]:
    return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


def coords(tensor: Tensor) -> list[tuple[int, ...]]:
    return [tuple(coord) for coord in tensor.tensor_topology().mesh_coords()]


def mapped(values: torch.Tensor, mesh: MeshDevice, config: MeshMapperConfig) -> Tensor:
    return ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.create_mesh_mapper(mesh, config))


# -- the words -------------------------------------------------------------------------------------


def test_a_shard_placement_knows_its_dim_and_prints():
    assert PlacementShard(3).dim == 3
    assert PlacementShard(-1).dim == -1
    assert repr(PlacementShard(3)) == str(PlacementShard(3)) == "PlacementShard(3)"
    with pytest.raises(TypeError):
        PlacementShard(dim=3)


def test_shard_placements_have_no_value_equality_and_replicates_do():
    assert PlacementShard(3) != PlacementShard(3)
    assert PlacementReplicate() == PlacementReplicate()
    assert repr(PlacementReplicate()) == "PlacementReplicate()"
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _ = PlacementReplicate() == PlacementShard(0)


@pytest.mark.parametrize("silly", [None, "0", 1.0, True])
def test_a_shard_placement_wants_an_int(silly: Any):
    with pytest.raises(TypeError, match="dim must be an int, got"):
        PlacementShard(silly)


# -- configs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            lambda: MeshMapperConfig([PlacementReplicate(), PlacementShard(3)], MeshShape(2, 4)),
            "MeshMapperConfig(placements: [PlacementReplicate(), PlacementShard(3)], "
            "mesh_shape_override=MeshShape([2, 4]))",
        ),
        (
            lambda: MeshMapperConfig(placements=[PlacementShard(0)], mesh_shape_override=MeshShape([8])),
            "MeshMapperConfig(placements: [PlacementShard(0)], mesh_shape_override=MeshShape([8]))",
        ),
        (
            lambda: MeshMapperConfig(row_dim=None, col_dim=3),
            "MeshMapperConfig(placements: [PlacementReplicate(), PlacementShard(3)])",
        ),
        (
            lambda: MeshMapperConfig(1, 2),
            "MeshMapperConfig(placements: [PlacementShard(1), PlacementShard(2)])",
        ),
        (
            lambda: MeshMapperConfig(),
            "MeshMapperConfig(placements: [PlacementReplicate(), PlacementReplicate()])",
        ),
        (
            lambda: MeshMapperConfig(
                row_dim=0, mesh_shape_override=MeshShape(1, 2), mesh_offset_override=MeshCoordinate(1, 2)
            ),
            "MeshMapperConfig(placements: [PlacementShard(0), PlacementReplicate()], "
            "mesh_shape_override=MeshShape([1, 2]), mesh_offset_override=MeshCoordinate([1, 2]))",
        ),
        (
            lambda: MeshComposerConfig([0, 3], MeshShape(2, 4)),
            "MeshComposerConfig(dims: [0, 3], mesh_shape_override=MeshShape([2, 4]))",
        ),
        (lambda: MeshComposerConfig(row_dim=0, col_dim=1), "MeshComposerConfig(dims: [0, 1])"),
        (lambda: MeshComposerConfig(0, 1), "MeshComposerConfig(dims: [0, 1])"),
        (lambda: MeshComposerConfig(dims=[2]), "MeshComposerConfig(dims: [2])"),
    ],
)
def test_configs_print_what_was_set(config: Callable[[], Any], text: str):
    assert repr(config()) == text


def test_the_placements_of_a_config_are_readable():
    config = MeshMapperConfig(row_dim=None, col_dim=-1)
    assert [type(p) for p in config.placements] == [PlacementReplicate, PlacementShard]
    assert config.placements[1].dim == -1


# -- helpers ---------------------------------------------------------------------------------------


def test_helpers_are_mappers_and_composers(mesh: MeshDevice):
    assert isinstance(ttnn.ShardTensorToMesh(mesh, 0), ttnn.TensorToMesh)
    assert isinstance(ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, 1)), ttnn.TensorToMesh)
    assert isinstance(ttnn.ConcatMeshToTensor(mesh, 0), ttnn.MeshToTensor)
    assert isinstance(ttnn.ConcatMesh2dToTensor(mesh, (2, 4), (0, 1)), ttnn.MeshToTensor)
    wrapper = ttnn.ReplicateTensorToMesh(mesh)
    assert isinstance(wrapper, ttnn.ReplicateTensorToMeshWrapper)
    assert isinstance(wrapper.unwrap(), ttnn.TensorToMesh)
    assert ttnn.CppTensorToMesh is ttnn.TensorToMesh
    assert ttnn.CppMeshToTensor is ttnn.MeshToTensor


@pytest.mark.parametrize(
    ("mapper", "config"),
    [
        (
            lambda mesh: ttnn.ReplicateTensorToMesh(mesh).unwrap(),
            "MeshMapperConfig(placements: [PlacementReplicate()], mesh_shape_override=MeshShape([8]))",
        ),
        (
            lambda mesh: ttnn.ShardTensorToMesh(mesh, dim=-1),
            "MeshMapperConfig(placements: [PlacementShard(-1)], mesh_shape_override=MeshShape([8]))",
        ),
        (
            lambda mesh: ttnn.shard_tensor_to_mesh_mapper(mesh, 3),
            "MeshMapperConfig(placements: [PlacementShard(3)], mesh_shape_override=MeshShape([8]))",
        ),
        (
            lambda mesh: ttnn.ShardTensor2dMesh(mesh, mesh_shape=(2, 4), dims=(None, 3)),
            "MeshMapperConfig(placements: [PlacementReplicate(), PlacementShard(3)], "
            "mesh_shape_override=MeshShape([2, 4]))",
        ),
        (
            lambda mesh: ttnn.ShardTensor2dMesh(mesh, MeshShape(2, 2), [0, 1]),
            "MeshMapperConfig(placements: [PlacementShard(0), PlacementShard(1)], "
            "mesh_shape_override=MeshShape([2, 2]))",
        ),
    ],
)
def test_a_mapper_tells_its_config(mesh: MeshDevice, mapper: Callable[[MeshDevice], Any], config: str):
    assert repr(mapper(mesh).config()) == config


def test_a_mapper_can_be_made_for_a_shape_without_a_device():
    mapper = ttnn.create_mesh_mapper(MeshShape(1, 2), MeshMapperConfig(None, 0))
    host = ttnn.from_torch(counting(4, 1), mesh_mapper=mapper)
    assert host.shape == [2, 1]


def test_rows_take_the_first_dim_and_columns_the_second(mesh: MeshDevice):
    values = counting(4, 8)
    x = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, 1)))
    for (row, column), piece in zip(coords(x), pieces(x), strict=True):
        assert torch.equal(piece, values[row * 2 : row * 2 + 2, column * 2 : column * 2 + 2])


def test_none_copies_along_a_mesh_axis(mesh: MeshDevice):
    values = counting(2, 8)
    x = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (None, 1)))
    for (_, column), piece in zip(coords(x), pieces(x), strict=True):
        assert torch.equal(piece, values[:, column * 2 : column * 2 + 2])
    assert x.storage.data is not None
    assert x.storage.data.numel() == values.numel()


def test_one_dim_over_all_devices_goes_row_major(mesh: MeshDevice):
    x = ttnn.from_torch(counting(8, 1), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert coords(x) == [tuple(coord) for coord in mesh.shape.coordinates()]
    assert [int(piece) for piece in pieces(x)] == list(range(8))


# -- distribution shape and mode -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "mesh_shape", "expected"),
    [
        (MeshShape(2, 4), MeshShape(2, 4), [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]),
        (MeshShape(2, 2), MeshShape(2, 4), [(0, 0), (0, 1), (1, 0), (1, 1)]),
        (MeshShape([3]), MeshShape(2, 4), [(0, 0), (0, 1), (0, 2)]),
        (MeshShape(4, 2), MeshShape(2, 4), [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]),
        (MeshShape([12]), MeshShape(2, 2), [(0, 0), (0, 1), (1, 0), (1, 1)]),
    ],
)
def test_a_distribution_finds_its_coordinates(
    distribution: MeshShape, mesh_shape: MeshShape, expected: list[tuple[int, int]]
):
    found = ttnn.compute_distribution_to_mesh_mapping(distribution, mesh_shape)
    assert [tuple(coord) for coord in found] == expected


def test_in_submesh_mode_the_rest_of_the_mesh_holds_nothing(mesh: MeshDevice):
    x = ttnn.from_torch(counting(2, 2), device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 2), (0, 1)))
    assert coords(x) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [int(piece) for piece in pieces(x)] == [0, 1, 2, 3]


def test_an_offset_moves_a_submesh_distribution(mesh: MeshDevice):
    config = MeshMapperConfig(
        row_dim=0, col_dim=1, mesh_shape_override=MeshShape(2, 2), mesh_offset_override=MeshCoordinate(0, 2)
    )
    x = mapped(counting(2, 2), mesh, config)
    assert coords(x) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert [int(piece) for piece in pieces(x)] == [0, 1, 2, 3]


def test_a_transposed_distribution_wraps_row_major(mesh: MeshDevice):
    values = counting(4, 2)
    x = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (4, 2), (0, 1)))
    assert coords(x) == [tuple(coord) for coord in mesh.shape.coordinates()]
    assert [int(piece) for piece in pieces(x)] == list(range(8))
    composer = ttnn.ConcatMesh2dToTensor(mesh, (4, 2), (0, 1))
    assert torch.equal(ttnn.to_torch(x, mesh_composer=composer), values)


def test_a_distribution_may_have_more_dims_than_the_mesh(mesh: MeshDevice):
    values = counting(2, 4, 6)
    config = MeshMapperConfig([PlacementShard(0), PlacementReplicate(), PlacementShard(2)], MeshShape(2, 2, 2))
    x = mapped(values, mesh, config)
    for k, piece in enumerate(pieces(x)):
        i, j = k // 4, k % 2
        assert torch.equal(piece, values[i : i + 1, :, 3 * j : 3 * j + 3])
    assert torch.equal(ttnn.compose(x), values)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            lambda: MeshMapperConfig([PlacementShard(0)], MeshShape([9])),
            "The size of the supplied mesh shape MeshShape([9]) does not match the device shape size MeshShape([2, 4])",
        ),
        (
            lambda: MeshMapperConfig([PlacementShard(0)]),
            "The number of dimensions in the mesh shape MeshShape([2, 4]) does not match the number of placements "
            "in the config MeshMapperConfig(placements: [PlacementShard(0)])",
        ),
        (
            lambda: MeshMapperConfig([PlacementShard(0)], MeshShape([4]), mesh_offset_override=MeshCoordinate(0, 1)),
            "mesh_offset_override is only supported when the distribution fits within the mesh device "
            "per-dimension (SUBMESH mode);",
        ),
        (
            lambda: MeshMapperConfig(
                0, 1, mesh_shape_override=MeshShape(2, 2), mesh_offset_override=MeshCoordinate(0, 3)
            ),
            "The sub-rectangle anchored at offset MeshCoordinate([0, 3]) with shape MeshShape([2, 2]) does not fit "
            "within the mesh device shape MeshShape([2, 4]) (dimension 1)",
        ),
        (
            lambda: MeshMapperConfig(
                0, 1, mesh_shape_override=MeshShape(2, 2), mesh_offset_override=MeshCoordinate([1])
            ),
            "The offset MeshCoordinate([1]) must have the same dimensionality as the mesh device shape",
        ),
    ],
)
def test_a_mapper_that_does_not_fit_the_mesh_says_why(
    mesh: MeshDevice, config: Callable[[], MeshMapperConfig], message: str
):
    with pytest.raises(RuntimeError, match=exactly(message)):
        ttnn.create_mesh_mapper(mesh, config())


@pytest.mark.parametrize(
    ("dims", "shape", "message"),
    [
        ((1, 2), (8,), "Invalid dimension index; got dims: {1, 2}, tensor dimension: 1"),
        ((4, 4), (8, 8), "Invalid dimension index; got dims: {4, 4}, tensor dimension: 2"),
        ((0, 1), (), "Invalid dimension index; got dims: {0, 1}, tensor dimension: 0"),
        ((1, -1), (8, 8), "dims must be unique"),
        ((1, 1), (8, 8), "dims must be unique"),
    ],
)
def test_dims_that_cannot_be_split_are_told_when_a_tensor_is_mapped(
    mesh: MeshDevice, dims: tuple[int, int], shape: tuple[int, ...], message: str
):
    mapper = ttnn.create_mesh_mapper(mesh, MeshMapperConfig(*dims))
    with pytest.raises(RuntimeError, match=exactly(message)):
        ttnn.from_torch(torch.ones(shape), mesh_mapper=mapper)


def test_an_offset_of_zeros_is_none(mesh: MeshDevice):
    config = MeshMapperConfig([PlacementShard(0)], MeshShape([8]), mesh_offset_override=MeshCoordinate([0, 0, 0]))
    assert "offset" not in repr(config)
    assert (
        len(ttnn.get_device_tensors(ttnn.from_torch(torch.ones(8), mesh_mapper=ttnn.create_mesh_mapper(mesh, config))))
        == 8
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            lambda: MeshComposerConfig([0], MeshShape([9])),
            "The size of the supplied mesh shape MeshShape([9]) does not match the device shape size MeshShape([2, 4])",
        ),
        (
            lambda: MeshComposerConfig([0]),
            "The number of dimensions in the mesh shape MeshShape([2, 4]) does not match the number of dimensions "
            "in the config MeshComposerConfig(dims: [0])",
        ),
    ],
)
def test_a_composer_that_does_not_fit_the_mesh_says_why(
    mesh: MeshDevice, config: Callable[[], MeshComposerConfig], message: str
):
    with pytest.raises(RuntimeError, match=exactly(message)):
        ttnn.create_mesh_composer(mesh, config())


# -- the chunking rule -----------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "chunks"), [(16, 8), (12, 6), (10, 5), (5, 5), (8, 8), (1, 1), (14, 7)])
def test_a_line_takes_fewer_chunks_than_devices(mesh: MeshDevice, n: int, chunks: int):
    x = ttnn.from_torch(counting(n, 2), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert x.tensor_topology().distribution_shape() == MeshShape([chunks])
    assert coords(x) == [tuple(coord) for coord in mesh.shape.coordinates()][:chunks]
    assert [piece.shape[0] for piece in pieces(x)] == [n // chunks] * chunks
    assert torch.equal(torch.cat(pieces(x)), counting(n, 2))
    composer = ttnn.ConcatMeshToTensor(mesh, 0)
    assert torch.equal(ttnn.to_torch(x, mesh_composer=composer), counting(n, 2))
    assert torch.equal(ttnn.compose(x), counting(n, 2))


def test_a_short_last_chunk_is_a_shape_mismatch(mesh: MeshDevice):
    expected = "Shard shape mismatch: expected Shape([2, 4]) but got Shape([1, 4])"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.from_torch(torch.ones(9, 4), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))


@pytest.mark.parametrize(("n", "chunks"), [(6, 3), (2, 2)])
def test_a_grid_must_be_filled(mesh: MeshDevice, n: int, chunks: int):
    expected = f"ND sharding requires the number of chunks {chunks} to match the mesh dimension size 4"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.from_torch(torch.ones(2, n), mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (None, 1)))


def test_uneven_splits_work_when_leniency_is_asked_for(mesh: MeshDevice):
    values = counting(9, 4)
    with ttnn.lenient():
        x = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
        y = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, None)))
    assert torch.equal(ttnn.compose(x), values)
    assert torch.equal(ttnn.compose(y), values)
    with pytest.raises(RuntimeError, match="Shard shape mismatch"):
        ttnn.from_torch(values, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))


def test_negative_dims_count_from_the_end_and_are_kept_as_given(mesh: MeshDevice):
    x = ttnn.from_torch(counting(2, 8), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, -1))
    assert x.shape == [2, 1]
    assert x.tensor_topology().placements()[0].dim == -1


@pytest.mark.parametrize("dim", [5, 2, -3])
def test_a_dim_outside_the_tensor_is_refused(mesh: MeshDevice, dim: int):
    expected = f"Invalid dimension index; got dims: {{{dim}}}, tensor dimension: 2"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.from_torch(torch.ones(8, 8), mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim))


def test_one_tensor_dim_is_split_once(mesh: MeshDevice):
    mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, -2))
    with pytest.raises(RuntimeError, match="dims must be unique"):
        ttnn.from_torch(torch.ones(8, 8), mesh_mapper=mapper)


def test_an_empty_dim_makes_no_chunks(mesh: MeshDevice):
    with pytest.raises(RuntimeError, match="No chunks were produced"):
        ttnn.from_torch(torch.ones(0, 4), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))


def test_a_scalar_is_replicated_but_not_split(mesh: MeshDevice):
    x = ttnn.from_torch(torch.tensor(3.0), device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))
    assert [float(piece) for piece in pieces(x)] == [3.0] * 8
    with pytest.raises(RuntimeError, match="Invalid dimension index"):
        ttnn.from_torch(torch.tensor(3.0), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))


# -- the composition rule --------------------------------------------------------------------------


def test_replicas_are_concatenated_like_anything_else(mesh: MeshDevice):
    x = ttnn.from_torch(torch.ones(1, 2), device=mesh)
    composer = ttnn.ConcatMeshToTensor(mesh, dim=0)
    assert ttnn.to_torch(x, mesh_composer=composer).shape == (8, 2)
    assert ttnn.to_torch(ttnn.get_device_tensors(x)[0]).shape == (1, 2)


def test_both_axes_are_concatenated_along_their_dims(mesh: MeshDevice):
    values = counting(4, 3, 8)
    x = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (2, 0)))
    composer = ttnn.ConcatMesh2dToTensor(mesh, mesh_shape=(2, 4), dims=(2, 0))
    assert torch.equal(ttnn.to_torch(x, mesh_composer=composer), values)
    general = ttnn.create_mesh_composer(mesh, MeshComposerConfig(dims=[-1, 0]))
    assert torch.equal(ttnn.to_torch(x, mesh_composer=general), values)


def test_a_grid_composer_needs_every_device(mesh: MeshDevice):
    x = ttnn.from_torch(torch.ones(2, 2), device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 2), (0, 1)))
    expected = "ND composition requires the number of tensors 4 to match the mesh shape MeshShape([2, 4])"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.to_torch(x, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, (2, 4), (0, 1)))
    right = ttnn.ConcatMesh2dToTensor(mesh, (2, 2), (0, 1))
    assert ttnn.to_torch(x, mesh_composer=right).shape == (2, 2)


def test_a_line_composer_joins_what_it_finds(mesh: MeshDevice):
    x = ttnn.from_torch(counting(2, 2), device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 2), (0, 1)))
    joined = ttnn.to_torch(x, mesh_composer=ttnn.ConcatMeshToTensor(mesh, 0))
    assert joined.flatten().tolist() == [0, 1, 2, 3]


def test_composing_along_a_dim_that_is_not_there_is_refused(mesh: MeshDevice):
    x = ttnn.from_torch(torch.ones(8, 2), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    with pytest.raises(RuntimeError, match="Invalid dimension index"):
        ttnn.to_torch(x, mesh_composer=ttnn.ConcatMeshToTensor(mesh, 2))
    with pytest.raises(RuntimeError, match="dims must be unique"):
        ttnn.to_torch(x, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, (2, 4), (0, -2)))


def test_a_composer_of_another_mesh_is_refused(mesh: MeshDevice):
    plain = ttnn.from_torch(torch.ones(2, 2))
    expected = "Coordinate MeshCoordinate([0, 1]) is out of bounds for shape MeshShape([1, 1])"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.to_torch(plain, mesh_composer=ttnn.ConcatMeshToTensor(mesh, 0))


# -- distribute ------------------------------------------------------------------------------------


def test_distribute_gives_from_torch_a_mapper_for_a_while(mesh: MeshDevice):
    with ttnn.distribute(ttnn.ShardTensorToMesh(mesh, 0)):
        assert ttnn.from_torch(torch.ones(8, 2)).shape == [1, 2]
        explicit = ttnn.from_torch(torch.ones(8, 2), mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
        assert explicit.shape == [1, 2]
        with ttnn.distribute(ttnn.ReplicateTensorToMesh(mesh)):
            assert ttnn.from_torch(torch.ones(8, 2)).shape == [8, 2]
        assert ttnn.from_torch(torch.ones(8, 2)).shape == [1, 2]
    assert ttnn.from_torch(torch.ones(8, 2)).shape == [8, 2]


def test_an_explicit_keyword_wins_over_distribute(mesh: MeshDevice):
    with ttnn.distribute(ttnn.ShardTensorToMesh(mesh, 0)):
        assert ttnn.from_torch(torch.ones(8, 8), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 1)).shape == [8, 1]
        assert ttnn.from_torch(torch.ones(8, 8), mesh_mapper=None).shape == [8, 8]


def test_distribute_gives_to_torch_a_composer_for_a_while(mesh: MeshDevice):
    x = ttnn.from_torch(counting(8, 2), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    with ttnn.distribute(ttnn.ConcatMeshToTensor(mesh, 0)):
        assert torch.equal(ttnn.to_torch(x), counting(8, 2))
    with pytest.raises(RuntimeError, match="Supply a mesh composer"):
        ttnn.to_torch(x)


def test_distribute_is_undone_after_an_error(mesh: MeshDevice):
    before = ttnn.from_torch
    with pytest.raises(KeyError), ttnn.distribute(ttnn.ShardTensorToMesh(mesh, 0)):
        raise KeyError
    assert ttnn.from_torch is before


def test_a_name_imported_earlier_is_unaffected(mesh: MeshDevice):
    from softmesh import from_torch

    with ttnn.distribute(ttnn.ShardTensorToMesh(mesh, 0)):
        assert from_torch(torch.ones(8, 2)).shape == [8, 2]


@pytest.mark.parametrize("silly", [None, 0, "mesh", MeshMapperConfig(0, 1)])
def test_distribute_takes_mappers_and_composers_only(silly: Any):
    expected = "Argument must be an instance of either TensorToMesh or MeshToTensor."
    with pytest.raises(ValueError, match=exactly(expected)), ttnn.distribute(silly):
        pass


# -- shard, then compose ---------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_composing_undoes_splitting_over_any_distribution(data: st.DataObject):
    mesh_shape = data.draw(st.sampled_from([(8,), (2, 4), (4, 2), (1, 8), (2, 2, 2)]))
    shape = data.draw(st.sampled_from([(8,), (2, 4), (4, 2), (2, 2), (1, 4), (2, 2, 2), (4,), (2,)]))
    rank = data.draw(st.integers(len(shape), 4))
    dims = data.draw(st.permutations(range(rank)))[: len(shape)]
    chunk = data.draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    extents = [n * (shape[dims.index(d)] if d in dims else 1) for d, n in enumerate(chunk)]
    values = counting(*extents)
    mapper_config = MeshMapperConfig([PlacementShard(d) for d in dims], MeshShape(shape))
    host = ttnn.from_torch(values, mesh_mapper=ttnn.create_mesh_mapper(MeshShape(mesh_shape), mapper_config))
    composer = ttnn.create_mesh_composer(MeshShape(mesh_shape), MeshComposerConfig(list(dims), MeshShape(shape)))
    assert list(host.shape) == chunk
    assert torch.equal(ttnn.to_torch(host, mesh_composer=composer), values)
    assert torch.equal(ttnn.compose(host), values)


def test_a_mapper_is_made_for_a_mesh_or_for_a_shape():
    config = ttnn.MeshMapperConfig([ttnn.PlacementShard(0), ttnn.PlacementReplicate()])
    values = torch.arange(4.0).reshape(4, 1)
    for mapper in (
        ttnn.create_mesh_mapper(ttnn.MeshShape(2, 2), config),
        ttnn.create_mesh_mapper(mesh_shape=ttnn.MeshShape(2, 2), config=config),
    ):
        shards = ttnn.get_device_tensors(ttnn.from_torch(values, mesh_mapper=mapper))
        assert [ttnn.to_torch(shard).flatten().tolist() for shard in shards] == [
            [0, 1],
            [0, 1],
            [2, 3],
            [2, 3],
        ]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"mesh_device": ttnn.MeshShape(1, 2), "mesh_shape": ttnn.MeshShape(1, 2)},
        {"mesh_shape": (1, 2)},
        {"mesh_shape": ttnn.MeshShape(1, 2), "config": None},
    ],
)
def test_half_a_mapper_is_refused(arguments):
    config = ttnn.MeshMapperConfig([ttnn.PlacementReplicate()])
    with pytest.raises(ttnn.ArgumentError, match="create_mesh_mapper"):
        ttnn.create_mesh_mapper(**{"config": config, **arguments})


@pytest.mark.parametrize(
    "name",
    ["ReplicateTensorToMesh", "ShardTensorToMesh", "ShardTensor2dMesh", "ConcatMeshToTensor", "ConcatMesh2dToTensor"],
)
def test_compilers_that_write_calls_down_find_mappers_by_their_names_as_they_find_ops(name: str) -> None:
    assert getattr(ttnn, name).python_fully_qualified_name == f"ttnn.{name}"
    assert ttnn.from_torch.python_fully_qualified_name == "ttnn.from_torch"


# -- the order in which mappers and composers refuse ------------------------------------------------


def zeros_over(extents: list[int], mesh: list[int], words: list[Any], shape: list[int] | None = None) -> ttnn.Tensor:
    config = MeshMapperConfig(words, mesh_shape_override=None if shape is None else MeshShape(shape))
    return ttnn.from_torch(torch.zeros(extents), mesh_mapper=ttnn.create_mesh_mapper(MeshShape(mesh), config))


S, R = PlacementShard, PlacementReplicate


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: zeros_over([2, 5], [2, 4], [S(0), S(1)]),
            "ND sharding requires the number of chunks 6 to match the mesh dimension size 8",
        ),
        (
            lambda: zeros_over([7, 5], [2, 4], [S(0), S(1)]),
            "ND sharding requires the number of chunks 6 to match the mesh dimension size 8",
        ),
        (
            lambda: zeros_over([4, 7, 32, 7, 8], [2, 4], [S(1), S(4)]),
            "Shard shape mismatch: expected Shape([4, 4, 32, 7, 2]) but got Shape([4, 3, 32, 7, 2])",
        ),
        (
            lambda: zeros_over([7, 7], [2, 2], [S(0), S(1)]),
            "Shard shape mismatch: expected Shape([4, 4]) but got Shape([4, 3])",
        ),
        (
            lambda: zeros_over([7, 7], [1, 2], [S(0)], [2]),
            "Shard shape mismatch: expected Shape([4, 7]) but got Shape([3, 7])",
        ),
        (
            lambda: zeros_over([4, 4], [2, 4], [S(0), R(), S(1)], [2, 0, 2]),
            "Coordinate MeshCoordinate([0, 0, 0]) is out of bounds for shape MeshShape([2, 0, 2])",
        ),
    ],
)
def test_pieces_that_do_not_come_out_even_are_told_as_a_whole(attempt: Callable[[], ttnn.Tensor], message: str):
    with pytest.raises(RuntimeError, match=exactly(message)):
        attempt()


def test_a_tensor_for_no_device_composes_to_nothing(mesh: MeshDevice):
    empty = zeros_over([4, 4], [2, 4], [R(), R()], [2, 0])
    assert ttnn.to_torch(empty, mesh_composer=ttnn.ConcatMeshToTensor(mesh, 0)).shape == (0,)


def test_a_single_shard_is_returned_whatever_the_dims_are():
    shape = MeshShape(1, 1)
    one = ttnn.from_torch(torch.ones(2, 3), mesh_mapper=ttnn.create_mesh_mapper(shape, MeshMapperConfig([R(), R()])))
    composer = ttnn.create_mesh_composer(shape, MeshComposerConfig([7, 7]))
    assert ttnn.to_torch(one, mesh_composer=composer).shape == (2, 3)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ([5, 5], "Invalid dimension index; got dims: {5, 5}, tensor dimension: 2"),
        ([0, -2], "dims must be unique"),
        ([1, 1], "dims must be unique"),
    ],
)
def test_dims_of_a_composer_are_looked_at_when_it_composes(mesh: MeshDevice, dims: list[int], message: str):
    split = ttnn.from_torch(torch.zeros(8, 8), mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, 1)))
    composer = ttnn.create_mesh_composer(mesh, MeshComposerConfig(dims))
    with pytest.raises(RuntimeError, match=exactly(message)):
        ttnn.to_torch(split, mesh_composer=composer)


# -- the short way in ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 4), (1, 8), (8, 1), (1, 1)])
@pytest.mark.parametrize("rows", [None, 0, -1])
@pytest.mark.parametrize("columns", [None, 1])
def test_put_is_from_torch_with_the_axes_by_name(shape: tuple[int, int], rows: int | None, columns: int | None):
    values = torch.randn(64, 128)
    if rows == -1 and columns == 1:
        return  # one dim cannot be split by both
    with ttnn.create_mesh_device(MeshShape(shape)) as mesh:
        mapper = ttnn.ShardTensor2dMesh(mesh, shape, dims=(rows, columns))
        expected = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
        made = ttnn.put(values, mesh, rows=rows, columns=columns)
        assert made.spec == expected.spec
        assert ttnn.placements(made) == ttnn.placements(expected)
        assert torch.equal(ttnn.compose(made), values)
        assert ttnn.put(values, mesh, dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT).dtype == ttnn.bfloat8_b


def test_put_takes_a_dim_for_each_axis_of_any_mesh():
    values = torch.randn(4, 32, 64)
    with ttnn.create_mesh_device(MeshShape(2, 2, 2)) as mesh:
        made = ttnn.put(values, mesh, dims=(0, None, 2))
        assert list(made.shape) == [2, 32, 32]
        assert torch.equal(ttnn.compose(made), values)
        for wrong in ({"rows": 0}, {"dims": (0, 1)}, {"dims": (0, 1, 2), "columns": 1}, {}):
            with pytest.raises(TypeError, match="the mesh is 2x2x2: say what its axes split by dims, one way only"):
                ttnn.put(values, mesh, **wrong)
    with pytest.raises(RuntimeError, match="closed"):
        ttnn.put(values, mesh)
