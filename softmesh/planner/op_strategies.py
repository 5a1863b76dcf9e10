"""Strategies of an op of a graph: the ways to split its work over the axes of a mesh, what each needs, gives, takes."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.distributed.layouts import Layout
from softmesh.distributed.redistribution import Step
from softmesh.hardware.enums import DataType


@dataclass(frozen=True)
class OpStrategy:
    """`dtypes` has one for each operand: that of the graph, or another one that a weight may be kept in."""

    split_names: tuple[str, ...]  # what the devices along each axis split
    needs: tuple[Layout, ...]  # for each operand
    gives: tuple[Layout, ...]  # for each result
    seconds: float  # of the work on a device
    inside: tuple[Step, ...]  # what is exchanged in the midst of it
    held_bytes: int  # beside operands and results
    is_plain: bool  # whether public ops of TT-NN do it
    dtypes: tuple[DataType, ...]

    @property
    def total_seconds(self) -> float:
        return self.seconds + sum(step.cost.seconds for step in self.inside)
