"""What is one op to the program and several of TT-NN: softmesh.train's own ops, and the way back through attention.

Forward gives the results, and what is kept of it for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from softmesh.hardware.enums import DataType, Layout
from softmesh.ops.gradients import Constants, Found, Gradient, Rule, TapedCall, op, scaled, shaped, through_softmax
from softmesh.tensor.tensor import Tensor

_HIDDEN = -1e9
Made = tuple[Any, Any]  # results, and what is kept


class Composite(NamedTuple):
    forward: Callable[[Mapping[str, Any], Constants], Made]
    gradient: Rule


# -- losses ------------------------------------------------------------------------------------------


def _cross_entropy(given: Mapping[str, Any], constants: Constants) -> Made:
    logits, targets = given["logits"], given["targets"]
    *lead, width = tuple(logits.shape)
    numbers = torch.arange(width).float().reshape(*(1,) * len(lead), width)
    column = op("to_layout")(shaped(targets, (*lead, 1)), Layout.TILE)
    places = constants.put("vocabulary", numbers, DataType.FLOAT32, logits)
    wanted = op("eq")(places, op("typecast")(column, DataType.FLOAT32))
    top = op("max")(logits, -1, True)
    powers = op("exp")(op("subtract")(logits, top))
    total = op("sum")(powers, -1, True)
    picked = op("sum")(op("multiply")(logits, wanted), -1, True)
    rows = op("subtract")(op("add")(op("log")(total), top), picked)
    return op("mean")(rows), (powers, total, wanted)


def _cross_entropy_gradient(call: TapedCall, g: Gradient) -> Found:
    powers, total, wanted = call.saved
    rows = powers.logical_volume() // tuple(powers.shape)[-1]
    off = op("subtract")(op("divide")(powers, total), wanted)
    return {"logits": scaled(op("multiply")(off, 1 / rows), g)}


def _mean_square(given: Mapping[str, Any], constants: Constants) -> Made:
    off = op("subtract")(given["a"], given["b"])
    return op("mean")(op("multiply")(off, off)), off


def _mean_square_gradient(call: TapedCall, g: Gradient) -> Found:
    found = scaled(op("multiply")(call.saved, 2 / call.saved.logical_volume()), g)
    return {"a": found} | ({"b": op("neg")(found)} if call.needs("b") else {})


# -- attention ---------------------------------------------------------------------------------------


def _split_heads(given: Mapping[str, Any], constants: Constants) -> Made:
    """Features are, head by head, a query, a key and a value."""
    x, heads = given["x"], given["heads"]
    batch, _, tokens, features = tuple(x.shape)
    width = features // (heads * 3)
    by_head = op("permute")(op("reshape")(x, (batch, tokens, heads, 3 * width)), (0, 2, 1, 3))
    whole = (batch, heads, tokens)
    parts = [op("slice")(by_head, [0, 0, 0, at * width], [*whole, (at + 1) * width]) for at in range(3)]
    return tuple(parts), None


def _split_heads_gradient(call: TapedCall, gradients: list[Tensor | None]) -> Found:
    parts = [op("zeros_like")(made) if g is None else g for g, made in zip(gradients, call.results, strict=True)]
    by_token = op("permute")(op("concat")(parts, -1), (0, 2, 1, 3))
    return {"x": op("reshape")(by_token, tuple(call["x"].shape))}


def _join_heads(given: Mapping[str, Any], constants: Constants) -> Made:
    x = given["x"]
    batch, heads, tokens, width = tuple(x.shape)
    return op("reshape")(op("permute")(x, (0, 2, 1, 3)), (batch, 1, tokens, heads * width)), None


def _join_heads_gradient(call: TapedCall, g: Tensor) -> Found:
    batch, heads, tokens, width = tuple(call["x"].shape)
    return {"x": op("permute")(op("reshape")(g, (batch, tokens, heads, width)), (0, 2, 1, 3))}


def attention_gradient(call: TapedCall, g: Tensor) -> Found:
    """The shares are computed again: they are as large as all pairs of tokens."""
    for name in ("sliding_window_size", "attention_sink", "cu_window_seqlens", "output_concat_heads"):
        if call[name]:
            raise TypeError(f"{name}={call[name]}")
    q, k, v = (call[f"input_tensor_{part}"] for part in "qkv")
    groups, scale = q.shape[1] // k.shape[1], call["scale"] or q.shape[3] ** -0.5
    if groups > 1:
        k, v = (op("repeat_interleave")(one, groups, 1) for one in (k, v))
    scores = op("multiply")(op("matmul")(q, k, transpose_b=True), scale)
    if call["attn_mask"] is not None:
        scores = op("add")(scores, call["attn_mask"])
    elif call["is_causal"]:
        ahead = torch.triu(torch.ones(q.shape[2], k.shape[2]), 1) * _HIDDEN
        scores = op("add")(scores, call.constants.put("causal_mask", ahead[None, None], q.dtype, q))
    shares = op("softmax")(scores, -1)
    d_shares = op("matmul")(g, v, transpose_b=True)
    d_scores = op("multiply")(through_softmax(shares, d_shares), scale)
    return {
        "input_tensor_q": op("matmul")(d_scores, k),
        "input_tensor_k": _over_groups(op("matmul")(d_scores, q, transpose_a=True), groups),
        "input_tensor_v": _over_groups(op("matmul")(shares, g, transpose_a=True), groups),
    }


def _over_groups(g: Tensor, groups: int) -> Tensor:
    """The sum over the heads that share a head of keys."""
    if groups == 1:
        return g
    batch, heads, tokens, width = tuple(g.shape)
    by_group = op("reshape")(g, (batch * heads // groups, groups, tokens, width))
    return shaped(op("sum")(by_group, 1, True), (batch, heads // groups, tokens, width))


COMPOSITES: dict[str, Composite] = {
    "train.cross_entropy": Composite(_cross_entropy, _cross_entropy_gradient),
    "train.mean_square": Composite(_mean_square, _mean_square_gradient),
    "train.split_heads": Composite(_split_heads, _split_heads_gradient),
    "train.join_heads": Composite(_join_heads, _join_heads_gradient),
}
