"""What TT-NN's device operations of matmul and slice tell before they run, and modules' arguments from one run."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh.model_preprocessing import Conv2dArgs, MaxPool2dArgs, infer_ttnn_module_args, preprocess_model


def inputs_of(*tensors: ttnn.Tensor) -> ttnn.MatmulInputs:
    inputs = ttnn.MatmulInputs()
    inputs.input_tensors = list(tensors)
    return inputs


@pytest.fixture
def factors(device: ttnn.MeshDevice) -> tuple[ttnn.Tensor, ttnn.Tensor]:
    on_device = {"layout": ttnn.TILE_LAYOUT, "device": device}
    return ttnn.from_torch(torch.rand(2, 32, 64), **on_device), ttnn.from_torch(torch.rand(1, 96, 64), **on_device)


def test_attributes_are_filled_in_from_the_factors(factors: tuple[ttnn.Tensor, ttnn.Tensor]):
    a, b = factors
    params = ttnn.MatmulParams()
    params.transpose_b = True
    filled = ttnn.create_matmul_attributes(a, b, params, [None])
    assert (filled.output_dtype, filled.bcast_batch, filled.transpose_b) == (ttnn.float32, True, True)
    assert params.output_dtype is None, "what was given stays as it was"
    with pytest.raises(TypeError, match="parameters must be"):
        ttnn.create_matmul_attributes(a, b, None, [])


def test_the_output_of_a_product_is_known_before_it_runs(factors: tuple[ttnn.Tensor, ttnn.Tensor]):
    operation, params = ttnn.MatmulDeviceOperation, ttnn.MatmulParams()
    params.transpose_b = True
    params.output_mem_config = ttnn.L1_MEMORY_CONFIG
    (spec,) = operation.compute_output_specs(params, inputs_of(*factors))
    (product,) = operation.invoke(*factors, attributes=params)
    assert spec == product.spec
    (made,) = operation.create_output_tensors(params, inputs_of(*factors))
    assert made.spec == spec
    expected = ttnn.to_torch(factors[0]) @ ttnn.to_torch(factors[1]).mT
    torch.testing.assert_close(ttnn.to_torch(product), expected)
    params.transpose_b = False
    with pytest.raises(ttnn.MeshError, match="have no product"):
        operation.compute_output_specs(params, inputs_of(*factors))
    with pytest.raises(ttnn.MeshError, match="a product has two factors"):
        operation.compute_output_specs(params, inputs_of(factors[0]))


def test_calls_that_share_a_program_have_one_hash(factors: tuple[ttnn.Tensor, ttnn.Tensor]):
    operation, params = ttnn.MatmulDeviceOperation, ttnn.MatmulParams()
    first = operation.compute_program_hash(params, inputs_of(*factors))
    assert operation.compute_program_hash(params, inputs_of(*factors)) == first
    params.untilize_out = True
    assert operation.compute_program_hash(params, inputs_of(*factors)) != first


def test_the_factory_follows_the_program_config(factors: tuple[ttnn.Tensor, ttnn.Tensor]):
    params = ttnn.MatmulParams()
    named = lambda: type(ttnn.matmul_select_program_factory(params, inputs_of(*factors))).__name__  # noqa: E731
    assert named() == "MatmulMultiCoreProgramFactory"
    params.program_config = ttnn.MatmulMultiCoreReuseProgramConfig(
        compute_with_storage_grid_size=(8, 8),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=1,
    )
    assert named() == "MatmulMultiCoreReuseOptimizedProgramFactory"


def test_the_output_of_a_slice_is_known_before_it_runs(factors: tuple[ttnn.Tensor, ttnn.Tensor]):
    params, inputs = ttnn.SliceParams(), ttnn.SliceInputs(factors[0])
    params.slice_start, params.slice_end = ttnn.Shape([0, 0, 32]), ttnn.Shape([2, 32, 64])
    params.step = ttnn.Shape([1, 2, 1])
    spec = ttnn.SliceDeviceOperation.compute_output_specs(params, inputs)
    assert spec == ttnn.slice(factors[0], [0, 0, 32], [2, 32, 64], [1, 2, 1]).spec
    assert ttnn.SliceDeviceOperation.create_output_tensors(params, inputs).spec == spec
    inputs.preallocated_output = factors[1]
    assert ttnn.SliceDeviceOperation.create_output_tensors(params, inputs) is factors[1]
    params.slice_end = ttnn.Shape([2])
    with pytest.raises(ttnn.MeshError, match="an entry for each dim"):
        ttnn.SliceDeviceOperation.compute_output_specs(params, inputs)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.MaxPool2d(2))
        self.norm = torch.nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.stem(x))


def test_one_run_tells_how_the_modules_of_a_model_are_called():
    args = infer_ttnn_module_args(model=Net(), run_model=lambda model: model(torch.rand(2, 3, 17, 17)), device=None)
    convolution, pooling = args.stem[0], args.stem["1"]
    assert isinstance(convolution, Conv2dArgs)
    assert isinstance(pooling, MaxPool2dArgs)
    assert (convolution.in_channels, convolution.stride, convolution.batch_size) == (3, (2, 2), 2)
    assert (pooling.input_height, pooling.channels, pooling.kernel_size) == (8, 8, (2, 2))
    assert (args.norm.num_groups, args.norm.input_width) == (2, 4)
    with pytest.raises(AttributeError, match="Did you mean 'stride'"):
        convolution.strides
    assert not any(module._forward_pre_hooks for module in Net().modules())


def test_a_model_and_a_function_are_needed():
    with pytest.raises(TypeError, match="run_model a function that calls it"):
        infer_ttnn_module_args(model=Net(), run_model=None, device=None)


def test_parameters_of_a_model_come_with_the_arguments_of_their_modules():
    parameters = preprocess_model(
        initialize_model=Net, run_model=lambda model: model(torch.rand(1, 3, 17, 17)), device=None
    )
    assert list(parameters.stem[0].weight.shape) == [8, 3, 3, 3]
    assert parameters.stem[0].kernel_size == (3, 3)
    assert parameters.stem[1].input_height == 8
    assert parameters.norm.num_groups == 2
