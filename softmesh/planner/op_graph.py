"""The op graph: what a function computes of which values, with whole shapes and no mesh.

Values are written once. An op that changes its operand in place (the update of a KV cache) makes a new version of it,
which lies where the old one did.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from softmesh.dispatch.operation import OPERATIONS
from softmesh.hardware.enums import DataType, Layout
from softmesh.kinds import Kind


class Role(Enum):
    """What a value is to the program: it decides whether it is kept, and who may choose its placement and dtype."""

    INPUT = "input"
    WEIGHT = "weight"
    CACHE = "cache"  # lives from call to call, and is written in place
    CONSTANT = "constant"  # made by the function itself: zeros, a mask
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer state"


@dataclass(frozen=True)
class GraphValue:
    number: int
    name: str
    shape: tuple[int, ...]  # of the whole value
    dtype: DataType
    layout: Layout  # tiles or rows
    role: Role
    version_of: int | None = None  # the value that an op changed in place to make this one


class ValueRef(NamedTuple):
    """Stands for a value among the arguments of an op."""

    number: int


@dataclass(frozen=True)
class GraphNode:
    """One call of an op. `bound` has an argument for each name of its signature, values as `ValueRef`."""

    number: int
    op: str  # its name in OPERATIONS
    bound: tuple[Any, ...]
    operands: tuple[int, ...]  # values, in the order of the signature
    results: tuple[int, ...]  # values; of what is changed in place, the new version
    writes: tuple[int, ...] = ()  # places among `operands` that are changed in place
    is_view: bool = False  # whether its result is another view of its operand's memory
    site: str = ""  # the line of the program
    scope: str = ""  # "layer 3", where the program or its structure says so

    @property
    def kind(self) -> Kind:
        return OPERATIONS[self.op].definition.kind


@dataclass(frozen=True)
class OpGraph:
    values: tuple[GraphValue, ...]
    nodes: tuple[GraphNode, ...]  # in the order in which they run
    outputs: tuple[int, ...]  # values that the function returns
    goes_back: bool = False  # whether some of its ops stand for a backward pass, and no line of the program calls them

    @cached_property
    def makers(self) -> dict[int, int]:
        """The node that makes each value that is no leaf."""
        return {value: node.number for node in self.nodes for value in node.results}

    @cached_property
    def consumers(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """Of each value: the nodes that read it, and at which place among their operands."""
        found: dict[int, list[tuple[int, int]]] = {value.number: [] for value in self.values}
        for node in self.nodes:
            for place, value in enumerate(node.operands):
                found[value].append((node.number, place))
        return {value: tuple(uses) for value, uses in found.items()}

    @cached_property
    def leaves(self) -> tuple[GraphValue, ...]:
        """What is there before the function runs, or comes from the host: free to be placed."""
        return tuple(value for value in self.values if value.number not in self.makers)

    def root(self, number: int) -> int:
        """The first version of a value that is changed in place."""
        earlier = self.values[number].version_of
        return number if earlier is None else self.root(earlier)

    def named(self, name: str) -> GraphValue:
        found = next((value for value in self.values if value.name == name), None)
        if found is None:
            raise KeyError(name)
        return found
