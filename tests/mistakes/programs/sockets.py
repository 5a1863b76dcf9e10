"""Sockets: ends that do not fit, and FIFOs that do not fit the memory."""

import os

import torch
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
    "It is the FIFO of a socket, on each core of its receiver",
    "smaller than 20971520 B, or one in ttnn.BufferType.DRAM",
    symptom="Out of L1 on the receiver, or memory of another op is written over.",
    mend="Keep FIFOs in L1 below its size; larger ones live in DRAM.",
)
def a_fifo_larger_than_l1():
    pair(L1, 20 << 20)


@mistake(
    Told.ERROR,
    "It is the FIFO of a socket",
    "smaller than 68719476736 B",
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


# -- ends and messages ---------------------------------------------------------------------------

WAITS = "The end that is left waits for ever."


def joined(fabric=ttnn.FabricConfig.FABRIC_2D, cores=((CORE, CORE),)):
    """Two meshes and the ends of a socket between them."""
    ttnn.set_fabric_config(fabric)
    meshes = [ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) for _ in range(2)]
    connections = [ttnn.SocketConnection(*ends) for ends in cores]
    config = ttnn.SocketConfig(connections, ttnn.SocketMemoryConfig(L1, 4096))
    return (*meshes, *ttnn.create_socket_pair(*meshes, config))


def put(mesh, shape=(32, 32), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT):
    return ttnn.from_torch(torch.ones(*shape), dtype, layout=layout, device=mesh)


send, receive = ttnn.experimental.send_async, ttnn.experimental.recv_async


@mistake(
    Told.ERROR,
    "Can only create multi-device sockets with fabric enabled",
    symptom=WAITS,
    mend="ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D) before the meshes are opened.",
)
def a_socket_without_a_fabric():
    joined(ttnn.FabricConfig.DISABLED)


@mistake(
    Told.ERROR,
    "Cannot reuse receiver cores in a single socket",
    symptom="Messages of two senders are mixed in one FIFO.",
    mend="A core of its own for each connection.",
)
def two_connections_that_end_at_one_core():
    joined(cores=[(CORE, CORE)] * 2)


@mistake(
    Told.ERROR,
    "it is the sender of connection 0",
    symptom=WAITS,
    mend="Coordinates count from 0 in the mesh of their own end.",
)
def a_sender_outside_of_the_mesh():
    outside = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 5), ttnn.CoreCoord(0, 0))
    joined(cores=[(outside, CORE)])


@mistake(
    Told.ERROR,
    "No core coordinate found at location 40-40",
    symptom="Packets go to a core that is none.",
    mend="A worker core of the chip.",
)
def a_core_outside_of_the_chip():
    outside = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(40, 40))
    joined(cores=[(outside, CORE)])


@mistake(
    Told.ERROR,
    "send_async op requires a SENDER socket, and this is the RECEIVER",
    symptom=WAITS,
    mend="Of create_socket_pair the first end sends.",
)
def the_receiving_end_sends():
    _, there, _, end = joined()
    send(put(there), end)


@mistake(
    Told.ERROR,
    "recv_async op requires a RECEIVER socket, and this is the SENDER",
    symptom=WAITS,
    mend="Of create_socket_pair the second end receives.",
)
def the_sending_end_receives():
    here, _, end, _ = joined()
    receive(put(here), end)


@mistake(
    Told.ERROR,
    "recv_async: nothing was sent on this socket",
    "A chip would wait for ever",
    symptom=WAITS,
    mend="Send as often as is received.",
)
def nothing_was_sent():
    _, there, _, end = joined()
    receive(put(there), end)
    ttnn.synchronize_device(there)


for name, sent, wanted in (
    ("shape", {"shape": (64, 32)}, "shape is [32, 32], sent was [64, 32]"),
    ("dtype", {"dtype": ttnn.bfloat16}, "dtype is FLOAT32, sent was BFLOAT16"),
    ("layout", {"layout": ttnn.ROW_MAJOR_LAYOUT}, "the output tensor has another spec than the one that was sent"),
):

    @mistake(
        Told.ERROR,
        wanted,
        symptom="The receiver takes pages of another size: torn values, or it waits for the rest.",
        mend="Allocate the output with the spec of what is sent.",
    )
    def program(sent=sent):
        here, there, source, target = joined()
        send(put(here, **sent), source)
        receive(put(there), target)
        ttnn.synchronize_device(there)

    program.__doc__ = f"A message of another {name} than the tensor that receives it"


@mistake(
    Told.ERROR,
    "send_async: input_tensor is on MeshDevice",
    "they must be on one mesh",
    symptom="What lies at that address of the sender's mesh is sent.",
    mend="Send tensors of the mesh that the end was made on.",
)
def a_tensor_of_the_other_mesh_is_sent():
    _, there, end, _ = joined()
    send(put(there), end)


