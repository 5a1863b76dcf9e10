"""Transfers like an earlier one over the same socket: what was found out then is not asked again.

Only between processes of one host, and for tensors that are sent as they are stored, or filled as a whole. Whatever
can have changed since is looked at, and where something has, the ordinary way is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from softmesh.placement.distribution import Distribution
from softmesh.runtime.commands import observed
from softmesh.runtime.device import MeshDevice
from softmesh.sockets import arriving
from softmesh.sockets.landing import landing
from softmesh.sockets.parcel import Description, Parcel, Routes, is_sent_whole
from softmesh.sockets.shared_channel import Form, Places, SharedChannel
from softmesh.sockets.transfers import TRANSFERS
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


class Repeated:
    """`dists` are the ways in which tensors lie that pass, and may lie afterwards."""

    def __init__(
        self, op: str, mesh: MeshDevice, program: object, dists: Mapping[Distribution, Distribution]
    ) -> None:
        self._op, self._mesh, self._program, self._dists = op, mesh, program, dists

    def knows(self, tensor: Tensor) -> bool:
        return arriving.dist_now(tensor.storage) in self._dists

    def accepts(self, op: str, tensor: Tensor) -> bool:
        """Whether a tensor of the same spec passes all that the earlier one was asked."""
        storage, mesh = tensor.storage, self._mesh
        is_alike = (
            op == self._op
            and type(storage) is Storage  # nothing is on its way to it
            and storage.device is mesh
            and storage.dist in self._dists
            and storage.data is not None
            and tensor.shard_positions is None
            and mesh.is_open
            and not observed()
        )
        if is_alike:
            mesh.note_program(self._program)
        return is_alike


class RepeatedSend(Repeated):
    def __init__(
        self, op: str, tensor: Tensor, program: object, channel: SharedChannel, places: Places, load: int
    ) -> None:
        storage = tensor.storage
        assert storage.device is not None
        super().__init__(op, storage.device, program, {storage.dist: storage.dist})
        self._channel, self._places, self._load = channel, places, load

    @classmethod
    def of(
        cls, op: str, tensor: Tensor, program: object, channel: object, routes: Routes, parcel: Parcel
    ) -> RepeatedSend | None:
        """After the tensor was sent as this parcel; None where the next one like it takes the ordinary way too."""
        storage = tensor.storage
        is_simple = (
            isinstance(channel, SharedChannel) and type(storage) is Storage and tensor.shard_positions is None
        )
        if not is_simple or storage.data is None or not is_sent_whole(tensor, routes):
            return None
        assert isinstance(channel, SharedChannel)
        places = channel.places_for(parcel.description, Form(tuple(storage.data.shape), storage.data.dtype))
        return None if places is None else cls(op, tensor, program, channel, places, parcel.load)

    def sends(self, op: str, tensor: Tensor) -> bool:
        """Send it, if that needs no waiting."""
        if not self.accepts(op, tensor):
            return False
        storage = tensor.storage
        data = storage.data
        if data is None or data.requires_grad or storage.undefined is not None:
            return False
        with TRANSFERS.lock:
            return TRANSFERS.is_idle and self._channel.send_again(data, self._places, self._load)


class RepeatedReceive(Repeated):
    """Of messages that have one description."""

    def __init__(
        self,
        op: str,
        mesh: MeshDevice,
        program: object,
        dists: Mapping[Distribution, Distribution],
        channel: SharedChannel,
        description: Description,
        form: Form,
    ) -> None:
        super().__init__(op, mesh, program, dists)
        self._channel, self._description, self._form = channel, description, form

    @classmethod
    def of(
        cls,
        op: str,
        output: Tensor,
        program: object,
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
        return cls(op, mesh, program, whole, channel, description, form)

    def takes_now(self, output: Tensor) -> bool:
        """Take a message that is there already, if it is of this kind, and no other transfer goes before."""
        with TRANSFERS.lock:
            self._channel.tidy()
            return TRANSFERS.is_idle and self._channel.has_come() and self.takes(output)

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
