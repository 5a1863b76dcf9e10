"""Many transfers over one socket between two processes of a host, both of which are this one: the same as the first."""

from __future__ import annotations

import os

import pytest
import torch

import softmesh as ttnn
from softmesh.processes.context import SingleProcess
from softmesh.processes.shared_memory import SPAN, Segment
from softmesh.processes.waits import Group
from softmesh.sockets.mesh_socket import Lane, MeshSocket, _devices, _routes
from softmesh.sockets.shm_channel import SharedChannel, SharedPair
from softmesh.sockets.socket_config import SocketEndpoint
from softmesh.sockets.transfer_queue import TRANSFERS

send, receive = ttnn.experimental.send_async, ttnn.experimental.recv_async
SHAPES = [(32, 32), (64, 512)]  # copied, and taken as they lie


class Rank(SingleProcess):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.size, self.group = rank, 2, Group("pair", (0, 1))


class Ends:
    """A mesh of each process, and its end of a socket from the first to the second, device by device."""

    def __init__(self, shape: ttnn.MeshShape, fifo_size: int = 1 << 26) -> None:
        descriptor = os.memfd_create("test")
        os.ftruncate(descriptor, SPAN)
        memories = [SharedPair(Rank(rank), Segment(descriptor, None)) for rank in range(2)]
        os.close(descriptor)
        self.meshes = [ttnn.open_mesh_device(shape) for _ in range(2)]
        core = ttnn.CoreCoord(0, 0)
        each = [ttnn.MeshCoreCoord(at, core) for at in ttnn.MeshCoordinateRange(shape)]
        config = ttnn.SocketConfig(
            [ttnn.SocketConnection(one, one) for one in each],
            ttnn.SocketMemoryConfig(ttnn.BufferType.DRAM, fifo_size),
        )
        self.sender, self.receiver = (
            self._end(rank, config, endpoint, SharedChannel(Rank(rank), 0, fifo_size, memories[rank]))
            for rank, endpoint in enumerate(SocketEndpoint)
        )

    def _end(
        self, rank: int, config: ttnn.SocketConfig, endpoint: SocketEndpoint, channel: SharedChannel
    ) -> MeshSocket:
        end, mesh, pairs = MeshSocket.__new__(MeshSocket), self.meshes[rank], config._connections
        lane = Lane(channel, _routes(mesh, pairs, endpoint), _devices(mesh, pairs, endpoint))
        end._fill(mesh, config, endpoint, [lane], {})
        return end

    def tensor(self, values: torch.Tensor, end: int = 0, mapper: object = None) -> ttnn.Tensor:
        made = ttnn.from_torch(
            values,
            dtype=ttnn.float32,
            layout=ttnn.TILE_LAYOUT,
            device=self.meshes[end],
            mesh_mapper=mapper,
        )
        assert made is not None
        return made

    def room(self, *shape: int) -> ttnn.Tensor:
        return self.tensor(torch.zeros(shape), end=1)


@pytest.fixture
def ends(idle_machine: None) -> Ends:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    return Ends(ttnn.MeshShape(1, 1))


