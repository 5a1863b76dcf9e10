"""A collective is planned once for a distribution, a mesh and a fabric; then it is one torch expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.collectives.across import Across
from softmesh.collectives.choice import remarks_on
from softmesh.collectives.fabric_needs import check_fabric
from softmesh.collectives.groups import Group, group_of, spread
from softmesh.collectives.outputs import check_output, output_names
from softmesh.collectives.reach import Reach
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.plan import Local, Output, Plan, chain, finisher, lifts
from softmesh.dispatch.planner import Planner
from softmesh.dispatch.signature import listed
from softmesh.dispatch.value_kinds import check_kinds
from softmesh.errors import MeshError
from softmesh.placement.distribution import Distribution
from softmesh.placement.words import Partial, Shard
from softmesh.tensor.dtype import facts
from softmesh.tensor.footprint import keeps_pages
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor


class CollectivePlanner(Planner):
    def build(self) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        self._check_forms()
        arguments = self._described()
        check_kinds(self.op.name, self.op.define, arguments)
        across: Across = self.op.define(**arguments)
        device = self.tensors[0].device()
        assert device is not None
        check_fabric(self.op.name, device, across)
        remarks = remarks_on(
            self.op.name,
            device,
            across.axis_of_travel,
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
        results = listed(raw)
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
        signature, targets = self.op.signature, listed(self.target)
        at, found = 0, set()
        for place in signature.operand_at:
            for item in listed(self.values[place]):
                if signature.defaults[place] is None and any(item is target for target in targets):
                    found.add(at)
                at += 1
        return found

    def _check_before_reading(self, plan: Plan, across: Across, lead: int, kept_at: set[int]) -> None:
        """Run once as if no outputs were given: they must fit before anything is made of what they hold."""
        data = [None if i in kept_at else value for i, value in enumerate(self.data)]
        adapts = tuple(None if i in kept_at else adapt for i, adapt in enumerate(plan.adapts))
        results = listed(self._try(Plan(plan.compute, adapts), data))
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


def _spreader(dist: Distribution, group: Group) -> Any:
    if dist.grid == group.dist.grid and dist.coords == group.dist.coords:
        return None
    return lambda data: spread(data, dist, group)
