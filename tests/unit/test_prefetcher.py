"""Prefetchers steer hardware: what is asked of them is checked and kept, and results are the same without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import softmesh as ttnn

X = ttnn.experimental
SENDERS = [(bank, ttnn.CoreRangeSet([ttnn.CoreRange((bank, 0), (bank, 1))])) for bank in range(2)]


@pytest.fixture
def blackhole(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.use_system("P150")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh


def weight(mesh: ttnn.MeshDevice, **more: Any) -> ttnn.Tensor:
    return ttnn.from_torch(torch.ones(64, 64), layout=ttnn.TILE_LAYOUT, device=mesh, dtype=ttnn.bfloat16, **more)


def config(**changes: Any) -> ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig:
    sizes: dict[str, Any] = {
        "compute_with_storage_grid_size": ttnn.CoreCoord(2, 1),
        "in0_block_w": 1,
        "out_subblock_h": 1,
        "out_subblock_w": 1,
        "per_core_M": 1,
        "per_core_N": 2,
        "fuse_batch": True,
        "mcast_in0": False,
        "gather_in0": True,
    }
    return ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(**{**sizes, **changes})


class Names:
    """The names of all commands."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_command(self, command: ttnn.Command) -> None:
        self.seen.append(command.name)


def test_a_buffer_takes_memory_of_its_receivers_and_knows_its_banks(device):
    before = device.lowest_occupied_compute_l1_address()
    buffer = X.create_global_circular_buffer_for_tensor_prefetcher(device, SENDERS, 4096)
    assert isinstance(buffer, ttnn.GlobalCircularBuffer)
    assert device.lowest_occupied_compute_l1_address() != before
    assert buffer.size() == 4096
    assert [sender for sender, _ in buffer.sender_receiver_core_mapping()] == [(0, 0), (1, 0)]
    assert buffer.all_cores().num_cores() == buffer.receiver_cores().num_cores() == 4


@pytest.mark.parametrize(
    ("senders", "size", "message"),
    [
        ([], 64, "names no bank"),
        ([(99, SENDERS[0][1])], 64, r"bank 99 is none of the 12 DRAM banks"),
        ([SENDERS[0], SENDERS[0]], 64, "bank 0-0 stands in bank_to_receivers twice"),
        ([SENDERS[0], (1, SENDERS[0][1])], 64, "receiver 0-0 stands in bank_to_receivers twice"),
    ],
)
def test_buffers_refuse_banks_and_receivers_that_cannot_be(device, senders, size, message):
    with pytest.raises(RuntimeError, match=message):
        X.create_global_circular_buffer_for_tensor_prefetcher(device, senders, size)


def test_buffers_refuse_what_is_no_list_of_banks_or_no_size(device):
    make = X.create_global_circular_buffer_for_tensor_prefetcher
    with pytest.raises(TypeError, match=r"bank_to_receivers\[0\] must be a pair"):
        make(device, [3], 64)
    with pytest.raises(TypeError, match="size counts bytes and must be positive"):
        make(device, SENDERS, 0)
    with pytest.raises(RuntimeError, match="can only be created for L1"):
        make(device, SENDERS, 64, ttnn.BufferType.DRAM)
    with pytest.raises(TypeError, match=r"no argument 'sizes'\. Did you mean 'size'"):
        make(device, SENDERS, sizes=64)


def test_a_buffer_for_matmuls_must_hold_a_block_of_each_weight(device):
    make = X.create_global_circular_buffer_for_matmul_1d
    with pytest.raises(RuntimeError, match=r"a block of weights\[0\] takes 4096 bytes on a core \(1 x 2 tiles\)"):
        make(device, [config()], [weight(device)], SENDERS, 4095)
    with pytest.raises(RuntimeError, match="give one for each"):
        make(device, [config()], [], SENDERS, 4096)
    with pytest.raises(RuntimeError, match="is 2 tiles high, which blocks of in0_block_w=3 do not divide"):
        make(device, [config(in0_block_w=3)], [weight(device)], SENDERS, 4096)
    buffer = make(device, [config()], [weight(device)], SENDERS, 4096)
    assert X.tensor_prefetcher_block_count_for_matmul_1d(config(), weight(device), buffer) == 2


