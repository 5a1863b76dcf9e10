"""Planted faults: each ends in one error that names the card, and leaves the others as documented."""

from __future__ import annotations

import gc

import pytest
import torch

import softmesh as ttnn
from softmesh.drivers.byte_card import ByteCard, Fault, FaultKind
from softmesh.drivers.protocol import ProgramSpec
from softmesh.drivers.rack import byte_rack
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.metal.card_api import (
    Timeouts,
    all_gather,
    all_reduce,
    create_mesh_buffer,
    enqueue_mesh_workload,
    open_mesh_device,
)
from softmesh.metal.card_mesh import CardsError, CardsTimeout
from softmesh.systems.chip import N300, P100, P150

BRIEF = Timeouts(transfer=0.6, run=0.6)
VALUES = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64)
PIECES = [VALUES[:32, :32], VALUES[:32, 32:], VALUES[32:, :32], VALUES[32:, 32:]]
THE_THIRD = r"card \(1, 0\), serial SM-0002, index 2: "
OTHERS = [0, 1, 3]


def quarters(mesh):
    buffer = create_mesh_buffer(mesh, "sharded", (64, 64), (32, 32), ttnn.float32)
    buffer.write(VALUES)
    return buffer


def negated(core):
    address, pages = core.args
    held = core.pages(address, 4096)
    for page in range(pages):
        held[page] = (-torch.frombuffer(held[page], dtype=torch.float32)).numpy().tobytes()


def negating(mesh, buffer, **options):
    everywhere = ttnn.MeshCoordinateRange(mesh.shape)
    work = (ProgramSpec({"compute": negated}, cores=1), [buffer.address, buffer.num_pages])
    return enqueue_mesh_workload(mesh, {everywhere: work}, **options)


def open_with(*faults, on=2, **options):
    return open_mesh_device((2, 2), drivers=byte_rack(4, faults={on: faults}), **options)


def test_a_program_that_hangs_names_its_card_and_makes_the_mesh_unusable():
    with open_with(Fault("run", FaultKind.HANG), timeouts=BRIEF) as mesh:
        buffer = quarters(mesh)
        with pytest.raises(CardsTimeout, match=THE_THIRD + "TimeoutError: program 'program' did not finish") as caught:
            negating(mesh, buffer)
        assert [failure.serial for failure in caught.value.failures] == ["SM-0002"]
        assert "the other 3 cards have been waited for" in str(caught.value)
        assert [card.info.serial for card in mesh.failed] == ["SM-0002"]
        for call in (buffer.read, lambda: quarters(mesh), lambda: negating(mesh, buffer), mesh.synchronize):
            with pytest.raises(MeshError, match=r"unusable since card .* SM-0002"):
                call()


def test_the_other_cards_have_run_to_their_end_and_answer_their_drivers():
    with open_with(Fault("run", FaultKind.HANG), timeouts=BRIEF) as mesh:
        buffer = quarters(mesh)
        with pytest.raises(CardsTimeout):
            negating(mesh, buffer)
        for rank in OTHERS:
            card = mesh.cards[rank]
            card.driver.sync(1)
            held = torch.frombuffer(bytearray(card.driver.read(buffer.memory.handles[card])), dtype=torch.float32)
            assert torch.equal(held[:16], -PIECES[rank][0, :16])


def test_a_reset_makes_the_mesh_usable_without_its_buffers():
    with open_with(Fault("run", FaultKind.HANG), timeouts=BRIEF) as mesh:
        buffer = quarters(mesh)
        with pytest.raises(CardsTimeout):
            negating(mesh, buffer)
        mesh.reset()
        assert mesh.failed == []
        with pytest.raises(MeshError, match="from before the mesh was reset"):
            buffer.read()
        assert not buffer.is_allocated
        anew = quarters(mesh)
        assert anew.address == buffer.address
        assert torch.equal(anew.read(), VALUES)


def test_cards_of_a_failed_mesh_can_be_opened_without_the_one_that_hangs():
    rack = byte_rack(4, faults={2: [Fault("run", FaultKind.HANG)]})
    with open_mesh_device((2, 2), drivers=rack, timeouts=BRIEF) as mesh, pytest.raises(CardsTimeout):
        negating(mesh, quarters(mesh))
    with open_mesh_device((1, 3), [0, 1, 3], drivers=rack) as smaller:
        buffer = create_mesh_buffer(smaller, "sharded", (32, 96), (32, 32), ttnn.float32)
        buffer.write(VALUES[:32, :32].repeat(1, 3))
        negating(smaller, buffer)
        assert torch.equal(buffer.read(), -VALUES[:32, :32].repeat(1, 3))


