"""H2DStreamService and D2HStreamService: whole tensors from the host to a mesh, and back."""

from __future__ import annotations

from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.memory_config import BufferType
from softmesh.placement.composers import MeshComposerConfig, MeshToTensor, create_mesh_composer
from softmesh.placement.distribution import HOST
from softmesh.placement.mappers import Mapper
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.byte_stream import ByteStream
from softmesh.sockets.exporting import finished
from softmesh.sockets.stream_service import StreamService
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import (
    aggregate_tensor,
    compose,
    copy_host_to_device_tensor,
    distribute_tensor,
    from_torch,
)


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
        finished(self.stream.put(self._message(host, beside)), wait)
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
        while self.stream.held >= self._message_bytes:
            wait = self.waiting("H2DStreamService", "the message is there already")
            values, self.metadata = self._opened(finished(self.stream.take(self._message_bytes), wait))
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
                f"{where}: {self.stream.held} bytes were not read, and the FIFO holds {self.stream.size}: the host "
                "would wait for itself for ever. Call read_from_tensor(host_tensor) first, or make the FIFO larger."
            )
        remedy = "the FIFO is full: the process that connected must call read_from_tensor(host_tensor)"
        finished(self.stream.put(message), self.waiting(where, remedy, message.numel()))

    def _whole(self, backing: Tensor) -> Tensor:
        if self._composer is not None:
            return self._checked_tensor("notify_backing_ready", aggregate_tensor(backing, self._composer))
        whole = from_torch(compose(backing), dtype=backing.dtype, layout=backing.layout, tile=backing.tile)
        return self._checked_tensor("notify_backing_ready", whole)

    def read_from_tensor(self, host_tensor: Tensor) -> bytes:
        """Fill a host tensor with the next whole one; gives the metadata that came with it."""
        where, size = "D2HStreamService.read_from_tensor", self._message_bytes
        host = self._checked_tensor("read_from_tensor", host_tensor)
        if isinstance(self.stream, ByteStream) and self.stream.held < size:
            raise MeshError(
                f"{where}: nothing was sent, and the host would wait for itself for ever. Call notify_backing_ready() "
                "once the backing tensor is complete."
            )
        remedy = "nothing came: the process that made the service must call notify_backing_ready()"
        values, metadata = self._opened(finished(self.stream.take(size), self.waiting(where, remedy, size)))
        dist = host.view_distribution()
        host.overwrite(values.reshape(*dist.extents, *values.shape), dist)
        return metadata

    def barrier(self, timeout_ms: int | None = None) -> None:
        """Until the host has read everything."""
        if isinstance(self.stream, ByteStream) and self.stream.held:
            raise MeshError(
                f"D2HStreamService.barrier: {self.stream.held} bytes were sent and not read: the host would wait for "
                "itself for ever. Call read_from_tensor(host_tensor)."
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
