"""What was computed of tensors that ask for a gradient, in order, and the way back through it.

Gradients are computed by ops like any others, so that whoever writes down ops has them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from softmesh.callsite import user_call_site
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import NotModelled
from softmesh.ops.gradients import (
    Constants,
    Gradient,
    Rule,
    TapedCall,
    asks_for_gradient,
    by_its_backward,
    of_mean,
    of_reduced_sum,
    op,
)
from softmesh.planner.training.composite_ops import attention_gradient
from softmesh.tensor.tensor import Tensor

_ATTENTION = "transformer.scaled_dot_product_attention"
_OF_NUMBERS = (of_mean, of_reduced_sum)  # rules for gradients that are one number for all elements
_LOSSES = ("train.cross_entropy", "train.mean_square")
_ACTIVATIONS = ("activations", "input_tensor_a_activations", "input_tensor_b_activations", "activation")


class _Entry(NamedTuple):
    call: TapedCall
    made: tuple[int, ...]  # numbers of the values
    read: Mapping[int, int]  # by id of a tensor
    again: Callable[[], Any] | None = None  # computes the results once more, where only that tells how they are made


class GradientTape:
    """`number` tells which value a tensor holds."""

    def __init__(self, number: Callable[[Tensor], int], constants: Constants) -> None:
        self._number, self._constants = number, constants
        self._entries: list[_Entry] = []
        self._is_paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        before, self._is_paused = self._is_paused, True
        try:
            yield
        finally:
            self._is_paused = before

    def note(
        self,
        name: str,
        arguments: Mapping[str, Any],
        results: Sequence[Tensor],
        rule: Rule | None = None,
        saved: Any = None,
        again: Callable[[], Any] | None = None,
    ) -> None:
        """`rule` is that of the op of this name, if none is given."""
        if self._is_paused or not any(map(asks_for_gradient, results)):
            return
        known, site = rule or _rule_of(name), str(user_call_site())
        call = TapedCall(name, arguments, tuple(results), self._constants, site, known, saved)
        read = {id(one): self._number(one) for one in tensors_in(list(arguments.values()))}
        self._entries.append(_Entry(call, tuple(map(self._number, results)), read, again))

    def _made_again(self, entry: _Entry) -> tuple[list[_Entry], list[int]]:
        """What was done to make its results once more, and the numbers that these have now."""
        assert entry.again is not None
        before, self._entries = self._entries, []
        try:
            with torch.enable_grad():
                results = list(map(self._number, tensors_in(entry.again())))
            return self._entries, results
        finally:
            self._entries = before

    def backward(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
        """The leaves that were reached, with their gradients."""
        arrived: dict[int, Gradient] = {}
        holders: dict[int, Tensor] = {}

        def arrive(number: int, holder: Tensor, gradient: Gradient) -> None:
            before = arrived.get(number)
            arrived[number] = gradient if before is None else _sum(before, gradient)
            holders[number] = holder

        for tensor, gradient in zip(tensors, gradients, strict=True):
            arrive(self._number(tensor), tensor, 1.0 if gradient is None else gradient)
        with torch.no_grad():
            ahead = list(self._entries)
            while ahead:
                entry = ahead.pop()
                found = [arrived.pop(number, None) for number in entry.made]
                if all(gradient is None for gradient in found):
                    continue
                if entry.again is not None:
                    entries, numbers = self._made_again(entry)
                    ahead += entries
                    arrived |= {number: g for number, g in zip(numbers, found, strict=True) if g is not None}
                    continue
                for operand, gradient in _sent_back(entry.call, found):
                    arrive(entry.read[id(operand)], operand, gradient)
            return [(self._leaf(holders[number]), _filled(holders[number], g)) for number, g in arrived.items()]

    def _leaf(self, tensor: Tensor) -> Tensor:
        data = tensor.storage.data
        if data is not None and data.grad_fn is not None:
            raise NotModelled(
                f"softmesh.plan: backward() comes to a tensor of shape {list(tensor.shape)} that no op of the function "
                "has made. Compute it in the function that is planned, or detach() it."
            )
        return tensor


def _sent_back(call: TapedCall, found: list[Gradient | None]) -> Iterator[tuple[Tensor, Tensor]]:
    try:
        if call.rule is None:
            raise TypeError
        if any(call.arguments.get(name) for name in _ACTIVATIONS):
            raise TypeError("an activation of its own")
        given: Any = found if len(found) > 1 else found[0]
        if isinstance(given, float) and call.rule not in _OF_NUMBERS and call.op not in _LOSSES:
            given = _filled(call.results[0], given)
        gradients = call.rule(call, given)
    except TypeError as error:
        raise NotModelled(_no_rule(call, str(error))) from None
    for name, gradient in gradients.items():
        several = isinstance(call[name], list | tuple)
        pairs = zip(call[name], gradient, strict=True) if several else [(call[name], gradient)]
        yield from (pair for pair in pairs if asks_for_gradient(pair[0]))


def _rule_of(name: str) -> Rule | None:
    known = OPERATIONS.get(name)
    return attention_gradient if name == _ATTENTION else None if known is None else known.definition.gradient


def _no_rule(call: TapedCall, why: str) -> str:
    with_what = f" with {why}" if why else ""
    ruled = (known.name for known in OPERATIONS.values() if known.definition.gradient not in (None, by_its_backward))
    covered = ", ".join(sorted({name.rpartition(".")[2] for name in (_ATTENTION, *ruled)}))
    return (
        f"softmesh.plan: the gradient of ttnn.{call.op}{with_what} ({call.site}) is not covered in a training step. "
        f"Covered are {covered}, and functions of one tensor that have a _bw. Write this part with these ops, or its "
        "gradient by hand."
    )


def _sum(a: Gradient, b: Gradient) -> Gradient:
    if isinstance(a, float) and isinstance(b, float):
        return a + b
    first, second = (b, a) if isinstance(a, float) else (a, b)
    made: Tensor = op("add")(first, second)
    return made


def _filled(like: Tensor, gradient: Gradient) -> Tensor:
    made: Tensor = op("full_like")(like, gradient) if isinstance(gradient, float) else gradient
    return made


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
