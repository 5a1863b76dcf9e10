"""SOFTMESH_LOCKSTEP=1: processes that hold one mesh compare what they did, at each collective.

On silicon they must make the same allocations and the same calls in the same order; programs that drift apart
give wrong numbers there, or hang much later. Here the first command that differs is named, with both lines.
"""

from __future__ import annotations

import os

import torch

from softmesh.processes.context import DistributedContext
from softmesh.processes.lockstep import Lockstep
from softmesh.processes.rank_grid import RankGrid
from softmesh.processes.wait_report import Site
from softmesh.runtime.commands import Command, attach

VARIABLE = "SOFTMESH_LOCKSTEP"


class LockstepCheck:
    """Feeds the command stream into a running hash, which every gathering compares first."""

    def __init__(self) -> None:
        self._lockstep = Lockstep()

    def on_command(self, command: Command) -> None:
        tensors = (*command.inputs, *command.outputs)
        shapes, dtypes = [tuple(t.shape) for t in tensors], [t.dtype for t in tensors]
        self._lockstep.feed(command.name, shapes, dtypes, Site(*command.site))

    def before_gathering(self, op: str, data: torch.Tensor, line: DistributedContext) -> None:
        self._lockstep.feed(op, [tuple(data.shape)], [data.dtype])
        self._lockstep.compare(line)


def watch(ranks: RankGrid) -> None:
    """Where the environment asks for it, compare from now on."""
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return
    check = LockstepCheck()
    attach(check)
    ranks.before_gathering = check.before_gathering
