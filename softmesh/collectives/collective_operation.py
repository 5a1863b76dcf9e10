"""Collectives as operations: what differs from other ops, the planner, and the decorator `collective`, which registers.

A definition has TT-NN's parameter names and returns a `CollectiveSpec`: along which mesh axis, and how. Binding,
checks, output tensors and the command stream are those of every op. A call is planned once for a distribution, a
mesh and a fabric, and the plan is cached; then it is one torch expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.arguments import described, refused
from softmesh.collectives.argument_checks import (
    KIND_OF,
    KINDS,
    check_buffer,
    check_output,
    check_resources,
    output_names,
)
from softmesh.collectives.collective_programs import program_count_of, semaphores_of
from softmesh.collectives.collective_spec import CollectiveSpec, check_fabric
from softmesh.collectives.device_groups import (
    Group,
    group_of,
    local_placement,
    replicated_placement,
    scattered_placement,
    spread,
)
from softmesh.collectives.fabric_topology import remarks_on
from softmesh.collectives.gradients import differentiated
from softmesh.collectives.multi_rank import RankSpan
from softmesh.config import CONFIG
from softmesh.diagnosis.placement_doubts import of_a_collective, of_lost_parts
from softmesh.diagnosis.undefined_memory import warned_about
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import AfterRunning, Definition
from softmesh.dispatch.operation import Operation, registered
from softmesh.dispatch.plan import (
    CostRule,
    Local,
    Output,
    Plan,
    chain,
    finisher,
    lift_to_float32,
    lifts,
    stored_as_told,
)
from softmesh.dispatch.planner import Planner
from softmesh.dispatch.roles import Role, take_roles, with_role
from softmesh.dispatch.signature import BoundCall, Signature, listed
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import Partial, Shard
from softmesh.placement.rules import LINEAR_OPS
from softmesh.strictness import LENIENT
from softmesh.tensor.dtype import FACTS
from softmesh.tensor.footprint import keeps_pages
from softmesh.tensor.gradient_sums import GradientSums, warn_if_summed
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor


class CollectivePlanner(Planner):
    def build(self) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        self._check_forms()
        declared: CollectiveSpec = self.op.define(**self._described())
        device = self.tensors[0].device()
        assert device is not None
        check_fabric(self.op.name, device, declared)
        remarks = remarks_on(
            self.op.name,
            device,
            declared.axis_of_travel,
            *self._wishes(),
            self.tensors[0],
            ignores_topology=declared.ignores_topology,
        )
        held = [tensor.view_distribution() for tensor in self.tensors]
        self._check_even(held)
        span = RankSpan.of(self.op.name, device, None if declared.names_a_device else declared.cluster_axis)
        dists = [span.joined_distribution(dist) for dist in held]
        groups = [group_of(dist, declared.cluster_axis) for dist in dists]
        self._check_together(groups)
        moved = span.over_blocks(declared.move(groups[0]), held)
        compute = self._computation(moved.compute)
        plan = Plan(compute, tuple(self._spreads(dists, groups)), cost=declared.cost or moves_bytes)
        plan.derivation = span.derivation(declared, held)
        plan.remarks = tuple(remarks) if declared.needs_fabric else ()
        lead = groups[0].lead
        kept_at = set() if self.target is None else self._kept_at()
        if kept_at:
            self._check_before_reading(plan, declared, lead, kept_at)
        raw = self._try(plan)
        plan.container = None if isinstance(raw, torch.Tensor) else list
        results = listed(raw)
        specs = self._out_specs(declared, [tuple(result.shape[lead:]) for result in results])  # type: ignore[arg-type]
        plan.outputs = tuple(Output(spec, dist, moved.topology) for spec, dist in zip(specs, moved.dists, strict=True))
        plan.finishes = tuple(
            chain(stored_as_told(result, output.dist), finisher(result, output.spec, self.data))
            for result, output in zip(results, plan.outputs, strict=True)
        )
        if moved.keeps_memory:
            plan.is_view = keeps_pages(self.tensors[0].spec, specs[0])
        if moved.only_sums:
            plan.problem = self._wrong_kind(groups[0])
        self._tell_placements(plan, declared, groups[0], moved.only_sums)
        return plan, plan.finish(raw)

    def _tell_placements(self, plan: Plan, declared: CollectiveSpec, group: Group, is_sum: bool) -> None:
        """Give the plan what is to be said of the operand's placement."""
        dist, axes, shape = group.dist, group.axes, tuple(self.tensors[0].shape)
        doubts = list(of_a_collective(self.op, dist, axes, shape, is_sum=is_sum, joins=declared.joins))
        plan.remarks += tuple(doubt.text for doubt in doubts if doubt.is_certain)
        plan.doubts = tuple(doubt.text for doubt in doubts if not (doubt.is_certain or doubt.is_open))
        plan.open_doubts = tuple(doubt.text for doubt in doubts if doubt.is_open)
        if declared.keeps_one_piece:
            bring = plan.adapts[0] or (lambda data: data)
            plan.doubts_of_values = tuple(of_lost_parts(self.op.name, dist, axes, shape, bring))

    def _wishes(self) -> tuple[Any, Any]:
        """The topology and the number of links that this call names."""
        given = self.call.named
        return given.get("topology"), given.get("num_links")

    def _wrong_kind(self, group: Group) -> str | None:
        words = [group.dist.placements[axis] for axis in group.axes]
        others = [word for word in words if isinstance(word, Partial) and word.op not in LINEAR_OPS]
        if not others:
            return None
        return (
            f"{self.op.name}: the operand is {others[0]}: its contributions combine by {others[0].op}, and "
            f"{self.op.name} adds them. Gather them with ttnn.all_gather and take the {others[0].op} of the result."
        )

    def _kept_at(self) -> set[int]:
        """Where the data has outputs, as operands: of those a part may stay as it is."""
        signature, targets = self.op.signature, listed(self.target)
        at, found = 0, set()
        for place in signature.operand_at:
            for item in listed(self.values[place]):
                if signature.defaults[place] is None and any(item is target for target in targets):
                    found.add(at)
                at += 1
        return found

    def _check_before_reading(self, plan: Plan, declared: CollectiveSpec, lead: int, kept_at: set[int]) -> None:
        """Run once as if no outputs were given: they must fit before anything is made of what they hold."""
        data = [None if i in kept_at else value for i, value in enumerate(self.data)]
        adapts = tuple(None if i in kept_at else adapt for i, adapt in enumerate(plan.adapts))
        results = listed(self._try(Plan(plan.compute, adapts), data))
        self._out_specs(declared, [tuple(result.shape[lead:]) for result in results])  # type: ignore[arg-type]

    def _own_memory(self, local: Local) -> MemoryConfig | None:
        """A collective's does not depend on the chip."""
        return local.memory_config

    def _target_specs(self, targets: list[Tensor], local: Local, shapes: list[tuple[int, ...]]) -> list[TensorSpec]:
        """Outputs must be what the collective makes."""
        signature, first = self.op.signature, self.tensors[0].spec
        config = self._control(signature.memory_config_at)
        names = output_names(self.op.name, self.call.named, targets, signature.output_name)
        for target, name, spec in zip(targets, names, self._computed_specs(local, shapes), strict=True):
            check_output(self.op.name, name, target.spec, spec, first, config)
        return [target.spec for target in targets]

    def _spreads(self, dists: Sequence[Distribution], groups: Sequence[Group]) -> list[Any]:
        """Of block floats sums are rounded to blocks alone, and not to what they are held in before."""
        dtypes = [tensor.dtype for tensor in self.tensors]
        widened = lifts(dtypes, self.op.precision)
        if self.op.precision == "data":
            widened = [lift_to_float32 if FACTS[dtype].is_block else None for dtype in dtypes]
        steps = iter(
            chain(_spreader(dist, group), lift) for dist, group, lift in zip(dists, groups, widened, strict=True)
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


def _spreader(dist: Distribution, group: Group) -> Any:
    if dist.grid == group.dist.grid and dist.coords == group.dist.coords:
        return None
    return lambda data: spread(data, dist, group)


_ROUTE = ("topology", "num_links")  # what is asked of the fabric
_OFF_MESH = {
    "all_reduce": "Mesh device is required for all_reduce operation:",
    "broadcast": "Operands to broadcast need to be on device!",
}


_PLACEMENTS = {
    **dict.fromkeys((Kind.ALL_BROADCAST, Kind.ALL_GATHER, Kind.ALL_REDUCE, Kind.BROADCAST), replicated_placement),
    **dict.fromkeys((Kind.PARTITION, Kind.REDUCE_SCATTER), scattered_placement),
    **dict.fromkeys((Kind.POINT_TO_POINT, Kind.REDUCE), local_placement),
}


def collective_definition(
    name: str,
    kind: Kind,
    define: Callable[..., CollectiveSpec],
    signature: Signature,
    *,
    precision: str = "data",
    cost: CostRule = moves_bytes,
    **options: Any,
) -> Definition:
    """Of an op whose devices talk: what it plans depends on the fabric too."""
    given: dict[str, Any] = {
        "rule": _PLACEMENTS.get(kind, define),
        "planner": CollectivePlanner,
        "check": _check_tuning,
        "check_targets": _check_targets,
        "plan_key": _fabric_key,
        "derive": _with_gradients,
        "off_mesh": _OFF_MESH.get(name, "Input tensor must to be on device!"),
        "reads_other_devices": True,
        "undefined": _marked,
        "program_buffers": semaphores_of(name),
        "program_count": program_count_of(name),
    }
    roles = with_role(take_roles(options), signature.output_name, Role.WRITES)
    return Definition(name, kind, define, signature, cost, precision, roles=roles, **(given | options))


# Options of a collective in which each device reads its own piece only.
NOTHING_IS_SENT: dict[str, Any] = {"reads_other_devices": False, "undefined": None}


def is_collective(op: object) -> bool:
    return isinstance(op, Operation) and op.definition.derive is _with_gradients


def _fabric_key(call: BoundCall) -> list[Any]:
    """The fabric, which links join the chips, and what the call asks of them."""
    device, names = call.device, call.signature.places
    wishes = [call.values[names[wish]] for wish in _ROUTE if wish in names]
    of_mesh = None if device is None else device.id()
    return [*wishes, of_mesh, settings.serial, LENIENT.get(), CONFIG.strict_ccl_topology]


def _with_gradients(op: Operation, plan: Plan, call: BoundCall) -> tuple[torch.Tensor, ...]:
    return differentiated(op, plan, call.values, call.data)


def _summed_axes(op: Definition, call: BoundCall) -> list[int]:
    """The mesh axes along which a call adds up, on all devices."""
    if op.kind not in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER):
        return []
    axis = call.named.get("cluster_axis")
    return list(range(call.tensors[0].storage.dist.lead)) if axis is None else [axis]


