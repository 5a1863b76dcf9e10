"""Ops that docs/last-bits.md does not name give a rank's block the bits that one process gives it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from last_bits import PAGE, kinds, page
from op_examples import Example, example, names_with_examples
from strategies import Like, draw_values, mesh_of, one_device, quietly, same_bits

import softmesh as ttnn
from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.operation import OPERATIONS

DEVICES = 4
ODD = (1, 2, 33, 257)  # no multiple of what a processor takes at once


@pytest.fixture(scope="module")
def named() -> dict[str, str]:
    return kinds()


def test_the_page_names_what_torch_computes_by_size(named: dict[str, str]) -> None:
    assert {"matmul", "linear", "conv2d", "gelu", "softmax", "sum", "logaddexp", "moreh_abs_pow"} <= named.keys()
    assert {"experimental.quasar.atan2", "experimental.quasar.matmul"} <= named.keys()  # second names of ops
    assert not {"add", "multiply", "relu", "typecast", "concat", "where", "fill_cache"} & named.keys()
    assert PAGE.read_text() == page(named), "run python tests/properties/last_bits.py"


def exact_ops(named: dict[str, str]) -> list[str]:
    others = {name for name, op in OPERATIONS.items() if op.definition.draws or is_collective(op)}
    return [name for name in names_with_examples() if name not in others | named.keys()]


def put(like: Any, seed: int, mesh: ttnn.MeshDevice, devices: range) -> Any:
    """Values of each device, which differ; small operands of other kinds are the same everywhere."""
    if isinstance(like, list):
        return [put(one, seed + at, mesh, devices) for at, one in enumerate(like)]
    if isinstance(like, torch.Tensor):
        return ttnn.from_torch(like, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh)
    if not isinstance(like, Like):
        return like
    is_float = like.dtype in (ttnn.float32, ttnn.bfloat16)
    dtype = ttnn.float32 if is_float else like.dtype
    if not like.shape:
        return ttnn.from_torch(draw_values((), like.values, seed), dtype, layout=like.layout, device=mesh)
    values = torch.cat([draw_values(like.shape, like.values, 10 * seed + at) for at in devices])
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0) if len(devices) > 1 else None
    return ttnn.from_torch(values, dtype, layout=like.layout, device=mesh, mesh_mapper=mapper)


def pieces(name: str, call: Example, mesh: ttnn.MeshDevice, devices: range) -> list[torch.Tensor]:
    made = {operand: put(like, seed, mesh, devices) for seed, (operand, like) in enumerate(call.operands.items())}
    first = next(iter(made), None)
    if first is not None:
        made[first] = call.before(made[first])
    results = OPERATIONS[name](**made, **call.options)
    results = results if isinstance(results, list | tuple) else [results]
    return [one.pieces().clone() for one in results if isinstance(one, ttnn.Tensor)]


def test_a_block_has_the_bits_of_the_whole(named: dict[str, str]) -> None:
    mesh = mesh_of((1, DEVICES))
    compared, differing = 0, []
    for name in exact_ops(named):
        try:
            call = example(name, ODD)
            with ttnn.lenient(), quietly():
                whole = pieces(name, call, mesh, range(DEVICES))
                block = pieces(name, call, one_device(), range(DEVICES - 1, DEVICES))
        except (ttnn.MeshError, RuntimeError):  # not of this shape, or not of float32
            continue
        compared += 1
        if not all(same_bits(one[-1], other[0]) for one, other in zip(whole, block, strict=True)):
            differing.append(name)
    assert differing == []
    assert compared > 200
