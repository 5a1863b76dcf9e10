"""Program cache keys of element-wise ops: one program serves tensors of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softmesh.dispatch.plan import Plan
from softmesh.dispatch.signature import BoundCall
from softmesh.tensor.dtype import Layout
from softmesh.tensor.tensor import Tensor


def elementwise_program(call: BoundCall, plan: Plan) -> tuple[Any, ...]:
    """Kinds of operands and result, and the other arguments; numbers in place of tensors are handed to the program."""
    return _key(call, plan, ())


def scalar_free_program(call: BoundCall, plan: Plan) -> tuple[Any, ...]:
    """As `elementwise_program`, for ops whose numbers are handed to the program at each launch (addcmul's value)."""
    return _key(call, plan, [at for at in call.signature.attribute_at if isinstance(call.values[at], float | int)])


def scalar_free_program_of_shapes(call: BoundCall, plan: Plan) -> tuple[Any, ...]:
    """As `scalar_free_program`, for ops that have a program for each shape (steps of optimizers)."""
    return (*scalar_free_program(call, plan), *(tuple(tensor.shape) for tensor in call.tensors))


def _key(call: BoundCall, plan: Plan, left_out: Sequence[int]) -> tuple[Any, ...]:
    made = plan.outputs[0].spec
    signature = call.signature
    shown = (signature.dtype_at, signature.memory_config_at, *left_out)  # the first two show in the result
    others = [call.values[at] for at in signature.key_at if at not in shown]
    key = [made.dtype, made.memory_config, *map(_form, call.tensors), _broadcast(call.tensors), repr(others)]
    return (*key, *(type(item) for item in call.data if not hasattr(item, "shape")))


def _form(tensor: Tensor) -> tuple[Any, ...]:
    spec = tensor.spec
    rows = tuple(spec.padded_shape) if spec.layout is Layout.ROW_MAJOR else None
    return spec.dtype, spec.layout, spec.memory_config, rows


def _broadcast(tensors: list[Tensor]) -> tuple[tuple[bool, ...], ...]:
    """For the last two dims, which of the operands have one row or column to repeat."""
    shapes = [(1, 1, *tensor.shape)[-2:] for tensor in tensors]
    return tuple(
        tuple(shape[d] == 1 for shape in shapes) if len({shape[d] for shape in shapes}) > 1 else () for d in range(2)
    )
