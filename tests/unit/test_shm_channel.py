"""Both ends of a socket between two processes of one host, in one process: messages in memory that they share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh.processes.context import SingleProcess
from softmesh.processes.shared_memory import SPAN, Segment
from softmesh.processes.waits import Group
from softmesh.sockets.shm_channel import ENTRIES, SharedChannel, SharedPair
from softmesh.sockets.tensor_message import Description, ReceiveTarget, Route, Routes, pack_message

ROUTES = Routes((Route(ttnn.MeshCoordinate(0, 0), 1),), straight=True)
SMALL, LARGE = (32, 64), (512, 256)  # 8 KiB and 512 KiB


class Rank(SingleProcess):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.size, self.group = rank, 2, Group("pair", (0, 1))


class Ends:
    """A channel from one mesh of one device to another."""

    def __init__(self, memories: list[SharedPair], fifo_size: int = 1 << 30) -> None:
        ranks = [Rank(0), Rank(1)]
        self.sender, self.receiver = (
            SharedChannel(rank, 0, fifo_size, memory) for rank, memory in zip(ranks, memories, strict=True)
        )
        self.meshes = [ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) for _ in ranks]

    def tensor(self, values: torch.Tensor, end: int = 0) -> ttnn.Tensor:
        return ttnn.from_torch(values, dtype=ttnn.float32, device=self.meshes[end])

    def send(self, values: torch.Tensor) -> Iterator[None]:
        return self.sender.send(pack_message(self.tensor(values), ROUTES, "send_async"))

    def receive(self, output: ttnn.Tensor) -> None:
        assert list(self.receiver.next()) == []
        description = self.receiver.announced
        assert isinstance(description, Description)
        target = ReceiveTarget(output.storage, output, description, ROUTES)
        assert list(self.receiver.take(target)) == []
        target.finish()

    def received(self, shape: tuple[int, ...]) -> torch.Tensor:
        output = self.tensor(torch.zeros(shape), end=1)
        self.receive(output)
        return ttnn.to_torch(output)


@pytest.fixture
def memories() -> list[SharedPair]:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, SPAN)
    made = [SharedPair(Rank(rank), Segment(descriptor, None)) for rank in (0, 1)]
    os.close(descriptor)
    return made


@pytest.fixture
def ends(idle_machine: None, memories: list[SharedPair]) -> Ends:
    return Ends(memories)


def numbered(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_messages_come_in_order_and_as_they_were_sent(ends: Ends, shape: tuple[int, ...]) -> None:
    for seed in range(5):
        assert list(ends.send(numbered(shape, seed))) == []
    for seed in range(5):
        assert torch.equal(ends.received(shape), numbered(shape, seed))
    assert next(ends.receiver.next(), "waits") is None


def test_more_messages_than_the_ring_holds_wait_for_their_turn(ends: Ends) -> None:
    sends = [ends.send(numbered(SMALL, seed)) for seed in range(ENTRIES + 3)]
    waiting = [steps for steps in sends if list_ends(steps) is False]
    assert len(waiting) == 3
    for seed in range(ENTRIES + 3):
        assert torch.equal(ends.received(SMALL), numbered(SMALL, seed))
        for steps in waiting:
            next(steps, None)


def list_ends(steps: Iterator[None]) -> bool:
    return next(steps, "over") == "over"


def test_a_send_ends_when_what_is_not_received_fits_into_the_fifo(
    idle_machine: None, memories: list[SharedPair]
) -> None:
    ends = Ends(memories, fifo_size=10_000)  # a message is 8192 bytes
    assert list(ends.send(numbered(SMALL, 0))) == []
    second = ends.send(numbered(SMALL, 1))
    next(second)
    next(second)
    ends.received(SMALL)
    assert list(second) == []
    message = pack_message(ends.tensor(numbered(SMALL, 2)), ROUTES, "send_async")
    assert not ends.sender.send_now(message)
    ends.received(SMALL)
    assert ends.sender.send_now(message)
    assert torch.equal(ends.received(SMALL), numbered(SMALL, 2))


def test_a_tensor_that_was_received_stays_while_others_come(ends: Ends) -> None:
    kept = []
    for seed in range(8):
        list(ends.send(numbered(LARGE, seed)))
        kept.append(ends.tensor(torch.zeros(LARGE), end=1))
        ends.receive(kept[-1])
    assert all(torch.equal(ttnn.to_torch(tensor), numbered(LARGE, i)) for i, tensor in enumerate(kept))


def test_memory_is_used_again_once_nothing_reads_it(ends: Ends) -> None:
    output = ends.tensor(torch.zeros(LARGE), end=1)
    places = set()
    for seed in range(10):
        list(ends.send(numbered(LARGE, seed)))
        ends.receive(output)
        places.add(output.view_data().data_ptr())
    assert len(places) <= 4  # one of them also has room for the description


def test_writing_to_what_was_received_reaches_nobody_else(ends: Ends) -> None:
    sent = ends.tensor(numbered(LARGE, 1))
    list(ends.sender.send(pack_message(sent, ROUTES, "send_async")))
    output = ends.tensor(torch.zeros(LARGE), end=1)
    ends.receive(output)
    there = output.view_data()
    output.storage.writable().fill_(5.0)
    assert torch.equal(there.reshape(LARGE), numbered(LARGE, 1))
    assert torch.equal(ttnn.to_torch(sent), numbered(LARGE, 1))
    assert bool((ttnn.to_torch(output) == 5.0).all())


def test_a_sender_that_overwrites_its_tensor_does_not_change_the_message(ends: Ends) -> None:
    sent = ends.tensor(numbered(LARGE, 1))
    list(ends.sender.send(pack_message(sent, ROUTES, "send_async")))
    sent.storage.writable().zero_()
    assert torch.equal(ends.received(LARGE), numbered(LARGE, 1))
