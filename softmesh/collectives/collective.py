"""A collective as an operation.

A definition has TT-NN's parameter names and returns an `Across`: along which mesh axis, and how. Binding,
checks, output tensors and the command stream are those of every op; what differs stands in `collective_definition`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.arguments import described, refused
from softmesh.collectives.across import Across
from softmesh.collectives.argument_kinds import KIND_OF, KINDS
from softmesh.collectives.gradients import differentiated
from softmesh.collectives.groups import Group, group_of
from softmesh.collectives.planning import CollectivePlanner
from softmesh.collectives.reach import Reach
from softmesh.collectives.resources import check_buffer, check_resources
from softmesh.config import CONFIG
from softmesh.dispatch.bound_call import BoundCall
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operation import Operation, registered
from softmesh.dispatch.plan import CostRule, Plan
from softmesh.dispatch.signature import Signature
from softmesh.dispatch.undefined_values import carried_over, warned_about
from softmesh.fabric import settings
from softmesh.lenience import is_lenient
from softmesh.tensor.tensor import Tensor

_ROUTE = ("topology", "num_links")  # what is asked of the fabric
_OFF_MESH = {
    "all_reduce": "Mesh device is required for all_reduce operation:",
    "broadcast": "Operands to broadcast need to be on device!",
}


def collective_definition(
    name: str,
    define: Callable[..., Across],
    signature: Signature,
    *,
    precision: str = "data",
    cost: CostRule = moves_bytes,
    **options: Any,
) -> Definition:
    """Of an op whose devices talk: what it plans depends on the fabric too."""
    given: dict[str, Any] = {
        "planner": CollectivePlanner,
        "check": _check_tuning,
        "check_targets": _check_targets,
        "plan_key": _fabric_key,
        "derive": _with_gradients,
        "off_mesh": _OFF_MESH.get(name, "Input tensor must to be on device!"),
        "reads_other_devices": True,
        "undefined": warned_about,
    }
    return Definition(name, define, signature, cost, precision, **(given | options))


# Options of a collective in which each device reads its own piece only.
NOTHING_IS_SENT: dict[str, Any] = {"reads_other_devices": False, "undefined": carried_over}


def is_collective(op: object) -> bool:
    return isinstance(op, Operation) and op.definition.derive is _with_gradients


def _fabric_key(call: BoundCall) -> list[Any]:
    """The fabric, which links join the chips, and what the call asks of them."""
    device, names = call.device, call.signature.places
    wishes = [call.values[names[wish]] for wish in _ROUTE if wish in names]
    of_mesh = None if device is None else device.id()
    return [*wishes, of_mesh, settings.serial, is_lenient(), CONFIG.strict_ccl_topology]


def _with_gradients(op: Operation, plan: Plan, call: BoundCall) -> tuple[torch.Tensor, ...]:
    return differentiated(op, plan, call.values, call.data)


def _check_tuning(op: Definition, call: BoundCall) -> None:
    """What steers hardware only, where no form has looked at it."""
    signature, device = call.signature, call.device
    if device is None or signature.has_forms:
        return
    tuning = signature.named(call.values, signature.tuning_at)
    given = {name: value for name, value in tuning.items() if value is not None and name not in _ROUTE}
    for name, value in given.items():
        kind = KINDS[KIND_OF.get(name, "any")]
        if not kind.fits(value):
            raise refused(op.name, kind.misfit(name, value))
    check_resources(op.name, given, device)


def _check_targets(op: Definition, call: BoundCall) -> None:
    """Before the operands are looked at: outputs by their own name."""
    name, device = call.signature.output_name, call.device
    if isinstance(call.target, list | tuple) and name == "output_tensor":
        raise refused(op.name, f"output_tensor must be a ttnn.Tensor, got {described(call.target)}")
    if name is not None and device is not None:
        for target in call.targets:
            if isinstance(target, Tensor) and target.storage.device is not device:
                check_buffer(op.name, name, target, device)


def collective(
    name: str | None = None,
    *,
    controls: str = "memory_config",
    tuning: str = "",
    positional: str = "",
    **options: Any,
) -> Callable[[Callable[..., Across]], Operation]:
    """Register the collective that the decorated function defines."""

    def register(define: Callable[..., Across]) -> Operation:
        known_as = name or define.__name__
        signature = Signature(known_as, define, controls.split(), tuning.split(), positional.split())
        return registered(Operation(collective_definition(known_as, define, signature, **options)))

    return register


def unlisted_collective(
    name: str, define: Callable[..., Across], controls: str = "", **options: Any
) -> Operation:
    """A collective of softmesh's own, which is not one of TT-NN's names."""
    signature = Signature(name, define, controls.split(), [])
    return Operation(collective_definition(name, define, signature, **options))


def group_along(name: str, tensor: Tensor, axis: int | None) -> Group:
    """The group of a tensor on a mesh."""
    device = tensor.device()
    assert device is not None
    return group_of(Reach.of(name, device, axis).wide(tensor.view_distribution()), axis)
