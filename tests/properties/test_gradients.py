"""Every gradient is the derivative: of each op and each collective, on each device, by differences in float64."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import collective_calls
import gradient_calls
import pytest
import torch
from differences import check, floats, lying_as
from doubles import in_double
from gradient_calls import Given
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from op_calls import CALLS, Call, calls, operation_names
from strategies import LAWS, Like, Words, mesh_of, odd_ones, quietly, seeds
from test_golden_functions import ARGUMENTS, LARGER, SHAPES, written_out

import softmesh as ttnn
from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.operation import OPERATIONS
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")  # of one element
GIVEN = gradient_calls.GIVEN | gradient_calls.FAMILIES
MESHES = [(2, 2), (2, 3), (2, 2, 2), (3,), (1, 2), (1, 1)]
EXAMPLES = settings(LAWS, max_examples=3, phases=[Phase.generate])  # to make one smaller takes minutes

REASONS: dict[str, str] = {
    "takes or gives whole numbers": """
        bitcast bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor gcd lcm
        experimental.deepseek_prefill.masked_bincount logical_left_shift logical_right_shift
    """,
    "answers yes or no": """
        eq eqz ge gez gt gtz isclose isfinite isinf isnan isneginf isposinf le lez logical_and logical_not logical_or
        logical_xor lt ltz ne nez signbit
    """,
    "gives places, not values": "argmax experimental.topk_large_indices nonzero",
    "looks at shapes only": """
        empty_like fill fill_ones_rm fill_rm fill_zero_bw full_like moreh_full_like ones_like zeros_like
    """,
    "is level wherever it is smooth": "ceil_bw floor_bw heaviside nextafter round_bw sign_bw trunc_bw",
    "rounds to eight bits": """
        experimental.deepseek_prefill.pack_scaled_fp8_kv_cache experimental.deepseek_prefill.per_token_cast_back
        experimental.deepseek_prefill.per_token_cast_to_fp8
    """,
    "writes into a tensor that must be given": "experimental.all_to_all_async experimental.high_bw_all_gather",
    "needs a ring, and is reduce_scatter there": "experimental.reduce_scatter_minimal_direct",
    "draws": "bernoulli sampling",
    "has no derivative in torch": "hardsigmoid_bw",
    "takes operands of other shapes than its gradient": "concat_bw prod_bw repeat_bw",
    "goes from numbers to levels, or back": "quantize dequantize requantize",
    "is a step of an optimizer": "moreh_adam moreh_adamw moreh_sgd",
    "is a gradient itself, compared with torch's where it is tested": """
        moreh_bmm_backward moreh_cumsum_backward moreh_dot_backward moreh_group_norm_backward moreh_layer_norm_backward
        moreh_linear_backward moreh_logsoftmax_backward moreh_matmul_backward moreh_mean_backward
        moreh_nll_loss_backward moreh_nll_loss_unreduced_backward moreh_norm_backward moreh_softmax_backward
        moreh_softmin_backward moreh_sum_backward
    """,
    "has its gradient as an op of its own": "moreh_group_norm moreh_layer_norm moreh_nll_loss moreh_norm",
    "moves values to places that integers name": "moreh_fold moreh_getitem",
}
NOT_DIFFERENTIABLE: dict[str, str] = {
    **{name: reason for reason, names in REASONS.items() for name in names.split()},
    **{name: "writes in place" for name in operation_names() if OPERATIONS[name].definition.writes},
}

# Where an op has values and no kink or pole is near.
DOMAINS: dict[str, str] = {
    **dict.fromkeys(("acos", "asin", "atanh", "erfinv", "tan"), "-0.9 to 0.9"),
    **dict.fromkeys(("acosh",), "1.1 to 3"),
    **dict.fromkeys(("digamma", "lgamma", "log", "log10", "log1p", "log2", "xlogy"), "0.5 to 3"),
    **dict.fromkeys(("reciprocal", "rsqrt", "sqrt", "cbrt", "fmod", "remainder"), "0.5 to 3"),
}


def words_for(rank: int) -> st.SearchStrategy[Placement]:
    split = [Shard(dim) for dim in range(rank)]
    return st.sampled_from([REPLICATE, REPLICATE, LOCAL, Partial("sum"), *split])


@st.composite
def operands(
    draw: st.DrawFn, likes: Sequence[Like | torch.Tensor], mesh: ttnn.MeshDevice, *, may_be_odd: bool
) -> list[ttnn.Tensor]:
    """Replicated, split, partial sums, each device's own; now and then on other grids or on some of the devices."""
    tensors = []
    seed = draw(seeds)
    for at, like in enumerate(likes):
        is_odd = may_be_odd and len(list(mesh.shape)) == 2 and draw(st.integers(0, 9)) == 9
        if is_odd and isinstance(like, Like):
            tensors.append(draw(odd_ones(mesh, like, seed + at)).detach())
            continue
        rank = like.dim() if isinstance(like, torch.Tensor) else len(like.shape)
        words: Words = tuple(draw(words_for(rank)) for _ in mesh.shape)
        tensors.append(lying_as(mesh, like, words, seed + at))
    assume(set.intersection(*(set(one.view_distribution().coordinates()) for one in tensors)))
    return tensors


def differentiable() -> list[str]:
    return [name for name in operation_names() if name not in NOT_DIFFERENTIABLE]


def generated() -> list[str]:
    return [name for name in differentiable() if name in CALLS and name not in GIVEN]


def by_name() -> list[str]:
    return [name for name in differentiable() if name in GIVEN]


def element_wise() -> list[str]:
    """Ops whose operands are tensors of one shape: derivatives, and those that are compared with torch that way."""
    taken = {*CALLS, *GIVEN}
    return [name for name in differentiable() if name not in taken and (name.endswith("_bw") or name in written_out())]


