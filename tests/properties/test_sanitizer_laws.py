"""The sanitizer against all legal orders: it reports exactly when two of them differ in what comes of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from interleavings import Interleavings, Step

import softmesh as ttnn
from softmesh.metal import (
    BufferRegion,
    DeviceLocalBufferConfig,
    MeshBuffer,
    ReplicatedBufferConfig,
    ShardDataTransfer,
)
from softmesh.runtime.sanitizer.access_history import EVERYWHERE, History, Touch
from softmesh.runtime.sanitizer.vector_clocks import Agent, Clock

PAGE = 32
DEVICES = 2


@pytest.fixture(scope="module")
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, DEVICES), num_command_queues=2) as opened:
        yield opened


@dataclass
class Program:
    """Lines of Python, and what the model knows of each."""

    names: dict[str, object]
    steps: list[Step] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    recorded: int = 0

    def add(self, step: Step, line: str) -> None:
        self.steps.append(step)
        self.lines.append(line)

    def record(self, queue: int, devices: frozenset[int], box: str = "None") -> None:
        step = Step(queue, records=self.recorded, devices=devices)
        self.add(step, f"event_{self.recorded} = ttnn.record_event(mesh, {queue}, [], {box})")
        self.recorded += 1

    def wait(self, queue: int, number: int) -> None:
        """For one of the events that were recorded so far, if any."""
        if self.recorded:
            event = number % self.recorded
            self.add(Step(queue, awaits=event), f"ttnn.wait_for_event({queue}, event_{event})")

    def hand_over(self, queue: int, devices: frozenset[int], box: str = "None") -> None:
        """Let the other queue wait for all that is on this one so far."""
        self.record(queue, devices, box)
        self.wait(1 - queue, self.recorded - 1)

    def reported(self) -> set[tuple[int, int]]:
        """Run it under the sanitizer: the pairs of lines that it names."""
        code = compile("\n".join(self.lines), "a program", "exec")
        with warnings.catch_warnings(), ttnn.sanitize() as findings:
            warnings.simplefilter("ignore", ttnn.SanitizerWarning)
            exec(code, {"ttnn": ttnn, **self.names})
        return {(first.line - 1, second.line - 1) for first, second in (found.sites for found in findings)}

    def check(self) -> None:
        legal = Interleavings(self.steps, queues=2, devices=DEVICES)
        reported = self.reported()
        assert bool(reported) == legal.has_two_outcomes()
        assert reported <= legal.unordered()


# -- tensors, and host tensors that a read fills ---------------------------------------------------

KINDS = [
    "write",
    "read",
    "blocking read",
    "look",
    "record",
    "wait",
    "hand over",
    "synchronize event",
    "finish",
]
transfers = st.tuples(st.sampled_from(KINDS), st.integers(0, 1), st.integers(0, 1), st.integers(0, 3))


def tensor_program(mesh: ttnn.MeshDevice, drawn: list[tuple[str, int, int, int]]) -> Program:
    tensors = [ttnn.zeros((1, 32), device=mesh) for _ in range(2)]
    copies = [ttnn.allocate_tensor_on_host(tensors[0].spec, mesh) for _ in range(2)]
    source = ttnn.from_torch(torch.ones(1, 32), dtype=ttnn.bfloat16)
    made = Program({"mesh": mesh, "tensors": tensors, "copies": copies, "source": source})
    for kind, queue, at, number in drawn:
        tensor, copy = f"tensors[{at}]", f"copies[{number // 3}]"
        memory = frozenset((tensor, device, 0) for device in range(DEVICES))
        on_host = frozenset({(copy, 0, 0)})
        if kind == "write":
            line = f"ttnn.copy_host_to_device_tensor(source, {tensor}, cq_id={queue})"
            made.add(Step(queue, writes=memory), line)
        elif kind in ("read", "blocking read"):
            is_blocking = kind == "blocking read"
            line = f"ttnn.copy_device_to_host_tensor({tensor}, {copy}, {is_blocking}, cq_id={queue})"
            made.add(Step(queue, reads=memory, writes=on_host), line)
            if is_blocking:
                made.add(Step(finishes=queue), "")
        elif kind == "look":
            made.add(Step(reads=on_host), f"ttnn.to_torch(ttnn.get_device_tensors({copy})[0])")
        elif kind == "finish":
            made.add(Step(finishes=queue), f"ttnn.synchronize_device(mesh, {queue})")
        elif kind == "record":
            made.record(queue, frozenset(range(DEVICES)))
        elif kind == "hand over":
            made.hand_over(queue, frozenset(range(DEVICES)))
        elif kind == "wait":
            made.wait(queue, number)
        elif made.recorded:
            event = number % made.recorded
            made.add(Step(awaits=event), f"ttnn.event_synchronize(event_{event})")
    return made


@settings(max_examples=40, deadline=None)
@given(st.lists(transfers, min_size=2, max_size=7))
@example([("read", 0, 0, 0), ("look", 0, 0, 0)])
@example([("read", 0, 0, 0), ("record", 0, 0, 0), ("synchronize event", 0, 0, 0), ("look", 0, 0, 0)])
def test_a_race_is_reported_exactly_when_two_orders_end_differently(mesh, drawn):
    tensor_program(mesh, drawn).check()


# -- pages of buffers on some devices --------------------------------------------------------------

SOME_DEVICES = [frozenset({0}), frozenset({1}), frozenset({0, 1})]
SOME_PAGES = [range(1), range(1, 2), range(2)]
shard_transfers = st.tuples(
    st.sampled_from(["write", "read", "write", "read", "record", "wait", "hand over", "finish"]),
    st.integers(0, 1),
    st.sampled_from(SOME_DEVICES),
    st.sampled_from(SOME_PAGES),
    st.integers(0, 3),
)


def buffer_program(mesh: ttnn.MeshDevice, drawn: list[tuple[str, int, frozenset[int], range, int]]) -> Program:
    buffer = MeshBuffer.create(ReplicatedBufferConfig(2 * PAGE), DeviceLocalBufferConfig(PAGE), mesh)
    mesh.queues[0].enqueue_write_shards(buffer, shards([0, 1], PAGES), True)  # or a read would find nothing there
    made = Program({"mesh": mesh, "buffer": buffer, "queues": mesh.queues, "shards": shards, "box": box})
    for kind, queue, devices, pages, number in drawn:
        cells = frozenset(("buffer", device, page) for device in devices for page in pages)
        chosen = f"shards({sorted(devices)}, {pages})"
        if kind == "write":
            line = f"queues[{queue}].enqueue_write_shards(buffer, {chosen}, False)"
            made.add(Step(queue, writes=cells), line)
        elif kind == "read":
            line = f"queues[{queue}].enqueue_read_shards({chosen}, buffer, False)"
            made.add(Step(queue, reads=cells), line)
        elif kind == "finish":
            made.add(Step(finishes=queue), f"queues[{queue}].finish()")
        elif kind == "record":
            made.record(queue, devices, f"box({sorted(devices)})")
        elif kind == "hand over":
            made.hand_over(queue, devices, f"box({sorted(devices)})")
        else:
            made.wait(queue, number)
    return made


def shards(devices: list[int], pages: range) -> list[ShardDataTransfer]:
    size = len(pages) * PAGE
    region = BufferRegion(pages.start * PAGE, size)
    places = (ttnn.MeshCoordinate(0, device) for device in devices)
    return [ShardDataTransfer(place).host_data(bytearray(size)).region(region) for place in places]


def box(devices: list[int]) -> ttnn.MeshCoordinateRange:
    return ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, devices[0]), ttnn.MeshCoordinate(0, devices[-1]))


BOTH, FIRST, PAGES = SOME_DEVICES[2], SOME_DEVICES[0], SOME_PAGES[2]


@settings(max_examples=40, deadline=None)
@given(st.lists(shard_transfers, min_size=2, max_size=6))
@example([("write", 0, BOTH, PAGES, 0), ("hand over", 0, FIRST, PAGES, 0), ("read", 1, FIRST, PAGES, 0)])
@example([("write", 0, BOTH, PAGES, 0), ("hand over", 0, FIRST, PAGES, 0), ("read", 1, BOTH, PAGES, 0)])
def test_devices_and_pages_that_do_not_meet_do_not_race(mesh, drawn):
    buffer_program(mesh, drawn).check()


# -- more queues than a chip has -------------------------------------------------------------------


class Engine:
    """Three queues and the host, driven as the sanitizer drives them."""

    def __init__(self, queues: int) -> None:
        self.host = Agent("the host")
        self.queues = [Agent(f"queue {q}", q) for q in range(queues)]
        self.events: dict[int, Clock] = {}
        self.memories: dict[str, History] = {}

    def run(self, steps: list[Step]) -> set[tuple[int, int]]:
        return {(old.step.name, at) for at, step in enumerate(steps) for old in self._run(at, step)}

    def _run(self, at: int, step: Step) -> list[Touch]:
        if step.queue is None:
            known = self.events[step.awaits] if step.awaits is not None else self.queues[step.finishes].clock
            self.host.learn(known)
            return []
        agent = self.queues[step.queue]
        agent.follow(self.host)
        if step.records is not None:
            self.events[step.records] = agent.clock.copy()
        if step.awaits is not None:
            agent.learn(self.events[step.awaits])
        if not step.cells:
            return []
        done = agent.step(at, None)
        touches = [Touch(done, cell in step.writes, EVERYWHERE, None) for cell in step.cells]
        pairs = zip(step.cells, touches, strict=True)
        return [
            old for cell, touch in pairs for old in self.memories.setdefault(cell[0], History()).add(touch, agent.clock)
        ]


@st.composite
def engine_steps(draw: st.DrawFn) -> list[Step]:
    steps: list[Step] = []
    recorded = 0
    for _ in range(draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["write", "read", "record", "wait", "await", "finish"]))
        queue, cell = draw(st.integers(0, 2)), frozenset({(draw(st.sampled_from("ab")), 0, 0)})
        if kind in ("write", "read"):
            steps.append(Step(queue, writes=cell) if kind == "write" else Step(queue, reads=cell))
        elif kind == "finish":
            steps.append(Step(finishes=queue))
        elif kind == "record":
            steps.append(Step(queue, records=recorded))
            recorded += 1
        elif recorded:
            event = draw(st.integers(0, recorded - 1))
            steps.append(Step(queue if kind == "wait" else None, awaits=event))
    return steps


@settings(max_examples=40, deadline=None)
@given(engine_steps())
def test_three_queues_obey_the_same_law(steps):
    legal = Interleavings(steps, queues=3, devices=1)
    reported = Engine(3).run(steps)
    assert bool(reported) == legal.has_two_outcomes()
    assert reported <= legal.unordered()


# -- the model itself --------------------------------------------------------------------------------


def test_the_model_knows_a_race_an_order_and_a_wait():
    there = frozenset({("a", 0, 0)})
    unordered = [Step(0, writes=there), Step(1, reads=there)]
    ordered = [Step(0, writes=there), Step(0, records=0), Step(1, awaits=0), Step(1, reads=there)]
    finished = [Step(0, writes=there), Step(finishes=0), Step(1, reads=there)]
    assert Interleavings(unordered, 2, 1).has_two_outcomes()
    assert Interleavings(unordered, 2, 1).unordered() == {(0, 1)}
    for program in (ordered, finished):
        assert not Interleavings(program, 2, 1).has_two_outcomes()
        assert Interleavings(program, 2, 1).unordered() == set()
