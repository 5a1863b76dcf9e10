"""Sockets: ends that do not fit, and FIFOs that do not fit the memory."""

from catalogue import Told, mistake, right

import softmesh as ttnn

L1, DRAM = ttnn.BufferType.L1, ttnn.BufferType.DRAM
CORE = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))


def pair(storage, fifo_size):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    meshes = [ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) for _ in range(2)]
    memory = ttnn.SocketMemoryConfig(storage, fifo_size)
    return ttnn.create_socket_pair(*meshes, ttnn.SocketConfig([ttnn.SocketConnection(CORE, CORE)], memory))


@mistake(
    Told.ERROR,
    "must hold at least one packet: fifo_size=16 B is less than 1024 B",
    symptom="The first send waits for ever for room.",
    mend="A FIFO holds at least one page of what is sent.",
)
def a_fifo_that_holds_no_packet():
    pair(L1, 16)


@mistake(
    Told.ERROR,
    "Out of Memory: Not enough space to allocate",
    symptom="Out of L1 on the receiver, or memory of another op is written over.",
    mend="Keep FIFOs in L1 below its size; larger ones live in DRAM.",
)
def a_fifo_larger_than_l1():
    pair(L1, 20 << 20)


@mistake(
    Told.ERROR,
    "Out of Memory: Not enough space to allocate",
    symptom="Out of DRAM on the receiver.",
    mend="A FIFO needs room for a few messages, not for all.",
)
def a_fifo_larger_than_dram():
    pair(DRAM, 64 << 30)


@mistake(
    Told.ERROR,
    "Socket FIFOs live in L1 or DRAM, not in TRACE",
    symptom="The runtime stops, or traces are written over.",
    mend="BufferType.L1, or BufferType.DRAM for large ones.",
)
def a_fifo_in_the_memory_of_traces():
    pair(ttnn.BufferType.TRACE, 4096)


for storage, size in ((L1, 4096), (L1, 1 << 20), (DRAM, 20 << 20), (DRAM, 64 << 20)):

    @right
    def program(storage=storage, size=size):
        pair(storage, size)

    program.__doc__ = f"A FIFO of {size >> 10} KiB in {storage.name}"
