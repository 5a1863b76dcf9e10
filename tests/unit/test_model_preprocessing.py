"""Torch modules as ttnn parameters: what each kind becomes, who may decide otherwise, and where it goes."""

from __future__ import annotations

import copy

import pytest
import torch

import softmesh as ttnn
from softmesh.errors import ArgumentError
from softmesh.model_preprocessing import (
    ParameterDict,
    ParameterList,
    convert_torch_model_to_ttnn_model,
    fold_batch_norm2d_into_conv2d,
    make_parameter_dict,
    preprocess_embedding_weight,
    preprocess_layernorm_parameter,
    preprocess_linear_bias,
    preprocess_linear_weight,
    preprocess_model_parameters,
)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.dense = torch.nn.Linear(64, 32)
        self.act = torch.nn.GELU()


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 64)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.head = torch.nn.Sequential(torch.nn.GroupNorm(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2, bias=False))
        self.temperature = torch.nn.Parameter(torch.tensor([0.5, 0.25]))


@pytest.fixture
def mesh():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        yield mesh


def parameters_of(model: torch.nn.Module, **options):
    return preprocess_model_parameters(initialize_model=lambda: model, **options)


def bfloat16(values: torch.Tensor) -> torch.Tensor:
    return values.detach().to(torch.bfloat16)


# -- what each kind of module becomes --------------------------------------------------------------


def test_linear_is_transposed_in_bfloat16_tiles_and_its_bias_is_a_row():
    linear = torch.nn.Linear(64, 32)
    parameters = parameters_of(linear)
    assert torch.equal(ttnn.to_torch(parameters.weight), bfloat16(linear.weight).T)
    assert torch.equal(ttnn.to_torch(parameters.bias), bfloat16(linear.bias).reshape(1, 32))
    assert {parameters.weight.layout, parameters.bias.layout} == {ttnn.TILE_LAYOUT}


def test_linear_without_bias_has_none():
    assert list(parameters_of(torch.nn.Linear(4, 4, bias=False))) == ["weight"]


def test_embedding_keeps_its_rows_in_row_major_bfloat16():
    embedding = torch.nn.Embedding(10, 64)
    weight = parameters_of(embedding).weight
    assert weight.layout is ttnn.ROW_MAJOR_LAYOUT
    assert torch.equal(ttnn.to_torch(weight), bfloat16(embedding.weight))


@pytest.mark.parametrize("norm", [torch.nn.LayerNorm(64), torch.nn.GroupNorm(4, 64)], ids=["layer", "group"])
def test_norms_become_rows_of_bfloat16_tiles(norm):
    torch.nn.init.normal_(norm.weight)
    parameters = parameters_of(norm)
    for name in ("weight", "bias"):
        assert parameters[name].layout is ttnn.TILE_LAYOUT
        assert torch.equal(ttnn.to_torch(parameters[name]), bfloat16(getattr(norm, name)).reshape(1, 64))


def test_a_norm_without_parameters_has_none():
    assert parameters_of(torch.nn.LayerNorm(64, elementwise_affine=False)) == {}


def test_parameters_of_other_modules_keep_their_dtype_and_shape():
    convolution = torch.nn.Conv2d(2, 3, 3)
    weight = parameters_of(convolution).weight
    assert (weight.dtype, weight.layout) == (ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)
    assert torch.equal(ttnn.to_torch(weight), convolution.weight.detach())


@pytest.mark.parametrize(
    ("convert", "shape"),
    [
        (preprocess_linear_weight, [32, 64]),
        (preprocess_embedding_weight, [64, 32]),
        (preprocess_linear_bias, [1, 2048]),
        (preprocess_layernorm_parameter, [1, 2048]),
    ],
)
def test_the_helpers_take_a_dtype(convert, shape):
    values = torch.randn(64, 32)
    made = convert(values, dtype=ttnn.float32)
    assert made.dtype is ttnn.float32
    assert list(made.shape) == shape


def test_the_linear_helpers_take_a_layout_and_a_mapper(mesh):
    weight = preprocess_linear_weight(
        torch.randn(32, 64),
        dtype=ttnn.bfloat16,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        weights_mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=-1),
    )
    assert weight.layout is ttnn.ROW_MAJOR_LAYOUT
    assert list(weight.shape) == [64, 8]


# -- nesting -------------------------------------------------------------------------------------


