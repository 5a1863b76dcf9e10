"""Fabric calls: a worker's connection to the fabric (WorkerToFabricEdmSender), and packets sent to other chips over it.

A kernel that opens a connection runs for each device by itself. The 1-D calls count hops in the direction
of the connection; with a 2-D fabric `fabric_set_unicast_route` names the chip.
"""

from __future__ import annotations

import torch

from softmesh.errors import MeshError
from softmesh.kernels.engine.fabric_links import Link, fabric_routes
from softmesh.kernels.engine.fabric_packets import (
    Command,
    MulticastRoutingCommandHeader,
    NocUnicastAtomicIncCommandHeader,
    NocUnicastAtomicIncFusedCommandHeader,
    NocUnicastCommandHeader,
    NocUnicastInlineWriteCommandHeader,
    NocUnicastScatterCommandHeader,
    PacketHeader,
    ToDevice,
    Tree,
)
from softmesh.kernels.engine.scheduler import Carried, DevicesDiffer, KernelThread, data_movement_kernel
from softmesh.kernels.program.packed_args import CONNECTION_WORDS, ConnectionWords, check_link


class WorkerToFabricEdmSender:
    """A worker's connection to the fabric, towards one neighbour on one link."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._payload: torch.Tensor | None = None
        self.args_end = 0  # the index after its words in the kernel's arguments

    def __repr__(self) -> str:
        return f"WorkerToFabricEdmSender({self._link})"

    @classmethod
    def build_from_args(cls, arg_idx: int) -> WorkerToFabricEdmSender:
        """From the runtime arguments that the host's `append_fabric_connection_rt_args` gave, from `arg_idx` on."""
        thread = data_movement_kernel("WorkerToFabricEdmSender.build_from_args")
        given = thread.args[arg_idx : arg_idx + CONNECTION_WORDS]
        if len(given) < CONNECTION_WORDS:
            raise MeshError(
                f"build_from_args({arg_idx}): {thread.kernel.name} has {len(thread.args)} runtime arguments here. On "
                "the host, append_fabric_connection_rt_args or ttnn.setup_fabric_connection gives the words of a "
                "connection."
            )
        made = cls(_link(thread, ConnectionWords(*given)))
        made.args_end = arg_idx + CONNECTION_WORDS
        return made

    def open(self) -> None:
        self._link.open(data_movement_kernel("open"))

    def close(self) -> None:
        """Wait until everything has been sent, and leave the link to others."""
        thread = data_movement_kernel("close")
        self._link.wait_until_sent(thread)
        self._link.close(thread)

    def wait_for_empty_write_slot(self) -> None:
        self._link.wait_for_slot(data_movement_kernel("wait_for_empty_write_slot"))

    def send_payload_without_header_non_blocking_from_address(self, source_address: int, size_bytes: int) -> None:
        """The payload of the packet whose header is sent next."""
        thread = data_movement_kernel("send_payload_without_header_non_blocking_from_address")
        if size_bytes > self._link.max_payload:
            raise MeshError(
                f"A packet carries at most {self._link.max_payload} bytes, got {size_bytes}: send it in pieces, or set "
                "max_packet_payload_size_bytes of the fabric's router config."
            )
        self._payload = thread.core.read(int(source_address), size_bytes)

    def send_payload_flush_non_blocking_from_address(self, header: PacketHeader, size_bytes: int = 0) -> None:
        """Send the header, and the payload that was handed over before it."""
        thread = data_movement_kernel("send_payload_flush_non_blocking_from_address")
        payload, self._payload = self._payload, None
        if header.route is None or header.command is None:
            raise MeshError("A packet header needs a way (to_chip_...) and a command (to_noc_...) before it is sent.")
        sent = 0 if payload is None else payload.shape[-1]
        if sent != header.payload_size:
            raise MeshError(
                f"The header announces a payload of {header.payload_size} bytes, and {sent} were handed over."
            )
        self._send(thread, header, payload)

    def send_payload_flush_blocking_from_address(self, header: PacketHeader, size_bytes: int = 0) -> None:
        """The same, and wait until it has left."""
        self.send_payload_flush_non_blocking_from_address(header, size_bytes)
        self._link.wait_until_sent(data_movement_kernel("send_payload_flush_blocking_from_address"))

    def _send(self, thread: KernelThread, header: PacketHeader, payload: torch.Tensor | None) -> None:
        assert header.route is not None
        assert header.command is not None
        command, link = header.command, self._link
        src = link.routes.node(thread.core.chip.mesh_slice.place.start)
        places = [link.routes.device(node) for node in header.route.targets(link, src)]
        chip = thread.core.chip
        chips = [chip.launch_state.device(place, chip.is_strict) for place in places]

        is_signal = not isinstance(command, NocUnicastCommandHeader | NocUnicastScatterCommandHeader)
        carried = Carried(link.begin(thread, is_signal=is_signal), thread.clock.published())

        def deliver() -> None:
            with chip.scheduler.delivering(carried):
                for target in chips:
                    command.carry_out(target, payload)

        link.send(thread, deliver)


