"""What is said of a call: before it runs, of its plan and its operands, and afterwards, of its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from weakref import ref

from softmesh.diagnosis import partial_writes, plan_warnings
from softmesh.diagnosis.number_checks import NumberCheck, is_meant
from softmesh.diagnosis.rank_agreement import tell_ranks
from softmesh.diagnosis.refusal import refused_call
from softmesh.diagnosis.undefined_memory import carried_over
from softmesh.diagnosis.unforeseen import tell_unforeseen
from softmesh.dispatch.definition import AfterRunning
from softmesh.dispatch.diagnosis_hooks import HOOKS, PlannedCall
from softmesh.dispatch.plan import Plan
from softmesh.errors import PartialError, PartialWarning, SoftmeshWarning
from softmesh.runtime.traces.recorded_numbers import RecordedNumber, recorded_number
from softmesh.strictness import doubt, doubts_are_heard, is_strict, warn, warn_or_raise
from softmesh.tensor.persistent_results import note_lost, warn_if_overwritten
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import is_unwritten


def after_planning(call: PlannedCall) -> list[AfterRunning]:
    """Say what is known before the call runs; what it returns is called with the results."""
    definition, bound = call.definition, call.bound
    after: list[AfterRunning] = []
    if bound.is_marked or definition.leaves_undefined:
        marking = (definition.undefined or carried_over)(definition, bound)
        if marking is not None:
            after += [marking, partial(_note_written, call)]
    for tensor in bound.tensors if bound.is_marked else ():
        if all(tensor is not target for target in bound.targets):
            warn_if_overwritten(tensor, definition.name)
    _tell_of_plan(call.plan)
    if doubts_are_heard():
        _tell_doubts(call)
    if bound.is_marked and (parts := partial_writes.of_call(call)) is not None:
        after.append(parts.tell)
    if is_strict():
        after.append(_checked(call))
    return after


def _checked(call: PlannedCall) -> AfterRunning:
    """Look at operands, before the call may write over them; what it returns looks at the results."""
    definition, bound = call.definition, call.bound
    for target in bound.targets:
        note_lost(target, definition.name, bound.tensors, is_buffer=definition.reads_other_devices)
    if call.recording is not None and (bound.targets or definition.writes):
        call.recording.numbers += _places_given(call)
    return NumberCheck(definition, call.plan, bound).look


def _places_given(call: PlannedCall) -> Iterator[RecordedNumber]:
    """The Python numbers that say where the call writes, with the variables that they come from."""
    op, values = call.definition, call.bound.values
    for name in op.places.split():
        place = op.signature.places[name]
        if isinstance(values[place], int | list | tuple):
            found = recorded_number(op.name, name, place, values[place])
            if found is not None:
                yield found


def _tell_of_plan(plan: Plan) -> None:
    if plan.problem is not None and plan.is_share:
        tell: Callable[[str, type[SoftmeshWarning]], None] = doubt if plan.is_bias else warn
        tell(plan.problem, PartialWarning)
    elif plan.problem is not None:
        warn_or_raise(plan.problem, PartialWarning, PartialError)
    for remark in plan.remarks:
        warn_or_raise(remark)


def _tell_doubts(call: PlannedCall) -> None:
    plan, bound = call.plan, call.bound
    plan_warnings.complete(plan, call.definition, bound)
    for text in () if plan.doubts and is_meant(call.definition, bound) else plan.doubts:
        doubt(text)
    for shared in plan.doubts_of_values:
        if shared.holds(bound.data):
            doubt(shared.text)


def _note_written(call: PlannedCall, made: list[Tensor]) -> None:
    """What the call has written is no longer memory and nothing more, unless it is made of what was there."""
    definition, recording = call.definition, call.recording
    written = [call.bound.tensors[at] for at in definition.writes]
    if recording is not None:  # what its inputs hold is what they hold at a replay
        recording.unwritten += [ref(tensor.storage) for tensor in definition.read(call.bound) if is_unwritten(tensor)]
        written = made
    elif definition.changes_in_place:
        return
    for tensor in written:
        tensor.storage.note_write()


HOOKS.after_planning = after_planning
HOOKS.explained = refused_call
HOOKS.tell_unforeseen = tell_unforeseen
HOOKS.tell_ranks = tell_ranks
