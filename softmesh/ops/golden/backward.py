"""Golden functions of gradients: torch's own gradient of the golden function of the op before it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from softmesh.ops.golden.table import REFERENCES, Reference, is_plain, reference

if TYPE_CHECKING:
    from softmesh.dispatch.operation import Operation

_SUFFIX = "_bw"
_FORWARD = {
    "clip": "clamp",
    "experimental.gelu": "gelu",
    "logiteps": "logit",
    "max": "maximum",
    "min": "minimum",
    "mul": "multiply",
    "sub": "subtract",
}
# What the gradient's arguments are called in the op before it.
_ARGUMENTS: dict[str, dict[str, str]] = {
    "addcdiv": {"alpha": "value"},
    "addcmul": {"alpha": "value"},
    "div_no_nan": {"scalar": "input_tensor_b"},
    "hardtanh": {"min": "min_val", "max": "max_val"},
    "polygamma": {"n": "k"},
    "rdiv": {"scalar": "value"},
    "threshold": {"min": "threshold", "max": "value"},
}
_OF_ITS_OWN = ("fill", "fill_zero")  # TT-NN's gradient is that of no op
_WITHOUT_GRADIENT = {"where": 1, "clamp": 0}  # operands in front that get none
_ONLY_FIRST = ("clamp",)


def backward_reference(op: Operation) -> Reference | None:
    """The gradient of the op that this one belongs to; None where that has no reference."""
    if not op.name.endswith(_SUFFIX):
        return None
    short = op.name.removesuffix(_SUFFIX)
    if short in _OF_ITS_OWN:
        return None
    forward = _FORWARD.get(short, short)
    function = REFERENCES.get(forward)
    return None if function is None else _Gradient(op, forward, function)


class _Gradient:
    """Takes all the op's arguments by name."""

    def __init__(self, op: Operation, forward: str, function: Reference) -> None:
        self._operands = op.definition.signature.operand_names
        self._forward = forward
        self._function = function
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
                for name in op.definition.signature.names
            ]
        )

    def __call__(self, **named: Any) -> list[torch.Tensor]:
        gradient, *inputs = (named.pop(name) for name in self._operands)
        leaves = [_leaf(value) for value in inputs]
        result = self._applied(leaves, named)
        wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        wanted = wanted[_WITHOUT_GRADIENT.get(self._forward, 0) :]
        if self._forward in _ONLY_FIRST:
            wanted = wanted[:1]
        if not result.requires_grad:
            return [torch.zeros_like(leaf) for leaf in wanted]
        spread = gradient.to(result.dtype).expand_as(result)
        found = torch.autograd.grad(result, wanted, spread, allow_unused=True)
        return [
            torch.zeros_like(leaf) if slope is None else slope
            for leaf, slope in zip(wanted, found, strict=True)
        ]

    def _applied(self, inputs: Sequence[Any], named: dict[str, Any]) -> torch.Tensor:
        result: torch.Tensor
        if is_plain(self._function):
            result = self._function(*inputs)
            return result
        names = list(inspect.signature(self._function).parameters)
        spelled = _ARGUMENTS.get(self._forward, {})
        given = dict(zip(names, inputs, strict=False))
        for name, value in named.items():
            meant = spelled.get(name, name)
            if meant in names and meant not in given and value is not None:
                given[meant] = value
        result = self._function(**given)
        return result


def _leaf(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    leaf = value.detach().clone()
    return leaf.requires_grad_() if leaf.is_floating_point() else leaf


@reference("embedding_bw")
def _embedding_gradient(
    input_tensor: torch.Tensor, weight_tensor: torch.Tensor, output_gradient_tensor: torch.Tensor
) -> torch.Tensor:
    width = weight_tensor.shape[-1]
    rows = torch.zeros_like(weight_tensor).reshape(-1, width)
    found = rows.index_add(0, input_tensor.flatten().long(), output_gradient_tensor.reshape(-1, width))
    return found.reshape(weight_tensor.shape)
