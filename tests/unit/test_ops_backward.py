"""Gradients: each against the slope of its function between two near points, and on a mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from operands import R, S, put

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS

NEAR = 1e-6
DOMAIN = {
    "acos": (-0.9, 0.9), "asin": (-0.9, 0.9), "atanh": (-0.9, 0.9), "erfinv": (-0.9, 0.9), "acosh": (1.1, 4),
    "log": (0.1, 4), "log2": (0.1, 4), "log10": (0.1, 4), "log1p": (-0.5, 4), "sqrt": (0.1, 4), "rsqrt": (0.1, 4),
    "digamma": (0.5, 4), "lgamma": (0.5, 4), "reciprocal": (0.5, 4), "tan": (-1, 1), "logit": (0.1, 0.9),
    "logiteps": (0.1, 0.9), "multigammaln": (2, 5), "polygamma": (0.5, 4), "pow": (0.5, 2), "rdiv": (0.5, 2),
    "atan2": (0.5, 2), "hypot": (0.5, 2), "xlogy": (0.5, 2), "div": (0.5, 2), "addcdiv": (0.5, 2),
}  # fmt: skip


class Case(NamedTuple):
    """The function in float64, and what the op is given beside gradient and tensors."""

    function: Callable[..., torch.Tensor]
    tensors: int = 1
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}


NAMES = [
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad", "digamma"),
    *(
        "erf",
        "erfc",
        "erfinv",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "frac",
        "i0",
        "lgamma",
        "log",
        "log10",
        "log1p",
    ),
    *("log2", "logit", "neg", "rad2deg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin"),
    *("sinh", "sqrt", "square", "tan", "tanh", "trunc", "selu"),
]
CASES: dict[str, Case] = {
    **{name: Case(getattr(torch, name)) for name in NAMES},
    "hardsigmoid": Case(lambda x: (x / 6 + 0.5).clamp(0, 1)),
    "hardswish": Case(lambda x: x * (x / 6 + 0.5).clamp(0, 1)),
    "log_sigmoid": Case(lambda x: -torch.log1p(torch.exp(-x))),
    "relu6": Case(lambda x: x.clamp(0, 6)),
    "silu": Case(lambda x: x / (1 + torch.exp(-x))),
    "softsign": Case(lambda x: x / (1 + x.abs())),
    "tanhshrink": Case(lambda x: x - torch.tanh(x)),
    "multigammaln": Case(lambda x: torch.special.multigammaln(x, 4)),
    "fill_zero": Case(torch.zeros_like),
    "gelu": Case(F.gelu),
    "celu": Case(lambda x: F.celu(x, 0.7), kwargs={"alpha": 0.7}),
    "elu": Case(lambda x: F.elu(x, 0.7), kwargs={"alpha": 0.7}),
    "hardshrink": Case(F.hardshrink),
    "softshrink": Case(F.softshrink),
    "hardtanh": Case(lambda x: x.clamp(-0.5, 0.75), kwargs={"min": -0.5, "max": 0.75}),
    "leaky_relu": Case(lambda x: F.leaky_relu(x, 0.2), kwargs={"negative_slope": 0.2}),
    "logiteps": Case(lambda x: torch.logit(x, 0.2), kwargs={"eps": 0.2}),
    "softplus": Case(lambda x: F.softplus(x, 2.0), kwargs={"beta": 2.0}),
    "threshold": Case(lambda x: F.threshold(x, 0.25, 3.0), args=(0.25, 3.0)),
    "polygamma": Case(lambda x: torch.polygamma(1, x), args=(1,)),
    "pow": Case(lambda x: x**2.5, args=(2.5,)),
    "rpow": Case(lambda x: 1.5**x, args=(1.5,)),
    "rdiv": Case(lambda x: 3 / x, args=(3.0,)),
    "div_no_nan": Case(lambda x: x / 4, args=(4.0,)),
    "clamp": Case(lambda x: x.clamp(-0.5, 0.75), args=(-0.5, 0.75)),
    "clip": Case(lambda x: x.clamp_max(0.75), kwargs={"max": 0.75}),
    "add": Case(torch.add, 2),
    "sub": Case(torch.sub, 2),
    "mul": Case(torch.mul, 2),
    "div": Case(torch.div, 2),
    "rsub": Case(lambda a, b: b - a, 2),
    "fmod": Case(torch.fmod, 2),
    "remainder": Case(torch.remainder, 2),
    "atan2": Case(torch.atan2, 2),
    "hypot": Case(torch.hypot, 2),
    "ldexp": Case(lambda a, b: a * 2**b, 2),
    "logaddexp": Case(torch.logaddexp, 2),
    "logaddexp2": Case(torch.logaddexp2, 2),
    "xlogy": Case(torch.xlogy, 2),
    "max": Case(torch.maximum, 2),
    "min": Case(torch.minimum, 2),
    "squared_difference": Case(lambda a, b: (a - b) ** 2, 2),
    "addalpha": Case(lambda a, b: a + 0.3 * b, 2, args=(0.3,)),
    "subalpha": Case(lambda a, b: a - 0.3 * b, 2, args=(0.3,)),
    "bias_gelu": Case(lambda a, b: F.gelu(a + b), 2),
    "lerp": Case(lambda a, b, c: a + c * (b - a), 3),
    "addcmul": Case(lambda a, b, c: a + 0.3 * b * c, 3, args=(0.3,)),
    "addcdiv": Case(lambda a, b, c: a + 0.3 * b / c, 3, args=(0.3,)),
}


@pytest.fixture(scope="module")
def several() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as mesh:
        yield mesh


def operands(name: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
    low, high = DOMAIN.get(name, (-2, 2))
    generator = torch.Generator().manual_seed(len(name))
    spread = torch.rand(CASES[name].tensors, 4, 16, generator=generator, dtype=torch.float64)
    return torch.rand(4, 16, generator=generator, dtype=torch.float64) - 0.5, list(spread * (high - low) + low)


def slopes(name: str, grad: torch.Tensor, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    found = []
    for at, x in enumerate(tensors):
        before, after = ([*tensors[:at], x + step, *tensors[at + 1 :]] for step in (-NEAR, NEAR))
        function = CASES[name].function
        found.append(grad * (function(*after) - function(*before)) / (2 * NEAR))
    return found


@pytest.mark.parametrize("words", [(R, R), (S(0), S(1)), (S(1), S(1))], ids=str)
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_gradient_is_the_slope_on_one_device_and_on_split_operands(
    name: str, words: Any, several: ttnn.MeshDevice
) -> None:
    case = CASES[name]
    grad, tensors = operands(name)
    placed = [put(x.float(), several, words) for x in (grad, *tensors)]
    results = OPERATIONS[f"{name}_bw"](*placed, *case.args, **case.kwargs)
    assert isinstance(results, list)
    expected = slopes(name, grad, tensors)
    assert len(results) == len(expected)
    for result, slope in zip(results, expected, strict=True):
        assert ttnn.placements(result) == words
        torch.testing.assert_close(ttnn.compose(result).double(), slope, rtol=1e-3, atol=1e-4)


def test_every_gradient_has_a_case() -> None:
    own = {"embedding", "experimental.gelu", "fill", "where"}
    own |= {"assign", "concat", "prod", "repeat"}  # tests/unit/test_ops_more_families.py
    names = {name.removesuffix("_bw") for name in OPERATIONS if name.endswith("_bw")}
    assert names == CASES.keys() | own


@pytest.mark.parametrize("words", [(R, R), (S(0), S(1))], ids=str)
def test_where_sends_the_gradient_to_the_side_that_was_taken(words: Any, several: ttnn.MeshDevice) -> None:
    grad, x = torch.arange(8.0).reshape(2, 4) + 1, torch.tensor([[0.0, 1, 0, 2], [1, 0, 0, -1]])
    placed = [put(t, several, words) for t in (grad, x, x, x)]
    taken, other = ttnn.where_bw(*placed)
    assert torch.equal(ttnn.compose(taken), grad * (x != 0))
    assert torch.equal(ttnn.compose(other), grad * (x == 0))
    assert ttnn.where_bw(*placed, are_required_outputs=[False, True])[0] is None


def test_fill_sums_the_gradient_of_each_device(several: ttnn.MeshDevice) -> None:
    grad = torch.arange(8.0).reshape(2, 4)
    (whole,) = ttnn.fill_bw(put(grad, several), put(grad, several))
    assert torch.equal(ttnn.compose(whole), torch.full((2, 4), 28.0))
    (pieces,) = ttnn.fill_bw(put(grad, several, (S(0), R)), put(grad, several, (S(0), R)))
    assert ttnn.placements(pieces) == (ttnn.Local(), R)
    assert [float(t[0, 0]) for t in pieces.pieces()] == [6.0, 6.0, 22.0, 22.0]


def test_gradients_go_where_they_are_told(several: ttnn.MeshDevice) -> None:
    grad, (a, b) = operands("mul")
    placed = [put(x.float(), several) for x in (grad, a, b)]
    targets = [ttnn.zeros_like(placed[0]) for _ in range(2)]
    results = ttnn.mul_bw(*placed, input_grad=targets[0], other_grad=targets[1])
    assert results[0] is targets[0]
    assert results[1] is targets[1]
    torch.testing.assert_close(ttnn.compose(targets[1]), (grad * a).float())
    assert ttnn.tanh_bw(*placed[:2], input_grad=targets[0]) == [targets[0]]
    kept = ttnn.mul_bw(*placed, are_required_outputs=[True, False])
    assert kept[1] is None


def test_a_number_beside_the_tensor_has_no_gradient(several: ttnn.MeshDevice) -> None:
    grad, (a, _) = operands("mul")
    placed = [put(x.float(), several) for x in (grad, a)]
    for results in (ttnn.mul_bw(*placed, 3.0), ttnn.mul_bw(placed[0], input_tensor_a=placed[1], scalar=3.0)):
        assert len(results) == 1
        torch.testing.assert_close(ttnn.compose(results[0]), (3 * grad).float())


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_older_gelu_gives_its_gradient_by_itself(approximate: str, several: ttnn.MeshDevice) -> None:
    grad, (x,) = operands("gelu")
    result = ttnn.experimental.gelu_bw(
        put(grad.float(), several, (S(0), R)), put(x.float(), several, (S(0), R)), approximate=approximate
    )
    function = lambda x: F.gelu(x, approximate=approximate)  # noqa: E731
    slope = grad * (function(x + NEAR) - function(x - NEAR)) / (2 * NEAR)
    torch.testing.assert_close(ttnn.compose(result).double(), slope, rtol=1e-3, atol=1e-4)


def test_a_gradient_that_is_still_a_sum_stays_one(several: ttnn.MeshDevice) -> None:
    grad, (x,) = operands("gelu")
    addends = ttnn.sum(put(torch.stack([grad, grad]).float(), several, (S(0), R)), 0)
    assert ttnn.placements(addends) == (ttnn.Partial("sum"), R)
    (result,) = ttnn.gelu_bw(addends, put(x.float(), several))
    assert ttnn.placements(result) == (ttnn.Partial("sum"), R)
    with pytest.warns(ttnn.PartialWarning, match="input_tensor is still"):
        ttnn.gelu_bw(put(grad.float(), several), addends)


def test_operands_of_other_shapes_are_refused(several: ttnn.MeshDevice) -> None:
    with pytest.raises(ttnn.MeshError, match="of one shape"):
        ttnn.add_bw(*(put(torch.zeros(shape), several) for shape in ((2, 4), (2, 4), (1, 4))))


# -- the table of an embedding ---------------------------------------------------------------------


def embedding_gradient(ids: torch.Tensor, rows: int, grad: torch.Tensor) -> torch.Tensor:
    table = torch.zeros(rows, grad.shape[-1], requires_grad=True)
    F.embedding(ids, table).backward(grad.reshape(*ids.shape, -1))  # type: ignore[no-untyped-call]
    assert table.grad is not None
    return table.grad


@pytest.mark.parametrize(
    ("ids_words", "grad_words", "expected"),
    [
        ((R, R), (R, R), (R, R)),
        ((S(0), R), (S(2), R), (ttnn.Partial("sum"), R)),
        ((R, R), (R, S(3)), (R, S(3))),
        ((S(0), R), (S(2), S(3)), (ttnn.Partial("sum"), S(3))),
    ],
    ids=str,
)
def test_rows_sum_the_gradients_of_the_tokens_that_picked_them(
    ids_words: Any, grad_words: Any, expected: Any, several: ttnn.MeshDevice
) -> None:
    ids = torch.tensor([[0, 2, 2, 1], [3, 2, 0, 0]])
    grad = torch.rand(1, 1, 8, 6, generator=torch.Generator().manual_seed(1))
    rows = put(ids, several, ids_words, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    table = put(torch.zeros(5, 3 if S(3) in grad_words else 6), several)
    result = ttnn.embedding_bw(rows, table, put(grad, several, grad_words))
    assert ttnn.placements(result) == expected
    if ttnn.Partial("sum") in expected:
        with ttnn.lenient():
            result = ttnn.all_reduce(result, cluster_axis=0)
    torch.testing.assert_close(ttnn.compose(result)[0, 0], embedding_gradient(ids, 5, grad))
