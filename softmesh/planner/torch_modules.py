"""Torch modules as functions of a device: exported by torch.export, each op done by ttnn's of that meaning.

Weights keep the names of the module's parameters; those of linear layers lie as ttnn.linear takes them, (in, out).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentError, NotModelled
from softmesh.hardware.enums import DataType, Layout
from softmesh.planner.torch_ops import TORCH_OPS
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.from_torch_values import from_torch

Function = Callable[..., Any]


def function_of(torch_module: torch.nn.Module, inputs: Sequence[Any] | Mapping[str, Any]) -> Function:
    """What `torch_module(*inputs)` computes, as a function of a device and of the inputs."""
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    wrong = next((value for value in (*args, *kwargs.values()) if not isinstance(value, torch.Tensor)), None)
    if wrong is not None:
        raise ArgumentError(f"softmesh.plan: inputs of a torch module are torch tensors, got {type(wrong).__name__}.")
    exported = torch.export.export(torch_module, args, kwargs or None)
    graph = _ExportedGraph(exported)
    module: dict[str, Any] = {}  # a leaf is called by the path on which it is found here

    def planned(device: MeshDevice, *values: torch.Tensor) -> Any:
        return graph.run(device, values, module)

    return planned


class _ExportedGraph:
    def __init__(self, exported: Any) -> None:
        signature = exported.graph_signature
        self._nodes = list(exported.graph.nodes)
        self._state: dict[str, torch.Tensor] = {**exported.constants, **exported.state_dict}
        self._kept: dict[str, str] = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self._inputs: list[str] = list(signature.user_inputs)
        self._transposed = self._read_only_by("linear", at=1)
        self._tables = self._read_only_by("embedding", at=0)
        if signature.buffers_to_mutate:
            changed = ", ".join(signature.buffers_to_mutate.values())
            raise NotModelled(f"softmesh.plan: the torch module changes its buffers {changed}: make them inputs.")

    def _read_only_by(self, op: str, at: int) -> set[str]:
        """Weights that nothing else reads: they lie as that op takes them, the other way round or in rows."""
        target = getattr(torch.ops.aten, op).default
        return {
            node.name
            for node in self._nodes
            if node.op == "placeholder" and node.users and node.name in self._kept
            if all(user.target is target and user.args[at] is node for user in node.users)
        }

    def run(self, device: MeshDevice, values: Sequence[torch.Tensor], module: dict[str, Any]) -> Any:
        given = dict(zip(self._inputs, values, strict=True))
        known: dict[Any, Any] = {}
        for node in self._nodes:
            if node.op == "placeholder":
                name = self._kept.get(node.name, node.name)
                kept = node.name in self._kept
                known[node] = self._put(node.name, self._state[name] if kept else given[node.name], device)
                module[name] = known[node]
            elif node.op == "output":
                results = [known[one] for one in node.args[0]]
                return results[0] if len(results) == 1 else tuple(results)
            else:
                known[node] = self._done(node, known)
        raise AssertionError("an exported graph ends in its output")

    def _put(self, name: str, values: torch.Tensor, device: MeshDevice) -> Any:
        if name in self._transposed:
            values = values.T.contiguous()
        if values.is_floating_point():
            layout = Layout.ROW_MAJOR if name in self._tables else Layout.TILE
            return from_torch(values.detach(), DataType.BFLOAT16, layout=layout, device=device)
        return from_torch(values.to(torch.int32), DataType.UINT32, layout=Layout.ROW_MAJOR, device=device)

    def _done(self, node: Any, known: Mapping[Any, Any]) -> Any:
        args = torch.fx.node.map_arg(tuple(node.args), lambda one: known[one])
        kwargs = torch.fx.node.map_arg(dict(node.kwargs), lambda one: known[one])
        if node.target is operator.getitem:
            return args[0][args[1]]
        name = getattr(node.target, "_name", str(node.target)).removeprefix("aten::")
        if name == "linear":
            return _linear(node, args, self._transposed)
        make = TORCH_OPS.get(name) or TORCH_OPS.get(name.partition(".")[0])
        if make is None:
            raise NotModelled(_not_covered(node, name))
        value = node.meta.get("val")
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        try:
            return make(shape, *args, **kwargs)
        except TypeError as error:
            raise NotModelled(f"{_not_covered(node, name)} ({error})") from error


def _linear(node: Any, args: Sequence[Any], transposed: set[str]) -> Any:
    other_way = node.args[1].name in transposed
    x, weight, *bias = args
    return OPERATIONS["linear"](x, weight, bias=bias[0] if bias else None, transpose_b=not other_way)


def _not_covered(node: Any, name: str) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    where = [path for path, _ in stack.values() if path]
    site = (node.meta.get("stack_trace") or "").strip().splitlines()
    line = f" ({site[-1].strip()})" if site else ""
    module = f"in {where[-1]} " if where else ""
    covered = ", ".join(sorted({"linear", *(one.partition(".")[0] for one in TORCH_OPS)}))
    return (
        f"softmesh.plan: the torch module calls aten.{name} {module}{line}, which is not covered, or not with these "
        f"arguments. Covered are {covered}. Write this part with ttnn's ops, and plan the function."
    )
