"""H2DStreamService and D2HStreamService: whole tensors from the host into a backing tensor on a mesh, and back.

A message is all of the backing tensor and a few bytes of metadata. On a chip a kernel moves it; here the calls of the
host do. Kernels of the user that take part (`worker_cores`) are not modelled. As with sockets to the host, a process
without a mesh can connect to what another one exported.
"""

from __future__ import annotations

from typing import Any

import torch

from softmesh.arguments import checked, checked_int, described, refused
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.memory_config import BufferType
from softmesh.placement.distribution import HOST
from softmesh.processes.context import byte_view
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.byte_stream import ByteStream, byte_count, from_bytes, to_bytes
from softmesh.sockets.exported_stream import Exportable, run_to_end
from softmesh.sockets.host_sockets import checked_host
from softmesh.tensor.composers import MeshComposerConfig, MeshToTensor, create_mesh_composer
from softmesh.tensor.device_shards import aggregate_tensor, distribute_tensor
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.mappers import Mapper, ReplicateTensorToMesh, ReplicateTensorToMeshWrapper, TensorToMesh
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import Tile
from softmesh.tensor.transfer import compose, copy_host_to_device_tensor

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
        self._spec = checked(where, "global_spec", global_spec, TensorSpec, "a ttnn.TensorSpec of the whole tensor")
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._spec!r})"

    @property
    def metadata(self) -> bytes:
        """The bytes beside the tensor, where a kernel would find or leave them."""
        return bytes(self._metadata)

    @metadata.setter
    def metadata(self, given: bytes) -> None:
        self._metadata[:] = self._checked_metadata("metadata", given)  # in place: ends of one process share it

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
            raise NotModelled(f"{type(self).__name__}.{name}: {_NEEDS_KERNELS}, so there is nothing for it to name.")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


def _checked_mapper(where: str, mapper: object, mesh: MeshDevice) -> TensorToMesh:
    given = ReplicateTensorToMesh(mesh) if mapper is None else mapper
    if not isinstance(given, TensorToMesh | ReplicateTensorToMeshWrapper):
        raise refused(where, f"mapper must be one such as ttnn.ShardTensorToMesh(...), got {described(mapper)}")
    return given.unwrap()


def _checked_size(where: str, name: str, given: int) -> int:
    size = checked_int(where, name, given)
    if size < 0:
        raise refused(where, f"{name} counts bytes, got {size}")
    return size


class H2DStreamService(StreamService):
    """From the host into the backing tensor. Page sizes, buffer types and threads steer hardware only."""

    def __init__(
        self,
        mesh_device: MeshDevice,
        global_spec: TensorSpec,
        fifo_size_bytes: int = 0,
        max_socket_page_size_bytes: int = 0,
        mapper: Mapper | None = None,
        socket_buffer_type: BufferType = BufferType.L1,
        worker_cores: object = None,
        metadata_size_bytes: int = 0,
        parallel_host_push: bool = False,
        host_push_thread_count: int = 0,
    ) -> None:
        super().__init__(mesh_device, global_spec, fifo_size_bytes, mapper, metadata_size_bytes, worker_cores)

    def forward_to_tensor(self, host_tensor: Tensor, metadata: bytes = b"") -> None:
        """A whole tensor, split by the mapper, into the backing tensor of the mesh."""
        where = "forward_to_tensor"
        host = self._checked_tensor(where, host_tensor)
        beside = self._checked_metadata(where, metadata)
        remedy = "the process that made the service must call barrier() or get_backing_tensor(), which take what came"
        wait = self.waiting(f"H2DStreamService.{where}", f"the FIFO is full: {remedy}", self._message_bytes)
        run_to_end(self.stream.put(self._message(host, beside)), wait)
        self._take_all()

    def barrier(self) -> None:
        """Until all that was forwarded is in the backing tensor."""
        self._take_all()
        self._drain("the process that made the service must call barrier() or get_backing_tensor()", None)

    def get_backing_tensor(self) -> Tensor:
        """With all that has come so far."""
        self._take_all()
        return super().get_backing_tensor()

    def _take_all(self) -> None:
        if self._backing is None:
            return
        while self.stream.buffered >= self._message_bytes:
            wait = self.waiting("H2DStreamService", "the message is there already")
            values, self.metadata = self._opened(run_to_end(self.stream.take(self._message_bytes), wait))
            whole = Tensor.make(Storage(values.reshape(1, 1, *values.shape), HOST, None), self._spec)
            copy_host_to_device_tensor(distribute_tensor(whole, self._mapper), self._backing)

    @classmethod
    def connect(
        cls,
        service_id: str,
        timeout_ms: int | None = None,
        parallel_host_push: bool = False,
        host_push_thread_count: int = 0,
    ) -> H2DStreamService:
        return cls._connected("service_id", service_id, timeout_ms)


