"""Exit chips: through which chip a packet for another mesh leaves its own.

The next mesh lies on a shortest way through the graph of meshes. Among its exits a chip takes itself, else the
nearest, counted in rows and columns without wraps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph, Node
from softmesh.fabric.routing.intermesh_links import Crossing
from softmesh.hardware import RoutingDirection
from softmesh.systems.machine import Link

NO_EXIT = -1


class Exit(NamedTuple):
    """A chip with links to another mesh, the port direction they leave by, and the chip they lead to."""

    node: Node
    direction: RoutingDirection
    entry: Node
    links: tuple[Link, ...]


class Exits:
    """All exits of all meshes. Without `pass_through` only meshes that touch reach each other."""

    def __init__(self, graph: MeshGraph, crossings: Iterable[Crossing], pass_through: bool) -> None:
        self._graph = graph
        self.pass_through = pass_through
        self._of: dict[int, list[Exit]] = {mesh.id: [] for mesh in graph.meshes}
        for one, one_direction, other, other_direction, links in crossings:
            self._of[one.mesh].append(Exit(one, one_direction, other, links))
            self._of[other.mesh].append(Exit(other, other_direction, one, links))
        for exits in self._of.values():
            exits.sort(key=lambda exit: (exit.entry.mesh, exit.node))
        self._chosen: dict[tuple[int, int], tuple[list[Exit], npt.NDArray[np.int64]]] = {}
        self._hops: dict[int, dict[int, int]] = {}

    def __bool__(self) -> bool:
        return any(self._of.values())

    def all(self) -> list[Exit]:
        return [exit for exits in self._of.values() for exit in exits]

    def exit_for(self, src: Node, mesh: int) -> Exit | None:
        candidates, chosen = self.choices(src.mesh, mesh)
        index = int(chosen[src.chip])
        return None if index == NO_EXIT else candidates[index]

    def choices(self, mesh: int, goal: int) -> tuple[list[Exit], npt.NDArray[np.int64]]:
        """The exits of `mesh` towards the mesh `goal`, and for each chip the index of its own, or NO_EXIT."""
        if (mesh, goal) not in self._chosen:
            candidates = self._towards(mesh, goal)
            self._chosen[mesh, goal] = candidates, nearest_exits(self._graph.mesh(mesh), candidates)
        return self._chosen[mesh, goal]

    def _towards(self, mesh: int, goal: int) -> list[Exit]:
        if not self.pass_through:
            return [exit for exit in self._of[mesh] if exit.entry.mesh == goal]
        away = self._hops_to(goal)
        return [exit for exit in self._of[mesh] if away.get(exit.entry.mesh, -1) + 1 == away.get(mesh, -1) > 0]

    def _hops_to(self, goal: int) -> dict[int, int]:
        """Meshes to cross from each mesh that reaches `goal`, breadth first."""
        if goal not in self._hops:
            away, queue = {goal: 0}, [goal]
            for mesh in queue:
                for near in dict.fromkeys(exit.entry.mesh for exit in self._of[mesh]):
                    if near not in away:
                        away[near] = away[mesh] + 1
                        queue.append(near)
            self._hops[goal] = away
        return self._hops[goal]


def nearest_exits(mesh: LogicalMesh, candidates: list[Exit]) -> npt.NDArray[np.int64]:
    """For each chip of the mesh the index of the exit it takes.

    The first tie with the nearest exit so far replaces it, later ones do not: the rule weighs load, and the
    weights are all zero.
    """
    rows, columns = np.divmod(np.arange(mesh.size), mesh.shape[1])
    chosen = np.full(mesh.size, NO_EXIT)
    nearest = np.full(mesh.size, np.iinfo(np.int64).max)
    had_tie = np.zeros(mesh.size, bool)
    for index, exit in enumerate(candidates):
        row, column = mesh.coordinate(exit.node.chip)
        distance = np.abs(rows - row) + np.abs(columns - column)
        nearer = distance < nearest
        ties = (distance == nearest) & ~had_tie
        chosen[nearer | ties] = index
        had_tie = (had_tie | ties) & ~nearer
        nearest = np.minimum(nearest, distance)
    for index in reversed(range(len(candidates))):
        chosen[candidates[index].node.chip] = index
    return chosen
