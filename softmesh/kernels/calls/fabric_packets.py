"""One packet in one call: wait for a slot, hand over the payload, send the header.

To the chip so many hops away in the direction of the connection, or to several in a row.
"""

from __future__ import annotations

from softmesh.kernels.calls.fabric_connection import WorkerToFabricEdmSender
from softmesh.kernels.fabric.packets import (
    Command,
    MulticastRoutingCommandHeader,
    NocUnicastAtomicIncCommandHeader,
    NocUnicastAtomicIncFusedCommandHeader,
    NocUnicastCommandHeader,
    NocUnicastInlineWriteCommandHeader,
    NocUnicastScatterCommandHeader,
    PacketHeader,
)


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
