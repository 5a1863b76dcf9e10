"""Activations behind a product that the one op which reads its result does: the product of gate and up, say.

So a product that is split along its inner dim is summed first, and no op of its own is launched for the activation.
"""

from __future__ import annotations

from softmesh.dispatch.operation import OPERATIONS, factors_of
from softmesh.distributed.linear_and_embedding import activations_of
from softmesh.hardware.activation import UnaryWithParam
from softmesh.planner.op_graph import GraphNode, OpGraph

INPUT_ACTIVATIONS = ("input_tensor_a_activations", "input_tensor_b_activations")


def activations_behind(node: GraphNode) -> tuple[UnaryWithParam, ...]:
    """Return the activations of a product; none for other ops, or if no public op does them."""
    named = dict(zip(OPERATIONS[node.op].definition.signature.names, node.bound, strict=True))
    return activations_of(named) if factors_of(node.op) else ()


def takes_over(graph: OpGraph, node: GraphNode) -> bool:
    """True if the activation behind a product can be done by who reads it, and nobody else sees the value."""
    (result, *others), readers = node.results, graph.consumers[node.results[0]]
    if others or len(readers) != 1 or result in graph.outputs or not activations_behind(node):
        return False
    reader, place = graph.nodes[readers[0][0]], readers[0][1]
    names = OPERATIONS[reader.op].definition.signature.names
    if reader.writes or len(reader.operands) != len(INPUT_ACTIVATIONS) or INPUT_ACTIVATIONS[place] not in names:
        return False
    return not reader.bound[names.index(INPUT_ACTIVATIONS[place])]
