"""scaled_dot_product_attention_decode: attention of one new token of each user over its KV cache; and attn_matmul."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.kinds import Kind
from softmesh.ops.attention.page_tables import read_on_cores
from softmesh.ops.attention.sdpa_core import (
    TUNING,
    attend,
    by_page_table,
    check_groups,
    check_keys,
    check_mask,
    check_rank_4,
    check_sink,
    check_window,
    group,
    mask_bias,
    split_with_key_heads,
)
from softmesh.ops.golden import golden_attention as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.ops.operand_checks import check_four_dims
from softmesh.placement import dim_labels, rules
from softmesh.runtime.gpu_value_cache import is_graphed, once_in_a_graph
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout

_DECODE = "transformer.scaled_dot_product_attention_decode"
Data = torch.Tensor | None
# (the part of the cache that is read, the position of each user or None) -> keys and values, (*axes, users, ...)
Fetch = Callable[[slice, Data], tuple[torch.Tensor, torch.Tensor]]


@operation(
    _DECODE,
    kind=Kind.ATTENTION,
    rule=split_with_key_heads,
    native="SdpaDecodeDeviceOperation",
    precision="data",
    controls="memory_config",
    tuning=TUNING,
)
@read_on_cores(cur_pos_tensor=1)
@with_reference(golden.decode)
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
            part = self.visible_part(current)
            bias = self._visibility_bias(current, part, q.dtype)
        k, v = fetch(part, current)
        queries = self._by_group(q.select(-4, 0))
        out = attend(queries, k, v, bias, score, scale=self.factor)
        return self.finished(out, current, lead)

    def finished(self, out: torch.Tensor, current: Data, lead: int) -> torch.Tensor:
        """(*axes, users, ...) as the op returns it; users that are skipped get 0."""
        _, users, heads, _ = self.q.shape
        out = out.reshape(*out.shape[:lead], 1, users, heads, self.value_width)
        if current is None:
            return out
        is_skipped = once_in_a_graph(_is_negative, [current])
        where = is_skipped.reshape(*current.shape[:-1], 1, users, 1, 1)
        return out.masked_fill_(where, 0.0) if is_graphed(out) else out.masked_fill(where, 0.0)

    def _by_group(self, x: torch.Tensor) -> torch.Tensor:
        """(..., heads, n) as (..., key heads, 1, queries for each, n): the queries of a group become rows."""
        return group(x, -2, self.grouped).unsqueeze(-3)

    def visible_part(self, current: torch.Tensor) -> slice:
        """The part of the cache that any user sees; all of it where a graph of launches is recorded."""
        if is_graphed(current):
            return slice(0, self.length if self.modulo is None else self.modulo)
        last = int(current.max())
        if self.modulo is not None:
            return slice(0, min(max(last, 0) + 1, self.modulo))
        if last >= self.length:
            raise MeshError(f"{self.op}: cur_pos {last} lies outside the cache, which holds {self.length} positions.")
        earliest = int(current.clamp(min=0).min())
        first = 0 if self.window is None else max(0, earliest - self.window + 1)
        return slice(first, max(last, 0) + 1)

    def _visibility_bias(self, current: torch.Tensor, part: slice, dtype: torch.dtype) -> Data:
        """The bias that hides what follows each user's position, or lies before its window."""
        ends = part.start, part.stop
        return once_in_a_graph(_visibility_bias, [current], ends, self.window, self.modulo, dtype)


def _is_negative(numbers: torch.Tensor) -> torch.Tensor:
    return numbers < 0


def _visibility_bias(
    current: torch.Tensor, ends: tuple[int, int], window: int | None, modulo: int | None, dtype: torch.dtype
) -> Data:
    at = torch.arange(*ends, device=current.device)
    latest = current.unsqueeze(-1)
    if modulo is not None:
        at = latest - (latest - at) % modulo
    visible = (at <= latest) & (at >= 0)
    if window is not None:
        visible &= at > latest - window
    if not is_graphed(current) and bool(visible.all()):
        return None
    return mask_bias(visible, dtype).reshape(*current.shape, 1, 1, 1, ends[1] - ends[0])


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
    rule = rules.along({0: [(0, 0)], 1: users, 2: heads, 3: [(2, 3)]})
    if table_at is not None:
        rule = by_page_table(rule, 1, 2)
    return split_with_key_heads(rule, 2)


# -- attn_matmul: the two products of attention by themselves, for one new token of each user --------


_PLAIN = "experimental.attn_matmul"
_GROUPED = "experimental.group_attn_matmul"
_CACHED = "experimental.attn_matmul_from_cache"
_OPTIONS: dict[str, Any] = {
    "part_work": part_work.UNNOTICED,
    "kind": Kind.ATTENTION,
    "tuning": "compute_with_storage_grid_size compute_kernel_config",
    "needs_tile": True,
    "floats_only": True,
    "rule": split_with_key_heads,
}