@mistake(
    Told.WARNING,
    "nothing was written to since ttnn.empty",
    symptom="The device that no connection ends at has what its memory held before.",
    mend="A connection for each device, or read the shards that something was sent to.",
)
def a_device_without_a_connection_is_read():
    here, there, source, target = joined()
    send(put(here), source)
    got = ttnn.empty((32, 32), ttnn.float32, ttnn.TILE_LAYOUT, there)
    receive(got, target)
    ttnn.to_torch(ttnn.get_device_tensors(got)[1])


@right
def the_device_that_something_was_sent_to_is_read():
    here, there, source, target = joined()
    send(put(here), source)
    got = ttnn.empty((32, 32), ttnn.float32, ttnn.TILE_LAYOUT, there)
    receive(got, target)
    ttnn.to_torch(ttnn.get_device_tensors(got)[0])


def delivered(messages=1, **spec):
    here, there, source, target = joined()
    for _ in range(messages):
        send(put(here, **spec), source)
        got = put(there, **spec)
        receive(got, target)
        ttnn.synchronize_device(there)
        ttnn.to_torch(ttnn.get_device_tensors(got)[0])


for name, spec in (
    ("of tiles", {}),
    ("of rows", {"layout": ttnn.ROW_MAJOR_LAYOUT}),
    ("in bfloat16", {"dtype": ttnn.bfloat16}),
    ("larger than its FIFO", {"shape": (512, 512)}),
    ("three times", {"messages": 3}),
):

    @right
    def program(spec=spec):
        delivered(**spec)

    program.__doc__ = f"A message {name}"


@right
def two_connections_of_two_devices():
    devices = [ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, n), ttnn.CoreCoord(0, 0)) for n in range(2)]
    here, there, source, target = joined(cores=[(one, one) for one in devices])
    send(put(here), source)
    receive(put(there), target)
    ttnn.synchronize_device(there)


# -- transfers in traces -----------------------------------------------------------------------------


def traced_pipeline():
    """A trace that sends, and one that receives."""
    here, there, source, target = joined()
    x, got = put(here), put(there)
    send(x, source)
    receive(got, target)
    ttnn.synchronize_device(there)
    sending = ttnn.begin_trace_capture(here, cq_id=0)
    send(x, source)
    ttnn.end_trace_capture(here, sending, cq_id=0)
    receiving = ttnn.begin_trace_capture(there, cq_id=0)
    receive(got, target)
    ttnn.end_trace_capture(there, receiving, cq_id=0)
    return here, there, sending, receiving, x, got


@mistake(
    Told.ERROR,
    "send_async",
    "never ends",
    symptom="A replay of the sender waits for ever for room in the FIFO.",
    mend="Replay the trace that receives as often as the one that sends.",
)
def a_trace_that_sends_is_replayed_alone():
    here, _there, sending, _receiving, _x, _got = traced_pipeline()
    for _ in range(2):
        ttnn.execute_trace(here, sending, cq_id=0, blocking=True)


@mistake(
    Told.ERROR,
    "recv_async: message 2 of this socket was never sent: 1 sent, 1 received",
    symptom=WAITS,
    mend="Replay the trace that sends as well.",
)
def a_trace_that_receives_is_replayed_alone():
    _here, there, _sending, receiving, _x, _got = traced_pipeline()
    ttnn.execute_trace(there, receiving, cq_id=0, blocking=True)


@right
def a_trace_that_sends_and_one_that_receives():
    here, there, sending, receiving, x, got = traced_pipeline()
    for value in (2.0, 3.0):
        host = ttnn.from_torch(torch.full((32, 32), value), ttnn.float32, layout=ttnn.TILE_LAYOUT)
        ttnn.copy_host_to_device_tensor(host, x)
        ttnn.execute_trace(here, sending, cq_id=0, blocking=False)
        ttnn.execute_trace(there, receiving, cq_id=0, blocking=False)
        assert ttnn.to_torch(ttnn.get_device_tensors(got)[0])[0, 0] == value


@mistake(
    Told.ERROR,
    "cannot be shared: other users may open it (mode 666)",
    symptom="Another user of the host reads what is sent, or feeds what is received.",
    mend="Choose a name that nobody can guess, or remove the file.",
)
def a_socket_in_memory_that_every_user_can_open():
    path = f"/dev/shm/softmesh_socket_mistakes{os.getpid()}"
    handle = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.fchmod(handle, 0o666)
        ttnn.H2DSocket.connect(f"mistakes{os.getpid()}", timeout_ms=1)
    finally:
        os.close(handle)
        os.unlink(path)
