"""softmax, in place too, and softmax of scaled and masked attention scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops import gradients
from softmesh.ops.elementwise.in_place import overwriting
from softmesh.ops.golden import golden_composite
from softmesh.ops.golden import golden_reduction as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.strictness import warn_or_raise
from softmesh.tensor.dtype import TILE_SIZE, Layout

_TUNING = "program_config compute_kernel_config numeric_stable"
_OPTIONS: dict[str, Any] = {
    "kind": Kind.NORM,
    "rule": rules.within,
    "cost": flops_per_element(14),
    "precision": "data",
    "floats_only": True,
}


@operation(
    kind=Kind.NORM,
    rule=rules.within,
    gradient=gradients.of_softmax,
    cost=flops_per_element(10),
    controls="memory_config queue_id",
    tuning="compute_kernel_config",
    needs_tile=True,
    floats_only=True,
)
@with_reference(golden.softmax)
def softmax(input_tensor: Operand, dim: int = -1, *, numeric_stable: bool = True) -> Local:
    """Along `dim` of each device's piece: over a split dim the result is Local.

    >>> y = ttnn.softmax(split(8, 64, dim=0), dim=-1)
    >>> y.shape, ttnn.placements(y)
    (Shape([2, 64]), (Replicate, Shard(0)))
    >>> ttnn.placements(ttnn.softmax(split(8, 64, dim=1), dim=-1))
    (Replicate, Local)
    """
    at = input_tensor.from_end(dim)
    return Local(lambda x: torch.softmax(x, at), rules.within(at))


@operation(**_OPTIONS, controls="", tuning=_TUNING, needs_tile=True, updates="input_tensor")
@with_reference(golden.softmax)
def softmax_in_place(input_tensor: Operand, dim: int = -1) -> Local:
    """softmax along `dim` of each device's piece, written over it."""
    at = input_tensor.from_end(dim)
    return overwriting(Local(lambda x: torch.softmax(x.float(), at), rules.within(at)), input_tensor)


def _register_masked(op: str, is_in_place: bool, **options: Any) -> None:
    def define(
        input_tensor: Operand,
        scale: float | None = None,
        mask: Operand | None = None,
        *,
        is_causal_mask: bool = False,
    ) -> Local:
        local = _scaled_masked(op, input_tensor, scale, mask, is_causal_mask)
        return overwriting(local, input_tensor) if is_in_place else local

    where = ", written over its operand" if is_in_place else ""
    with_reference(golden.scale_mask_softmax)(define)
    define.__doc__ = f"""softmax(x * scale + mask) along the last dim{where}.

    A causal mask has a row for each row of x. Of any other mask one row is taken for all, the first: it is
    [b, 1, 1, width], or in ROW_MAJOR layout [b, 1, width / 32, 32].
    """
    operation(op, **_OPTIONS, **options)(define)


_register_masked("scale_mask_softmax", False, controls="memory_config", tuning="compute_kernel_config numeric_stable")
_register_masked("scale_mask_softmax_in_place", True, controls="", tuning=_TUNING, updates="input_tensor")


@operation(**_OPTIONS, controls="", tuning=_TUNING, updates="input_tensor")
@with_reference(golden.scale_mask_softmax)
def scale_causal_mask_hw_dims_softmax_in_place(
    input_tensor: Operand, scale: float | None = None, mask: Operand | None = None
) -> Local:
    """scale_mask_softmax_in_place with a causal mask [1, 1, rows, width] for all of the batch and all heads."""
    op = "scale_causal_mask_hw_dims_softmax_in_place"
    return overwriting(_scaled_masked(op, input_tensor, scale, mask, True), input_tensor)


def _register_attention(op: str, is_in_place: bool, **options: Any) -> None:
    def define(
        tensor: Operand,
        *,
        attention_mask: Operand | None = None,
        head_size: int | None = None,
        causal_mask: bool | None = False,
    ) -> Local:
        local = _scaled_masked(op, tensor, _head_scale(op, head_size), attention_mask, bool(causal_mask))
        return overwriting(local, tensor) if is_in_place else local

    where = ", written over its operand" if is_in_place else ""
    mask = "the mask is that of scale_mask_softmax"
    with_reference(golden_composite.attention_softmax)(define)
    define.__doc__ = f"softmax(x / sqrt(head_size) + mask) along the last dim{where}; {mask}."
    operation(op, **_OPTIONS, **options)(define)


