"""A plan that a running program follows: in the block, its ops are done as the plan splits them.

The program is the one that was planned, with its tensors on the mesh: its ops are met in the order of the graph. Each
gets its operands where the plan wants them, and leaves its result where the plan does. What the program sees of a
result is a tensor of the whole shape, so that shapes it computes from are those of one device; outputs are the tensors
themselves. Whoever places a tensor with the plan's mapper has it there at once; any other is brought there when it is
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from softmesh.callsite import user_call_site
from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.call_cache import bound_values
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.dispatch.operation import Operation
from softmesh.distributed.call_description import tensors_of
from softmesh.distributed.layouts import Layout, described, is_whole, layout_of, unsized, whole_shape
from softmesh.distributed.redistribution_ops import runner
from softmesh.distributed.unified_op import Unified
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError, NotModelled, SoftmeshError
from softmesh.hardware.enums import DataType
from softmesh.hardware.enums import Layout as TensorLayout
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.placement.distribution import distribution
from softmesh.placement.placements import REPLICATE
from softmesh.planner.capture import computed_with
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.op_graph import GraphNode, ValueRef
from softmesh.planner.op_strategies import OpStrategy
from softmesh.planner.program.plan_calls import OpForm, OpForms
from softmesh.planner.relaid_copies import as_copy
from softmesh.planner.training.composite_ops import COMPOSITES
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


@contextmanager
def following(plan: ChosenLayout, mesh_device: MeshDevice) -> Iterator[None]:
    if len(plan.stages) > 1:
        raise NotModelled(
            f"plan.followed(): the plan is a pipeline of {len(plan.stages)} stages, and a program that follows a plan "
            "runs on one mesh: run the file that plan.source() writes, or plan with stages=1."
        )
    if plan.problem.graph.goes_back:
        raise NotModelled(
            "plan.followed(): the plan has the ops of a backward pass, which the program does not call itself: run the "
            "file that plan.source() writes."
        )
    if tuple(mesh_device.shape) != plan.mesh_shape:
        raise ArgumentValueError(
            f"plan.followed(): the plan is for a mesh of {plan.mesh_shape}, this one is {tuple(mesh_device.shape)}: "
            "open one of the plan's shape, or plan for this one."
        )
    follower = _Follower(plan, mesh_device)
    with intercepting(follower.called):
        yield
    follower.check_finished()


class _Follower:
    def __init__(self, plan: ChosenLayout, mesh_device: MeshDevice) -> None:
        self._plan, self._problem, self._graph = plan, plan.problem, plan.problem.graph
        self._mesh = mesh_device
        self._forms = OpForms(plan.mesh_shape, plan.problem.chip, plan.problem.lines)
        self._next = 0  # node
        self._held: dict[int, dict[Layout, Tensor]] = {}  # by value: where it is by now
        self._behind: dict[int, tuple[Tensor, Tensor]] = {}  # by id of what the program sees: that, and what it is
        self._seen: dict[int, int] = {}  # by value: the id of what the program sees
        self._is_inside = False

    def called(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        if self._is_inside:
            return proceed(*args, **kwargs)
        if isinstance(op, Unified) and op.short_name != "redistribute":
            return self._done(op.plain, op.bound(args, kwargs))
        if not isinstance(op, Operation):
            return self._function(op, args, kwargs, proceed)
        if not self._is_on_mesh((args, kwargs)):
            return proceed(*args, **kwargs)
        if op.name in COMPOSITES:
            return self._composite(op, bound_values(op.definition, args, kwargs))
        if is_collective(op):
            return next(value for value in args if isinstance(value, Tensor))
        return self._done(*as_copy(op, bound_values(op.definition, args, kwargs)))

    def _composite(self, op: Operation, bound: list[Any]) -> Any:
        given = dict(zip(op.definition.signature.names, bound, strict=True))
        return COMPOSITES[op.name].forward(given, self)[0]

    def put(self, name: str, values: torch.Tensor, dtype: DataType, like: Tensor) -> Tensor:
        made: Tensor = from_torch(values, dtype, layout=TensorLayout.TILE, device=self._mesh)
        return made

    def _function(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        """What is no op gets the tensors that are behind those of the whole shape."""
        if op.name == "deallocate" and any(id(value) in self._behind for value in args):
            return None  # it is held for no longer than it is needed
        args = tuple(self._behind.get(id(value), (value, value))[1] for value in args)
        kwargs = {name: self._behind.get(id(value), (value, value))[1] for name, value in kwargs.items()}
        return proceed(*args, **kwargs)

    def check_finished(self) -> None:
        if self._next:
            raise MeshError(
                f"plan.followed(): the block ended after {self._next} of the plan's {len(self._graph.nodes)} ops: run "
                "all of the program that was planned."
            )

    def _is_on_mesh(self, nest: Any) -> bool:
        if isinstance(nest, Tensor):
            return nest.storage.device is self._mesh
        items = nest.values() if isinstance(nest, dict) else nest if isinstance(nest, list | tuple) else ()
        return any(map(self._is_on_mesh, items))

    def _done(self, op: Operation, bound: list[Any]) -> Any:
        node = self._node(op)
        output_at = op.definition.signature.output_at
        if output_at is not None and bound[output_at] is not None:
            raise ArgumentError(
                f"plan.followed(): {op.name} at {user_call_site()} is given a tensor for its result, and where that "
                f"lies is the plan's to say: leave {op.definition.signature.names[output_at]} out."
            )
        tensors, _ = tensors_of(op, bound)
        strategy = self._problem.strategies[node.number][self._plan.assignment.strategies[node.number]]
        self._is_inside = True
        try:
            operands = [self._moved(node, place, tensor, strategy.needs[place]) for place, tensor in enumerate(tensors)]
            form = self._form(node, op, bound, strategy)
            made = form.call(*operands)
            if strategy.bare is not None and not is_whole(strategy.bare):
                made = self._summed(node, strategy.bare, strategy.gives[0], made)
                made = made if form.after is None else form.after(made)
            return self._kept(node, strategy.gives, made, operands)
        finally:
            self._is_inside = False

    def _summed(self, node: GraphNode, parts: Layout, end: Layout, made: Tensor) -> Tensor:
        """The contributions of a product, each on its own also where a file has one product for several."""
        number, dtype = node.results[0], self._graph.values[node.results[0]].dtype
        way, whole = self._problem.way(number, dtype, parts, end), self._problem.value(number, dtype)
        assert way is not None
        for step in way.steps:
            made = runner(step, whole)(made)
        return made

    def _form(self, node: GraphNode, op: Operation, bound: list[Any], strategy: OpStrategy) -> OpForm:
        try:
            return self._forms.form(self._graph, _called_so(node, op, bound), strategy)
        except SoftmeshError as error:
            raise MeshError(
                f"plan.followed(): {op.name} at {user_call_site()} is called otherwise than planned: {error} Where "
                "the program reads the shape of a tensor that a mapper has split, it reads that of a piece: leave the "
                "mapper of inputs out, the plan brings them to their places."
            ) from error

    def _node(self, op: Operation) -> GraphNode:
        if self._next == 0:
            self._held.clear()
            self._behind.clear()
        node = self._graph.nodes[self._next]
        if node.op != op.name:
            raise MeshError(
                f"plan.followed(): {user_call_site()} calls {op.name}, where the program that was planned calls "
                f"{node.op} ({node.site}): plan the program as it is run."
            )
        self._next = (self._next + 1) % len(self._graph.nodes)
        return node

    def _moved(self, node: GraphNode, place: int, tensor: Tensor, end: Layout) -> Tensor:
        number = node.operands[place]
        held = self._held.setdefault(number, {})
        if end in held:
            return held[end]
        value = self._graph.values[number]
        if number in self._graph.makers:
            start = self._problem.given(self._plan.assignment, number).layout
            tensor = held[start]
        else:
            layout = layout_of(node.op, tensor)
            start, found = unsized(layout), whole_shape(tensor, layout, self._plan.mesh_shape)
            if found != value.shape:
                raise MeshError(
                    f"plan.followed(): {value.name} is {list(found)} at {user_call_site()}, and was planned as "
                    f"{list(value.shape)}: plan for this size."
                )
            held[start] = tensor
        if place in node.writes and start != end:
            raise MeshError(
                f"plan.followed(): {node.op} changes {value.name} in place, which lies as ({described(start)}), and "
                f"the plan has it as ({described(end)}): make it with mesh_mapper=plan.mapper({value.name!r}, mesh)."
            )
        whole = self._problem.value(number, value.dtype)
        way = self._problem.way(number, value.dtype, start, end)
        for step in () if way is None else way.steps:
            tensor = runner(step, whole)(tensor)
        held[end] = tensor
        return tensor

    def _kept(self, node: GraphNode, gives: Sequence[Layout], made: Any, operands: list[Tensor]) -> Any:
        results = [operands[place] for place in node.writes] or (
            list(made) if isinstance(made, list | tuple) else [made]
        )
        given = []
        for number, layout, tensor in zip(node.results, gives, results, strict=True):
            self._held[number] = {layout: tensor}
            given.append(self._left(number, tensor) if number in self._graph.outputs else self._whole(number, tensor))
        for number in [*self._held]:
            if self._problem.last_uses[self._graph.root(number)] <= node.number:
                del self._held[number]
                self._behind.pop(self._seen.pop(number, 0), None)
        if node.writes and not all(self._graph.root(number) in self._graph.makers for number in node.results):
            return made  # the program's own tensors
        return type(made)(given) if isinstance(made, list | tuple) else given[0]

    def _left(self, number: int, tensor: Tensor) -> Tensor:
        """An output, where the plan leaves it."""
        at = self._plan.assignment.homes.get(number)
        if at is None:
            return tensor
        node = self._graph.nodes[self._graph.makers[number]]
        end = self._problem.homes[number][at].layout
        return self._moved(replace(node, operands=(number,), writes=()), 0, tensor, end)

    def _whole(self, number: int, tensor: Tensor) -> Tensor:
        """What the program sees: the whole shape, and no values."""
        shape, mesh = self._graph.values[number].shape, self._plan.mesh_shape
        spec = make_spec(shape, tensor.dtype, tensor.layout, DRAM_MEMORY_CONFIG, tensor.tile)
        assert tensor.storage.data is not None
        blank = tensor.storage.data.new_zeros(()).expand((1,) * len(mesh) + shape)
        everywhere = distribution(mesh, mesh, (REPLICATE,) * len(mesh))
        storage = Storage(blank, everywhere, self._mesh)
        storage.spec, storage.claim = tensor.spec, tensor.storage.claim  # what is written there does not reach it
        seen = Tensor.make(storage, spec)
        self._behind[id(seen)] = seen, tensor
        self._seen[number] = id(seen)
        return seen


def _called_so(node: GraphNode, op: Operation, bound: list[Any]) -> GraphNode:
    """The node with the arguments of this call."""
    waiting = iter(node.operands)
    refs = computed_with(op, bound)
    for at in op.definition.signature.operand_at:
        refs[at] = _referring(bound[at], waiting)
    return replace(node, bound=tuple(refs))


def _referring(value: Any, numbers: Iterator[int]) -> Any:
    if isinstance(value, Tensor):
        return ValueRef(next(numbers))
    return tuple(_referring(item, numbers) for item in value) if isinstance(value, list | tuple) else value
