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

from softmesh.errors import ArgumentError, MeshError, PartialError, PartialWarning
from softmesh.lenience import warn_or_raise
from softmesh.ops.cost import flops_per_element
from softmesh.ops.definition import Define, Definition
from softmesh.ops.plan import CostRule, Plan
from softmesh.ops.planning import Planner
from softmesh.ops.signature import Signature
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import carried, mark, warn_if_undefined

_ONE_STEP = flops_per_element(1)
_MAX_PLANS = 4096  # per op: a program that needs more is making up shapes, and starts over
OPERATIONS: dict[str, Operation] = {}
Marking = Callable[[list[Tensor]], None]  # tells of results which pieces are undefined


class Operation:
    """A callable op: what `ttnn.relu` is."""

    planner: type[Planner] = Planner
    leaves_undefined = False  # whether there are pieces of its results that it does not write
    reads_other_devices = False

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.name = definition.name
        self.__name__ = definition.name.rpartition(".")[2]
        self.__doc__ = definition.define.__doc__
        self._signature = definition.signature
        self._writes = definition.writes
        self._plans: dict[tuple[Any, ...], Plan] = {}

    @property
    def python_fully_qualified_name(self) -> str:
        return f"ttnn.{self.name}"

    def __repr__(self) -> str:
        return f"<operation ttnn.{self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature = self._signature
        values = signature.bind(args, kwargs)
        key: list[Any] = []
        data: list[Any] = []
        tensors: list[Tensor] = []
        is_marked = self.leaves_undefined
        for at in signature.operand_at:
            value = values[at]
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, Tensor):
                    tensors.append(item)
                    storage = item._storage
                    if storage.undefined is not None:
                        is_marked = True
                    plain = item._where is None
                    key.append(item._spec)
                    key.append(storage.dist if plain else item.view_distribution())
                    data.append(storage.data if plain else item.view_data())
                else:
                    key.append(type(item))
                    data.append(item)
        target = None if signature.output_at is None else values[signature.output_at]
        device = self._check(tensors, data, target)
        marking = self._marking(values, tensors, target) if is_marked else None
        key.append(None if device is None else device.torch_device)
        for at in signature.key_at:
            value = values[at]
            key.append(value.__class__)  # 1, 1.0 and True are equal, and not the same argument
            key.append(value)
        if target is not None:
            key += [one.spec for one in _listed(target)]
        plan, results = self._planned(key, values, tensors, data, target)
        if plan.problem is not None:
            warn_or_raise(plan.problem, PartialWarning, PartialError)
        if device is not None and plan not in device._program_cache:
            device.note_program(plan)
        if self._writes is not None:
            made = [self._run_in_place(plan, tensors[self._writes], data)]
        else:
            made = _store(plan, plan.run(data) if results is None else results, device, target)
        if marking is not None:
            marking(made)
        if observed():
            self._tell(values, tensors, made, plan)
        return made[0] if plan.container is None else plan.container(made)

    def _planned(
        self, parts: list[Any], values: list[Any], tensors: list[Tensor], data: list[Any], target: Any
    ) -> tuple[Plan, tuple[torch.Tensor, ...] | None]:
        """The plan for these specs; a new one comes with the results of its first run."""
        key = tuple(parts)
        try:
            plan = self._plans.get(key)
        except TypeError:  # an attribute is a list
            key = tuple(_hashable(part) for part in parts)
            plan = self._plans.get(key)
        if plan is not None:
            return plan, None
        plan, results = self.planner(self.definition, values, tensors, data, target).build()
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        return plan, results

    def _check(self, tensors: list[Tensor], data: list[Any], target: Any) -> MeshDevice | None:
        """All operands live, on one open device (or on the host, for the few ops that work there)."""
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
            if not self.definition.on_host:
                self._refuse_devices(tensors)
        elif not device.is_open:
            device.check_open(self.name)
        if target is not None:
            self._check_targets(_listed(target), tensors, device)
        return device

    def _marking(self, values: list[Any], tensors: list[Tensor], target: Any) -> Marking | None:
        """Pieces of operands that nobody wrote: reading another device's warns, a device's own come to its results."""
        if self.reads_other_devices:
            for tensor in tensors:
                warn_if_undefined(tensor, self.name)
            return None
        undefined = carried(self.name, tensors)
        if undefined is None:
            return None

        def tell(made: list[Tensor]) -> None:
            for result in made:
                mark(result, undefined)

        return tell

    def _check_targets(self, targets: list[Any], tensors: list[Tensor], device: MeshDevice | None) -> None:
        for target in targets or [None]:
            if not isinstance(target, Tensor):
                raise ArgumentError(f"{self.name}(): the output tensor must be a ttnn.Tensor, got {target!r}")
            target.check_allocated(f"{self.name} (output tensor)")
            if target._storage.device is not device:
                self._refuse_devices([*tensors, target])

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

    def _run_in_place(self, plan: Plan, target: Tensor, data: list[Any]) -> Tensor:
        """The computation changes one operand's data, which is given memory of its own first."""
        assert self._writes is not None
        at, dist, storage = self._writes, plan.outputs[0].dist, target._storage
        if target._where is None and storage.dist is dist:
            data[at] = storage.writable()
            plan.run(data)
            return target
        adapt = plan.adapts[at]
        values = data[at] if adapt is None else adapt(data[at])
        values = values.expand(*dist.extents, *values.shape[dist.lead :]).clone()
        prepared = [
            v if f is None or i == at else f(v)
            for i, (f, v) in enumerate(zip(plan.adapts, data, strict=True))
        ]
        prepared[at] = values
        target.overwrite(plan.compute(*prepared), dist)
        return target

    def _tell(self, values: list[Any], tensors: list[Tensor], made: list[Tensor], plan: Plan) -> None:
        signature = self._signature
        operands = signature.named(values, signature.operand_at)
        arguments = {name: value for name, value in operands.items() if not _holds_tensors(value)}
        given = signature.named(values, (*signature.key_at, *signature.tuning_at))
        arguments |= {name: value for name, value in given.items() if value is not None}
        queue = None if signature.queue_at is None else values[signature.queue_at]
        cost = plan.cost or self.definition.cost
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
            Tensor.make(Storage(result, output.dist, device), output.spec, output.topology)
            for result, output in zip(results, plan.outputs, strict=True)
        ]
    targets = _listed(target)
    for tensor, result, output in zip(targets, results, plan.outputs, strict=True):
        tensor.overwrite(result, output.dist)
    return targets


def _holds_tensors(value: Any) -> bool:
    return value is None or any(isinstance(item, Tensor) for item in _listed(value))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


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
    controls: str = "memory_config dtype output_tensor queue_id",
    tuning: str = "",
    positional: str = "",
    writes: str | None = None,
    aliases: Sequence[str] = (),
    **options: Any,
) -> Callable[[Define], Operation]:
    """Register the op that the decorated function defines, under its own name or `name`."""

    def register(define: Define) -> Operation:
        known_as = name or define.__name__
        signature = Signature(known_as, define, controls.split(), tuning.split(), positional.split())
        written = None if writes is None else signature.operand_names.index(writes)
        op = Operation(Definition(known_as, define, signature, cost, writes=written, **options))
        for spelling in (known_as, *aliases):
            if spelling in OPERATIONS:
                raise AssertionError(f"the operation {spelling} is registered twice")
            OPERATIONS[spelling] = op
        return op

    return register


def operations_under(prefix: str) -> dict[str, Operation]:
    """The ops of one namespace by their short names: `transformer.` gives those of `ttnn.transformer`."""
    return {
        name.removeprefix(prefix): op
        for name, op in OPERATIONS.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }
