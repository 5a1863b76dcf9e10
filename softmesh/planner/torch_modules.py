"""Torch modules as functions of a device: exported by torch.export, each op done by ttnn's of that meaning.

Weights keep the names of the module's parameters; those of linear layers lie as ttnn.linear takes them, (in, out).
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentError, NotModelled
from softmesh.hardware.enums import DataType, Layout
from softmesh.planner.torch_ops import CASTS, SHAPED, TORCH_OPS, cast
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.from_torch_values import from_torch

Function = Callable[..., Any]


def function_of(torch_module: torch.nn.Module, inputs: Sequence[Any] | Mapping[str, Any]) -> Function:
    """What `torch_module(*inputs)` computes, as a function of a device and of the inputs."""
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    wrong = next((value for value in (*args, *kwargs.values()) if not isinstance(value, torch.Tensor)), None)
    if wrong is not None:
        raise ArgumentError(f"softmesh.plan: inputs of a torch module are torch tensors, got {type(wrong).__name__}.")
    graph = _ExportedGraph(_exported(torch_module, args, kwargs))
    module: dict[str, Any] = {}  # a leaf is called by the path on which it is found here

    def planned(device: MeshDevice, *values: torch.Tensor) -> Any:
        return _Run(graph, device, module).results(values)

    return planned


def _exported(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """As one graph: what is done under torch.autocast is a graph of its own at first, and without gradients, too."""
    try:
        with torch.no_grad(), _quiet(_TORCHS_LOG):
            exported = torch.export.export(module, args, kwargs or None)
    except Exception as error:
        given = {f"input {at}": value for at, value in enumerate(args)} | kwargs
        shapes = ", ".join(f"{name} {list(value.shape)} {value.dtype}" for name, value in given.items()) or "no input"
        raise ArgumentError(
            f"softmesh.plan: torch.export has no graph of {type(module).__name__} for {shapes}. "
            f"{type(error).__name__}: {str(error).strip()[:_MOST_SAID]}"
        ) from error
    if not _parts(exported):
        return exported
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        exported = exported.run_decompositions({})
    if parts := _parts(exported):
        raise NotModelled(
            f"softmesh.plan: the torch module has parts that are graphs of their own ({', '.join(parts)}), as the "
            "branches of torch.cond are: write it without them."
        )
    return exported


_TORCHS_LOG = "torch._subclasses.fake_tensor"  # which tells of an error that is raised as well
_MOST_SAID = 1000


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _parts(exported: Any) -> list[str]:
    return [str(node.target) for node in exported.graph.nodes if node.op == "get_attr"]


class _ExportedGraph:
    def __init__(self, exported: Any) -> None:
        signature = exported.graph_signature
        self.nodes = list(exported.graph.nodes)
        self.inputs: list[str] = list(signature.user_inputs)
        self._state: dict[str, torch.Tensor] = {**exported.constants, **exported.state_dict}
        self._parameters: dict[str, str] = dict(signature.inputs_to_parameters)
        self._buffers: dict[str, str] = {
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self._names = self._free_names()
        self.transposed = self._read_only_by("linear", at=1)
        self.tables = self._read_only_by("embedding", at=0)
        if signature.buffers_to_mutate:
            changed = ", ".join(signature.buffers_to_mutate.values())
            raise NotModelled(f"softmesh.plan: the torch module changes its buffers {changed}: make them inputs.")

    def _read_only_by(self, op: str, at: int) -> set[str]:
        """Weights that nothing else reads: they lie as that op takes them, the other way round or in rows."""
        target = getattr(torch.ops.aten, op).default
        return {
            node.name
            for node in self.nodes
            if node.op == "placeholder" and node.users and node.name in self._parameters
            if all(user.target is target and user.args[at] is node for user in node.users)
        }

    def _free_names(self) -> dict[str, str]:
        """Of each node: the path of a parameter or a buffer, or its own name, if that is no such path."""
        paths, names = self._parameters | self._buffers, {node.name for node in self.nodes}
        kept, found = set(paths.values()), dict(paths)
        for name in names - paths.keys():
            own, count = name, 2
            while own in kept or (own != name and own in names):
                own, count = f"{name}_{count}", count + 1
            found[name] = own
        return found

    def read_behind(self, node: Any) -> list[Any]:
        """The nodes before this one of which one behind it reads."""
        at = self.nodes.index(node)
        behind = set(self.nodes[at + 1 :])
        return [one for one in self.nodes[:at] if not behind.isdisjoint(one.users)]

    def name_of(self, node: Any) -> str:
        """What its value is called among the tensors of a plan."""
        return self._names[node.name]

    def parameter(self, node: Any) -> torch.Tensor | None:
        name = self._parameters.get(node.name)
        return None if name is None else self._state[name]

    def buffer(self, node: Any) -> torch.Tensor | None:
        name = self._buffers.get(node.name)
        return None if name is None else self._state[name]


def _memory(node: Any) -> Any:
    """Where torch has a tensor; views are in one place."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else node


