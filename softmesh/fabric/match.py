"""The answer of matching: which chip of the machine plays which logical chip."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import MeshGraph, Node
from softmesh.systems.machine import Link, Machine


@dataclass(frozen=True)
class Match:
    """An embedding of `graph` into `machine`. Warnings say where links are fewer than asked for."""

    graph: MeshGraph
    machine: Machine
    chips: dict[Node, int]
    warnings: tuple[str, ...] = field(default=())

    @cached_property
    def nodes(self) -> dict[int, Node]:
        """The logical name of each chip in use."""
        return {chip: node for node, chip in self.chips.items()}

    def links(self, one: Node, other: Node) -> tuple[Link, ...]:
        return self.machine.links_between(self.chips[one], self.chips[other])

    def hosts_of(self, mesh: int) -> dict[int, str]:
        """The host that each host rank of a mesh runs on."""
        logical = self.graph.mesh(mesh)
        return {
            logical.host_rank(chip): self.machine.asics[self.chips[Node(mesh, chip)]].host
            for chip in range(logical.size)
        }


class MatchError(MeshError):
    """No embedding. `requirement` names what failed first, `nearest` the closest thing that would work."""

    def __init__(self, requirement: str, detail: str, nearest: str = "", line: int | None = None) -> None:
        self.requirement = requirement
        self.detail = detail
        self.nearest = nearest
        self.line = line  # of the descriptor, where one thing there is to blame
        advice = f" {nearest}" if nearest else ""
        super().__init__(
            f"Graph specified in MGD could not fit in the discovered physical topology. {detail}. "
            f"Either relax pinnings or modify the MGD.{advice}"
        )
