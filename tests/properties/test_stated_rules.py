"""What the record of an op states of placements, its calls do."""

from __future__ import annotations

import sys

import pytest
from op_examples import example, names_with_examples

from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.dispatch.plan import Local
from softmesh.placement.placements import sentence_of
from softmesh.placement.rules import Rule


def _said_of(rule: Rule) -> str | None:
    """In words, by the rule itself or by the function that made it."""
    name = rule.__qualname__.partition(".<locals>")[0]
    maker = getattr(sys.modules[rule.__module__], name, None)
    return sentence_of(rule) or sentence_of(maker.definition.define if isinstance(maker, Operation) else maker)


@pytest.mark.parametrize("name", [name for name in names_with_examples() if not is_collective(OPERATIONS[name])])
def test_a_call_is_placed_as_the_record_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, used = OPERATIONS[name], []
    describe = Definition.local

    def noted(self: Definition, arguments: dict[str, object]) -> Local:
        local = describe(self, arguments)
        if self is op.definition:
            used.append(local.rule)
        return local

    monkeypatch.setattr(Definition, "local", noted)
    call = example(name)
    op.forget_plans()
    op(**call.placed(), **call.options)
    stated = op.definition.placement
    in_own_words = sentence_of(op.definition.define) is not None
    assert in_own_words or {_said_of(rule) or stated for rule in used} <= {stated}
