"""The arithmetic that all forms of attention share.

Grouped heads, and mesh axes along which the keys are stored once, are folded beside the queries: keys
and values are never copied for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

import torch
import torch.nn.functional as F

from softmesh.broadcasting import broadcast_shapes

_HIDDEN = float("-inf")


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    sink: torch.Tensor | None,
    *,
    scale: float,
    is_causal: bool = False,
) -> torch.Tensor:
    """q (*axes, group, rows, width) over k and v (*axes, keys, width).

    bias (*axes, group, rows, keys) is added to the scores; sink (*axes, group, rows, 1) is one more, before
    scaling. Any extent may be 1 where another operand has more.
    """
    if sink is not None:
        k, v, bias = _with_sink(k, v, bias, sink * scale)
    k, v = k.unsqueeze(-3), v.unsqueeze(-3)
    shapes = [x.shape[:-2] for x in (q, k, v, bias) if x is not None]
    extents = [max(sizes) for sizes in zip(*shapes, strict=True)]
    beside = [i for i, n in enumerate(extents) if n > 1 and k.shape[i] == v.shape[i] == 1]
    others = [i for i in range(len(extents)) if i not in beside]
    batch, heads = (others, beside) if beside else (others[:-2], others[-2:])
    q, k, v = (_folded(x, batch, heads, extents) for x in (q, k, v))
    full = (math.prod(extents[i] for i in batch), math.prod(extents[i] for i in heads))
    q, k, v = (x.expand(*full, *x.shape[2:]) for x in (q, k, v))
    mask = None if bias is None else _folded(bias, batch, heads, extents)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale)
    order = [*batch, *heads]
    spread = out.reshape(*(extents[i] for i in order), *out.shape[2:])
    back = [order.index(i) for i in range(len(order))]
    return spread.permute(*back, len(order), len(order) + 1)


def _folded(
    x: torch.Tensor, batch: Sequence[int], heads: Sequence[int], extents: Sequence[int]
) -> torch.Tensor:
    """(batch, heads, rows, columns): each side whole, or 1 where `x` has nothing of it."""
    sizes = [
        [extents[i] if any(x.shape[j] > 1 for j in side) else 1 for i in side] for side in (batch, heads)
    ]
    last = x.dim() - 2
    ordered = x.permute(*batch, *heads, last, last + 1)
    spread = ordered.expand(*sizes[0], *sizes[1], *x.shape[-2:])
    return spread.reshape(math.prod(sizes[0]), math.prod(sizes[1]), *x.shape[-2:])


def _with_sink(
    k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, sink: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One more key with a score of its own and a value of 0."""
    if bias is None:
        bias = torch.zeros(*(1,) * (sink.dim() - 1), k.shape[-2], device=k.device)
    shape = broadcast_shapes(bias.shape[:-1], sink.shape[:-1])
    scores = torch.cat([bias.expand(*shape, bias.shape[-1]), sink.expand(*shape, 1)], -1)
    return F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), scores


def hide(visible: torch.Tensor) -> torch.Tensor:
    """The bias under which only what is visible takes part."""
    return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, _HIDDEN)


def band(
    rows: int,
    keys: int,
    is_causal: bool,
    window: int | None,
    device: torch.device,
    first: torch.Tensor | int = 0,
) -> torch.Tensor:
    """Which keys each query sees: none that follow it, none further off than the window.

    `first` is the position of the first query; as a tensor (*axes) it is another for each device.
    """
    start = first.reshape(*first.shape, 1, 1) if isinstance(first, torch.Tensor) else first
    at = torch.arange(rows, device=device).unsqueeze(-1) + start
    ahead = torch.arange(keys, device=device) - at
    if not is_causal:
        assert window is not None
        return ahead.abs() <= window // 2
    return ahead <= 0 if window is None else (ahead <= 0) & (ahead > -window)


@overload
def group(x: torch.Tensor, dim: int, grouped: tuple[int, int]) -> torch.Tensor: ...
@overload
def group(x: None, dim: int, grouped: tuple[int, int]) -> None: ...
def group(x: torch.Tensor | None, dim: int, grouped: tuple[int, int]) -> torch.Tensor | None:
    """Query heads as (key heads, queries for each); what all heads share stays one."""
    if x is None:
        return None
    return x.unflatten(dim, grouped if x.shape[dim] > 1 else (1, 1))


def joined_heads(out: torch.Tensor) -> torch.Tensor:
    """(..., heads, rows, width) as (..., 1, rows, heads * width)"""
    return out.transpose(-3, -2).flatten(-2).unsqueeze(-3)
