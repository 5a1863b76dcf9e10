"""Torch calls that can write their result over their first operand: what a replay does with values nobody reads again.

Every call here gives new memory and hands out none of its operands', so what it made is the trace's own for as long
as only such calls read it. A call that may return a view of an operand (a reshape) must never be listed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

_Call = Callable[..., Any]


class Forms(NamedTuple):
    """One computation: as a torch function, and writing over its first operand."""

    apart: _Call
    in_place: _Call


FORMS: dict[_Call, Forms] = {
    operator.add: Forms(torch.add, torch.Tensor.add_),
    operator.sub: Forms(torch.sub, torch.Tensor.sub_),
    operator.mul: Forms(torch.mul, torch.Tensor.mul_),
    torch.abs: Forms(torch.abs, torch.abs_),
    torch.cos: Forms(torch.cos, torch.cos_),
    torch.exp: Forms(torch.exp, torch.exp_),
    torch.log: Forms(torch.log, torch.log_),
    torch.neg: Forms(torch.neg, torch.neg_),
    torch.reciprocal: Forms(torch.reciprocal, torch.reciprocal_),
    torch.relu: Forms(torch.relu, torch.relu_),
    torch.sigmoid: Forms(torch.sigmoid, torch.sigmoid_),
    torch.sin: Forms(torch.sin, torch.sin_),
    torch.sqrt: Forms(torch.sqrt, torch.sqrt_),
    torch.square: Forms(torch.square, torch.square_),
    torch.tanh: Forms(torch.tanh, torch.tanh_),
    F.silu: Forms(F.silu, partial(F.silu, inplace=True)),
}
