"""`ttnn.tracer`: the computation behind a tensor, torch functions and ttnn ops alike, as a networkx graph."""

from softmesh.tracer.code_generation import codegen
from softmesh.tracer.nodes import (
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
from softmesh.tracer.trace_graph import get_graph, visualize, visualize_edge, visualize_node
from softmesh.tracer.tracing import disable_tracing, enable_tracing, is_tracing_enabled, trace
