"""Reads and writes of whole tensors as methods of a command queue."""

from __future__ import annotations

from softmesh.arguments import checked
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import copy_device_to_host_tensor, copy_host_to_device_tensor

_A_TENSOR = "a ttnn.Tensor: make one with ttnn.from_torch(...)"


def enqueue_write_tensor(
    self: MeshCommandQueue, host_tensor: Tensor, device_tensor: Tensor, blocking: bool = False
) -> None:
    """Overwrite a tensor of this queue's mesh with one of the host."""
    checked("enqueue_write_tensor", "device_tensor", device_tensor, Tensor, _A_TENSOR)
    copy_host_to_device_tensor(host_tensor, device_tensor, self.id())
    if blocking:
        self.finish()


def enqueue_read_tensor(
    self: MeshCommandQueue, device_tensor: Tensor, host_tensor: Tensor, blocking: bool = True
) -> None:
    """Overwrite a tensor of the host with one of this queue's mesh."""
    checked("enqueue_read_tensor", "device_tensor", device_tensor, Tensor, _A_TENSOR)
    copy_device_to_host_tensor(device_tensor, host_tensor, blocking, self.id())


MeshCommandQueue.enqueue_write_tensor = enqueue_write_tensor  # type: ignore[method-assign]
MeshCommandQueue.enqueue_read_tensor = enqueue_read_tensor  # type: ignore[method-assign]