def _part(node: Any) -> Any:
    """What part of that memory it is."""
    value = node.meta["val"]
    return value.storage_offset(), value.shape, value.stride()


class _Run:
    """Of an exported graph on a device.

    What depends on no input and no parameter, a mask or the angles of positions, is computed by torch. It is put on the
    device as a tensor of the plan where an op reads it.
    """

    def __init__(self, graph: _ExportedGraph, device: MeshDevice, tensors: dict[str, Any]) -> None:
        """`tensors` is given all that are put on the device, by name."""
        self._graph, self._device, self._tensors = graph, device, tensors
        self._known: dict[Any, Any] = {}  # torch tensors, and those of the device

    def results(self, values: Sequence[torch.Tensor]) -> Any:
        given = dict(zip(self._graph.inputs, values, strict=True))
        for node in self._graph.nodes:
            if node.op == "output":
                results = [None if one is None else self._on_device(one, node) for one in node.args[0]]
                return results[0] if len(results) == 1 else tuple(results)
            self._known[node] = self._begun(node, given) if node.op == "placeholder" else self._done(node)
        raise AssertionError("an exported graph ends in its output")

    def _begun(self, node: Any, given: Mapping[str, torch.Tensor]) -> Any:
        graph, buffer = self._graph, self._graph.buffer(node)
        if buffer is not None:
            return buffer
        values = graph.parameter(node)
        values = given[node.name] if values is None else values.detach()
        if node.name in graph.transposed:
            values = values.T.contiguous()
        is_table = node.name in graph.tables or not values.is_floating_point()
        is_index = values.dtype is torch.bool or all(_reads(user, "embedding") for user in node.users)
        return self._put(graph.name_of(node), values, Layout.ROW_MAJOR if is_table else Layout.TILE, is_index=is_index)

    def _put(self, name: str, values: torch.Tensor, layout: Layout, *, is_index: bool) -> Any:
        """Integers may become negative, but for indices and yes or no."""
        dtype = DataType.BFLOAT16
        if not values.is_floating_point():
            values, dtype = values.to(torch.int32), DataType.UINT32 if is_index else DataType.INT32
        self._tensors[name] = from_torch(values, dtype, layout=layout, device=self._device)
        return self._tensors[name]

    def _done(self, node: Any) -> Any:
        if node.target is operator.getitem:
            return self._known[node.args[0]][node.args[1]]
        name = getattr(node.target, "_name", str(node.target)).removeprefix("aten::")
        short = name.partition(".")[0]
        known = [self._known[one] for one in node.all_input_nodes]
        if short in SHAPED or all(map(_is_host, known)):
            return self._by_torch(node, short)
        args = torch.fx.node.map_arg(tuple(node.args), lambda one: self._on_device(one, node))
        kwargs = torch.fx.node.map_arg(dict(node.kwargs), lambda one: self._on_device(one, node))
        value = node.meta.get("val")
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        if short == "linear":
            made = _linear(args, is_transposed=node.args[1].name in self._graph.transposed)
        elif short in CASTS:
            made = cast(args[0], node.args[0].meta["val"].dtype, node.meta["val"].dtype)
        else:
            made = _called(node, name, shape, args, kwargs)
        if node.target._schema.is_mutable:
            self._change(node, name, made)
        return made

    def _change(self, node: Any, name: str, made: Any) -> None:
        """All that stand for the tensor that a node changes in place, and are read later, stand for its result."""
        target = node.args[0]
        for one in self._graph.read_behind(node):
            if _memory(one) == _memory(target):
                if _part(one) != _part(target):
                    why = "in place, where another view of that tensor is read later: compute a new tensor instead"
                    raise NotModelled(_not_covered(node, name, why))
                self._known[one] = made

    def _by_torch(self, node: Any, short: str) -> Any:
        if short in SHAPED:
            value = node.meta["val"]
            return torch.full(tuple(value.shape), SHAPED[short](node), dtype=value.dtype)
        with torch.no_grad():
            args = torch.fx.node.map_arg(tuple(node.args), self._known.__getitem__)
            return node.target(*args, **torch.fx.node.map_arg(dict(node.kwargs), self._known.__getitem__))

    def _on_device(self, node: Any, reader: Any) -> Any:
        """As an op takes it: numbers as such, indices in rows, what is not hidden as 1 or, for attention, as 0."""
        value = self._known[node]
        if not isinstance(value, torch.Tensor):
            _check_mask(node, reader)
            return value
        if not value.dim():
            return value.item()
        is_index, is_mask = _reads(reader, "embedding"), value.dtype is torch.bool and _reads(reader, _ATTENTION)
        name = self._graph.name_of(node) + (".added" if is_mask else "")
        if name not in self._tensors:
            if is_mask:
                value = torch.zeros(value.shape).masked_fill(value.logical_not(), -torch.inf)
            value, layout = (value, Layout.ROW_MAJOR) if is_index else (value.float(), Layout.TILE)
            self._put(name, value, layout, is_index=is_index)
        return self._tensors[name]