def values(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", SHAPES)
def test_each_message_has_its_own_values_however_often_the_tensors_are_used(ends: Ends, shape: tuple[int, ...]) -> None:
    output = ends.room(*shape)
    for seed in range(12):
        send(ends.tensor(values(seed, *shape)), ends.sender)
        receive(output, ends.receiver)
        assert torch.equal(ttnn.to_torch(output), values(seed, *shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_receive_that_comes_first_waits_for_its_message(ends: Ends, shape: tuple[int, ...]) -> None:
    output = ends.room(*shape)
    for seed in range(6):
        receive(output, ends.receiver)
        send(ends.tensor(values(seed, *shape)), ends.sender)
        ttnn.synchronize_device(ends.meshes[1])
        assert torch.equal(ttnn.to_torch(output), values(seed, *shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_received_stays_when_more_comes_and_when_the_sender_writes(ends: Ends, shape: tuple[int, ...]) -> None:
    kept = []
    sent = ends.tensor(torch.zeros(shape))
    for seed in range(12):
        ttnn.copy(ends.tensor(values(seed, *shape)), sent)
        send(sent, ends.sender)
        kept.append(ends.room(*shape))
        receive(kept[-1], ends.receiver)
    ttnn.copy(ends.tensor(torch.zeros(shape)), sent)
    assert all(torch.equal(ttnn.to_torch(one), values(i, *shape)) for i, one in enumerate(kept))


def test_messages_of_several_kinds_may_follow_each_other(ends: Ends) -> None:
    for seed in range(4):
        for shape in SHAPES:
            send(ends.tensor(values(seed, *shape)), ends.sender)
    for seed in range(4):
        for shape in SHAPES:
            output = ends.room(*shape)
            receive(output, ends.receiver)
            assert torch.equal(ttnn.to_torch(output), values(seed, *shape))


def test_a_tensor_that_lies_in_another_way_arrives_as_it_lies(idle_machine: None) -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    ends = Ends(ttnn.MeshShape(1, 2))
    output = ends.room(32, 32)
    for seed in range(4):
        split = seed % 2 == 1
        mapper = ttnn.ShardTensorToMesh(ends.meshes[0], dim=0) if split else None
        whole = values(seed, 64 if split else 32, 32)
        send(ends.tensor(whole, mapper=mapper), ends.sender)
        receive(output, ends.receiver)
        pieces = [ttnn.to_torch(piece) for piece in ttnn.get_device_tensors(output)]
        assert torch.equal(torch.cat(pieces), whole if split else torch.cat([whole, whole]))


def test_a_full_fifo_holds_back_the_messages_that_follow(idle_machine: None) -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    ends = Ends(ttnn.MeshShape(1, 1), fifo_size=10_000)  # a message is 4096 bytes
    sent, output = ends.tensor(values(0, 32, 32)), ends.room(32, 32)
    for _ in range(2):
        send(sent, ends.sender)
    assert TRANSFERS.is_idle
    send(sent, ends.sender)
    assert not TRANSFERS.is_idle
    for _ in range(3):
        receive(output, ends.receiver)
        ttnn.synchronize_device(ends.meshes[1])
    ttnn.synchronize_device(ends.meshes[0])
    assert TRANSFERS.is_idle


def test_mistakes_are_refused_as_the_first_time(ends: Ends) -> None:
    sent, output = ends.tensor(values(0, 32, 32)), ends.room(32, 32)
    for _ in range(3):
        send(sent, ends.sender)
        receive(output, ends.receiver)
    for op, tensor, socket in ((send, output, ends.sender), (receive, sent, ends.receiver)):
        with pytest.raises(ttnn.MeshError, match="they must be on one mesh"):
            op(tensor, socket)
    with pytest.raises(ttnn.MeshError, match="requires a SENDER socket"):
        send(output, ends.receiver)
    send(sent, ends.sender)
    with pytest.raises(ttnn.MeshError, match="another spec than the one that was sent"):
        receive(ends.room(64, 32), ends.receiver)
    receive(output, ends.receiver)
    ttnn.deallocate(sent)
    with pytest.raises(ttnn.MeshError, match="Tensor is not allocated"):
        send(sent, ends.sender)
    ends.meshes[1].close()
    with pytest.raises(ttnn.MeshError, match="is closed"):
        receive(output, ends.receiver)


class Names:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_command(self, command: ttnn.Command) -> None:
        self.seen.append(command.name)


def test_observers_see_every_transfer(ends: Ends) -> None:
    sent, output = ends.tensor(values(0, 32, 32)), ends.room(32, 32)
    for _ in range(3):
        send(sent, ends.sender)
        receive(output, ends.receiver)
    with ttnn.observe(Names()) as names:
        for _ in range(2):
            send(sent, ends.sender)
            receive(output, ends.receiver)
    assert names.seen == ["experimental.send_async", "experimental.recv_async"] * 2


def test_every_transfer_counts_among_the_programs_of_a_mesh(ends: Ends) -> None:
    sent, output = ends.tensor(values(0, 32, 32)), ends.room(32, 32)
    for _ in range(2):
        send(sent, ends.sender)
        receive(output, ends.receiver)
    ends.meshes[0].disable_and_clear_program_cache()
    ends.meshes[0].enable_program_cache()
    send(sent, ends.sender)
    assert ends.meshes[0].num_program_cache_entries() == 1
