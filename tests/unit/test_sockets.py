"""Sockets between meshes of one process."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.hardware import SubDeviceId
from softmesh.hardware.fabric_config import MeshId
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.placement.process_blocks import Block
from softmesh.processes.context import Pending, SingleProcess, byte_view
from softmesh.processes.rank_grid import MESH_IDS
from softmesh.processes.waits import Group
from softmesh.sockets.channels import RankChannel
from softmesh.sockets.handshake import Side, check_agreement, handshake_message, sides_of
from softmesh.sockets.mesh_socket import MeshSocket, create_socket_pair
from softmesh.sockets.send_recv import (
    finish_transfers,
    recv_async,
    recv_direct_async,
    send_async,
    send_direct_async,
)
from softmesh.sockets.socket_checks import check_fabric
from softmesh.sockets.socket_config import (
    MeshCoreCoord,
    SocketConfig,
    SocketConnection,
    SocketEndpoint,
    SocketMemoryConfig,
)
from softmesh.sockets.tensor_message import (
    Description,
    Route,
    Routes,
    SourceLayout,
    TensorMessage,
    pack_message,
)

Coordinates = tuple[int, ...]
Pairs = Sequence[tuple[Coordinates, Coordinates]]


@pytest.fixture(autouse=True)
def fabric(idle_machine: None) -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)


def opened(*shape: int) -> ttnn.MeshDevice:
    return ttnn.open_mesh_device(ttnn.MeshShape(shape))


def core(coord: Coordinates, x: int = 0, y: int = 0) -> MeshCoreCoord:
    return MeshCoreCoord(ttnn.MeshCoordinate(coord), ttnn.CoreCoord(x, y))


def joined(pairs: Pairs) -> list[SocketConnection]:
    """Connections; the n-th between the same devices uses core (n, 0)."""
    counts: dict[object, int] = {}
    made = []
    for sender, receiver in pairs:
        n = counts.setdefault(receiver, 0)
        counts[receiver] += 1
        made.append(SocketConnection(core(sender, n), core(receiver, n)))
    return made


def config(pairs: Pairs, fifo: int = 1 << 16, memory: ttnn.BufferType = ttnn.BufferType.L1) -> SocketConfig:
    return SocketConfig(joined(pairs), SocketMemoryConfig(memory, fifo))


def straight(mesh: ttnn.MeshDevice) -> Pairs:
    return [(tuple(coord), tuple(coord)) for coord in ttnn.MeshCoordinateRange(mesh.shape)]


def sharded(mesh: ttnn.MeshDevice, seed: int = 0, dtype: ttnn.DataType = ttnn.float32) -> ttnn.Tensor:
    """Every device holds something else."""
    torch.manual_seed(seed)
    values = torch.randn(mesh.get_num_devices(), 1, 32, 64)
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    return ttnn.from_torch(values, device=mesh, dtype=dtype, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def shards(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


def empty(like: ttnn.Tensor, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.allocate_tensor_on_device(like.spec, mesh)


# -- the values ------------------------------------------------------------------------------------


def test_a_core_on_a_mesh_is_a_value() -> None:
    first, second = core((0, 1), 2, 3), core((0, 1), 2, 3)
    assert first == second
    assert len({first, second}) == 1
    assert repr(first) == "MeshCoreCoord(device=MeshCoordinate([0, 1]), core=(2,3))"
    first.core_coord = ttnn.CoreCoord(5, 5)
    assert first != second
    assert first.core_coord == ttnn.CoreCoord(5, 5)


def test_a_config_keeps_its_own_copy_of_what_it_was_made_of() -> None:
    a, b = opened(1, 1), opened(1, 1)
    connection = SocketConnection(core((0, 0)), core((0, 0)))
    memory = SocketMemoryConfig(ttnn.BufferType.L1, 1024)
    made = SocketConfig([connection], memory)
    connection.sender_core.device_coord = ttnn.MeshCoordinate(7, 7)
    memory.fifo_size = 0
    sender, _ = create_socket_pair(a, b, made)
    assert sender.get_active_cores() == [core((0, 0))]
    assert not any(name for name in vars(made) if not name.startswith("_"))


def test_both_mesh_ids_or_neither_are_given() -> None:
    memory = SocketMemoryConfig(ttnn.BufferType.L1, 1024)
    with pytest.raises(MeshError, match="SocketConfig must specify both sender and receiver mesh IDs or neither"):
        SocketConfig(joined([((0, 0), (0, 0))]), memory, sender_mesh_id=0)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="but not both"):
        SocketConfig([], memory, 0, 1, sender_mesh_id=0, receiver_mesh_id=1)  # type: ignore[call-overload]
    assert SocketConfig([], memory, MeshId(2), MeshId(3))._mesh_ids == (2, 3)  # type: ignore[call-overload]


@pytest.mark.parametrize("size", [-1, 1.5, "4096"])
def test_a_fifo_has_a_whole_number_of_bytes(size: object) -> None:
    with pytest.raises(TypeError, match="fifo_size"):
        SocketMemoryConfig(ttnn.BufferType.L1, size)  # type: ignore[arg-type]


# -- the two ends ----------------------------------------------------------------------------------


def test_each_end_knows_its_cores_its_mesh_and_its_side() -> None:
    a, b = opened(1, 2), opened(2, 1)
    sender, receiver = create_socket_pair(a, b, config([((0, 0), (1, 0)), ((0, 1), (0, 0))]))
    assert sender.get_active_cores() == [core((0, 0)), core((0, 1))]
    assert receiver.get_active_cores() == [core((1, 0)), core((0, 0))]
    assert (sender.get_mesh_device(), receiver.get_mesh_device()) == (a, b)
    assert sender.get_socket_endpoint_type() is SocketEndpoint.SENDER
    assert receiver.get_socket_endpoint_type() is SocketEndpoint.RECEIVER
    assert [c.receiver_core for c in sender.get_connection_config()] == [core((1, 0)), core((0, 0))]
    assert sender.get_config_buffer_address() != receiver.get_config_buffer_address()
    node = receiver.get_fabric_node_id(SocketEndpoint.SENDER, ttnn.MeshCoordinate(0, 1))
    assert node == a.get_fabric_node_id(ttnn.MeshCoordinate(0, 1))
    with pytest.raises(MeshError, match="is no receiver of this socket"):
        sender.get_fabric_node_id(SocketEndpoint.RECEIVER, ttnn.MeshCoordinate(3, 0))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "Socket connection config cannot be empty."),
        (
            [((0, 9), (0, 0))],
            r"Coordinate MeshCoordinate\(\[0, 9\]\) not found in mesh MeshShape\(\[1, 4\]\)",
        ),
        (
            [((0, 0), (2, 0))],
            r"Coordinate MeshCoordinate\(\[2, 0\]\) not found in mesh MeshShape\(\[1, 4\]\)",
        ),
    ],
)
def test_connections_that_cannot_be_are_refused(pairs: Pairs, message: str) -> None:
    a, b = opened(1, 4), opened(1, 4)
    with pytest.raises(MeshError, match=message):
        create_socket_pair(a, b, config(pairs))


def test_a_receiver_core_has_one_sender_and_a_sender_core_may_have_many_receivers() -> None:
    a, b = opened(1, 2), opened(1, 2)
    memory = SocketMemoryConfig(ttnn.BufferType.L1, 1024)
    twice = [SocketConnection(core((0, n)), core((0, 0))) for n in range(2)]
    with pytest.raises(MeshError, match="Cannot reuse receiver cores in a single socket"):
        create_socket_pair(a, b, SocketConfig(twice, memory))
    spread = [SocketConnection(core((0, 0)), core((0, n))) for n in range(2)]
    create_socket_pair(a, b, SocketConfig(spread, memory))


def test_cores_are_worker_cores_of_their_chip_and_of_the_sub_device() -> None:
    a, b = opened(1, 1), opened(1, 1)
    far = [SocketConnection(core((0, 0), 40, 0), core((0, 0)))]
    with pytest.raises(MeshError, match="No core coordinate found at location"):
        create_socket_pair(a, b, SocketConfig(far, SocketMemoryConfig(ttnn.BufferType.L1, 1024)))
    memory = SocketMemoryConfig(ttnn.BufferType.L1, 1024, sender_sub_device=SubDeviceId(3))
    with pytest.raises(MeshError, match="Socket cores must be contained in the specified sub device"):
        create_socket_pair(a, b, SocketConfig(joined([((0, 0), (0, 0))]), memory))
    whole = SocketMemoryConfig(ttnn.BufferType.L1, 1024, SubDeviceId(0), SubDeviceId(0))
    create_socket_pair(a, b, SocketConfig(joined([((0, 0), (0, 0))]), whole))


def test_several_devices_need_a_fabric_and_one_does_not() -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    a, b = opened(1, 2), opened(1, 1)
    with pytest.raises(MeshError, match="Can only create multi-device sockets with fabric enabled"):
        create_socket_pair(a, b, config([((0, 0), (0, 0))]))
    alone = SocketConfig(
        [SocketConnection(core((0, 0), 0), core((0, 0), 1))], SocketMemoryConfig(ttnn.BufferType.L1, 1 << 20)
    )
    sender, receiver = create_socket_pair(a, a, alone)
    sent = sharded(a)
    send_async(sent, sender)
    output = empty(sent, a)
    recv_async(output, receiver)
    assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(output)[0]), shards(sent)[0])


def test_a_one_dimensional_fabric_stays_within_a_mesh() -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = opened(1, 4)
    halves = mesh.create_submeshes(ttnn.MeshShape(1, 2))
    create_socket_pair(halves[0], halves[1], config(straight(halves[0])))
    with pytest.raises(MeshError, match="1D Fabric requires sender and receiver to be on the same mesh"):
        check_fabric({0, 1}, same_mesh=False)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ((None, None), "Invalid socket sender rank None or receiver rank None specified."),
        ((0, 1), "Invalid socket sender rank 0 or receiver rank 1 specified."),
        ((0, None), "Invalid socket sender rank 0 or receiver rank None specified."),
        ((0, 0), "not within the same rank"),
    ],
)
def test_a_socket_to_another_process_needs_one(ranks: tuple[int | None, int | None], message: str) -> None:
    mesh = opened(1, 1)
    made = SocketConfig(joined([((0, 0), (0, 0))]), SocketMemoryConfig(ttnn.BufferType.L1, 1024), *ranks)
    with pytest.raises(MeshError, match=message):
        MeshSocket(mesh, made)


def test_a_pair_is_of_this_process() -> None:
    mesh = opened(1, 1)
    memory = SocketMemoryConfig(ttnn.BufferType.L1, 1024)
    with pytest.raises(MeshError, match=r"names ranks \[0, 1\]"):
        create_socket_pair(mesh, mesh, SocketConfig(joined([((0, 0), (0, 0))]), memory, 0, 1))


def test_arguments_of_the_wrong_kind_are_named() -> None:
    mesh = opened(1, 1)
    with pytest.raises(TypeError, match="socket_config"):
        create_socket_pair(mesh, mesh, "config")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="device_coord"):
        MeshCoreCoord((0, 0), ttnn.CoreCoord(0, 0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mesh_socket"):
        send_async(sharded(mesh), None)


# -- tensors ---------------------------------------------------------------------------------------


def test_each_connection_carries_the_shard_of_its_sender() -> None:
    a, b = opened(2, 2), opened(2, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    sent, output = sharded(a), empty(sharded(a), b)
    assert send_async(sent, sender) == []
    assert recv_async(output, receiver)[0] is output
    assert all(map(torch.equal, shards(output), shards(sent)))
    assert ttnn.placements(output) == ttnn.placements(sent)


def test_the_connections_say_which_shard_goes_where_on_meshes_of_any_shape() -> None:
    a, b = opened(1, 3), opened(2, 2)
    sender, receiver = create_socket_pair(a, b, config([((0, 2), (0, 1)), ((0, 0), (1, 1))]))
    sent, output = sharded(a), sharded(b, seed=1)
    before = shards(output)
    send_async(sent, sender)
    recv_async(output, receiver)
    after = shards(output)
    assert torch.equal(after[1], shards(sent)[2])
    assert torch.equal(after[3], shards(sent)[0])
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[2], before[2])


def test_one_shard_can_go_to_all_devices_and_is_stored_once_there() -> None:
    a, b = opened(1, 2), opened(2, 2)
    pairs = [((0, 1), tuple(coord)) for coord in ttnn.MeshCoordinateRange(b.shape)]
    sender, receiver = create_socket_pair(a, b, config(pairs))
    sent, output = sharded(a), empty(sharded(a), b)
    send_async(sent, sender)
    recv_async(output, receiver)
    assert all(torch.equal(shard, shards(sent)[1]) for shard in shards(output))
    assert output.storage.data is not None
    assert output.storage.data.shape[:2] == (1, 1)


def test_several_connections_between_two_devices_share_one_shard() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config([pair for pair in straight(a) for _ in range(3)]))
    sent, output = sharded(a), empty(sharded(a), b)
    send_async(sent, sender)
    recv_async(output, receiver)
    assert all(map(torch.equal, shards(output), shards(sent)))


def test_a_partial_sum_stays_one_on_the_other_mesh() -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    a, b = opened(1, 2), opened(1, 2)
    x = ttnn.from_torch(
        torch.randn(1, 1, 32, 64), device=a, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(a, 3)
    )
    w = ttnn.from_torch(
        torch.randn(1, 1, 64, 32), device=a, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(a, 2)
    )
    partial = ttnn.matmul(x, w)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    output = empty(partial, b)
    send_async(partial, sender)
    recv_async(output, receiver)
    assert ttnn.placements(output) == ttnn.placements(partial)
    whole = ttnn.all_reduce(output, cluster_axis=1)
    assert torch.equal(shards(whole)[0], shards(ttnn.all_reduce(partial, cluster_axis=1))[0])


def test_messages_come_in_the_order_they_were_sent_however_often_the_socket_is_used() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    sent = [sharded(a, seed) for seed in range(5)]
    output = empty(sent[0], b)
    for _ in range(20):
        for tensor in sent:
            send_async(tensor, sender)
        for tensor in sent:
            recv_async(output, receiver)
            assert all(map(torch.equal, shards(output), shards(tensor)))


def test_what_was_sent_does_not_change_with_the_tensor() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    sent = sharded(a)
    values = [shard.clone() for shard in shards(sent)]
    send_async(sent, sender)
    ttnn.copy_host_to_device_tensor(ttnn.from_device(sharded(a, seed=1)), sent)
    output = empty(sent, b)
    recv_async(output, receiver)
    assert all(map(torch.equal, shards(output), values))
    ttnn.copy_host_to_device_tensor(ttnn.from_device(sharded(b, seed=2)), output)
    assert torch.equal(shards(sent)[0], shards(sharded(a, seed=1))[0])


def test_a_received_tensor_is_its_own_under_later_receives() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    first, second, output = sharded(a, 1), sharded(a, 2), empty(sharded(a), b)
    send_async(first, sender)
    recv_async(output, receiver)
    doubled = ttnn.add(output, output)
    kept = ttnn.from_device(output)
    send_async(second, sender)
    recv_async(output, receiver)
    assert torch.equal(shards(kept)[1], shards(first)[1])
    assert torch.equal(shards(doubled)[1], shards(first)[1] * 2)
    assert torch.equal(shards(output)[1], shards(second)[1])


def test_sockets_between_submeshes_use_their_coordinates() -> None:
    mesh = opened(2, 2)
    top, bottom = mesh.create_submeshes(ttnn.MeshShape(1, 2))
    sender, receiver = create_socket_pair(top, bottom, config(straight(top)))
    sent, output = sharded(top), empty(sharded(top), bottom)
    send_async(sent, sender)
    recv_async(output, receiver)
    assert all(map(torch.equal, shards(output), shards(sent)))


def test_several_sockets_do_not_mix() -> None:
    a, b = opened(1, 2), opened(1, 2)
    there = [create_socket_pair(a, b, config(straight(a))) for _ in range(2)]
    back = create_socket_pair(b, a, config(straight(a)))
    x, y, z = sharded(a, 1), sharded(a, 2), sharded(b, 3)
    send_async(x, there[0][0])
    send_async(y, there[1][0])
    send_async(z, back[0])
    got = [empty(x, b), empty(x, b), empty(x, a)]
    recv_async(got[1], there[1][1])
    recv_async(got[0], there[0][1])
    recv_async(got[2], back[1])
    for tensor, wanted in zip(got, (x, y, z), strict=True):
        assert all(map(torch.equal, shards(tensor), shards(wanted)))


def test_a_shard_of_a_tensor_can_be_received_into() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config([((0, 0), (0, 1))]))
    sent, output = sharded(a), sharded(b, 1)
    before = shards(output)
    send_async(sent, sender)
    recv_async(ttnn.get_device_tensors(output)[1], receiver)
    assert torch.equal(shards(output)[1], shards(sent)[0])
    assert torch.equal(shards(output)[0], before[0])


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_connections_deliver_the_shard_of_their_sender(data: st.DataObject) -> None:
    rows, columns, count = (data.draw(st.integers(1, 3)) for _ in range(3))
    a, b = opened(1, count), opened(rows, columns)
    targets = [tuple(coord) for coord in ttnn.MeshCoordinateRange(b.shape)]
    chosen = data.draw(st.lists(st.sampled_from(targets), min_size=1, unique=True))
    pairs = [((0, data.draw(st.integers(0, count - 1))), target) for target in chosen]
    sender, receiver = create_socket_pair(a, b, config(pairs))
    replicate = data.draw(st.booleans())
    sent, output = sharded(a), sharded(b, 1)
    if replicate:
        output = ttnn.zeros(tuple(sent.shape), ttnn.float32, ttnn.TILE_LAYOUT, b)
    expected, came_from = shards(output), shards(sent)
    for source, target in pairs:
        expected[targets.index(target)] = came_from[source[1]]
    send_async(sent, sender)
    recv_async(output, receiver)
    assert all(map(torch.equal, shards(output), expected))
    a.close()
    b.close()


# -- order and flow --------------------------------------------------------------------------------


def test_a_receive_may_come_before_the_send_on_other_devices() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    sent, output = sharded(a), empty(sharded(a), b)
    recv_async(output, receiver)
    send_async(sent, sender)
    assert all(map(torch.equal, shards(output), shards(sent)))


def test_reading_what_was_never_sent_is_an_error_each_time() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    output = empty(sharded(a), b)
    recv_async(output, receiver)
    reads: list[Callable[[], object]] = [
        lambda: shards(output),
        lambda: ttnn.add(output, output),
        lambda: finish_transfers(b),
    ]
    for read in reads:
        with pytest.raises(MeshError, match="nothing was sent on this socket"):
            read()
    send_async(sharded(a), sender)
    finish_transfers(b)
    assert torch.equal(shards(output)[1], shards(sharded(a))[1])
    recv_async(output, receiver)
    with pytest.raises(MeshError, match=r"message 2 of this socket was never sent: 1 sent, 1 received.*asked for at"):
        shards(output)


def test_a_device_that_waits_for_its_own_message_is_an_error_at_once() -> None:
    mesh = opened(1, 2)
    sender, receiver = create_socket_pair(mesh, mesh, config([((0, 0), (0, 1)), ((0, 1), (0, 0))]))
    output = empty(sharded(mesh), mesh)
    with pytest.raises(MeshError, match="nothing was sent on this socket"):
        recv_async(output, receiver)
    send_async(sharded(mesh), sender)
    recv_async(output, receiver)
    assert torch.equal(shards(output)[1], shards(sharded(mesh))[0])


def test_a_send_larger_than_the_fifo_needs_its_receive() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a), fifo=4096))
    sent, output = sharded(a), empty(sharded(a), b)
    send_async(sent, sender)
    with pytest.raises(MeshError, match=r"8192 bytes for each connection .* the FIFO holds 4096"):
        finish_transfers(a)
    recv_async(output, receiver)
    finish_transfers(a)
    assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(output)[0]), shards(sent)[0])


def test_connections_share_the_bytes_that_the_fifo_must_hold() -> None:
    a, b = opened(1, 1), opened(1, 1)
    sender, _ = create_socket_pair(a, b, config([((0, 0), (0, 0))] * 2, fifo=4096))
    send_async(sharded(a), sender)
    finish_transfers(a)
    send_async(sharded(a), sender)
    with pytest.raises(MeshError, match="never ends"):
        finish_transfers(a)
    with pytest.warns(ttnn.SoftmeshWarning, match="and never received"):
        a.close()


def test_a_fifo_that_a_chips_queue_would_never_empty_is_warned_of() -> None:
    mesh = opened(1, 2)
    sender, receiver = create_socket_pair(mesh, mesh, config([((0, 0), (0, 1)), ((0, 1), (0, 0))], fifo=4096))
    send_async(sharded(mesh), sender)
    output = empty(sharded(mesh), mesh)
    with pytest.warns(SoftmeshWarning, match="would not come to the receive"):
        recv_async(output, receiver)
    assert torch.equal(shards(output)[1], shards(sharded(mesh))[0])


def test_what_fits_into_the_fifo_is_no_reason_to_warn() -> None:
    mesh = opened(1, 2)
    sender, receiver = create_socket_pair(mesh, mesh, config([((0, 0), (0, 1)), ((0, 1), (0, 0))]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        send_async(sharded(mesh), sender)
        recv_async(empty(sharded(mesh), mesh), receiver)
        finish_transfers(mesh)


def test_an_empty_fifo_is_accepted_until_something_should_go_through_it() -> None:
    a, b = opened(1, 1), opened(1, 1)
    sender, _ = create_socket_pair(a, b, config([((0, 0), (0, 0))], fifo=0, memory=ttnn.BufferType.DRAM))
    with pytest.raises(MeshError, match="holds 0 bytes"):
        send_async(sharded(a), sender)


def test_a_receive_on_a_closed_mesh_holds_up_nobody() -> None:
    a, b = opened(1, 2), opened(1, 2)
    _, receiver = create_socket_pair(a, b, config(straight(a)))
    recv_async(empty(sharded(a), b), receiver)
    b.close()
    c = opened(1, 2)
    assert c.get_device_ids() == b.get_device_ids()
    sender, receiver = create_socket_pair(a, c, config(straight(a)))
    output = empty(sharded(a), c)
    send_async(sharded(a), sender)
    recv_async(output, receiver)
    assert torch.equal(shards(output)[0], shards(sharded(a))[0])


# -- what does not fit -----------------------------------------------------------------------------


WRONG_SPECS = [
    ({"shape": (1, 1, 32, 32)}, r"shape is \[1, 1, 32, 32\], sent was \[1, 1, 32, 64\]"),
    ({"dtype": ttnn.bfloat16}, "dtype is BFLOAT16, sent was FLOAT32"),
    ({"layout": ttnn.ROW_MAJOR_LAYOUT}, "layout is ROW_MAJOR, sent was TILE"),
    ({"memory_config": ttnn.L1_MEMORY_CONFIG}, r"memory config is .*L1.*, sent was .*DRAM"),
]


@pytest.mark.parametrize(("different", "message"), WRONG_SPECS, ids=[next(iter(w)) for w, _ in WRONG_SPECS])
def test_a_wrong_spec_is_named_and_the_message_stays(different: dict[str, object], message: str) -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    sent = sharded(a)
    send_async(sent, sender)
    right = {"shape": (1, 1, 32, 64), "dtype": ttnn.float32, "layout": ttnn.TILE_LAYOUT, "device": b}
    wrong = ttnn.zeros(**{**right, **different})
    with pytest.raises(MeshError, match=f"{message}.*Allocate it with ttnn.allocate_tensor_on_device"):
        recv_async(wrong, receiver)
    assert all(not shard.any() for shard in shards(wrong))
    output = empty(sent, b)
    recv_async(output, receiver)
    assert all(map(torch.equal, shards(output), shards(sent)))


def test_each_op_wants_its_end_of_the_socket() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    with pytest.raises(MeshError, match="send_async op requires a SENDER socket"):
        send_async(sharded(b), receiver)
    with pytest.raises(MeshError, match="recv_async op requires a RECEIVER socket"):
        recv_async(sharded(a), sender)
    with pytest.raises(MeshError, match="recv_direct_async op requires a RECEIVER socket"):
        recv_direct_async(sharded(a), sender)


def test_the_direct_ops_need_l1_and_move_the_same() -> None:
    a, b = opened(1, 2), opened(1, 2)
    in_dram = create_socket_pair(a, b, config(straight(a), memory=ttnn.BufferType.DRAM))
    with pytest.raises(MeshError, match="send_direct_async requires an L1 socket storage type"):
        send_direct_async(sharded(a), in_dram[0])
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    sent, output = sharded(a), empty(sharded(a), b)
    send_direct_async(sent, sender)
    recv_direct_async(output, receiver)
    assert all(map(torch.equal, shards(output), shards(sent)))


def test_a_tensor_must_be_on_the_sockets_mesh_and_at_its_coordinates() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, _ = create_socket_pair(a, b, config([((0, 1), (0, 0))]))
    with pytest.raises(MeshError, match="must be on one mesh"):
        send_async(sharded(b), sender)
    with pytest.raises(MeshError, match="the host"):
        send_async(ttnn.from_device(sharded(a)), sender)
    only_first = ttnn.get_device_tensors(sharded(a))[0]
    with pytest.raises(MeshError, match=r"holds nothing on MeshCoordinate\(\[0, 1\]\)"):
        send_async(only_first, sender)
    gone = sharded(a)
    ttnn.deallocate(gone)
    with pytest.raises(MeshError, match="not allocated"):
        send_async(gone, sender)


def test_two_devices_cannot_fill_one_shard() -> None:
    a, b = opened(1, 2), opened(1, 1)
    sender, receiver = create_socket_pair(a, b, config([((0, 0), (0, 0)), ((0, 1), (0, 0))]))
    send_async(sharded(a), sender)
    with pytest.raises(MeshError, match="would be written from"):
        recv_async(empty(sharded(a), b), receiver)


def test_observers_see_both_ends() -> None:
    a, b = opened(1, 2), opened(1, 2)
    sender, receiver = create_socket_pair(a, b, config(straight(a)))
    sent, output = sharded(a), empty(sharded(a), b)
    with ttnn.log_commands(show=False) as log:
        send_async(sent, sender)
        recv_async(output, receiver)
    assert [row[1] for row in log.rows] == ["experimental.send_async", "experimental.recv_async"]
    assert send_async.python_fully_qualified_name == "ttnn.experimental.send_async"


# -- other processes, without any ------------------------------------------------------------------


class _Still(Pending):
    """A transfer that ends when it is told to."""

    def __init__(self, done: bool) -> None:
        self.done = done

    def test(self) -> bool:
        return self.done

    def wait(self) -> None:
        assert self.done


class _Postbox(SingleProcess):
    """A context of two whose messages leave at once and whose answers wait."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.expected: list[_Still] = []

    def isend(self, source: object, *_: object, **__: object) -> Pending:
        self.sent.append(bytes(byte_view(source)))
        return _Still(done=True)

    def irecv(self, target: object, *_: object, **__: object) -> Pending:
        self.expected.append(_Still(done=False))
        return self.expected[-1]


