"""Functions as graphs: what is a node, what a leaf, what it is called, and what is changed in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh import distributed
from softmesh.planner.capture import captured
from softmesh.planner.op_graph import OpGraph, Role
from softmesh.systems.chip import N300


def put(values: torch.Tensor, device: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)


class Block:
    def __init__(self, device: ttnn.MeshDevice) -> None:
        self.up = put(torch.zeros(64, 128), device)
        self.down = put(torch.zeros(128, 64), device)

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        hidden = ttnn.linear(x, self.up, activation="gelu")
        return ttnn.add(x, ttnn.matmul(hidden, self.down))


def two_blocks(device: ttnn.MeshDevice, tokens: torch.Tensor) -> ttnn.Tensor:
    model = {"layers": [Block(device), Block(device)]}
    x = put(tokens, device)
    for layer in model["layers"]:
        x = layer(x)
    return x


def ops(graph: OpGraph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_ops_are_nodes_and_what_no_op_made_is_a_leaf() -> None:
    graph = captured(two_blocks, [torch.zeros(1, 1, 32, 64)], chip=N300)
    assert ops(graph) == ["linear", "matmul", "add"] * 2
    assert [value.role for value in graph.leaves] == [Role.INPUT, *[Role.WEIGHT] * 4]
    assert [graph.values[n].name for n in graph.outputs] == ["add 5"]
    assert graph.nodes[2].operands == (graph.leaves[0].number, graph.nodes[1].results[0])


def test_leaves_have_the_names_by_which_the_program_reaches_them() -> None:
    graph = captured(two_blocks, [torch.zeros(1, 1, 32, 64)], chip=N300)
    names = [value.name for value in graph.leaves]
    assert names == ["x", "layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down"]


def test_nothing_large_is_computed_and_no_memory_is_too_small() -> None:
    def wide(device: ttnn.MeshDevice) -> ttnn.Tensor:
        return ttnn.matmul(put(torch.zeros(32, 65536), device), put(torch.zeros(65536, 262144), device))

    graph = captured(wide, chip=N300)  # 34 GB of weights
    assert graph.values[graph.outputs[0]].shape == (32, 262144)


def test_unified_ops_are_nodes_of_the_plain_op() -> None:
    def unified(device: ttnn.MeshDevice) -> ttnn.Tensor:
        x = put(torch.zeros(32, 64), device)
        return distributed.rms_norm(distributed.matmul(x, put(torch.zeros(64, 64), device)))

    assert ops(captured(unified, chip=N300)) == ["matmul", "rms_norm"]


@pytest.mark.parametrize("fill", [ttnn.fill_cache, ttnn.kv_cache.fill_cache_for_user_])
def test_what_is_changed_in_place_has_a_new_version(fill: Any) -> None:
    def step(device: ttnn.MeshDevice) -> ttnn.Tensor:
        cache = put(torch.zeros(1, 2, 64, 32), device)
        fill(cache, put(torch.zeros(1, 2, 32, 32), device), 0)
        return ttnn.sum(cache, dim=-1)

    graph = captured(step, chip=N300)
    cache = graph.named("cache")
    assert cache.role is Role.CACHE
    written = graph.nodes[0].results[0]
    assert graph.values[written].version_of == cache.number
    assert graph.nodes[1].operands == (written,)


def test_a_result_that_is_written_into_a_given_tensor_is_its_value() -> None:
    def into(device: ttnn.MeshDevice) -> ttnn.Tensor:
        x, out = put(torch.zeros(32, 64), device), put(torch.zeros(32, 64), device)
        ttnn.add(x, x, output_tensor=out)
        return ttnn.relu(out)

    graph = captured(into, chip=N300)
    assert graph.nodes[1].operands == graph.nodes[0].results


def test_collectives_hand_on_what_they_get() -> None:
    def parallel(device: ttnn.MeshDevice) -> ttnn.Tensor:
        return ttnn.relu(ttnn.all_reduce(put(torch.zeros(32, 64), device), cluster_axis=1))

    assert ops(captured(parallel, chip=N300)) == ["relu"]


def test_a_function_without_ops_is_refused() -> None:
    with pytest.raises(RuntimeError, match="called no op on a device"):
        captured(lambda: None, chip=N300)
