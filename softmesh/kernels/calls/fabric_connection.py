"""Speaking to other chips: connections to the fabric, and the ways of packets over them.

A kernel that opens a connection runs for each device by itself. The 1-D calls count hops in the direction
of the connection; with a 2-D fabric `fabric_set_unicast_route` names the chip.
"""

from __future__ import annotations

import torch

from softmesh.errors import MeshError
from softmesh.kernels.engine.thread import DevicesDiffer, KernelThread, mover
from softmesh.kernels.fabric.connection import WORDS, ConnectionWords
from softmesh.kernels.fabric.link import Link
from softmesh.kernels.fabric.packets import PacketHeader, ToDevice, Tree
from softmesh.kernels.fabric.ways import ways_of


class WorkerToFabricEdmSender:
    """A worker's connection to the fabric, towards one neighbour on one link."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._payload: torch.Tensor | None = None
        self.args_end = 0  # the index after its words in the kernel's arguments

    @classmethod
    def build_from_args(cls, arg_idx: int) -> WorkerToFabricEdmSender:
        """From the runtime arguments that the host's `append_fabric_connection_rt_args` gave, from `arg_idx` on."""
        thread = mover("WorkerToFabricEdmSender.build_from_args")
        given = thread.args[arg_idx : arg_idx + WORDS]
        if len(given) < WORDS:
            raise MeshError(
                f"build_from_args({arg_idx}): {thread.kernel.name} has {len(thread.args)} runtime arguments here. On "
                "the host, append_fabric_connection_rt_args or ttnn.setup_fabric_connection gives the words of a "
                "connection."
            )
        made = cls(_link(thread, ConnectionWords(*given)))
        made.args_end = arg_idx + WORDS
        return made

    def open(self) -> None:
        self._link.open(mover("open"))

    def close(self) -> None:
        """Wait until everything has been sent, and leave the link to others."""
        self._link.wait_until_sent(mover("close"))
        self._link.close()

    def wait_for_empty_write_slot(self) -> None:
        self._link.wait_for_slot(mover("wait_for_empty_write_slot"))

    def send_payload_without_header_non_blocking_from_address(
        self, source_address: int, size_bytes: int
    ) -> None:
        """The payload of the packet whose header is sent next."""
        thread = mover("send_payload_without_header_non_blocking_from_address")
        if size_bytes > self._link.max_payload:
            raise MeshError(
                f"A packet carries at most {self._link.max_payload} bytes, got {size_bytes}: send it in pieces, or set "
                "max_packet_payload_size_bytes of the fabric's router config."
            )
        self._payload = thread.core.read(int(source_address), size_bytes)

    def send_payload_flush_non_blocking_from_address(self, header: PacketHeader, size_bytes: int = 0) -> None:
        """Send the header, and the payload that was handed over before it."""
        thread = mover("send_payload_flush_non_blocking_from_address")
        payload, self._payload = self._payload, None
        if header.route is None or header.command is None:
            raise MeshError(
                "A packet header needs a way (to_chip_...) and a command (to_noc_...) before it is sent."
            )
        sent = 0 if payload is None else payload.shape[-1]
        if sent != header.payload_size:
            raise MeshError(
                f"The header announces a payload of {header.payload_size} bytes, and {sent} were handed over."
            )
        self._send(thread, header, payload)

    def send_payload_flush_blocking_from_address(self, header: PacketHeader, size_bytes: int = 0) -> None:
        """The same, and wait until it has left."""
        self.send_payload_flush_non_blocking_from_address(header, size_bytes)
        self._link.wait_until_sent(mover("send_payload_flush_blocking_from_address"))

    def _send(self, thread: KernelThread, header: PacketHeader, payload: torch.Tensor | None) -> None:
        assert header.route is not None
        assert header.command is not None
        command, link = header.command, self._link
        src = link.ways.node(thread.core.chip.box.place.start)
        places = [link.ways.device(node) for node in header.route.targets(link, src)]
        chip = thread.core.chip
        chips = [chip.fleet.device(place, chip.is_strict) for place in places]

        def deliver() -> None:
            for target in chips:
                command.carry_out(target, payload)

        link.send(thread, deliver)


def _link(thread: KernelThread, words: ConnectionWords) -> Link:
    chip = thread.core.chip
    if chip.stands_for_many:
        raise DevicesDiffer
    ways = ways_of(chip.mesh)
    src, dst = ways.named(words.src_mesh, words.src_chip), ways.named(words.dst_mesh, words.dst_chip)
    if src != ways.node(chip.box.place.start):
        raise MeshError(
            f"The connection is one of {src}, and the kernel runs on {ways.node(chip.box.place.start)}."
        )
    ways.check_plane(src, dst, words.link)
    direction = ways.first_hop(src, dst)
    key = direction, words.link
    if key not in chip.links:
        chip.links[key] = Link(chip, ways, direction, words.link)
    return chip.links[key]


def fabric_set_unicast_route(packet_header: PacketHeader, dst_dev_id: int, dst_mesh_id: int = 0) -> None:
    """With a 2-D fabric: to a chip by its name."""
    packet_header.route = ToDevice(dst_mesh_id, dst_dev_id)


def fabric_set_mcast_route(
    packet_header: PacketHeader,
    dst_dev_id: int,
    dst_mesh_id: int,
    e_num_hops: int,
    w_num_hops: int,
    n_num_hops: int,
    s_num_hops: int,
) -> None:
    """With a 2-D fabric: a trunk N or S with branches E and W; the chip named is the one behind the connection."""
    packet_header.route = Tree(e_num_hops, w_num_hops, n_num_hops, s_num_hops)
