"""Constraints as users have them. Each has a sentence, by which it is named where it cannot be kept.

Names of tensors are patterns: `layers.*.wq` means that weight of every layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import index
from typing import SupportsIndex

from softmesh.distributed.layouts import Extents, Value, described
from softmesh.errors import ArgumentError
from softmesh.hardware import FabricConfig
from softmesh.hardware.enums import DataType
from softmesh.hardware.enums import Layout as TensorLayout
from softmesh.placement.placements import REPLICATE, Partial, Placement, Shard
from softmesh.planner.op_graph import GraphNode, GraphValue, OpGraph, Role
from softmesh.planner.op_strategies import OpStrategy
from softmesh.planner.placement_problem import Home
from softmesh.tensor.dtype import TILE_SIZE


@dataclass(frozen=True)
class Constraint:
    """Allows everything: what a constraint does not speak of is free."""

    def allows_mesh(self, shape: Extents) -> bool:
        return True

    def allows_home(self, value: GraphValue, home: Home, mesh: Extents) -> bool:
        return True

    def allows_strategy(self, graph: OpGraph, node: GraphNode, strategy: OpStrategy, mesh: Extents) -> bool:
        return True

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names of tensors that it speaks of: each must mean one at least."""
        return ()

    @property
    def tells_axes_apart(self) -> bool:
        """Whether a mesh of 2x4 is another one to it than a mesh of 4x2."""
        return False

    def mistake(self, meant: Sequence[GraphValue], axes: int) -> str:
        """What no mesh of so many axes can make good, for the tensors that its patterns mean; "" if nothing is."""
        return ""


@dataclass(frozen=True)
class Pinned(Constraint):
    """Tensors of these names lie so; a word for each axis of the mesh. Along an axis of one device any word does."""

    names: str
    placements: tuple[Placement, ...]

    def __post_init__(self) -> None:
        for word in self.placements:
            if not isinstance(word, Placement) or isinstance(word, Partial):
                raise ArgumentError(
                    f"Pinned({self.names!r}): Replicate() or Shard(dim) for each mesh axis, got {word!r}."
                )

    def __str__(self) -> str:
        return f"{self.names} lies as {described(self.placements)}"

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.names,)

    @property
    def tells_axes_apart(self) -> bool:
        return True

    def mistake(self, meant: Sequence[GraphValue], axes: int) -> str:
        if len(self.placements) != axes:
            return f"it has {_counted(len(self.placements), 'placement')}, and a mesh here has {axes} axes"
        dims = [word.dim for word in self.placements if isinstance(word, Shard)]
        return next((wrong for dim in dims if (wrong := _no_such_dim(dim, meant))), "")

    def allows_home(self, value: GraphValue, home: Home, mesh: Extents) -> bool:
        if not fnmatchcase(value.name, self.names):
            return True
        rank = len(value.shape)
        wanted = (_from_first(word, rank) for word in self.placements)
        return all(n == 1 or own == word for n, own, word in zip(mesh, home.layout, wanted, strict=True))


@dataclass(frozen=True)
class NotReplicated(Constraint):
    """Tensors of these names are split: no device keeps the whole."""

    names: str

    def __str__(self) -> str:
        return f"{self.names} is not replicated"

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.names,)

    def allows_home(self, value: GraphValue, home: Home, mesh: Extents) -> bool:
        return not fnmatchcase(value.name, self.names) or any(isinstance(word, Shard) for word in home.layout)


@dataclass(frozen=True)
class PiecesOf(Constraint):
    """A dim is split into pieces of whole units only: a fused weight by heads, say."""

    names: str
    dim: int
    unit: int

    def __post_init__(self) -> None:
        if self.unit < 1:
            raise ArgumentError(f"PiecesOf({self.names!r}): pieces of 1 or more along the dim, got {self.unit}.")

    def mistake(self, meant: Sequence[GraphValue], axes: int) -> str:
        return _no_such_dim(self.dim, meant)

    def __str__(self) -> str:
        return f"{self.names} is split along dim {self.dim} in pieces of {self.unit}"

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.names,)

    def allows_home(self, value: GraphValue, home: Home, mesh: Extents) -> bool:
        if not fnmatchcase(value.name, self.names):
            return True
        dim = self.dim % len(value.shape)
        return Value(value.shape, 0, mesh).local_shape(home.layout)[dim] % self.unit == 0


