"""The mapping to each era of blackhole-py, against a stand-in that records what it was asked."""

from __future__ import annotations

import pytest
import torch
from driver_cases import (
    CASES,
    PAGE,
    fresh_machine,
    identify,
    in_cpp,
    in_machine_code,
    increased,
    marked,
    shared_sum,
)
from driver_cases import ERAS as MODULES

import softmesh as ttnn
from softmesh.drivers.blackhole.boards import Identity
from softmesh.drivers.blackhole.v2026_03 import march_cards
from softmesh.drivers.blackhole.v2026_09 import september_cards
from softmesh.drivers.blackhole.v2026_09_adapter import adapter_cards
from softmesh.drivers.protocol import CircularBuffer, ProgramSpec, Scalar
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.metal.card_api import (
    all_gather,
    all_reduce,
    create_mesh_buffer,
    enqueue_mesh_workload,
    open_mesh_device,
)
from softmesh.tensor.page_bytes import to_pages

ERAS = sorted(MODULES)
march, september, adapter = (MODULES[name] for name in ("march", "september", "adapter"))
HEAP = 1 << 20


@pytest.fixture(autouse=True)
def machine():
    with fresh_machine():
        yield


@pytest.fixture(params=ERAS)
def era(request):
    return CASES[request.param]


@pytest.fixture
def chips(era):
    """What the cards of the era are made of."""
    name = next(name for name, case in CASES.items() if case is era)
    return MODULES[name].CHIPS


def calls(module, *names):
    return [call for device in module.OPEN for call in device.calls if call[0] in names]


def test_march_allocates_writes_queues_and_runs():
    card = march_cards(march, identify)(0)
    handle = card.alloc(3 * PAGE, page_size=PAGE)
    card.write(handle, bytes(3 * PAGE))
    spec = ProgramSpec(in_cpp(increased), cores=2, cbs=[CircularBuffer(0, 2048, pages=4)], name="add")
    card.wait(card.submit(card.compile(spec), [handle.address, 3, 1]), 5)
    assert calls(march, "dram.alloc", "dram_write", "queue", "run") == [
        ("dram.alloc", 3, 24),
        ("dram_write", 0x40, 3 * PAGE),
        ("queue", "add"),
        ("run", 1),
    ]
    card.close()


def test_march_holds_the_tiles_that_softmesh_made_though_it_tilises_itself():
    values = torch.arange(64 * 32, dtype=torch.float32).reshape(64, 32)
    with open_mesh_device((1, 1), drivers=march_cards(march, identify)) as mesh:
        buffer = create_mesh_buffer(mesh, global_shape=(64, 32), dtype=ttnn.float32)
        buffer.write(values)
        held = march.CHIPS[0].load(buffer.address, PAGE, 2)
        assert held == bytes(to_pages(values, buffer.spec).reshape(-1).numpy().data)
        assert torch.equal(buffer.read(), values)


def test_march_keeps_the_librarys_own_allocations_above_those_of_the_mesh():
    card = march_cards(march, identify)(0)
    card.alloc(PAGE, page_size=PAGE, address=0x40 + 8 * PAGE)
    card.alloc(PAGE, page_size=PAGE, address=0x40)
    assert march.OPEN[0].dram.next == 0x40 + 9 * PAGE
    card.close()


def test_march_writes_compile_arguments_into_the_text_of_the_kernels():
    card = march_cards(march, identify)(0)
    image = card.compile(ProgramSpec(in_cpp(marked), compile_args={"TILES": 8, "COLS": 2}))
    assert image.kernels["reader_kernel"].startswith("#define COLS 2\n#define TILES 8\nvoid")
    card.close()


def test_march_refuses_what_it_cannot_express():
    card = march_cards(march, identify)(0)
    with pytest.raises(ArgumentValueError, match="moves tiles: pages have 1024, 2048, 4096 bytes, not 96"):
        card.alloc(96, page_size=96)
    with pytest.raises(ArgumentValueError, match=r"missing \['compute', 'writer'\]"):
        card.compile(ProgramSpec({"reader": "void kernel_main() {}"}))
    image = card.compile(ProgramSpec(in_cpp(marked)))
    with pytest.raises(ArgumentValueError, match="first n of its cores"):
        card.wait(card.submit(image, [0x40, 1], cores=[card.cores[3]]), 5)
    card.close()


