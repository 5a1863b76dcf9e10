"""Compiled transfers: the fast path for a send or receive like an earlier one on the socket (a cache of checks).

`CompiledSend` and `CompiledReceive` are for processes of one host, and for tensors that are sent as they are stored, or
filled as a whole: they copy straight to and from shared memory. Any other transfer is `CheckedTransfer`: it is started
without the checks. An entry holds what the full checks found out; where something has changed since, the transfer is
made in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from softmesh import epoch
from softmesh.dispatch.call_cache import Call, is_training, values_of
from softmesh.placement.distribution import Distribution
from softmesh.runtime import commands
from softmesh.runtime.device import MeshDevice
from softmesh.sockets import pending_tensor
from softmesh.sockets.shm_channel import BlockRotation, MessageFormat, SharedChannel
from softmesh.sockets.tensor_message import (
    Description,
    Routes,
    TensorMessage,
    is_sent_whole,
    received_distribution,
)
from softmesh.sockets.transfer_queue import TRANSFERS
from softmesh.tensor.pending_storage import hold
from softmesh.tensor.tensor import Tensor


class CompiledTransfer:
    """A compiled transfer. `dists` are the ways in which tensors lie that pass, and may lie afterwards."""

    def __init__(self, mesh: MeshDevice, dists: Mapping[Distribution, Distribution]) -> None:
        self._mesh, self._dists, self._epoch = mesh, dists, epoch.current

    def is_known(self, tensor: Tensor) -> bool:
        """Whether it was compiled for tensors that lie so, as things are today."""
        return self._epoch == epoch.current and pending_tensor.dist_now(tensor.storage) in self._dists

    def accepts(self, tensor: Tensor) -> bool:
        """Whether a tensor of the same spec passes all that the earlier one was asked."""
        storage = tensor.storage
        return (
            self._epoch == epoch.current
            and not commands.observers
            and values_of(tensor, is_training()) is not None
            and storage.device is self._mesh
            and storage.dist in self._dists
        )


class CheckedTransfer(CompiledTransfer):
    """`start(tensor, socket)` begins it; a receive returns its tensor."""

    def __init__(self, tensor: Tensor, start: Callable[[Tensor, Any], list[Tensor]]) -> None:
        storage = tensor.storage
        assert storage.device is not None
        dist = pending_tensor.dist_now(storage)
        super().__init__(storage.device, {dist: dist})
        self._start = start

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor, socket = args
        return self._start(tensor, socket) if self.accepts(tensor) else NotImplemented


class CompiledSend(CompiledTransfer):
    def __init__(self, tensor: Tensor, channel: SharedChannel, blocks: BlockRotation, load: int) -> None:
        storage = tensor.storage
        assert storage.device is not None
        super().__init__(storage.device, {storage.dist: storage.dist})
        self._channel, self._blocks, self._load = channel, blocks, load

    @classmethod
    def of(cls, tensor: Tensor, channel: object, routes: Routes, message: TensorMessage) -> CompiledSend | None:
        """After the tensor was sent as this message; None where the next one like it takes the ordinary way too."""
        storage = tensor.storage
        is_simple = isinstance(channel, SharedChannel) and not storage.is_pending and tensor.shard_positions is None
        if not is_simple or storage.data is None or not is_sent_whole(tensor, routes):
            return None
        assert isinstance(channel, SharedChannel)
        blocks = channel.blocks_for(message.description, MessageFormat(tuple(storage.data.shape), storage.data.dtype))
        return None if blocks is None else cls(tensor, channel, blocks, message.load)

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Send it, if that needs no waiting."""
        (tensor, _) = args
        data = tensor.storage.data if self.accepts(tensor) else None
        if data is None or data.requires_grad:
            return NotImplemented
        with TRANSFERS.lock:
            is_sent = TRANSFERS.is_idle and self._channel.send_again(data, self._blocks, self._load)
        return [] if is_sent else NotImplemented


class CompiledReceive(CompiledTransfer):
    """Of messages that have one description."""

    def __init__(
        self,
        mesh: MeshDevice,
        dists: Mapping[Distribution, Distribution],
        channel: SharedChannel,
        description: Description,
        form: MessageFormat,
    ) -> None:
        super().__init__(mesh, dists)
        self._channel, self._description, self._form = channel, description, form

    @classmethod
    def of(
        cls,
        output: Tensor,
        channel: object,
        routes: Routes,
        description: Description,
        before: Distribution,
    ) -> CompiledReceive | None:
        """After a message of this description came to the tensor, which lay so `before`."""
        storage = output.storage
        mesh, data, after = storage.device, pending_tensor.data_now(storage), pending_tensor.dist_now(storage)
        if not isinstance(channel, SharedChannel) or output.shard_positions is not None or data is None or mesh is None:
            return None
        dists = {dist: received_distribution(dist, description, routes) for dist in (before, after)}
        whole = {dist: found for dist, found in dists.items() if found is not None}
        if len(whole) < len(dists) or not data.is_cpu or after.extents != whole[after].extents:
            return None
        form = MessageFormat((*after.extents, *output.spec.shape), data.dtype)
        return cls(mesh, whole, channel, description, form)

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take a message that is there already, if it is of this kind, and no other transfer goes before."""
        (output, _) = args
        if not self.accepts(output):
            return NotImplemented
        with TRANSFERS.lock:
            self._channel.release_unread()
            is_taken = TRANSFERS.is_idle and self._channel.has_message() and self.try_receive(output)
        return [output] if is_taken else NotImplemented

    def try_receive(self, output: Tensor) -> bool:
        """Take the message that has come; False, and it stays there, where it is of another kind."""
        storage = output.storage
        if not self._channel.is_described_as(self._description) or output.shard_positions is not None:
            return False
        old, dist = pending_tensor.data_now(storage), self._dists.get(pending_tensor.dist_now(storage))
        if dist is None or old is None:
            return False
        values = self._channel.take_again(self._form, old)
        if values is None:
            return False
        hold(storage, values, dist)
        output.topology_label = None
        return True
