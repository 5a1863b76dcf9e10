"""Checks of operands that ops of several families ask for."""

from __future__ import annotations

from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError


def check_four_dims(op: str, *operands: Operand) -> None:
    for operand in operands:
        if operand.rank != 4:
            raise MeshError(f"{op}: {operand.name} must have 4 dims, got {list(operand.shape)}.")


def check_one_shape(op: str, one: Operand, other: Operand) -> None:
    if one.shape != other.shape:
        raise MeshError(f"{op}: {one.name} {list(one.shape)} and {other.name} {list(other.shape)} must have one shape.")
