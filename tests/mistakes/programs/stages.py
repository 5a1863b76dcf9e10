"""Stages of a pipeline, each of them a rank with a mesh of its own: messages that do not meet."""

import time

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

LOST = "The FIFO holds it for ever; a few messages later the sender waits for ever, and no rank says for what."
WAITS = "Both stages wait for ever, and no rank says for whom."
CORE = ttnn.CoreCoord(0, 0)
send, receive = ttnn.experimental.send_async, ttnn.experimental.recv_async


def joined(mesh, sender=0, receiver=1, fifo=4096):
    """Every device is connected with its counterpart."""
    ends = [ttnn.MeshCoreCoord(coord, CORE) for coord in ttnn.MeshCoordinateRange(mesh.shape)]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, fifo)
    connections = [ttnn.SocketConnection(end, end) for end in ends]
    return ttnn.MeshSocket(mesh, ttnn.SocketConfig(connections, memory, sender_rank=sender, receiver_rank=receiver))


def put(mesh, width=32, value=1.0):
    return ttnn.from_torch(torch.full((32, width), value), layout=ttnn.TILE_LAYOUT, device=mesh)


def read(tensor):
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


def forward(mesh, stage, sent, received, width=32, pause=0.0):
    """So many micro-batches from one stage to the next, which takes its time."""
    socket = joined(mesh)
    time.sleep(pause * stage)
    if stage == 0:
        for number in range(sent):
            send(put(mesh, width, float(number)), socket)
    else:
        for _ in range(received):
            arrived = ttnn.allocate_tensor_on_device(put(mesh, width).spec, mesh)
            receive(arrived, socket)
            read(ttnn.relu(arrived))


@mistake(
    Told.WARNING,
    "the end of the program: 1 sent",
    "and never received",
    "ttnn.experimental.recv_async(tensor, socket) there once for each",
    symptom=LOST,
    mend="Receive once for each micro-batch that is sent.",
)
def the_last_micro_batch_is_not_received(mesh, stage):
    forward(mesh, stage, 3, 2)


@mistake(
    Told.WARNING,
    "the end of the program: 1 sent",
    "and never received",
    symptom="Gradients of the last micro-batch are lost, or the stage behind waits for ever at its exit.",
    mend="Receive the gradients of every micro-batch before the step ends.",
)
def the_last_gradient_is_not_received(mesh, stage):
    ahead, back = joined(mesh), joined(mesh, 1, 0)
    for number in range(2):
        if stage == 0:
            send(put(mesh), ahead)
            if number == 0:
                receive(put(mesh), back)
        else:
            receive(put(mesh), ahead)
            send(put(mesh), back)


@mistake(
    Told.REPORT,
    "rank 0 sent 2 messages to rank 1 and has finished its program",
    "rank 1 took 2 and waits for one more in recv_async from rank 0",
    symptom="The stage that receives waits for ever.",
    mend="Send as often as is received.",
)
def one_micro_batch_more_is_received_than_sent(mesh, stage):
    forward(mesh, stage, 2, 3)


@mistake(
    Told.REPORT,
    "rank 0 waits for rank 1, rank 1 waits for rank 0",
    "let one side of each pair receive before it sends",
    symptom=WAITS,
    mend="One stage receives first, or the FIFOs hold what is under way.",
)
def both_stages_send_before_they_receive(mesh, stage):
    ahead, back = joined(mesh), joined(mesh, 1, 0)
    mine, other = (ahead, back) if stage == 0 else (back, ahead)
    arrived = put(mesh, 4096)
    send(put(mesh, 4096), mine)
    receive(arrived, other)
    read(arrived)


@right
def every_micro_batch_is_received(mesh, stage):
    forward(mesh, stage, 4, 4)


@right
def a_micro_batch_is_larger_than_its_fifo(mesh, stage):
    forward(mesh, stage, 2, 2, width=4096)


@mistake(
    Told.REPORT,
    "rank 0 waits in send_async to rank 1",
    "rank 1 finished its program",
    symptom="The stage that sends waits for ever: the FIFO is smaller than the message.",
    mend="Receive once for each micro-batch that is sent.",
)
def a_large_micro_batch_is_not_received(mesh, stage):
    forward(mesh, stage, 1, 0, width=8192)


@right
def the_second_stage_goes_on_when_the_first_has_ended(mesh, stage):
    forward(mesh, stage, 2, 2, pause=1.5)


@right
def gradients_come_back_for_every_micro_batch(mesh, stage):
    ahead, back = joined(mesh), joined(mesh, 1, 0)
    for _ in range(3):
        arrived = put(mesh)
        if stage == 0:
            send(put(mesh), ahead)
            receive(arrived, back)
        else:
            receive(arrived, ahead)
            send(ttnn.multiply(arrived, 2.0), back)
        read(arrived)


@right
def stages_send_small_messages_before_they_receive(mesh, stage):
    ahead, back = joined(mesh), joined(mesh, 1, 0)
    mine, other = (ahead, back) if stage == 0 else (back, ahead)
    arrived = put(mesh)
    send(put(mesh), mine)
    receive(arrived, other)
    read(arrived)


@right
def two_sockets_carry_keys_and_values(mesh, stage):
    for socket in (joined(mesh), joined(mesh)):
        arrived = put(mesh)
        if stage == 0:
            send(arrived, socket)
        else:
            receive(arrived, socket)
            read(arrived)