def test_a_matmul_with_a_prefetcher_is_the_matmul_without(blackhole):
    assert X.is_tensor_prefetcher_supported(blackhole)
    buffer = X.create_global_circular_buffer_for_tensor_prefetcher(blackhole, SENDERS, 8192)
    a, b = weight(blackhole), weight(blackhole)
    with ttnn.observe(Names()) as names:
        X.start_tensor_prefetcher(blackhole, ordinary_mpfe_weight=1)
        X.queue_tensor_prefetcher_request(blackhole, [(b, 2), (b, 2, [0, 1])], buffer)
        X.wait_for_cq_on_tensor_prefetcher(blackhole, 0)
        ahead = ttnn.matmul(a, b, global_cb=buffer)
        X.stop_tensor_prefetcher(blackhole)
    assert torch.equal(ttnn.to_torch(ahead), ttnn.to_torch(ttnn.matmul(a, b)))
    steps = [name for name in names.seen if "prefetcher" in name]
    assert [step.removeprefix("experimental.") for step in steps] == [
        "start_tensor_prefetcher",
        "queue_tensor_prefetcher_request",
        "wait_for_cq_on_tensor_prefetcher",
        "stop_tensor_prefetcher",
    ]


def test_chips_without_cores_at_their_banks_have_no_tensor_prefetcher(device):
    assert not X.is_tensor_prefetcher_supported(device)
    with pytest.raises(RuntimeError, match=r"WORMHOLE_B0 has no cores that send from DRAM"):
        X.start_tensor_prefetcher(device)


def test_nobody_asks_a_prefetcher_that_does_not_run(blackhole):
    buffer = X.create_global_circular_buffer_for_tensor_prefetcher(blackhole, SENDERS, 8192)
    for call in (
        lambda: X.queue_tensor_prefetcher_request(blackhole, [(weight(blackhole), 1)], buffer),
        lambda: X.wait_for_cq_on_tensor_prefetcher(blackhole),
        lambda: X.stop_tensor_prefetcher(blackhole),
    ):
        with pytest.raises(RuntimeError, match="does not run"):
            call()
    X.start_tensor_prefetcher(blackhole)
    with pytest.raises(RuntimeError, match="runs already"):
        X.start_tensor_prefetcher(blackhole)
    X.stop_tensor_prefetcher(blackhole)
    X.start_tensor_prefetcher(blackhole)


def test_requests_are_checked_one_by_one(blackhole):
    buffer = X.create_global_circular_buffer_for_tensor_prefetcher(blackhole, SENDERS, 8192)
    X.start_tensor_prefetcher(blackhole)
    good, near = weight(blackhole), weight(blackhole, memory_config=ttnn.L1_MEMORY_CONFIG)

    def ask(*entries: Any, **more: Any) -> None:
        X.queue_tensor_prefetcher_request(blackhole, list(entries), more.pop("global_cb", buffer), **more)

    with pytest.raises(TypeError, match="tensors must be a list of"):
        ask()
    with pytest.raises(TypeError, match=r"tensors\[0\] must be \(tensor, number of blocks\)"):
        ask(good)
    with pytest.raises(RuntimeError, match=r"tensors\[1\] is sent in 0 blocks"):
        ask((good, 1), (good, 0))
    with pytest.raises(RuntimeError, match=r"the rotation \[2\] of tensors\[0\] leaves its 2 blocks"):
        ask((good, 2, [2]))
    with pytest.raises(RuntimeError, match="it is fetched from DRAM"):
        ask((near, 1))
    with pytest.raises(RuntimeError, match="lies on the host"):
        ask((ttnn.from_torch(torch.ones(32, 32)), 1))
    with pytest.raises(TypeError, match="global_cb must be a buffer"):
        ask((good, 1), global_cb=None)
    with pytest.raises(ttnn.NotModelled, match="prefetcher_pipes"):
        ask((good, 1), prefetcher_pipes=[object()])
    with pytest.raises(RuntimeError, match="no trace is being captured"):
        ask((good, 1), capture_into_trace=True)
    outside = ttnn.MeshCoordinateRangeSet(
        ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 3))
    )
    with pytest.raises(RuntimeError, match=r"which .* does not have"):
        ask((good, 1), device_subset=outside)


