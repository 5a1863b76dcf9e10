"""Kernels that speak to other chips: over real links, in order, with credits, and only where there is a way."""

from __future__ import annotations

import pytest
import torch
from kernel_programs import CORE, add_cb

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    L1Pointer,
    MulticastRoutingCommandHeader,
    NocUnicastAtomicIncCommandHeader,
    NocUnicastAtomicIncFusedCommandHeader,
    NocUnicastCommandHeader,
    NocUnicastInlineWriteCommandHeader,
    NocUnicastScatterCommandHeader,
    PacketHeaderPool,
    WorkerToFabricEdmSender,
    cb_reserve_back,
    fabric_multicast_noc_fused_unicast_with_atomic_inc,
    fabric_multicast_noc_unicast_atomic_inc,
    fabric_multicast_noc_unicast_write,
    fabric_set_mcast_route,
    fabric_set_unicast_route,
    fabric_unicast_noc_fused_unicast_with_atomic_inc,
    fabric_unicast_noc_scatter_write,
    fabric_unicast_noc_unicast_atomic_inc,
    fabric_unicast_noc_unicast_inline_write,
    fabric_unicast_noc_unicast_write,
    get_noc_addr,
    get_semaphore,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_page,
    noc_async_write_barrier,
    noc_async_write_tile,
    noc_semaphore_wait_min,
)
from softmesh.kernels.engine.scheduler import KernelsStuck

CORES = ttnn.CoreRangeSet([ttnn.CoreRange(CORE, CORE)])
SENDS = ttnn.MeshCoordinate(0, 0)

pytestmark = pytest.mark.usefixtures("idle_machine")


def open_mesh(*shape, config=ttnn.FabricConfig.FABRIC_1D, system=None):
    ttnn.use_system(system)
    ttnn.set_fabric_config(config)
    return ttnn.open_mesh_device(ttnn.MeshShape(*shape))


def numbers(mesh, pages=4):
    """Row-major words, a row of 16 to a page, zero on all devices."""
    return ttnn.from_torch(torch.zeros(pages, 16, dtype=torch.int32), dtype=ttnn.uint32, device=mesh)


def found_on(tensor):
    return [ttnn.to_torch(each)[:, 0].tolist() for each in ttnn.get_device_tensors(tensor)]


def send(mesh, kernel, to, *, link=0, strict=None, others=None, semaphore=False, at=SENDS):
    """Run `kernel(connection)` on one device, connected towards another; `others` on all the others."""
    workload = metal.MeshWorkload()
    for place in mesh.shape.coordinates():
        if place == at:
            function = connected(kernel)
        elif others is not None:
            function = others
        else:
            continue
        program = metal.CreateProgram(strict=strict)
        handle = metal.CreateKernel(program, function, CORE, metal.WriterDataMovementConfig())
        add_cb(program, 0, 80, page_size=64, dtype=ttnn.uint32)
        if semaphore:
            metal.CreateSemaphore(program, CORE, 0)
        if place == at:
            words = []
            ends = (mesh.get_fabric_node_id(each) for each in (at, ttnn.MeshCoordinate(to)))
            metal.append_fabric_connection_rt_args(*ends, link, program, CORE, words)
            metal.SetRuntimeArgs(program, handle, CORE, words)
        workload.add_program(ttnn.MeshCoordinateRange(place, place), program)
    metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


def connected(kernel):
    def opens():
        connection = WorkerToFabricEdmSender.build_from_args(0)
        assert connection.args_end == 5
        connection.open()
        cb_reserve_back(0, 80)
        L1Pointer(get_write_ptr(0))[0:64] = 7
        kernel(connection)
        connection.close()

    opens.__name__ = getattr(kernel, "__name__", "kernel")
    return opens


def page_of(tensor, page):
    return InterleavedAddrGen(tensor.buffer_address(), 64).get_noc_addr(page)


def test_a_packet_is_written_on_the_chip_so_many_hops_away():
    with open_mesh(1, 4) as mesh:
        tensor = numbers(mesh)

        def kernel(connection):
            header = PacketHeaderPool.allocate_header()
            for hops in (1, 3):
                there = NocUnicastCommandHeader(page_of(tensor, hops))
                fabric_unicast_noc_unicast_write(connection, header, get_write_ptr(0), 64, there, hops)

        send(mesh, kernel, (0, 1))
        assert found_on(tensor) == [[0] * 4, [0, 7, 0, 0], [0] * 4, [0, 0, 0, 7]]


