"""A collective as an operation: planned once for a distribution, a mesh and a fabric, then one torch expression.

A definition has TT-NN's parameter names and returns an `Across`: along which mesh axis, and how. Binding,
checks, output tensors and the command stream are those of every op.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from softmesh.arguments import described, refused
from softmesh.collectives.argument_kinds import KIND_OF, KINDS
from softmesh.collectives.choice import remarks_on
from softmesh.collectives.gradients import differentiated
from softmesh.collectives.groups import Group, group_of, spread
from softmesh.collectives.outputs import check_output, output_names
from softmesh.collectives.reach import Reach
from softmesh.collectives.resources import check_buffer, check_resources
from softmesh.config import CONFIG
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.lenience import is_lenient
from softmesh.mesh import MeshShape
from softmesh.ops.cost import moves_bytes
from softmesh.ops.definition import Definition
from softmesh.ops.kinds import check_kinds
from softmesh.ops.plan import CostRule, Local, Output, Plan, chain, finisher, lifts
from softmesh.ops.planning import Planner
from softmesh.ops.registry import OPERATIONS, Operation
from softmesh.ops.signature import Signature
from softmesh.placement.distribution import Distribution
from softmesh.placement.topology import TensorTopology
from softmesh.placement.words import Partial, Shard
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues import sub_devices
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.footprint import keeps_pages
from softmesh.tensor.memory import MemoryConfig
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor

_ROUTE = ("topology", "num_links")  # what is asked of the fabric


@dataclass(frozen=True)
class Moved:
    """What comes of one call: a function of the operands' data, and where its results lie."""

    compute: Callable[..., Any]
    dists: tuple[Distribution, ...]
    topology: TensorTopology | None = None  # TT-NN's label, where it says something else
    only_sums: bool = False  # contributions that combine otherwise (max, say) would come out wrong
    keeps_memory: bool = False  # the result is the operand, unless it is wanted elsewhere


@dataclass(frozen=True)
class Across:
    """`move` is asked once the group is known; `needs_fabric` is False for what never leaves a chip."""

    cluster_axis: int | None
    move: Callable[[Group], Moved]
    needs_fabric: bool = True
    needs_line: bool = True  # without an axis, one-dimensional fabrics want the mesh to be a line
    ignores_topology: bool = False  # TT-NN takes any one for it
    names_a_device: bool = False  # by its place in the whole mesh, of which a process may hold a block
    dtypes: tuple[DataType, ...] | None = None
    layouts: tuple[Layout, ...] | None = None
    memory_config: MemoryConfig | None = None
    cost: CostRule | None = None