def message(mesh: ttnn.MeshDevice) -> TensorMessage:
    route = Route(ttnn.MeshCoordinate(0, 0), 1)
    return pack_message(sharded(mesh), Routes((route,), straight=True), "send_async")


def test_a_forgotten_channel_lives_until_its_credits_have_come() -> None:
    box = _Postbox()
    channel = RankChannel(box, 0, fifo_size=1 << 20)
    known = weakref.ref(channel)
    list(channel.send(message(opened(1, 1))))
    steps = channel.send(message(opened(1, 1)))
    del channel, steps
    gc.collect()
    assert known() is not None
    box.expected[0].done = True
    known()._collect_credits()  # type: ignore[union-attr]
    gc.collect()
    assert known() is None


def test_a_send_goes_on_once_what_is_not_received_fits_into_the_fifo() -> None:
    box = _Postbox()
    mesh = opened(1, 1)
    channel = RankChannel(box, 0, fifo_size=10_000)  # a message is 8192 bytes
    assert list(channel.send(message(mesh))) == []
    second = channel.send(message(mesh))
    next(second)
    next(second)
    box.expected[0].done = True
    assert list(second) == []
    assert channel.fifo.buffered == 8192


def test_a_description_travels_once() -> None:
    box = _Postbox()
    mesh = opened(1, 1)
    channel = RankChannel(box, 0, fifo_size=1 << 20)
    for _ in range(3):
        list(channel.send(message(mesh)))
    made = message(mesh).description
    assert box.sent.count(made.encoded()) == 1
    assert len(box.sent) == 7  # three headers, three payloads
    assert Description.decoded(made.encoded()) == made


