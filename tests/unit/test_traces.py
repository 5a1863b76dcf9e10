"""Traces: recorded once, replayed on what the inputs hold by then, in the place of the old results."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4), num_command_queues=2) as opened:
        yield opened


def put(values: torch.Tensor, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    mapper = ttnn.ShardTensor2dMesh(mesh, dims=(0, 1), mesh_shape=(2, 4))
    return ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def overwrite(target: ttnn.Tensor, values: torch.Tensor, mesh: ttnn.MeshDevice) -> None:
    mapper = ttnn.ShardTensor2dMesh(mesh, dims=(0, 1), mesh_shape=(2, 4))
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper), target)


def values(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (64, 128)), generator=torch.Generator().manual_seed(seed))


def captured(mesh, work, *inputs, cq_id=0):
    work(*inputs)
    trace = ttnn.begin_trace_capture(mesh, cq_id=cq_id)
    result = work(*inputs)
    ttnn.end_trace_capture(mesh, trace, cq_id=cq_id)
    return trace, result


def a_network(x: ttnn.Tensor, w: ttnn.Tensor) -> ttnn.Tensor:
    hidden = ttnn.gelu(ttnn.matmul(x, w))
    left, right = ttnn.split(hidden, 16, dim=-1)
    return ttnn.add(ttnn.multiply(left, 2.0), ttnn.relu(right))


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
def test_a_replay_computes_what_the_ops_compute_on_the_new_inputs(mesh, dtype):
    mapper = ttnn.ShardTensor2dMesh(mesh, dims=(0, 1), mesh_shape=(2, 4))
    kinds = {"dtype": dtype, "layout": ttnn.TILE_LAYOUT}
    x = ttnn.from_torch(values(1), device=mesh, mesh_mapper=mapper, **kinds)
    w = ttnn.from_torch(values(2, 32, 32), device=mesh, **kinds)
    trace, result = captured(mesh, a_network, x, w)
    for seed in (3, 4):
        host = ttnn.from_torch(values(seed), mesh_mapper=mapper, **kinds)
        ttnn.copy_host_to_device_tensor(host, x)
        ttnn.execute_trace(mesh, trace, cq_id=0)
        assert torch.equal(result.pieces(), a_network(x, w).pieces())
    ttnn.release_trace(mesh, trace)


def test_results_keep_their_tensor_and_address(mesh):
    x = put(values(1), mesh)
    trace, result = captured(mesh, ttnn.relu, x)
    shards, address = ttnn.get_device_tensors(result), result.buffer_address()
    overwrite(x, values(2), mesh)
    ttnn.execute_trace(mesh, trace)
    assert result.buffer_address() == address
    assert torch.equal(ttnn.to_torch(shards[0]), values(2).relu()[:32, :32])


def test_a_result_dropped_by_the_program_is_no_obstacle(mesh):
    x = put(values(1), mesh)
    trace, result = captured(mesh, lambda t: ttnn.neg(ttnn.relu(t)), x)
    del result
    gc.collect()
    ttnn.execute_trace(mesh, trace)


def test_a_value_read_twice_and_an_output_used_further_are_right(mesh):
    x = put(values(1), mesh)

    def work(t):
        a = ttnn.relu(t)
        b = ttnn.neg(a)
        return a, ttnn.add(ttnn.multiply(a, b), b)

    trace, (first, second) = captured(mesh, work, x)
    overwrite(x, values(5), mesh)
    ttnn.execute_trace(mesh, trace)
    a = values(5).relu()
    assert torch.equal(ttnn.compose(first), a)
    torch.testing.assert_close(ttnn.compose(second), a * -a - a)


def test_writing_in_place_happens_at_the_replay_and_not_at_the_capture(mesh):
    cache = ttnn.from_torch(torch.zeros(1, 1, 64, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    new = ttnn.from_torch(torch.ones(1, 1, 1, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    ttnn.update_cache(cache, new, 0)
    ttnn.sum(cache)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.zeros(1, 1, 64, 32), layout=ttnn.TILE_LAYOUT), cache)
    trace = ttnn.begin_trace_capture(mesh)
    ttnn.update_cache(cache, new, 0)
    total = ttnn.sum(cache)
    ttnn.end_trace_capture(mesh, trace)
    assert ttnn.to_torch(ttnn.get_device_tensors(cache)[0]).abs().sum() == 0
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.full((1, 1, 1, 32), 3.0), layout=ttnn.TILE_LAYOUT), new)
    ttnn.execute_trace(mesh, trace)
    assert ttnn.to_torch(ttnn.get_device_tensors(cache)[7]).sum() == 96
    assert ttnn.to_torch(ttnn.get_device_tensors(total)[3]).item() == 96


def test_an_output_tensor_that_is_given_is_written_at_each_replay(mesh):
    x, out = put(values(1), mesh), put(torch.zeros(64, 128), mesh)
    trace, _ = captured(mesh, lambda t: ttnn.add(t, 1.0, output_tensor=out), x)
    overwrite(x, values(6), mesh)
    ttnn.execute_trace(mesh, trace)
    assert torch.equal(ttnn.compose(out), values(6) + 1)


def test_collectives_and_shards_are_replayed_too(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as line:
        mapper = ttnn.ShardTensorToMesh(line, dim=0)
        x = ttnn.from_torch(values(1, 256, 32), layout=ttnn.TILE_LAYOUT, device=line, mesh_mapper=mapper)

        def work(t):
            return ttnn.all_reduce(t), ttnn.relu(ttnn.get_device_tensors(t)[3])

        trace, (total, shard) = captured(line, work, x)
        host = ttnn.from_torch(values(2, 256, 32), layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)
        ttnn.copy_host_to_device_tensor(host, x)
        ttnn.execute_trace(line, trace)
        torch.testing.assert_close(
            ttnn.to_torch(ttnn.get_device_tensors(total)[5]), values(2, 256, 32).view(8, 32, 32).sum(0)
        )
        assert torch.equal(ttnn.to_torch(shard), values(2, 256, 32)[96:128].relu())


# -- what goes wrong --------------------------------------------------------------------------------


def test_an_op_that_was_never_run_before_cannot_be_recorded(mesh):
    x = put(values(1), mesh)
    trace = ttnn.begin_trace_capture(mesh)
    with pytest.raises(ttnn.MeshError, match=r"Writes are not supported during trace capture\. elu runs here"):
        ttnn.elu(x, alpha=0.123)
    ttnn.end_trace_capture(mesh, trace)


def test_transfers_and_waits_are_refused_while_recording(mesh):
    x, host = put(values(1), mesh), ttnn.from_torch(values(2), layout=ttnn.TILE_LAYOUT)
    event = ttnn.record_event(mesh, 0)
    trace = ttnn.begin_trace_capture(mesh)
    try:
        for write in (lambda: put(values(1), mesh), lambda: ttnn.to_device(host, mesh)):
            with pytest.raises(ttnn.MeshError, match=r"Writes are not supported during trace capture\."):
                write()
        for read in (lambda: ttnn.compose(x), lambda: ttnn.from_device(x), lambda: x.cpu()):
            with pytest.raises(ttnn.MeshError, match=r"Reads are not supported during trace capture\."):
                read()
        with pytest.raises(ttnn.MeshError, match=r"Event Synchronization is not supported during trace capture\."):
            ttnn.event_synchronize(event)
        with pytest.raises(ttnn.MeshError, match="not supported"):
            ttnn.synchronize_device(mesh)
    finally:
        ttnn.end_trace_capture(mesh, trace)
    assert torch.equal(ttnn.compose(x), values(1))


def test_a_capture_that_ctrl_c_left_open_is_ended_by_the_call_that_errors_name(mesh):
    x = put(values(1), mesh)
    ttnn.relu(x)
    before = mesh.allocator().get_statistics(ttnn.BufferType.DRAM)
    ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.relu(x)  # and here comes Ctrl-C
    with pytest.raises(ttnn.MeshError, match="Writes are not supported") as of_write:
        put(values(2), mesh)
    with pytest.raises(ttnn.MeshError, match="already being used for tracing") as of_begin:
        ttnn.begin_trace_capture(mesh, cq_id=0)
    (call,) = set(re.findall(r"end_trace_capture\(mesh_device, (\d+), cq_id=0\)", f"{of_write.value} {of_begin.value}"))
    ttnn.end_trace_capture(mesh, int(call), cq_id=0)
    ttnn.release_trace(mesh, int(call))
    ttnn.release_trace(mesh, captured(mesh, ttnn.relu, x)[0])
    gc.collect()
    assert mesh.allocator().get_statistics(ttnn.BufferType.DRAM) == before


def test_the_other_queue_goes_on_while_one_records(mesh):
    x = put(values(1), mesh)
    ttnn.relu(x)
    ttnn.synchronize_device(mesh)
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    _recorded = ttnn.relu(x)
    with ttnn.command_queue(1):
        other = ttnn.relu(x)
    with pytest.raises(ttnn.MeshError, match="CQ 0 is already being used for tracing"):
        ttnn.begin_trace_capture(mesh, cq_id=0)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    ttnn.synchronize_device(mesh)
    overwrite(x, values(9), mesh)
    ttnn.execute_trace(mesh, trace, cq_id=0)
    assert torch.equal(ttnn.compose(other), values(1).relu())


def test_ids_are_checked(mesh):
    with pytest.raises(ttnn.MeshError, match="CQ 0 is not being used for tracing tid 77"):
        ttnn.end_trace_capture(mesh, ttnn.MeshTraceId(77), cq_id=0)
    with pytest.raises(
        ttnn.MeshError,
        match=f"Trace instance 77 must exist on Mesh device {mesh.id()}'s active sub-device manager",
    ):
        ttnn.execute_trace(mesh, ttnn.MeshTraceId(77))
    ttnn.release_trace(mesh, ttnn.MeshTraceId(77))
    with pytest.raises(TypeError, match="trace_id"):
        ttnn.execute_trace(mesh, "the trace")


def test_a_released_trace_cannot_be_executed(mesh):
    trace, _ = captured(mesh, ttnn.relu, put(values(1), mesh))
    ttnn.release_trace(mesh, trace)
    with pytest.raises(ttnn.MeshError, match="it has been released"):
        ttnn.execute_trace(mesh, trace)


def test_an_input_that_was_deallocated_is_named_before_anything_runs(mesh):
    x = put(values(1), mesh)
    trace, result = captured(mesh, ttnn.relu, x)
    ttnn.execute_trace(mesh, trace)
    before = ttnn.compose(result)
    ttnn.deallocate(x)
    with pytest.raises(ttnn.MeshError, match=r"captured at test_traces\.py:\d+, reads a tensor that has been dealloc"):
        ttnn.execute_trace(mesh, trace)
    assert torch.equal(ttnn.compose(result), before)


def test_a_region_that_is_too_small_is_told_with_the_size_it_takes(mesh):
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1), trace_region_size=1024) as small:
        x = ttnn.from_torch(values(1, 32, 32), layout=ttnn.TILE_LAYOUT, device=small)
        captured(small, ttnn.relu, x)
        with pytest.raises(ttnn.MeshError, match=r"Creating trace buffers of size \d+B on MeshDevice \d+, but only"):
            captured(small, lambda t: ttnn.neg(ttnn.relu(t)), x)


def test_whether_a_capture_is_under_way_can_be_asked(mesh):
    assert not ttnn.device.is_trace_capture_active(mesh)
    trace = ttnn.begin_trace_capture(mesh)
    assert ttnn.device.is_trace_capture_active(mesh)
    ttnn.end_trace_capture(mesh, trace)
    assert not ttnn.device.is_trace_capture_active(mesh)


def test_a_replay_overwrites_only_what_nobody_reads_again(mesh):
    x, w = put(values(1), mesh), put(values(2), mesh)

    def work(t):
        kept = ttnn.relu(t)
        passing = ttnn.add(kept, w)  # read twice, then gone
        return kept, ttnn.exp(passing), ttnn.multiply(ttnn.neg(ttnn.add(passing, passing)), 0.5)

    trace, results = captured(mesh, work, x)
    ttnn.execute_trace(mesh, trace)
    for seed in (3, 4):
        overwrite(x, values(seed), mesh)
        before = [ttnn.compose(result).clone() for result in results]
        held = [ttnn.compose(result) for result in results]
        ttnn.execute_trace(mesh, trace)
        assert all(map(torch.equal, held, before))  # what was read out does not change any more
        kept = values(seed).relu()
        for result, expected in zip(results, (kept, (kept + values(2)).exp(), (kept + values(2)) * -1), strict=True):
            assert torch.equal(ttnn.compose(result), expected)
        assert torch.equal(ttnn.compose(x), values(seed))
        assert torch.equal(ttnn.compose(w), values(2))


def test_a_value_that_others_look_at_is_not_overwritten(mesh):
    x = ttnn.from_torch(values(1, 32, 64), layout=ttnn.TILE_LAYOUT, device=mesh)

    def work():
        a = ttnn.relu(x)
        turned = ttnn.transpose(a, 0, 1)
        return turned, ttnn.neg(a)  # the last to read it, but `turned` lies in its memory

    trace, (turned, negative) = captured(mesh, work)
    ttnn.execute_trace(mesh, trace)
    assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(turned)[3]), values(1, 32, 64).relu().T)
    assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(negative)[3]), -values(1, 32, 64).relu())


def test_an_op_whose_result_has_another_form_than_its_operand_is_not_written_over_it(mesh):
    row, x = ttnn.from_torch(values(1, 1, 32), layout=ttnn.TILE_LAYOUT, device=mesh), put(values(2), mesh)
    trace, result = captured(mesh, lambda: ttnn.add(ttnn.relu(row), x))  # the first operand is broadcast
    ttnn.execute_trace(mesh, trace)
    assert torch.equal(ttnn.compose(result), values(1, 1, 32).relu().repeat(1, 4) + values(2))


# -- methods of a queue ----------------------------------------------------------------------------


def test_a_queue_records_and_replays_by_itself(mesh):
    x, queue = put(values(1), mesh), mesh.mesh_command_queue(1)
    with ttnn.command_queue(1):
        ttnn.relu(x)
        number = queue.record_begin()
        result = ttnn.relu(x)
        assert queue.record_end() == number
    queue.finish()
    overwrite(x, values(2), mesh)
    queue.enqueue_trace(number, True)
    assert torch.equal(ttnn.compose(result), values(2).relu())
    ttnn.release_trace(mesh, number)
    queue.finish()


def test_a_queue_records_under_an_id_that_is_free(mesh):
    queue = mesh.mesh_command_queue()
    with pytest.raises(RuntimeError, match="CQ 0 is not being used for tracing: call record_begin"):
        queue.record_end()
    number = queue.record_begin(ttnn.MeshTraceId(123456))
    assert number == 123456
    queue.record_end()
    with pytest.raises(RuntimeError, match="Trace already exists for tid 123456"):
        queue.record_begin(number)
    ttnn.release_trace(mesh, number)
    queue.record_begin(number)
    queue.record_end()


def test_values_of_each_device_that_are_written_to_slices_are_slices_and_the_trace_runs_on(mesh):
    slices = ttnn.from_torch(torch.zeros(256, 8), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    columns = ttnn.from_torch(torch.ones(8, 256), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 1))
    own = ttnn.reshape(columns, (32, 8))
    assert ttnn.placements(own) == (ttnn.Local(), ttnn.Local())

    def step() -> None:
        ttnn.copy(ttnn.add(own, slices), slices)

    step()
    assert ttnn.placements(slices) == (ttnn.Shard(0), ttnn.Shard(0))
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    step()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    for _ in range(3):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
    assert torch.equal(ttnn.compose(slices), torch.full((256, 8), 4.0))


# -- inputs that are spread in another way than at the capture -------------------------------------------


def _pieces(tensor):
    return [ttnn.to_torch(piece) for piece in ttnn.get_device_tensors(tensor)]


def test_each_device_computes_on_the_piece_it_holds_when_the_trace_is_replayed(mesh):
    def chain(x):
        return ttnn.neg(ttnn.matmul(ttnn.relu(x), weight))

    count = mesh.get_num_devices()
    weight = ttnn.from_torch(torch.rand(32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    x = ttnn.allocate_tensor_on_device(ttnn.Shape((1, 32, 32)), ttnn.float32, ttnn.TILE_LAYOUT, mesh)
    chain(x)
    trace = ttnn.begin_trace_capture(mesh)
    result = chain(x)
    ttnn.end_trace_capture(mesh, trace)
    for _ in range(2):
        values = torch.randn(count, 32, 32)
        host = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
        ttnn.copy_host_to_device_tensor(host, x)
        ttnn.execute_trace(mesh, trace)
        expected = -(values.relu() @ ttnn.to_torch(ttnn.get_device_tensors(weight)[0]))
        got = ttnn.to_torch(result, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
        torch.testing.assert_close(got, expected)
    same = ttnn.from_torch(values[:1], layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))
    ttnn.copy_host_to_device_tensor(same, x)
    ttnn.execute_trace(mesh, trace)
    for piece in _pieces(result):
        torch.testing.assert_close(piece, expected[:1])


def test_tensors_that_are_written_follow_their_inputs_in_a_replay(mesh):
    count = mesh.get_num_devices()
    x = ttnn.ones((1, 32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    kept = ttnn.zeros((1, 32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    total = ttnn.zeros((1, 32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)

    def step():
        ttnn.add(x, 1.0, output_tensor=kept)
        ttnn.add_(total, kept)

    step()
    trace = ttnn.begin_trace_capture(mesh)
    step()
    ttnn.end_trace_capture(mesh, trace)
    values = torch.arange(count).float().view(-1, 1, 1).expand(count, 32, 32).to(torch.bfloat16)
    host = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
    ttnn.copy_host_to_device_tensor(host, x)
    ttnn.execute_trace(mesh, trace)
    ttnn.execute_trace(mesh, trace)
    for at, (one, sum_of_all) in enumerate(zip(_pieces(kept), _pieces(total), strict=True)):
        assert one.unique().tolist() == [at + 1]
        assert sum_of_all.unique().tolist() == [2 + 2 * (at + 1)]


def test_collectives_are_replayed_on_what_devices_hold_then(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 4), trace_region_size=1 << 16)
    x = ttnn.ones((1, 1, 32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    ttnn.all_gather(ttnn.exp(x), dim=3)
    trace = ttnn.begin_trace_capture(mesh)
    gathered = ttnn.all_gather(ttnn.exp(x), dim=3)
    ttnn.end_trace_capture(mesh, trace)
    values = torch.rand(4, 1, 32, 32).to(torch.bfloat16)
    host = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
    ttnn.copy_host_to_device_tensor(host, x)
    ttnn.execute_trace(mesh, trace)
    expected = torch.cat(list(values.split(1)), dim=3).exp()
    for piece in _pieces(gathered):
        torch.testing.assert_close(piece, expected, rtol=0.02, atol=0.02)


def test_an_input_that_the_model_frees_is_read_from_what_is_allocated_in_its_place(mesh):
    def work(x):
        hidden = ttnn.relu(x)
        ttnn.deallocate(x)
        return ttnn.neg(hidden, memory_config=ttnn.DRAM_MEMORY_CONFIG)

    def put_in_l1(seed):
        return ttnn.to_memory_config(put(values(seed), mesh), ttnn.L1_MEMORY_CONFIG)

    work(put_in_l1(1))
    x = put_in_l1(1)
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    result, taken_back = work(x), ttnn.allocate_tensor_on_device(x.spec, mesh)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    for seed in (2, 3):
        overwrite(taken_back, values(seed), mesh)
        ttnn.execute_trace(mesh, trace, cq_id=0)
        assert torch.equal(ttnn.compose(result), -values(seed).relu())


def test_a_trace_sends_and_receives_at_each_replay_what_is_there_by_then(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    end = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))
    here, there = (ttnn.open_mesh_device(ttnn.MeshShape(1, 1), trace_region_size=1 << 20) for _ in range(2))
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 4096)
    config = ttnn.SocketConfig([ttnn.SocketConnection(end, end)], memory)
    sender, receiver = ttnn.create_socket_pair(here, there, config)

    def on(device, value):
        return ttnn.from_torch(torch.full((32, 32), value), layout=ttnn.TILE_LAYOUT, device=device)

    x, arrived = on(here, 1.0), ttnn.empty((32, 32), ttnn.float32, ttnn.TILE_LAYOUT, there)

    def send(operand):
        ttnn.experimental.send_async(ttnn.neg(operand), sender)

    def receive(operand):
        ttnn.experimental.recv_async(operand, receiver)
        return ttnn.multiply(operand, 2.0)

    send(x)
    receive(arrived)
    ttnn.synchronize_device(there)
    sending, receiving = ttnn.begin_trace_capture(here), ttnn.begin_trace_capture(there)
    send(x)
    result = receive(arrived)
    ttnn.end_trace_capture(here, sending)
    ttnn.end_trace_capture(there, receiving)
    for value in (3.0, 5.0):
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(torch.full((32, 32), value), layout=ttnn.TILE_LAYOUT), x)
        ttnn.execute_trace(here, sending, blocking=False)
        ttnn.execute_trace(there, receiving, blocking=False)
        assert ttnn.to_torch(result).unique().tolist() == [-2 * value]


# -- random numbers: on a chip a seed is an argument of the recorded launch ------------------------------


DRAWING = {
    "bernoulli": lambda x, seed: ttnn.bernoulli(x, seed=seed),
    "dropout": lambda x, seed: ttnn.experimental.dropout(x, 0.5, 2.0, seed),
    "one mask for all": lambda x, seed: ttnn.experimental.dropout(x, 0.5, 2.0, seed, use_per_device_seed=False),
    "uniform": lambda x, seed: ttnn.uniform(ttnn.clone(x), 0.0, 1.0, seed),
    "rand": lambda x, seed: ttnn.rand((32, 32), x.device(), layout=ttnn.TILE_LAYOUT, seed=seed),
    "randn": lambda x, seed: ttnn.randn((32, 32), x.device(), layout=ttnn.TILE_LAYOUT, seed=seed or None),
}


@pytest.mark.parametrize("seed", [7, 0])
@pytest.mark.parametrize("name", DRAWING)
def test_a_replay_draws_what_the_capture_drew(mesh, name, seed):
    x = ttnn.from_torch(torch.full((32, 32), 0.5), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    eager = DRAWING[name](x, seed).pieces().clone()
    ttnn.neg(x)
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    drawn = DRAWING[name](x, seed)
    after = ttnn.neg(drawn)
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    found = []
    for _ in range(3):
        torch.rand(5)
        ttnn.execute_trace(mesh, number, cq_id=0)
        assert torch.equal(after.pieces(), -drawn.pieces())
        found.append(drawn.pieces().clone())
    assert len(found[0].unique()) > 1
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[0], eager) == bool(seed)
    ttnn.release_trace(mesh, number)
