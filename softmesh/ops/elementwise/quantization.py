"""quantize, dequantize, requantize: floats as whole numbers of a scale and a zero point, of all or by channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.device_batches import on_each_device
from softmesh.ops.golden import golden_training as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.tensor.dtype import DataType, facts

_OPTIONS: dict[str, Any] = {
    "kind": Kind.ELEMENTWISE,
    "cost": flops_per_element(4),
    "controls": "dtype memory_config output_tensor",
}


def _check(op: str, x: Operand, axis: int | None, *parameters: Value) -> None:
    """A tensor of parameters has one value, or one for each place along `axis`."""
    channels = None if axis is None else x.shape[x.dim(axis, "axis")]
    for given in parameters:
        if not isinstance(given, Operand):
            if axis is not None:
                raise MeshError(
                    f"{op}: axis={axis} goes with tensors of a value for each channel, got the number {given}."
                )
            continue
        count = 1
        for n in given.shape:
            count *= n
        if count != (channels or 1):
            raise MeshError(
                f"{op}: {given.name} {list(given.shape)} must hold {channels or 1} values: one for each place along "
                f"axis={axis} of {list(x.shape)}, or one where there is no axis."
            )


def _local(
    op: str, function: Callable[..., torch.Tensor], x: Operand, axis: int | None, dtype: DataType, *parameters: Value
) -> Local:
    _check(op, x, axis, *parameters)
    sizes = [1] * x.rank
    if axis is not None:
        sizes[x.dim(axis, "axis")] = -1

    def one(values: torch.Tensor, *given: Any) -> torch.Tensor:
        return function(values, *(v.reshape(sizes) if isinstance(v, torch.Tensor) else v for v in given))

    is_plain = not any(isinstance(given, Operand) for given in parameters)
    rule = rules.elementwise if is_plain else _of_values(axis, x)
    return Local(on_each_device(one, x, *parameters), rule, dtypes=(dtype,))


def _of_values(axis: int | None, x: Operand) -> rules.SingleRule:
    """Split as the values are, along any dim but that of the channels, where all devices share the parameters."""
    channels = None if axis is None else x.dim(axis, "axis")

    @rules.labelled(dim_labels.moved(lambda dim: None if dim == channels else dim, passes=""))
    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        is_shared = all(word is None or word is rules.REPLICATE for word in at.words[1:])
        is_whole = not isinstance(at.word, rules.Shard) or at.word.dim != channels
        return at.word if is_shared and is_whole else rules.LOCAL

    return rule


def _check_floats(op: str, operand: Operand, *, wanted: bool) -> None:
    if facts(operand.dtype).is_float is not wanted:
        kind = "floats" if wanted else "whole numbers"
        raise MeshError(f"{op}: {operand.name} must hold {kind}, got {operand.dtype}.")


@operation(**_OPTIONS)
@with_reference(golden.quantize)
def quantize(input_tensor: Operand, scale: Value, zero_point: Value, *, axis: int | None = None) -> Local:
    """round(x / scale) + zero_point, as int32."""
    _check_floats("quantize", input_tensor, wanted=True)

    def compute(x: torch.Tensor, step: Any, zero: Any) -> torch.Tensor:
        return torch.round(x.float() / step) + zero

    return _local("quantize", compute, input_tensor, axis, DataType.INT32, scale, zero_point)


@operation(**_OPTIONS)
@with_reference(golden.dequantize)
def dequantize(input_tensor: Operand, scale: Value, zero_point: Value, *, axis: int | None = None) -> Local:
    """(x - zero_point) * scale, as bfloat16 unless another dtype is asked for."""
    _check_floats("dequantize", input_tensor, wanted=False)

    def compute(x: torch.Tensor, step: Any, zero: Any) -> torch.Tensor:
        return (x.float() - zero) * step

    return _local("dequantize", compute, input_tensor, axis, DataType.BFLOAT16, scale, zero_point)


@operation(**_OPTIONS)
@with_reference(golden.requantize)
def requantize(
    input_tensor: Operand,
    in_scale: Value,
    in_zero_point: Value,
    out_scale: Value,
    out_zero_point: Value,
    *,
    axis: int | None = None,
) -> Local:
    """From one scale and zero point to another, as int32."""
    _check_floats("requantize", input_tensor, wanted=False)

    def compute(x: torch.Tensor, step: Any, zero: Any, new_step: Any, new_zero: Any) -> torch.Tensor:
        return torch.round((x.float() - zero) * step / new_step) + new_zero

    parameters = in_scale, in_zero_point, out_scale, out_zero_point
    return _local("requantize", compute, input_tensor, axis, DataType.INT32, *parameters)
