"""Each op states which of its tensors it does not read, and no name of an argument decides it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softmesh.collectives.overload_signatures import COMPOSITES, Composite
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operation import OPERATIONS, Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.roles import Role
from softmesh.kinds import Kind
from softmesh.placement import rules

# Words in names of arguments that are written to, or are scratch, in many ops and are read in some: there the name
# misleads a reader, so the op says which it is.
_MISLEADING = (*("buffer", "scratch", "persistent", "intermediate", "stats", "output", "workspace", "staging"),)


def _tensor_arguments() -> Iterator[tuple[str, str, bool]]:
    """Op, argument, and whether its role is stated."""
    for name, op in (*OPERATIONS.items(), *COMPOSITES.items()):
        if isinstance(op, Operation):
            roles, operands = op.definition.roles, op.definition.signature.operand_names
        else:
            assert isinstance(op, Composite)
            roles, operands = op.roles, []
        for form in op.call_forms():
            for argument in form.arguments:
                if "Tensor" in str(argument.type) or argument.name in operands:
                    yield name, argument.name, argument.name in roles


def test_every_tensor_whose_name_could_mislead_has_a_stated_role() -> None:
    silent = {
        (op, argument)
        for op, argument, is_stated in _tensor_arguments()
        if not is_stated and any(word in argument for word in _MISLEADING)
    }
    assert not silent, sorted(silent)
    assert sum(any(word in argument for word in _MISLEADING) for _, argument, _ in _tensor_arguments()) > 250


def test_a_role_is_of_an_argument_that_the_op_takes() -> None:
    with pytest.raises(AssertionError, match="states a role of statistics"):
        operation("role_of_nothing", kind=Kind.ELEMENTWISE, scratch="statistics")(lambda x: Local(x, rules.opaque))


def test_an_argument_has_one_role() -> None:
    with pytest.raises(AssertionError, match="x has two roles: writes and updates"):
        operation("role_twice", kind=Kind.ELEMENTWISE, writes="x", updates="x")


def _definition(name: str) -> Definition:
    return OPERATIONS[name].definition


def test_what_an_op_writes_in_place_follows_from_the_roles() -> None:
    assert (_definition("add_").writes, _definition("add_").changes_in_place) == ((0,), True)
    assert (_definition("update_cache").writes, _definition("update_cache").changes_in_place) == ((0,), False)
    fused = _definition("experimental.paged_fused_update_cache")
    assert [fused.signature.operand_names[at] for at in fused.writes] == ["cache_tensor1", "cache_tensor2"]
    assert _definition("point_to_point").writes == ()  # its output is a result


def test_a_buffer_that_serves_call_after_call_follows_from_the_roles() -> None:
    assert _definition("experimental.all_gather_async").persistent_output
    assert not _definition("experimental.high_bw_all_gather").persistent_output
    assert not _definition("experimental.all_reduce_async").persistent_output


def test_other_devices_write_into_buffers_and_scratch_of_an_exchange() -> None:
    assert set(_definition("experimental.all_to_all_async").written_remotely) == {
        "persistent_output_buffer",
        "persistent_intermediate_buffer",
    }
    assert _definition("all_gather").role("output_tensor") is Role.WRITES
    assert _definition("all_gather").written_remotely == ()
