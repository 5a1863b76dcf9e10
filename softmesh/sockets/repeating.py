"""Compiled transfers over a socket: what was found out for an earlier one like it is not asked again.

Only between processes of one host, and for tensors that are sent as they are stored, or filled as a whole. Whatever
can have changed since is looked at, and where something has, the ordinary way is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softmesh import epoch
from softmesh.dispatch.call_cache import Call, is_training, values_of
from softmesh.placement.distribution import Distribution
from softmesh.runtime import commands
from softmesh.runtime.device import MeshDevice
from softmesh.sockets import arriving
from softmesh.sockets.landing import landing
from softmesh.sockets.parcel import Description, Parcel, Routes, is_sent_whole
from softmesh.sockets.shared_channel import Form, Places, SharedChannel
from softmesh.sockets.transfers import TRANSFERS
from softmesh.tensor.tensor import Tensor


class Repeated:
    """A compiled transfer. `dists` are the ways in which tensors lie that pass, and may lie afterwards."""

    def __init__(self, mesh: MeshDevice, dists: Mapping[Distribution, Distribution]) -> None:
        self._mesh, self._dists, self._epoch = mesh, dists, epoch.current

    def is_known(self, tensor: Tensor) -> bool:
        """Whether it was compiled for tensors that lie so, as things are today."""
        return self._epoch == epoch.current and arriving.dist_now(tensor.storage) in self._dists

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


class RepeatedSend(Repeated):
    def __init__(self, tensor: Tensor, channel: SharedChannel, places: Places, load: int) -> None:
        storage = tensor.storage
        assert storage.device is not None
        super().__init__(storage.device, {storage.dist: storage.dist})
        self._channel, self._places, self._load = channel, places, load

    @classmethod
    def of(cls, tensor: Tensor, channel: object, routes: Routes, parcel: Parcel) -> RepeatedSend | None:
        """After the tensor was sent as this parcel; None where the next one like it takes the ordinary way too."""
        storage = tensor.storage
        is_simple = (
            isinstance(channel, SharedChannel) and not storage.is_pending and tensor.shard_positions is None
        )
        if not is_simple or storage.data is None or not is_sent_whole(tensor, routes):
            return None
        assert isinstance(channel, SharedChannel)
        places = channel.places_for(parcel.description, Form(tuple(storage.data.shape), storage.data.dtype))
        return None if places is None else cls(tensor, channel, places, parcel.load)

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Send it, if that needs no waiting."""
        (tensor, _) = args
        data = tensor.storage.data if self.accepts(tensor) else None
        if data is None or data.requires_grad:
            return NotImplemented
        with TRANSFERS.lock:
            is_sent = TRANSFERS.is_idle and self._channel.send_again(data, self._places, self._load)
        return [] if is_sent else NotImplemented


class RepeatedReceive(Repeated):
    """Of messages that have one description."""

    def __init__(
        self,
        mesh: MeshDevice,
        dists: Mapping[Distribution, Distribution],
        channel: SharedChannel,
        description: Description,
        form: Form,
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
    ) -> RepeatedReceive | None:
        """After a message of this description came to the tensor, which lay so `before`."""
        storage = output.storage
        mesh, data, after = storage.device, arriving.data_now(storage), arriving.dist_now(storage)
        if (
            not isinstance(channel, SharedChannel)
            or output.shard_positions is not None
            or data is None
            or mesh is None
        ):
            return None
        dists = {dist: landing(dist, description, routes) for dist in (before, after)}
        whole = {dist: found for dist, found in dists.items() if found is not None}
        if len(whole) < len(dists) or not data.is_cpu or after.extents != whole[after].extents:
            return None
        form = Form((*after.extents, *output.spec.shape), data.dtype)
        return cls(mesh, whole, channel, description, form)

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take a message that is there already, if it is of this kind, and no other transfer goes before."""
        (output, _) = args
        if not self.accepts(output):
            return NotImplemented
        with TRANSFERS.lock:
            self._channel.tidy()
            is_taken = TRANSFERS.is_idle and self._channel.has_come() and self.takes(output)
        return [output] if is_taken else NotImplemented

    def takes(self, output: Tensor) -> bool:
        """Take the message that has come; False, and it stays there, where it is of another kind."""
        storage = output.storage
        if not self._channel.comes_as(self._description) or output.shard_positions is not None:
            return False
        old, dist = arriving.data_now(storage), self._dists.get(arriving.dist_now(storage))
        if dist is None or old is None:
            return False
        values = self._channel.take_again(self._form, old)
        if values is None:
            return False
        arriving.put(storage, values, dist)
        output.topology_label = None
        return True
