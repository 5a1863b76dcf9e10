"""What sockets between the host and one core have in common, in both directions and in both processes.

The bytes are those a chip's memory would hold. The process that has the mesh makes the socket; under the id
that it was exported as, another process of the host connects to it, and needs no mesh.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from softmesh.arguments import checked, checked_int, refused
from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate
from softmesh.processes.buffers import byte_view
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.byte_stream import ByteStream
from softmesh.sockets.core_coord import MeshCoreCoord
from softmesh.sockets.device_bytes import to_bytes
from softmesh.sockets.exporting import Exportable
from softmesh.sockets.parcel import Route, Routes
from softmesh.sockets.validation import check_core
from softmesh.tensor.tensor import Tensor

_ADDRESSES = itertools.count(1)
_CONFIG_BYTES = 64
_FIRST_ADDRESS = 0x20000


class HostSocket(Exportable):
    """One end, in the process that has the mesh or in one that connected to it."""

    def __init__(
        self, mesh_device: MeshDevice, core_name: str, core: MeshCoreCoord, fifo_size: int, sends: bool
    ) -> None:
        where = type(self).__name__
        mesh = checked(where, "mesh_device", mesh_device, MeshDevice, "a MeshDevice")
        mesh.check_open(where)
        core = checked(where, core_name, core, MeshCoreCoord, "a ttnn.MeshCoreCoord(device_coord, core)")
        if not mesh.shape.contains(core.device_coord):
            raise MeshError(f"Coordinate {core.device_coord} not found in mesh {mesh.shape}")
        check_core(mesh, core.core_coord, None)
        size = checked_int(where, "fifo_size", fifo_size)
        if size <= 0:
            raise MeshError(f"{where}: fifo_size must be a positive number of bytes, got {size}")
        self._mesh: MeshDevice | None = mesh
        self.core = core.copy()
        self.routes = Routes((Route(core.device_coord, 1),), straight=False)
        self.device = mesh.get_device_id(core.device_coord)
        self.stream = ByteStream(mesh, size, frozenset({self.device}) if sends else frozenset())
        self.is_owner = True
        self._address = _FIRST_ADDRESS + next(_ADDRESSES) * _CONFIG_BYTES

    def get_active_cores(self) -> list[MeshCoreCoord]:
        return [self.core.copy()]

    def get_mesh_device(self) -> MeshDevice:
        if self._mesh is None:
            raise MeshError(
                f"{type(self).__name__}.get_mesh_device: this end was connected to a socket of another process, and "
                "the mesh is there."
            )
        return self._mesh

    def get_config_buffer_address(self) -> int:
        return self._address

    def get_page_size(self) -> int:
        return self.stream.page_size

    def set_page_size(self, page_size: int) -> None:
        size = checked_int("set_page_size", "page_size", page_size)
        if not 0 < size <= self.stream.size:
            raise MeshError(
                f"set_page_size: a page of {size} bytes does not fit into the FIFO, which holds {self.stream.size}."
            )
        self.stream.page_size = size

    def export_descriptor(self, socket_id: str) -> str:
        """Under this id `connect` finds the socket, in any process of this host."""
        return self._export("socket_id", socket_id)

    def _describe(self) -> dict[str, Any]:
        core = self.core.core_coord
        return {"device": list(self.core.device_coord), "core": [core.x, core.y], "address": self._address}

    def _join(self, known: dict[str, Any]) -> None:
        self.core = MeshCoreCoord(MeshCoordinate(known["device"]), CoreCoord(*known["core"]))
        self._mesh, self._address = None, known["address"]

    def _page_bytes(self, where: str, num_pages: int) -> int:
        if not self.stream.page_size:
            raise MeshError(f"{where}: the size of a page is not known: call set_page_size(bytes) first.")
        return checked_int(where, "num_pages", num_pages) * self.stream.page_size


# -- what the host hands over ----------------------------------------------------------------------


def bytes_of(where: str, tensor: object) -> torch.Tensor:
    if isinstance(tensor, torch.Tensor):
        given = checked_torch(where, tensor)
        return torch.frombuffer(bytearray(byte_view(given)), dtype=torch.uint8)
    host = checked_host(where, tensor)
    return to_bytes(host.pieces()[0], host.spec)


def checked_torch(where: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or not tensor.numel():
        raise refused(where, "a torch tensor must be contiguous, on the CPU, and not empty")
    return tensor


def checked_host(where: str, tensor: object) -> Tensor:
    host = checked(where, "tensor", tensor, Tensor, "a torch tensor, or a ttnn.Tensor on the host")
    host.check_allocated(where)
    if host.storage.device is not None:
        raise MeshError(f"{where}: the tensor is on {host.storage.device}: give one that is on the host.")
    if len(host.view_distribution().coordinates()) != 1:
        raise MeshError(f"{where}: the tensor is distributed, and one whole tensor or one shard is wanted.")
    return host
