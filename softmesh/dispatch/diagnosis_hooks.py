"""The hooks of `softmesh.diagnosis`, which stands above the calls and fills them in: a call asks, and says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from softmesh.dispatch.definition import AfterRunning, Definition
from softmesh.dispatch.plan import Plan
from softmesh.dispatch.signature import BoundCall, Signature
from softmesh.errors import ArgumentError
from softmesh.processes.lockstep import SharedCall
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.traces.recording import Recording
from softmesh.tensor.tensor import Tensor


class PlannedCall(NamedTuple):
    """A call that is about to run. `run_in_place` runs it on other tensors, if it writes to its operands."""

    definition: Definition
    plan: Plan
    bound: BoundCall
    recording: Recording | None
    is_tracked: bool
    run_in_place: Callable[[Plan, list[Tensor], list[Any]], list[Tensor]]


class Hooks:
    """`after_planning` is called where somebody listens; what it returns is called after running, with the results.

    The others are for calls that fail, and for those which the ranks of a mesh make together.
    """

    after_planning: Callable[[PlannedCall], list[AfterRunning]]
    explained: Callable[[str, Signature, ArgumentError, tuple[Any, ...], dict[str, Any]], ArgumentError]
    tell_unforeseen: Callable[[str, Exception, tuple[Any, ...], dict[str, Any]], None]
    tell_ranks: Callable[[Definition, BoundCall, MeshDevice], SharedCall | None]


HOOKS = Hooks()
