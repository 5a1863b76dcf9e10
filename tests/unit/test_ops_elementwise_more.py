"""Element-wise ops beyond the first tables: against torch on one device, and on a mesh through their rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from operands import R, S, put

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS

TILE = (8, 64)
SPLITS = [(R, R), (S(0), R), (R, S(1)), (S(0), S(1)), (S(1), S(1))]


@pytest.fixture(scope="module")
def one() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def several() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as mesh:
        yield mesh


def values(count: int, low: float = -2.0, high: float = 2.0, shape: Sequence[int] = TILE) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.rand(*shape, generator=generator) * (high - low) + low for _ in range(count)]


class Case(NamedTuple):
    """`call` takes the op and its tensors, `reference` the same values in float64."""

    operands: int
    call: Callable[..., Any]
    reference: Callable[..., torch.Tensor]
    low: float = -2.0
    high: float = 2.0


def given(*args: Any, **kwargs: Any) -> Callable[..., Any]:
    return lambda op, *tensors: op(*tensors, *args, **kwargs)


def one_of(function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> Case:
    """A function of one tensor, with the same arguments for op and reference."""
    return Case(1, given(*args, **kwargs), lambda x: function(x, *args, **kwargs))


HARD = ttnn.UnaryWithParam(ttnn.UnaryOpType.HARDTANH, -0.5, 0.5)
CHAIN = [ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU), HARD, ttnn.UnaryWithParam(ttnn.UnaryOpType.EXP)]


def xielu(x: torch.Tensor) -> torch.Tensor:
    below = 0.3 * (torch.expm1(x.clamp_max(-1e-6)) - x) + 0.5 * x
    return torch.where(x > 0, 0.7 * x * x + 0.5 * x, below)


def quarter_turn(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * 1j).flatten(-2)


ELEMENTWISE: dict[str, Case] = {
    "celu": one_of(F.celu, alpha=0.7),
    "hardtanh": one_of(F.hardtanh, min_val=-0.3, max_val=0.9),
    "selu": Case(1, given(scale=1.1, alpha=1.5), lambda x: 1.1 * (x.clamp_min(0) + (1.5 * x.exp() - 1.5).clamp_max(0))),
    "softshrink": one_of(F.softshrink),
    "hardshrink": one_of(F.hardshrink),
    "threshold": one_of(F.threshold, 0.25, -1.5),
    "heaviside": Case(1, given(0.5), lambda x: torch.heaviside(x, torch.tensor(0.5, dtype=x.dtype))),
    "rpow": Case(1, given(1.75), lambda x: 1.75**x),
    "relu_max": Case(1, given(1.25), lambda x: x.clamp(0, 1.25)),
    "relu_min": Case(1, given(-0.5), lambda x: x.clamp_min(-0.5)),
    "softcap": Case(1, given(1.5), lambda x: 1.5 * torch.tanh(x / 1.5)),
    "logit": Case(1, given(eps=0.1), lambda x: torch.logit(x, 0.1), 0, 1),
    "xielu": Case(1, given(alpha_p=0.7, alpha_n=0.3), xielu),
    "alt_complex_rotate90": Case(1, given(), quarter_turn),
    "multigammaln": Case(1, given(), lambda x: torch.special.multigammaln(x, 4), 2, 5),
    "polygamma": Case(1, given(2), lambda x: torch.polygamma(2, x), 0.5, 4),
    "polyval": Case(1, given([1.0, -2.0, 0.5]), lambda x: x * x - 2 * x + 0.5),
    "unary_chain": Case(1, given(CHAIN), lambda x: x.relu().clamp(-0.5, 0.5).exp()),
    "prelu": Case(1, given(0.25), lambda x: F.leaky_relu(x, 0.25)),
    "fill": Case(1, given(2.5), lambda x: torch.full_like(x, 2.5)),
    "addcmul": Case(3, given(value=0.5), lambda a, b, c: a + 0.5 * b * c),
    "addcdiv": Case(3, given(value=0.5), lambda a, b, c: a + 0.5 * b / c, 0.5, 2),
    "mac": Case(3, given(), lambda a, b, c: a * b + c),
    "lerp": Case(3, given(), torch.lerp),
    "snake_beta": Case(3, given(), lambda x, a, b: x + torch.sin(a * x) ** 2 / b, 0.5, 2),
    "bias_gelu": Case(2, given(), lambda a, b: F.gelu(a + b)),
    "addalpha": Case(2, given(0.3), lambda a, b: a + 0.3 * b),
    "subalpha": Case(2, given(0.3), lambda a, b: a - 0.3 * b),
    "isclose": Case(2, given(atol=1.0), lambda a, b: torch.isclose(a, b, atol=1.0)),
    "div_no_nan": Case(2, given(), lambda a, b: a / b, 0.5, 2),
    "floor_div": Case(2, given(), lambda a, b: torch.floor(a / b), 0.5, 2),
    "tril": Case(1, given(), lambda x: x),
    "triu": Case(1, given(), lambda x: x),
}
ROUNDED_MORE_OFTEN = ("logit",)  # in bfloat16, as TT-NN composes it of other ops
SQUARE = ("tril", "triu")  # which side a value is on depends on its place: tested by themselves


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if name not in SQUARE])
def test_an_op_agrees_with_float64_and_rounds_once(name: str, one: ttnn.MeshDevice) -> None:
    case = ELEMENTWISE[name]
    wide = values(case.operands, case.low, case.high)
    result = case.call(OPERATIONS[name], *(put(x, one) for x in wide))
    expected = case.reference(*(x.double() for x in wide)).double()
    torch.testing.assert_close(ttnn.to_torch(result).double(), expected, rtol=5e-5, atol=5e-6)
    narrow = [x.bfloat16() for x in wide]
    result = ttnn.to_torch(case.call(OPERATIONS[name], *(put(x, one, dtype=ttnn.bfloat16) for x in narrow)))
    once = case.reference(*(x.double() for x in narrow)).float().bfloat16()
    assert result.dtype is torch.bfloat16
    assert name in ROUNDED_MORE_OFTEN or (result == once).float().mean() > 0.98


@pytest.mark.parametrize("words", SPLITS, ids=str)
@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if name not in SQUARE])
def test_an_op_on_split_operands_makes_the_split_of_the_whole_result(
    name: str, words: Any, several: ttnn.MeshDevice
) -> None:
    case = ELEMENTWISE[name]
    whole = values(case.operands, case.low, case.high)
    result = case.call(OPERATIONS[name], *(put(x, several, words) for x in whole))
    assert ttnn.placements(result) == words
    expected = case.reference(*whole).float()
    torch.testing.assert_close(ttnn.compose(result), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["addcmul", "mac", "lerp", "addalpha", "isclose"])
def test_operands_broadcast_and_results_go_where_they_are_told(name: str, one: ttnn.MeshDevice) -> None:
    case = ELEMENTWISE[name]
    first = values(1, 0.5, 2, (2, 8, 64))
    others = [x[:1, :1] for x in values(case.operands - 1, 0.5, 2)]
    operands = [put(x, one) for x in (*first, *others)]
    result = case.call(OPERATIONS[name], *operands)
    torch.testing.assert_close(ttnn.to_torch(result), case.reference(*first, *others).float(), rtol=1e-4, atol=1e-5)
    if name == "isclose":
        return
    target = ttnn.zeros_like(result)
    again = case.call(lambda *args, **kwargs: OPERATIONS[name](*args, output_tensor=target, **kwargs), *operands)
    assert again is target
    assert torch.equal(ttnn.to_torch(target), ttnn.to_torch(result))


def test_numbers_stand_for_operands_under_each_of_their_names(one: ttnn.MeshDevice) -> None:
    (x,) = values(1)
    a = put(x, one)
    for result, expected in (
        (ttnn.mac(a, 2.0, 3.0), 2 * x + 3),
        (ttnn.mac(a, value1=2.0, value2=3.0), 2 * x + 3),
        (ttnn.mac(a, a, value=3.0), x * x + 3),
        (ttnn.mac(a, value=2.0, input_tensor_c=a), 3 * x),
        (ttnn.lerp(a, ttnn.zeros_like(a), 0.25), 0.75 * x),
        (ttnn.floor_div(a, value=0.3), torch.floor(x / 0.3)),
        (ttnn.div_no_nan(a, 0.0), torch.zeros_like(x)),
        (ttnn.prelu(a, [0.5]), F.leaky_relu(x, 0.5)),
        (ttnn.bias_gelu(a, 0.5), F.gelu(x + 0.5)),
    ):
        torch.testing.assert_close(ttnn.to_torch(result), expected, rtol=1e-4, atol=1e-5)


def test_a_division_by_zero_gives_no_nan(one: ttnn.MeshDevice) -> None:
    result = ttnn.div_no_nan(put(torch.ones(1, 3), one), put(torch.tensor([[0.0, 2.0, -0.0]]), one))
    assert ttnn.to_torch(result).tolist() == [[0.0, 0.5, 0.0]]


def test_the_next_number_is_that_of_the_dtype(one: ttnn.MeshDevice) -> None:
    x = torch.tensor([[1.0, -2.0]], dtype=torch.bfloat16)
    towards = torch.zeros(1, 2, dtype=torch.bfloat16)
    result = ttnn.nextafter(put(x, one, dtype=ttnn.bfloat16), put(towards, one, dtype=ttnn.bfloat16))
    assert ttnn.to_torch(result).tolist() == [[0.99609375, -1.9921875]]


@pytest.mark.parametrize("words", SPLITS[:4], ids=str)
def test_the_next_number_of_split_operands_stays_split(words: Any, several: ttnn.MeshDevice) -> None:
    a, b = values(2)
    result = ttnn.nextafter(put(a, several, words), put(b, several, words))
    assert torch.equal(ttnn.compose(result), torch.nextafter(a, b))


@pytest.mark.parametrize("words", [(R, S(1)), (S(2), R), (S(0), R), (S(0), S(1))], ids=str)
def test_a_weight_for_each_channel_splits_with_the_channels(words: Any, several: ttnn.MeshDevice) -> None:
    x = values(1, shape=(2, 4, 6, 8))[0]
    weight = torch.tensor([0.1, 0.2, 0.3, 0.4])
    own = tuple(S(0) if word is S(1) else R for word in words)
    result = ttnn.prelu(put(x, several, words), put(weight, several, own))  # type: ignore[arg-type]
    assert ttnn.placements(result) == words
    torch.testing.assert_close(ttnn.compose(result), F.prelu(x, weight))


@pytest.mark.parametrize("diagonal", [-1, 0, 2])
@pytest.mark.parametrize("name", SQUARE)
def test_one_side_of_the_diagonal_becomes_zero(name: str, diagonal: int, several: ttnn.MeshDevice) -> None:
    x = values(1, shape=(4, 5, 5))[0]
    result = getattr(ttnn, name)(put(x, several, (S(0), R)), diagonal=diagonal)
    assert torch.equal(ttnn.compose(result), getattr(torch, name)(x, diagonal))
    cut = getattr(ttnn, name)(put(x[:, :4, :4], several, (R, S(1))))
    assert ttnn.placements(cut) == (R, ttnn.Local())


# -- products --------------------------------------------------------------------------------------


def test_outer_pairs_every_value_with_every_other(several: ttnn.MeshDevice) -> None:
    a, b = values(1, shape=(8,))[0], values(2, shape=(6,))[1]
    for words, other in (((R, R), (R, R)), ((S(0), R), (R, R)), ((R, R), (R, S(0))), ((S(0), R), (R, S(0)))):
        result = ttnn.outer(put(a, several, words), put(b, several, other))
        torch.testing.assert_close(ttnn.compose(result), torch.outer(a, b))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (((R, R), (R, R), (R, R)), (R, R)),
        (((S(0), R), (S(0), R), (R, R)), (S(0), R)),
        (((R, S(1)), (R, R), (R, S(1))), (R, S(1))),
    ],
    ids=str,
)
def test_addmm_scales_the_sum_and_the_product(words: Any, expected: Any, several: ttnn.MeshDevice) -> None:
    x, a, b = (values(1, shape=shape)[0] for shape in ((4, 8), (4, 6), (6, 8)))
    operands = [put(t, several, word) for t, word in zip((x, a, b), words, strict=True)]
    result = ttnn.addmm(*operands, alpha=0.5, beta=2.0)
    assert ttnn.placements(result) == expected
    torch.testing.assert_close(ttnn.compose(result), torch.addmm(x, a, b, alpha=0.5, beta=2.0), rtol=1e-4, atol=1e-5)


def test_addmm_of_what_is_split_along_the_sum_says_what_is_missing(several: ttnn.MeshDevice) -> None:
    x, a, b = (values(1, shape=shape)[0] for shape in ((4, 8), (4, 6), (6, 8)))
    with pytest.warns(ttnn.PartialWarning, match="all_reduce"):
        ttnn.addmm(put(x, several), put(a, several, (R, S(1))), put(b, several, (R, S(0))))


@pytest.mark.parametrize(("math_op", "function"), [("ADD", torch.add), ("SUB", torch.sub), ("MUL", torch.mul)])
@pytest.mark.parametrize(("dim", "shape"), [("H", (2, 1, 8)), ("W", (2, 4, 1)), ("HW", (2, 1, 1))])
def test_bcast_repeats_a_row_a_column_or_a_value(
    math_op: str, function: Any, dim: str, shape: Any, several: ttnn.MeshDevice
) -> None:
    a, b = values(1, shape=(2, 4, 8))[0], values(1, shape=shape)[0]
    chosen = getattr(ttnn.BcastOpMath, math_op), getattr(ttnn.BcastOpDim, dim)
    result = ttnn.bcast(put(a, several, (S(0), R)), put(b, several, (S(0), R)), *chosen)
    torch.testing.assert_close(ttnn.compose(result), function(a, b))
    with pytest.raises(ttnn.MeshError, match="extent 1"):
        ttnn.bcast(put(a, several), put(a, several), *chosen)


# -- gates -----------------------------------------------------------------------------------------

GATES = {"glu": torch.sigmoid, "reglu": torch.relu, "geglu": F.gelu, "swiglu": F.silu}


@pytest.mark.parametrize("name", sorted(GATES))
def test_the_second_half_gates_the_first(name: str, several: ttnn.MeshDevice) -> None:
    x = values(1, shape=(4, 2, 32, 128))[0]
    a, b = x.chunk(2, -1)
    for words in ((R, R), (S(0), R), (S(0), S(1))):
        result = getattr(ttnn, name)(put(x, several, words))
        assert ttnn.placements(result) == words
        torch.testing.assert_close(ttnn.compose(result), a * GATES[name](b), rtol=1e-4, atol=1e-5)
    assert ttnn.placements(getattr(ttnn, name)(put(x, several, (R, S(3)))))[1] == ttnn.Local()


@pytest.mark.parametrize(
    ("shape", "dim", "message"),
    [((1, 1, 64, 64), 2, "last dim GLU only supported"), ((1, 1, 32, 96), -1, "should be in full tile")],
)
def test_halves_are_whole_tiles_of_the_last_dim(shape: Any, dim: int, message: str, one: ttnn.MeshDevice) -> None:
    with pytest.raises(ttnn.MeshError, match=message):
        ttnn.glu(put(torch.zeros(shape), one), dim)


def test_an_empty_chain_and_a_link_without_its_number_are_refused(one: ttnn.MeshDevice) -> None:
    x = put(torch.zeros(2, 2), one)
    with pytest.raises(TypeError, match="is empty"):
        ttnn.unary_chain(x, [])
    with pytest.raises(TypeError, match="needs its number"):
        ttnn.unary_chain(x, [ttnn.UnaryWithParam(ttnn.UnaryOpType.THRESHOLD)])


def test_a_bounded_gate_lets_a_bounded_value_pass(device):
    gate, up = torch.randn(32, 64), torch.randn(1, 64)
    on_device = [ttnn.from_torch(one, layout=ttnn.TILE_LAYOUT, device=device) for one in (gate, up)]
    made = ttnn.to_torch(ttnn.situ_glu(*on_device, 2.0, 3.0))
    expected = 2 * torch.tanh(gate / 2) * torch.sigmoid(gate) * 3 * torch.tanh(up / 3)
    torch.testing.assert_close(made, expected)
    torch.testing.assert_close(ttnn.get_golden_function(ttnn.situ_glu)(gate, up, beta1=2.0, beta2=3.0), expected)
    with pytest.raises(RuntimeError, match="must not be 0"):
        ttnn.situ_glu(*on_device, 0.0, 3.0)


def test_words_that_only_steer_a_chip_are_taken(device):
    x = ttnn.from_torch(torch.rand(32, 32), layout=ttnn.TILE_LAYOUT, device=device)
    assert list(ttnn.repeat(x, [2, 1], implementation="native").shape) == [64, 32]
    exact, approximate = (ttnn.gelu_bw(x, x, approximate=word)[0] for word in ("none", "tanh"))
    assert torch.equal(ttnn.to_torch(exact), ttnn.to_torch(ttnn.gelu_bw(x, x)[0]))
    assert not torch.equal(ttnn.to_torch(exact), ttnn.to_torch(approximate))
    with pytest.raises(ValueError, match='approximate must be "none" or "tanh"'):
        ttnn.gelu_bw(x, x, approximate="erf")
    rows = ttnn.create_group_norm_reciprocals(1, 64, 8, 8, 2, ttnn.CoreGrid(x=2, y=2))
    assert rows.shape == (4, 1024)
    assert rows[0, 3] == 0.25
    with pytest.raises(RuntimeError, match="num_groups=3 must divide C=64"):
        ttnn.create_group_norm_reciprocals(1, 64, 8, 8, 3, ttnn.CoreGrid(x=2, y=2))
    assert isinstance(
        ttnn.create_global_semaphore(device, ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (0, 0))]), 0),
        ttnn._ttnn.global_semaphore.global_semaphore,
    )
