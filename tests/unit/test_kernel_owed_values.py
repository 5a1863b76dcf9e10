"""Values of tensors that kernels wrote: made when somebody asks for them, and right whoever that is."""

from __future__ import annotations

import threading
import warnings
import weakref

import pytest
import torch
from kernel_programs import add_cb, program_of, run, shards, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    cb_reserve_back,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
)
from softmesh.kernels.engine import tensor_view
from softmesh.kernels.engine.byte_overlay import over
from softmesh.kernels.engine.tensor_view import EncodedBytesCache
from softmesh.processes.context import byte_view
from softmesh.runtime.buffers.mesh_memory import TensorVersion
from softmesh.tensor import device_pages
from softmesh.tensor.pending_storage import defer_values, has_deferred_values


def moving(*moves):
    """A program that brings the first tile of one tensor to another, one after the other through the same page."""

    def kernel():
        cb_reserve_back(0, 1)
        for source, target in moves:
            noc_async_read_tile(0, InterleavedAddrGen(source.buffer_address(), 4096), get_write_ptr(0))
            noc_async_read_barrier()
            noc_async_write_tile(0, InterleavedAddrGen(target.buffer_address(), 4096), get_write_ptr(0))
            noc_async_write_barrier()

    program = program_of(reader=kernel)
    add_cb(program, 0, 1, page_size=4096, dtype=ttnn.float32)
    return program


def copy(source, target):
    return moving((source, target))


def full(mesh, number):
    """A tile of float32 that nobody but the tensor holds."""
    return ttnn.neg(tiles(mesh, torch.full((1, 1, 32, 32), -float(number)), ttnn.float32))


def numbers(tensor):
    return {found.unique().item() for found in shards(tensor)}


def counting(monkeypatch):
    """How often bytes become values."""
    made = []
    for module in (tensor_view, device_pages):
        decode = module.from_pages
        monkeypatch.setattr(module, "from_pages", lambda *args, f=decode: made.append(1) or f(*args))
    return made


def test_values_are_made_once_and_only_if_somebody_asks(mesh, monkeypatch):
    made = counting(monkeypatch)
    one, two, three = (full(mesh, number) for number in (1, 2, 3))
    for _ in range(3):
        run(mesh, moving((one, two), (two, three)))
    assert three.is_allocated()
    assert made == []
    assert numbers(three) == numbers(three) == {1}
    assert len(made) == 1
    ttnn.deallocate(two)
    assert len(made) == 1


def test_two_tensors_change_places_and_what_carried_them_is_gone(mesh):
    one, two, three, other = (full(mesh, number) for number in (1, 2, 0, 9))
    run(mesh, moving((one, three), (two, one), (three, two), (other, three)))
    assert (numbers(one), numbers(two), numbers(three)) == ({2}, {1}, {9})


def test_whoever_has_the_values_in_hand_sees_what_a_kernel_writes(mesh):
    source, target = full(mesh, 1), full(mesh, 0)
    seen = target.view_data()
    run(mesh, copy(source, target))
    assert (seen == 1).all()


def test_pieces_that_no_op_has_written_are_defined_once_a_kernel_has(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as pair:
        source = tiles(pair, torch.ones(1, 1, 32, 32), ttnn.float32)
        sent = ttnn.point_to_point(source, ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1))
        with pytest.warns(ttnn.SoftmeshWarning, match="undefined"):
            shards(sent)
        run(pair, copy(source, sent))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(pair, copy(sent, source))
            assert all((found == 1).all() for found in [*shards(sent), *shards(source)])


def test_what_a_kernel_wrote_and_nobody_asked_for_is_freed_with_its_tensor(mesh):
    source, target = full(mesh, 1), full(mesh, 0)
    run(mesh, copy(source, target))
    fill, values = weakref.ref(target.storage.pending.fill), weakref.ref(target.storage)
    del target
    assert (fill(), values()) == (None, None)


def test_a_tensor_that_kernels_have_read_or_written_in_part_is_freed_with_its_last_name(mesh):
    source, target = full(mesh, 1), tiles(mesh, torch.zeros(1, 1, 32, 64), ttnn.float32)
    run(mesh, copy(source, target))
    assert shards(target)[0][..., :32].all()
    run(mesh, copy(source, target))
    storages = [weakref.ref(tensor.storage) for tensor in (source, target)]
    del source, target
    assert [storage() for storage in storages] == [None, None]


def test_bytes_beyond_the_limit_become_values(mesh):
    """What is kept for the next launch is bounded, also where nobody has asked for the values."""
    tensors = [tiles(mesh, torch.ones(1, 1, 32, 32), ttnn.float32) for _ in range(3)]
    kept = EncodedBytesCache(limit=200)
    for tensor in tensors:
        storage = tensor.storage
        seen = TensorVersion(storage.data)
        defer_values(storage, lambda room: room.fill_(2))
        kept.keep(storage, over(lambda: torch.zeros(1, 1, 100, dtype=torch.uint8)), 100, seen)
    assert [has_deferred_values(tensor.storage) for tensor in tensors] == [False, True, True]
    assert [kept.find(tensor.storage) is None for tensor in tensors] == [True, False, False]


