"""Part of a tensor by bounds in each dim: cut out into a memory config, or written to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.placement import rules
from softmesh.tensor.convert import round_to


def _window(op: str, shape: Sequence[int], *bounds: Sequence[int]) -> tuple[slice, ...]:
    starts, ends, steps = bounds
    if not len(starts) == len(ends) == len(steps) == len(shape):
        raise MeshError(f"{op}: start, end and step must each have one entry for each dim of {list(shape)}.")
    for n, start, end, step in zip(shape, starts, ends, steps, strict=True):
        if not 0 <= start <= end <= n or step < 1:
            raise MeshError(f"{op}: [{start}:{end}:{step}] does not lie within {n} elements.")
    return tuple(slice(*bound) for bound in zip(starts, ends, steps, strict=True))


@operation(
    "experimental.slice_write", cost=moves_bytes, precision="data", controls="", writes="output_tensor"
)
def slice_write(
    input_tensor: Operand,
    output_tensor: Operand,
    start: Sequence[int],
    end: Sequence[int],
    step: Sequence[int],
) -> Local:
    """Write input into output[start:end:step]; returns the output."""
    window = _window("experimental.slice_write", output_tensor.shape, start, end, step)
    sizes = tuple(len(range(cut.start, cut.stop, cut.step)) for cut in window)
    if input_tensor.shape != sizes:
        raise MeshError(
            f"experimental.slice_write: input_tensor {list(input_tensor.shape)} must be {list(sizes)}, the size of the "
            f"slice of output_tensor {list(output_tensor.shape)}."
        )
    dtype = output_tensor.dtype
    touched = [d for d, (size, n) in enumerate(zip(sizes, output_tensor.shape, strict=True)) if size != n]

    inside: tuple[Any, ...] = (..., *window)

    def compute(values: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        target[inside] = round_to(values, dtype)
        return target

    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        words = {word for word in at.words if word is not rules.REPLICATE}
        word = words.pop()
        return (
            word if not words and isinstance(word, rules.Shard) and word.dim not in touched else rules.LOCAL
        )

    return Local(compute, rule)


@operation(
    "experimental.padded_slice",
    cost=moves_bytes,
    precision="data",
    controls="memory_config output_tensor",
    tuning="pad_value",
)
def padded_slice(
    input_tensor: Operand,
    padded_slice_start: Sequence[int],
    padded_slice_end: Sequence[int],
    padded_slice_step: Sequence[int] | None = None,
) -> Local:
    """input[start:end:step]; the padding up to whole shards of its memory config is not part of the values."""
    steps = [1] * input_tensor.rank if padded_slice_step is None else padded_slice_step
    shape = input_tensor.shape
    window = _window("experimental.padded_slice", shape, padded_slice_start, padded_slice_end, steps)
    whole = [slice(0, n, 1) for n in shape]
    touched = [d for d, (cut, all_of_it) in enumerate(zip(window, whole, strict=True)) if cut != all_of_it]
    inside = (..., *window)
    return Local(lambda x: x[inside], rules.resizing(touched))
