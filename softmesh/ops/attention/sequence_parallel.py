"""Sequence-parallel (ring) attention of one device's queries, over keys and values that were gathered already.

Parts follow each other in the order of devices; balanced, the sequence is cut into twice as many chunks as there
are devices, and device i of n holds chunks i and 2n - 1 - i, so that causal work is shared out evenly. The
collectives that gather the keys are in `softmesh.collectives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.kinds import Kind
from softmesh.ops.attention.blockwise import Attended, attended
from softmesh.ops.attention.key_ranges import ranges_in_order
from softmesh.ops.attention.page_tables import check_table, positions_in_order
from softmesh.ops.attention.sdpa_core import check_groups, check_rank_4, check_sink, check_window
from softmesh.placement import dim_labels, rules
from softmesh.tensor.broadcasting import concat_on_mesh
from softmesh.tensor.dtype import TILE_SIZE, DataType

Data = torch.Tensor | None
JOINT = "transformer.ring_joint_scaled_dot_product_attention"
LATENT = "transformer.ring_mla"
DISTRIBUTED = "transformer.ring_distributed_scaled_dot_product_attention"
_JOINT_Q, _LENGTH = 4, 7  # among the operands of ring_joint_attention


@dataclass(frozen=True)
class SequenceOrder:
    """Where the rows of a sequence of `length` lie that `devices` hold in parts."""

    devices: int
    length: int
    is_balanced: bool

    def of_part(self, place: torch.Tensor) -> torch.Tensor:
        """(*axes, rows): the positions that the device at `place` (*axes, 1) holds."""
        rows = self.length // self.devices
        at = torch.arange(rows, device=place.device)
        if not self.is_balanced:
            return place * rows + at
        half = rows // 2
        return torch.where(at < half, place * half + at, (2 * self.devices - 1 - place) * half + at - half)

    def sequence(self, parts: torch.Tensor) -> torch.Tensor:
        """(..., length, width) in the order of positions, of all parts side by side."""
        if not self.is_balanced:
            return parts
        chunks = parts.unflatten(-2, (2 * self.devices, -1))
        return torch.cat([chunks[..., 0::2, :, :], chunks[..., 1::2, :, :].flip(-3)], -3).flatten(-3, -2)


def statistics(parts: Sequence[Attended]) -> torch.Tensor:
    """The maxima of the parts' rows, each filled up to whole tiles, and then their sums."""
    sums = [torch.exp(part.log_sums - part.maxima).nan_to_num(0.0) for part in parts]  # of no key, 0
    columns = [*(part.maxima for part in parts), *sums]
    return concat_on_mesh([F.pad(x, (0, 0, 0, -x.shape[-2] % TILE_SIZE)) for x in columns], -2)


def _check_causal(is_causal: bool, has_joint: bool, has_sink: bool) -> None:
    if is_causal and has_joint:
        raise MeshError(f"{JOINT}: a causal sequence has no joint one: pass is_causal=False, or no joint tensors.")
    if has_sink and not is_causal:
        raise MeshError(f"{JOINT}: attention_sink goes with is_causal=True.")


