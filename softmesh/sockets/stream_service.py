"""What stream services have in common: a tensor on a mesh, and messages that are all of it and a few bytes beside.

On a chip a kernel moves what lies in that backing tensor; here the calls of the host do. Kernels of the user that
take part (`worker_cores`) are not modelled. As with sockets to the host, a process without a mesh can connect to
what another one exported.
"""

from __future__ import annotations

from typing import Any

import torch

from softmesh.arguments import checked, checked_int, described, refused
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.memory_config import BufferType
from softmesh.placement.mappers import ReplicateTensorToMesh, ReplicateTensorToMeshWrapper, TensorToMesh
from softmesh.processes.buffers import byte_view
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.byte_stream import ByteStream
from softmesh.sockets.device_bytes import byte_count, from_bytes, to_bytes
from softmesh.sockets.exporting import Exportable
from softmesh.sockets.host_socket import checked_host
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import Tile
from softmesh.tensor.transfer import distribute_tensor, from_torch

_NEEDS_KERNELS = "kernels that take part in a stream service are not modelled"


class StreamService(Exportable):
    """A backing tensor, or the other end of one."""

    def __init__(
        self,
        mesh: object,
        global_spec: object,
        fifo_size: int,
        mapper: object,
        metadata_size: int,
        cores: object,
    ) -> None:
        where = type(self).__name__
        self._mesh: MeshDevice | None = checked(where, "mesh_device", mesh, MeshDevice, "a MeshDevice")
        self._mesh.check_open(where)
        self._spec = checked(
            where, "global_spec", global_spec, TensorSpec, "a ttnn.TensorSpec of the whole tensor"
        )
        if cores is not None:
            raise NotModelled(f"{where}: {_NEEDS_KERNELS}: leave worker_cores out.")
        self._mapper = _checked_mapper(where, mapper, self._mesh)
        self._metadata = bytearray(_checked_size(where, "metadata_size_bytes", metadata_size))
        size = max(_checked_size(where, "fifo_size_bytes", fifo_size), self._message_bytes)
        self.stream = ByteStream(self._mesh, size, frozenset())
        self.is_owner = True
        empty = from_torch(torch.zeros(tuple(self._spec.shape)), spec=self._spec)
        assert empty is not None
        self._backing: Tensor | None = distribute_tensor(empty, self._mapper, self._mesh)

    @property
    def metadata(self) -> bytes:
        """The bytes beside the tensor, where a kernel would find or leave them."""
        return bytes(self._metadata)

    @metadata.setter
    def metadata(self, given: bytes) -> None:
        self._metadata[:] = self._checked_metadata(
            "metadata", given
        )  # in place: ends of one process share it

    def _checked_metadata(self, where: str, given: object) -> bytes:
        beside = checked(where, "metadata", given, bytes, "bytes")
        if len(beside) != len(self._metadata):
            raise MeshError(
                f"{where}: {len(beside)} bytes of metadata, and the service was made for {len(self._metadata)}."
            )
        return beside

    @property
    def _message_bytes(self) -> int:
        return byte_count(self._spec) + len(self._metadata)

    def get_backing_tensor(self) -> Tensor:
        """The tensor on the mesh that is streamed into or out of."""
        return self._own_backing("get_backing_tensor")

    def _own_backing(self, method: str) -> Tensor:
        if self._backing is None or not self.is_owner:
            raise MeshError(
                f"{type(self).__name__}.{method}: this end was connected, and the backing tensor is where the service "
                "was made."
            )
        return self._backing

    def get_per_shard_spec(self) -> TensorSpec:
        return self._own_backing("get_per_shard_spec").spec

    def payload_size_bytes(self) -> int:
        return byte_count(self._spec)

    def metadata_size_bytes(self) -> int:
        return len(self._metadata)

    def export_descriptor(self, service_id: str) -> str:
        """Under this id `connect` finds the service, in any process of this host."""
        return self._export("service_id", service_id)

    def _describe(self) -> dict[str, Any]:
        spec = self._spec
        return {
            "shape": list(spec.shape),
            "dtype": spec.dtype.value,
            "layout": spec.layout.value,
            "buffer_type": spec.memory_config.buffer_type.value,
            "tile": spec.tile.tile_shape,
            "metadata": len(self._metadata),
        }

    def _join(self, known: dict[str, Any]) -> None:
        form = DataType(known["dtype"]), Layout(known["layout"]), BufferType(known["buffer_type"])
        self._spec = TensorSpec(known["shape"], *form, Tile(known["tile"]))
        self._mesh, self._backing, self._metadata = None, None, bytearray(known["metadata"])

    def _checked_tensor(self, where: str, tensor: object) -> Tensor:
        host, spec = checked_host(where, tensor), self._spec
        if (host.shape, host.dtype, host.layout) != (spec.shape, spec.dtype, spec.layout):
            raise MeshError(
                f"{where}: the tensor is {host.shape} {host.dtype} {host.layout}, and the service carries {spec.shape} "
                f"{spec.dtype} {spec.layout}."
            )
        return host

    def _message(self, host: Tensor, metadata: bytes) -> torch.Tensor:
        payload = to_bytes(host.pieces()[0], self._spec)
        beside = torch.tensor(list(metadata), dtype=torch.uint8)
        return torch.cat((payload, beside))

    def _opened(self, message: torch.Tensor) -> tuple[torch.Tensor, bytes]:
        """The values of the tensor in its storage type, and the metadata."""
        payload = byte_count(self._spec)
        return from_bytes(message[:payload], self._spec), bytes(byte_view(message[payload:]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("get_"):
            raise NotModelled(
                f"{type(self).__name__}.{name}: {_NEEDS_KERNELS}, so there is nothing for it to name."
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


def _checked_mapper(where: str, mapper: object, mesh: MeshDevice) -> TensorToMesh:
    given = ReplicateTensorToMesh(mesh) if mapper is None else mapper
    if not isinstance(given, TensorToMesh | ReplicateTensorToMeshWrapper):
        raise refused(
            where, f"mapper must be one such as ttnn.ShardTensorToMesh(...), got {described(mapper)}"
        )
    return given.unwrap()


def _checked_size(where: str, name: str, given: int) -> int:
    size = checked_int(where, name, given)
    if size < 0:
        raise refused(where, f"{name} counts bytes, got {size}")
    return size
