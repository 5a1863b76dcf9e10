"""Attention of one new token of each user over the user's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.ops.attention.checks import (
    TUNING,
    check_keys,
    check_mask,
    check_rank_4,
    check_sink,
    check_window,
    own_keys,
)
from softmesh.ops.attention.kernel import attend, group, hide
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType, Layout

_DECODE = "transformer.scaled_dot_product_attention_decode"
Data = torch.Tensor | None
# (the part of the cache that is read, the position of each user or None) -> keys and values, (*axes, users, ...)
Fetch = Callable[[slice, Data], tuple[torch.Tensor, torch.Tensor]]


@operation(_DECODE, precision="data", controls="memory_config", tuning=TUNING)
def scaled_dot_product_attention_decode(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    *,
    is_causal: bool = True,
    attn_mask: Operand | None = None,
    cur_pos_tensor: Operand | None = None,
    attention_sink: Operand | None = None,
    cur_pos: Value | Sequence[int] | None = (),
    scale: float | None = None,
    sliding_window_size: int | None = None,
    share_cache: bool | None = None,
) -> Local:
    """q [1, users, heads, width] over caches k, v [users, kv_heads, length, width], on each device.

    User b sees positions up to and with `cur_pos[b]`; -1 skips the user, whose result is 0. With
    `is_causal=False` attn_mask [users, 1, heads, length] decides, or all is seen.
    `attention_sink` [heads, 32] has each head's score in its first column. With `share_cache` all users
    read one cache of batch 1.
    """
    q, k = input_tensor_q, input_tensor_k
    check_users(_DECODE, q, k, bool(share_cache))
    check_rank_4(_DECODE, input_tensor_v)
    check_keys(_DECODE, k, input_tensor_v, heads=q.shape[2], width=q.shape[3])
    listed = check_positions(_DECODE, q, cur_pos, cur_pos_tensor, attn_mask, is_causal)
    step = DecodeStep(_DECODE, q, k.shape[1], k.shape[2], q.shape[3], scale, sliding_window_size, is_causal)
    step.check(attn_mask, attention_sink)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: Data,
        current: Data,
        sink: Data,
        *numbers: int,
    ) -> torch.Tensor:
        given = current if current is not None or not listed else positions(numbers, q)
        return step.run(q, lambda part, _: (k[..., part, :], v[..., part, :]), mask, given, sink)

    rule = decode_rule(q, attn_mask, k.shape[0] == q.shape[1])
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * k.shape[2]))


@dataclass(frozen=True)
class DecodeStep:
    """One step over caches of `kv_heads` heads and `length` positions, whose values are `value_width` wide.

    With `modulo` positions are counted round and round: slot s holds the latest position that leaves s.
    """

    op: str
    q: Operand
    kv_heads: int
    length: int
    value_width: int
    scale: float | None
    window: int | None
    is_causal: bool
    modulo: int | None = None

    @property
    def grouped(self) -> tuple[int, int]:
        return self.kv_heads, self.q.shape[2] // self.kv_heads

    @property
    def factor(self) -> float:
        return self.q.shape[3] ** -0.5 if self.scale is None else self.scale

    def check(self, mask: Operand | None, sink: Operand | None) -> None:
        _, users, heads, _ = self.q.shape
        check_window(self.op, self.window)
        check_mask(self.op, mask, (users, 1, heads, self.length))
        check_sink(self.op, sink, (heads, 32))

    def run(self, q: torch.Tensor, fetch: Fetch, mask: Data, current: Data, sink: Data) -> torch.Tensor:
        lead = q.dim() - 4
        bias = None if mask is None else self._by_group(mask.select(-3, 0))
        score = None if sink is None else self._by_group(sink[..., :1]).unsqueeze(lead)
        part = slice(0, self.length)
        if self.is_causal:
            assert current is not None
            part = self.reach(current)
            bias = self._unseen(current, part)
        k, v = fetch(part, current)
        queries = self._by_group(q.select(-4, 0))
        out = attend(queries, k.float(), v.float(), bias, score, scale=self.factor)
        return self.finished(out, current, lead)

    def finished(self, out: torch.Tensor, current: Data, lead: int) -> torch.Tensor:
        """(*axes, users, ...) as the op returns it; users that are skipped get 0."""
        _, users, heads, _ = self.q.shape
        out = out.reshape(*out.shape[:lead], 1, users, heads, self.value_width)
        if current is None:
            return out
        return torch.where((current < 0).reshape(*current.shape[:-1], 1, users, 1, 1), 0.0, out)

    def _by_group(self, x: torch.Tensor) -> torch.Tensor:
        """(..., heads, n) as (..., key heads, 1, queries for each, n): the queries of a group become rows."""
        return group(x, -2, self.grouped).unsqueeze(-3).float()

    def reach(self, current: torch.Tensor) -> slice:
        """The part of the cache that any user sees."""
        last = int(current.max())
        if self.modulo is not None:
            return slice(0, min(max(last, 0) + 1, self.modulo))
        if last >= self.length:
            raise MeshError(
                f"{self.op}: cur_pos {last} lies outside the cache, which holds {self.length} positions."
            )
        earliest = int(current.clamp(min=0).min())
        first = 0 if self.window is None else max(0, earliest - self.window + 1)
        return slice(first, max(last, 0) + 1)

    def _unseen(self, current: torch.Tensor, part: slice) -> Data:
        """The bias that hides what follows each user's position, or lies before its window."""
        at = torch.arange(part.start, part.stop, device=current.device)
        latest = current.unsqueeze(-1)
        if self.modulo is not None:
            at = latest - (latest - at) % self.modulo
        visible = (at <= latest) & (at >= 0)
        if self.window is not None:
            visible &= at > latest - self.window
        if bool(visible.all()):
            return None
        return hide(visible).reshape(*current.shape, 1, 1, 1, part.stop - part.start)