def test_work_that_nobody_waited_for_fails_where_it_is_waited_for():
    with open_with(Fault("run", FaultKind.HANG), timeouts=BRIEF) as mesh:
        work = negating(mesh, quarters(mesh), blocking=False)
        assert not work.done()
        with pytest.raises(CardsTimeout, match=THE_THIRD):
            work.wait()


def written_and_read(buffer):
    buffer.write(VALUES)
    return buffer.read()


@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_transfer_that_hangs_makes_the_mesh_unusable(operation):
    with open_with(Fault(operation, FaultKind.HANG), timeouts=BRIEF) as mesh:
        buffer = create_mesh_buffer(mesh, "sharded", (64, 64), (32, 32), ttnn.float32)
        with pytest.raises(CardsTimeout, match=THE_THIRD):
            written_and_read(buffer)
        assert [card.rank for card in mesh.failed] == [2]


def test_a_short_read_is_an_error_and_marks_nothing():
    with open_with(Fault("read", FaultKind.SHORT)) as mesh:
        buffer = quarters(mesh)
        with pytest.raises(CardsError, match=THE_THIRD + "OSError: a read of 4096 bytes came short: 2048") as caught:
            buffer.read()
        assert "All 4 cards are still usable" in str(caught.value)
        assert mesh.failed == []
        for rank in OTHERS:
            assert torch.equal(buffer.read_shard(mesh.cards[rank].coordinate), PIECES[rank])


def test_a_short_read_in_an_all_reduce_leaves_every_shard_as_it_was():
    with open_with(Fault("read", FaultKind.SHORT, after=0), on=3) as mesh:
        buffer = quarters(mesh)
        with pytest.raises(CardsError, match="SM-0003"):
            all_reduce(buffer)
        for rank in (0, 1, 2):
            assert torch.equal(buffer.read_shard(mesh.cards[rank].coordinate), PIECES[rank])


def test_an_allocation_that_fails_on_one_card_is_undone_on_the_others():
    with open_with(Fault("alloc", FaultKind.REFUSE, after=1)) as mesh:
        first = quarters(mesh)
        with pytest.raises(CardsError, match=THE_THIRD + "MemoryError: alloc failed"):
            quarters(mesh)
        assert mesh.failed == []
        assert torch.equal(first.read(), VALUES)
        others = [mesh.cards[rank].driver for rank in OTHERS]
        after_first = {driver.alloc(4096, page_size=4096).address for driver in others}
        assert after_first == {first.address + 4096}


def test_addresses_stay_the_same_on_all_cards_after_a_failed_allocation():
    with open_with(Fault("alloc", FaultKind.REFUSE, after=1), on=0) as mesh:
        first = quarters(mesh)
        with pytest.raises(CardsError, match="SM-0000"):
            quarters(mesh)
        assert mesh.pool("dram").statistics().total_allocated_bytes == 4096
        assert first.is_allocated


def test_a_kernel_that_raises_names_card_and_core_and_leaves_all_usable():
    def broken(core):
        raise ZeroDivisionError("by nought")

    with open_mesh_device((2, 2), drivers=byte_rack(4)) as mesh:
        buffer = quarters(mesh)
        bad = ttnn.MeshCoordinate(1, 0)
        ranges = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1))
        good = (ProgramSpec({"compute": negated}, cores=1), [buffer.address, 1])
        with pytest.raises(CardsError, match=THE_THIRD + r"MeshError: compute of program 'bad' on core \(0, 0\)"):
            enqueue_mesh_workload(mesh, {ranges: good, bad: ProgramSpec({"compute": broken}, cores=1, name="bad")})
        assert torch.equal(buffer.read(), torch.cat([-VALUES[:32], VALUES[32:]]))


def test_a_program_that_one_card_refuses_still_ends_on_the_others_before_the_error():
    with open_mesh_device((2, 2), drivers=byte_rack(4)) as mesh:
        buffer = quarters(mesh)
        bad = ttnn.MeshCoordinate(1, 0)
        top = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1))
        good = (ProgramSpec({"compute": negated}, cores=1), [buffer.address, 1])
        with pytest.raises(CardsError, match=THE_THIRD + "ArgumentError: the compute of program 'text'"):
            enqueue_mesh_workload(mesh, {top: good, bad: ProgramSpec({"compute": "C++"}, name="text")})
        assert torch.equal(buffer.read()[:32], -VALUES[:32])