def _link(thread: KernelThread, words: ConnectionWords) -> Link:
    chip = thread.core.chip
    if chip.covers_many_devices:
        raise DevicesDiffer
    routes = fabric_routes(chip.mesh)
    src, dst = routes.named(words.src_mesh, words.src_chip), routes.named(words.dst_mesh, words.dst_chip)
    if src != routes.node(chip.mesh_slice.place.start):
        raise MeshError(
            f"The connection is one of {src}, and the kernel runs on {routes.node(chip.mesh_slice.place.start)}."
        )
    check_link(routes.network, src, dst, words.link)
    direction = routes.first_hop(src, dst)
    key = direction, words.link
    if key not in chip.links:
        chip.links[key] = Link(chip, routes, direction, words.link)
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


# One packet in one call: wait for a slot, hand over the payload, send the header. To the chip so many hops away in
# the direction of the connection, or to several in a row.


def _send(
    connection: WorkerToFabricEdmSender,
    header: PacketHeader,
    command: Command,
    source: int = 0,
    size: int = 0,
) -> None:
    connection.wait_for_empty_write_slot()
    if size:
        connection.send_payload_without_header_non_blocking_from_address(source, size)
    connection.send_payload_flush_non_blocking_from_address(header.to_noc(command, size))


def fabric_unicast_noc_unicast_write(
    client_interface: WorkerToFabricEdmSender,
    packet_header: PacketHeader,
    src_addr: int,
    size: int,
    noc_unicast_command_header: NocUnicastCommandHeader,
    num_hops: int,
) -> None:
    """Write bytes of this core's L1 on the chip `num_hops` away."""
    packet_header.to_chip_unicast(num_hops)
    _send(client_interface, packet_header, noc_unicast_command_header, src_addr, size)


def fabric_unicast_noc_unicast_inline_write(
    client_interface: WorkerToFabricEdmSender,
    packet_header: PacketHeader,
    noc_unicast_inline_write_command_header: NocUnicastInlineWriteCommandHeader,
    num_hops: int,
) -> None:
    packet_header.to_chip_unicast(num_hops)
    _send(client_interface, packet_header, noc_unicast_inline_write_command_header)


def fabric_unicast_noc_scatter_write(
    client_interface: WorkerToFabricEdmSender,
    packet_header: PacketHeader,
    src_addr: int,
    size: int,
    noc_unicast_scatter_command_header: NocUnicastScatterCommandHeader,
    num_hops: int,
) -> None:
    packet_header.to_chip_unicast(num_hops)
    _send(client_interface, packet_header, noc_unicast_scatter_command_header, src_addr, size)


def fabric_unicast_noc_unicast_atomic_inc(
    client_interface: WorkerToFabricEdmSender,
    packet_header: PacketHeader,
    noc_unicast_atomic_inc_command_header: NocUnicastAtomicIncCommandHeader,
    num_hops: int,
) -> None:
    """Raise a semaphore on the chip `num_hops` away."""
    packet_header.to_chip_unicast(num_hops)
    _send(client_interface, packet_header, noc_unicast_atomic_inc_command_header)


def fabric_unicast_noc_fused_unicast_with_atomic_inc(
    client_interface: WorkerToFabricEdmSender,
    packet_header: PacketHeader,
    src_addr: int,
    size: int,
    noc_fused_unicast_atomic_inc_command_header: NocUnicastAtomicIncFusedCommandHeader,
    num_hops: int,
) -> None:
    """Write bytes and raise a semaphore in one packet."""
    packet_header.to_chip_unicast(num_hops)
    _send(client_interface, packet_header, noc_fused_unicast_atomic_inc_command_header, src_addr, size)


def fabric_multicast_noc_unicast_write(
    client_interface: WorkerToFabricEdmSender,
    packet_header: PacketHeader,
    src_addr: int,
    size: int,
    noc_unicast_command_header: NocUnicastCommandHeader,
    start_distance: int,
    range: int,
) -> None:
    """Write on `range` chips in a row, the first of them `start_distance` hops away."""
    packet_header.to_chip_multicast(MulticastRoutingCommandHeader(start_distance, range))
    _send(client_interface, packet_header, noc_unicast_command_header, src_addr, size)


def fabric_multicast_noc_unicast_atomic_inc(
    client_interface: WorkerToFabricEdmSender,
    packet_header: PacketHeader,
    noc_unicast_atomic_inc_command_header: NocUnicastAtomicIncCommandHeader,
    start_distance: int,
    range: int,
) -> None:
    packet_header.to_chip_multicast(MulticastRoutingCommandHeader(start_distance, range))
    _send(client_interface, packet_header, noc_unicast_atomic_inc_command_header)


def fabric_multicast_noc_fused_unicast_with_atomic_inc(
    client_interface: WorkerToFabricEdmSender,
    packet_header: PacketHeader,
    src_addr: int,
    size: int,
    noc_fused_unicast_atomic_inc_command_header: NocUnicastAtomicIncFusedCommandHeader,
    start_distance: int,
    range: int,
) -> None:
    packet_header.to_chip_multicast(MulticastRoutingCommandHeader(start_distance, range))
    _send(client_interface, packet_header, noc_fused_unicast_atomic_inc_command_header, src_addr, size)