def test_nested_modules_are_found_by_attribute_name_and_index():
    model = Network()
    parameters = parameters_of(model)
    weight = parameters.blocks[1].dense.weight
    assert weight is parameters["blocks"]["1"]["dense"]["weight"]
    assert torch.equal(ttnn.to_torch(weight), bfloat16(model.blocks[1].dense.weight).T)
    assert isinstance(parameters.blocks, ParameterList)
    assert isinstance(parameters.head, ParameterList)
    assert list(parameters.head[2].weight.shape) == [32, 2]
    assert ttnn.to_torch(parameters.temperature).tolist() == [0.5, 0.25]


def test_modules_without_parameters_are_left_out_but_keep_their_place_in_a_list():
    parameters = parameters_of(Network())
    assert "act" not in parameters.blocks[0]
    assert parameters.head[1] == {}
    assert 2 in parameters.head
    assert 3 not in parameters.head


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match=r"'dens'.*norm, dense.*Did you mean 'dense'"):
        _ = parameters_of(Block()).dens


def test_parameters_print_as_a_table():
    assert repr(parameters_of(torch.nn.Sequential(Block()))) == (
        "ParameterList(\n"
        "  [0].norm.weight: ttnn.Tensor Shape([1, 64]) DataType.BFLOAT16 Layout.TILE\n"
        "  [0].norm.bias: ttnn.Tensor Shape([1, 64]) DataType.BFLOAT16 Layout.TILE\n"
        "  [0].dense.weight: ttnn.Tensor Shape([64, 32]) DataType.BFLOAT16 Layout.TILE\n"
        "  [0].dense.bias: ttnn.Tensor Shape([1, 32]) DataType.BFLOAT16 Layout.TILE\n"
        ")"
    )


def test_make_parameter_dict_reaches_all_the_way_down():
    parameters = make_parameter_dict({"layers": [{"scale": 1}, {"scale": 2}], "head": {"bias": 3}})
    assert parameters.layers[1].scale == 2
    assert parameters.head.bias == 3


def test_a_parameter_dict_can_be_changed_and_copied():
    parameters = make_parameter_dict({"head": {"bias": 3}})
    parameters.head.weight = 4
    copied = copy.deepcopy(parameters)
    del parameters.head.bias
    assert isinstance(copied.head, ParameterDict)
    assert (parameters, copied) == ({"head": {"weight": 4}}, {"head": {"bias": 3, "weight": 4}})


# -- who decides ---------------------------------------------------------------------------------


def test_convert_to_ttnn_is_asked_about_every_module_by_its_full_name():
    asked = []

    def convert(module: torch.nn.Module, name: str) -> bool:
        asked.append((type(module).__name__, name))
        return True

    parameters_of(torch.nn.Sequential(Block()), convert_to_ttnn=convert, prefix="model")
    assert asked == [
        ("Sequential", "model"),
        ("Block", "model.0"),
        ("LayerNorm", "model.0.norm"),
        ("Linear", "model.0.dense"),
        ("GELU", "model.0.act"),
    ]


def test_modules_that_are_not_converted_stay_torch(mesh):
    model = Block()
    parameters = parameters_of(model, convert_to_ttnn=lambda module, name: name != "dense", device=mesh)
    assert parameters.dense.weight is model.dense.weight
    assert isinstance(parameters.norm.weight, ttnn.Tensor)


def test_a_custom_preprocessor_stands_for_the_module_it_answers_for():
    def custom(module: torch.nn.Module, name: str) -> dict:
        return {"fused": {"scale": 7}} if name == "blocks.1" else {}

    parameters = parameters_of(Network(), custom_preprocessor=custom)
    assert parameters.blocks[1].fused.scale == 7
    assert list(parameters.blocks[1]) == ["fused"]
    assert isinstance(parameters.blocks[0].dense.weight, ttnn.Tensor)


def test_a_custom_preprocessor_gets_the_further_arguments_it_names():
    seen = []

    def custom(model, name, ttnn_module_args, convert_to_ttnn):
        seen.append((name, ttnn_module_args, convert_to_ttnn(model, name)))

    parameters_of(torch.nn.Linear(2, 2), custom_preprocessor=custom, convert_to_ttnn=lambda model, name: False)
    assert seen == [("", None, False)]


def test_tensors_of_a_custom_preprocessor_go_to_the_device_too(mesh):
    def custom(module, name):
        return {"weight": preprocess_linear_weight(module.weight, dtype=ttnn.float32)}

    weight = parameters_of(torch.nn.Linear(8, 8), custom_preprocessor=custom, device=mesh).weight
    assert weight.device() is mesh
    assert weight.dtype is ttnn.float32


def test_a_custom_preprocessor_that_returns_a_tensor_is_told_to_return_a_dict():
    with pytest.raises(ArgumentError, match=r"must return a dict.*got Tensor for 'the model'"):
        parameters_of(torch.nn.Linear(2, 2), custom_preprocessor=lambda model, name: torch.ones(2, 2))


