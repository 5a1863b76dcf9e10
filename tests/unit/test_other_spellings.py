"""Ops of several forms take the names that each of them has in TT-NN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import softmesh as ttnn

INTS = torch.arange(32, dtype=torch.int32).reshape(4, 8)
FLOATS = INTS.float() / 4 - 3


@pytest.fixture(scope="module")
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as device:
        yield device


def put(values: torch.Tensor, mesh: ttnn.MeshDevice, **options: Any) -> ttnn.Tensor:
    made = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, **options)
    assert made is not None
    return made


def bounds(mesh: ttnn.MeshDevice, *values: int, **options: Any) -> ttnn.Tensor:
    made = ttnn.from_torch(torch.tensor(values, dtype=torch.int32), device=mesh, **options)
    assert made is not None
    return made


SECOND: dict[str, tuple[str, torch.Tensor, Callable[[torch.Tensor, Any], torch.Tensor]]] = {
    "bitwise_and": ("input_b", INTS, torch.bitwise_and),
    "bitwise_left_shift": ("input_b", INTS, torch.bitwise_left_shift),
    "bitwise_or": ("input_b", INTS, torch.bitwise_or),
    "bitwise_right_shift": ("input_b", INTS, torch.bitwise_right_shift),
    "bitwise_xor": ("input_b", INTS, torch.bitwise_xor),
    "div": ("value", FLOATS, torch.div),
    "floor_div": ("value", FLOATS, torch.floor_divide),
    "fmod": ("scalar", FLOATS, torch.fmod),
    "logical_left_shift": ("input_b", INTS, torch.bitwise_left_shift),
    "maximum": ("input_b", FLOATS, lambda x, n: x.clamp(min=n)),
    "minimum": ("input_b", FLOATS, lambda x, n: x.clamp(max=n)),
    "rsub": ("input_b", FLOATS, lambda x, n: n - x),
}


@pytest.mark.parametrize("op", sorted(SECOND))
def test_a_number_beside_a_tensor_goes_by_its_own_name(op: str, mesh: ttnn.MeshDevice) -> None:
    name, values, expected = SECOND[op]
    x, number = put(values, mesh), 2 if values is INTS else 2.0
    for _ in range(2):  # the second call is one like an earlier one
        made = getattr(ttnn, op)(x, **{name: number})
        assert torch.equal(ttnn.compose(made), expected(values, number))
    assert torch.equal(ttnn.compose(getattr(ttnn.distributed, op)(x, **{name: number})), expected(values, number))


def test_two_names_of_one_argument_are_refused(mesh: ttnn.MeshDevice) -> None:
    x = put(FLOATS, mesh)
    with pytest.raises(TypeError, match="given under two names among input_b, input_tensor_b"):
        ttnn.maximum(x, input_b=1.0, input_tensor_b=2.0)
    with pytest.raises(TypeError, match="'input_b' is given twice"):
        ttnn.maximum(x, 1.0, input_b=2.0)
    with pytest.raises(TypeError, match="Did you mean 'input_b'"):
        ttnn.maximum(x, inputb=2.0)


def test_slices_are_named_in_all_of_their_forms(mesh: ttnn.MeshDevice) -> None:
    x, expected = put(FLOATS, mesh), FLOATS[1:4:2, 2:6]
    assert torch.equal(ttnn.compose(ttnn.slice(x, starts=[1, 2], ends=[4, 6], steps=[2, 1])), expected)
    low, high = bounds(mesh, 1, 2), bounds(mesh, 4, 6)
    assert torch.equal(ttnn.compose(ttnn.slice(x, low, high, [2, 1])), expected)
    assert torch.equal(ttnn.compose(ttnn.slice(x, starts=low, ends=high, slice_step=[2, 1])), expected)


def test_each_device_cuts_the_part_that_its_own_bounds_name(mesh: ttnn.MeshDevice) -> None:
    by_column = ttnn.ShardTensor2dMesh(mesh, (2, 4), (None, 0))
    low = bounds(mesh, *(n for i in range(4) for n in (0, 2 * i)), mesh_mapper=by_column)
    high = bounds(mesh, *(n for i in range(4) for n in (4, 2 * i + 2)), mesh_mapper=by_column)
    x = put(FLOATS, mesh)
    made = ttnn.slice(x, low, high, slice_dim=1, num_devices=4)
    for at, piece in enumerate(ttnn.get_device_tensors(made)):
        column = 2 * (at % 4)
        assert torch.equal(ttnn.to_torch(piece), FLOATS[:, column : column + 2])
    with pytest.raises(RuntimeError, match="differs from device to device"):
        ttnn.slice(x, low, high)
    with pytest.raises(RuntimeError, match="are not parts of 4, as 2 devices that share 8"):
        ttnn.slice(x, low, high, slice_dim=1, num_devices=2)
    with pytest.raises(TypeError, match="go with bounds that are tensors"):
        ttnn.slice(x, [0, 0], [4, 2], slice_dim=1, num_devices=4)
    with pytest.raises(TypeError, match=r"slice_end must be a ttnn\.Tensor"):
        ttnn.slice(x, low, [4, 2])


def test_products_over_several_dims_go_into_a_tensor(mesh: ttnn.MeshDevice) -> None:
    values = torch.rand(2, 3, 4) + 0.5
    out = put(torch.zeros(2, 1, 1), mesh)
    assert ttnn.prod(put(values, mesh), out, dims=[1, 2]) is out
    torch.testing.assert_close(ttnn.compose(out), values.prod(2, True).prod(1, True))


def test_copies_and_casts_name_both_ends(mesh: ttnn.MeshDevice) -> None:
    x, out = put(FLOATS, mesh), put(torch.zeros_like(FLOATS), mesh)
    assert ttnn.assign(input_a=x, input_b=out) is out
    assert torch.equal(ttnn.compose(out), FLOATS)
    to = {"input_dtype": ttnn.float32, "output_dtype": ttnn.bfloat16}
    casts = [
        ttnn.typecast(x, **to),
        ttnn.typecast(x, ttnn.float32, ttnn.bfloat16),
        ttnn.experimental.quasar.typecast(x, **to),
        ttnn.experimental.quasar.typecast(x, ttnn.float32, ttnn.bfloat16, ttnn.L1_MEMORY_CONFIG),
        ttnn.experimental.quasar.typecast(x, ttnn.bfloat16, ttnn.DRAM_MEMORY_CONFIG),
    ]
    assert all(made.dtype is ttnn.bfloat16 for made in casts)
    with pytest.raises(RuntimeError, match=r"input_dtype=DataType\.UINT16 but the tensor is"):
        ttnn.experimental.quasar.typecast(x, ttnn.uint16, ttnn.bfloat16)
    assert list(ttnn.reshape(x, logical_shape=[8, 4], padded_shape=[32, 32]).shape) == [8, 4]
    assert list(ttnn.experimental.view(x, N=1, C=1, H=4, W=8).shape) == [1, 1, 4, 8]


def test_powers_take_activations(mesh: ttnn.MeshDevice) -> None:
    made = ttnn.pow(put(FLOATS, mesh), 3.0, activations=[ttnn.UnaryOpType.RELU])
    torch.testing.assert_close(ttnn.compose(made), FLOATS.pow(3).relu())