def matmul_per_user(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a (..., rows, heads, users, inner) @ b (..., users, kv_heads, inner, columns): each user by its own matrix."""
    rows, kv_heads = a.shape[-4], b.shape[-3]
    queries = a.movedim(-2, -4).transpose(-3, -2)  # users, heads, rows, inner
    grouped = queries.unflatten(-3, (kv_heads, -1)).flatten(-3, -2)
    found = (grouped @ b).unflatten(-2, (-1, rows)).flatten(-4, -3)
    return found.transpose(-3, -2).movedim(-4, -2)


def _product(op: str, a: Operand, b: Operand, inner: int) -> None:
    check_four_dims(op, a, b)
    if a.shape[2] != b.shape[0] or a.shape[3] != inner:
        raise MeshError(
            f"{op}: {a.name} {list(a.shape)} is [rows, heads, users, inner] and {b.name} {list(b.shape)} [users, "
            f"kv_heads, inner, columns]: they must agree in users, and have an inner dim of {inner}."
        )
    check_groups(op, a.shape[1], b.shape[1])


def _by_user(columns: list[tuple[int, int]]) -> rules.SingleRule:
    """Users and heads of both operands, and the columns of the result."""
    dims = {0: [(0, 0)], 1: [(0, 1), (1, 1)], 2: [(0, 2), (1, 0)], 3: columns}
    return split_with_key_heads(rules.along(dims), 1)


def _rule(columns: int) -> rules.Rule:
    """Users and heads of both operands, columns of the second (its dim `columns`)."""
    inner = _by_user([(1, columns)])

    @rules.labelled(dim_labels.with_sum(inner.labels, ((0, 3), (1, 5 - columns))))
    def rule(at: rules.Situation) -> rules.Placement:
        """Both split along what is summed: each device has a part of the sum."""
        is_summed = at.words[0] is rules.Shard(3) and at.words[1] is rules.Shard(5 - columns)
        return rules.Partial("sum") if is_summed else inner(at)

    return rule


@operation(_PLAIN, **_OPTIONS, controls="memory_config dtype output_tensor")
def attn_matmul(input_tensor_a: Operand, input_tensor_b: Operand) -> Local:
    """[rows, heads, users, inner] @ [users, 1, inner, columns] -> [rows, heads, users, columns]"""
    a, b = input_tensor_a, input_tensor_b
    _product(_PLAIN, a, b, b.shape[2] if b.rank == 4 else 0)
    if b.shape[1] != 1:
        raise MeshError(f"{_PLAIN}: {b.name} {list(b.shape)} must have one head; use ttnn.{_GROUPED}.")
    return Local(matmul_per_user, _rule(columns=3), cost=matmul_cost(a.shape[3]))


@operation(_GROUPED, **_OPTIONS, controls="memory_config dtype optional_output_tensor")
def group_attn_matmul(input_tensor_a: Operand, input_tensor_b: Operand) -> Local:
    """[rows, heads, users, inner] @ [users, kv_heads, inner, columns]: heads share their group's matrix."""
    a, b = input_tensor_a, input_tensor_b
    _product(_GROUPED, a, b, b.shape[2] if b.rank == 4 else 0)
    return Local(matmul_per_user, _rule(columns=3), cost=matmul_cost(a.shape[3]))


@operation(_CACHED, **_OPTIONS, controls="memory_config dtype output_tensor")
def attn_matmul_from_cache(
    input_tensor_a: Operand, input_tensor_b: Operand, *, num_tokens: int, transpose_hw: bool
) -> Local:
    """attn_matmul with the first `num_tokens` rows (rounded up to a tile) of a cache [users, 1, length, width].

    Transposed, they are the columns that queries are multiplied with; else the rows that are weighed.
    """
    a, b = input_tensor_a, input_tensor_b
    tokens = -(-num_tokens // TILE_SIZE) * TILE_SIZE
    if b.rank != 4 or not 0 < num_tokens <= tokens <= b.shape[2]:
        raise MeshError(
            f"{_CACHED}: num_tokens={num_tokens} must lie within the rows of the cache {list(b.shape)}, in tiles."
        )
    _product(_CACHED, a, b, b.shape[3] if transpose_hw else tokens)

    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        rows = b[..., :tokens, :]
        return matmul_per_user(a, rows.transpose(-2, -1) if transpose_hw else rows)

    rule = _by_user([] if transpose_hw else [(1, 3)])
    return Local(compute, rule, cost=matmul_cost(a.shape[3]))
