"""scaled_dot_product_attention_decode over KV caches: split by users, or by heads together with those of the caches."""

from __future__ import annotations

from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.generic_ops import always, is_defined, shape_of_first
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Choice, together
from softmesh.distributed.unified_op import Unified
from softmesh.placement.placements import REPLICATE, Placement, Shard

# For each operand: its dim of users, and its dim of heads.
_USERS = {"input_tensor_q": 1, "cur_pos_tensor": 0, "attn_mask": 0, "page_table_tensor": 0}
_HEADS = {"input_tensor_q": 2, "input_tensor_k": 1, "input_tensor_v": 1, "attn_mask": 2, "attention_sink": 0}
_CACHES = {"input_tensor_k": 0, "input_tensor_v": 0}  # whose users are rows of their own, unless there are pages


def describe_decode_attention(given: CallDescription) -> SplitOptions:
    users = _USERS if "page_table_tensor" in given.names else _USERS | _CACHES
    choices = (
        together(len(given.operands)),
        Choice("split users", _words(given, users), Shard(1), takes_uneven=False),
        Choice("split heads", _words(given, _HEADS), Shard(2), takes_uneven=False),
    )
    return SplitOptions(choices, always(given.plain()), is_true=lambda split: is_defined(given, split))


def _words(given: CallDescription, dims: dict[str, int]) -> tuple[Placement, ...]:
    """Each operand split at its dim, but for what all share there."""
    words: list[Placement] = []
    for name, operand in zip(given.names, given.operands, strict=True):
        dim = dims.get(name)
        words.append(REPLICATE if dim is None or operand.shape[dim] == 1 else Shard(dim))
    return tuple(words)


scaled_dot_product_attention_decode = Unified(
    "transformer.scaled_dot_product_attention_decode", describe_decode_attention, shape_of_first
)
paged_scaled_dot_product_attention_decode = Unified(
    "transformer.paged_scaled_dot_product_attention_decode", describe_decode_attention, shape_of_first
)
