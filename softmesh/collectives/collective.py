"""A collective as an operation.

A definition has TT-NN's parameter names and returns an `Across`: along which mesh axis, and how. Binding,
checks, output tensors and the command stream are those of every op.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
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
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.dispatch.plan import CostRule, Plan
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.lenience import is_lenient
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues import sub_devices
from softmesh.tensor.tensor import Tensor

_ROUTE = ("topology", "num_links")  # what is asked of the fabric


class Collective(Operation):
    """An op whose devices talk: what it plans depends on the fabric too."""

    planner = CollectivePlanner
    reads_other_devices = True
    has_forms = False  # which check all arguments themselves

    def _planned(
        self, parts: list[Any], values: list[Any], tensors: list[Tensor], data: list[Any], target: Any
    ) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        device = tensors[0].storage.device
        if self._tuning_at and device is not None:
            self._check_tuning(values, device)
        wishes = [values[at] for at in self._wishes_at]
        parts += wishes
        parts.append(None if device is None else device.id())  # which links join its chips matters too
        parts.append(settings.serial)
        parts.append((is_lenient(), CONFIG.strict_ccl_topology))
        return super()._planned(parts, values, tensors, data, target)

    def circumstances(self, kwargs: dict[str, Any]) -> Hashable:
        loaded = sub_devices.serial if "subdevice_id" in kwargs else None
        return settings.serial, is_lenient(), CONFIG.strict_ccl_topology, loaded

    def asks_more(self, kwargs: dict[str, Any]) -> bool:
        return "topology" in kwargs or "num_links" in kwargs or is_lenient()

    def _differentiated(self, plan: Plan, values: list[Any], data: list[Any]) -> tuple[torch.Tensor, ...]:
        return differentiated(self, plan, values, data)

    def _check_tuning(self, values: list[Any], device: MeshDevice) -> None:
        """What steers hardware only, where no form has looked at it."""
        given = {name: values[at] for at, name in self._tuning_at if values[at] is not None}
        for name, value in given.items():
            kind = KINDS[KIND_OF.get(name, "any")]
            if not kind.fits(value):
                raise refused(self.name, kind.misfit(name, value))
        check_resources(self.name, given, device)

    def _check(self, tensors: list[Tensor], data: list[Any], target: Any) -> MeshDevice | None:
        if isinstance(target, list | tuple) and self._signature.output_name == "output_tensor":
            raise refused(self.name, f"output_tensor must be a ttnn.Tensor, got {described(target)}")
        return super()._check(tensors, data, target)

    def _check_targets(self, targets: list[Any], tensors: list[Tensor], device: MeshDevice | None) -> None:
        if self._signature.output_name is not None and device is not None:
            for target in targets:
                if isinstance(target, Tensor) and target.storage.device is not device:
                    check_buffer(self.name, self._signature.output_name, target, device)
        super()._check_targets(targets, tensors, device)

    def _refuse_devices(self, tensors: list[Tensor]) -> None:
        if all(tensor.storage.device is not None for tensor in tensors):
            super()._refuse_devices(tensors)
        said = {
            "all_reduce": "Mesh device is required for all_reduce operation:",
            "broadcast": "Operands to broadcast need to be on device!",
        }.get(self.name, "Input tensor must to be on device!")
        raise MeshError(
            f"{said} {self.name} got a tensor on the host: move it with ttnn.to_device(t, mesh_device)."
        )

    @cached_property
    def _tuning_at(self) -> list[tuple[int, str]]:
        if self.has_forms:
            return []
        names = [(at, self._signature.names[at]) for at in self._signature.tuning_at]
        return [(at, name) for at, name in names if name not in _ROUTE]

    @cached_property
    def _wishes_at(self) -> list[int]:
        names = self.definition.signature.names
        return [names.index(wish) for wish in _ROUTE if wish in names]


def collective(
    name: str | None = None,
    *,
    controls: str = "memory_config",
    tuning: str = "",
    positional: str = "",
    precision: str = "data",
    cost: CostRule = moves_bytes,
) -> Callable[[Callable[..., Across]], Collective]:
    """Register the collective that the decorated function defines."""

    def register(define: Callable[..., Across]) -> Collective:
        known_as = name or define.__name__
        signature = Signature(known_as, define, controls.split(), tuning.split(), positional.split())
        made = Collective(Definition(known_as, define, signature, cost, precision))  # type: ignore[arg-type]
        OPERATIONS[known_as] = made
        return made

    return register


def group_along(name: str, tensor: Tensor, axis: int | None) -> Group:
    """The group of a tensor on a mesh."""
    device = tensor.device()
    assert device is not None
    return group_of(Reach.of(name, device, axis).wide(tensor.view_distribution()), axis)
