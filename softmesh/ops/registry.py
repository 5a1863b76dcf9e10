"""The registry: one op is its name, its local computation, its placement rule and its cost.

An op is defined by a function with TT-NN's parameter names. The function sees `Operand`s in place of
tensors (no values, no mesh), checks its arguments and returns a `Local`: a function of torch tensors
that acts on the trailing dims and lets whatever leads broadcast, and the rule for its placements.
That is all SPMD takes.

    @operation(tuning="compute_kernel_config", cost=flops_per_element(5))
    def softmax(input_tensor: Operand, dim: int = -1, *, numeric_stable: bool = True) -> Local:
        at = input_tensor.from_end(dim)
        return Local(lambda x: torch.softmax(x, at), rules.within(at))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.errors import ArgumentError, MeshError, PartialError, PartialWarning, SoftmeshError
from softmesh.lenience import warn_or_raise
from softmesh.ops.cost import flops_per_element
from softmesh.ops.operand import Operand
from softmesh.ops.plan import (
    Adapt,
    CostRule,
    Local,
    Output,
    Plan,
    bring_together,
    chain,
    describe_partial,
    finisher,
    lifts,
    rank_padder,
    result_distributions,
)
from softmesh.ops.signature import Signature
from softmesh.placement.distribution import Distribution
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.memory import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_ONE_STEP = flops_per_element(1)
_MAX_PLANS = 4096  # per op: a program that needs more is making up shapes, and starts over
Define = Callable[..., Local]
OPERATIONS: dict[str, Operation] = {}


class Operation:
    """A callable op: what `ttnn.relu` is.

    `precision`: "native" for single torch kernels, which widen bfloat16 inside; "float32" widens before;
    "data" leaves values alone. `writes` names an operand that the computation changes in place.
    """

    def __init__(
        self,
        name: str,
        define: Define,
        *,
        cost: CostRule,
        precision: str = "float32",
        controls: str = "memory_config dtype output_tensor queue_id",
        tuning: str = "",
        needs_tile: bool = False,
        on_host: bool = False,
        writes: str | None = None,
    ) -> None:
        self.name = name
        self.__name__ = name.rpartition(".")[2]
        self.__doc__ = define.__doc__
        self.define = define
        self.cost = cost
        self.signature = Signature(name, define, controls.split(), tuning.split())
        self._precision = precision
        self._needs_tile = needs_tile
        self._on_host = on_host
        names = [self.signature.names[i] for i in self.signature.operand_at]
        self._writes = None if writes is None else names.index(writes)
        self._plans: dict[tuple[Any, ...], Plan] = {}

    @property
    def python_fully_qualified_name(self) -> str:
        return f"ttnn.{self.name}"

    def __repr__(self) -> str:
        return f"<operation ttnn.{self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature = self.signature
        values = signature.bind(args, kwargs)
        key: list[Any] = []
        data: list[Any] = []
        tensors: list[Tensor] = []
        for at in signature.operand_at:
            value = values[at]
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, Tensor):
                    tensors.append(item)
                    storage = item._storage
                    plain = item._where is None
                    key.append(item._spec)
                    key.append(storage.dist if plain else item.view_distribution())
                    data.append(storage.data if plain else item.view_data())
                else:
                    key.append(type(item))
                    data.append(item)
        target = None if signature.output_at is None else values[signature.output_at]
        device = self._check(tensors, data, target)
        for at in signature.attribute_at:
            key.append(values[at])
        key.append(None if signature.dtype_at is None else values[signature.dtype_at])
        key.append(None if signature.memory_config_at is None else values[signature.memory_config_at])
        if target is not None:
            key += [t.spec for t in (target if isinstance(target, list | tuple) else (target,))]
        try:
            found = self._plans.get(tuple(key))
        except TypeError:  # an attribute that is a list
            key = [_hashable(part) for part in key]
            found = self._plans.get(tuple(key))
        results = None
        if found is None:
            found, results = self._plan(tuple(key), values, tensors, data, target)
        if found.problem is not None:
            warn_or_raise(found.problem, PartialWarning, PartialError)
        if device is not None and found not in device._program_cache:
            device.note_program(found)
        if self._writes is not None:
            made = [self._run_in_place(found, tensors[self._writes], data)]
        else:
            made = _store(found, found.run(data) if results is None else results, device, target)
        if observed():
            self._tell(values, tensors, made, found)
        return made if found.returns_list else made[0]

    # -- checks ----------------------------------------------------------------------------------

    def _check(self, tensors: list[Tensor], data: list[Any], target: Any) -> MeshDevice | None:
        if not tensors:
            given = ", ".join(type(value).__name__ for value in data) or "nothing"
            raise ArgumentError(
                f"{self.name}(): incompatible function arguments: it needs a ttnn.Tensor, got {given}. "
                "Make one with ttnn.from_torch(..., device=mesh_device)."
            )
        device = tensors[0]._storage.device
        for tensor in tensors:
            storage = tensor._storage
            if storage.data is None:
                tensor.check_allocated(self.name)
            if storage.device is not device:
                self._refuse_devices(tensors)
        if device is None:
            if not self._on_host:
                self._refuse_devices(tensors)
        elif not device.is_open:
            device.check_open(self.name)
        if target is not None:
            for one in target if isinstance(target, list | tuple) else (target,):
                if not isinstance(one, Tensor):
                    raise ArgumentError(
                        f"{self.name}(): the output tensor must be a ttnn.Tensor, got {one!r}"
                    )
                one.check_allocated(f"{self.name} (output tensor)")
                if one._storage.device is not device:
                    self._refuse_devices([*tensors, one])
        return device

    def _refuse_devices(self, tensors: list[Tensor]) -> None:
        where = ", ".join(f"{tensor.device() or 'the host'}" for tensor in tensors)
        on_host = [i for i, tensor in enumerate(tensors) if tensor._storage.device is None]
        if on_host:
            raise MeshError(
                f"Input tensor {chr(ord('A') + on_host[0])} must be on device, got storage type: StorageType::HOST. "
                f"{self.name} got operands on {where}: move them with ttnn.to_device(tensor, mesh_device)."
            )
        ids = [device.id() for tensor in tensors for device in tensor.devices()]
        raise MeshError(
            f"Operands to eltwise binary need to be on the same device! {self.name} got operands on {where} "
            f"(mesh ids {ids}): bring one over with ttnn.to_device(ttnn.from_device(tensor), mesh_device)."
        )

    # -- the first call with these specs ---------------------------------------------------------

    def _plan(
        self, key: tuple[Any, ...], values: list[Any], tensors: list[Tensor], data: list[Any], target: Any
    ) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        self._check_layouts(tensors)
        local = self.define(**self._described(values))
        dists, moves = bring_together([tensor.view_distribution() for tensor in tensors])
        plan = Plan(local.compute, tuple(self._adapts(local, tensors, dists, moves, data)), cost=local.cost)
        if self._writes is not None:
            specs = [tensors[self._writes].spec]
            self._place(plan, local, values, data, tensors, dists, specs)
            plan.finishes = (None,)
            results = None
        else:
            raw = self._try(plan, data, tensors)
            plan.returns_list = not isinstance(raw, torch.Tensor)
            many = list(raw) if plan.returns_list else [raw]
            shapes = [tuple(result.shape[dists[0].lead :]) for result in many]
            specs = self._out_specs(local, values, tensors, shapes, target)
            self._place(plan, local, values, data, tensors, dists, specs)
            plan.finishes = tuple(finisher(r, spec, data) for r, spec in zip(many, specs, strict=True))
            results = plan.finish(raw)
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        return plan, results

    def _check_layouts(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            if self._needs_tile and tensor.layout is not Layout.TILE:
                raise MeshError(
                    f"Inputs to {self.name} must be tilized: got {tensor.layout} for {tensor.shape}. "
                    "Use ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)."
                )

    def _described(self, values: list[Any]) -> dict[str, Any]:
        """The definition's arguments: tensors as Operands, everything else as it is."""
        signature = self.signature
        arguments = signature.named(values, signature.attribute_at)
        for name, value in signature.named(values, signature.operand_at).items():
            if isinstance(value, Tensor):
                arguments[name] = Operand(name, value.spec)
            elif isinstance(value, list | tuple):
                arguments[name] = [
                    Operand(f"{name}[{i}]", v.spec) if isinstance(v, Tensor) else v
                    for i, v in enumerate(value)
                ]
            elif value is None or isinstance(value, int | float):
                arguments[name] = value
            else:
                raise ArgumentError(
                    f"{self.name}(): incompatible function arguments: {name} must be a ttnn.Tensor"
                    f" or a number, got {type(value).__name__}."
                )
        return arguments

    def _adapts(
        self,
        local: Local,
        tensors: list[Tensor],
        dists: list[Distribution],
        moves: list[Adapt],
        data: list[Any],
    ) -> list[Adapt]:
        widened = lifts([facts(tensor.dtype).storage for tensor in tensors], self._precision)
        steps = iter(
            [
                chain(move, rank_padder(dist.lead, max(local.broadcast_rank - len(tensor.shape), 0)), lift)
                for tensor, dist, move, lift in zip(tensors, dists, moves, widened, strict=True)
            ]
        )
        return [next(steps) if isinstance(value, torch.Tensor) else None for value in data]

    def _try(self, plan: Plan, data: list[Any], tensors: list[Tensor]) -> Any:
        try:
            return plan.compute_only(data)
        except SoftmeshError:
            raise
        except (RuntimeError, IndexError, ValueError) as error:
            operands = ", ".join(f"{list(tensor.shape)} {tensor.dtype}" for tensor in tensors)
            raise MeshError(f"{self.name}: cannot be computed on operands {operands}: {error}") from error

    def _out_specs(
        self,
        local: Local,
        values: list[Any],
        tensors: list[Tensor],
        shapes: list[tuple[int, ...]],
        target: Any,
    ) -> list[TensorSpec]:
        signature = self.signature
        asked: DataType | None = None if signature.dtype_at is None else values[signature.dtype_at]
        config_at = signature.memory_config_at
        config: MemoryConfig | None = None if config_at is None else values[config_at]
        if target is not None:
            targets = list(target) if isinstance(target, list | tuple) else [target]
            return [self._target_spec(t, shape, asked) for t, shape in zip(targets, shapes, strict=True)]
        first = tensors[0].spec
        specs = []
        for i, shape in enumerate(shapes):
            dtype = asked or (local.dtypes[i] if local.dtypes else first.dtype)
            layout = local.layouts[i] if local.layouts else first.layout
            where = config or local.memory_config or first.memory_config
            if where.is_sharded() and config is None and shape != tuple(first.shape):
                where = DRAM_MEMORY_CONFIG  # a shard spec fits the shape it was made for
            specs.append(
                make_spec(shape, dtype, Layout.TILE if facts(dtype).is_block else layout, where, first.tile)
            )
        return specs

    def _target_spec(self, target: Tensor, shape: tuple[int, ...], asked: DataType | None) -> TensorSpec:
        if tuple(target.shape) != shape:
            raise MeshError(
                f"{self.name}: the output tensor has shape {target.shape}, the result {list(shape)}: allocate it "
                "with the result's shape."
            )
        if asked is not None and target.dtype is not asked:
            raise MeshError(
                f"{self.name}: the output tensor is {target.dtype}, but dtype={asked} was asked for."
            )
        return target.spec

    def _place(
        self,
        plan: Plan,
        local: Local,
        values: list[Any],
        data: list[Any],
        tensors: list[Tensor],
        dists: list[Distribution],
        specs: list[TensorSpec],
    ) -> None:
        placed, shaped = iter(dists), iter(tensors)
        is_tensor = [isinstance(value, torch.Tensor) for value in data]
        found, misused = result_distributions(
            local.rule,
            [next(placed) if yes else None for yes in is_tensor],
            [tuple(next(shaped).shape) if yes else None for yes in is_tensor],
            [tuple(spec.shape) for spec in specs],
        )
        plan.outputs = tuple(Output(spec, dist) for spec, dist in zip(specs, found, strict=True))
        if misused:
            index, axis, word = misused[0]
            argument = self._operand_label(values, index)
            plan.problem = describe_partial(self.name, argument, word, axis, dists[0].grid[axis])

    def _operand_label(self, values: list[Any], index: int) -> str:
        if index < 0:
            return "the product, before the bias is added,"
        labels: list[str] = []
        for name, value in self.signature.named(values, self.signature.operand_at).items():
            many = isinstance(value, list | tuple)
            labels += [f"{name}[{i}]" for i in range(len(value))] if many else [name]
        return labels[index]

    # -- every call ------------------------------------------------------------------------------

    def _run_in_place(self, plan: Plan, target: Tensor, data: list[Any]) -> Tensor:
        """The computation changes one operand's data, which is given memory of its own first."""
        assert self._writes is not None
        at, dist = self._writes, plan.outputs[0].dist
        storage = target._storage
        if target._where is not None:
            data[at] = data[at].clone()
            target.overwrite(plan.run(data)[0], dist)
            return target
        values = storage.writable()
        if storage.dist is not dist:
            values = values.expand(*dist.extents, *values.shape[storage.dist.lead :]).clone()
        data[at] = values
        storage.data, storage.dist = plan.run(data)[0], dist
        target._topology = None
        return target

    def _tell(self, values: list[Any], tensors: list[Tensor], made: list[Tensor], plan: Plan) -> None:
        signature = self.signature
        operands = signature.named(values, signature.operand_at)
        arguments = {name: value for name, value in operands.items() if isinstance(value, int | float)}
        others = (
            *signature.attribute_at,
            signature.dtype_at,
            signature.memory_config_at,
            *signature.tuning_at,
        )
        given = signature.named(values, [at for at in others if at is not None])
        arguments |= {name: value for name, value in given.items() if value is not None}
        queue = None if signature.queue_at is None else values[signature.queue_at]
        cost = plan.cost or self.cost
        emit(
            self.name,
            tensors,
            made,
            coords=plan.outputs[0].dist.coordinates(),
            arguments=arguments,
            queue=queue or 0,
            cost=lambda: cost([t.spec for t in tensors], [t.spec for t in made]),
        )


