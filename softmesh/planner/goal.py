"""The goal of a plan: what it is to be good at, on which machine, and in how many stages of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from softmesh.hardware import FabricConfig

SLOWER_AT_BEST = "no plan on it is faster by more than the gap"  # why a mesh is not searched: by its bound


class Goal(Enum):
    """What is minimised. Stages of a pipeline help calls that follow each other; to a token they only add hops."""

    DECODE = "decode"  # seconds of one call, from its inputs to its outputs
    PREFILL = "prefill"  # seconds between two calls that follow each other without a pause
    TRAINING = "training"  # seconds of a step


@dataclass(frozen=True)
class Opening:
    """What is opened to run a plan: on this system, under this fabric, a mesh of this shape."""

    system: str | None  # None: a mesh that the caller has opened
    fabric: FabricConfig
    shape: tuple[int, ...]  # of the whole mesh; a pipeline cuts it into submeshes of the plan's `mesh_shape`
    down: tuple[str, ...] = ()  # "link:0-1", "chip:5"
    offset: tuple[int, ...] | None = None  # where submeshes of others leave room


@dataclass(frozen=True)
class Stage:
    """Consecutive nodes of the graph, on a submesh of their own."""

    first: int  # node
    end: int  # the node after the last
    seconds: float  # its work and its moves
    send_seconds: float  # what it hands on to the next stage
    memory: int  # bytes on each of its devices
    layers: int = 0  # whole layers of the repeated part among them
    launch_seconds: float = 0.0  # of what is exchanged and moved


@dataclass(frozen=True)
class Candidate:
    """A way to open the system that was looked at, and what came of it."""

    shape: tuple[int, ...]  # of the mesh that every stage has
    stages: int
    seconds: float | None  # by the goal; None where nothing fits
    bound: float  # no plan of this shape takes less
    why: str  # why it is not the plan, or "" of the one that is
