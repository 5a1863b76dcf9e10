"""`ttnn.tracer`: the computation behind a tensor, torch functions and ttnn ops alike, as a networkx graph."""

from softmesh.tracer.drawing import visualize, visualize_edge, visualize_node
from softmesh.tracer.graphs import get_graph
from softmesh.tracer.source import codegen
from softmesh.tracer.tracing import disable_tracing, enable_tracing, is_tracing_enabled, trace
from softmesh.tracer.values import (
    InputTensorIndex,
    Node,
    PositionalArgumentName,
    TorchFunction,
    TorchModule,
    TorchModuleInput,
    TorchParameter,
    TorchTensor,
    TTNNOperation,
    TTNNTensor,
)

__all__ = [
    "InputTensorIndex",
    "Node",
    "PositionalArgumentName",
    "TTNNOperation",
    "TTNNTensor",
    "TorchFunction",
    "TorchModule",
    "TorchModuleInput",
    "TorchParameter",
    "TorchTensor",
    "codegen",
    "disable_tracing",
    "enable_tracing",
    "get_graph",
    "is_tracing_enabled",
    "trace",
    "visualize",
    "visualize_edge",
    "visualize_node",
]