@pytest.mark.parametrize("initialize", [None, lambda: "a model"])
def test_initialize_model_must_make_a_module(initialize):
    with pytest.raises(ArgumentError, match="initialize_model must be a function that returns a torch"):
        preprocess_model_parameters(initialize_model=initialize)


# -- where it goes -------------------------------------------------------------------------------


def test_without_a_device_parameters_stay_on_the_host():
    assert parameters_of(torch.nn.Linear(4, 4)).weight.storage_type() is ttnn.StorageType.HOST


def test_a_device_gets_every_parameter(mesh):
    parameters = parameters_of(Network(), device=mesh)
    assert parameters.embedding.weight.device() is mesh
    assert parameters.blocks[0].norm.bias.device() is mesh
    assert ttnn.placements(parameters.blocks[0].dense.weight) == (ttnn.Replicate(), ttnn.Replicate())


def test_distribute_decides_how_parameters_are_spread(mesh):
    linear = torch.nn.Linear(64, 32)
    with ttnn.distribute(ttnn.ShardTensorToMesh(mesh, dim=-1)):
        parameters = parameters_of(linear, device=mesh)
    assert list(parameters.weight.shape) == [64, 8]
    assert list(parameters.bias.shape) == [1, 8]
    whole = ttnn.to_torch(parameters.weight, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=-1))
    assert torch.equal(whole, bfloat16(linear.weight).T)


def test_a_mapper_given_to_a_helper_wins_over_distribute(mesh):
    with ttnn.distribute(ttnn.ShardTensorToMesh(mesh, dim=0)):
        weight = preprocess_linear_weight(
            torch.randn(32, 64), dtype=ttnn.bfloat16, weights_mesh_mapper=ttnn.ReplicateTensorToMesh(mesh)
        )
    assert list(weight.shape) == [64, 32]


def test_converted_parameters_do_not_share_memory_with_the_model():
    linear = torch.nn.Linear(4, 4)
    weight = convert_torch_model_to_ttnn_model(
        linear, custom_preprocessor=lambda m, n: {"bias": preprocess_linear_bias(m.bias, dtype=ttnn.float32)}
    ).bias
    before = ttnn.to_torch(weight)
    with torch.no_grad():
        linear.bias.fill_(9.0)
    assert torch.equal(ttnn.to_torch(weight), before)


# -- folding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_a_folded_convolution_does_what_both_did(bias, affine):
    convolution, norm = torch.nn.Conv2d(3, 8, 3, bias=bias), torch.nn.BatchNorm2d(8, affine=affine)
    norm(torch.randn(4, 8, 5, 5) * 3 + 1)  # gives it statistics
    if affine:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    norm.eval()
    x = torch.randn(2, 3, 8, 8)
    weight, folded_bias = fold_batch_norm2d_into_conv2d(convolution, norm)
    assert folded_bias.shape == (1, 1, 1, 8)
    folded = torch.nn.functional.conv2d(x, weight, folded_bias.flatten())
    torch.testing.assert_close(folded, norm(convolution(x)), rtol=1e-4, atol=1e-5)


def test_a_batch_norm_without_statistics_cannot_be_folded():
    with pytest.raises(RuntimeError, match="track_running_stats=True"):
        fold_batch_norm2d_into_conv2d(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2, track_running_stats=False))


def test_arguments_of_modules_tell_how_a_port_computes_them():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.MaxPool2d(2), torch.nn.GroupNorm(2, 8))
    args = ttnn.model_preprocessing.infer_ttnn_module_args(
        model=model, run_model=lambda one: one(torch.rand(1, 3, 10, 10)), device=None
    )
    conv, pool, norm = (args[at] for at in range(3))
    assert (conv.math_fidelity, conv.dtype, conv.weights_dtype) == (
        ttnn.MathFidelity.HiFi4,
        ttnn.bfloat16,
        ttnn.bfloat16,
    )
    assert (conv.use_1d_systolic_array, conv.enable_auto_formatting) == (True, False)
    assert conv.conv_blocking_and_parallelization_config_override == {}
    assert pool.dtype is norm.dtype is ttnn.bfloat16
    conv.conv_blocking_and_parallelization_config_override["act_block_h"] = 32
    again = ttnn.model_preprocessing.infer_ttnn_module_args(
        model=model, run_model=lambda one: one(torch.rand(1, 3, 10, 10)), device=None
    )
    assert again[0].conv_blocking_and_parallelization_config_override == {}