def test_the_raw_layer_takes_the_whole_heap_once_and_places_buffers_in_it():
    card = september_cards(september, identify, heap_bytes_per_bank=HEAP)(0)
    address = card.info.dram_base + 64 * PAGE
    handle = card.alloc(9 * 2048, page_size=2048, address=address)
    card.write(handle, bytes(range(256)) * 72)
    card.sync(5)
    assert calls(september, "alloc_interleaved_dram", "write_dram") == [
        ("alloc_interleaved_dram", 8 * HEAP, 16 * 1024),
        ("write_dram", address, 9 * 2048),
    ]
    assert september.CHIPS[0].load(address, 2048, 9) == bytes(range(256)) * 72
    card.close()


def test_the_raw_layer_moves_what_its_staging_memory_holds_at_a_time():
    card = september_cards(september, identify, heap_bytes_per_bank=HEAP, sysmem_size=8 * 2048)(0)
    handle = card.alloc(20 * 2048, page_size=2048)
    card.write(handle, bytes(range(256)) * 160)
    assert bytes(card.read(handle)) == bytes(range(256)) * 160
    written = calls(september, "write_dram")
    assert [size for _, _, size in written] == [8 * 2048, 8 * 2048, 4 * 2048]
    card.close()


def test_the_raw_layer_can_submit_through_its_command_queue():
    cards = CASES["september-queue"].cards(1)
    card = cards(0)
    handle = card.alloc(PAGE, page_size=PAGE)
    card.write(handle, bytes(PAGE))
    spec = ProgramSpec(in_machine_code(increased), cores=1)
    card.wait(card.submit(card.compile(spec), [handle.address, 1, 7]), 5)
    assert set(card.read(handle)) == {7}
    assert calls(september, "enqueue", "run") == [("enqueue", ["Run", "Signal"])]
    card.close()


def test_the_raw_layer_refuses_more_than_24_parameters_and_odd_pages():
    card = september_cards(september, identify, heap_bytes_per_bank=HEAP)(0)
    image = card.compile(ProgramSpec({"brisc": b"code"}, cores=1))
    with pytest.raises(ArgumentValueError, match="24 parameters at the most, got 25"):
        card.wait(card.submit(image, list(range(25))), 5)
    with pytest.raises(ArgumentValueError, match="multiples of 16 bytes"):
        card.alloc(100, page_size=100)
    with pytest.raises(ArgumentValueError, match="compile arguments in it already"):
        card.compile(ProgramSpec({"brisc": b"code"}, compile_args={"N": 1}))
    card.close()


def test_a_card_of_eight_banks_can_be_opened_with_seven():
    card = september_cards(september, identify, heap_bytes_per_bank=HEAP, banks=7)(0)
    handle = card.alloc(9 * 2048, page_size=2048)
    card.write(handle, bytes(range(256)) * 72)
    assert (card.info.dram_banks, handle.locate(8)) == (7, (1, handle.address + 2048))
    assert september.CHIPS[0].load(handle.address, 2048, 9, banks=7) == bytes(range(256)) * 72
    card.close()