def test_many_may_ask_at_once(mesh):
    source = full(mesh, 9)
    for _ in range(5):
        target, found = full(mesh, 0), []
        run(mesh, copy(source, target))
        together = threading.Barrier(4)

        def ask(target=target, found=found, together=together):
            together.wait()
            found.append(target.view_data().unique().item())

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [9.0] * 4


def test_the_bytes_of_one_device_are_those_that_the_kernel_wrote(mesh):
    target = full(mesh, 0)
    device = metal.TensorBytes(ttnn.get_device_tensors(target)[1])
    assert not device.data.any()
    run(mesh, copy(full(mesh, 9), target))
    assert (device.data.view(torch.float32)[0, 1] == 9).all()


def test_bytes_that_nobody_stored_are_seen_by_nobody(mesh):
    target, result = full(mesh, 0), full(mesh, 0)
    run(mesh, copy(full(mesh, 9), target))
    metal.TensorBytes(target).data.zero_()
    assert numbers(target) == {9}
    metal.TensorBytes(target).data.zero_()
    run(mesh, copy(target, result))
    assert numbers(result) == {9}


def test_an_interrupted_end_of_a_launch_leaves_values_and_bytes_alike(mesh, monkeypatch):
    source, target, result = (full(mesh, number) for number in (9, 0, 5))
    run(mesh, copy(target, result))
    in_hand = target.view_data()  # so its values are made at once

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(device_pages, "from_pages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(mesh, copy(source, target))
    run(mesh, copy(target, result))
    assert numbers(target) == numbers(result) == {0}
    assert not in_hand.any()


@pytest.mark.parametrize("first", ["send", "receive"])
def test_what_is_received_takes_the_place_of_what_a_kernel_wrote(idle_machine, first):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    a, b = (ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) for _ in range(2))
    places = [ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, i), ttnn.CoreCoord(0, 0)) for i in range(2)]
    pairs = [ttnn.SocketConnection(place, place) for place in places]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 1 << 16)
    sender, receiver = ttnn.create_socket_pair(a, b, ttnn.SocketConfig(pairs, memory))
    sent, target = full(a, 5), full(b, 0)
    run(b, copy(full(b, 9), target))
    calls = [
        lambda: ttnn.experimental.send_async(sent, sender),
        lambda: ttnn.experimental.recv_async(target, receiver),
    ]
    for call in calls if first == "send" else reversed(calls):
        call()
    assert numbers(target) == numbers(sent) == {5}


def test_values_are_made_in_and_out_of_inference_mode(mesh):
    one, two = full(mesh, 1), full(mesh, 2)
    with torch.inference_mode():
        run(mesh, copy(one, two))
        assert numbers(two) == {1}
        three = full(mesh, 2)
        run(mesh, copy(three, two))
        ttnn.add(three, 1.0, output_tensor=three)
        run(mesh, copy(three, two))
        assert numbers(two) == {3}
    run(mesh, moving((three, one), (one, two)))
    run(mesh, copy(two, three))
    assert numbers(one) == numbers(two) == numbers(three) == {3}
    run(mesh, copy(full(mesh, 4), three))
    assert numbers(three) == {4}


def test_a_tile_keeps_no_large_tensor_alive(mesh):
    large = tiles(mesh, torch.ones(1, 1, 32, 32 * 64), ttnn.float32)
    target = full(mesh, 0)
    run(mesh, copy(large, target))
    del large
    piece = target.storage.pending.fill.held.read(0, 4096)
    assert piece.untyped_storage().nbytes() <= 2 * 4096
    assert numbers(target) == {1}


def test_a_kernel_reads_what_came_from_another_process(mesh):
    """It is written past torch, into the memory of the values."""
    source, target = full(mesh, 1), full(mesh, 0)
    run(mesh, copy(source, target))
    values = source.storage.data
    byte_view(values, written=True)[:] = bytes(byte_view(torch.full_like(values, 5.0)))
    run(mesh, copy(source, target))
    assert numbers(target) == {5}


def test_what_is_the_same_on_all_devices_is_written_to_each_of_a_sharded_tensor(pair):
    """Also in inference mode, where torch does not tell views from what they are views of."""
    with torch.inference_mode():
        apart = [torch.full((32, 32), float(number)) for number in (1, 2)]
        mapper = ttnn.ShardTensorToMesh(pair, dim=0)
        target = tiles(pair, torch.cat(apart), ttnn.float32, mesh_mapper=mapper)
        seen = ttnn.reshape(target, (1, 32, 32))
        for _ in range(2):
            run(pair, copy(full(pair, 9), target))
            assert numbers(target) == {9}
        device = metal.TensorBytes(ttnn.get_device_tensors(target)[1])
        device.data.view(torch.float32)[:] = 5
        device.store()
        assert [found.unique().item() for found in shards(target)] == [9, 5]
        assert seen.is_allocated()
