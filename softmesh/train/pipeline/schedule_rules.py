"""Validation of a pipeline schedule: every action once, in a legal order, and matching sends and receives.

Reports all that is wrong, one sentence each. Says nothing of deadlocks: that takes a simulation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise, zip_longest

from softmesh.train.pipeline.stage_schedules import (
    Action,
    Backward,
    Connection,
    Forward,
    Message,
    Schedule,
    Send,
    connection_of,
    with_messages,
)

_Content = tuple[int, int]  # micro-batch, and the part that activations come from or gradients go to


def violations(schedule: Schedule) -> list[str]:
    """What is wrong with a schedule; an empty list if nothing is.

    >>> violations(Schedule("mine", 1, 1, ((Backward(0), Forward(0)),)))
    ['stage 0: Backward(micro_batch=0, chunk=0) comes before Forward(micro_batch=0, chunk=0)']
    """
    return list(_found(schedule))


@lru_cache(maxsize=16)
def _found(schedule: Schedule) -> tuple[str, ...]:
    wrong = tuple(text for stage in range(len(schedule.stages)) for text in _of_stage(schedule, stage))
    return wrong or tuple(_crossed(schedule))


def _of_stage(schedule: Schedule, stage: int) -> Iterator[str]:
    wanted = _wanted(schedule, stage)
    found: dict[Action, int] = {}
    for number, action in enumerate(schedule.stages[stage]):
        if action not in wanted:
            yield f"stage {stage}: {action}, action {number}, has no place there{_why(schedule, action)}"
        elif action in found:
            yield f"stage {stage}: {action} comes twice, as actions {found[action]} and {number}"
        else:
            found[action] = number
    for action, before in wanted.items():
        if action not in found:
            yield f"stage {stage}: {action} is missing"
            continue
        late = (earlier for earlier in before if found.get(earlier, -1) > found[action])
        yield from (f"stage {stage}: {action} comes before {earlier}" for earlier in late)


def _wanted(schedule: Schedule, stage: int) -> dict[Action, list[Action]]:
    """Every action that the stage must take once, with those that it must come after."""
    wanted: dict[Action, list[Action]] = {}
    for chunk in range(schedule.chunks):
        for micro_batch in range(schedule.micro_batches):
            for one in (Forward(micro_batch, chunk), Backward(micro_batch, chunk)):
                chain = list(with_messages(one, stage, len(schedule.stages), schedule.chunks))
                wanted[chain[0]] = []
                wanted.update({later: [earlier] for earlier, later in pairwise(chain)})
                wanted[one] += _same_stage(schedule, one)
    return wanted


def _same_stage(schedule: Schedule, one: Forward | Backward) -> Iterator[Action]:
    """What a pass needs that no message brings."""
    is_alone = len(schedule.stages) == 1
    if isinstance(one, Backward):
        yield Forward(one.micro_batch, one.chunk)
        if is_alone and one.chunk + 1 < schedule.chunks:
            yield Backward(one.micro_batch, one.chunk + 1)
    elif is_alone and one.chunk > 0:
        yield Forward(one.micro_batch, one.chunk - 1)


def _why(schedule: Schedule, action: Action) -> str:
    if not 0 <= action.micro_batch < schedule.micro_batches:
        return f": the micro-batches are 0 to {schedule.micro_batches - 1}"
    if not 0 <= action.chunk < schedule.chunks:
        return f": the chunks are 0 to {schedule.chunks - 1}"
    return ": activations go from a part of the model to the next, gradients the other way"


def _crossed(schedule: Schedule) -> Iterator[str]:
    """Messages that are received in another order than they are sent in."""
    sent: dict[Connection, list[_Content]] = defaultdict(list)
    received: dict[Connection, list[_Content]] = defaultdict(list)
    for stage, actions in enumerate(schedule.stages):
        for action in actions:
            if isinstance(action, Message):
                side = sent if isinstance(action, Send) else received
                side[connection_of(stage, action)].append(_content(schedule, stage, action))
    for connection in schedule.connections():
        pairs = zip_longest(sent[connection], received[connection])
        for number, (there, here) in enumerate(pairs):
            if there != here:
                yield f"{connection}: message {number} is sent for {_said(there)} and received for {_said(here)}"
                break


def _content(schedule: Schedule, stage: int, action: Message) -> _Content:
    """The same at both ends: the boundary is named by the part before it."""
    part = schedule.part(stage, action.chunk)
    connection = connection_of(stage, action)
    is_behind = (connection.carries == "activations") != isinstance(action, Send)
    return action.micro_batch, part - 1 if is_behind else part


def _said(content: _Content | None) -> str:
    return "none" if content is None else f"micro-batch {content[0]} between parts {content[1]} and {content[1] + 1}"
