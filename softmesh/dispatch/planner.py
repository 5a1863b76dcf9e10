"""The first call of an op with given specs: check, compute once, and keep what was learnt as a plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any

import torch

from softmesh.arguments import check_kinds
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import (
    Adapt,
    Local,
    Misuse,
    Output,
    Plan,
    bring_together,
    chain,
    describe_partial,
    finisher,
    lifts,
    rank_padder,
    result_distributions,
    stored_as_told,
)
from softmesh.dispatch.shape_only import form_only
from softmesh.dispatch.signature import BoundCall, listed
from softmesh.errors import ArgumentError, MeshError, SoftmeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig, ShardSpec
from softmesh.placement.dim_labels import unlabelled
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, Partial, Placement
from softmesh.placement.rules import Situation, UsesPartial, labelled, reshaping
from softmesh.runtime.machine_errors import raise_machine_error
from softmesh.runtime.memory.host_memory import WORTH_ASKING, check_host_room
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import FACTS, DataType, Layout
from softmesh.tensor.footprint import keeps_pages
from softmesh.tensor.result_shards import shards_fit
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.tensor import Tensor

_REPEATING = ("repeat", "expand")


class Planner:
    """One call being planned."""

    def __init__(self, op: Definition, call: BoundCall) -> None:
        self.op, self.call = op, call
        self.values, self.tensors, self.data, self.target = call.values, call.tensors, call.data, call.target

    def build(self) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        """The plan, and the results of running it once (None for an op that writes in place)."""
        self._check_forms()
        local = self.op.local(self._described())
        held = [tensor.view_distribution() for tensor in self.tensors]
        dists, moves = bring_together(held)
        computed_as = local.computed_as
        compute = self._computation(local.compute if computed_as is None else computed_as(self._first_dtype(local)))
        plan = Plan(compute, tuple(self._adapts(local, dists, moves)), cost=local.cost, exact=local.exact)
        self._provide_for_gradients(plan, local, held, moves)
        if self.op.writes:
            self._place(plan, local, dists, [self.tensors[at].spec for at in self.op.writes])
            plan.finishes = (None,) * len(self.op.writes)
            plan.container = tuple if len(self.op.writes) > 1 else None
            return plan, None
        self._check_host_room(plan, local, dists)
        raw = self._try(plan)
        if local.fills_target and isinstance(self.target, Tensor):
            local, raw = self._filling_target(plan, local, raw, dists[0].lead)
        plan.container = None if isinstance(raw, torch.Tensor) else type(raw)
        results = [raw] if plan.container is None else list(raw)
        specs = self._out_specs(local, [tuple(result.shape[dists[0].lead :]) for result in results])
        if self.target is None:
            specs = self._cut_into_shards(local, specs)
            self._check_shards(local, specs)
        self._place(plan, local, dists, specs)
        plan.finishes = tuple(
            chain(stored_as_told(result, output.dist), finisher(result, output.spec, self.data))
            for result, output in zip(results, plan.outputs, strict=True)
        )
        return plan, plan.finish(raw)

    def _check_host_room(self, plan: Plan, local: Local, dists: list[Distribution]) -> None:
        """Of a result that may be large the size is looked at before it is computed, in later calls too."""
        data = [value for value in self.data if isinstance(value, torch.Tensor)]
        if not data or not all(value.is_cpu for value in data):
            return
        shape = self._largest_result(local)
        pieces = max(math.prod(dist.extents) for dist in dists)
        nbytes = math.prod(shape) * pieces * max(value.element_size() for value in data)
        if nbytes < WORTH_ASKING:
            return
        name, compute, shapes = self.op.name, plan.compute, [(*dists[0].extents, *shape)]

        def within_memory(*values: Any) -> Any:
            check_host_room(name, nbytes, shapes)
            return compute(*values)

        plan.compute = within_memory

    def _largest_result(self, local: Local) -> tuple[int, ...]:
        """What the shapes of the operands can become: by broadcasting, as a product, or repeated."""
        shapes = [tuple(tensor.shape) for tensor in self.tensors]
        if local.broadcast_rank:
            try:
                return broadcast_shapes(*shapes)
            except RuntimeError:  # the op itself will tell
                return shapes[0]
        if self.op.is_matmul and len(shapes) > 1:
            return (*shapes[0][:-1], shapes[1][-1] if shapes[1] else 1)
        if self.op.name in _REPEATING:
            counts = [count for value in self.values for count in _ints(value)]
            return (*shapes[0], math.prod(counts))
        return max(shapes, key=math.prod)

    def _filling_target(self, plan: Plan, local: Local, raw: torch.Tensor, lead: int) -> tuple[Local, torch.Tensor]:
        """The same with a result of the output tensor's shape, where that holds as many elements."""
        shape, wanted, compute = tuple(raw.shape[lead:]), tuple(self.target.shape), plan.compute
        if shape == wanted or math.prod(shape) != math.prod(wanted):
            return local, raw

        def filling(*data: Any) -> torch.Tensor:
            made = compute(*data)
            return made.reshape(*made.shape[:lead], *wanted)

        @labelled(unlabelled)
        def rule(at: Situation) -> Placement:
            word = local.rule(at._replace(out_shapes=(shape,)))
            assert isinstance(word, Placement)
            return reshaping(Situation((word,), (shape,), at.out_shapes))

        plan.compute = filling
        return replace(local, rule=rule), raw.reshape(*raw.shape[:lead], *wanted)

    def _provide_for_gradients(self, plan: Plan, local: Local, held: list[Distribution], moves: list[Adapt]) -> None:
        """What each operand's gradient has to go back to."""
        each = iter(held)
        plan.operand_dists = tuple(next(each) if isinstance(value, torch.Tensor) else None for value in self.data)
        if any(move is not None for move in moves):
            apart = [dist.with_placements((LOCAL,) * dist.lead) for dist in held]
            plan.wide_adapts = tuple(self._adapts(local, *bring_together(apart)))

    def _check_forms(self) -> None:
        for tensor in self.tensors:
            if tensor.is_per_core_allocated() and tensor.storage.device is not None:
                raise MeshError(
                    f"{self.op.name} has not opted in to per-core allocation: it would read the shards of every core "
                    f"at one address, and those of {tensor.shape} lie at many. Give it a tensor whose memory config "
                    "does not ask for it."
                )
            if self.op.floats_only and not FACTS[tensor.dtype].is_float:
                raise MeshError(
                    f"{self.op.name}: needs floating-point tensors, got {tensor.dtype} for {tensor.shape}. "
                    "Use ttnn.typecast(tensor, ttnn.bfloat16)."
                )
            if self.op.needs_tile and tensor.layout is not Layout.TILE:
                raise MeshError(
                    f"Inputs to {self.op.name} must be tilized: got {tensor.layout} for {tensor.shape}. "
                    "Use ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)."
                )

    def _described(self) -> dict[str, Any]:
        """The definition's arguments, checked: tensors as Operands, everything else as it is."""
        signature = self.op.signature
        attributes = signature.named(self.values, signature.attribute_at)
        arguments = {name: _plain(value) for name, value in attributes.items()}
        for name, value in signature.named(self.values, signature.operand_at).items():
            if isinstance(value, list | tuple):
                arguments[name] = [self._operand(f"{name}[{i}]", item) for i, item in enumerate(value)]
            else:
                arguments[name] = self._operand(name, value)
        defaults = zip(signature.names, signature.defaults, strict=True)
        is_default = {name for name, default in defaults if arguments.get(name) is default}
        check_kinds(self.op.name, self.op.define, {n: v for n, v in arguments.items() if n not in is_default})
        return arguments

    def _operand(self, name: str, value: Any) -> Any:
        if isinstance(value, Tensor):
            return Operand(self.op.name, name, value.spec, value.storage.device is None)
        if value is None or isinstance(value, int | float):
            return value
        raise ArgumentError(
            f"{self.op.name}(): incompatible function arguments: {name} must be a ttnn.Tensor or a number, got a "
            f"{type(value).__module__}.{type(value).__name__}. ttnn.from_torch(..., device=mesh_device) makes one."
        )

    def _adapts(self, local: Local, dists: list[Distribution], moves: list[Adapt]) -> list[Adapt]:
        widened = lifts([tensor.dtype for tensor in self.tensors], self.op.precision)
        steps = iter(
            [
                chain(move, rank_padder(dist.lead, max(local.broadcast_rank - len(tensor.shape), 0)), lift)
                for tensor, dist, move, lift in zip(self.tensors, dists, moves, widened, strict=True)
            ]
        )
        return [next(steps) if isinstance(value, torch.Tensor) else None for value in self.data]

    def _computation(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        device = self.tensors[0].storage.device
        return form_only(compute) if device is not None and device.is_remote_only() else compute

    def _try(self, plan: Plan, data: list[Any] | None = None) -> Any:
        try:
            return plan.compute_only(self.data if data is None else data)
        except (SoftmeshError, OverflowError):
            raise
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise_machine_error(self.op.name, error, self.tensors[0].storage.device)
            operands = ", ".join(f"{list(tensor.shape)} {tensor.dtype}" for tensor in self.tensors)
            raise MeshError(f"{self.op.name}: cannot be computed on operands {operands}: {error}") from error

    def _control(self, at: int | None) -> Any:
        return None if at is None else self.values[at]

    def _out_specs(self, local: Local, shapes: list[tuple[int, ...]]) -> list[TensorSpec]:
        asked: DataType | None = self._control(self.op.signature.dtype_at)
        config: MemoryConfig | None = self._control(self.op.signature.memory_config_at)
        self._check_controls(asked, config)
        if self.target is not None:
            targets = listed(self.target)
            if len(targets) != len(shapes):
                raise MeshError(
                    f"{self.op.name}: {len(targets)} output tensors for {len(shapes)} results: give one for each."
                )
            return self._target_specs(targets, local, shapes)
        return self._computed_specs(local, shapes)

    def _first_dtype(self, local: Local) -> DataType:
        """That of the first result."""
        if self.target is not None:
            found: DataType = listed(self.target)[0].dtype
            return found
        asked: DataType | None = self._control(self.op.signature.dtype_at)
        self._check_controls(asked, None)
        return asked or (local.dtypes[0] if local.dtypes else self.tensors[0].dtype)

    def _computed_specs(self, local: Local, shapes: list[tuple[int, ...]]) -> list[TensorSpec]:
        asked: DataType | None = self._control(self.op.signature.dtype_at)
        config: MemoryConfig | None = self._control(self.op.signature.memory_config_at)
        first, own = self.tensors[0].spec, self._own_memory(local)
        specs = []
        for i, shape in enumerate(shapes):
            dtype = asked or (local.dtypes[i] if local.dtypes else first.dtype)
            layout = local.layouts[i] if local.layouts else first.layout
            like = local.inherits[i] if local.inherits else first
            where = config or own or like.memory_config
            is_inherited = config is None and own is None
            if is_inherited and where.is_sharded() and not shards_fit(like, shape):
                where = DRAM_MEMORY_CONFIG  # shards fit the rows and columns they were cut from
            layout = Layout.TILE if FACTS[dtype].is_block else layout
            spec = make_spec(shape, dtype, layout, where, first.tile)
            if local.pad_value or local.padded_shape is not None:
                spec = spec.padded_to(local.padded_shape or spec.padded_shape, local.pad_value)
            specs.append(spec)
        return specs

    def _own_memory(self, local: Local) -> MemoryConfig | None:
        """Where the op puts its results, if not where its first operand lies."""
        device = self.tensors[0].storage.device
        if local.memory_on is None or device is None:
            return local.memory_config
        return local.memory_on(device.compute_with_storage_grid_size())

    def _cut_into_shards(self, local: Local, specs: list[TensorSpec]) -> list[TensorSpec]:
        """Where a memory config leaves the shards to the op: as it says, or like those of an operand of this shape."""
        device = self.tensors[0].storage.device
        if device is None or not any(_lacks_shards(spec.memory_config) for spec in specs):
            return specs
        grid = device.compute_with_storage_grid_size()
        chosen = [None] * len(specs) if local.shards is None else local.shards(grid)
        return [
            self._in_shards(spec, shards) if _lacks_shards(spec.memory_config) else spec
            for spec, shards in zip(specs, chosen, strict=True)
        ]

    def _in_shards(self, spec: TensorSpec, shards: ShardSpec | None) -> TensorSpec:
        config = spec.memory_config
        for tensor in self.tensors:
            like = tensor.memory_config()
            if shards is None and tensor.shape == spec.shape and like.memory_layout is config.memory_layout:
                shards = like.shard_spec
        if shards is None:
            return spec
        return spec.with_memory_config(MemoryConfig(config.memory_layout, config.buffer_type, shards))

    def _check_shards(self, local: Local, specs: list[TensorSpec]) -> None:
        """Of results like the first operand, that are cut as somebody said: other ops cut theirs to fit."""
        for spec in specs:
            if local.shards is None and _has_shards(spec.memory_config) and spec.shape == self.tensors[0].spec.shape:
                try:
                    spec.check()
                except MeshError as error:
                    shards = spec.memory_config.shard_spec
                    raise MeshError(f"{error} {self.op.name}: {list(spec.shape)} does not fit {shards}.") from None

    def _check_controls(self, dtype: object, config: object) -> None:
        if dtype is not None and not isinstance(dtype, DataType):
            raise ArgumentError(f"{self.op.name}(): dtype must be a ttnn dtype such as ttnn.bfloat16, got {dtype!r}.")
        if config is not None and not isinstance(config, MemoryConfig):
            raise ArgumentError(f"{self.op.name}(): memory_config must be a ttnn.MemoryConfig, got {config!r}.")

    def _target_specs(self, targets: list[Tensor], local: Local, shapes: list[tuple[int, ...]]) -> list[TensorSpec]:
        asked: DataType | None = self._control(self.op.signature.dtype_at)
        return [self._target_spec(t, shape, asked) for t, shape in zip(targets, shapes, strict=True)]

    def _target_spec(self, target: Tensor, shape: tuple[int, ...], asked: DataType | None) -> TensorSpec:
        if tuple(target.shape) != shape:
            raise MeshError(
                f"{self.op.name}: the output tensor has shape {target.shape}, the result {list(shape)}: "
                "allocate it with the result's shape."
            )
        if asked is not None and target.dtype is not asked:
            raise MeshError(f"{self.op.name}: the output tensor is {target.dtype}, but dtype={asked} was asked for.")
        return target.spec

    def _place(self, plan: Plan, local: Local, dists: list[Distribution], specs: list[TensorSpec]) -> None:
        placed, shaped = iter(dists), iter(self.tensors)
        is_tensor = [isinstance(value, torch.Tensor) for value in self.data]
        found, misused = result_distributions(
            local.rule,
            [next(placed) if yes else None for yes in is_tensor],
            [tuple(next(shaped).shape) if yes else None for yes in is_tensor],
            [tuple(spec.shape) for spec in specs],
        )
        cut = self._cut_fractions(found, specs)
        if cut:
            misused += cut
            found = [_without_partials(dist) for dist in found]
        plan.outputs = tuple(Output(spec, dist) for spec, dist in zip(specs, found, strict=True))
        plan.is_view = local.keeps_memory and keeps_pages(self.tensors[0].spec, specs[0])
        if misused:
            index, axis, word, *_ = misused[0]
            devices, plan.is_share = dists[0].devices[axis], all(misuse.is_share for misuse in misused)
            plan.is_bias = all(misuse.is_bias for misuse in misused)
            label = None if index == UsesPartial.OWN_PRODUCT else self.call.labels[index]
            plan.problem = describe_partial(self.op.name, label, word, axis, devices, plan.is_share)
        plan.unexamined = local, dists

    def _cut_fractions(self, found: list[Distribution], specs: list[TensorSpec]) -> list[Misuse]:
        """Partial sums of floats that an integer `dtype=` would cut off one by one."""
        are_floats = any(FACTS[tensor.dtype].is_float for tensor in self.tensors)
        return [
            Misuse(UsesPartial.OWN_PRODUCT, axis, word)
            for dist, spec in zip(found, specs, strict=True)
            for axis, word in enumerate(dist.placements)
            if isinstance(word, Partial) and are_floats and not FACTS[spec.dtype].is_float
        ]


def _ints(value: Any) -> list[int]:
    """The whole numbers of an argument: a result may be that many times as large as its operand."""
    if isinstance(value, list | tuple):
        return [number for item in value for number in _ints(item)]
    return [abs(value)] if isinstance(value, int) and not isinstance(value, bool) and value else []


def _lacks_shards(config: MemoryConfig) -> bool:
    return config.is_sharded() and config.shard_spec is None and config.nd_shard_spec is None


def _has_shards(config: MemoryConfig) -> bool:
    return config.is_sharded() and not _lacks_shards(config)


def _without_partials(dist: Distribution) -> Distribution:
    return dist.with_placements(tuple(LOCAL if isinstance(word, Partial) else word for word in dist.placements))


def _plain(value: Any) -> Any:
    """A number of another library (numpy) as Python's own."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, int) else value
