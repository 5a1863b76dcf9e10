"""Tensor lifetimes: the operations that make, last use and deallocate each tensor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from softmesh.graph.stack_trace_sources import innermost_frame

DEALLOCATIONS = frozenset(("ttnn.deallocate", "ttnn::deallocate", "Tensor::deallocate"))
Record = dict[str, Any]


def compute_tensor_lifetime_records(
    operations_batch: Sequence[Sequence[Any]],
    input_tensors_batch: Sequence[Sequence[Any]],
    output_tensors_batch: Sequence[Sequence[Any]],
    stack_traces_batch: Sequence[Sequence[Any]],
    tensor_ids: Collection[int],
) -> list[Record]:
    """A record for each tensor, from rows of the tables of these names; a deallocation is no use."""
    gives_back = {row[0] for row in operations_batch if row[1] in DEALLOCATIONS}
    frames = {row[0]: innermost_frame(row[1]) for row in stack_traces_batch}
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    freed: dict[int, int] = {}
    for operation, _, tensor, *_ in output_tensors_batch:
        made[tensor] = min(operation, made.get(tensor, operation))
    for operation, _, tensor, *_ in input_tensors_batch:
        at = freed if operation in gives_back else used
        at[tensor] = max(operation, at.get(tensor, operation))
    return [_record(tensor, made, used, freed, frames) for tensor in sorted(tensor_ids)]


def _record(
    tensor: int,
    made: dict[int, int],
    used: dict[int, int],
    freed: dict[int, int],
    frames: dict[int, tuple[str | None, int | None]],
) -> Record:
    producer, last = made.get(tensor), used.get(tensor)
    made_at = frames.get(producer, (None, None)) if producer is not None else (None, None)
    used_at = frames.get(last, (None, None)) if last is not None else (None, None)
    return {
        "tensor_id": tensor,
        "producer_operation_id": producer,
        "last_use_operation_id": last,
        "deallocate_operation_id": freed.get(tensor),
        "producer_source_file": made_at[0],
        "producer_source_line": made_at[1],
        "last_use_source_file": used_at[0],
        "last_use_source_line": used_at[1],
    }
