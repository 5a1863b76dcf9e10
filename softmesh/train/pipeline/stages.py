"""Stages of a pipeline: a model cut into parts of consecutive layers, and the meshes or ranks that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from softmesh.arguments import checked, checked_all, checked_ints, described, refused
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.processes import current_context
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor
from softmesh.train.module import Module
from softmesh.train.pipeline.stage_schedules import checked_count

_Layer = TypeVar("_Layer")


def cut(layers: Sequence[_Layer], parts: int | Sequence[int]) -> list[list[_Layer]]:
    """Layers, or functions that make them, for each part: into so many parts, or so many layers for each.

    >>> cut("abcdefg", 3)
    [['a', 'b', 'c'], ['d', 'e'], ['f', 'g']]
    >>> cut("abcdefg", [1, 5, 1])
    [['a'], ['b', 'c', 'd', 'e', 'f'], ['g']]
    """
    sizes = _even(len(layers), parts) if isinstance(parts, int) else checked_ints("cut", "parts", parts)
    if any(size < 1 for size in sizes) or sum(sizes) != len(layers):
        raise ArgumentValueError(
            f"cut: {len(layers)} layers cannot be dealt out as {sizes}: every part needs at least one, and all of "
            "them together as many as there are."
        )
    return [list(layers[start:end]) for start, end in pairwise(accumulate(sizes, initial=0))]


def _even(layers: int, parts: int) -> list[int]:
    share, left = divmod(layers, checked_count("cut", "parts", parts))
    return [share + (part < left) for part in range(parts)]


Part = Callable[[Tensor], Any]  # a Module, or any function of one tensor


@dataclass(frozen=True)
class Stage:
    """A mesh and the part of the model that is on it, or several: its chunks, in the order of the model."""

    mesh: MeshDevice
    chunks: Part | Sequence[Part]

    def __post_init__(self) -> None:
        mesh = checked("Stage", "mesh", self.mesh, MeshDevice, "a MeshDevice")
        given = [self.chunks] if callable(self.chunks) else self.chunks
        if not isinstance(given, list | tuple) or not given or not all(map(callable, given)):
            raise refused("Stage", f"chunks must be a Module or a list of them, got {described(self.chunks)}")
        if mesh.block is not None:
            raise MeshError(
                f"Stage: {mesh} is held by several processes. A stage of a pipeline is one process with a mesh of its "
                "own: bind every rank to its own mesh id."
            )
        object.__setattr__(self, "chunks", tuple(given))


@dataclass(frozen=True)
class Stages:
    """Those of this process by their numbers, and how many there are in all."""

    here: dict[int, Stage]
    count: int

    @property
    def is_spread(self) -> bool:
        """Whether each rank has one of them."""
        return len(self.here) < self.count

    @property
    def chunks(self) -> int:
        return len(self.chunks_of(next(iter(self.here))))

    def chunks_of(self, stage: int) -> Sequence[Part]:
        return self.here[stage].chunks  # type: ignore[return-value]

    def part(self, number: int) -> Part | None:
        """A part of the model by its number, if it is here."""
        chunk, stage = divmod(number, self.count)
        return self.chunks_of(stage)[chunk] if stage in self.here else None

    def mesh(self, part: int) -> MeshDevice:
        return self.here[part % self.count].mesh

    def modules(self) -> Iterator[tuple[str, Module]]:
        """By the numbers of their parts, which are the same on every rank."""
        for number in range(self.count * self.chunks):
            if isinstance(part := self.part(number), Module):
                yield f"parts.{number}", part


def stages_of(stages: Stage | Sequence[Stage]) -> Stages:
    """One stage is this rank's, of as many as there are ranks; a list are all of them."""
    if isinstance(stages, Stage):
        world = current_context.init()
        return Stages({world.rank: stages}, world.size)
    given = checked_all("Pipeline", "stages", stages, (Stage,), "Stage(mesh, module), in the order of the model")
    if not given:
        raise refused("Pipeline", "stages must not be empty")
    found = Stages(dict(enumerate(given)), len(given))
    _check_alike(found)
    return found


def _check_alike(stages: Stages) -> None:
    first = stages.here[0].mesh
    for number, stage in stages.here.items():
        if tuple(stage.mesh.shape) != tuple(first.shape):
            raise MeshError(
                f"Pipeline: stage {number} is on {stage.mesh.shape}, stage 0 on {first.shape}. Each device sends to "
                "its counterpart, so the stages' meshes must have one shape."
            )
        if len(stages.chunks_of(number)) != stages.chunks:
            raise MeshError(
                f"Pipeline: stage {number} has {len(stages.chunks_of(number))} chunks, stage 0 {stages.chunks}. Each "
                "stage needs as many."
            )
