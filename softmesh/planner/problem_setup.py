"""Sets up the placement problem of a graph on a mesh: the strategies of its ops and the homes of its leaves.

What cannot be part of a good plan is left out: contributions to a sum where nothing makes any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softmesh.cost.chip_costs import memory_bytes
from softmesh.cost.link_costs import Line
from softmesh.distributed.layouts import Extents, Layout, Value, all_layouts, bits, is_whole
from softmesh.errors import MeshError
from softmesh.hardware.enums import Layout as TensorLayout
from softmesh.placement.placements import Partial, Shard
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


ANYTHING = Freedom()


def problem_of(
    graph: OpGraph,
    mesh_shape: Extents,
    lines: tuple[Line, ...],
    chip: Chip,
    freedom: Freedom = ANYTHING,
    finder: StrategyFinder | None = None,
) -> PlacementProblem:
    """`lines` tell, for each axis, how many devices lie along it and how they are joined."""
    finder = finder or StrategyFinder(mesh_shape, chip, lines)
    setup = _Setup(graph, mesh_shape, finder, freedom)
    with without_values():
        strategies = tuple(setup.strategies(node) for node in graph.nodes)
    homes = {leaf.number: setup.homes(leaf) for leaf in graph.leaves}
    homes |= {
        number: setup.homes(graph.values[number])
        for number in graph.outputs
        if number in graph.makers and graph.values[number].version_of is None
    }
    memory = int(memory_bytes(chip) * freedom.memory_share)
    return PlacementProblem(graph, mesh_shape, lines, chip, strategies, homes, memory)


class _Setup:
    def __init__(self, graph: OpGraph, mesh_shape: Extents, finder: StrategyFinder, freedom: Freedom) -> None:
        self._graph, self._mesh, self._finder, self._freedom = graph, mesh_shape, finder, freedom
        self._contributions: dict[int, set[int]] = {}  # of each value: the axes along which it can be a sum's parts
        self._alike: dict[tuple[object, ...], tuple[OpStrategy, ...]] = {}
        self._same: dict[tuple[int, ...], tuple[OpStrategy, ...]] = {}  # one object for equal choices
        self._kept: dict[tuple[Extents, object], tuple[Layout, ...]] = {}

    def strategies(self, node: GraphNode) -> tuple[OpStrategy, ...]:
        """Those of the op that are allowed here, and whose contributions somebody can make."""
        every = self._finder.strategies(self._graph, node)
        allows = self._freedom.allows_strategy
        made = tuple(frozenset(self._contributions.get(value, ())) for value in node.operands)
        key = (id(every), made)
        left = self._alike.get(key)
        if left is None:
            left = self._alike[key] = tuple(s for s in every if self._is_open(node, s, made))
        if allows is not None:
            left = tuple(strategy for strategy in left if allows(node, strategy))
            left = self._same.setdefault(tuple(map(id, left)), left)
        if not left:
            raise MeshError(
                f"softmesh.plan: no way of splitting {node.op} at {node.site} over {'x'.join(map(str, self._mesh))} "
                f"devices is left of {len(every)}: allow more, or leave a constraint on its operands out."
            )
        for place, value in enumerate(node.results):
            self._contributions[value] = {
                axis for s in left for axis, word in enumerate(s.gives[place]) if isinstance(word, Partial)
            }
        return left

    def _is_open(self, node: GraphNode, strategy: OpStrategy, made: Sequence[frozenset[int]]) -> bool:
        if self._freedom.plain_only and not strategy.is_plain:
            return False
        values = [*zip(node.operands, strategy.needs, strict=True), *zip(node.results, strategy.gives, strict=True)]
        if not all(self._is_aligned(self._graph.values[number], layout) for number, layout in values):
            return False
        for axis in range(len(self._mesh)):
            wanting = [place for place, layout in enumerate(strategy.needs) if isinstance(layout[axis], Partial)]
            if wanting and not any(axis in made[place] for place in wanting):
                return False
        return True

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
        allows = self._freedom.allows_home
        homes = tuple(Home(layout, value.dtype) for layout in layouts)
        left = homes if allows is None else tuple(home for home in homes if allows(value, home))
        if not left:
            raise MeshError(
                f"softmesh.plan: no placement of {value.name} {list(value.shape)} on {'x'.join(map(str, self._mesh))} "
                "devices is allowed: leave a constraint on it out."
            )
        return left
