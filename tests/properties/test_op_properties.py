"""Every op is as the table of properties says: arguments, memory of results, layouts, aliases, output tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from op_calls import operation_names
from op_examples import UNALIGNED, WITHOUT_EXAMPLE, example, names_with_examples
from op_observations import DRAM, DRAWN, address, run, spelled, tensors_of, written
from op_properties import observed, skeleton, table
from strategies import one_device

import softmesh as ttnn
from softmesh.errors import MeshError
from softmesh.tensor.shard_rules import row_alignment
from softmesh.tensor.tile import padded_shape
from softmesh.unmodelled import StandIn

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0", "ignore::softmesh.SoftmeshWarning")
ROWS = table()
TABLE = {name: row for name, row in ROWS.items() if name in names_with_examples()}


def test_every_op_has_a_row() -> None:
    missing = [name for name in names_with_examples() if name not in TABLE]
    assert not missing, f"add rows to tests/properties/op_properties.csv, compared with TT-NN: {skeleton(missing)}"
    assert set(operation_names()) >= WITHOUT_EXAMPLE


def test_a_row_without_an_op_is_that_of_a_name_of_ttnn_which_is_not_modelled() -> None:
    for name in set(ROWS) - set(TABLE):
        assert isinstance(functools.reduce(getattr, name.split("."), ttnn), StandIn), f"there is no {name} any more"


@pytest.mark.parametrize("name", sorted(TABLE))
def test_an_op_is_as_its_row_says(name: str) -> None:
    assert observed(name) == {column: word.removesuffix("?") for column, word in TABLE[name].items()}


@pytest.mark.parametrize("name", sorted(name for name, row in TABLE.items() if row["result"] != "in place"))
def test_results_are_padded_to_whole_tiles_and_no_further(name: str) -> None:
    call = example(name, UNALIGNED)
    words = TABLE[name]["layouts"].removesuffix("?").split()
    for layout, word in zip((ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT), words, strict=True):
        if word == "refused":
            continue
        for made in run(name, call, call.placed(DRAM, layout)):
            edge = row_alignment(made.memory_config())
            assert tuple(made.padded_shape) == padded_shape(tuple(made.shape), made.layout, made.tile, edge)


@pytest.mark.parametrize("name", sorted(name for name, row in TABLE.items() if row["output"] not in ("-", "own")))
def test_an_output_tensor_holds_what_the_op_computes(name: str) -> None:
    call = example(name)
    plain = run(name, call, call.placed(DRAM))
    made = written(name, plain)
    assert made is not None
    if name not in DRAWN:
        assert all(torch.equal(one.view_data(), other.view_data()) for one, other in zip(made, plain, strict=True))


def may_be_written_over() -> list[str]:
    """Ops of one result like their first operand, which takes an output tensor."""
    return sorted(name for name, row in TABLE.items() if row["output"].startswith("shape") and name not in DRAWN)


@pytest.mark.parametrize("name", may_be_written_over())
def test_an_operand_may_be_the_output_tensor(name: str) -> None:
    call = example(name)
    operands = call.placed(DRAM)
    first, plain = tensors_of(operands)[0], run(name, call, operands)
    if len(plain) > 1 or plain[0].spec != first.spec:
        return
    at = address(first)
    (made,) = run(name, call, operands, **{str(spelled(name, "output_tensor")): first})
    assert made is first
    assert address(made) == at
    assert torch.equal(made.view_data(), plain[0].view_data())


@pytest.mark.parametrize("name", sorted(name for name, row in TABLE.items() if row["result"] in ("new", "view")))
def test_a_view_is_gone_with_its_operand_and_nothing_else_is(name: str) -> None:
    call = example(name)
    operands = call.placed(DRAM)
    results = run(name, call, operands)
    for operand in tensors_of(operands):
        ttnn.deallocate(operand)
    is_view = TABLE[name]["result"] == "view"
    assert [one.is_allocated() for one in results] == [not is_view] * len(results)
    if is_view:
        with pytest.raises(MeshError, match="deallocated"):
            ttnn.neg(results[0])


# -- calls that change nothing: what they give back ---------------------------------------------------------------

SHAPE = (1, 1, 64, 64)
IDLE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "slice": (lambda x: ttnn.slice(x, [0] * 4, list(SHAPE)), "itself"),
    "getitem": (lambda x: x[:], "itself"),
    "to_device": (lambda x: ttnn.to_device(x, one_device()), "itself"),
    "view": (lambda x: ttnn.view(x, SHAPE), "shared"),
    "reshape": (lambda x: ttnn.reshape(x, SHAPE), "shared"),
    "squeeze": (lambda x: ttnn.squeeze(x, 2), "shared"),
    "unsqueeze_to_4D": (lambda x: ttnn.unsqueeze_to_4D(x), "shared"),
    "to_layout": (lambda x: ttnn.to_layout(x, ttnn.TILE_LAYOUT), "shared"),
    "to_memory_config": (lambda x: ttnn.to_memory_config(x, ttnn.DRAM_MEMORY_CONFIG), "shared?"),
    "fill_implicit_tile_padding": (lambda x: ttnn.fill_implicit_tile_padding(x, 1.0), "itself"),
    "typecast": (lambda x: ttnn.typecast(x, x.dtype), "new"),
    "clone": (lambda x: ttnn.clone(x), "new"),
    "identity": (lambda x: ttnn.identity(x), "new"),
    "assign": (lambda x: ttnn.assign(x, memory_config=x.memory_config()), "new"),
    "permute": (lambda x: ttnn.permute(x, (0, 1, 2, 3)), "shared"),
    "transpose": (lambda x: ttnn.transpose(x, 0, 0), "shared"),
    "pad": (lambda x: ttnn.pad(x, [(0, 0)] * 4, 0.0), "new?"),
    "concat": (lambda x: ttnn.concat([x], 0), "shared"),
    "repeat": (lambda x: ttnn.repeat(x, [1, 1, 1, 1]), "shared?"),
    "repeat_interleave": (lambda x: ttnn.repeat_interleave(x, 1, 0), "new?"),
    "expand": (lambda x: ttnn.expand(x, SHAPE), "new?"),
    "split": (lambda x: ttnn.split(x, 64, 2)[0], "new?"),
    "chunk": (lambda x: ttnn.chunk(x, 1, 2)[0], "new?"),
    "narrow": (lambda x: ttnn.narrow(x, 2, 0, 64), "new?"),
    "roll": (lambda x: ttnn.roll(x, 0, 2), "new?"),
    "tilize": (lambda x: ttnn.tilize(x), "new?"),
}


@pytest.mark.parametrize("name", IDLE)
def test_what_a_call_that_changes_nothing_gives_back(name: str) -> None:
    """`itself`: the tensor that was given; `shared`: one in its memory; `new`. A `?`: not known of TT-NN."""
    call, expected = IDLE[name]
    x = ttnn.from_torch(torch.rand(SHAPE), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=one_device())
    made = call(x)
    found = "itself" if made is x else "shared" if address(made) == address(x) else "new"
    assert found == expected.removesuffix("?")
    assert torch.equal(ttnn.to_torch(made), ttnn.to_torch(x))
