"""Sets up the placement problem of a graph on a mesh: the strategies of its ops and the homes of its leaves.

What cannot be part of a good plan is left out: contributions to a sum where nothing makes any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product

from softmesh.cost.chip_costs import memory_bytes
from softmesh.cost.link_costs import Line
from softmesh.distributed.layouts import Extents, Layout, Value, all_layouts, bits, is_whole
from softmesh.errors import MeshError
from softmesh.hardware.enums import DataType
from softmesh.hardware.enums import Layout as TensorLayout
from softmesh.placement.placements import Partial, Shard
from softmesh.planner.constraints import Constraint, WeightDtypes, closed_axes, dtypes_of, with_memory_of
from softmesh.planner.handed_activations import takes_over
from softmesh.planner.joined_products import JoinedStrategies
from softmesh.planner.l1_values import l1_limits
from softmesh.planner.op_graph import GraphNode, GraphValue, OpGraph
from softmesh.planner.op_strategies import OpStrategy, StrategyFinder
from softmesh.planner.placement_problem import Home, PlacementProblem
from softmesh.systems.chip import Chip
from softmesh.tensor.dtype import TILE_SIZE
from softmesh.value_free import without_values


@dataclass(frozen=True)
class Freedom:
    """What the search may choose from. A predicate that is left out allows everything."""

    plain_only: bool = True  # only what public ops of TT-NN do
    tile_aligned: bool = True  # a tiled value is not split along its last dim into parts of tiles
    memory_share: float = 1.0  # of the DRAM of a chip
    allows_home: Callable[[GraphValue, Home], bool] | None = None
    allows_strategy: Callable[[GraphNode, OpStrategy], bool] | None = None
    constraints: tuple[Constraint, ...] = ()
    dtypes: tuple[WeightDtypes, ...] = ()

    @property
    def tells_axes_apart(self) -> bool:
        """Whether a mesh of 2x4 may be another choice than a mesh of 4x2."""
        is_asked = self.allows_home is not None or self.allows_strategy is not None
        return is_asked or any(one.tells_axes_apart for one in self.constraints)

    def dtypes_of(self, value: GraphValue) -> tuple[DataType, ...]:
        """Those that a value may be kept in, its own first."""
        return dtypes_of(value, self.dtypes)


ANYTHING = Freedom()


class NoStrategy(MeshError):
    """A constraint, or a mesh shape, leaves an op without a way to be done."""


def problem_of(
    graph: OpGraph,
    mesh_shape: Extents,
    lines: tuple[Line, ...],
    chip: Chip,
    freedom: Freedom = ANYTHING,
    finder: StrategyFinder | None = None,
    stages: int = 1,
) -> PlacementProblem:
    """`lines` tell, for each axis, how many devices lie along it and how they are joined.

    Of so many `stages` of a pipeline each has a mesh of this shape, and its part of the leaves.
    """
    for constraint in freedom.constraints:
        if not constraint.allows_mesh(mesh_shape):
            raise NoStrategy(f"softmesh.plan: a mesh of {_times(mesh_shape)} devices is ruled out: {constraint}.")
    finder = finder or StrategyFinder(mesh_shape, chip, lines)
    limits = l1_limits(graph, chip)
    joined = JoinedStrategies(graph, finder, freedom.dtypes_of, limits) if stages == 1 else None
    setup = _Setup(graph, mesh_shape, finder, freedom, limits, joined)
    with without_values():
        strategies = setup.all_strategies()
    homes = {leaf.number: setup.homes(leaf) for leaf in graph.leaves}
    homes |= {
        number: setup.homes(graph.values[number])
        for number in graph.outputs
        if number in graph.makers and graph.values[number].version_of is None
    }
    share = freedom.memory_share * with_memory_of(freedom.constraints)
    memory = int(memory_bytes(chip) * share)
    closed = closed_axes(freedom.constraints)
    joins = () if joined is None else joined.joins
    return PlacementProblem(
        graph, mesh_shape, lines, chip, strategies, homes, memory, closed, 1 / stages, limits, joins
    )


class _Setup:
    def __init__(
        self,
        graph: OpGraph,
        mesh_shape: Extents,
        finder: StrategyFinder,
        freedom: Freedom,
        limits: Mapping[int, int],
        joined: JoinedStrategies | None,
    ) -> None:
        self._graph, self._mesh, self._finder, self._freedom = graph, mesh_shape, finder, freedom
        self._joined = joined
        self._l1_limits = limits
        self._contributions: dict[int, set[int]] = {}  # of each value: the axes along which it can be a sum's parts
        self._alike: dict[tuple[object, ...], tuple[OpStrategy, ...]] = {}
        self._same: dict[tuple[int, ...], tuple[OpStrategy, ...]] = {}  # one object for equal choices
        self._kept: dict[tuple[Extents, object], tuple[Layout, ...]] = {}
        self._of_nodes: list[tuple[OpStrategy, ...]] = []
        self._any_dtype: dict[tuple[int, ...], tuple[OpStrategy, ...]] = {}

    def all_strategies(self) -> tuple[tuple[OpStrategy, ...], ...]:
        for node in self._graph.nodes:
            self._of_nodes.append(self.strategies(node))
        return tuple(self._of_nodes)

    def _every(self, node: GraphNode) -> tuple[OpStrategy, ...]:
        """Those of the op, with its weights in each of the dtypes that they may be kept in."""
        values = [self._graph.values[number] for number in node.operands]
        dtypes = [
            self._freedom.dtypes_of(value) if value.number not in self._graph.makers else (value.dtype,)
            for value in values
        ]
        found, hands_on = [], takes_over(self._graph, node)
        for chosen in product(*dtypes):
            instead = {v.number: dtype for v, dtype in zip(values, chosen, strict=True) if dtype is not v.dtype}
            found.append(self._finder.strategies(self._graph, node, instead, self._l1_limits, hands_on=hands_on))
        joined = () if self._joined is None else self._joined.strategies(node)
        found += [joined] if joined else []
        if len(found) == 1:
            return found[0]
        key = tuple(map(id, found))
        if key not in self._any_dtype:
            self._any_dtype[key] = tuple(chain.from_iterable(found))
        return self._any_dtype[key]

    def strategies(self, node: GraphNode) -> tuple[OpStrategy, ...]:
        """Those of the op that are allowed here, and whose contributions somebody can make."""
        every = self._every(node)
        allows = self._allows_strategy()
        made = tuple(frozenset(self._contributions.get(value, ())) for value in node.operands)
        handed = tuple(place for place, value in enumerate(node.operands) if self._is_handed_on(value))
        key = (id(every), made, handed)
        left = self._alike.get(key)
        if left is None:
            left = self._alike[key] = tuple(s for s in every if self._is_open(node, s, made, handed))
        if allows is not None:
            left = tuple(strategy for strategy in left if allows(node, strategy))
            left = self._same.setdefault(tuple(map(id, left)), left)
        if not left:
            raise NoStrategy(
                f"softmesh.plan: no way of splitting {node.op} at {node.site} over {_times(self._mesh)} "
                f"devices is left of {len(every)}: allow more, or leave a constraint on its operands out."
            )
        for place, value in enumerate(node.results):
            self._contributions[value] = {
                axis for s in left for axis, word in enumerate(s.gives[place]) if isinstance(word, Partial)
            }
        return left

    def _allows_strategy(self) -> Callable[[GraphNode, OpStrategy], bool] | None:
        own, constraints = self._freedom.allows_strategy, self._strict
        if not constraints:
            return own

        def allows(node: GraphNode, strategy: OpStrategy) -> bool:
            return (own is None or own(node, strategy)) and all(
                one.allows_strategy(self._graph, node, strategy, self._mesh) for one in constraints
            )

        return allows

    @cached_property
    def _strict(self) -> tuple[Constraint, ...]:
        """Those of the constraints that look at strategies."""
        ours = self._freedom.constraints
        return tuple(one for one in ours if type(one).allows_strategy is not Constraint.allows_strategy)

    def _is_open(
        self, node: GraphNode, strategy: OpStrategy, made: Sequence[frozenset[int]], handed: Sequence[int]
    ) -> bool:
        if self._freedom.plain_only and not strategy.is_plain:
            return False
        values = [*zip(node.operands, strategy.needs, strict=True), *zip(node.results, strategy.gives, strict=True)]
        if not all(self._is_aligned(self._graph.values[number], layout) for number, layout in values):
            return False
        if not all(is_whole(strategy.needs[place]) for place in handed):
            return False
        for axis in range(len(self._mesh)):
            wanting = [place for place, layout in enumerate(strategy.needs) if isinstance(layout[axis], Partial)]
            if wanting and not any(axis in made[place] for place in wanting):
                return False
        return True

    def _is_handed_on(self, value: int) -> bool:
        """True if who reads it may have to do the activation behind it, which is not linear."""
        maker = self._graph.makers.get(value)
        return maker is not None and takes_over(self._graph, self._graph.nodes[maker])

    def _is_aligned(self, value: GraphValue, layout: Layout) -> bool:
        if not self._freedom.tile_aligned or value.layout is not TensorLayout.TILE or not value.shape:
            return True
        last = len(value.shape) - 1
        if not any(isinstance(word, Shard) and word.dim == last for word in layout):
            return True
        piece = Value(value.shape, 0, self._mesh).local_shape(layout)[last]
        return piece % TILE_SIZE == 0 or value.shape[last] % TILE_SIZE != 0

    def homes(self, value: GraphValue) -> tuple[Home, ...]:
        key = (value.shape, value.layout)
        layouts = self._kept.get(key)
        if layouts is None:
            every = all_layouts(Value(value.shape, bits(value.dtype), self._mesh))
            found = (layout for layout in every if is_whole(layout) and self._is_aligned(value, layout))
            layouts = self._kept[key] = tuple(found)
        allows, constraints = self._freedom.allows_home, self._freedom.constraints
        homes = tuple(Home(layout, dtype) for dtype in self._dtypes(value) for layout in layouts)
        left = homes if allows is None else tuple(home for home in homes if allows(value, home))
        left = tuple(home for home in left if all(one.allows_home(value, home, self._mesh) for one in constraints))
        if not left:
            raise NoStrategy(
                f"softmesh.plan: no placement of {value.name} {list(value.shape)} on {_times(self._mesh)} "
                "devices is allowed: leave a constraint on it out."
            )
        return left

    def _dtypes(self, value: GraphValue) -> tuple[DataType, ...]:
        """Those that all ops which read it can take."""
        every = self._freedom.dtypes_of(value)
        if len(every) == 1 or value.number in self._graph.makers:
            return (value.dtype,)
        taken = [{s.dtypes[place] for s in self._of_nodes[node]} for node, place in self._graph.consumers[value.number]]
        return tuple(dtype for dtype in every if all(dtype in one for one in taken))


def _times(shape: Extents) -> str:
    return "x".join(map(str, shape))
