"""The role that an op states of an operand is what its computation does with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from op_examples import example, names_with_examples
from op_observations import DRAM, run

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS
from softmesh.dispatch.roles import READ, Role
from softmesh.dispatch.signature import listed
from softmesh.tensor.dtype import facts
from softmesh.tensor.undefined import mark_unwritten

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0", "ignore::softmesh.SoftmeshWarning")


def _operands(name: str) -> list[str]:
    return OPERATIONS[name].definition.signature.operand_names


def _tensors(name: str, value: object) -> Iterator[ttnn.Tensor]:
    return (one for one in listed(value) if isinstance(one, ttnn.Tensor))


@pytest.mark.parametrize("name", sorted(names_with_examples()))
def test_memory_that_nobody_wrote_is_known_in_the_result_of_what_reads_it(name: str) -> None:
    """And in what is patched: the rest of it is as it was."""
    definition = OPERATIONS[name].definition
    for operand in _operands(name):
        call = example(name)
        given = call.placed(DRAM)
        tensors = list(_tensors(name, given.get(operand)))
        role = definition.role(operand)
        if not tensors or (role is Role.UNREAD and definition.leaves_undefined):
            continue
        is_known = role in READ | {Role.PATCHES} and operand not in _ignored(name, {**given, **call.options})
        for tensor in tensors:
            mark_unwritten(tensor, "empty")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            results = [one for one in run(name, call, given) if one.device() is not None]
        marks = [one.storage.undefined for one in results]
        found = any("nothing was written" in str(one.message) for one in told) or any(
            mark is not None and (mark.is_unwritten or mark.written is not None) for mark in marks
        )
        if definition.writes and role is Role.READS and not facts(tensors[0].dtype).is_float:
            continue  # other indices are tried, and may point to the same by chance
        assert found == is_known, (operand, role, marks)


def _ignored(name: str, given: dict[str, object]) -> set[str]:
    definition = OPERATIONS[name].definition
    signature = definition.signature
    whole = {**dict(zip(signature.names, signature.defaults, strict=True)), **given}
    return set() if definition.ignores is None else set(definition.ignores(whole))


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in names_with_examples()
        if any(OPERATIONS[name].definition.role(one) in (Role.UNREAD, Role.WRITES) for one in _operands(name))
    ),
)
def test_what_is_not_read_does_not_matter(name: str) -> None:
    definition = OPERATIONS[name].definition

    def made(is_changed: bool) -> list[torch.Tensor]:
        call = example(name)
        given = call.placed(DRAM)
        for operand in _operands(name):
            if is_changed and definition.role(operand) in (Role.UNREAD, Role.WRITES):
                for tensor in _tensors(name, given.get(operand)):
                    tensor.storage.data = 1 - tensor.storage.data
        return [one.view_data() for one in run(name, call, given)]

    assert all(map(torch.equal, made(False), made(True)))
