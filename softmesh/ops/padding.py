"""Padding around a tensor, by widths in each dim or by the shape it is to have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F

from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Arguments
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.placement import rules

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data", "on_host": True}


def _both_forms(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """(padding, value), and (output_padded_shape, input_tensor_start, value)."""
    if "output_padded_shape" in kwargs or "input_tensor_start" in kwargs:
        names = {"output_padded_shape": "padding", "input_tensor_start": "value", "value": "fill"}
        kwargs = {names.get(name, name): value for name, value in kwargs.items()}
    return args, kwargs


@operation(**_OPTIONS, controls="memory_config", tuning="use_multicore sub_core_grids", rearrange=_both_forms)
def pad(
    input_tensor: Operand,
    padding: Sequence[Sequence[int]] | Sequence[int],
    value: float | Sequence[int] = 0.0,
    fill: float | None = None,
) -> Local:
    """`padding` is (before, after) for each dim; or: output shape, start and value as TT-NN's other form."""
    filler = (fill or 0.0) if isinstance(value, Sequence) else value
    pairs = _pad_widths(input_tensor.shape, padding, value if isinstance(value, Sequence) else None)
    reverse = [n for pair in reversed(pairs) for n in pair]
    touched = [d for d, pair in enumerate(pairs) if pair != (0, 0)]

    def rule(at: rules.Situation) -> rules.Placement:
        if isinstance(at.word, rules.Partial) and filler:
            raise rules.UsesPartial(0)
        return rules.resizing(touched)(at)

    return Local(lambda x: F.pad(x, reverse, value=filler), rule)


def _pad_widths(
    shape: tuple[int, ...], padding: Sequence[Sequence[int]] | Sequence[int], starts: Sequence[int] | None
) -> list[tuple[int, ...]]:
    """(before, after) for each dim: given so, or by the padded shape and where the tensor starts in it."""
    pairs = [tuple(entry) for entry in padding if not isinstance(entry, int)]
    wanted = [entry for entry in padding if isinstance(entry, int)]
    if starts is not None and len(starts) == len(wanted) == len(shape):
        pairs = [(start, n - start - m) for start, n, m in zip(starts, wanted, shape, strict=True)]
    elif wanted or starts is not None:
        pairs = []
    widths = [(0, 0)] * (len(shape) - len(pairs)) + pairs
    if (
        len(widths) != len(shape)
        or any(len(pair) != 2 or min(pair) < 0 for pair in widths)
        or (padding and not pairs)
    ):
        raise MeshError(
            f"pad: padding={list(padding)} does not fit a tensor of shape {list(shape)}: give (before, after) for "
            "each of its last dims, or the padded shape and the start of the tensor in it."
        )
    return widths
