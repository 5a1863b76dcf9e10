"""No argument of any op, however silly, ends in an error that is not of the softmesh family."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import softmesh as ttnn
from softmesh import MeshDevice, MeshShape
from softmesh.dispatch.operation import OPERATIONS, Operation

SILLY: dict[str, Any] = {
    "None": None,
    "a string": "x",
    "a float": 2.5,
    "a list": [1, 2],
    "an empty list": [],
    "a list of None": [None],
    "nested": [[1]],
    "a big negative": -99,
    "a dict": {},
    "an object": object(),
    "a numpy int": np.int64(1),
    "a torch tensor": torch.ones(2),
}
GOOD: dict[str, Any] = {
    "shape": [32, 32],
    "dim": -1,
    "dims": [1, 0],
    "dim1": 0,
    "dim2": 1,
    "slice_start": [0, 0],
    "slice_end": [32, 32],
    "start": 0,
    "length": 2,
    "split_size": 16,
    "chunks": 2,
    "repeat_dims": [1, 2],
    "repeats": 2,
    "output_shape": [32, 32],
    "padding": [(0, 1), (0, 1)],
    "shifts": 1,
    "layout": ttnn.TILE_LAYOUT,
    "dtype": ttnn.float32,
    "output_tensor_shape": [32, 32],
    "pad_value": 0.0,
    "output_tensor_end": [31, 31],
    "memory_config": ttnn.L1_MEMORY_CONFIG,
    "fill_value": 1.0,
}


def distinct_ops() -> dict[str, Operation]:
    """One op of each family: those made by one table share their definition."""
    by_code = {op.definition.define.__code__: (name, op) for name, op in reversed(OPERATIONS.items())}
    return dict(sorted(by_code.values()))


@pytest.fixture(scope="module")
def mesh() -> Iterator[MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(1, 2)) as mesh_device:
        yield mesh_device


@pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning")
@pytest.mark.parametrize("name", distinct_ops())
def test_a_silly_argument_is_refused_in_our_own_words_or_makes_sense(mesh: MeshDevice, name: str):
    op = OPERATIONS[name]
    signature = op.definition.signature
    tensor = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
    good: dict[str, Any] = {}
    for at, argument in enumerate(signature.names):
        if signature.defaults[at] is inspect.Parameter.empty:
            is_operand = at in signature.operand_at
            good[argument] = tensor if is_operand else GOOD.get(argument, 1)
    tuning = {signature.names[at] for at in signature.tuning_at}
    for argument in set(signature.names) - tuning:
        for what, value in SILLY.items():
            try:
                with contextlib.suppress(ttnn.SoftmeshError):
                    op(**{**good, argument: value})
            except Exception as error:
                pytest.fail(f"{name}({argument}={what}) leaked {error!r}")
    assert op.definition.writes or torch.equal(ttnn.compose(tensor).float(), torch.ones(32, 32))