def test_a_card_that_does_not_open_closes_those_before_it():
    rack = byte_rack(4, faults={2: [Fault("open", FaultKind.REFUSE)]})
    with pytest.raises(
        MeshError, match=r"card 2, number 3 of 4, did not open: OSError.*The 2 opened before it are closed"
    ):
        open_mesh_device((2, 2), drivers=rack)
    with open_mesh_device((1, 3), [0, 1, 3], drivers=rack) as mesh:
        assert mesh.num_devices == 3


def test_a_card_that_does_not_close_is_named_and_the_others_are_closed():
    rack = byte_rack(4, faults={2: [Fault("close", FaultKind.REFUSE)]})
    mesh = open_mesh_device((2, 2), drivers=rack)
    with pytest.raises(CardsError, match=THE_THIRD):
        mesh.close()
    mesh.close()
    with open_mesh_device((1, 3), [0, 1, 3], drivers=rack) as smaller:
        assert smaller.num_devices == 3


def test_an_error_in_the_block_is_not_hidden_by_one_in_closing():
    with (
        pytest.raises(KeyError, match="mine"),
        open_with(Fault("close", FaultKind.REFUSE)),
    ):
        raise KeyError("mine")


def test_boards_with_different_bank_counts_are_refused_with_both_numbers():
    chips = {2: P150._replace(dram_banks=7, kind="p100")}
    rack = byte_rack(4, chips=chips)
    with pytest.raises(
        MeshError,
        match=r"card \(1, 0\), serial SM-0002, index 2 \(p100\) has dram_banks=7, and card \(0, 0\).*has 8",
    ):
        open_mesh_device((2, 2), drivers=rack)
    with open_mesh_device((2, 2), drivers=rack, dram_banks=7) as mesh:
        buffer = create_mesh_buffer(mesh, "sharded", (640, 64), (320, 32), ttnn.float32)
        values = torch.randn(640, 64)
        buffer.write(values)
        assert {handle.banks for handle in buffer.memory.handles.values()} == {7}
        assert torch.equal(all_reduce(buffer, "fabric").read(), sum_of_quarters(values))


def sum_of_quarters(values):
    height, width = values.shape[0] // 2, values.shape[1] // 2
    parts = [part for rows in values.split(height) for part in rows.split(width, 1)]
    return ((parts[0] + parts[1]) + parts[2]) + parts[3]


@pytest.mark.parametrize(("chip", "what"), [(N300, "arch"), (P100._replace(dram_banks=8), "core_grid")])
def test_cards_that_differ_otherwise_are_refused(chip, what):
    rack = byte_rack(2, chips={1: chip})
    with pytest.raises(MeshError, match=f"serial SM-0001.* has {what}="):
        open_mesh_device((1, 2), drivers=rack)
    with open_mesh_device((1, 1), [1], drivers=rack) as mesh:
        assert mesh.num_devices == 1


def test_capacity_is_that_of_the_smallest_card():
    small = P150._replace(dram_bank_bytes=P150.dram_reserved_bytes + 8 * 4096)
    with open_mesh_device((1, 2), drivers=byte_rack(2, chips={1: small})) as mesh:
        held = create_mesh_buffer(mesh, "replicated", (32 * 8, 32 * 4), dtype=ttnn.float32)
        with pytest.raises(
            MeshError, match="Out of Memory: Not enough space to allocate 163840 B DRAM buffer"
        ) as caught:
            create_mesh_buffer(mesh, "replicated", (32 * 8, 32 * 5), dtype=ttnn.float32)
        assert "test_driver_faults.py" in str(caught.value)
        held.deallocate()
        create_mesh_buffer(mesh, "replicated", (32 * 8, 32 * 8), dtype=ttnn.float32)


def test_a_buffer_that_nobody_holds_gives_its_memory_back():
    small = P150._replace(dram_bank_bytes=P150.dram_reserved_bytes + 8 * 4096)
    with open_mesh_device((1, 2), drivers=byte_rack(2, chips={1: small})) as mesh:
        for _ in range(3):
            create_mesh_buffer(mesh, "replicated", (32 * 8, 32 * 8), dtype=ttnn.float32)
            gc.collect()


def test_a_missing_cable_is_named_and_the_host_still_serves():
    with open_mesh_device((1, 4), drivers=byte_rack(4, without_cables=[1])) as mesh:
        buffer = create_mesh_buffer(mesh, "sharded", (32, 128), (32, 32), ttnn.float32)
        values = torch.randn(32, 128)
        buffer.write(values)
        missing = r"no link from card \(0, 1\), serial SM-0001.* to card \(0, 2\), serial SM-0002.*mode='host'"
        with pytest.raises(MeshError, match="(?s)" + missing):
            all_reduce(buffer, mode="fabric")
        with pytest.raises(MeshError, match="(?s)" + missing):
            all_gather(buffer, mode="fabric", dim=1)
        assert torch.equal(all_gather(buffer, mode="host", dim=1).read(), values)


