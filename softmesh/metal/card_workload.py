"""Workloads on a mesh of cards: programs on ranges, compiled when first used, submitted everywhere, then waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from softmesh.drivers.protocol import Args, Cores, Event, ProgramSpec
from softmesh.errors import ArgumentError, MeshError
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange, MeshShape
from softmesh.metal.card import Card
from softmesh.metal.card_mesh import CardMesh
from softmesh.metal.spec_program import programs_of
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.workload import MeshWorkload


class Work(NamedTuple):
    """A program with the arguments of its cores, which are the program's own unless others are named."""

    program: ProgramSpec
    args: Args = ()
    cores: Cores | None = None


class Submitted:
    """Work that is under way on some cards."""

    def __init__(self, mesh: CardMesh, what: str, events: Mapping[Card, Event]) -> None:
        self._mesh, self._what, self._events = mesh, what, events

    def done(self) -> bool:
        return all(card.driver.query(event) for card, event in self._events.items())

    def wait(self, timeout: float | None = None) -> None:
        """Until all cards have ended; raises one error for all that failed."""
        seconds = self._mesh.timeouts.run if timeout is None else timeout
        jobs = {card: partial(card.driver.wait, event, seconds) for card, event in self._events.items()}
        self._mesh.each(self._what, jobs, seconds)


def submitted(mesh: CardMesh, what: str, works: Mapping[Card, Work]) -> Submitted:
    """On every card before any is waited for. Where one refuses, the others are waited for before the error."""
    events, failures = mesh.outcomes(
        what, {card: _submitting(card, work) for card, work in works.items()}, mesh.timeouts.run
    )
    if failures:
        if not mesh.failed:
            seconds = mesh.timeouts.run
            drained = {card: partial(card.driver.wait, event, seconds) for card, event in events.items()}
            failures += mesh.outcomes(what, drained, seconds)[1]
        raise mesh.error(what, failures)
    return Submitted(mesh, what, events)


def parts_of(workload: object) -> Sequence[tuple[object, object]]:
    """The ranges and programs of a dict, or of a MeshWorkload."""
    if isinstance(workload, Mapping):
        return list(workload.items())
    parts = programs_of(workload)
    if parts is None:
        raise ArgumentError(
            "enqueue_mesh_workload: a workload is a dict {range: program} or {range: (program, args)}, with "
            f"MeshCoordinateRange keys, or a MeshWorkload; got a {type(workload).__name__}"
        )
    return parts


def run_on_mesh(mesh: MeshDevice, workload: object, blocking: bool) -> Launched:
    """On a mesh that `ttnn` opened."""
    if isinstance(workload, MeshWorkload):
        made = workload
    else:
        made = MeshWorkload()
        for key, program in parts_of(workload):
            made.add_program(_range(mesh.shape, key), program)  # type: ignore[arg-type]
    mesh.mesh_command_queue().enqueue_mesh_workload(made, blocking)
    return Launched(mesh)


class Launched:
    """Work that was handed to the queue of a `ttnn` mesh."""

    def __init__(self, mesh: MeshDevice) -> None:
        self._mesh = mesh

    def done(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> None:
        self._mesh.mesh_command_queue().finish()


def works_by_card(mesh: CardMesh, workload: object) -> dict[Card, Work]:
    """What each card that a range covers is to run."""
    works: dict[Card, Work] = {}
    owners: dict[Card, MeshCoordinateRange] = {}
    for key, value in parts_of(workload):
        where, work = _range(mesh.shape, key), _work(value)
        for coordinate in where:
            card = mesh.card(coordinate)
            if card in owners:
                raise MeshError(
                    f"Program range {where} overlaps with the previously added range {owners[card]}: each card runs "
                    "one program of a workload"
                )
            works[card], owners[card] = work, where
    if not works:
        raise MeshError("enqueue_mesh_workload: the workload has no programs")
    return works


def _range(shape: MeshShape, key: object) -> MeshCoordinateRange:
    if isinstance(key, MeshCoordinate):
        key = MeshCoordinateRange(key, key)
    if not isinstance(key, MeshCoordinateRange):
        raise ArgumentError(
            f"enqueue_mesh_workload: programs are for a MeshCoordinateRange or a MeshCoordinate, got {key!r}"
        )
    if not (shape.contains(key.start) and shape.contains(key.end)):
        raise MeshError(f"enqueue_mesh_workload: {key} does not lie in a mesh of {shape}")
    return key


def _work(value: Any) -> Work:
    program, args = value if isinstance(value, tuple) and len(value) == 2 else (value, ())
    if not isinstance(program, ProgramSpec):
        raise ArgumentError(
            f"enqueue_mesh_workload: a program is a ProgramSpec, or (ProgramSpec, args); got a {type(value).__name__}"
        )
    return Work(program, args)


def _submitting(card: Card, work: Work) -> Callable[[], Event]:
    return lambda: card.driver.submit(card.image(work.program), work.args, cores=work.cores)
