"""Pipeline schedules as data (GPipe, 1F1B, interleaved): the actions of each stage, in order, and their messages.

The model is cut into parts. With `chunks` parts on each of p stages, chunk c of stage s is part c * p + s, so that
what leaves the last stage goes on at the first. A stage does its actions one after the other, as a chip's queue
does: a receive waits for its message, and a send until the receiver has room.

A schedule of one's own needs only the order of the passes; the messages between them follow from it:

>>> own = scheduled("one at a time", micro_batches=1, chunks=1, passes=[
...     [Forward(0), Backward(0)],
...     [Forward(0), Backward(0)],
... ])
>>> own.stages[1][0]
RecvActivation(micro_batch=0, chunk=0, peer=0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from softmesh.arguments import checked, checked_all, checked_int, described
from softmesh.errors import ArgumentValueError, did_you_mean


@dataclass(frozen=True)
class _Pass:
    micro_batch: int
    chunk: int = 0


class Forward(_Pass):
    """Of one micro-batch through one chunk; what backward needs of it stays until then."""


class Backward(_Pass):
    pass


@dataclass(frozen=True)
class _Message:
    """`chunk` is the stage's own: the one that made what is sent, or that waits for what is received."""

    micro_batch: int
    chunk: int
    peer: int


class SendActivation(_Message):
    pass


class RecvActivation(_Message):
    pass


class SendGradient(_Message):
    pass


class RecvGradient(_Message):
    pass


Pass = Forward | Backward
Send = SendActivation | SendGradient
Receive = RecvActivation | RecvGradient
Message = Send | Receive
Action = Pass | Message
ACTIONS = (Forward, Backward, SendActivation, RecvActivation, SendGradient, RecvGradient)


class Connection(NamedTuple):
    """A one-way stream of messages between two stages, with a FIFO of its own."""

    sender: int
    receiver: int
    carries: str

    def __str__(self) -> str:
        return f"{self.carries} from stage {self.sender} to stage {self.receiver}"


def connection_of(stage: int, action: Message) -> Connection:
    carries = "activations" if isinstance(action, SendActivation | RecvActivation) else "gradients"
    sends = isinstance(action, Send)
    return Connection(*((stage, action.peer) if sends else (action.peer, stage)), carries)


@dataclass(frozen=True)
class Schedule:
    """`stages[s]` is what stage s does, in order."""

    name: str
    micro_batches: int
    chunks: int
    stages: tuple[tuple[Action, ...], ...]

    def __post_init__(self) -> None:
        checked("Schedule", "name", self.name, str, "a string")
        for name in ("micro_batches", "chunks"):
            object.__setattr__(self, name, checked_count("Schedule", name, getattr(self, name)))
        given = checked_all("Schedule", "stages", self.stages, (list, tuple), "lists of actions, one per stage")
        checked_count("Schedule", "stages", len(given))
        wanted = "actions such as Forward(0) or SendActivation(0, 0, peer=1)"
        stages = (checked_all("Schedule", f"stages[{s}]", each, ACTIONS, wanted) for s, each in enumerate(given))
        object.__setattr__(self, "stages", tuple(map(tuple, stages)))

    def __repr__(self) -> str:
        sizes = f"{len(self.stages)} stages, {self.micro_batches} micro-batches, {self.chunks} chunks"
        return f"Schedule({self.name!r}, {sizes}, {sum(map(len, self.stages))} actions)"

    @property
    def parts(self) -> int:
        return self.chunks * len(self.stages)

    def part(self, stage: int, chunk: int) -> int:
        """Which part of the model, counted from its input, a chunk of a stage is."""
        return chunk * len(self.stages) + stage

    @cached_property
    def routes(self) -> tuple[tuple[Connection | None, ...], ...]:
        """Beside each action the connection that it uses, if it is a message."""
        return tuple(
            tuple(connection_of(stage, each) if isinstance(each, Message) else None for each in actions)
            for stage, actions in enumerate(self.stages)
        )

    def connections(self) -> list[Connection]:
        """Every one that carries a message, each once, in an order that all stages agree on."""
        return sorted({route for routes in self.routes for route in routes if route is not None})


def checked_count(where: str, name: str, value: object) -> int:
    count = checked_int(where, name, value)
    if count < 1:
        raise ArgumentValueError(f"{where}: {name} must be at least 1, got {count}.")
    return count