class D2HStreamService(StreamService):
    """From the backing tensor to the host. Page sizes and threads steer hardware only."""

    def __init__(
        self,
        mesh_device: MeshDevice,
        global_spec: TensorSpec | None,
        fifo_size_bytes: int,
        max_socket_page_size_bytes: int = 0,
        mapper: Mapper | None = None,
        composer_config: MeshComposerConfig | None = None,
        worker_cores: object = None,
        metadata_master_core: object = None,
        metadata_size_bytes: int = 0,
        parallel_host_read: bool = True,
        host_read_thread_count: int = 0,
        metadata_ring: bool = False,
    ) -> None:
        if global_spec is None or metadata_master_core is not None or metadata_ring:
            raise NotModelled(
                "D2HStreamService: metadata without a tensor comes from kernels, which are not modelled. Give a "
                "global_spec, and neither metadata_master_core nor metadata_ring."
            )
        super().__init__(mesh_device, global_spec, fifo_size_bytes, mapper, metadata_size_bytes, worker_cores)
        self._composer: MeshToTensor | None = (
            None if composer_config is None else create_mesh_composer(mesh_device, composer_config)
        )

    def notify_backing_ready(self) -> None:
        """The backing tensor is complete: all of it, joined, goes to the host, with `metadata` beside it."""
        where = "D2HStreamService.notify_backing_ready"
        message = self._message(self._whole(self._own_backing("notify_backing_ready")), self.metadata)
        if isinstance(self.stream, ByteStream) and not self.stream.has_room(message.numel()):
            raise MeshError(
                f"{where}: {self.stream.buffered} bytes were not read, and the FIFO holds {self.stream.size}: the host "
                "would wait for itself for ever. Call read_from_tensor(host_tensor) first, or make the FIFO larger."
            )
        remedy = "the FIFO is full: the process that connected must call read_from_tensor(host_tensor)"
        run_to_end(self.stream.put(message), self.waiting(where, remedy, message.numel()))

    def _whole(self, backing: Tensor) -> Tensor:
        if self._composer is not None:
            return self._checked_tensor("notify_backing_ready", aggregate_tensor(backing, self._composer))
        whole = from_torch(compose(backing), dtype=backing.dtype, layout=backing.layout, tile=backing.tile)
        return self._checked_tensor("notify_backing_ready", whole)

    def read_from_tensor(self, host_tensor: Tensor) -> bytes:
        """Fill a host tensor with the next whole one; gives the metadata that came with it."""
        where, size = "D2HStreamService.read_from_tensor", self._message_bytes
        host = self._checked_tensor("read_from_tensor", host_tensor)
        if isinstance(self.stream, ByteStream) and self.stream.buffered < size:
            raise MeshError(
                f"{where}: nothing was sent, and the host would wait for itself for ever. Call notify_backing_ready() "
                "once the backing tensor is complete."
            )
        remedy = "nothing came: the process that made the service must call notify_backing_ready()"
        values, metadata = self._opened(run_to_end(self.stream.take(size), self.waiting(where, remedy, size)))
        dist = host.view_distribution()
        host.overwrite(values.reshape(*dist.extents, *values.shape), dist)
        return metadata

    def barrier(self, timeout_ms: int | None = None) -> None:
        """Until the host has read everything."""
        if isinstance(self.stream, ByteStream) and self.stream.buffered:
            raise MeshError(
                f"D2HStreamService.barrier: {self.stream.buffered} bytes were sent and not read: the host would wait "
                "for itself for ever. Call read_from_tensor(host_tensor)."
            )
        self._drain("the process that connected must call read_from_tensor(host_tensor)", timeout_ms)

    @classmethod
    def connect(
        cls,
        service_id: str,
        timeout_ms: int | None = None,
        parallel_host_read: bool = True,
        host_read_thread_count: int = 0,
    ) -> D2HStreamService:
        return cls._connected("service_id", service_id, timeout_ms)