def test_a_multicast_is_written_on_chips_in_a_row():
    with open_mesh(4, 1) as mesh:
        tensor = numbers(mesh)

        def kernel(connection):
            header = PacketHeaderPool.allocate_header()
            there = NocUnicastCommandHeader(page_of(tensor, 0))
            fabric_multicast_noc_unicast_write(connection, header, get_write_ptr(0), 64, there, 2, 2)

        send(mesh, kernel, (1, 0))
        assert [each[0] for each in found_on(tensor)] == [0, 0, 7, 7]


def test_a_semaphore_of_another_chip_is_raised_behind_the_data():
    seen = {}
    with open_mesh(1, 3) as mesh:
        tensor = numbers(mesh)
        semaphore = ttnn.create_global_semaphore(mesh, CORES, 0)
        arrived = ttnn.get_global_semaphore_address(semaphore)

        def kernel(connection):
            header = PacketHeaderPool.allocate_header()
            both = NocUnicastAtomicIncFusedCommandHeader(page_of(tensor, 2), get_noc_addr(arrived), 1)
            fabric_multicast_noc_fused_unicast_with_atomic_inc(connection, header, get_write_ptr(0), 64, both, 1, 2)
            one = NocUnicastAtomicIncCommandHeader(get_noc_addr(arrived), 4)
            fabric_multicast_noc_unicast_atomic_inc(connection, header, one, 1, 2)
            fabric_unicast_noc_unicast_atomic_inc(connection, header, one, 1)
            again = NocUnicastAtomicIncFusedCommandHeader(page_of(tensor, 1), get_noc_addr(arrived), 1)
            fabric_unicast_noc_fused_unicast_with_atomic_inc(connection, header, get_write_ptr(0), 64, again, 2)

        def others():
            noc_semaphore_wait_min(arrived, 5)
            cb_reserve_back(0, 1)
            noc_async_read_page(2, InterleavedAddrGen(tensor.buffer_address(), 64), get_write_ptr(0))
            noc_async_read_barrier()
            seen[len(seen)] = L1Pointer(get_write_ptr(0))[0]

        send(mesh, kernel, (0, 1), others=others, strict=True)
        assert seen == {0: 7, 1: 7}


def test_words_and_pieces_travel_too():
    with open_mesh(1, 2) as mesh:
        tensor = numbers(mesh)
        semaphore = ttnn.create_global_semaphore(mesh, CORES, 0)
        cells = ttnn.get_global_semaphore_address(semaphore)

        def kernel(connection):
            header = PacketHeaderPool.allocate_header()
            L1Pointer(get_write_ptr(0) + 64)[0:16] = 9
            pieces = NocUnicastScatterCommandHeader([page_of(tensor, 3), page_of(tensor, 1)], [64])
            fabric_unicast_noc_scatter_write(connection, header, get_write_ptr(0), 128, pieces, 1)
            word = NocUnicastInlineWriteCommandHeader(get_noc_addr(cells), 6)
            fabric_unicast_noc_unicast_inline_write(connection, header, word, 1)

        send(mesh, kernel, (0, 1), others=lambda: noc_semaphore_wait_min(cells, 6))
        assert found_on(tensor) == [[0] * 4, [0, 9, 0, 7]]


def test_a_two_dimensional_fabric_finds_its_way_around_the_corner():
    with open_mesh(2, 4, config=ttnn.FabricConfig.FABRIC_2D, system="T3000") as mesh:
        tensor = numbers(mesh, 1)
        corner = mesh.get_fabric_node_id(ttnn.MeshCoordinate(1, 3))

        def kernel(connection):
            header = PacketHeaderPool.allocate_header()
            fabric_set_unicast_route(header, corner.chip_id, int(corner.mesh_id))
            connection.wait_for_empty_write_slot()
            connection.send_payload_without_header_non_blocking_from_address(get_write_ptr(0), 64)
            header.to_noc_unicast_write(NocUnicastCommandHeader(page_of(tensor, 0)), 64)
            connection.send_payload_flush_blocking_from_address(header)

        send(mesh, kernel, (1, 3))
        assert found_on(tensor) == [[0]] * 7 + [[7]]