def scheduled(name: str, micro_batches: int, chunks: int, passes: Sequence[Sequence[Pass]]) -> Schedule:
    """The messages put in: received just before the pass that needs them, sent right after the one that made them."""
    checked_count("scheduled", "chunks", chunks)
    wanted = "lists of Forward(...) and Backward(...), one per stage"
    given = checked_all("scheduled", "passes", passes, (list, tuple), wanted)
    for stage, order in enumerate(given):
        checked_all("scheduled", f"passes[{stage}]", order, (Forward, Backward), "Forward(...) or Backward(...)")
    stages = tuple(
        tuple(action for each in order for action in with_messages(each, stage, len(passes), chunks))
        for stage, order in enumerate(passes)
    )
    return Schedule(name, micro_batches, chunks, stages)


def with_messages(one: Pass, stage: int, stages: int, chunks: int) -> Iterator[Action]:
    before, after = (stage - 1) % stages, (stage + 1) % stages
    part, last = one.chunk * stages + stage, chunks * stages - 1
    is_first, is_last = (
        part == 0 or stages == 1,
        part == last or stages == 1,
    )  # a lone stage hands over by itself
    where = (one.micro_batch, one.chunk)
    if isinstance(one, Forward):
        if not is_first:
            yield RecvActivation(*where, before)
        yield one
        if not is_last:
            yield SendActivation(*where, after)
    else:
        if not is_last:
            yield RecvGradient(*where, after)
        yield one
        if not is_first:
            yield SendGradient(*where, before)


# -- the three that have names -----------------------------------------------------------------


def gpipe(stages: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """All forwards, then all backwards: simple, and every micro-batch's activations live at once."""
    stages, micro_batches, chunks = _checked_counts("gpipe", stages, micro_batches, chunks)
    forwards = [Forward(m, c) for c in range(chunks) for m in range(micro_batches)]
    backwards = [Backward(m, c) for c in reversed(range(chunks)) for m in range(micro_batches)]
    return scheduled("gpipe", micro_batches, chunks, [[*forwards, *backwards]] * stages)


def one_forward_one_backward(stages: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """As soon as the first gradient is back, each forward is followed by a backward that frees what it kept.

    With several chunks to a stage it is the interleaved one.
    """
    stages, micro_batches, chunks = _checked_counts("1f1b", stages, micro_batches, chunks)
    if chunks > 1:
        return interleaved(stages, micro_batches, chunks)
    forwards, backwards = map(Forward, range(micro_batches)), map(Backward, range(micro_batches))
    both = list(forwards), list(backwards)
    passes = [_alternating(*both, warm_up=stages - stage - 1) for stage in range(stages)]
    return scheduled("1f1b", micro_batches, chunks, passes)


def interleaved(stages: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """1F1B with several chunks to a stage: the pipeline fills with small parts, so bubbles are `chunks` times shorter.

    Micro-batches go through in groups of as many as there are stages. Where the last group is smaller, everything
    else stays where it would be with a full one.
    """
    stages, micro_batches, chunks = _checked_counts("interleaved", stages, micro_batches, chunks)
    order = _in_groups(stages, micro_batches, chunks)
    full = [_alternating(*order, warm_up=2 * (stages - stage - 1) + (chunks - 1) * stages) for stage in range(stages)]
    passes = [[each for each in own if each.micro_batch < micro_batches] for own in full]
    return scheduled("interleaved", micro_batches, chunks, passes)


def _in_groups(stages: int, micro_batches: int, chunks: int) -> tuple[list[Forward], list[Backward]]:
    """The order of forwards and that of backwards, which all stages share; the last group is filled up."""
    groups = [range(start, start + stages) for start in range(0, micro_batches, stages)]
    forwards = [Forward(m, c) for group in groups for c in range(chunks) for m in group]
    backwards = [Backward(m, c) for group in groups for c in reversed(range(chunks)) for m in group]
    return forwards, backwards


def _alternating(forwards: Sequence[Forward], backwards: Sequence[Backward], warm_up: int) -> list[Pass]:
    ahead = min(warm_up, len(forwards))
    steady = [each for pair in zip(forwards[ahead:], backwards, strict=False) for each in pair]
    return [*forwards[:ahead], *steady, *backwards[len(forwards) - ahead :]]


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "1f1b": one_forward_one_backward,
    "gpipe": gpipe,
    "interleaved": interleaved,
}


def schedule_named(name: str, stages: int, micro_batches: int, chunks: int = 1) -> Schedule:
    if name not in SCHEDULES:
        raise ArgumentValueError(
            f"schedule {described(name)}: the schedules are {', '.join(map(repr, SCHEDULES))}; one of your own is a "
            f"Schedule.{did_you_mean(str(name), SCHEDULES)}"
        )
    return SCHEDULES[name](stages, micro_batches, chunks)


def _checked_counts(where: str, stages: int, micro_batches: int, chunks: int) -> tuple[int, int, int]:
    return (
        checked_count(where, "stages", stages),
        checked_count(where, "micro_batches", micro_batches),
        checked_count(where, "chunks", chunks),
    )