def test_whoever_reads_a_buffer_that_nobody_fills_is_told(blackhole):
    buffer = X.create_global_circular_buffer_for_tensor_prefetcher(blackhole, SENDERS, 8192)
    sent, other = weight(blackhole), weight(blackhole)
    X.start_tensor_prefetcher(blackhole)
    with pytest.raises(RuntimeError, match="waits for ever"):
        X.test_dram_prefetcher_consumer(blackhole, 2, 64, global_cb=buffer)
    X.queue_tensor_prefetcher_request(blackhole, [(sent, 1)], buffer)
    with pytest.raises(RuntimeError, match="is none of those that were sent"):
        X.test_dram_prefetcher_validator(blackhole, other, 1, 1, global_cb=buffer)
    with pytest.raises(RuntimeError, match="of at most 8192 bytes"):
        X.test_dram_prefetcher_consumer(blackhole, 1, 8193, global_cb=buffer)
    X.test_dram_prefetcher_validator(blackhole, sent, 1, 1, global_cb=buffer)
    with pytest.raises(RuntimeError, match="waits for ever"):
        X.test_dram_prefetcher_consumer(blackhole, 2, 64, global_cb=buffer)


def test_the_dram_prefetcher_gives_a_tensor_to_deallocate(mesh):
    core = ttnn.CoreRangeSet([ttnn.CoreRange((1, 0), (1, 0))])
    buffer = ttnn.create_global_circular_buffer(mesh, [(ttnn.CoreCoord(0, 0), core)], 4096)
    addresses = ttnn.from_torch(torch.zeros(1, 4).int(), dtype=ttnn.uint32, device=mesh)
    weights = [weight(mesh), weight(mesh)]
    with ttnn.observe(Names()) as names:
        done = ttnn.dram_prefetcher([*weights, addresses], 3, buffer, enable_performance_mode=True)
    assert "dram_prefetcher" in names.seen
    assert done.device() is mesh
    ttnn.deallocate(done)
    with pytest.raises(RuntimeError, match="num_layers must be 1 or more"):
        ttnn.dram_prefetcher([*weights, addresses], 0, buffer)
    with pytest.raises(TypeError, match="tensors must be a list"):
        ttnn.dram_prefetcher([], 1, buffer)
    with pytest.raises(TypeError, match="global_cb must be a buffer"):
        ttnn.dram_prefetcher([*weights, addresses], 1)


def test_the_dram_prefetcher_may_be_part_of_a_trace(idle_machine: None) -> None:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=1 << 20) as mesh:
        core = ttnn.CoreRangeSet([ttnn.CoreRange((1, 0), (1, 0))])
        buffer = ttnn.create_global_circular_buffer(mesh, [(ttnn.CoreCoord(0, 0), core)], 4096)
        addresses = ttnn.from_torch(torch.zeros(1, 4).int(), dtype=ttnn.uint32, device=mesh)
        first = ttnn.from_torch(torch.ones(64, 64), ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=mesh)
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        done = ttnn.dram_prefetcher([first, addresses], 2, buffer)
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        ttnn.execute_trace(mesh, trace, cq_id=0)
        assert (tuple(done.shape), done.dtype, done.layout) == ((32, 32), ttnn.bfloat8_b, ttnn.TILE_LAYOUT)
        ttnn.release_trace(mesh, trace)


def test_a_delay_for_each_device_changes_nothing_and_is_told(mesh):
    class Delays:
        seen: Any = None

        def on_command(self, command: ttnn.Command) -> None:
            if command.name == "apply_device_delay":
                self.seen = command.arguments["delays"]

    with ttnn.observe(Delays()) as delays:
        ttnn.apply_device_delay(mesh, [[0, 1, 2, 3], [4, 5, 6, 7]])
    assert delays.seen == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(RuntimeError, match=r"got rows of \[4\]"):
        ttnn.apply_device_delay(mesh, [[0, 1, 2, 3]])
    with pytest.raises(RuntimeError, match="0 or more"):
        ttnn.apply_device_delay(mesh, [[0, 1, 2, 3], [4, 5, 6, -7]])
    with pytest.raises(TypeError, match=r"delays\[0\]"):
        ttnn.apply_device_delay(mesh, [7])