def test_a_tree_of_a_two_dimensional_fabric_reaches_a_rectangle():
    with open_mesh(4, 4, config=ttnn.FabricConfig.FABRIC_2D) as mesh:
        tensor = numbers(mesh, 1)

        def kernel(connection):
            header = PacketHeaderPool.allocate_header()
            fabric_set_mcast_route(header, 0, 0, e_num_hops=1, w_num_hops=1, n_num_hops=0, s_num_hops=2)
            header.to_noc_unicast_write(NocUnicastCommandHeader(page_of(tensor, 0)), 64)
            connection.wait_for_empty_write_slot()
            connection.send_payload_without_header_non_blocking_from_address(get_write_ptr(0), 64)
            connection.send_payload_flush_non_blocking_from_address(header)

        send(mesh, kernel, (2, 1), at=ttnn.MeshCoordinate(0, 1))
        reached = [i for i, (value,) in enumerate(found_on(tensor)) if value]
        assert reached == [4, 5, 6, 8, 9, 10]


def refused(mesh, kernel, message, to=(0, 1), error=ttnn.MeshError, **options):
    with pytest.raises(error, match=message):
        send(mesh, kernel, to, **options)


def one_packet(tensor, hops, size=64):
    def kernel(connection):
        there = NocUnicastCommandHeader(page_of(tensor, 0))
        header = PacketHeaderPool.allocate_header()
        fabric_unicast_noc_unicast_write(connection, header, get_write_ptr(0), size, there, hops)

    return kernel


def test_a_line_ends_where_its_links_do_and_a_ring_does_not():
    with open_mesh(1, 4) as mesh:
        refused(mesh, one_packet(numbers(mesh), 4), r"A packet cannot go E from M0D3 on link 0: there are 0 links")
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    with open_mesh(1, 4, config=ttnn.FabricConfig.FABRIC_1D_RING) as mesh:
        tensor = numbers(mesh)
        send(mesh, one_packet(tensor, 4), (0, 1))
        assert [each[0] for each in found_on(tensor)] == [7, 0, 0, 0]


def test_there_are_as_many_links_as_the_machine_has():
    with open_mesh(2, 4, system="T3000") as mesh:
        tensor = numbers(mesh)
        send(mesh, one_packet(tensor, 1), (0, 1), link=1)
        message = r"Requested link index 2 is out of bounds. 2 ethernet channels available"
        refused(mesh, one_packet(tensor, 1), message, link=2)


def test_a_one_dimensional_fabric_has_no_way_around_a_corner():
    with open_mesh(2, 4) as mesh:
        refused(mesh, one_packet(numbers(mesh), 1), r"M0D0.*M0D5", to=(1, 1))


def test_speaking_to_other_chips_needs_a_fabric():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        refused(mesh, one_packet(numbers(mesh), 1), "Trying to get un-initialized fabric context")


def test_a_packet_carries_so_much_and_no_more():
    with open_mesh(1, 2) as mesh:
        message = r"A packet carries at most 4352 bytes, got 4416: send it in pieces"
        refused(mesh, one_packet(numbers(mesh), 1, size=4416), message)


def test_packets_need_credits():
    with open_mesh(1, 2) as mesh:
        tensor = numbers(mesh)

        def greedy(connection):
            header = PacketHeaderPool.allocate_header().to_chip_unicast(1)
            header.to_noc_unicast_write(NocUnicastCommandHeader(page_of(tensor, 0)), 64)
            for _ in range(9):
                connection.send_payload_without_header_non_blocking_from_address(get_write_ptr(0), 64)
                connection.send_payload_flush_non_blocking_from_address(header)

        refused(mesh, greedy, r"link 0 E of device \(0, 0\) has no free slot: call wait_for_empty_write_slot\(\)")

        def patient(connection):
            header = PacketHeaderPool.allocate_header()
            for i in range(30):
                L1Pointer(get_write_ptr(0))[0] = i
                there = NocUnicastCommandHeader(page_of(tensor, 0))
                fabric_unicast_noc_unicast_write(connection, header, get_write_ptr(0), 64, there, 1)

        send(mesh, patient, (0, 1))
        assert found_on(tensor)[1][0] == 29