def _is_whole(number: object) -> bool:
    """Also one of numpy's."""
    return isinstance(number, SupportsIndex) and not isinstance(number, bool)


@dataclass(frozen=True)
class UsersAxis(Constraint):
    """An axis that is kept for users: each of its devices serves some of them, and nothing is sent along it.

    Weights are on all of them; what belongs to a user lies with the user.
    """

    axis: int

    def __post_init__(self) -> None:
        if not _is_whole(self.axis):
            raise ArgumentError(f"UsersAxis: the number of an axis of the mesh, got {self.axis!r}.")
        object.__setattr__(self, "axis", index(self.axis))

    def __str__(self) -> str:
        return f"axis {self.axis} is kept for users"

    @property
    def tells_axes_apart(self) -> bool:
        return True

    def mistake(self, meant: Sequence[GraphValue], axes: int) -> str:
        return "" if 0 <= self.axis < axes else f"a mesh here has axes 0 to {axes - 1}"

    def allows_mesh(self, shape: Extents) -> bool:
        return shape[self.axis] > 1

    def allows_home(self, value: GraphValue, home: Home, mesh: Extents) -> bool:
        return value.role not in _OF_THE_MODEL or home.layout[self.axis] == REPLICATE

    def allows_strategy(self, graph: OpGraph, node: GraphNode, strategy: OpStrategy, mesh: Extents) -> bool:
        if any(step.travels and step.axis == self.axis for step in strategy.inside):
            return False
        weights = (graph.values[value].role in _OF_THE_MODEL for value in node.operands)
        needs = zip(weights, strategy.needs, strict=True)
        return all(not is_weight or need[self.axis] == REPLICATE for is_weight, need in needs) and not any(
            isinstance(gives[self.axis], Partial) for gives in strategy.gives
        )


_OF_THE_MODEL = (Role.WEIGHT, Role.OPTIMIZER_STATE)


@dataclass(frozen=True)
class TileAligned(Constraint):
    """No tiled value is split inside of a tile, along either of its two last dims."""

    def __str__(self) -> str:
        return "splits are aligned to tiles"

    def allows_home(self, value: GraphValue, home: Home, mesh: Extents) -> bool:
        return _is_aligned(value, home.layout, mesh)

    def allows_strategy(self, graph: OpGraph, node: GraphNode, strategy: OpStrategy, mesh: Extents) -> bool:
        values = [*zip(node.operands, strategy.needs, strict=True), *zip(node.results, strategy.gives, strict=True)]
        return all(_is_aligned(graph.values[number], layout, mesh) for number, layout in values)


