"""No argument of any op, however silly, ends in an error that is not of the softmesh family."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import softmesh as ttnn
from softmesh import MeshDevice, MeshShape, Tensor
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


UNFORESEEN: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a tensor without dims": (
        lambda x: ttnn.embedding(ttnn.ones([], device=x.device()), x),
        r"embedding cannot be computed .*fewer dims.*\nCalled with: \(ttnn.Tensor\(\[\], BFLOAT16",
    ),
    "a list as the tensor to write to": (
        lambda x: ttnn.assign_bw(x, x, input_a_grad=[1]),
        r"input_a_grad must be a ttnn.Tensor to write to, got \[1\]",
    ),
    "a number for a list of flags": (
        lambda x: ttnn.moreh_linear_backward(x, x, x, are_required_outputs=1),
        "are_required_outputs must be a list of True and False, got 1",
    ),
    "an array for a flag": (
        lambda x: ttnn.slice(x, [0, 0], [1, 1], memory_config=np.ones(2)),
        "an array is given where True or False belongs",
    ),
    "a factor that is not a number": (
        lambda x: ttnn.upsample(ttnn.ones([1, 2, 2, 32], device=x.device()), float("nan")),
        "upsample cannot be computed with these arguments: a number is not finite",
    ),
    "a value that cannot be shown": (lambda x: ttnn.relu(Unshowable()), "got a Unshowable|Unshowable"),
    "a grid of cores without end": (
        lambda x: ttnn.interleaved_to_sharded(x, [10**12] * 2, [32, 32], HEIGHT, ROWS),
        "grid",
    ),
}
HEIGHT, ROWS = ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.ShardOrientation.ROW_MAJOR


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("what", UNFORESEEN)
def test_what_no_check_foresaw_is_told_as_an_error_of_the_call(mesh: MeshDevice, what: str):
    call, words = UNFORESEEN[what]
    with pytest.raises(ttnn.SoftmeshError, match=words):
        call(ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh))


def test_an_error_of_a_function_of_the_program_is_left_as_it_is(mesh: MeshDevice):
    def hook(*_: Any) -> None:
        raise KeyError("the program's own")

    with ttnn.register_pre_operation_hook(hook), pytest.raises(KeyError, match="the program's own") as caught:
        ttnn.ones([32, 32], device=mesh)
    assert not isinstance(caught.value, ttnn.SoftmeshError)


CORES = ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 1))
ENDLESS = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(60_000, 60_000))])
VALUES: dict[str, tuple[Callable[[], Any], str]] = {
    "cores of no set": (lambda: ttnn.corerange_to_cores(None), "core_range_set must be a ttnn.CoreRangeSet, got None"),
    "cores without end": (lambda: ttnn.corerange_to_cores(ENDLESS), "has 3600120001 cores"),
    "a range that overlaps a number": (lambda: CORES.overlaps(3), "other must be a ttnn.CoreRange, got 3"),
    "what a set loses to a number": (lambda: ttnn.CoreRangeSet([CORES]).subtract(3), "must be a ttnn.CoreRangeSet"),
    "a number inside of a range": (
        lambda: ttnn.MeshCoordinateRange(MeshShape(2, 2)).contains(1),
        "other must be a ttnn.MeshCoordinate or a range, got 1",
    ),
    "a shape of endless rank": (lambda: ttnn.Shape([2, 3]).to_rank(10**12), "no tensor has 1000000000000 dims"),
    "rounding up to no multiple": (lambda: ttnn.core.roundup(3, 0), "b is 0"),
    "a node of no mesh": (lambda: ttnn.FabricNodeId(None, 0), "mesh_id must be an int, got None"),
    "kernels that are no list": (lambda: ttnn.ProgramDescriptor(kernels=3), "kernels must be a list of"),
    "an array without dims as a shape": (lambda: ttnn.Shape(torch.tensor(3)), "must be a list of ints"),
}


@pytest.mark.parametrize("what", VALUES)
def test_values_refuse_what_they_cannot_be_made_of(what: str):
    make, words = VALUES[what]
    with pytest.raises(ttnn.SoftmeshError, match=words):
        make()


def test_errors_of_the_program_stay_what_they_are(mesh: ttnn.MeshDevice) -> None:
    """Also of code without a file, and where calls go too deep."""
    names: dict[str, Any] = {}
    exec("class Mine(KeyError): pass\ndef fails(tensor): raise Mine('here')", names)
    with pytest.raises(names["Mine"]):
        ttnn.as_tensor(torch.ones(32, 32), preprocess=names["fails"])
    x = ttnn.from_torch(torch.ones(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)

    def endless() -> None:
        ttnn.rms_norm(x)
        endless()

    with pytest.raises(RecursionError):
        endless()