def test_the_adapter_queues_writes_and_programs_and_runs_them():
    card = adapter_cards(adapter, identify, heap_bytes_per_bank=HEAP)(0)
    handle = card.alloc(PAGE, page_size=PAGE)
    card.write(handle, bytes(PAGE))
    spec = ProgramSpec(in_machine_code(increased), cores=1)
    card.wait(card.submit(card.compile(spec), [handle.address, 1, Scalar("step", 7)]), 5)
    assert set(card.read(handle)) == {7}
    name = f"softmesh_{handle.address:x}"
    assert calls(adapter, "init_device", "dram.buffer", "write", "queue", "run", "read") == [
        ("init_device",),
        ("dram.buffer", "softmesh", (8 * HEAP // (16 * 1024), 16 * 1024)),
        ("write", name, PAGE),
        ("run", 1),
        ("queue", {"arg0": handle.address, "arg1": 1, "step": 7}),
        ("run", 1),
        ("read", name),
    ]
    card.close()


def test_the_adapter_captures_a_trace_on_the_card_and_replays_it_there():
    card = adapter_cards(adapter, identify, heap_bytes_per_bank=HEAP)(0)
    handle = card.alloc(PAGE, page_size=PAGE)
    image = card.compile(ProgramSpec(in_machine_code(increased), cores=1))
    card.begin_trace()
    card.submit(image, [handle.address, 1, Scalar("step", 7)])
    trace = card.end_trace()
    card.wait(card.replay(trace, {"step": 2}), 5)
    assert calls(adapter, "capture_trace", "replay", "run") == [
        ("capture_trace", ["step"]),
        ("replay", {"step": 2}),
    ]
    assert set(card.read(handle)) == {2}
    card.close()


def test_the_adapter_gives_all_cores_the_same_arguments():
    card = adapter_cards(adapter, identify, heap_bytes_per_bank=HEAP)(0)
    image = card.compile(ProgramSpec(in_machine_code(marked), cores=2))
    with pytest.raises(ArgumentValueError, match="all cores have the same arguments"):
        card.wait(card.submit(image, [[0, 1], [0, 2]]), 5)
    card.close()


def test_the_exchange_of_the_adapter_moves_16_kib_vectors_both_ways():
    ends = adapter.cabled(["SM-0000", "SM-0001"])
    open_card = adapter_cards(adapter, identify, heap_bytes_per_bank=HEAP, exchange=lambda index, device: ends[index])
    with open_mesh_device((1, 2), drivers=open_card) as mesh:
        shards = create_mesh_buffer(mesh, "sharded", (64, 320), (64, 160), ttnn.float32)
        values = torch.randn(64, 320)
        shards.write(values)
        adding = ProgramSpec(in_machine_code(shared_sum), cores=4, name="sum")
        summed = all_reduce(shards, mode="fabric", program=adding)
        assert torch.equal(summed.read(), values[:, :160] + values[:, 160:])
        # 64 x 160 float32 are 40 KiB: two full vectors and a part of a third
        assert [end.count for end in ends] == [3, 3]


def test_an_adapter_card_sends_only_what_it_has_room_to_get_back():
    ends = adapter.cabled(["SM-0000", "SM-0001"])
    open_card = adapter_cards(adapter, identify, heap_bytes_per_bank=HEAP, exchange=lambda index, device: ends[index])
    card = open_card(0)
    handle = card.alloc(PAGE, page_size=PAGE)
    with pytest.raises(MeshError, match="needs a receive of as many, posted before it"):
        card.send(9, handle, 0, PAGE)
    card.close()


def test_a_board_that_blackhole_py_does_not_drive_is_refused_before_anything_is_opened():
    open_card = march_cards(march, lambda index: Identity("7", "N300"))
    with pytest.raises(ArgumentValueError, match="another board"):
        open_card(0)
    assert march.OPEN == []


def test_a_card_that_does_not_boot_is_not_left_open(monkeypatch):
    def broken(device):
        raise TimeoutError("no firmware")

    monkeypatch.setattr(september.Device, "boot", broken)
    with pytest.raises(MeshError, match="card 0, number 1 of 2, did not open: TimeoutError: no firmware"):
        open_mesh_device((1, 2), drivers=september_cards(september, identify, heap_bytes_per_bank=HEAP))
    assert september.OPEN == []


def test_a_kernel_that_times_out_makes_the_card_unusable_until_it_is_reset(era, chips):
    card = era.cards(2)(0)
    chips[0].hangs = True
    handle = card.alloc(PAGE, page_size=PAGE)
    image = card.compile(ProgramSpec(era.kernels(marked), cores=1))
    with pytest.raises(TimeoutError, match="kernel timed out"):
        card.wait(card.submit(image, [handle.address, 1]), 5)
    with pytest.raises(MeshError, match="unusable since kernel timed out; reset"):
        card.read(handle)
    chips[0].hangs = False
    card.reset()
    handle = card.alloc(PAGE, page_size=PAGE)
    card.wait(card.submit(image, [handle.address, 1]), 5)
    card.close()


def test_the_five_functions_run_on_a_mesh_of_such_cards(era):
    values = torch.randn(64, 64)
    with open_mesh_device((1, 2), drivers=era.cards(2)) as mesh:
        x = create_mesh_buffer(mesh, "sharded", (64, 64), (64, 32), ttnn.float32)
        x.write(values)
        assert torch.equal(x.read(), values)
        assert torch.equal(all_gather(x, dim=1).read(), values)
        zeros = create_mesh_buffer(mesh, "replicated", (32, 32), dtype=ttnn.uint32)
        zeros.write(torch.zeros(32, 32, dtype=torch.int64))
        program = ProgramSpec(era.kernels(increased), cores=1)
        everywhere = ttnn.MeshCoordinateRange(mesh.shape)
        enqueue_mesh_workload(mesh, {everywhere: (program, [zeros.address, 1, 1])})
        assert set(zeros.read().to(torch.int64).flatten().tolist()) == {0x01010101}
        assert torch.equal(all_reduce(x).read(), values[:, :32] + values[:, 32:])