def real(like: Like, name: str) -> Like:
    kind = DOMAINS.get(name, "real" if like.values == "whole" else like.values)
    return replace(like, values=kind) if like.dtype is ttnn.float32 else like


@pytest.mark.parametrize("name", generated())
@settings(EXAMPLES)
@given(data=st.data())
def test_the_gradient_of_an_op_is_its_derivative_on_each_device(name: str, data: st.DataObject) -> None:
    op, mesh = OPERATIONS[name], mesh_of(data.draw(st.sampled_from(MESHES)))
    call: Call = data.draw(calls(name, [ttnn.float32]))
    likes = [real(like, name) for like in call.operands]
    assume(any(like.dtype is ttnn.float32 for like in likes))
    _check(data, mesh, likes, lambda tensors: call.run(op, tensors, call.shape))


def _check(
    data: st.DataObject, mesh: ttnn.MeshDevice, likes: Sequence[Any], function: Any, may_be_odd: bool = True
) -> None:
    with in_double(), quietly():
        tensors = data.draw(operands(likes, mesh, may_be_odd=may_be_odd))
        alike = data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
        check(function, tensors, data.draw(seeds), alike)


@pytest.mark.parametrize("name", by_name())
@settings(EXAMPLES, max_examples=2)
@given(data=st.data())
def test_so_is_the_gradient_of_an_op_with_a_call_of_its_own(name: str, data: st.DataObject) -> None:
    _check_named(data, mesh_of(data.draw(st.sampled_from(MESHES))), name, GIVEN[name])


def _check_named(data: st.DataObject, mesh: ttnn.MeshDevice, name: str, call: Given) -> None:
    op = OPERATIONS[name]

    def run(tensors: Sequence[ttnn.Tensor]) -> Any:
        given = [call.before(tensors[0]), *tensors[1:]]
        return op(**dict(zip(call.operands, given, strict=True)), **call.options)

    _check(data, mesh, list(call.operands.values()), run, may_be_odd=not is_collective(op))


@pytest.mark.parametrize("name", element_wise())
@settings(EXAMPLES, max_examples=2)
@given(data=st.data())
def test_so_is_the_gradient_of_an_op_of_tensors_of_one_shape(name: str, data: st.DataObject) -> None:
    signature, options = OPERATIONS[name].definition.signature, ARGUMENTS.get(name, {})
    needed = [
        operand
        for operand, at in zip(signature.operand_names, signature.operand_at, strict=True)
        if operand not in options and signature.defaults[at] is inspect.Parameter.empty
    ]
    low = 0.3 + LARGER.get(name, 0.0)
    like = Like(SHAPES.get(name, (2, 3)), values=f"{low} to {low + 0.6}")
    mesh = mesh_of(data.draw(st.sampled_from(MESHES)))
    _check_named(data, mesh, name, Given(dict.fromkeys(needed, like), options))


def collectives() -> list[str]:
    return [name for name in differentiable() if name in collective_calls.CALLS]


# Placements are drawn anyhow, and most of them are told to be mistakes.
@pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning")
@pytest.mark.parametrize("name", collectives())
@settings(EXAMPLES, max_examples=6)
@given(data=st.data())
def test_what_a_collective_brought_goes_back_to_where_it_came_from(name: str, data: st.DataObject) -> None:
    meshes = [(4, 1)] if name == "reduce_to_root" else [shape for shape in MESHES if shape != (1, 1)]
    shape = data.draw(st.sampled_from(meshes))
    axis = data.draw(st.sampled_from([axis for axis, n in enumerate(shape) if n > 1]))
    assume(axis < 2 or name != "mesh_partition")
    with ttnn.lenient():
        _check_named(data, mesh_of(shape), name, collective_calls.CALLS[name](mesh_of(shape), axis))


def test_every_op_is_differentiated_here_or_has_a_reason_not_to_be() -> None:
    checked = {*generated(), *by_name(), *element_wise(), *collectives()}
    left_out = sorted(set(operation_names()) - checked - set(NOT_DIFFERENTIABLE))
    assert not left_out, (
        f"{left_out}: give each a call (op_calls, gradient_calls, collective_calls), or a reason in REASONS"
    )
    assert not set(NOT_DIFFERENTIABLE) - set(operation_names()), "there are no such ops any more"


@pytest.mark.parametrize("name", [name for name in sorted(NOT_DIFFERENTIABLE) if name in CALLS])
@settings(EXAMPLES, max_examples=2)
@given(data=st.data())
def test_results_of_an_op_that_has_no_derivative_require_no_gradient(name: str, data: st.DataObject) -> None:
    call: Call = data.draw(calls(name, [ttnn.float32]))
    mesh = mesh_of(data.draw(st.sampled_from(MESHES)))
    with quietly():
        tensors = data.draw(operands(call.operands, mesh, may_be_odd=True))
        leaves = [one.requires_grad_() if floats(one) else one for one in tensors]
        results = call.run(OPERATIONS[name], leaves, call.shape)
    assert not any(one.requires_grad for one in (results if isinstance(results, list) else [results]))


class _Wrong(ttnn.train.Function):
    @staticmethod
    def forward(ctx: Any, x: ttnn.Tensor) -> Any:
        return ttnn.square(x)

    @staticmethod
    def backward(ctx: Any, gradient: ttnn.Tensor) -> Any:
        return gradient


@settings(EXAMPLES)
@given(seed=seeds)
def test_a_gradient_that_is_no_derivative_is_found(seed: int) -> None:
    with in_double():
        x = lying_as(mesh_of((2, 2)), Like((2, 3)), (REPLICATE, Shard(0)), seed)
        with pytest.raises(AssertionError, match="differences"):
            check(lambda tensors: _Wrong.apply(tensors[0]), [x], 0, [False, False])