@operation(JOINT, kind=Kind.ATTENTION, part_work=part_work.UNNOTICED, controls="", tuning="")
def ring_joint_attention(
    q: Operand,
    k: Operand,
    v: Operand,
    place: Operand,
    joint_q: Operand | None = None,
    joint_k: Operand | None = None,
    joint_v: Operand | None = None,
    logical_n: Value = 0,
    sink: Operand | None = None,
    *,
    devices: int,
    scale: float | None = None,
    is_causal: bool = False,
    is_balanced: bool = False,
    window: int | None = None,
    logical_l: int | None = None,
) -> Local:
    """The part of one device, after the gathering: k and v are whole, `place` is the device's index among them.

    Where there are more keys than queries, causal queries are the last before `logical_n`. Three results: of the
    device's queries, of the joint ones, and of both the largest score of each row, then the sum it was divided by.
    """
    check_rank_4(JOINT, q, k, v)
    check_groups(JOINT, q.shape[1], k.shape[1])
    check_window(JOINT, window)
    check_sink(JOINT, sink, (1, q.shape[1], 1, 1))
    has_joint = joint_q is not None and joint_k is not None and joint_v is not None
    _check_causal(is_causal, has_joint, sink is not None)
    rows = q.shape[2]
    order = SequenceOrder(devices, k.shape[2], is_balanced)
    asked = SequenceOrder(devices, rows * devices, is_balanced)
    factor = q.shape[3] ** -0.5 if scale is None else scale

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        place: torch.Tensor,
        joint_q: Data,
        joint_k: Data,
        joint_v: Data,
        end: torch.Tensor | int,
        sink: Data = None,
    ) -> tuple[torch.Tensor, ...]:
        end = int(end.max()) if isinstance(end, torch.Tensor) else end
        k, v = (order.sequence(x)[..., :end, :] for x in (k, v))
        if joint_k is not None and joint_v is not None:
            k, v = (concat_on_mesh((x, y[..., :logical_l, :]), -2) for x, y in ((k, joint_k), (v, joint_v)))
        seen = None
        if is_causal:
            before = end - asked.length if asked.length < order.length else 0
            seen = ranges_in_order(asked.of_part(place) + before, k.shape[-2], True, window)
        own = attended(q, k, v, seen, factor, sink, with_maxima=True)
        joint = attended(q[..., :0, :] if joint_q is None else joint_q, k, v, None, factor, with_maxima=True)
        return own.values, joint.values, statistics((own, joint))

    rule, dtypes, cost = _ring_rule(outputs=3, joint=True), (_result_dtype(q),) * 3, matmul_cost(2 * k.shape[2])
    return Local(compute, rule, dtypes=dtypes, memory_config=DRAM_MEMORY_CONFIG, cost=cost)


def _result_dtype(q: Operand) -> DataType:
    """Of block floats too: results are bfloat16."""
    return DataType.FLOAT32 if q.dtype is DataType.FLOAT32 else DataType.BFLOAT16


@operation(LATENT, kind=Kind.ATTENTION, part_work=part_work.UNNOTICED, controls="", tuning="")
def ring_latent_attention(
    q: Operand,
    kv: Operand,
    place: Operand,
    *,
    head_dim_v: int,
    logical_n: int,
    devices: int,
    scale: float | None = None,
    is_balanced: bool = False,
) -> Local:
    """The causal part of one device over gathered keys, whose first `head_dim_v` columns are the values."""
    check_rank_4(LATENT, q, kv)
    check_groups(LATENT, q.shape[1], kv.shape[1])
    order = SequenceOrder(devices, kv.shape[2], is_balanced)
    factor = q.shape[3] ** -0.5 if scale is None else scale

    def compute(q: torch.Tensor, kv: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kv = order.sequence(kv)[..., :logical_n, :]
        seen = ranges_in_order(order.of_part(place), kv.shape[-2], True, None)
        out, log_sums, _ = attended(q, kv, kv[..., :head_dim_v], seen, factor)
        return out, log_sums

    rule = _ring_rule(outputs=2, place_at=2)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * kv.shape[2]))


def _ring_rule(outputs: int, joint: bool = False, place_at: int = 3) -> rules.Rule:
    """Along the ring: queries are split by rows, and so is their result; what joint queries see is the same for all.

    Along another axis: batch or heads, of all operands alike.
    """

    @rules.labelled_each(
        dim_labels.table({dim: [(at, dim) for at in range(8) if at not in (place_at, _LENGTH)] for dim in (0, 1)})
    )
    def rule(at: rules.Situation) -> list[rules.Placement]:
        rules.refuse_partial(at)
        numbers = (place_at, _LENGTH)
        tensors = [word for i, word in enumerate(at.words) if i not in numbers and word is not None]
        if isinstance(at.words[place_at], rules.Shard):
            joint_q = at.words[_JOINT_Q] if joint else None
            own_parts = {0, place_at} | ({_JOINT_Q} if joint_q is rules.Shard(2) else set())
            others = [word for i, word in enumerate(at.words) if i not in own_parts and word is not None]
            is_ring = at.word is rules.Shard(2) and all(word is rules.REPLICATE for word in others)
            if joint and is_ring:
                return [at.word, joint_q or rules.REPLICATE, rules.LOCAL]
            return [at.word if is_ring else rules.LOCAL] * outputs
        kinds = set(tensors)
        is_alike = len(kinds) == 1 and at.word in (rules.Shard(0), rules.Shard(1))
        return [at.word if is_alike else rules.LOCAL] * outputs

    return rule


