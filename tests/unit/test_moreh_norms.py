"""moreh_layer_norm and moreh_group_norm: values, statistics on request, tensors given for them, placements."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

import softmesh as ttnn
from softmesh.placement.placements import Shard

EPS = 1e-5


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as device:
        yield device


def put(values: torch.Tensor, mesh: ttnn.MeshDevice, dim: int | None = None) -> ttnn.Tensor:
    mapper = None if dim is None else ttnn.ShardTensorToMesh(mesh, dim=dim)
    return ttnn.from_torch(values, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def first(tensor: ttnn.Tensor) -> torch.Tensor:
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_layer_norm_over_the_last_dims_with_its_statistics(dims: int, mesh: ttnn.MeshDevice) -> None:
    x, normalised = torch.randn(4, 6, 40), (4, 6, 40)[-dims:]
    gamma, beta = torch.randn(normalised), torch.randn(normalised)
    shape = x.shape[:-dims] or (1,)
    targets = {name: ttnn.empty(shape, ttnn.float32, ttnn.TILE_LAYOUT, mesh) for name in ("mean", "rstd")}
    result = ttnn.operations.moreh.layer_norm(put(x, mesh), dims, EPS, put(gamma, mesh), put(beta, mesh), **targets)
    over = tuple(range(-dims, 0))
    assert torch.allclose(first(result[0]), F.layer_norm(x, normalised, gamma, beta, EPS), atol=1e-4)
    assert torch.allclose(first(targets["mean"]), x.mean(over).reshape(shape), atol=1e-5)
    variance = x.var(over, unbiased=False).reshape(shape)
    assert torch.allclose(first(targets["rstd"]), torch.rsqrt(variance + EPS), atol=1e-4)
    assert first(result[1]).shape == first(result[2]).shape == shape


def test_statistics_come_only_where_a_tensor_is_given_or_they_are_required(mesh: ttnn.MeshDevice) -> None:
    x = put(torch.randn(2, 4, 3, 5), mesh)
    assert ttnn.moreh_layer_norm(x, 1)[1:] == [None, None]
    assert ttnn.moreh_group_norm(x, 2)[1:] == [None, None]
    output, mean, rstd = ttnn.moreh_group_norm(x, 2, are_required_outputs=(True, False, True))
    assert output is not None
    assert mean is None
    assert rstd.shape == (1, 1, 2, 2)
    with pytest.raises(RuntimeError, match="are_required_outputs"):
        ttnn.moreh_group_norm(x, 2, are_required_outputs=(True,))


def test_group_norm_of_images_split_over_devices(mesh: ttnn.MeshDevice) -> None:
    x, gamma, beta = torch.randn(4, 6, 5, 7), torch.randn(6), torch.randn(6)
    weights = (put(values.reshape(1, 1, 1, 6), mesh) for values in (gamma, beta))
    output, mean, _ = ttnn.moreh_group_norm(put(x, mesh, 0), 3, EPS, *weights, are_required_outputs=[True, True, False])
    assert ttnn.placements(output)[-1] == Shard(0)
    assert ttnn.placements(mean)[-1] == Shard(2)
    joined = ttnn.to_torch(output, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
    assert torch.allclose(joined, F.group_norm(x, 3, gamma, beta, EPS), atol=1e-4)
    means = ttnn.to_torch(mean, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=2))
    assert torch.allclose(means[0, 0], x.reshape(4, 3, -1).mean(-1), atol=1e-5)


def test_what_does_not_fit_is_named(mesh: ttnn.MeshDevice) -> None:
    x = put(torch.randn(2, 4, 3, 5), mesh)
    with pytest.raises(RuntimeError, match="normalized_dims=5"):
        ttnn.moreh_layer_norm(x, 5)
    with pytest.raises(RuntimeError, match="gamma"):
        ttnn.moreh_layer_norm(x, 1, EPS, put(torch.ones(4), mesh))
    with pytest.raises(RuntimeError, match="num_groups=3"):
        ttnn.moreh_group_norm(x, 3)
    with pytest.raises(RuntimeError, match="beta"):
        ttnn.moreh_group_norm(x, 2, EPS, None, put(torch.ones(5), mesh))


def test_no_machine_has_the_chips_of_earlier_releases(mesh: ttnn.MeshDevice) -> None:
    assert not ttnn.device.is_grayskull(mesh)
    assert not ttnn.device.is_grayskull()
    with pytest.raises(TypeError, match="is_grayskull"):
        ttnn.device.is_grayskull("card")