def test_a_header_says_where_to_and_what_for():
    with open_mesh(1, 2) as mesh:

        def empty(connection):
            connection.send_payload_flush_non_blocking_from_address(PacketHeaderPool.allocate_header())

        refused(mesh, empty, "A packet header needs a way .* and a command")

        def short(connection):
            header = PacketHeaderPool.allocate_header()
            header.to_chip_multicast(MulticastRoutingCommandHeader(1, 1))
            header.to_noc_unicast_write(NocUnicastCommandHeader(0), 64)
            connection.send_payload_flush_non_blocking_from_address(header)

        refused(mesh, short, "The header announces a payload of 64 bytes, and 0 were handed over")


def test_one_worker_holds_a_link_at_a_time():
    with open_mesh(1, 2) as mesh:
        program = metal.CreateProgram()
        cores = ttnn.CoreRange((0, 0), (1, 0))
        words = []
        ends = [mesh.get_fabric_node_id(place) for place in mesh.shape.coordinates()]
        metal.append_fabric_connection_rt_args(*ends, 0, program, CORE, words)

        def kernel():
            WorkerToFabricEdmSender.build_from_args(0).open()

        handle = metal.CreateKernel(program, kernel, cores, metal.WriterDataMovementConfig())
        metal.SetRuntimeArgs(program, handle, cores, words)
        workload = metal.MeshWorkload()
        workload.add_program(ttnn.MeshCoordinateRange(SENDS, SENDS), program)
        message = r"in use by kernel kernel \(BRISC\) on core 0-0 .* one worker holds a link"
        with pytest.raises(ttnn.MeshError, match=message):
            metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


def test_the_words_of_connections_can_be_had_without_a_program():
    with open_mesh(1, 3) as mesh:
        near, *far = (mesh.get_fabric_node_id(place) for place in mesh.shape.coordinates())
        wanted = ttnn.setup_routing_plane_connection(
            near, far, [0], ttnn.ProgramDescriptor(), kernel_idx=0, worker_core=CORE
        )
        got = ttnn.compute_fabric_connection_rt_args(near, far, [0], [0, 1], [2, 3])
        assert got == wanted
        assert len(got) == ttnn.fabric_connection_rt_args_size(2)
        with_addresses = ttnn.compute_fabric_connection_rt_args(
            near, far, [0], [99_000, 99_016], [99_032, 99_048], sem_args_are_l1_addresses=True
        )
        assert with_addresses == wanted
        with pytest.raises(TypeError, match="teardown_sem_args must have one semaphore for each of 2 dst_nodes"):
            ttnn.compute_fabric_connection_rt_args(near, far, [0], [0], [2, 3])
        with pytest.raises(TypeError, match="buffer_index_sem_args are ids of semaphores, 0 to 15, got 99000"):
            ttnn.compute_fabric_connection_rt_args(near, far, [0], [0, 1], [2, 99_000])


def test_a_connection_belongs_to_its_device():
    with open_mesh(1, 3) as mesh:
        words = []
        ends = [mesh.get_fabric_node_id(ttnn.MeshCoordinate(0, i)) for i in (1, 2)]
        program = metal.CreateProgram()
        metal.append_fabric_connection_rt_args(*ends, 0, program, CORE, words)
        kernel = lambda: WorkerToFabricEdmSender.build_from_args(0)  # noqa: E731
        handle = metal.CreateKernel(program, kernel, CORE, metal.WriterDataMovementConfig())
        metal.SetRuntimeArgs(program, handle, CORE, words)
        workload = metal.MeshWorkload()
        workload.add_program(ttnn.MeshCoordinateRange(SENDS, SENDS), program)
        with pytest.raises(ttnn.MeshError, match="The connection is one of M0D1, and the kernel runs on M0D0"):
            metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


def test_a_program_that_turns_out_to_speak_to_others_starts_again_device_by_device():
    """Nobody said so beforehand: the words of the connection were written by hand."""
    with open_mesh(1, 2, config=ttnn.FabricConfig.FABRIC_1D_RING) as mesh:
        tensor = numbers(mesh)
        started = []

        def kernel():
            started.append(1)
            connected(one_packet(tensor, 1))()

        program = metal.CreateProgram()
        handle = metal.CreateKernel(program, kernel, CORE, metal.WriterDataMovementConfig())
        add_cb(program, 0, 80, page_size=64, dtype=ttnn.uint32)
        metal.SetRuntimeArgs(program, handle, CORE, [0, 0, 0, 1, 0])
        workload = metal.MeshWorkload()
        workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program)
        with pytest.raises(ttnn.MeshError, match="The connection is one of M0D0, and the kernel runs on M0D1"):
            metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)
        assert len(started) == 3