def positions(numbers: Sequence[int], q: torch.Tensor) -> torch.Tensor:
    return torch.tensor(numbers, device=q.device).reshape(*(1,) * (q.dim() - 4), len(numbers))


def check_queries(op: str, q: Operand, *others: Operand) -> None:
    check_rank_4(op, q, *others)
    if q.shape[0] != 1:
        raise MeshError(f"{op}: {q.name} must be [1, users, heads, width], got {list(q.shape)}.")


def check_users(op: str, q: Operand, k: Operand, share_cache: bool = False) -> None:
    check_queries(op, q, k)
    caches = 1 if share_cache else q.shape[1]
    if k.shape[0] != caches:
        why = "share_cache=True" if share_cache else f"{q.name} holds {q.shape[1]} users"
        raise MeshError(f"{op}: {why}, so {k.name} must have batch {caches}, got {list(k.shape)}.")


def check_positions(
    op: str, q: Operand, numbers: object, tensor: Operand | None, mask: Operand | None, is_causal: bool
) -> list[Any]:
    """The positions that are given as numbers."""
    listed: list[Any] = list(numbers) if isinstance(numbers, Sequence) else []
    users = q.shape[1]
    if not is_causal:
        if listed or tensor is not None:
            raise MeshError(f"{op}: positions play no part with is_causal=False: pass an attn_mask instead.")
        return listed
    if mask is not None:
        raise MeshError(f"{op}: attn_mask is given and is_causal=True: pass is_causal=False with it.")
    if tensor is None and len(listed) != users:
        raise MeshError(
            f"{op}: cur_pos has {len(listed)} positions for {users} users on each device: pass one for each, "
            "or a cur_pos_tensor."
        )
    if any(isinstance(n, bool) or not isinstance(n, int) for n in listed):
        raise ArgumentError(f"{op}: cur_pos must hold ints, got {listed!r}")
    if tensor is not None:
        check_position_tensor(op, tensor, users)
    return listed


def check_position_tensor(op: str, tensor: Operand, users: int) -> None:
    if tensor.dtype is not DataType.INT32 or tensor.layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"Expect cur_pos to be INT32 and ROW_MAJOR: {op}: {tensor.name} is {tensor.dtype}, {tensor.layout}."
        )
    if tensor.shape != (users,):
        raise MeshError(f"{op}: {tensor.name} {list(tensor.shape)} must be [{users}], the users.")


def decode_rule(
    q: Operand, mask: Operand | None, own_caches: bool, *, mask_at: int = 3, table_at: int | None = None
) -> rules.Rule:
    """Users and heads may be split along with their caches; positions and sink follow the mask."""
    users, heads = [(0, 1), (mask_at + 1, 0)], [(0, 2), (1, 1), (2, 1), (mask_at + 2, 0)]
    users += [(1, 0), (2, 0)] if own_caches else []
    users += [] if table_at is None else [(table_at, 0)]
    if mask is not None:
        users += [(mask_at, 0)] if mask.shape[0] == q.shape[1] else []
        heads += [(mask_at, 2)] if mask.shape[2] == q.shape[2] else []
    return own_keys(rules.along({0: [(0, 0)], 1: users, 2: heads, 3: [(2, 3)]}), 2)