def _marked(op: Definition, call: BoundCall) -> AfterRunning | None:
    """Tells of values that nobody wrote, and of gradients that are added up for the second time."""
    warned_about(op, call)
    notes, axes = call.tensors[0].storage.notes, _summed_axes(op, call)
    if not isinstance(notes, GradientSums) or not axes:
        return None
    devices = call.tensors[0].view_distribution().devices
    for axis in axes:
        warn_if_summed(op.name, "the gradient", notes.axes, axis, devices[axis] if axis < len(devices) else 1)

    def note(made: list[Tensor]) -> None:
        for result in made:
            result.storage.notes = notes.and_over(axes)

    return note


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
    kind: Kind,
    controls: str = "memory_config",
    tuning: str = "",
    positional: str = "",
    **options: Any,
) -> Callable[[Callable[..., CollectiveSpec]], Operation]:
    """Register the collective that the decorated function defines."""

    def register(define: Callable[..., CollectiveSpec]) -> Operation:
        known_as = name or define.__name__
        signature = Signature(known_as, define, controls.split(), tuning.split(), positional.split())
        return registered(Operation(collective_definition(known_as, kind, define, signature, **options)))

    return register


def unlisted_collective(
    name: str, kind: Kind, define: Callable[..., CollectiveSpec], controls: str = "", **options: Any
) -> Operation:
    """A collective of softmesh's own, which is not one of TT-NN's names."""
    signature = Signature(name, define, controls.split(), [])
    return Operation(collective_definition(name, kind, define, signature, **options))


def group_along(name: str, tensor: Tensor, axis: int | None) -> Group:
    """The group of a tensor on a mesh."""
    device = tensor.device()
    assert device is not None
    return group_of(RankSpan.of(name, device, axis).joined_distribution(tensor.view_distribution()), axis)