def test_a_packet_to_memory_of_nobody_names_its_sender():
    with open_mesh(1, 2) as mesh:

        def lost(connection):
            header = PacketHeaderPool.allocate_header()
            there = NocUnicastCommandHeader(get_noc_addr(0, 0, 12345))
            fabric_unicast_noc_unicast_write(connection, header, get_write_ptr(0), 64, there, 1)

        message = r"DRAM address 12345 belongs to no live buffer.*\[a packet of kernel lost \(BRISC\) on core 0-0 of"
        refused(mesh, lost, message)


def test_a_program_semaphore_is_not_for_another_chip():
    with open_mesh(1, 2) as mesh:

        def raises(connection):
            one = NocUnicastAtomicIncCommandHeader(get_noc_addr(get_semaphore(0)), 1)
            fabric_unicast_noc_unicast_atomic_inc(connection, PacketHeaderPool.allocate_header(), one, 1)

        waits = lambda: noc_semaphore_wait_min(get_semaphore(0), 1)  # noqa: E731
        with pytest.warns(ttnn.SoftmeshWarning, match="use ttnn.create_global_semaphore"):
            send(mesh, raises, (0, 1), others=waits, semaphore=True)
        refused(mesh, raises, "use ttnn.create_global_semaphore", others=waits, semaphore=True, strict=True)


def test_devices_that_wait_for_each_other_are_all_in_the_report():
    with open_mesh(1, 3) as mesh:
        semaphore = ttnn.create_global_semaphore(mesh, CORES, 0)
        arrived = ttnn.get_global_semaphore_address(semaphore)

        def waits():
            noc_semaphore_wait_min(arrived, 1)

        with pytest.raises(KernelsStuck) as caught:
            send(mesh, lambda connection: waits(), (0, 1), others=waits)
        assert [one.device for one in caught.value.blocked] == [
            "device (0, 0)",
            "device (0, 1)",
            "device (0, 2)",
        ]
        assert f"noc_semaphore_wait_min(address {arrived}, 1), it is 0" in str(caught.value)


def test_a_packet_reaches_a_device_in_the_range_of_another_program():
    """The program of the three others would run once for all of them: it must see what came to one."""
    with open_mesh(1, 4) as mesh:
        tensor, result = numbers(mesh), numbers(mesh)
        semaphore = ttnn.create_global_semaphore(mesh, CORES, 0)
        arrived = ttnn.get_global_semaphore_address(semaphore)

        def send_two(connection):
            header = PacketHeaderPool.allocate_header()
            for hops in (1, 3):
                place = NocUnicastCommandHeader(page_of(tensor, 0))
                fabric_unicast_noc_unicast_write(connection, header, get_write_ptr(0), 64, place, hops)
            one = NocUnicastAtomicIncCommandHeader(get_noc_addr(arrived), 1)
            fabric_multicast_noc_unicast_atomic_inc(connection, header, one, 1, 3)

        def pass_on():
            noc_semaphore_wait_min(arrived, 1)
            cb_reserve_back(0, 80)
            noc_async_read_page(0, InterleavedAddrGen(tensor.buffer_address(), 64), get_write_ptr(0))
            noc_async_read_barrier()
            noc_async_write_tile(1, InterleavedAddrGen(result.buffer_address(), 64), get_write_ptr(0))
            noc_async_write_barrier()

        workload = metal.MeshWorkload()
        others = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 1), ttnn.MeshCoordinate(0, 3))
        words = []
        for place, function in (
            (ttnn.MeshCoordinateRange(SENDS, SENDS), connected(send_two)),
            (others, pass_on),
        ):
            program = metal.CreateProgram()
            handle = metal.CreateKernel(program, function, CORE, metal.WriterDataMovementConfig())
            add_cb(program, 0, 80, page_size=64, dtype=ttnn.uint32)
            if not words:
                ends = (mesh.get_fabric_node_id(each) for each in (SENDS, ttnn.MeshCoordinate(0, 1)))
                metal.append_fabric_connection_rt_args(*ends, 0, program, CORE, words)
                metal.SetRuntimeArgs(program, handle, CORE, words)
            workload.add_program(place, program)
        metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)
        assert [row[0] for row in found_on(tensor)] == [0, 7, 0, 7]
        assert [row[1] for row in found_on(result)] == [0, 7, 0, 7]