def test_a_cable_that_only_one_end_sees_is_not_used():
    with open_mesh_device((1, 2), drivers=byte_rack(2, blind_ports={1: [0]})) as mesh:
        buffer = create_mesh_buffer(mesh, "replicated", (32, 32))
        told = r"SM-0000, index 0 says that its port 1 is cabled to port 0 of card \(0, 1\).*which says nothing"
        with pytest.raises(MeshError, match="(?s)" + told):
            all_reduce(buffer, mode="fabric")


def test_a_transfer_whose_other_end_never_posts_times_out_and_marks_the_card():
    rack = byte_rack(2)
    cards = [rack(0), rack(1)]
    handle = cards[0].alloc(4096)
    event = cards[0].send(1, handle, 0, 4096)
    with pytest.raises(TimeoutError, match="a send of 4096 bytes from port 1 of SM-0000"):
        cards[0].wait(event, 0.05)
    with pytest.raises(MeshError, match="unusable"):
        cards[0].alloc(64)
    cards[0].reset()
    cards[0].alloc(64)
    for card in cards:
        card.close()


def test_a_transfer_that_breaks_off_inside_a_collective_makes_the_mesh_unusable():
    """Card 2 cannot read what it should send: it is named, and so is card 3, to which nothing comes."""
    faults = {2: [Fault("read", FaultKind.REFUSE)]}
    with open_mesh_device((2, 2), drivers=byte_rack(4, faults=faults), timeouts=BRIEF) as mesh:
        buffer = quarters(mesh)
        with pytest.raises(CardsTimeout, match="step 1 around the ring failed on") as caught:
            all_reduce(buffer, mode="fabric")
        assert [failure.serial for failure in caught.value.failures] == ["SM-0002", "SM-0003"]
        assert "OSError: read failed by a planted fault" in str(caught.value)
        with pytest.raises(MeshError, match="unusable"):
            buffer.read()
        mesh.reset()
        assert mesh.failed == []


def test_ends_of_a_cable_that_post_different_sizes_both_hear_of_it():
    rack = byte_rack(2)
    cards = [rack(0), rack(1)]
    handles = [card.alloc(4096) for card in cards]
    events = [cards[0].send(1, handles[0], 0, 4096), cards[1].recv(0, handles[1], 0, 2048)]
    for card, event in zip(cards, events, strict=True):
        with pytest.raises(MeshError, match=r"a send of 4096 bytes .* met a receive of 2048 bytes"):
            card.wait(event, 1)
        card.close()


@pytest.mark.parametrize("mode", ["host", "fabric"])
def test_ranks_stay_with_the_cards_when_the_bus_numbers_them_in_reverse(mode):
    found = {}
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        rack = byte_rack(4, pcie_order=order)
        with open_mesh_device((2, 2), drivers=rack) as mesh:
            buffer = create_mesh_buffer(mesh, "sharded", (64, 64), (32, 32), ttnn.bfloat16)
            buffer.write(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)))
            assert [card.info.serial for card in mesh.cards] == [f"SM-000{n}" for n in range(4)]
            assert mesh.get_device_ids() == order
            held = {card.info.serial: buffer.read_shard(card.coordinate) for card in mesh.cards}
            found[tuple(order)] = (held, all_reduce(buffer, mode).read())
    (held, summed), (held_reversed, summed_reversed) = found.values()
    assert all(torch.equal(held[serial], held_reversed[serial]) for serial in held)
    assert torch.equal(summed, summed_reversed)


def test_cards_named_by_the_caller_sit_in_the_order_of_their_names():
    with open_mesh_device((2, 2), [3, 1, 0, 2], drivers=byte_rack(4)) as mesh:
        assert mesh.get_device_ids() == [3, 1, 0, 2]
        assert mesh.card(ttnn.MeshCoordinate(1, 0)).info.serial == "SM-0000"


def test_two_cards_with_one_serial_are_refused():
    def open_card(index):
        return ByteCard(index, "twin")

    with pytest.raises(MeshError, match="two cards say that they are twin"):
        open_mesh_device((1, 2), drivers=open_card)


def test_a_fault_of_an_operation_that_no_card_has_is_refused():
    with pytest.raises(ArgumentValueError, match="the operations of a card are"):
        ByteCard(0, "SM-0000", faults=[Fault("fly", FaultKind.HANG)])