_ATTENTION = "transformer.attention_softmax"
_register_attention(_ATTENTION, False, controls="memory_config", tuning="program_config")
_register_attention(f"{_ATTENTION}_", True, controls="", tuning="program_config memory_config", updates="tensor")


def _head_scale(op: str, head_size: int | None) -> float | None:
    if head_size is not None and head_size < 1:
        raise MeshError(f"{op}: head_size={head_size} must be at least 1.")
    return None if head_size is None else float(head_size**-0.5)


def _scaled_masked(op: str, x: Operand, scale: float | None, mask: Operand | None, is_causal: bool) -> Local:
    if x.rank < 2:
        raise MeshError(f"{op}: {x.name} must have rows and columns, got {list(x.shape)}.")
    if x.layout is not Layout.TILE:
        raise MeshError(
            f"Inputs to {op} must be tilized: {x.name} is {x.layout}. Use ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)."
        )
    used = None if mask is None else _used_mask(op, x, mask, is_causal)
    in_blocks = mask is not None and mask.shape[-1] != x.shape[-1]
    leaves_rows = mask is not None and not is_causal and not in_blocks and 1 < mask.shape[-2] == x.shape[-2]

    def compute(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        scores = x.float() if scale is None else x.float() * scale
        if mask is not None and used is not None:
            if leaves_rows and not mask.is_cuda:
                _warn_of_rows_left_out(op, mask)
            rows = mask.reshape(*mask.shape[: -len(used)], *used) if in_blocks else mask[..., : used[-2], :]
            scores = scores + rows.float()
        return torch.softmax(scores, -1)

    def labels(shapes: dim_labels.Shapes, results: Sequence[dim_labels.Extents]) -> dim_labels.DimLabels:
        seen = None if used is None else tuple(used)
        found = dim_labels.aligned(without=(-1,))((x.shape, seen), results)
        is_same = mask is not None and seen is not None and len(seen) == mask.rank
        return found if is_same or mask is None else found._replace(operands=(found.operands[0], (None,) * mask.rank))

    @rules.labelled(labels)
    def rule(at: rules.Situation) -> rules.Placement:
        """Where one row stands for all, a split of the mask's rows leaves each device another one."""
        if used is None:
            return rules.within(-1)(at)
        word = at.words[1]
        rows = isinstance(word, rules.Shard) and word.dim == len(used) - 2 and not is_causal
        return rules.opaque(at) if rows else rules.within(-1)(at._replace(shapes=(at.shape, used)))

    return Local(compute, rule)


def _warn_of_rows_left_out(op: str, mask: torch.Tensor) -> None:
    if bool((mask != mask[..., :1, :]).any()):
        warn_or_raise(
            f"{op}: of a mask that is not causal the chip reads the first row for all, and this one has a row for each "
            "row of scores: pass causal_mask=True (scale_mask_softmax: is_causal_mask=True), or add it with ttnn.add.",
        )


def _used_mask(op: str, x: Operand, mask: Operand, is_causal: bool) -> tuple[int, ...]:
    """The shape of what is added of the mask."""
    rows, width = x.shape[-2:]
    front = mask.shape[:-2]
    fits = mask.rank == x.rank and all(n in (1, whole) for n, whole in zip(front, x.shape[:-2], strict=True))
    in_blocks = fits and mask.layout is Layout.ROW_MAJOR and mask.shape[-1] == TILE_SIZE and not is_causal
    own_width = mask.shape[-1] * mask.shape[-2] if in_blocks else mask.shape[-1]
    if not fits or own_width != width or (is_causal and mask.shape[-2] != rows):
        wanted = f"[{', '.join(map(str, x.shape[:-2]))}, {rows if is_causal else 1}, {width}]"
        raise MeshError(
            f"{op}: the {'causal ' if is_causal else ''}mask {list(mask.shape)} {mask.layout} must be {wanted} for "
            f"{x.name} {list(x.shape)} on each device; 1 in front stands for all."
        )
    return (*front, rows if is_causal else 1, width)