def _store(
    plan: Plan, results: tuple[torch.Tensor, ...], device: MeshDevice | None, target: Any
) -> list[Tensor]:
    if target is None:
        return [
            Tensor.make(Storage(result, output.dist, device), output.spec)
            for result, output in zip(results, plan.outputs, strict=True)
        ]
    targets = list(target) if isinstance(target, list | tuple) else [target]
    for tensor, result, output in zip(targets, results, plan.outputs, strict=True):
        tensor.overwrite(result, output.dist)
    return targets


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(item) for item in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def operation(
    name: str | None = None,
    *,
    cost: CostRule = _ONE_STEP,
    aliases: Sequence[str] = (),
    **options: Any,
) -> Callable[[Define], Operation]:
    """Register the op that the decorated function defines, under its own name or `name`."""

    def register(define: Define) -> Operation:
        op = Operation(name or define.__name__, define, cost=cost, **options)
        for known in (op.name, *aliases):
            if known in OPERATIONS:
                raise AssertionError(f"the operation {known} is registered twice")
            OPERATIONS[known] = op
        return op

    return register


def operations_under(prefix: str) -> dict[str, Operation]:
    """The ops of one namespace by their short names: `transformer.` gives those of `ttnn.transformer`."""
    return {
        name.removeprefix(prefix): op
        for name, op in OPERATIONS.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }
