"""Kernels: packets to other chips."""

from catalogue import Told, mistake, right
from kernel_launches import BYTES, fill, line, pages_of, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    L1Pointer,
    NocUnicastAtomicIncCommandHeader,
    NocUnicastCommandHeader,
    PacketHeaderPool,
    WorkerToFabricEdmSender,
    cb_reserve_back,
    cb_wait_front,
    fabric_unicast_noc_unicast_atomic_inc,
    fabric_unicast_noc_unicast_write,
    get_noc_addr,
    get_read_ptr,
    get_semaphore,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_semaphore_set,
    noc_semaphore_wait,
    noc_semaphore_wait_min,
)

ENDS = ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1)


def connected(mesh, kernels, *, links=(0,)):
    """A program on each of two neighbours; the first has a connection to the second, on each of these links."""
    workload = metal.MeshWorkload()
    for place, kernel in zip(ENDS, kernels, strict=True):
        program, words = metal.CreateProgram(), []
        handle = metal.CreateKernel(program, kernel, line(1), metal.WriterDataMovementConfig())
        config = metal.CircularBufferConfig(2 * BYTES, {0: ttnn.bfloat16}).set_page_size(0, BYTES)
        metal.CreateCircularBuffer(program, line(1), config)
        metal.CreateSemaphore(program, line(1), 0)
        if place == ENDS[0]:
            nodes = [mesh.get_fabric_node_id(end) for end in ENDS]
            for link in links:
                metal.append_fabric_connection_rt_args(*nodes, link, program, ttnn.CoreCoord(0, 0), words)
        metal.SetRuntimeArgs(program, handle, ttnn.CoreCoord(0, 0), words)
        workload.add_program(ttnn.MeshCoordinateRange(place, place), program)
    metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


def sent(mesh, *, received, own_semaphore=False, closes=True):
    """Two tiles go to the neighbour, each with a signal; `received(semaphore, tensor)` runs there."""
    target = tiles(mesh, 0.0)
    semaphore = ttnn.create_global_semaphore(mesh, line(1), 0)

    def address():
        return get_semaphore(0) if own_semaphore else ttnn.get_global_semaphore_address(semaphore)

    def sender():
        connection = WorkerToFabricEdmSender.build_from_args(0)
        connection.open()
        fill()
        cb_wait_front(0, 1)
        header = PacketHeaderPool.allocate_header()
        for page in range(2):
            there = NocUnicastCommandHeader(pages_of(target).get_noc_addr(page))
            fabric_unicast_noc_unicast_write(connection, header, get_read_ptr(0), BYTES, there, 1)
            signal = NocUnicastAtomicIncCommandHeader(get_noc_addr(address()), 1)
            fabric_unicast_noc_unicast_atomic_inc(connection, header, signal, 1)
        if closes:
            connection.close()

    connected(mesh, (sender, lambda: received(address(), target)))


def bring_two(tensor):
    cb_reserve_back(0, 2)
    for page in range(2):
        noc_async_read_tile(page, pages_of(tensor), get_write_ptr(0) + page * BYTES)
    noc_async_read_barrier()
    L1Pointer(get_write_ptr(0))[0:8]


@mistake(
    Told.WARNING,
    "reads page 0 of the DRAM buffer",
    "neither has waited for the other",
    symptom="The other chip works on what the tensor held before.",
    mend="Let the receiver wait for a global semaphore that the sender raises behind its packets.",
)
def a_packet_is_not_waited_for(mesh):
    sent(mesh, received=lambda semaphore, tensor: bring_two(tensor))


@mistake(
    Told.WARNING,
    "reads page 1 of the DRAM buffer",
    "neither has waited for the other",
    symptom="The last tiles are the old ones, where the link is slow.",
    mend="Wait for as many signals as are sent.",
)
def fewer_packets_are_waited_for_than_are_read(mesh):
    sent(mesh, received=lambda semaphore, tensor: (noc_semaphore_wait_min(semaphore, 1), bring_two(tensor)))


@right
def all_packets_are_waited_for(mesh):
    sent(mesh, received=lambda semaphore, tensor: (noc_semaphore_wait_min(semaphore, 2), bring_two(tensor)))


@right
def the_count_of_packets_is_set_back_once_all_are_there(mesh):
    sent(
        mesh,
        received=lambda semaphore, tensor: (
            noc_semaphore_wait(semaphore, 2),
            noc_semaphore_set(semaphore, 0),
            bring_two(tensor),
        ),
    )


@mistake(
    Told.ERROR,
    "The program is stuck",
    "the signal may be overwritten",
    symptom="The job hangs on some runs: a packet came before the receiver had begun.",
    mend="Set the semaphore back behind the last wait, or from the host: another chip may begin earlier.",
)
def a_receiver_clears_its_semaphore_at_the_start(mesh):
    def received(semaphore, tensor):
        noc_semaphore_set(semaphore, 0)
        noc_semaphore_wait_min(semaphore, 2)
        bring_two(tensor)

    sent(mesh, received=received)


@mistake(
    Told.WARNING,
    "is raised from another chip",
    "ttnn.create_global_semaphore",
    symptom="The job hangs on some runs: the start of the other chip's program sets the signal back.",
    mend="Use ttnn.create_global_semaphore.",
)
def a_semaphore_of_the_program_counts_packets(mesh):
    sent(
        mesh,
        received=lambda semaphore, tensor: (noc_semaphore_wait_min(semaphore, 2), bring_two(tensor)),
        own_semaphore=True,
    )


@mistake(
    Told.WARNING,
    "is open still",
    "Call close()",
    symptom="The next program that sends over this link hangs.",
    mend="Call close() of each connection before the kernel ends.",
)
def a_connection_is_left_open(mesh):
    sent(
        mesh,
        received=lambda semaphore, tensor: (noc_semaphore_wait_min(semaphore, 2), bring_two(tensor)),
        closes=False,
    )


@right
def two_programs_use_one_link_in_turn(mesh):
    for _ in range(2):
        all_packets_are_waited_for(mesh)


def announced(mesh, *, over):
    """A tile goes over the first of two links, and the signal over this one of them."""
    target = tiles(mesh, 0.0)
    semaphore = ttnn.create_global_semaphore(mesh, line(1), 0)
    address = ttnn.get_global_semaphore_address(semaphore)

    def sender():
        first = WorkerToFabricEdmSender.build_from_args(0)
        connections = first, WorkerToFabricEdmSender.build_from_args(first.args_end)
        for connection in connections:
            connection.open()
        fill()
        cb_wait_front(0, 1)
        for page in range(2):
            there = NocUnicastCommandHeader(pages_of(target).get_noc_addr(page))
            header = PacketHeaderPool.allocate_header()
            fabric_unicast_noc_unicast_write(connections[0], header, get_read_ptr(0), BYTES, there, 1)
        signal = NocUnicastAtomicIncCommandHeader(get_noc_addr(address), 1)
        fabric_unicast_noc_unicast_atomic_inc(connections[over], PacketHeaderPool.allocate_header(), signal, 1)
        for connection in connections:
            connection.close()

    def receiver():
        noc_semaphore_wait(address, 1)
        noc_semaphore_set(address, 0)
        bring_two(target)

    connected(mesh, (sender, receiver), links=(0, 1))


@mistake(
    Told.WARNING,
    "while a packet of kernel sender",
    "packets keep their order on one link only",
    symptom="Now and then the last tiles are the old ones: the signal was faster than the data.",
    mend="Send the signal over the link of the data, behind it or in one packet with it.",
)
def data_and_signal_go_over_two_links(mesh):
    announced(mesh, over=1)


@right
def data_and_signal_go_over_one_link(mesh):
    announced(mesh, over=0)


def opened(mesh, use):
    connected(mesh, (lambda: use(WorkerToFabricEdmSender.build_from_args(0)), lambda: None))


@mistake(
    Told.WARNING,
    "is not open, and on a chip close() waits for ever",
    symptom="The sender never ends.",
    mend="Call open() before the first packet, and close() once behind the last.",
)
def a_connection_is_closed_twice(mesh):
    opened(mesh, lambda connection: (connection.open(), connection.close(), connection.close()))


@mistake(
    Told.WARNING,
    "is open already: call open() once",
    symptom="The link counts two senders where there is one, and packets are lost or stuck.",
    mend="Open each connection once, before the loop.",
)
def a_connection_is_opened_twice(mesh):
    opened(mesh, lambda connection: (connection.open(), connection.open(), connection.close()))


@right
def a_connection_is_opened_again_once_it_was_closed(mesh):
    opened(mesh, lambda connection: [(connection.open(), connection.close()) for _ in range(2)])