@dataclass(frozen=True)
class MeshShapeIs(Constraint):
    """The mesh has this shape."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        found = tuple(self.shape) if isinstance(self.shape, Iterable) else ()
        if not found or not all(_is_whole(n) and n > 0 for n in found):
            raise ArgumentError(f"MeshShapeIs: a shape such as (2, 4), got {self.shape!r}.")
        object.__setattr__(self, "shape", tuple(map(index, found)))

    def __str__(self) -> str:
        return f"the mesh is {'x'.join(map(str, self.shape))}"

    @property
    def tells_axes_apart(self) -> bool:
        return True

    def mistake(self, meant: Sequence[GraphValue], axes: int) -> str:
        return "" if len(self.shape) == axes else f"a mesh here has {axes} axes"

    def allows_mesh(self, shape: Extents) -> bool:
        return tuple(shape) == self.shape


@dataclass(frozen=True)
class MemoryShare(Constraint):
    """Tensors take no more than this part of the memory of each device."""

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ArgumentError(f"MemoryShare: a part between 0 and 1 of each device's memory, got {self.share}.")

    def __str__(self) -> str:
        return f"tensors take at most {self.share:.0%} of each device's memory"


@dataclass(frozen=True)
class WeightDtypes:
    """No constraint but a liberty: weights of these names may be kept in any of these dtypes, caches in the least."""

    names: str
    dtypes: tuple[DataType, ...]

    def __post_init__(self) -> None:
        given = self.dtypes if isinstance(self.dtypes, list | tuple) else (self.dtypes,)
        wrong = next((one for one in given if not isinstance(one, DataType)), None)
        if wrong is not None:
            raise ArgumentError(f"WeightDtypes({self.names!r}): dtypes such as ttnn.bfloat8_b, got {wrong!r}.")
        object.__setattr__(self, "dtypes", tuple(given))


def with_memory_of(constraints: Sequence[object]) -> float:
    """The part of the memory that tensors may take."""
    return min((one.share for one in constraints if isinstance(one, MemoryShare)), default=1.0)


def closed_axes(constraints: Sequence[object]) -> frozenset[int]:
    """Along which nothing may be sent."""
    return frozenset(one.axis for one in constraints if isinstance(one, UsersAxis))


def check_constraints(constraints: Sequence[Constraint | WeightDtypes], graph: OpGraph, axes: int) -> None:
    """Refuse what means no tensor of the program, or speaks of a dim or an axis that is not there."""
    for one in constraints:
        if not isinstance(one, Constraint):
            _meant(one.names, graph)
            continue
        wrong = one.mistake([value for pattern in one.patterns for value in _meant(pattern, graph)], axes)
        if wrong:
            raise ArgumentError(f"softmesh.plan: the constraint that {one} cannot be: {wrong}.")


def _meant(pattern: str, graph: OpGraph) -> list[GraphValue]:
    found = [leaf for leaf in graph.leaves if fnmatchcase(leaf.name, pattern)]
    if not found:
        names = [leaf.name for leaf in graph.leaves]
        known = ", ".join(names[:12]) + (" ..." if len(names) > 12 else "")
        raise ArgumentError(f"softmesh.plan: no weight, input or cache is called {pattern!r}. The program has {known}.")
    return found


def dtypes_of(value: GraphValue, liberties: Sequence[WeightDtypes]) -> tuple[DataType, ...]:
    """Those that a value may be kept in, its own first."""
    if value.role is not Role.WEIGHT or value.layout is not TensorLayout.TILE or len(value.shape) < 2:
        return (value.dtype,)
    allowed = (dtype for one in liberties if fnmatchcase(value.name, one.names) for dtype in one.dtypes)
    return tuple(dict.fromkeys((value.dtype, *allowed)))


def fabric_named(text: str) -> FabricConfig:
    found = getattr(FabricConfig, text, None)
    if not isinstance(found, FabricConfig):
        names = ", ".join(one.name for one in FabricConfig)
        raise ArgumentError(f"There is no fabric config {text!r}. There are {names}.")
    return found


def _no_such_dim(dim: int, meant: Sequence[GraphValue]) -> str:
    wrong = next((value for value in meant if not -len(value.shape) <= dim < len(value.shape)), None)
    return "" if wrong is None else f"{wrong.name} {list(wrong.shape)} has no dim {dim}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")


def _from_first(word: Placement, rank: int) -> Placement:
    return Shard(word.dim % rank) if isinstance(word, Shard) and rank else word


def _is_aligned(value: GraphValue, layout: Sequence[Placement], mesh: Extents) -> bool:
    if value.layout is not TensorLayout.TILE or not value.shape:
        return True
    local = Value(value.shape, 0, mesh).local_shape(tuple(layout))
    rank = len(local)
    split = {word.dim for word in layout if isinstance(word, Shard)}
    return all(local[dim] % TILE_SIZE == 0 for dim in split if dim >= rank - 2 and value.shape[dim] > 1)
