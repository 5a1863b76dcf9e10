"""The moreh ops against torch: results, gradients, output tensors, results that are not asked for; and on a mesh."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operands import R, S

import softmesh as ttnn


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def put(x: torch.Tensor, device: ttnn.MeshDevice, dtype: Any = None, layout: Any = ttnn.TILE_LAYOUT) -> Any:
    return ttnn.from_torch(x, dtype, layout=layout, device=device)


def close(found: Any, expected: torch.Tensor) -> None:
    values = ttnn.to_torch(found)
    torch.testing.assert_close(values.reshape(expected.shape).double(), expected.double(), rtol=1e-4, atol=1e-5)


def gradients(function: Callable[..., torch.Tensor], grad: torch.Tensor, *values: torch.Tensor) -> Any:
    leaves = [value.clone().requires_grad_() for value in values]
    made = function(*leaves)
    if not made.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return torch.autograd.grad(made, leaves, grad, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("dim", [None, 1, [0, 2], -1])
@pytest.mark.parametrize("keepdim", [True, False])
def test_sums_means_and_norms(dim: Any, keepdim: bool, device: ttnn.MeshDevice) -> None:
    x = rand(3, 4, 40)
    at, dims = put(x, device), tuple(range(3)) if dim is None else dim
    close(ttnn.moreh_sum(at, dim, keepdim=keepdim), x.sum(dims, keepdim=keepdim))
    close(ttnn.moreh_abs_pow(at, 1.5), x.abs() ** 1.5)
    close(ttnn.moreh_mean(at, dim=dim, keepdim=keepdim), x.mean(dims, keepdim=keepdim))
    close(ttnn.moreh_mean(at, dim=dim, keepdim=keepdim, divisor=7), x.sum(dims, keepdim=keepdim) / 7)
    for p in (2.0, 2.5, 0.0, math.inf, -math.inf):
        norm = torch.linalg.vector_norm(x, p, dims, keepdim=keepdim)
        found = ttnn.moreh_norm(at, p, dim=dim, keepdim=keepdim)
        close(found, norm)
        grad = rand(*norm.shape, seed=1)
        (slope,) = gradients(lambda v, p=p: torch.linalg.vector_norm(v, p, dims, keepdim=keepdim), grad, x)
        made = ttnn.moreh_norm_backward(at, found, put(grad, device), p, dim=dim, keepdim=keepdim)
        close(made, slope)


@pytest.mark.parametrize("dim", [None, 1, [0, 2]])
def test_what_was_summed_or_averaged_gets_its_gradient(dim: Any, device: ttnn.MeshDevice) -> None:
    x, dims = rand(3, 4, 40), tuple(range(3)) if dim is None else dim
    grad = rand(*x.sum(dims).shape)
    close(
        ttnn.moreh_sum_backward(put(grad, device), input=put(x, device), dim=dim),
        gradients(lambda v: v.sum(dims), grad, x)[0],
    )
    into = put(torch.zeros_like(x), device)
    made = ttnn.moreh_mean_backward(put(grad, device), dim=dim, input_grad=into)
    assert made is into
    close(into, gradients(lambda v: v.mean(dims), grad, x)[0])
    close(ttnn.moreh_cumsum_backward(put(x, device), 1), gradients(lambda v: v.cumsum(1), x, x)[0])


@pytest.mark.parametrize(
    ("name", "function"),
    [("softmax", torch.softmax), ("softmin", lambda x, dim: F.softmin(x, dim)), ("logsoftmax", torch.log_softmax)],
)
def test_soft_maxima_and_their_gradients(name: str, function: Any, device: ttnn.MeshDevice) -> None:
    x, grad = rand(2, 5, 40), rand(2, 5, 40, seed=1)
    made = getattr(ttnn.operations.moreh, name)(put(x, device), 1)
    close(made, function(x, 1))
    back = getattr(ttnn.operations.moreh, f"{name}_backward")(made, put(grad, device), 1)
    close(back, gradients(lambda v: function(v, 1), grad, x)[0])


def test_products_and_their_gradients(device: ttnn.MeshDevice) -> None:
    a, b, grad = rand(2, 6, 8), rand(2, 8, 5, seed=1), rand(2, 6, 5, seed=2)
    on = put(a, device), put(b, device)
    close(ttnn.moreh_bmm(*on), a @ b)
    for found, expected in zip(
        ttnn.moreh_bmm_backward(put(grad, device), *on), gradients(torch.bmm, grad, a, b), strict=True
    ):
        close(found, expected)
    bias = rand(1, 1, 1, 5, seed=4)
    made = ttnn.moreh_matmul(put(a.mT, device), on[1], transpose_input=True, bias=put(bias, device))
    close(made, a @ b + bias.flatten())
    single = rand(8, 5, seed=3)
    found = ttnn.moreh_matmul_backward(
        put(grad, device), on[0], put(single, device), are_required_outputs=[False, True]
    )
    assert found[0] is None
    close(found[1], gradients(torch.matmul, grad, a, single)[1])
    x, y = rand(1, 1, 1, 9), rand(1, 1, 1, 9, seed=1)
    into = put(torch.zeros_like(x), device)
    slopes = ttnn.moreh_dot_backward(
        put(torch.full((1, 1, 1, 1), 2.0), device), put(x, device), put(y, device), input_grad=into
    )
    assert slopes == [into, None]
    close(into, 2 * y)


@pytest.mark.parametrize("bias_shape", [None, (1, 5), (1, 1)])
def test_linear_and_its_gradients(bias_shape: Any, device: ttnn.MeshDevice) -> None:
    x, weight, grad = rand(2, 6, 8), rand(5, 8, seed=1), rand(2, 6, 5, seed=2)
    bias = None if bias_shape is None else rand(*bias_shape, seed=3)
    on = None if bias is None else put(bias, device)
    expected = x @ weight.mT + (0 if bias is None else bias)
    close(ttnn.moreh_linear(put(x, device), put(weight, device), bias=on), expected)
    made = ttnn.moreh_linear_backward(put(grad, device), put(x, device), put(weight, device), bias=on)
    known = gradients(lambda v, w: v @ w.mT, grad, x, weight)
    close(made[0], known[0])
    close(made[1], known[1])
    assert (made[2] is None) is (bias is None)
    if bias is not None:
        close(made[2], gradients(lambda b: expected.detach() * 0 + b, grad, bias)[0])


@pytest.mark.parametrize("dims", [1, 2])
def test_layer_norm_and_its_gradients(dims: int, device: ttnn.MeshDevice) -> None:
    x, grad = rand(3, 4, 40), rand(3, 4, 40, seed=1)
    inner = x.shape[-dims:]
    gamma, beta = rand(*inner, seed=2), rand(*inner, seed=3)
    mean, rstd = (put(torch.zeros(*x.shape[:-dims]), device) for _ in range(2))
    made = ttnn.moreh_layer_norm(
        put(x, device), dims, 1e-5, put(gamma, device), put(beta, device), mean=mean, rstd=rstd
    )
    close(made[0], F.layer_norm(x, inner, gamma, beta))
    assert made[1] is mean
    assert ttnn.moreh_layer_norm(put(x, device), dims)[1:] == [None, None]
    into = [put(torch.zeros(*inner), device) for _ in range(2)]
    back = ttnn.moreh_layer_norm_backward(
        put(grad, device),
        put(x, device),
        mean,
        rstd,
        dims,
        gamma=put(gamma, device),
        gamma_grad=into[0],
        beta_grad=into[1],
    )
    known = gradients(lambda v, g, b: F.layer_norm(v, inner, g, b), grad, x, gamma, beta)
    for found, expected in zip(back, known, strict=True):
        close(found, expected)


def test_group_norm_and_its_gradients(device: ttnn.MeshDevice) -> None:
    x, grad = rand(2, 6, 4, 5), rand(2, 6, 4, 5, seed=1)
    gamma, beta = rand(6, seed=2), rand(6, seed=3)
    flat = [put(v.reshape(1, 1, 1, 6), device) for v in (gamma, beta)]
    made = ttnn.moreh_group_norm(put(x, device), 3, 1e-5, *flat, are_required_outputs=[True, True, True])
    close(made[0], F.group_norm(x, 3, gamma, beta))
    assert list(made[1].shape) == [1, 1, 2, 3]
    assert ttnn.moreh_group_norm(put(x, device), 3)[1:] == [None, None]
    back = ttnn.moreh_group_norm_backward(
        put(grad, device), put(x, device), *made[1:], 3, are_required_outputs=[True] * 3, gamma=flat[0]
    )
    known = gradients(lambda v, g, b: F.group_norm(v, 3, g, b), grad, x, gamma, beta)
    for found, expected in zip(back, known, strict=True):
        close(found, expected)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighed", [True, False])
def test_negative_log_likelihoods_and_their_gradients(reduction: str, weighed: bool, device: ttnn.MeshDevice) -> None:
    x, target, weight = rand(4, 3, 5), torch.randint(0, 3, (4, 5)), rand(3, seed=1).abs() + 0.1
    target[0, 0] = 1
    named = {"weight": weight if weighed else None, "ignore_index": 1, "reduction": reduction}
    expected = F.nll_loss(x, target, **named)
    on = {"weight_tensor": put(weight, device) if weighed else None, "ignore_index": 1}
    where = put(target.int(), device, ttnn.int32)
    close(ttnn.moreh_nll_loss(put(x, device), where, reduction, **on), expected)
    grad, into = rand(*expected.shape, seed=2), put(torch.zeros_like(x), device)
    (known,) = gradients(lambda v: F.nll_loss(v, target, **named), grad, x)
    if reduction == "none":
        made = ttnn.moreh_nll_loss_unreduced_backward(where, put(grad, device), input_grad_tensor=into, **on)
    else:
        made = ttnn.moreh_nll_loss_backward(
            where, put(grad.reshape(1), device), reduction == "mean", input_grad_tensor=into, **on
        )
    close(made, known)


@pytest.mark.parametrize("amsgrad", [True, False])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_step_of_adam(name: str, amsgrad: bool, device: ttnn.MeshDevice) -> None:
    param = torch.nn.Parameter(rand(8, 40))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    optimizer = kind([param], lr=0.01, weight_decay=0.1, amsgrad=amsgrad)
    state = [put(param.detach(), device), *(put(torch.zeros(8, 40), device) for _ in range(3))]
    programs = []
    for step in (1, 2):
        param.grad = rand(8, 40, seed=step)
        optimizer.step()
        maxima = {"max_exp_avg_sq_in": state[3]} if amsgrad else {}
        step_of = getattr(ttnn, f"moreh_{name}")
        made = step_of(
            state[0],
            put(param.grad, device),
            *state[1:3],
            lr=0.01,
            weight_decay=0.1,
            step=step,
            amsgrad=amsgrad,
            **maxima,
        )
        state = made
        programs.append(device.num_program_cache_entries())
    assert programs[0] == programs[1], "numbers are handed to one program"
    assert (made[3] is None) is not amsgrad
    close(made[0], param.detach())


@pytest.mark.parametrize("nesterov", [True, False])
def test_steps_of_sgd(nesterov: bool, device: ttnn.MeshDevice) -> None:
    param = torch.nn.Parameter(rand(8, 40))
    optimizer = torch.optim.SGD([param], lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=nesterov)
    at, kept = put(param.detach(), device), None
    for step in range(3):
        param.grad = rand(8, 40, seed=step)
        optimizer.step()
        at, kept = ttnn.moreh_sgd(
            at, put(param.grad, device), kept, None, None, 0.1, 0.9, 0.0, 0.1, nesterov, momentum_initialized=step > 0
        )
    close(at, param.detach())
    assert ttnn.moreh_sgd(at, at, momentum_initialized=False)[1] is None


def test_gradients_are_clipped_together_in_place(device: ttnn.MeshDevice) -> None:
    parts = [rand(4, 5), rand(3, seed=1)]
    leaves = [torch.nn.Parameter(part) for part in parts]
    for leaf, part in zip(leaves, parts, strict=True):
        leaf.grad = part.clone()
    expected = torch.nn.utils.clip_grad_norm_(leaves, 0.5, 2.5)
    on = [put(part, device) for part in parts]
    close(ttnn.moreh_clip_grad_norm(on, 0.5, 2.5), expected)
    for found, leaf in zip(on, leaves, strict=True):
        close(found, leaf.grad)
    with pytest.raises(RuntimeError, match="non-finite"):
        ttnn.moreh_clip_grad_norm([put(torch.full((2,), math.nan), device)], 1.0, error_if_nonfinite=True)


def test_numbers_items_and_patches(device: ttnn.MeshDevice) -> None:
    close(ttnn.moreh_arange(3, 20, 2.5, device, dtype=ttnn.float32), torch.arange(3, 20, 2.5))
    assert list(ttnn.moreh_arange(0, 5, 1, device, untilize_out=True).shape) == [5]
    x = rand(4, 5, 6)
    index = torch.tensor([2, 0, 1], dtype=torch.int32)
    at = put(index, device, ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)
    close(ttnn.moreh_getitem(put(x, device), [at, at], [0, 1]), x[index.long(), index.long()])
    close(ttnn.moreh_getitem(put(x, device), [at], [1]), x[:, index.long()])
    with pytest.raises(RuntimeError, match="consecutive"):
        ttnn.moreh_getitem(put(x, device), [at, at], [0, 2])
    patches = rand(2, 3 * 4, 9)
    for found in (
        ttnn.moreh_fold(put(patches, device), None, output_size=[4, 4], kernel_size=[2, 2]),
        ttnn.moreh_fold(put(patches, device), None, [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
    ):
        close(found, F.fold(patches, (4, 4), (2, 2)))


def test_each_device_of_a_mesh_has_its_own_gradients(pair: ttnn.MeshDevice) -> None:
    x, grad = rand(4, 6, 40), rand(4, 6, 40, seed=1)
    split = ttnn.ShardTensorToMesh(pair, dim=0)
    on = [ttnn.from_torch(v, layout=ttnn.TILE_LAYOUT, device=pair, mesh_mapper=split) for v in (x, grad)]
    assert ttnn.placements(ttnn.moreh_sum(on[0], 0)) == (R, ttnn.Partial("sum"))
    made = ttnn.moreh_softmax(on[0], -1)
    assert ttnn.placements(made) == (R, S(0))
    torch.testing.assert_close(ttnn.compose(made), torch.softmax(x, -1))
    weight = put(rand(5, 40, seed=2), pair)
    upstream = ttnn.from_torch(rand(4, 6, 5, seed=3), layout=ttnn.TILE_LAYOUT, device=pair, mesh_mapper=split)
    slopes = ttnn.moreh_linear_backward(upstream, on[0], weight)
    for device, part in enumerate(ttnn.get_device_tensors(slopes[1])):
        rows = slice(2 * device, 2 * device + 2)
        close(part, torch.einsum("bno,bni->oi", rand(4, 6, 5, seed=3)[rows], x[rows]))
