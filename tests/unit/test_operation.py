"""Calling an op: arguments, plans, output tensors, what a partial sum may meet."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS, Operation


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        yield mesh


def split(mesh: ttnn.MeshDevice, values: torch.Tensor, dims: tuple[int | None, int | None]) -> ttnn.Tensor:
    mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims)
    return ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def partial(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.matmul(split(mesh, torch.rand(32, 128), (None, 1)), split(mesh, torch.rand(128, 32), (None, 0)))


def test_an_unknown_keyword_names_the_nearest_right_one(mesh: ttnn.MeshDevice) -> None:
    x = ttnn.ones((32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    with pytest.raises(TypeError, match=r"no argument 'memory_confg'\. Did you mean 'memory_config'\?"):
        ttnn.relu(x, memory_confg=ttnn.DRAM_MEMORY_CONFIG)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "argument 'input_tensor_a' is missing"),
        ((1.0, 2.0), {}, "it needs a ttnn.Tensor, got float, float"),
        ((1, 2, 3), {}, "takes 2 positional arguments"),
        ((1,), {"input_tensor_a": 2}, "argument 'input_tensor_a' is given twice"),
        ((torch.ones(2), torch.ones(2)), {}, "it needs a ttnn.Tensor"),
    ],
)
def test_wrong_arguments_say_which(args: tuple[object, ...], kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ttnn.add(*args, **kwargs)


def test_a_second_call_with_the_same_specs_uses_the_first_plan(mesh: ttnn.MeshDevice) -> None:
    x = ttnn.ones((32, 96), layout=ttnn.TILE_LAYOUT, device=mesh)
    before = mesh.num_program_cache_entries()
    ttnn.add(x, 1.0)
    ttnn.add(x, 2.0)
    ttnn.add(x + x, 3.0)
    assert mesh.num_program_cache_entries() == before + 2  # tensor + number, tensor + tensor
    ttnn.add(x, x, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert mesh.num_program_cache_entries() == before + 3


def test_a_number_is_not_part_of_the_plan(mesh: ttnn.MeshDevice) -> None:
    x = ttnn.ones((32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    results = [ttnn.to_torch(ttnn.get_device_tensors(ttnn.multiply(x, n))[0])[0, 0].item() for n in (2.0, 3.0, 4.0)]
    assert results == [2.0, 3.0, 4.0]


def test_forbidden_cache_misses_raise(mesh: ttnn.MeshDevice) -> None:
    x = ttnn.ones((32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    mesh.set_program_cache_misses_allowed(False)
    with pytest.raises(RuntimeError, match="program cache miss"):
        ttnn.tanh(x)


def test_what_all_devices_share_is_computed_and_stored_once(mesh: ttnn.MeshDevice) -> None:
    w = ttnn.ones((32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    result = ttnn.gelu(ttnn.matmul(w, w))
    assert result.view_data().shape == (1, 1, 32, 32)
    x = split(mesh, torch.rand(64, 32), (0, None))
    assert ttnn.matmul(x, w).view_data().shape == (2, 1, 32, 32)


@pytest.mark.parametrize(
    "linear",
    [
        ttnn.neg,
        lambda p: ttnn.multiply(p, 2.0),
        lambda p: ttnn.div(p, 2.0),
        lambda p: p + p,
        lambda p: ttnn.transpose(p, 0, 1),
        lambda p: ttnn.reshape(p, (1, 32, 32)),
        lambda p: ttnn.sum(p, dim=0),
        lambda p: p[:16],
        lambda p: ttnn.typecast(p, ttnn.bfloat16),
        lambda p: ttnn.concat([p, p], dim=1),
        lambda p: ttnn.matmul(p, ttnn.ones((32, 32), layout=ttnn.TILE_LAYOUT, device=p.device())),
    ],
)
def test_linear_ops_carry_a_partial_sum_along(linear, mesh: ttnn.MeshDevice) -> None:  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ttnn.placements(linear(partial(mesh))) == (ttnn.Replicate(), ttnn.Partial("sum"))


@pytest.mark.parametrize(
    "non_linear",
    [
        ttnn.gelu,
        ttnn.exp,
        lambda p: p * p,
        lambda p: ttnn.max(p, dim=0),
        lambda p: ttnn.softmax(p, dim=-1),
        lambda p: ttnn.rms_norm(p),
        lambda p: ttnn.div(1.0, p),
    ],
)
def test_other_ops_on_a_partial_sum_name_the_missing_collective(non_linear, mesh, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    p = partial(mesh)
    with pytest.warns(ttnn.PartialWarning, match=r"all_reduce\(.*cluster_axis=1\)") as caught:
        result = non_linear(p)
    assert caught[0].filename == __file__
    assert ttnn.placements(result)[1] is ttnn.Local()
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.raises(ttnn.PartialError, match="all_reduce"):
        non_linear(p)


def ones(mesh: ttnn.MeshDevice, *shape: int) -> ttnn.Tensor:
    return ttnn.ones(shape, ttnn.float32, ttnn.TILE_LAYOUT, mesh)


@pytest.mark.parametrize("strict", ["0", "1"])
@pytest.mark.parametrize(
    "adds",
    [
        lambda p: ttnn.add(p, 1.0),
        lambda p: ttnn.add(p, ones(p.device(), 32, 32)),
        lambda p: ttnn.subtract(p, 1.0),
    ],
)
def test_what_each_device_adds_to_a_partial_sum_may_be_its_share(adds, strict, mesh, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SOFTMESH_STRICT", strict)
    with pytest.warns(ttnn.PartialWarning, match=r"divided by 4 before.*all_reduce\(.*cluster_axis=1\)") as caught:
        result = adds(partial(mesh))
    assert caught[0].filename == __file__
    assert ttnn.placements(result)[1] is ttnn.Local()


@pytest.mark.parametrize("shape", [(1, 32), (32,), (32, 1), (1, 1)])
def test_a_bias_that_may_have_been_divided_is_doubted_in_strict_mode_only(shape, mesh, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ttnn.placements(ttnn.add(partial(mesh), ones(mesh, *shape)))[1] == ttnn.Partial("sum")
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.warns(ttnn.PartialWarning, match="divided by 4 before"):
        ttnn.add(partial(mesh), ones(mesh, *shape))


def test_a_bias_or_an_activation_on_a_partial_product_is_told(mesh, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    x, w = split(mesh, torch.rand(32, 128), (None, 1)), split(mesh, torch.rand(128, 32), (None, 0))
    bias = ones(mesh, 1, 32)
    for activation in ("relu", None):
        with pytest.warns(ttnn.PartialWarning, match="linear: the plain result"):
            ttnn.linear(x, w, bias=bias, activation=activation)
        monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.raises(ttnn.PartialError, match="linear: the plain result"):
        ttnn.linear(x, w, bias=bias, activation="relu")


def test_composing_a_partial_sum_warns_and_gives_the_sum(mesh: ttnn.MeshDevice) -> None:
    x, w = torch.rand(32, 128), torch.rand(128, 32)
    p = ttnn.matmul(split(mesh, x, (None, 1)), split(mesh, w, (None, 0)))
    with pytest.warns(ttnn.PartialWarning, match="compose.*still Partial"):
        torch.testing.assert_close(ttnn.compose(p), x @ w)
    with pytest.warns(ttnn.PartialWarning, match="to_torch.*still Partial"):
        ttnn.to_torch(p, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))


def test_every_op_has_a_docstring_or_a_telling_name_and_a_rule() -> None:
    for name, op in OPERATIONS.items():
        assert op.definition.signature.operand_at, f"{name} takes no tensor"
        assert callable(op.definition.cost)


def test_a_name_that_is_not_there_is_an_attribute_error_with_a_hint() -> None:
    said = r"module 'ttnn' has no attribute 'from_troch'.*Did you mean 'from_torch'\?"
    with pytest.raises(AttributeError, match=said):
        ttnn.from_troch
    assert not hasattr(ttnn, "no_such_thing")
    assert getattr(ttnn, "no_such_thing", 3) == 3


def test_dotted_names_are_modules_of_the_package() -> None:
    import softmesh.experimental.quasar

    assert softmesh.experimental.quasar.reshape is OPERATIONS["experimental.quasar.reshape"]
    assert ttnn.operations.moreh.dot is ttnn.moreh_dot


def test_an_op_after_a_reshape_of_the_mesh_refuses_tensors_made_before(mesh: ttnn.MeshDevice) -> None:
    before = ttnn.ones((32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    mesh.reshape(ttnn.MeshShape(1, 8))
    after = ttnn.ones((32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    with pytest.raises(RuntimeError, match=r"MeshShape\(\[2, 4\]\).*MeshShape\(\[1, 8\]\)"):
        before + after
    assert ttnn.to_torch(ttnn.get_device_tensors(before + before)[7])[0, 0].item() == 2.0


def test_correlation_is_one_for_what_agrees_and_zero_for_what_does_not() -> None:
    x = torch.rand(100)
    assert ttnn.pearson_correlation_coefficient(x, x * 3 + 1) == pytest.approx(1.0)
    assert ttnn.pearson_correlation_coefficient(x, -x) == pytest.approx(-1.0)
    assert ttnn.pearson_correlation_coefficient(x, torch.ones(100)) == 0.0
    assert ttnn.pearson_correlation_coefficient(torch.full((3,), torch.nan), torch.full((3,), torch.nan)) == 1.0
    assert ttnn.pearson_correlation_coefficient(torch.tensor([1.0, torch.inf]), torch.tensor([1.0, 2.0])) == 0.0
    with pytest.raises(ValueError, match="shapes differ"):
        ttnn.pearson_correlation_coefficient(x, x[:3])


def test_a_reshape_that_merges_split_dims_against_the_order_of_the_axes_is_local(
    mesh: ttnn.MeshDevice,
) -> None:
    values = torch.arange(2.0 * 4 * 32).reshape(4, 2 * 32)
    in_order = ttnn.reshape(split(mesh, values[:2], (0, 1)), (16,))
    assert torch.equal(ttnn.compose(in_order), values[:2].reshape(-1))
    against = ttnn.reshape(split(mesh, values, (1, 0)), (32,))
    assert ttnn.placements(against) == (ttnn.Local(), ttnn.Local())


def test_an_integer_dtype_on_a_partial_sum_is_told(mesh: ttnn.MeshDevice) -> None:
    p = partial(mesh)
    with pytest.warns(ttnn.PartialWarning, match="an integer dtype"):
        result = ttnn.add(p, p, dtype=ttnn.int32)
    assert ttnn.placements(result)[1] is ttnn.Local()


def test_a_constant_like_a_partial_sum_is_the_same_on_every_device(mesh: ttnn.MeshDevice) -> None:
    for made in (ttnn.zeros_like(partial(mesh)), ttnn.full_like(partial(mesh), -0.0)):
        assert ttnn.placements(made) == (ttnn.Replicate(), ttnn.Replicate())
        assert made.view_data().shape == (1, 1, 32, 32)
    assert torch.signbit(ttnn.compose(made)).all()


@pytest.mark.parametrize("wrong", [1.0, True])
def test_an_argument_of_the_wrong_kind_is_refused_after_a_right_call_too(wrong: object, mesh: ttnn.MeshDevice) -> None:
    x = ttnn.rand((32, 32), mesh)
    ttnn.softmax(x, dim=1)
    with pytest.raises(TypeError, match="dim must be an int"):
        ttnn.softmax(x, dim=wrong)


@pytest.mark.parametrize("op", [ttnn.sqrt, ttnn.gelu, ttnn.softmax, ttnn.rms_norm])
def test_whole_numbers_are_refused_by_ops_that_make_fractions(op, mesh: ttnn.MeshDevice) -> None:  # type: ignore[no-untyped-def]
    x = ttnn.from_torch(torch.ones(32, 32), dtype=ttnn.int32, layout=ttnn.TILE_LAYOUT, device=mesh)
    with pytest.raises(RuntimeError, match=r"needs floating-point tensors, got DataType.INT32.*typecast"):
        op(x)


def test_a_name_that_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'neighbor_pad_halo'"):
        ttnn.neighbor_pad_halo
    with pytest.raises(TypeError, match="observer must have a method on_command"), ttnn.observe(3):
        pass


def test_composers_cut_the_filler_of_an_uneven_split(mesh: ttnn.MeshDevice) -> None:
    values = torch.rand(9, 5)
    with ttnn.lenient():
        rows = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
        both = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, 1)))
    assert torch.equal(ttnn.to_torch(rows, mesh_composer=ttnn.ConcatMeshToTensor(mesh, 0)), values)
    composer = ttnn.ConcatMesh2dToTensor(mesh, (2, 4), (0, 1))
    assert torch.equal(ttnn.to_torch(both, mesh_composer=composer), values)


def test_dispatch_from_worker_cores_takes_a_row_of_them() -> None:
    config = ttnn.DispatchCoreConfig(ttnn.DispatchCoreType.WORKER)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2), dispatch_core_config=config) as mesh:
        assert repr(mesh.compute_with_storage_grid_size()) == "8-7"
        assert mesh.create_submesh(ttnn.MeshShape(1, 1)).core_grid == ttnn.CoreGrid(x=8, y=7)


def test_inspection_tells_the_arguments_of_an_op() -> None:
    told = inspect.signature(ttnn.all_gather)
    assert list(told.parameters)[:3] == ["input_tensor", "dim", "cluster_axis"]
    assert told.parameters["cluster_axis"].kind is inspect.Parameter.KEYWORD_ONLY
    assert told.parameters["dim"].default is inspect.Parameter.empty
    assert "definition" in inspect.signature(Operation).parameters  # of the class itself
    for op in OPERATIONS.values():
        assert inspect.signature(op).parameters