_ATTENTION = "scaled_dot_product_attention"


def _reads(reader: Any, op: str) -> bool:
    return str(reader.target).removeprefix("aten.").partition(".")[0] == op


def _check_mask(node: Any, reader: Any) -> None:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.dtype is torch.bool and _reads(reader, _ATTENTION):
        why = "with a mask of booleans that depends on inputs: add one of 0 and -inf to the scores"
        raise NotModelled(_not_covered(reader, _ATTENTION, why))


def _is_host(value: Any) -> bool:
    several = value if isinstance(value, tuple | list) else [value]
    return all(isinstance(one, torch.Tensor | int | float | bool | None) for one in several)


def _called(node: Any, name: str, shape: tuple[int, ...], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    make = TORCH_OPS.get(name) or TORCH_OPS.get(name.partition(".")[0])
    if make is None:
        raise NotModelled(_not_covered(node, name))
    try:
        return make(shape, *args, **kwargs)
    except TypeError as error:
        raise NotModelled(_not_covered(node, name, f"with {error}")) from error


def _linear(args: Sequence[Any], *, is_transposed: bool) -> Any:
    x, weight, *bias = args
    return OPERATIONS["linear"](x, weight, bias=bias[0] if bias else None, transpose_b=not is_transposed)


def _not_covered(node: Any, name: str, how: str = "") -> str:
    stack = node.meta.get("nn_module_stack") or {}
    where = [path for path, _ in stack.values() if path]
    site = (node.meta.get("stack_trace") or "").strip().splitlines()
    line = f" ({site[-1].strip()})" if site else ""
    module = f" in {where[-1]}" if where else ""
    covered = sorted({"linear", *CASTS, *(one.partition(".")[0] for one in TORCH_OPS)})
    told = ", ".join(one for one in covered if not one.startswith("_") and not one.endswith("_"))
    return (
        f"softmesh.plan: the torch module calls aten.{f'{name} {how}'.rstrip()}{module}{line}, which is not covered. "
        f"Covered are {told}. Write this part with ttnn's ops, and plan the function."
    )