class CollectivePlanner(Planner):
    def build(self) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        self._check_forms()
        arguments = self._described()
        check_kinds(self.op.name, self.op.define, arguments)
        across: Across = self.op.define(**arguments)  # type: ignore[assignment]
        device = self.tensors[0].device()
        assert device is not None
        check_fabric(self.op.name, device, across)
        remarks = remarks_on(
            self.op.name,
            device,
            across.cluster_axis,
            *self._wishes(),
            self.tensors[0],
            ignores_topology=across.ignores_topology,
        )
        held = [tensor.view_distribution() for tensor in self.tensors]
        self._check_even(held)
        reach = Reach.of(self.op.name, device, None if across.names_a_device else across.cluster_axis)
        dists = [reach.wide(dist) for dist in held]
        groups = [group_of(dist, across.cluster_axis) for dist in dists]
        self._check_together(groups)
        moved = reach.around(across.move(groups[0]), held)
        compute = self._computation(moved.compute)
        plan = Plan(compute, tuple(self._spreads(dists, groups)), cost=across.cost or moves_bytes)
        plan.remarks = tuple(remarks) if across.needs_fabric else ()
        lead = groups[0].lead
        kept_at = set() if self.target is None else self._kept_at()
        if kept_at:
            self._check_before_reading(plan, across, lead, kept_at)
        raw = self._try(plan)
        plan.container = None if isinstance(raw, torch.Tensor) else list
        results = _listed(raw)
        specs = self._out_specs(across, [tuple(result.shape[lead:]) for result in results])  # type: ignore[arg-type]
        plan.outputs = tuple(
            Output(spec, dist, moved.topology) for spec, dist in zip(specs, moved.dists, strict=True)
        )
        plan.finishes = tuple(
            finisher(result, output.spec, self.data)
            for result, output in zip(results, plan.outputs, strict=True)
        )
        if moved.keeps_memory:
            plan.is_view = keeps_pages(self.tensors[0].spec, specs[0])
        if moved.only_sums:
            plan.problem = self._wrong_kind(groups[0])
        return plan, plan.finish(raw)

    def _wishes(self) -> tuple[Any, Any]:
        """The topology and the number of links that this call names."""
        signature = self.op.signature
        given = signature.named(self.values, range(len(signature.names)))
        return given.get("topology"), given.get("num_links")

    def _wrong_kind(self, group: Group) -> str | None:
        words = [group.dist.placements[axis] for axis in group.axes]
        others = [word for word in words if isinstance(word, Partial) and word.op != "sum"]
        if not others:
            return None
        return (
            f"{self.op.name}: the operand is {others[0]}: its contributions combine by {others[0].op}, and "
            f"{self.op.name} adds them. Gather them with ttnn.all_gather and take the {others[0].op} of the result."
        )

    def _kept_at(self) -> set[int]:
        """Where the data has outputs, as operands: of those a part may stay as it is."""
        signature, targets = self.op.signature, _listed(self.target)
        at, found = 0, set()
        for place in signature.operand_at:
            for item in _listed(self.values[place]):
                if signature.defaults[place] is None and any(item is target for target in targets):
                    found.add(at)
                at += 1
        return found

    def _check_before_reading(self, plan: Plan, across: Across, lead: int, kept_at: set[int]) -> None:
        """Run once as if no outputs were given: they must fit before anything is made of what they hold."""
        data = [None if i in kept_at else value for i, value in enumerate(self.data)]
        adapts = tuple(None if i in kept_at else adapt for i, adapt in enumerate(plan.adapts))
        results = _listed(self._try(Plan(plan.compute, adapts), data))
        self._out_specs(across, [tuple(result.shape[lead:]) for result in results])  # type: ignore[arg-type]

    def _target_specs(
        self, targets: list[Tensor], local: Local, shapes: list[tuple[int, ...]]
    ) -> list[TensorSpec]:
        """Outputs must be what the collective makes."""
        signature, first = self.op.signature, self.tensors[0].spec
        config = self._control(signature.memory_config_at)
        named = signature.named(self.values, range(len(signature.names)))
        names = output_names(self.op.name, named, targets, signature.output_name)
        for target, name, spec in zip(targets, names, self._computed_specs(local, shapes), strict=True):
            check_output(self.op.name, name, target.spec, spec, first, config)
        return [target.spec for target in targets]

    def _spreads(self, dists: Sequence[Distribution], groups: Sequence[Group]) -> list[Any]:
        widened = lifts([facts(tensor.dtype).storage for tensor in self.tensors], self.op.precision)
        steps = iter(
            chain(_spreader(dist, group), lift)
            for dist, group, lift in zip(dists, groups, widened, strict=True)
        )
        return [next(steps) if isinstance(value, torch.Tensor) else None for value in self.data]

    def _check_even(self, dists: Sequence[Distribution]) -> None:
        for tensor, dist in zip(self.tensors, dists, strict=True):
            uneven = [word for word in dist.placements if isinstance(word, Shard) and word.size is not None]
            if uneven:
                raise MeshError(
                    f"{self.op.name}: {tensor.shape} is split unevenly ({uneven[0]}): the filler of the last shard "
                    "would be taken for data. Pad the tensor to a multiple before distributing it."
                )

    def _check_together(self, groups: Sequence[Group]) -> None:
        first = groups[0].dist
        for group in groups[1:]:
            if group.dist.grid != first.grid or group.dist.coords != first.coords:
                raise MeshError(
                    f"{self.op.name}: the operands lie on the mesh in different ways ({first} and {group.dist}). "
                    "Distribute them over the same devices and the same grid."
                )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _spreader(dist: Distribution, group: Group) -> Any:
    if dist.grid == group.dist.grid and dist.coords == group.dist.coords:
        return None
    return lambda data: spread(data, dist, group)


class Collective(Operation):
    """An op whose devices talk: what it plans depends on the fabric too."""

    planner = CollectivePlanner
    reads_other_devices = True
    has_forms = False  # which check all arguments themselves

    def _planned(
        self, parts: list[Any], values: list[Any], tensors: list[Tensor], data: list[Any], target: Any
    ) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        device = tensors[0]._storage.device
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
                if isinstance(target, Tensor) and target._storage.device is not device:
                    check_buffer(self.name, self._signature.output_name, target, device)
        super()._check_targets(targets, tensors, device)

    def _refuse_devices(self, tensors: list[Tensor]) -> None:
        if all(tensor._storage.device is not None for tensor in tensors):
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


def check_axis(name: str, device: MeshDevice, axis: int | None) -> None:
    rank = device.shape.dims()
    if axis is not None and axis >= rank:
        raise MeshError(
            f"{name}: cluster axis {axis} is out of range for mesh shape rank {rank}: {device.shape}."
        )


def axes_in_words(rank: int) -> str:
    """Which axes a mesh has to choose from."""
    return "0 down a column, 1 along a row" if rank == 2 else f"0 to {rank - 1}"


def check_fabric(name: str, device: MeshDevice, across: Across) -> None:
    """A fabric must be there, and reach every member of the group."""
    axis = across.cluster_axis
    check_axis(name, device, axis)
    if not across.needs_fabric or is_lenient():
        return
    active = settings.active()
    if not active.is_on:
        raise MeshError(
            f"Trying to get un-initialized fabric context: {name} sends data from chip to chip, and no fabric is "
            "configured. Call ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before opening the mesh, or "
            "compute under softmesh.lenient()."
        )
    is_line = sum(n > 1 for n in device.shape) <= 1
    if axis is None and across.needs_line and not is_line and active.config in settings.ONE_DIMENSIONAL:
        other_fabric = ", or configure FABRIC_2D" if device.shape.dims() == 2 else ""
        raise MeshError(
            f"1D fabric on a 2D mesh_device requires cluster_axis to be set: {name} on {MeshShape(device.shape)} "
            f"under {active.config}. Name the axis ({axes_in_words(device.shape.dims())}){other_fabric}."
        )
