"""Estimates of programs: one clock over hosts, queues, devices and links; what links carry; what memory holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh.cost.laws.dispatches import TURN_AROUND_US
from softmesh.cost.program_cost import ProgramCost
from softmesh.cost.timeline import Estimate, TimedCommand


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    opened = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), trace_region_size=1 << 20, num_command_queues=2)
    yield opened
    ttnn.close_mesh_device(opened)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def tensor(mesh: ttnn.MeshDevice, *shape: int) -> ttnn.Tensor:
    return ttnn.from_torch(torch.zeros(*shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)


def named(estimate: Estimate, name: str) -> list[TimedCommand]:
    return [command for command in estimate.commands if command.name == name]


def test_commands_of_one_queue_run_one_after_the_other(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 512, 512)
    with ttnn.estimate(mesh) as cost:
        ttnn.gelu(ttnn.matmul(x, x))
    product, activation = cost.estimate.commands
    assert activation.start >= product.end
    assert cost.seconds >= activation.end
    assert [op.name for op in cost.by_op()] == sorted(["matmul", "gelu"], key=lambda op: -named_cost(cost, op))
    assert {line.site.line for line in cost.by_line()} == {product.site.line}
    assert product.site.file == __file__


def named_cost(cost: ProgramCost, name: str) -> float:
    return sum(command.seconds for command in named(cost.estimate, name))


def test_the_table_names_ops_and_the_machine(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 64, 64)
    with ttnn.estimate(mesh) as cost:
        ttnn.matmul(x, x)
    table = cost.table()
    assert "elastic, 8 chips, FABRIC_1D" in str(table.title)
    assert list(table.columns[0].cells) == ["matmul", "(host)"]
    low, high = cost.band
    assert low < cost.seconds < high


def test_a_replay_costs_no_dispatch(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 256, 256)

    def work() -> ttnn.Tensor:
        return ttnn.gelu(ttnn.matmul(x, x))

    work()
    with ttnn.estimate(mesh) as plain:
        for _ in range(10):
            work()
    with ttnn.estimate(mesh) as traced:
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        made = work()
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        for _ in range(10):
            ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
        ttnn.synchronize_device(mesh)
    assert made.shape == (256, 256)
    products = named(traced.estimate, "matmul")
    assert len(products) == 10
    assert {command.trace for command in products} == {int(trace)}
    assert [command.session for command in products] == list(range(10))
    assert products[0].cost == named(plain.estimate, "matmul")[0].cost
    assert traced.seconds < plain.seconds / 2
    ttnn.release_trace(mesh, trace)


def test_another_queue_copies_while_the_first_computes(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 2048, 2048)
    host = ttnn.from_torch(torch.zeros(2048, 2048), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    with ttnn.estimate(mesh) as cost:
        ttnn.matmul(x, x)
        ttnn.to_device(host, mesh, queue_id=1)
    product, copy = cost.estimate.commands
    assert copy.queue == 1
    assert copy.start < product.end


def test_a_queue_waits_for_the_event_of_another(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 2048, 2048)
    host = ttnn.from_torch(torch.zeros(2048, 2048), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    with ttnn.estimate(mesh) as cost:
        ttnn.matmul(x, x)
        event = ttnn.record_event(mesh, 0)
        ttnn.wait_for_event(1, event)
        ttnn.to_device(host, mesh, queue_id=1)
    product, copy = cost.estimate.commands
    assert copy.start >= product.end
    assert copy.after == product.index


def test_programs_of_different_sub_devices_overlap(mesh: ttnn.MeshDevice) -> None:
    def cores(first: int, last: int) -> ttnn.CoreRangeSet:
        return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, first), ttnn.CoreCoord(7, last))])

    x = tensor(mesh, 2048, 2048)
    parts = [ttnn.SubDevice([cores(0, 3)]), ttnn.SubDevice([cores(4, 7)])]
    manager = mesh.create_sub_device_manager(parts, 0)
    mesh.load_sub_device_manager(manager)
    with ttnn.estimate(mesh) as cost:
        ttnn.all_gather(x, dim=0, cluster_axis=1, subdevice_id=ttnn.SubDeviceId(0))
        ttnn.all_gather(x, dim=0, cluster_axis=0, subdevice_id=ttnn.SubDeviceId(1))
        ttnn.matmul(x, x)
    mesh.clear_loaded_sub_device_manager()
    along, down, product = cost.estimate.commands
    assert down.start < along.end
    assert product.start >= max(along.end, down.end)


def test_a_blocking_read_holds_the_host_up(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 1024, 1024)
    one = ttnn.get_device_tensors(x)[0]
    with ttnn.estimate(mesh) as cost:
        ttnn.matmul(x, x)
        ttnn.to_torch(one)
        ttnn.matmul(x, x)
    first, read, second = (command for command in cost.estimate.commands if command.seconds)
    assert read.is_blocking
    assert read.start >= first.end
    assert second.issued >= read.end


def test_steps_are_told_apart(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 256, 256)
    with ttnn.estimate(mesh) as cost:
        ttnn.matmul(x, x)
        for _ in range(3):
            with cost.step("decode", tokens=32):
                ttnn.matmul(x, x)
    steps = cost.estimate.steps
    assert [step.name for step in steps] == ["decode"] * 3
    assert all(step.end > step.start for step in steps)
    assert cost.tokens_per_second == pytest.approx(96 / sum(step.end - step.start for step in steps))
    assert [command.step for command in named(cost.estimate, "matmul")] == [None, 0, 1, 2]


@given(devices=st.integers(2, 8), rows=st.integers(1, 4))
def test_all_gather_carries_every_piece_over_every_hop(devices: int, rows: int) -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, devices)) as mesh:
        x = ttnn.from_torch(
            torch.zeros(32 * rows, 32 * devices),
            ttnn.bfloat16,
            layout=ttnn.TILE_LAYOUT,
            device=mesh,
            mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=1),
        )
        with ttnn.estimate(mesh) as cost:
            ttnn.all_gather(x, dim=1, num_links=1)
    piece = rows * 32 * 32 * 2
    sent = {(use.link.source.chip, use.link.target.chip): use.bytes for use in cost.estimate.links}
    for place in range(devices - 1):
        assert sent[place, place + 1] == (place + 1) * piece
        assert sent[place + 1, place] == (devices - 1 - place) * piece
    busiest = cost.busiest_link
    assert busiest is not None
    assert busiest.bytes == (devices - 1) * piece
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def test_links_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTMESH_SYSTEM", "T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        x = tensor(mesh, 64, 64)
        with ttnn.estimate(mesh) as cost:
            ttnn.all_gather(x, dim=0, cluster_axis=1)
    estimate = cost.estimate
    assert estimate.system == "T3000"
    assert estimate.machine is not None
    cables = {frozenset(link) for link in estimate.machine.links}
    assert {frozenset((use.link.source, use.link.target)) for use in estimate.links} <= cables
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def test_memory_comes_and_goes_with_its_tensors(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 64, 64)
    with ttnn.estimate(mesh) as cost:
        y = ttnn.matmul(x, x)
        ttnn.deallocate(y)
        z = ttnn.gelu(x)
    held: dict[int, int] = {}
    for event in cost.estimate.memory:
        held[event.number] = held.get(event.number, 0) + event.bytes_per_bank
    alive = [number for number, size in held.items() if size]
    spans = (x.storage.span(), z.storage.span())
    assert sorted(alive) == sorted(span.number for span in spans if span is not None)
    taken = [event for event in cost.estimate.memory if event.bytes_per_bank > 0]
    assert {event.label for event in taken} == {"64x64 BFLOAT16 TILE"}
    assert all(event.site is not None and event.site.file == __file__ for event in taken)


def test_estimating_keeps_no_tensor_alive(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 64, 64)
    before = len(mesh.allocator().live())
    with ttnn.estimate(mesh) as cost:
        for _ in range(5):
            ttnn.matmul(x, x)
    assert len(mesh.allocator().live()) == before
    assert cost.seconds > 0


def test_a_program_that_fails_has_an_estimate_up_to_there(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 64, 64)

    def fails() -> None:
        ttnn.matmul(x, x)
        raise ZeroDivisionError("half-way")

    with pytest.raises(ZeroDivisionError), ttnn.estimate(mesh) as cost:
        fails()
    assert cost.estimate.error == "ZeroDivisionError: half-way"
    assert len(named(cost.estimate, "matmul")) == 1


def test_asking_before_the_end_is_refused(mesh: ttnn.MeshDevice) -> None:
    with ttnn.estimate(mesh) as cost, pytest.raises(ttnn.MeshError, match="has not ended"):
        _ = cost.seconds


def test_a_view_costs_nothing(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 64, 64)
    with ttnn.estimate(mesh) as cost:
        ttnn.reshape(x, (1, 1, 64, 64))
    assert cost.by_op() == []


@pytest.mark.parametrize("groups", [1, 64])
@pytest.mark.parametrize("convolution", [ttnn.conv2d, ttnn.conv_transpose2d])
def test_a_convolution_costs_the_same_with_the_weights_of_torch_and_with_prepared_ones(
    mesh: ttnn.MeshDevice, convolution: Callable[..., Any], groups: int
) -> None:
    image = ttnn.from_torch(torch.rand(1, 1, 256, 64), ttnn.bfloat16, device=mesh)
    sizes = {
        "in_channels": 64,
        "out_channels": 64,
        "kernel_size": (3, 3),
        "stride": (1, 1),
        "padding": (1, 1),
        "batch_size": 1,
        "input_height": 16,
        "input_width": 16,
        "groups": groups,
    }
    weights = ttnn.from_torch(torch.rand(64, 64 // groups, 3, 3), ttnn.bfloat16)
    with ttnn.estimate(mesh) as cost:
        for _ in range(2):
            _, [weights, _] = convolution(
                input_tensor=image, weight_tensor=weights, device=mesh, return_weights_and_bias=True, **sizes
            )
    of_torch, prepared = named(cost.estimate, convolution.__name__)
    assert of_torch.cost.seconds == prepared.cost.seconds < 1e-4


def test_messages_are_received_after_they_were_sent() -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    sender, receiver = (ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) for _ in range(2))
    core = ttnn.CoreCoord(0, 0)
    end = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), core)
    config = ttnn.SocketConfig([ttnn.SocketConnection(end, end)], ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 4096))
    out, into = ttnn.create_socket_pair(sender, receiver, config)
    x = tensor(sender, 64, 64)
    y = ttnn.allocate_tensor_on_device(x.spec, receiver)
    with ttnn.estimate() as cost:
        ttnn.matmul(x, x)
        ttnn.experimental.send_async(x, out)
        ttnn.experimental.recv_async(y, into)
    (send,) = named(cost.estimate, "experimental.send_async")
    (receive,) = named(cost.estimate, "experimental.recv_async")
    assert receive.end >= send.end
    assert {use.link.source.chip for use in cost.estimate.links} == set(send.devices)
    for one in (sender, receiver):
        ttnn.close_mesh_device(one)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def test_the_host_works_on_what_it_reads_of_a_replay_before_it_goes_on(mesh: ttnn.MeshDevice) -> None:
    """Once for each replay that is read from, and not in programs without a trace."""
    x = tensor(mesh, 64, 64)
    y = ttnn.gelu(x)
    with ttnn.estimate(mesh) as cost:
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        y = ttnn.gelu(x)
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        ttnn.to_torch(x, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
        for reads in (0, 1, 2):
            with cost.step(f"{reads} reads"):
                ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
                for _ in range(reads):
                    ttnn.to_torch(y, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
    none, one, two = (step.end - step.start for step in cost.estimate.steps)
    assert none < 1e-3
    assert one > none + TURN_AROUND_US * 1e-6
    assert two < one + 1e-3
    assert named(cost.estimate, "to_torch")[0].end < TURN_AROUND_US * 1e-6


@pytest.mark.parametrize(("system", "rate"), [("N150", 230e9), ("P150", 300e9)])
def test_weights_over_the_banks_are_multiplied_by_a_core_for_each_bank(
    system: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blackhole has eight banks and so eight cores: its memory is faster than they are."""
    monkeypatch.setenv("SOFTMESH_SYSTEM", system)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as one, ttnn.estimate(one, values=False) as cost:
        banks = one.dram_grid_size().x
        cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(banks - 1, 0))})
        shards = ttnn.ShardSpec(cores, [4096, 24576 // banks], ttnn.ShardOrientation.ROW_MAJOR)
        by_bank = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.DRAM, shards)
        tile, l1 = ttnn.TILE_LAYOUT, ttnn.L1_MEMORY_CONFIG
        x = ttnn.from_torch(torch.zeros(32, 4096), ttnn.bfloat16, layout=tile, device=one, memory_config=l1)
        w = ttnn.from_torch(torch.zeros(4096, 24576), ttnn.bfloat8_b, layout=tile, device=one, memory_config=by_bank)
        config = ttnn.init_device_compute_kernel_config(one.arch(), math_fidelity=ttnn.MathFidelity.HiFi2)
        ttnn.linear(x, w, memory_config=l1, compute_kernel_config=config)
    (product,) = named(cost.estimate, "linear")
    assert 0.9 * rate < 4096 * 24576 * 1088 / 1024 / product.seconds < 1.1 * rate
    assert not product.cost.is_measured


@pytest.mark.parametrize(("rows", "share"), [(32, 0.66), (128, 0.94)])
def test_no_product_reads_faster_than_the_memory_is(rows: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows with interleaved weights get less of its rate."""
    monkeypatch.setenv("SOFTMESH_SYSTEM", "P150")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as one, ttnn.estimate(one, values=False) as cost:
        x, w = tensor(one, rows, 8192), tensor(one, 8192, 8192)
        ttnn.matmul(x, w)
    (product,) = named(cost.estimate, "matmul")
    rate = 2 * 8192 * 8192 / product.seconds
    assert 0.5 * share * 512e9 < rate <= 1.0001 * share * 512e9


def test_positions_and_page_tables_are_not_what_a_cache_moves(mesh: ttnn.MeshDevice) -> None:
    users, heads, wide = 32, 8, 128
    cache = tensor(mesh, users * 4, heads, 32, wide)
    new = ttnn.to_memory_config(tensor(mesh, 1, users, heads, wide), ttnn.L1_MEMORY_CONFIG)
    positions = ttnn.from_torch(torch.zeros(users).int(), ttnn.int32, device=mesh)
    table = ttnn.from_torch(torch.arange(users * 4).reshape(users, 4).int(), ttnn.int32, device=mesh)
    with ttnn.estimate(mesh) as cost:
        ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=positions, page_table=table)
    (update,) = named(cost.estimate, "experimental.paged_update_cache")
    assert 1e-6 < update.seconds < 10e-6  # published: 3.7 to 4.5 us


def test_the_tail_of_a_model_takes_what_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Llama-70B on a Galaxy, batch 32: head 142.7 us, topk 180 us, sampling 67.7 us of each device."""
    monkeypatch.setenv("SOFTMESH_SYSTEM", "Galaxy")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as one, ttnn.estimate(one, values=False) as cost:
        x, few = tensor(one, 1, 1, 32, 2048), tensor(one, 1, 1, 32, 256)
        w = ttnn.from_torch(torch.zeros(2048, 16384), ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=one)
        ttnn.topk(ttnn.linear(x, w), 32)
        ids = ttnn.from_torch(torch.zeros(1, 1, 32, 256).int(), ttnn.uint32, device=one)
        k, p, t = (ttnn.from_torch(torch.ones(32), dtype, device=one) for dtype in (ttnn.uint32, *[ttnn.bfloat16] * 2))
        ttnn.sampling(few, ids, k=k, p=p, temp=t)
    took = {name: sum(one.seconds for one in named(cost.estimate, name)) for name in ("linear", "topk", "sampling")}
    assert took["topk"] == pytest.approx(180e-6, rel=0.2)
    assert took["sampling"] == pytest.approx(67.7e-6, rel=0.2)
    assert sum(took.values()) == pytest.approx(390.4e-6, rel=0.2)