@pytest.mark.parametrize("word", [REPLICATE, LOCAL, Shard(3), Shard(2, 5), Partial("max")])
def test_the_words_of_a_tensor_survive_the_way(word: Placement) -> None:
    made = Description((("shape", "[1]"),), 1, (0,), SourceLayout((2, 4), (2, 4), (1, 2), (word, LOCAL)))
    assert Description.decoded(made.encoded()) == made


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("0,x", "must list one mesh id for each rank"),
        ("0", "must list one mesh id for each rank"),
        (
            "0,0",
            r"Invalid socket mesh id 0 specified: ranks \[0, 1\] have it, and the mesh graph does not say",
        ),
        ("1,1", "Invalid socket mesh id 0 specified: no rank has it"),
        ("2,2", "no rank has it"),
    ],
)
def test_mesh_ids_must_name_ranks(ids: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MESH_IDS, ids)
    with pytest.raises(MeshError, match=message):
        sides_of(by_mesh_ids(), opened(1, 1), two_ranks())


@pytest.mark.parametrize("ends", [{"sender_rank": 0, "receiver_rank": 1}, {"sender_mesh_id": 0, "receiver_mesh_id": 1}])
def test_a_process_that_is_alone_is_told_how_to_have_others(ends: dict[str, int]) -> None:
    memory = SocketMemoryConfig(ttnn.BufferType.L1, 1024)
    made = SocketConfig(joined([((0, 0), (0, 0))]), memory, **ends)
    with pytest.raises(MeshError, match=r"This process is alone: .* tt-run --rank-binding .*create_socket_pair"):
        MeshSocket(opened(1, 1), made)


