"""Each op computes what torch computes, in the dtype's precision, on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import softmesh as ttnn
from softmesh.ops.elementwise.binary import BINARY
from softmesh.ops.elementwise.unary import UNARY


@pytest.fixture(scope="module")
def device() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh


def put(values: torch.Tensor, device: ttnn.MeshDevice, dtype: Any = None, layout: Any = ttnn.TILE_LAYOUT) -> Any:
    return ttnn.from_torch(values, dtype=dtype, layout=layout, device=device)


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape))) * 4 - 2


# name -> the function written out in float64, where it is not torch's function of the same name
UNARY_REFERENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cbrt": lambda x: x.sign() * x.abs().pow(1 / 3),
    "eqz": lambda x: (x == 0).double(),
    "nez": lambda x: (x != 0).double(),
    "gez": lambda x: (x >= 0).double(),
    "gtz": lambda x: (x > 0).double(),
    "lez": lambda x: (x <= 0).double(),
    "ltz": lambda x: (x < 0).double(),
    "hardmish": lambda x: x * (x + 2.8).clamp(0, 5) / 5,
    "hardsigmoid": lambda x: (x / 6 + 0.5).clamp(0, 1),
    "hardswish": lambda x: x * (x / 6 + 0.5).clamp(0, 1),
    "i0": torch.i0,
    "i1": torch.special.i1,
    "identity": lambda x: x,
    "log_sigmoid": lambda x: -torch.log1p(torch.exp(-x)),
    "mish": lambda x: x * torch.tanh(torch.log1p(torch.exp(x))),
    "relu6": lambda x: x.clamp(0, 6),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "swish": lambda x: x / (1 + torch.exp(-x)),
    "softsign": lambda x: x / (1 + x.abs()),
    "tanhshrink": lambda x: x - torch.tanh(x),
}
DOMAIN = {
    "acos": (-1, 1), "asin": (-1, 1), "atanh": (-0.9, 0.9), "erfinv": (-0.9, 0.9), "acosh": (1, 4),
    "log": (0.1, 4), "log2": (0.1, 4), "log10": (0.1, 4), "log1p": (-0.5, 4), "sqrt": (0, 4), "rsqrt": (0.1, 4),
    "digamma": (0.5, 4), "lgamma": (0.5, 4), "reciprocal": (0.5, 4), "tan": (-1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in UNARY if name != "bitwise_not"])
def test_unary_ops_agree_with_float64_and_round_once(name: str, device: ttnn.MeshDevice) -> None:
    low, high = DOMAIN.get(name, (-2, 2))
    x = (rand(33, 40) + 2) / 4 * (high - low) + low
    x[0, 0] = 0 if low <= 0 <= high else x[0, 0]
    reference = UNARY_REFERENCES.get(name) or getattr(torch, name)
    expected = reference(x.double()).double()
    op = getattr(ttnn, name)
    torch.testing.assert_close(ttnn.to_torch(op(put(x, device))).double(), expected, rtol=2e-5, atol=2e-6)
    half = x.bfloat16()
    result = ttnn.to_torch(op(put(half, device)))
    assert result.dtype is torch.bfloat16
    once = reference(half.double()).float().bfloat16()
    # one unit in the last place where fp32 and fp64 fall on two sides of a rounding boundary
    torch.testing.assert_close(result, once, rtol=2**-7, atol=1e-6)
    assert (result == once).float().mean() > 0.98


def test_bitwise_not_flips_the_bits_of_integers(device: ttnn.MeshDevice) -> None:
    x = torch.tensor([[0, 1, -1, 2**30]], dtype=torch.int32)
    assert ttnn.to_torch(ttnn.bitwise_not(put(x, device))).tolist() == [[-1, -2, 0, -(2**30) - 1]]


BINARY_REFERENCES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "subtract": torch.sub,
    "multiply": torch.mul,
    "rsub": lambda a, b: b - a,
    "squared_difference": lambda a, b: (a - b) ** 2,
    "ldexp": lambda a, b: a * 2**b,
    "logical_left_shift": torch.bitwise_left_shift,
    "logical_right_shift": torch.bitwise_right_shift,
}


@pytest.mark.parametrize("name", [name for name, entry in BINARY.items() if not entry.integer])
def test_binary_ops_agree_with_torch_and_broadcast(name: str, device: ttnn.MeshDevice) -> None:
    a, b = rand(2, 5, 40), rand(5, 1)
    reference = BINARY_REFERENCES.get(name) or getattr(torch, name)
    expected = reference(a.double(), b.double()).double()
    result = ttnn.to_torch(getattr(ttnn, name)(put(a, device), put(b, device)))
    torch.testing.assert_close(result.double(), expected, rtol=2e-5, atol=2e-6, equal_nan=True)
    with_number = ttnn.to_torch(getattr(ttnn, name)(put(a, device), 0.75))
    torch.testing.assert_close(
        with_number.double(),
        reference(a.double(), torch.tensor(0.75).double()).double(),
        rtol=2e-5,
        atol=2e-6,
    )


@pytest.mark.parametrize("name", [name for name, entry in BINARY.items() if entry.integer])
def test_integer_ops_agree_with_torch_and_refuse_floats(name: str, device: ttnn.MeshDevice) -> None:
    a = torch.randint(0, 1000, (4, 33), dtype=torch.int32)
    b = torch.randint(1, 8, (4, 33), dtype=torch.int32)
    reference = BINARY_REFERENCES.get(name) or getattr(torch, name)
    assert torch.equal(ttnn.to_torch(getattr(ttnn, name)(put(a, device), put(b, device))), reference(a, b))
    with pytest.raises(RuntimeError, match="not supported for binary operation"):
        getattr(ttnn, name)(put(a.float(), device), put(b, device))


def test_a_logical_right_shift_brings_in_zeros(device: ttnn.MeshDevice) -> None:
    x = torch.tensor([[-1, -(2**31)]], dtype=torch.int32)
    assert ttnn.to_torch(ttnn.logical_right_shift(put(x, device), 28)).tolist() == [[15, 8]]


@pytest.mark.parametrize(
    ("dtype", "torch_dtype", "top"),
    [
        (ttnn.uint16, torch.uint16, 65535),
        (ttnn.uint32, torch.uint32, 2**32 - 1),
    ],
)
def test_unsigned_arithmetic_wraps(dtype: Any, torch_dtype: Any, top: int, device: ttnn.MeshDevice) -> None:
    x = put(torch.tensor([[top, 1]], dtype=torch.int64), device, dtype)
    result = ttnn.to_torch(ttnn.add(x, put(torch.tensor([[2, 2]]), device, dtype)))
    assert result.dtype is torch_dtype
    assert result.to(torch.int64).tolist() == [[1, 3]]


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_div_rounds_the_quotient_as_asked(mode: str | None, device: ttnn.MeshDevice) -> None:
    a, b = rand(3, 40) * 8, rand(3, 40).abs() + 0.5
    expected = torch.div(a, b, rounding_mode=mode)
    torch.testing.assert_close(ttnn.to_torch(ttnn.div(put(a, device), put(b, device), rounding_mode=mode)), expected)
    torch.testing.assert_close(
        ttnn.to_torch(ttnn.rdiv(put(b, device), 3.0, rounding_mode=mode)),
        torch.div(torch.tensor(3.0), b, rounding_mode=mode),
    )
    torch.testing.assert_close(ttnn.to_torch(2.0 / put(b, device)), 2.0 / b)
    torch.testing.assert_close(ttnn.to_torch(2.0 - put(b, device)), 2.0 - b)


def test_fused_activations_apply_before_and_after(device: ttnn.MeshDevice) -> None:
    a, b = rand(4, 40), rand(4, 40)
    result = ttnn.add(
        put(a, device),
        put(b, device),
        activations=[ttnn.UnaryWithParam(ttnn.UnaryOpType.SILU)],
        input_tensor_a_activations=["relu"],
        input_tensor_b_activations=[ttnn.UnaryOpType.NEG],
    )
    torch.testing.assert_close(ttnn.to_torch(result), F.silu(a.relu() - b))


REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin, "std": torch.std, "var": torch.var,
}  # fmt: skip


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, -1, (0, 2), None])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_agree_with_torch(name: str, dim: Any, keepdim: bool, device: ttnn.MeshDevice) -> None:
    x = rand(3, 5, 40)
    dims = (0, 1, 2) if dim is None else dim
    expected = REDUCTIONS[name](x.double(), dims, keepdim=keepdim)
    result = ttnn.to_torch(getattr(ttnn, name)(put(x, device), dim=dim, keepdim=keepdim))
    assert result.shape == expected.shape
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_bfloat16_sum_accumulates_in_fp32(device: ttnn.MeshDevice) -> None:
    ones = torch.ones(1, 4096, dtype=torch.bfloat16)
    assert ttnn.to_torch(ttnn.sum(put(ones, device), dim=1)).item() == 4096  # bf16 additions would stop at 256


def test_prod_argmax_topk_and_cumsum_agree_with_torch(device: ttnn.MeshDevice) -> None:
    x = rand(4, 50)
    torch.testing.assert_close(ttnn.to_torch(ttnn.prod(put(x, device), dim=0)), x.prod(0))
    found = ttnn.argmax(put(x, device), dim=-1)
    assert found.dtype is ttnn.uint32
    assert ttnn.to_torch(found).to(torch.int64).tolist() == x.argmax(-1).tolist()
    assert ttnn.to_torch(ttnn.argmax(put(x, device))).item() == x.argmax()
    values, indices = ttnn.topk(put(x, device), k=5, dim=-1)
    expected = x.topk(5)
    assert indices.dtype is ttnn.uint16
    torch.testing.assert_close(ttnn.to_torch(values), expected.values)
    assert torch.equal(ttnn.to_torch(indices).to(torch.int64), expected.indices)
    torch.testing.assert_close(ttnn.to_torch(ttnn.cumsum(put(x, device), 1)), x.cumsum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, False), (True, False), (False, True), (True, True)])
def test_matmul_accumulates_in_fp32_and_rounds_once(
    transpose_a: bool, transpose_b: bool, dtype: torch.dtype, device: ttnn.MeshDevice
) -> None:
    a, b = rand(2, 3, 8, 40).to(dtype), rand(40, 16).to(dtype)
    given_a = a.transpose(-2, -1) if transpose_a else a
    given_b = b.transpose(-2, -1) if transpose_b else b
    result = ttnn.matmul(put(given_a, device), put(given_b, device), transpose_a=transpose_a, transpose_b=transpose_b)
    expected = (a.double() @ b.double()).float().to(dtype)
    torch.testing.assert_close(
        ttnn.to_torch(result), expected, rtol=2**-7 if dtype is torch.bfloat16 else 1e-5, atol=1e-5
    )


def test_linear_adds_bias_and_activates(device: ttnn.MeshDevice) -> None:
    x, w, b = rand(1, 1, 8, 40), rand(40, 16), rand(1, 16)
    result = ttnn.linear(put(x, device), put(w, device), bias=put(b, device), activation="gelu", dtype=ttnn.bfloat16)
    assert result.dtype is ttnn.bfloat16
    torch.testing.assert_close(ttnn.to_torch(result).float(), F.gelu(x @ w + b), rtol=2**-7, atol=1e-3)


def test_the_lean_matmul_gates_by_swiglu(device: ttnn.MeshDevice) -> None:
    x, w, b = rand(8, 40), rand(40, 128), rand(128)
    plain = ttnn.experimental.minimal_matmul(put(x, device), put(w, device), bias_tensor=put(b, device))
    torch.testing.assert_close(ttnn.to_torch(plain), x @ w + b)
    gates, values = (x @ w + b).unflatten(-1, (-1, 2, 32)).unbind(-2)  # tiles of both take turns
    gated = ttnn.experimental.minimal_matmul(
        put(x, device), put(w, device), bias_tensor=put(b, device), fuse_swiglu=True
    )
    torch.testing.assert_close(ttnn.to_torch(gated), (values * F.silu(gates)).flatten(-2))
    pieces = ttnn.experimental.minimal_matmul_split(
        put(x, device), put(w, device), bias_tensor=put(b, device), fuse_swiglu=True, chunks=2
    )
    assert torch.equal(torch.cat([ttnn.to_torch(piece) for piece in pieces], -1), ttnn.to_torch(gated))
    with pytest.raises(RuntimeError, match="multiple of 64"):
        ttnn.experimental.minimal_matmul(put(x, device), put(rand(40, 32), device), fuse_swiglu=True)


def test_moreh_dot_is_the_scalar_product(device: ttnn.MeshDevice) -> None:
    a, b = rand(1, 1, 1, 50), rand(1, 1, 1, 50) + 1
    torch.testing.assert_close(
        ttnn.to_torch(ttnn.operations.moreh.dot(put(a, device), put(b, device))).reshape(()), (a * b).sum()
    )


@pytest.mark.parametrize("form", [(40,), (1, 40), (1, 1, 5, 8)])
def test_norms_agree_with_torch_for_every_form_of_weight(form: tuple[int, ...], device: ttnn.MeshDevice) -> None:
    x, w, b, r = rand(2, 1, 6, 40), rand(40), rand(40) / 2, rand(2, 1, 6, 40) / 4
    weight, bias = put(w.reshape(form), device), put(b.reshape(form), device)
    layer = ttnn.layer_norm(
        put(x, device), epsilon=1e-5, weight=weight, bias=bias, residual_input_tensor=put(r, device)
    )
    torch.testing.assert_close(ttnn.to_torch(layer), F.layer_norm(x + r, (40,), w, b, 1e-5), rtol=1e-4, atol=1e-5)
    rms = ttnn.rms_norm(put(x, device), epsilon=1e-5, weight=weight)
    torch.testing.assert_close(ttnn.to_torch(rms), F.rms_norm(x, (40,), w, 1e-5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_a_norm_from_gathered_statistics_equals_the_norm_of_the_whole_row(kind: str, device: ttnn.MeshDevice) -> None:
    x, w = rand(1, 1, 6, 128), rand(128)
    halves = x.chunk(2, -1)
    before, after = getattr(ttnn, f"{kind}_pre_all_gather"), getattr(ttnn, f"{kind}_post_all_gather")
    stats = [before(put(half, device), dtype=ttnn.float32) for half in halves]
    gathered = ttnn.concat(stats, dim=3)
    parts = [
        after(put(half, device), gathered, epsilon=1e-5, weight=put(part.reshape(1, 1, 2, 32), device))
        for half, part in zip(halves, w.chunk(2), strict=True)
    ]
    whole = getattr(ttnn, kind)(put(x, device), epsilon=1e-5, weight=put(w, device))
    joined = torch.cat([ttnn.to_torch(part) for part in parts], -1)
    torch.testing.assert_close(joined, ttnn.to_torch(whole), rtol=1e-4, atol=1e-5)


def test_softmax_clamp_where_and_friends_agree_with_torch(device: ttnn.MeshDevice) -> None:
    x, y = rand(3, 40), rand(3, 40)
    torch.testing.assert_close(ttnn.to_torch(ttnn.softmax(put(x, device), dim=0)), x.softmax(0))
    torch.testing.assert_close(ttnn.to_torch(ttnn.clamp(put(x, device), -0.5, 0.5)), x.clamp(-0.5, 0.5))
    torch.testing.assert_close(ttnn.to_torch(ttnn.clip(put(x, device), max=put(y, device))), torch.minimum(x, y))
    torch.testing.assert_close(
        ttnn.to_torch(ttnn.where(put((x > 0).float(), device), put(x, device), -1.0)),
        torch.where(x > 0, x, -1.0),
    )
    torch.testing.assert_close(
        ttnn.to_torch(ttnn.pow(put(x.abs() + 0.1, device), 2.5)), (x.abs() + 0.1) ** 2.5, rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(ttnn.to_torch(ttnn.leaky_relu(put(x, device), 0.1)), F.leaky_relu(x, 0.1))
    torch.testing.assert_close(ttnn.to_torch(ttnn.elu(put(x, device), alpha=0.5)), F.elu(x, 0.5))
    torch.testing.assert_close(ttnn.to_torch(ttnn.softplus(put(x, device))), F.softplus(x))
    torch.testing.assert_close(ttnn.to_torch(ttnn.round(put(x, device))), x.round())
    torch.testing.assert_close(
        ttnn.to_torch(ttnn.gelu(put(x, device), variant=ttnn.GeluVariant.Tanh)), F.gelu(x, approximate="tanh")
    )
    torch.testing.assert_close(ttnn.to_torch(ttnn.sigmoid(put(x, device))), x.sigmoid())
    torch.testing.assert_close(ttnn.to_torch(ttnn.sigmoid_accurate(put(x, device), True)), x.sigmoid())


def test_embedding_picks_rows_and_refuses_indices_outside(device: ttnn.MeshDevice) -> None:
    table = rand(50, 40)
    ids = torch.tensor([[0, 49, 7], [3, 3, 1]], dtype=torch.int32)
    found = ttnn.embedding(
        put(ids, device, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT), put(table, device), layout=ttnn.TILE_LAYOUT
    )
    assert found.layout is ttnn.TILE_LAYOUT
    assert torch.equal(ttnn.to_torch(found), table[ids.long()])
    with pytest.raises(RuntimeError, match="index 50 is outside the table of 50 rows"):
        ttnn.embedding(put(torch.tensor([[50]]), device, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT), put(table, device))
    with pytest.raises(TypeError, match="must hold indices"):
        ttnn.embedding(put(table, device), put(table, device))


def test_indices_of_an_embedding_may_be_bfloat16_but_not_negative(device: ttnn.MeshDevice) -> None:
    table, ids = rand(50, 40), torch.tensor([[0, 49, 7]])
    whole = put(ids, device, ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)
    assert torch.equal(ttnn.to_torch(ttnn.embedding(whole, put(table, device))), table[ids])
    with pytest.raises(RuntimeError, match="index -1 is outside the table of 50 rows"):
        ttnn.embedding(put(ids - 1, device, ttnn.int32, ttnn.ROW_MAJOR_LAYOUT), put(table, device))


def movement_cases() -> dict[str, tuple[Callable[[Any], Any], Callable[[torch.Tensor], Any]]]:
    return {
        "reshape": (lambda t: ttnn.reshape(t, (4, -1)), lambda x: x.reshape(4, -1)),
        "reshape method": (lambda t: t.reshape(2, 2, 3, 20), lambda x: x.reshape(2, 2, 3, 20)),
        "view": (lambda t: ttnn.view(t, (1, 2, 6, 20)), lambda x: x.reshape(1, 2, 6, 20)),
        "experimental.view": (lambda t: ttnn.experimental.view(t, 1, 2, 6, 20), lambda x: x.reshape(1, 2, 6, 20)),
        "reshape_on_device": (lambda t: ttnn.reshape_on_device(t, 1, 2, 6, 20), lambda x: x.reshape(1, 2, 6, 20)),
        "unsqueeze": (lambda t: ttnn.unsqueeze(t, -1), lambda x: x.unsqueeze(-1)),
        "unsqueeze_to_4D": (ttnn.unsqueeze_to_4D, lambda x: x.unsqueeze(0)),
        "squeeze": (lambda t: ttnn.squeeze(ttnn.unsqueeze(t, 1), 1), lambda x: x),
        "permute": (lambda t: ttnn.permute(t, (2, 0, 1)), lambda x: x.permute(2, 0, 1)),
        "transpose": (lambda t: ttnn.transpose(t, -2, -1), lambda x: x.transpose(-2, -1)),
        "slice": (lambda t: ttnn.slice(t, [0, 1, 2], [2, 6, 18], [1, 2, 3]), lambda x: x[0:2, 1:6:2, 2:18:3]),
        "index": (lambda t: t[1, 2:5], lambda x: x[1, 2:5]),
        "index from the end": (lambda t: t[..., -4:], lambda x: x[..., -4:]),
        "narrow": (lambda t: ttnn.narrow(t, 2, 4, 8), lambda x: x.narrow(2, 4, 8)),
        "concat": (lambda t: ttnn.concat([t, t], dim=1), lambda x: torch.cat([x, x], 1)),
        "stack": (lambda t: ttnn.stack([t, t], dim=1), lambda x: torch.stack([x, x], 1)),
        "split": (lambda t: ttnn.split(t, 4, 1)[1], lambda x: x.split(4, 1)[1]),
        "split by sizes": (lambda t: ttnn.split(t, [1, 5], 1)[1], lambda x: x.split([1, 5], 1)[1]),
        "chunk": (lambda t: ttnn.chunk(t, 2, 2)[1], lambda x: x.chunk(2, 2)[1]),
        "repeat": (lambda t: ttnn.repeat(t, (2, 1, 3)), lambda x: x.repeat(2, 1, 3)),
        "repeat_interleave": (lambda t: ttnn.repeat_interleave(t, 2, 1), lambda x: x.repeat_interleave(2, 1)),
        "expand": (lambda t: ttnn.expand(t[:, :1], (2, 5, -1)), lambda x: x[:, :1].expand(2, 5, -1)),
        "pad": (lambda t: ttnn.pad(t, [(0, 0), (0, 2), (0, 3)], 7.0), lambda x: F.pad(x, (0, 3, 0, 2), value=7.0)),
        "pad to shape": (lambda t: ttnn.pad(t, [2, 8, 32], [0, 0, 0], 1.0), lambda x: F.pad(x, (0, 12, 0, 2), value=1)),
        "roll": (lambda t: ttnn.roll(t, 3, 2), lambda x: x.roll(3, 2)),
        "roll several": (lambda t: ttnn.roll(t, [1, 2], [0, 1]), lambda x: x.roll([1, 2], [0, 1])),
        "roll flat": (lambda t: ttnn.roll(t, 5), lambda x: x.roll(5)),
        "full_like": (lambda t: ttnn.full_like(t, 2.5), lambda x: torch.full_like(x, 2.5)),
        "zeros_like": (ttnn.zeros_like, torch.zeros_like),
        "ones_like": (ttnn.ones_like, torch.ones_like),
        "moreh_full_like": (lambda t: ttnn.moreh_full_like(t, 3), lambda x: torch.full_like(x, 3)),
        "clone": (ttnn.clone, torch.clone),
        "assign": (lambda t: ttnn.assign(t, memory_config=ttnn.L1_MEMORY_CONFIG), torch.clone),
        "to_layout": (lambda t: ttnn.to_layout(t, ttnn.ROW_MAJOR_LAYOUT), torch.clone),
        "untilize_with_unpadding": (lambda t: ttnn.untilize_with_unpadding(t, (1, 3, 9)), lambda x: x[:2, :4, :10]),
    }  # fmt: skip


@pytest.mark.parametrize("name", movement_cases())
def test_movement_agrees_with_torch(name: str, device: ttnn.MeshDevice) -> None:
    ours, theirs = movement_cases()[name]
    x = rand(2, 6, 20)
    result = ours(put(x, device))
    expected = theirs(x)
    assert tuple(result.shape) == tuple(expected.shape)
    assert torch.equal(ttnn.to_torch(result), expected)


def test_gather_picks_along_a_dim(device: ttnn.MeshDevice) -> None:
    x = rand(4, 10)
    index = torch.randint(0, 10, (4, 3))
    found = ttnn.gather(put(x, device), 1, put(index, device, ttnn.uint32))
    assert torch.equal(ttnn.to_torch(found), x.gather(1, index))


def test_layout_and_dtype_changes_keep_values_and_tell_the_new_form(device: ttnn.MeshDevice) -> None:
    x = put(rand(32, 64), device, ttnn.bfloat8_b)
    plain = ttnn.untilize(x)
    assert (plain.layout, plain.dtype) == (ttnn.ROW_MAJOR_LAYOUT, ttnn.bfloat16)
    assert torch.equal(ttnn.to_torch(plain).float(), ttnn.to_torch(x))
    assert ttnn.tilize(plain).layout is ttnn.TILE_LAYOUT
    assert ttnn.tilize_with_zero_padding(plain[:5]).padded_shape == [32, 64]
    assert ttnn.tilize_with_val_padding(plain[:5], (32, 64), 3.0).shape == [5, 64]
    assert ttnn.typecast(x, ttnn.float32).dtype is ttnn.float32
    assert ttnn.typecast(x, ttnn.bfloat8_b, ttnn.float32).dtype is ttnn.float32
    with pytest.raises(RuntimeError, match="whole 32x32 tiles"):
        ttnn.tilize(plain[:5])


def test_memory_configs_travel_with_the_tensor(device: ttnn.MeshDevice) -> None:
    x = put(rand(64, 64), device)
    config = ttnn.create_sharded_memory_config((64, 64), ttnn.CoreGrid(x=1, y=2), ttnn.ShardStrategy.HEIGHT)
    sharded = ttnn.interleaved_to_sharded(x, config)
    assert sharded.memory_config() == config
    assert ttnn.relu(sharded).memory_config() == config
    assert ttnn.sum(sharded, dim=0).memory_config().shard_spec.shape == [32, 64]  # cut anew, on the same cores
    assert ttnn.sharded_to_interleaved(sharded, ttnn.L1_MEMORY_CONFIG).memory_config() == ttnn.L1_MEMORY_CONFIG
    assert ttnn.to_memory_config(sharded, ttnn.DRAM_MEMORY_CONFIG).memory_config() == ttnn.DRAM_MEMORY_CONFIG
    assert ttnn.matmul(sharded, x).memory_config() == ttnn.DRAM_MEMORY_CONFIG
    assert ttnn.matmul(x, x, memory_config=ttnn.L1_MEMORY_CONFIG).memory_config() == ttnn.L1_MEMORY_CONFIG


def test_an_output_tensor_is_the_one_written(device: ttnn.MeshDevice) -> None:
    x, out = put(rand(32, 32), device), ttnn.zeros((32, 32), ttnn.float32, ttnn.TILE_LAYOUT, device)
    assert ttnn.exp(x, output_tensor=out) is out
    torch.testing.assert_close(ttnn.to_torch(out), ttnn.to_torch(x).exp())
    assert ttnn.copy(x, out) is out
    assert torch.equal(ttnn.to_torch(out), ttnn.to_torch(x))
    with pytest.raises(RuntimeError, match=r"output tensor has shape Shape\(\[32, 32\]\), the result \[16, 32\]"):
        ttnn.exp(x[:16], output_tensor=out)


def test_creation_defaults_are_bfloat16_and_row_major(device: ttnn.MeshDevice) -> None:
    assert torch.equal(ttnn.to_torch(ttnn.zeros((2, 3))), torch.zeros(2, 3).bfloat16())
    assert torch.equal(ttnn.to_torch(ttnn.ones((2, 3), device=device)), torch.ones(2, 3).bfloat16())
    assert torch.equal(ttnn.to_torch(ttnn.full((2,), 7, ttnn.int32)), torch.tensor([7, 7], dtype=torch.int32))
    assert ttnn.to_torch(ttnn.arange(2, 9, 3)).tolist() == [2, 5, 8]
    assert ttnn.to_torch(ttnn.arange(4, dtype=ttnn.int32)).tolist() == [0, 1, 2, 3]
    random = ttnn.rand((64, 64), device, low=2.0, high=3.0, seed=5, dtype=ttnn.float32)
    values = ttnn.to_torch(random)
    assert random.layout is ttnn.TILE_LAYOUT
    assert values.min() >= 2
    assert values.max() < 3
    assert torch.equal(
        values, ttnn.to_torch(ttnn.rand((64, 64), device, low=2.0, high=3.0, seed=5, dtype=ttnn.float32))
    )
    assert ttnn.empty((2, 2), device=device).dtype is ttnn.bfloat16


def test_arguments_that_ttnn_takes_by_position_may_be_given_so(device: ttnn.MeshDevice) -> None:
    x = put(rand(32, 32), device)
    like = ttnn.full_like(x, 2.0, ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.L1_MEMORY_CONFIG)
    assert (like.dtype, like.layout) == (ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)
    assert like.memory_config() == ttnn.L1_MEMORY_CONFIG
    assert ttnn.to_layout(x, ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.L1_MEMORY_CONFIG).dtype is ttnn.bfloat16
    out = ttnn.zeros_like(x)
    assert ttnn.to_memory_config(x, ttnn.DRAM_MEMORY_CONFIG, None, out) is out
    assert torch.equal(ttnn.to_torch(out), ttnn.to_torch(x))


def test_a_host_tensor_keeps_its_dtype_in_another_layout() -> None:
    host = ttnn.from_torch(rand(32, 32))
    assert ttnn.to_layout(host, ttnn.TILE_LAYOUT, ttnn.bfloat16).dtype is ttnn.float32
