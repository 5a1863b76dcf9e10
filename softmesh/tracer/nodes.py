"""Node types of a trace: the operation that made a tensor, with its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import total_ordering
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import networkx as nx

ArgNameValuePairs = Sequence[tuple[Any, Any]]


@total_ordering
@dataclass(frozen=True)
class Node:
    """One operation of a graph. The data of the node holds `operation`, `shapes` and `dtypes`."""

    name: str
    unique_id: int

    def __lt__(self, other: Node) -> bool:
        return self.unique_id < other.unique_id

    def __repr__(self) -> str:
        return f"{self.name}_{self.unique_id}"


@dataclass(frozen=True)
class PositionalArgumentName:
    """The name of an argument that was given by position."""

    index: int

    def __repr__(self) -> str:
        return f"{self.index}"


@dataclass(frozen=True)
class InputTensorIndex:
    """An argument that is the result of another node: the edge into this one with that number."""

    index: int

    def __repr__(self) -> str:
        return f"input_{self.index}"


class _Operation:
    def to_string(self, verbose: bool = False) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.to_string()


def _with_arguments(name: str, pairs: ArgNameValuePairs, verbose: bool) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in pairs)})" if verbose else name


@dataclass(frozen=True, eq=False, repr=False)
class TorchTensor(_Operation):
    """A torch tensor that was there before."""

    tensor: torch.Tensor

    def to_string(self, verbose: bool = False) -> str:
        return "torch.Tensor"


@dataclass(frozen=True, eq=False, repr=False)
class TorchParameter(_Operation):
    """A parameter of a module."""

    parameter: torch.nn.Parameter

    def to_string(self, verbose: bool = False) -> str:
        return "torch.nn.Parameter"


@dataclass(frozen=True, repr=False)
class TorchFunction(_Operation):
    function: Any
    arg_name_value_pairs: ArgNameValuePairs

    @property
    def name(self) -> str:
        """As a program writes it: `torch.exp`."""
        found = torch.overrides.resolve_name(self.function)
        return found or getattr(self.function, "__name__", str(self.function))

    def to_string(self, verbose: bool = False) -> str:
        return _with_arguments(self.name, self.arg_name_value_pairs, verbose)


@dataclass(frozen=True, repr=False)
class TorchModuleInput(_Operation):
    """What a module is called with, seen from inside."""

    name: str

    def to_string(self, verbose: bool = False) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class TorchModule(_Operation):
    """A module, and inside it a graph of its own: `inputs` and `outputs` are (node, output index) there."""

    module: torch.nn.Module
    graph: nx.MultiDiGraph
    inputs: list[Node]
    outputs: list[tuple[Node, int]]
    arg_name_value_pairs: ArgNameValuePairs = field(default=())

    def to_string(self, verbose: bool = False) -> str:
        name = type(self.module).__name__
        return f"{name}\n{self.module.extra_repr()}" if verbose and self.module.extra_repr() else name


@dataclass(frozen=True, eq=False, repr=False)
class TTNNTensor(_Operation):
    """A ttnn tensor that was there before."""

    def to_string(self, verbose: bool = False) -> str:
        return "ttnn.Tensor"


@dataclass(frozen=True, repr=False)
class TTNNOperation(_Operation):
    pretty_name: str
    operation: Any
    arg_name_value_pairs: ArgNameValuePairs

    def to_string(self, verbose: bool = False) -> str:
        return _with_arguments(self.pretty_name, self.arg_name_value_pairs, verbose)