def test_a_socket_from_a_mesh_to_itself_needs_no_other_process() -> None:
    memory = SocketMemoryConfig(ttnn.BufferType.L1, 1024)
    alone = SocketConfig(joined([((0, 0), (0, 0))]), memory, sender_mesh_id=1, receiver_mesh_id=1)
    with pytest.raises(MeshError, match=r"mesh 1 and mesh 1 are not in different processes.*create_socket_pair"):
        sides_of(alone, opened(1, 1), two_ranks())


def test_a_rank_that_is_no_end_of_a_socket_lets_it_pass() -> None:
    world = two_ranks()
    world.size, world.group, world.rank = 3, Group("world", (0, 1, 2)), 2
    memory = SocketMemoryConfig(ttnn.BufferType.L1, 1024)
    between_others = SocketConfig(joined([((0, 0), (0, 0))]), memory, 0, 1)
    with pytest.raises(MeshError, match="this is rank 2, and the socket goes from rank 0 to rank 1"):
        sides_of(between_others, opened(1, 1), world)
    unknown = SocketConfig(joined([((0, 0), (0, 0))]), memory, 0, 3)
    with pytest.raises(MeshError, match=r"Invalid socket sender rank 0 or receiver rank 3 specified. .* ranks 0 to 2"):
        sides_of(unknown, opened(1, 1), world)


