"""A call enters few Python functions: the first of an op, which is planned, and those after it, which are compiled.

`python tests/unit/test_frames_of_calls.py` prints the functions that each of these calls enters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType

import pytest
import torch

import softmesh as ttnn

_UNCOUNTED = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "__hash__", "__eq__")
MOST = {"first add": 250, "warm add": 10, "warm all_reduce": 16}


def entered(call: Callable[[], object]) -> list[CodeType]:
    """Return the functions that `call` enters, without comprehensions and without what compares keys."""
    found: list[CodeType] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name not in _UNCOUNTED:
            found.append(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found[1:]  # without `call` itself


def calls() -> Iterator[tuple[str, list[CodeType]]]:
    """The calls by name, each with the functions that it enters."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:

        def split(dim: int) -> ttnn.Tensor:
            return ttnn.from_torch(
                torch.ones(64, 64),
                ttnn.bfloat16,
                layout=ttnn.TILE_LAYOUT,
                device=mesh,
                mesh_mapper=ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), (None, dim)),
            )

        x, y = split(0), split(0)
        ttnn.add.forget_plans()
        yield "first add", entered(lambda: ttnn.add(x, y))
        yield "warm add", entered(lambda: ttnn.add(x, y))
        contributions = ttnn.matmul(split(1), split(0))
        for _ in range(2):
            ttnn.all_reduce(contributions, cluster_axis=1)
        yield "warm all_reduce", entered(lambda: ttnn.all_reduce(contributions, cluster_axis=1))
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


@pytest.fixture(scope="module")
def counted() -> dict[str, int]:
    return {name: len(functions) for name, functions in calls()}


@pytest.mark.parametrize("name", MOST)
def test_a_call_enters_few_functions(name: str, counted: dict[str, int]) -> None:
    assert counted[name] <= MOST[name]


if __name__ == "__main__":
    for shown, functions in calls():
        print(f"{shown}: {len(functions)} frames, at most {MOST[shown]}")
        for code in functions:
            print(f"    {code.co_qualname} ({code.co_filename}:{code.co_firstlineno})")
