"""Element-wise ops at the ends of their domains, of whole numbers, and beside their golden functions; padding kept."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import softmesh as ttnn


def put(x: torch.Tensor, device: ttnn.MeshDevice, dtype: Any = None, layout: Any = ttnn.TILE_LAYOUT) -> Any:
    return ttnn.from_torch(x, dtype, layout=layout, device=device)


@pytest.mark.parametrize("variant", list(ttnn.GeluVariant))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_gelu_of_infinities_is_infinite_or_zero(variant: Any, dtype: torch.dtype, device: ttnn.MeshDevice) -> None:
    x = torch.tensor([[math.inf, -math.inf, math.nan, 1.0]], dtype=dtype)
    found = ttnn.to_torch(ttnn.gelu(put(x, device), variant=variant)).flatten()
    assert found[0] == math.inf
    assert found[1] == 0
    assert found[2].isnan()


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "gelu"])
def test_slopes_are_exact_where_they_are_nearly_zero(name: str, device: ttnn.MeshDevice) -> None:
    x = torch.tensor([[-10.0, -8.0, -6.0, -3.0, 0.5, 3.0, 6.0, 10.0]])
    tail = torch.special.erfc(-x.double() / math.sqrt(2)) / 2
    slopes = {
        "tanh": 1 / torch.cosh(x.double()) ** 2,
        "sigmoid": 1 / (2 + 2 * torch.cosh(x.double())),
        "gelu": tail + x * torch.exp(-(x.double() ** 2) / 2) / math.sqrt(2 * math.pi),
    }
    (found,) = getattr(ttnn, f"{name}_bw")(put(torch.ones_like(x), device), put(x, device))
    torch.testing.assert_close(ttnn.to_torch(found).double(), slopes[name], rtol=1e-5, atol=0)


def test_tanhshrink_near_zero_and_cosh_near_its_end(device: ttnn.MeshDevice) -> None:
    x = torch.tensor([[1e-6, 1e-4, 9e-4, 2e-3, 0.5]])
    found = ttnn.to_torch(ttnn.tanhshrink(put(x, device))).double()
    torch.testing.assert_close(found, x.double() ** 3 / 3 * (1 - 0.4 * x.double() ** 2), rtol=2e-2, atol=0)
    assert ttnn.to_torch(ttnn.cosh(put(torch.full((1, 2), 89.0), device))).isfinite().all()


@pytest.mark.parametrize("name", ["mac", "addcmul", "addcdiv", "celu", "gelu", "softsign", "xielu"])
def test_golden_functions_of_bfloat16_round_once_as_ops_do(name: str, device: ttnn.MeshDevice) -> None:
    count = 3 if name in ("mac", "addcmul", "addcdiv") else 1
    parts = [(torch.rand(32, 32, generator=torch.Generator().manual_seed(i)) * 200 - 100).bfloat16() for i in range(3)]
    op = getattr(ttnn, name)
    expected = ttnn.get_golden_function(op)(*parts[:count])
    found = ttnn.to_torch(op(*(put(part, device) for part in parts[:count])))
    assert expected.dtype is torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-30)


def test_whole_numbers_stay_exact(device: ttnn.MeshDevice) -> None:
    big = torch.tensor([[2**32 - 1, 2**31, 5, 0]])
    x = put(big, device, ttnn.uint32)
    assert ttnn.to_torch(ttnn.relu_max(x, 7)).flatten().tolist() == [7, 7, 5, 0]
    assert ttnn.to_torch(ttnn.relu_min(x, 6)).long().flatten().tolist() == [2**32 - 1, 2**31, 6, 6]
    assert ttnn.to_torch(ttnn.leaky_relu(x, 0.1)).long().flatten().tolist() == big.flatten().tolist()
    made = ttnn.to_torch(ttnn.addcmul(x, x, x, value=-6.0)).long()
    assert torch.equal(made, (big - 6 * big * big) % 2**32)
    shifted = ttnn.to_torch(ttnn.bitwise_right_shift(x, 4)).long()  # as the bits of int32
    assert shifted.flatten().tolist() == [2**32 - 1, 0xF8000000, 0, 0]
    limit = [ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU_MAX, 2**31 - 2)]
    left = ttnn.to_torch(ttnn.remainder(x, 2**31 - 1, activations=limit)).long()
    assert left.flatten().tolist() == [1, 1, 5, 0]


def test_floats_are_cast_to_uint16_by_the_nearest_half_up(device: ttnn.MeshDevice) -> None:
    x = torch.tensor([[0.5, 1.5, 2.5, 3.3, -1.0, 70000.0]])
    found = ttnn.to_torch(ttnn.typecast(put(x, device), ttnn.uint16))
    assert found.flatten().tolist() == [1, 2, 3, 3, 0, 65535]
    small = put(torch.tensor([[0, 7, 255]], dtype=torch.uint8), device, ttnn.uint8)
    assert ttnn.to_torch(ttnn.typecast(small, ttnn.uint16)).flatten().tolist() == [0, 7, 255]


def test_where_has_the_dtype_of_what_it_chooses(device: ttnn.MeshDevice) -> None:
    chosen = torch.tensor([[1, 0, -3]], dtype=torch.int32)
    predicate = put(chosen, device, ttnn.int32)
    yes = torch.randn(1, 3)
    found = ttnn.where(predicate, put(yes, device), put(-yes, device))
    assert found.dtype is ttnn.float32
    assert torch.equal(ttnn.to_torch(found), torch.where(chosen != 0, yes, -yes))
    numbers = ttnn.to_torch(ttnn.where(predicate, 0.5, -11.33))
    assert torch.equal(numbers, torch.where(chosen != 0, 0.5, -11.33))
    whole = ttnn.where(predicate, 3, 4)
    assert whole.dtype is ttnn.int32


def test_bounds_cores_and_operands_that_contradict_are_refused(device: ttnn.MeshDevice) -> None:
    x = put(torch.ones(32, 32), device)
    with pytest.raises(RuntimeError, match=r"Only one of 'min' or 'max' can be None\. Please provide one value"):
        ttnn.clamp(x, None, None)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 1))])
    with pytest.raises(RuntimeError, match="Cannot specify both"):
        ttnn.add(x, x, sub_core_grids=cores, sub_device_id=ttnn.SubDeviceId(0))
    row, long = put(torch.ones(32), device), put(torch.ones(64), device)
    for operands, said in (
        ((x, row, long), "alpha.shape == beta.shape"),
        ((x, long, long), "input.W == alpha.W"),
        ((row, row, row), "input rank >= 2"),
    ):
        with pytest.raises(RuntimeError, match=said):
            ttnn.snake_beta(*operands)


def test_numbers_of_ternary_ops_are_handed_to_one_program(device: ttnn.MeshDevice) -> None:
    x = put(torch.rand(32, 32), device)
    device.clear_program_cache()
    first, second = (ttnn.to_torch(ttnn.addcmul(x, x, x, value=value)) for value in (2.0, 7.0))
    assert device.num_program_cache_entries() == 1
    assert not torch.equal(first, second)


# -- padding, and where results lie ----------------------------------------------------------------


@pytest.mark.parametrize("value", [1.5, math.inf])
def test_padding_holds_what_it_was_filled_with_wherever_it_is_moved(value: float, device: ttnn.MeshDevice) -> None:
    filled = ttnn.fill_implicit_tile_padding(put(torch.ones(1, 16), device), value)
    for moved in (filled, ttnn.clone(filled), ttnn.to_memory_config(filled, ttnn.L1_MEMORY_CONFIG)):
        whole = ttnn.from_device(moved).to_torch_with_padded_shape()
        assert whole.shape == (32, 32)
        assert whole[0, 15] == 1
        assert whole[0, 16] == whole[1, 0] == value
    full = put(torch.ones(32, 32), device)
    assert ttnn.fill_implicit_tile_padding(full, value) is full


def test_tiles_may_be_padded_beyond_what_they_take(device: ttnn.MeshDevice) -> None:
    rows = put(torch.ones(2, 3), device, layout=ttnn.ROW_MAJOR_LAYOUT)
    made = ttnn.tilize_with_val_padding(rows, [64, 32], 2.0)
    assert (list(made.shape), list(made.padded_shape)) == ([2, 3], [64, 32])
    assert ttnn.from_device(made).to_torch_with_padded_shape()[63, 31] == 2
    with pytest.raises(RuntimeError, match="must be divisible by tile size"):
        ttnn.tilize_with_val_padding(rows, [33, 32], 2.0)


def test_moved_tensors_may_lie_where_they_lay(device: ttnn.MeshDevice) -> None:
    x = ttnn.to_device(ttnn.from_torch(torch.rand(64, 64)), device, memory_config=ttnn.L1_MEMORY_CONFIG)
    address, values = x.buffer_address(), ttnn.to_torch(x)
    moved = ttnn.reallocate(x)
    assert moved.buffer_address() >= address
    assert not x.is_allocated()
    assert torch.equal(ttnn.to_torch(moved), values)


def test_shards_in_n_dims_and_tall_tensors_on_some_cores_are_refused(device: ttnn.MeshDevice) -> None:
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 0))])
    config = ttnn.MemoryConfig(ttnn.BufferType.L1, ttnn.NdShardSpec([3, 32, 32], cores))
    with pytest.raises(RuntimeError, match="to_memory_config"):
        ttnn.interleaved_to_sharded(put(torch.ones(6, 32, 64), device), config)
    with pytest.raises(RuntimeError, match="sub_core_grid untilize only supports"):
        ttnn.untilize(put(torch.ones(96, 64), device), sub_core_grids=cores)


def test_pads_on_some_cores_and_fills_along_no_dim_are_refused(device: ttnn.MeshDevice) -> None:
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 0))])
    x = put(torch.ones(1, 1, 128, 32), device)
    with pytest.raises(RuntimeError, match="use_multicore=True"):
        ttnn.pad(x, [(0, 0), (0, 0), (0, 32), (0, 0)], 0, use_multicore=False, sub_core_grids=cores)
    shards = ttnn.create_sharded_memory_config(
        [1, 1, 128, 32], core_grid=ttnn.CoreGrid(x=1, y=4), strategy=ttnn.ShardStrategy.HEIGHT
    )
    with pytest.raises(RuntimeError, match="interleaved inputs"):
        ttnn.pad(ttnn.to_memory_config(x, shards), [(0, 0), (0, 0), (0, 32), (0, 0)], 0, sub_core_grids=cores)
    ids = put(torch.zeros(1, 1, 1, 1, dtype=torch.int32), device, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
    with pytest.raises(RuntimeError, match="is out of bounds for rank"):
        ttnn.indexed_fill(ids, x, x, dim=4)


def test_slices_by_device_take_every_nth(device: ttnn.MeshDevice) -> None:
    x = torch.arange(64.0).reshape(8, 8)
    bounds = [put(torch.tensor(b, dtype=torch.int32), device, layout=ttnn.ROW_MAJOR_LAYOUT) for b in ([4, 0], [8, 8])]
    found = ttnn.slice(put(x, device), *bounds, [2, 4], slice_dim=0, num_devices=2)
    assert torch.equal(ttnn.to_torch(found), x[4:8:2, ::4])


def test_a_device_that_sends_to_itself_in_place_launches_nothing(device: ttnn.MeshDevice) -> None:
    x, here = put(torch.rand(32, 32), device), ttnn.MeshCoordinate(0, 0)
    before = device.num_program_cache_entries()
    assert ttnn.point_to_point(x, here, here, topology=ttnn.Topology.Linear, output_tensor=x) is x
    assert device.num_program_cache_entries() == before
    other = put(torch.zeros(32, 32), device)
    made = ttnn.point_to_point(x, here, here, topology=ttnn.Topology.Linear, output_tensor=other)
    assert torch.equal(ttnn.to_torch(made), ttnn.to_torch(x))
    assert device.num_program_cache_entries() == before + 1