def test_mesh_ids_name_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MESH_IDS, "1,0")
    sides, endpoint = sides_of(by_mesh_ids(), opened(1, 1), two_ranks())
    assert [side.ranks for side in sides] == [(1,), (0,)]
    assert endpoint is SocketEndpoint.RECEIVER


def by_mesh_ids() -> SocketConfig:
    memory = SocketMemoryConfig(ttnn.BufferType.L1, 1024)
    return SocketConfig(joined([((0, 0), (0, 0))]), memory, sender_mesh_id=0, receiver_mesh_id=1)


def two_ranks() -> SingleProcess:
    world = SingleProcess()
    world.size, world.group = 2, Group("world", (0, 1))
    return world


def test_where_processes_share_a_mesh_each_connection_belongs_to_the_holder_of_its_device() -> None:
    halves = tuple(Block((2, 4), (1, 2), (0, column)) for column in range(2))
    side = Side((4, 5), halves)
    assert side.rank_of(ttnn.MeshCoordinate(1, 1)) == 4
    assert side.rank_of(ttnn.MeshCoordinate(0, 2)) == 5


# -- the handshake, without processes --------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ({"pairs": [((0, 0), (0, 0))]}, "Mismatch in number of socket connections during handshake."),
        ({"pairs": [((0, 0), (0, 1)), ((0, 1), (0, 0))]}, "The receiver device of connection 0"),
        ({"memory": ttnn.BufferType.DRAM}, "Mismatch in socket storage type"),
        ({"fifo": 8192}, "Mismatch in socket FIFO size during handshake. It is 4096 here and 8192"),
        ({"sub_device": SubDeviceId(0)}, "Mismatch in sender sub-device"),
        ({"ranks": (1, 0)}, "Mismatch in sender rank"),
    ],
)
def test_ends_that_differ_say_in_what(theirs: dict[str, object], message: str) -> None:
    def words(
        pairs: Pairs = (((0, 0), (0, 0)), ((0, 1), (0, 1))),
        memory: ttnn.BufferType = ttnn.BufferType.L1,
        fifo: int = 4096,
        sub_device: SubDeviceId | None = None,
        ranks: tuple[int, int] = (0, 1),
    ) -> object:
        made = SocketConfig(joined(pairs), SocketMemoryConfig(memory, fifo, sub_device))
        return handshake_message(made, joined(pairs), ranks, 0, None, [])

    check_agreement(words(), words())  # type: ignore[arg-type]
    with pytest.raises(MeshError, match=message):
        check_agreement(words(), words(**theirs))  # type: ignore[arg-type]