@operation(
    DISTRIBUTED,
    kind=Kind.ATTENTION,
    part_work=part_work.UNNOTICED,
    precision="data",
    controls="memory_config",
    tuning="program_config compute_kernel_config",
)
def ring_distributed_attention(
    q: Operand,
    k: Operand,
    v: Operand,
    place: Value,
    page_table: Operand | None = None,
    start: Value = 0,
    *,
    devices: int,
    scale: float | None = None,
) -> Local:
    """Causal attention of one device's share of the queries: of 2n chunks of the sequence, i and 2n - 1 - i.

    All devices hold all of q, k and v; the result has the device's two chunks, one behind the other. With a page
    table k and v are blocks of a cache, and the first query has position `start`.
    """
    check_rank_4(DISTRIBUTED, q, k, v)
    check_groups(DISTRIBUTED, q.shape[1], k.shape[1])
    rows, is_paged = q.shape[2], page_table is not None
    if rows % (2 * devices) or (not is_paged and k.shape[2] != rows):
        raise MeshError(
            f"{DISTRIBUTED}: q {list(q.shape)} and k {list(k.shape)} must have one sequence, cut into "
            f"{2 * devices} chunks: two for each of ring_size={devices}."
        )
    if page_table is not None:
        check_table(DISTRIBUTED, page_table, q.shape[0])
    order = SequenceOrder(devices, rows, is_balanced=True)
    factor = q.shape[3] ** -0.5 if scale is None else scale

    def compute(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, place: torch.Tensor | int, table: Data, start: int
    ) -> torch.Tensor:
        if table is not None:
            k, v = (_rows_of_pages(x, table, start + rows) for x in (k, v))
        where = torch.full((1,) * (q.dim() - 3), place) if isinstance(place, int) else place.long()
        asking = order.of_part(where.to(q.device))
        mine = torch.take_along_dim(q, asking.reshape(*asking.shape[:-1], 1, 1, -1, 1), -2)
        seen = ranges_in_order(asking + start, k.shape[-2], True, None)
        return attended(mine.float(), k.float(), v.float(), seen, factor).values

    @rules.labelled(dim_labels.table({dim: [(at, dim) for at in range(3)] for dim in ((1,) if is_paged else (0, 1))}))
    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        kinds = set(at.words[:3])
        is_alike = len(kinds) == 1 and at.word in ((rules.Shard(1),) if is_paged else (rules.Shard(0), rules.Shard(1)))
        return at.word if is_alike and not isinstance(at.words[3], rules.Shard) else rules.LOCAL

    keys = rows if page_table is None else page_table.shape[1] * k.shape[2]
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * keys))


def _rows_of_pages(cache: torch.Tensor, table: torch.Tensor, keys: int) -> torch.Tensor:
    """The first `keys` positions of each user."""
    block = cache.shape[-2]
    if keys > table.shape[-1] * block:
        raise MeshError(
            f"{DISTRIBUTED}: queries up to position {keys - 1} reach beyond the {table.shape[-1] * block} positions of "
            "the page table. Give each user more pages."
        )
    pages = table[..., : -(-keys // block)].long()
    needed = torch.tensor([pages.shape[-1]], device=cache.device)
    return positions_in_order(DISTRIBUTED, cache, pages, needed)[..., :keys, :]
