"""Captures a function as an op graph: it is run once without values, as on one device, and its ops are written down.

The outermost call that is an op becomes a node; functions that are made of several ops are looked into. Tensors that no
op made are leaves: weights, inputs, caches. Collectives have nothing to do on one device, and hand on what they get.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from softmesh.callsite import user_call_site
from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.call_cache import bound_values
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.distributed.layouts import layout_along, whole_shape
from softmesh.distributed.unified_op import Unified
from softmesh.errors import MeshError, NotModelled
from softmesh.kinds import Kind
from softmesh.planner.leaf_names import LeafNames
from softmesh.planner.one_chip_mesh import one_chip_mesh
from softmesh.planner.op_graph import GraphNode, GraphValue, OpGraph, Role, ValueRef
from softmesh.planner.refused_commands import RefusedCommands
from softmesh.planner.relaid_copies import as_copy
from softmesh.planner.training.captured_training import CapturedTraining
from softmesh.runtime.commands import Command, observe
from softmesh.systems.chip import Chip
from softmesh.tensor.gradient_sums import GradientSums
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import to_torch
from softmesh.tensor.undefined import LEAVING_LISTENERS
from softmesh.value_free import without_values

DEVICE_NAMES = ("device", "mesh_device", "mesh")  # a parameter of this name is given the one-chip mesh
_MOST_OPS = 20_000
_SIGNPOST = "signpost "
_ORDERED_BY_SHARDS = ("experimental.nlp_create_qkv_heads", "transformer.split_query_key_value_and_split_heads")
_SAME = (
    *("to_device", "from_device", "Tensor.__deepcopy__"),
    *("move", "reallocate", "experimental.quasar.move", "experimental.quasar.reallocate"),
)
_ASSIGNS = ("copy", "copy_host_to_device_tensor", "copy_device_to_host_tensor")
_FOLLOWED = frozenset({*_SAME, *_ASSIGNS})


class NothingToPlan(MeshError):
    """What was captured has no op, or no result; `why` goes on from the name of the program."""

    def __init__(self, why: str) -> None:
        super().__init__(f"softmesh.plan: the function {why}.")
        self.why = why


class ValuesNeeded(MeshError):
    """The program does not come to its end without values."""


class TooManyOps(MeshError):
    """What is captured goes on and on."""


def captured(function: Callable[..., Any], inputs: Sequence[Any] | Mapping[str, Any] = (), *, chip: Chip) -> OpGraph:
    """What `function` computes of `inputs`, which are tensors or anything else that it takes.

    A parameter called `device`, `mesh_device` or `mesh` that is not among the inputs gets a mesh of one chip. It is run
    without values, and once more with them where it says that it needs them.
    """
    try:
        return _captured(function, inputs, chip, None)
    except ValuesNeeded:
        return _captured(function, inputs, chip, {})


def leaf_values(
    function: Callable[..., Any], inputs: Sequence[Any] | Mapping[str, Any] = (), *, chip: Chip
) -> dict[str, torch.Tensor]:
    """The values of the leaves, by name, as they are before the function changes any; it is run with all of them."""
    values: dict[str, torch.Tensor] = {}
    _captured(function, inputs, chip, values)
    return values


def _captured(function: Callable[..., Any], inputs: Any, chip: Chip, values: dict[str, torch.Tensor] | None) -> OpGraph:
    mesh = one_chip_mesh(chip)
    args, kwargs = _arguments(function, inputs, mesh)
    recorder = _Recorder(function, args, kwargs, values)
    try:
        with (
            nullcontext() if values is not None else without_values(),
            observe(recorder),
            intercepting(recorder.called),
            recorder.training.taken_over(),
            recorder.told_of_reads(),
        ):
            result = function(*args, **kwargs)
        return recorder.graph(result)
    finally:
        mesh.close()


def _arguments(function: Callable[..., Any], inputs: Any, mesh: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return args, kwargs
    wanted = next((name for name in names if name in DEVICE_NAMES), None)
    if wanted is None or wanted in kwargs or any(type(value) is type(mesh) for value in args):
        return args, kwargs
    if args:
        at = names.index(wanted)
        return (*args[:at], mesh, *args[at:]), kwargs
    return args, {wanted: mesh, **kwargs}


def _is_update(op: str) -> bool:
    """True for what an optimizer does to a parameter: element by element, in place."""
    known = OPERATIONS[op].definition
    return bool(known.same_as) or known.kind is Kind.OPTIMIZER


class _Recorder:
    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaf_values: dict[str, torch.Tensor] | None,
    ) -> None:
        self._leaf_values = leaf_values  # where they are to be kept
        self._values: list[GraphValue] = []
        self._nodes: list[GraphNode] = []
        self._numbers: dict[int, int] = {}  # by id of a tensor
        self._by_memory: dict[tuple[int, Any], int] = {}  # by id of a storage, and spec
        self._by_values: dict[Any, tuple[int, Any]] = {}  # by where torch has them: and the claim on the chips' memory
        self._from_host: set[int] = set()  # ids of tensors that came in with values of their own
        self._kept: list[Any] = []  # so that no other object gets their ids
        self._read: list[int] = []  # values that the host reads
        self._inputs = {id(one) for one in _leaves_of((args, kwargs)) if isinstance(one, Tensor | torch.Tensor)}
        self._kept += [args, kwargs]
        self._names = LeafNames(function, args, kwargs)
        self._scope = ""
        self._is_inside = False
        self._refused = RefusedCommands(_FOLLOWED)
        self.training = CapturedTraining(self._number, self._names.say)

    def on_command(self, command: Command) -> None:
        if command.kind is Kind.SIGNPOST:
            self._scope = command.name.removeprefix(_SIGNPOST)
        elif not self._is_inside:
            self._refused.check(command, self._nodes, self._numbers)

    @contextmanager
    def told_of_reads(self) -> Iterator[None]:
        LEAVING_LISTENERS.append(self._note_read)
        try:
            yield
        finally:
            LEAVING_LISTENERS.remove(self._note_read)

    def _note_read(self, tensor: Tensor) -> None:
        """Make an output of a value that the host looks at, and not of what an op reads on its own way."""
        number = None if self._is_inside else self._known(tensor)
        if number is not None:
            self._read.append(number)

    def called(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        if self._is_inside:
            return proceed(*args, **kwargs)
        tensors = [value for value in _leaves_of((args, kwargs)) if isinstance(value, Tensor)]
        if isinstance(op, Unified) and op.short_name != "redistribute":
            return self._node(op.plain, op.bound(args, kwargs), lambda: proceed(*args, **kwargs))
        if isinstance(op, Operation) and is_collective(op):
            return self._collective(op, tensors)
        if isinstance(op, Operation) and any(tensor.storage.device is not None for tensor in tensors):
            bound = bound_values(op.definition, args, kwargs)
            made = self.training.composite(op, bound)
            return self._node(*as_copy(op, bound), lambda: proceed(*args, **kwargs)) if made is None else made
        result = proceed(*args, **kwargs)
        self._after_function(op, args, kwargs, tensors, result)
        return result

    def _after_function(
        self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor], result: Any
    ) -> None:
        """Of what is no op: where a tensor goes, and what comes from an input."""
        if op.name in _ASSIGNS and len(tensors) == 2:
            self._assign(tensors[1], self._number(tensors[0]))
        elif isinstance(result, Tensor) and id(result) not in self._numbers:
            is_same = op.name in _SAME or isinstance(op, Unified)
            if is_same and tensors and id(tensors[0]) in self._numbers:
                self._assign(result, self._numbers[id(tensors[0])])
            elif any(id(value) in self._inputs for value in _leaves_of((args, kwargs))):
                self._inputs.add(id(result))
                self._kept.append(result)
            self._from_host.add(id(result))
            self._kept.append(result)
            self._names.note(op, result, kwargs)

    def _collective(self, op: Operation, tensors: list[Tensor]) -> Tensor:
        device = tensors[0].storage.device if tensors else None
        if not op.definition.kind.keeps_whole or device is None or device.get_num_devices() > 1:
            raise NotModelled(
                f"softmesh.plan: {op.name} at {user_call_site()} moves data between devices, and a function that is to "
                "be planned is written as on one device: leave it out, the plan inserts the collectives it needs."
            )
        return tensors[0]

    def _node(self, op: Operation, bound: list[Any], proceed: Callable[[], Any]) -> Any:
        if len(self._nodes) == _MOST_OPS:
            raise TooManyOps(
                f"softmesh.plan: more than {_MOST_OPS:,} ops were called by {user_call_site()}: plan one step of the "
                "program, as a function of a device, and not the loop around it."
            )
        _check_plain(op, bound)
        signature = op.definition.signature
        if signature.output_at is not None and bound[signature.output_at] is not None:
            target, bound[signature.output_at] = bound[signature.output_at], None
        else:
            target = None
        operands: list[int] = []
        refs, given = computed_with(op, bound), dict(zip(signature.names, bound, strict=True))
        for at in signature.operand_at:
            refs[at] = self._referred(bound[at], operands)
        tensors = [tensor for at in signature.operand_at for tensor in _tensors_of(bound[at])]
        written = [tensors[place] for place in op.definition.writes]
        with self._looking_inside():
            result = proceed()
        made = list(_tensors_of(result))
        if isinstance(result, list | tuple) and any(item is None for item in result):
            raise NotModelled(
                f"softmesh.plan: {op.name} at {user_call_site()} gives None for results that were not asked for, which "
                "a plan has no form for: write it with ops of one result."
            )
        results = []
        for place, tensor in enumerate(written or made):
            earlier = operands[op.definition.writes[place]] if written else None
            number = self._new(tensor, Role.ACTIVATION, f"{op.name.rpartition('.')[2]} {len(self._nodes)}", earlier)
            results.append(number)
        for tensor, number in zip(made, results, strict=False):
            self._assign(tensor, number)
        for tensor, number in zip(_tensors_of(target), results, strict=False):
            self._assign(tensor, number)
        self._nodes.append(
            GraphNode(
                len(self._nodes),
                op.name,
                tuple(refs),
                tuple(operands),
                tuple(results),
                op.definition.writes,
                bool(made and tensors and made[0].storage.claim is tensors[0].storage.claim),
                str(user_call_site()),
                self._scope,
            )
        )
        if not written:
            self.training.tape.note(op.name, given, made)
        return result

    @contextmanager
    def _looking_inside(self) -> Iterator[None]:
        """In the block, calls and reads are no part of the graph."""
        before, self._is_inside = self._is_inside, True
        try:
            yield
        finally:
            self._is_inside = before

    def _referred(self, value: Any, operands: list[int]) -> Any:
        if isinstance(value, Tensor):
            operands.append(self._number(value))
            return ValueRef(operands[-1])
        return tuple(self._referred(item, operands) for item in value) if isinstance(value, list | tuple) else value

    def _known(self, tensor: Tensor) -> int | None:
        found = self._numbers.get(id(tensor))
        if found is None:
            found = self._by_memory.get((id(tensor.storage), tensor.spec))
        if found is None and id(tensor) not in self._from_host:
            found = self._seen_as_another(tensor)
        return found

    def _number(self, tensor: Tensor) -> int:
        found = self._known(tensor)
        if found is None:
            role = Role.INPUT if id(tensor) in self._inputs else Role.WEIGHT
            found = self._new(tensor, role, self._names.name(tensor, len(self._values)))
            if self._leaf_values is not None:
                with self._looking_inside():
                    self._leaf_values[self._values[found].name] = to_torch(tensor).clone()
        self._assign(tensor, found)
        return found

    def _seen_as_another(self, tensor: Tensor) -> int | None:
        """The value of a tensor that was detached from this one, or that is the gradient of a parameter."""
        number, claim = self._by_values.get(_values_key(tensor), (None, None))
        is_gradient = isinstance(tensor.storage.notes, GradientSums)
        return number if is_gradient or tensor.storage.claim is claim else None

    def _new(self, tensor: Tensor, role: Role, name: str, version_of: int | None = None) -> int:
        number = len(self._values)
        if version_of is not None:
            name, role = self._values[version_of].name, self._values[version_of].role
        self._values.append(
            GraphValue(number, name, _whole_shape(tensor), tensor.dtype, tensor.layout, role, version_of)
        )
        self._assign(tensor, number)
        return number

    def _assign(self, tensor: Tensor, number: int) -> None:
        """From here on the tensor holds this value."""
        self._numbers[id(tensor)] = number
        self._by_memory[id(tensor.storage), tensor.spec] = number
        if tensor.storage.device is not None:
            self._by_values[_values_key(tensor)] = number, tensor.storage.claim
        self._kept.append((tensor, tensor.storage, tensor.storage.data))

    def graph(self, result: Any) -> OpGraph:
        if not self._nodes:
            raise NothingToPlan("called no op on a device: there is nothing to plan")
        made = {number for node in self._nodes for number in node.results}
        outputs = [self._number(tensor) for tensor in _tensors_of(result)]
        outputs += [number for number in self._read if number in made]
        outputs = outputs or self._changed_leaves(made)
        if not outputs:
            raise NothingToPlan(
                "returns no tensor, and reads nothing of what its ops compute: the plan would have no result. Return "
                "what is wanted, or read it on the host, with ttnn.to_torch for one"
            )
        roles = self._written_roles(made)
        values = [
            value if (role := roles.get(self._root(value.number))) is None else _with_role(value, role)
            for value in self._values
        ]
        left = tuple(dict.fromkeys(outputs))
        return OpGraph(tuple(values), tuple(self._nodes), left, self.training.goes_back)

    def _changed_leaves(self, made: set[int]) -> list[int]:
        """The last versions of weights, caches and inputs that are changed in place: all that such a function does."""
        last = {self._root(value.number): value.number for value in self._values if value.version_of is not None}
        return [number for root, number in last.items() if root not in made]

    def _written_roles(self, made: set[int]) -> dict[int, Role]:
        """Of leaves that are changed in place: weights are read before, and the state of an optimizer only after."""
        writers: dict[int, list[str]] = {}
        read = set()
        for node in self._nodes:
            for place, number in enumerate(node.operands):
                if place in node.writes:
                    writers.setdefault(self._root(number), []).append(node.op)
                else:
                    read.add(number)
        roles = {}
        for root, ops in writers.items():
            if root not in made:
                is_trained = all(map(_is_update, ops))
                state = Role.WEIGHT if root in read else Role.OPTIMIZER_STATE
                roles[root] = state if is_trained else Role.CACHE
        return roles

    def _root(self, number: int) -> int:
        earlier = self._values[number].version_of
        return number if earlier is None else self._root(earlier)


def computed_with(op: Operation, bound: list[Any]) -> list[Any]:
    """The arguments less tensors that are no operands: masks and buffers for the cores of one device."""
    signature = op.definition.signature
    extra = {at for at in signature.tuning_at if isinstance(bound[at], Tensor)}
    return [signature.defaults[at] if at in extra else value for at, value in enumerate(bound)]


def _check_plain(op: Operation, bound: list[Any]) -> None:
    """Neither an op that knows the place of its device, nor one that takes values in another order from shards."""
    names = op.definition.signature.names
    if "cluster_axis" in names and bound[names.index("cluster_axis")] is not None:
        raise NotModelled(
            f"softmesh.plan: {op.name} at {user_call_site()} does what belongs to the place of a device along an axis "
            "of the mesh, and a function that is to be planned is written as on one device."
        )
    if op.name in _ORDERED_BY_SHARDS and next(_tensors_of(bound)).memory_config().is_sharded():
        raise NotModelled(
            f"softmesh.plan: {op.name} at {user_call_site()} takes the heads of a sharded row group by group, and of "
            "an interleaved one all queries first; a plan has no shards. Bring the row to ttnn.DRAM_MEMORY_CONFIG "
            "before, and give the weight its columns in that order."
        )


def _values_key(tensor: Tensor) -> Any:
    data = tensor.view_data()
    return data.untyped_storage()._cdata, data.storage_offset(), tuple(tensor.shape), tensor.dtype, tensor.layout


def _with_role(value: GraphValue, role: Role) -> GraphValue:
    return GraphValue(value.number, value.name, value.shape, value.dtype, value.layout, role, value.version_of)


def _whole_shape(tensor: Tensor) -> tuple[int, ...]:
    device = tensor.storage.device
    if device is None or device.get_num_devices() == 1:
        return tuple(tensor.shape)
    mesh = tuple(device.shape)
    words = layout_along(tensor.view_distribution(), mesh)
    if words is None:
        raise MeshError(
            f"softmesh.plan: a tensor of shape {list(tensor.shape)} at {user_call_site()} stands for no one value "
            f"along the axes of {device}: write the function as on one device, or with unified ops."
        )
    return whole_shape(tensor, words, mesh)


def _leaves_of(nest: Any) -> Iterable[Any]:
    if isinstance(nest, list | tuple):
        for item in nest:
            yield from _leaves_of(item)
    elif isinstance(nest, dict):
        for item in nest.values():
            yield from _leaves_of(item)
    else:
        yield nest


def _tensors_of(nest: Any) -> Iterator[Tensor]:
    return (value for value in _leaves_of(nest) if isinstance(value, Tensor))
