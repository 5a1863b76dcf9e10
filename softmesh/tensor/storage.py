"""The memory behind tensors: one torch tensor for a whole mesh, shared by all its views.

`data` is `(*extents, *local_shape)`, extent 1 where devices agree (see placement.distribution).
A write to one device first gives it a value of its own (copy on write); a write never reaches memory
that something else still reads: results that torch made as views of an input, autograd's saved tensors, or
the user's own torch tensor. What lies in the same memory of the chips, as a reshape that moves nothing does,
is told of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

import torch

from softmesh.callsite import CallSite, RawSite, raw_call_site, resolved
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import stored_index
from softmesh.placement.placements import LOCAL, Shard
from softmesh.placement.rules import Situation, reshaping
from softmesh.runtime.memory.allocations import Claim, PerCoreClaim, Span
from softmesh.runtime.memory.pool import Pool
from softmesh.storage_owners import storage_owners, without_view_base
from softmesh.tensor.footprint import Room, footprint, pool_for
from softmesh.tensor.undefined import HOOKS, Overwriting, Undefined, devices_of

if TYPE_CHECKING:
    from softmesh.cores import CoreCoord
    from softmesh.mesh import MeshCoordinate
    from softmesh.runtime.device import MeshDevice
    from softmesh.tensor.per_core_memory import PerCoreRoom
    from softmesh.tensor.spec import TensorSpec

_MANY = 16


class ValueNotes(Protocol):
    """What is known of how the values came about: `tensor.persistent_results`, `tensor.gradient_sums`."""

    @property
    def needs_look(self) -> bool:
        """Whether a call with the tensor has to look here first, and cannot be taken from the call cache."""


class Storage:
    """`data is None` once deallocated; `device is None` on the host.

    On a device it has an address there from the moment it is a tensor's (`place`), whatever is written into it
    later, and its claim gives the memory back when it dies.
    """

    __slots__ = (
        "__weakref__",
        "_memory",
        "_span",
        "claim",
        "data",
        "device",
        "dist",
        "freed",
        "gradient",
        "is_handed_on",
        "notes",
        "pending",
        "spec",
        "undefined",
    )

    pending: Any  # only there while its values are not (see tensor.pending_storage)
    is_pending = False  # whether a read of the values has to make them, or to wait for them, first

    def __init__(
        self,
        data: torch.Tensor | None,
        dist: Distribution,
        device: MeshDevice | None,
        spec: TensorSpec | None = None,
        room: Room | None = None,
        site: RawSite | None = None,
    ) -> None:
        """`room` is that of the spec, where the caller knows it: `place` would look for it. So is the `site`."""
        self.data = data
        self.dist = dist
        self.device = device
        self.claim: Claim | None = None  # on memory, where it is a tensor's
        self.spec = spec  # what there is room for
        self.undefined: Undefined | None = None  # pieces that no op has written yet
        self.freed: RawSite | None = None  # the line that deallocated it
        self.gradient: torch.Tensor | None = None  # what backward passes have brought, not yet taken away
        self.is_handed_on = False  # by an op that returned the very tensor it was given, to be held under two names
        self.notes: ValueNotes | None = None  # of a persistent buffer, or of a gradient
        self._memory: Pool | PerCoreRoom | SharedMemory | None = None
        self._span: Span | None = None
        if room is not None:
            pool, size, requested = room
            self.claim = pool.allocate(size, requested, self, site)
            self._memory = pool

    @property
    def address(self) -> int:
        """In every bank of every chip; 0 without memory."""
        return 0 if self.claim is None else self.claim.address

    def address_on(self, chip: MeshCoordinate, core: CoreCoord) -> int | None:
        """The same everywhere but for tensors that are allocated core by core; None where it has no shard."""
        claim = self.claim
        return claim.addresses.get((chip, core)) if isinstance(claim, PerCoreClaim) else self.address

    def __str__(self) -> str:
        spec = self.spec
        assert spec is not None
        return f"tensor {spec.shape} {spec.dtype.name} {spec.layout.name}"

    def place(self, spec: TensorSpec) -> None:
        """Take memory for a tensor of this spec."""
        assert self.device is not None
        self.spec = spec
        allocator = self.device.memory
        room = spec._footprint
        if room is None or room[0] is not allocator.memory_map:
            room = footprint(spec, allocator.memory_map)
        _, buffer_type, size, requested, _ = room
        if size:
            pool = pool_for(spec.memory_config, allocator.pools[buffer_type])
            self.claim = pool.allocate(size, requested, self)
            self._memory = pool

    def banks(self) -> int | None:
        """Over how many banks its tensor is spread; None where that is not known."""
        found = None if self.spec is None else self.spec._footprint
        return None if found is None else found.banks

    def use_memory_of(self, other: Storage, spec: TensorSpec) -> None:
        """Take no memory but the other's, which stays for as long as one of the two needs it."""
        self.spec, self.claim = spec, other.claim
        if other._memory is None:
            return
        if not isinstance(other._memory, SharedMemory):
            assert other.claim is not None
            other._memory = SharedMemory(other.claim, other)
        self._memory = other._memory
        self._memory.add(self)

    def is_shared(self) -> bool:
        """Whether its memory is, or was, another's too."""
        return isinstance(self._memory, SharedMemory)

    def shares_now(self) -> bool:
        return len(self.sharers()) > 1

    def sharers(self) -> list[Storage]:
        """All that lie in its memory, itself among them."""
        return self._memory.living() if isinstance(self._memory, SharedMemory) else [self]

    def tell_sharers(self) -> None:
        """It was written to: whatever lies in the same memory has these values too, in a shape of its own."""
        if not isinstance(self._memory, SharedMemory):
            return
        others = [other for other in self._memory.living() if other is not self]
        if others and self.data is not None and not self.data.requires_grad:
            self.data = without_view_base(self.data)  # so that the owners of the values can be counted
            for other in others:
                other._take_values_of(self)

    def _take_values_of(self, written: Storage) -> None:
        mine, new, dist = self.data, written.data, written.dist
        if mine is None or new is None or mine.requires_grad:
            return  # a graph of gradients keeps the values that it was made of
        shape, of_written = mine.shape[self.dist.lead :], new.shape[dist.lead :]
        if self.dist.coordinates() != dist.coordinates():  # one of them is some devices' part
            places = {coord: at for at, coord in enumerate(self.dist.coordinates())}
            for at, coord in enumerate(dist.coordinates()):
                if coord in places:
                    self._put_piece(places[coord], written.piece(at).reshape(shape))
            return
        if shape != of_written:
            words = (reshaping(Situation((word,), (of_written,), (shape,))) for word in dist.placements)
            dist = dist.with_placements(tuple(words))
        self.data = without_view_base(new.reshape(*dist.extents, *shape))
        self.dist, self.undefined = dist, written.undefined

    def release(self) -> None:
        """Free the memory, and with it the values of everything that lies there."""
        memory, self.data, self.freed = self._memory, None, raw_call_site()
        if isinstance(memory, SharedMemory):
            memory.release()
        elif memory is not None:
            memory.pending.append(self.claim)  # type: ignore[arg-type]
            self._memory = self._span = None

    def span(self) -> Span | None:
        """Where its memory lies; None without any."""
        claim = self.claim
        if self._span is None and self._memory is not None and claim is not None:
            if (start := claim.resolved_address) is None:
                start = claim.address
            # Half the price of Span(...), and paid for every result that somebody observes.
            end = start + claim.size
            self._span = tuple.__new__(Span, (claim.pool, start, end, claim.number, self.spec, ref(self)))
        return self._span

    def lose_memory(self) -> None:
        """The allocator has taken it away."""
        for storage in self._memory.living() if isinstance(self._memory, SharedMemory) else [self]:
            storage.data = storage._memory = storage._span = None

    def replace(self, data: torch.Tensor, dist: Distribution) -> None:
        """Overwrite everything: all views see the new values under the new distribution.

        Where the shape stays, values are copied into the memory that is there, so that whoever recorded
        its place (a trace) reads the new ones.
        """
        old = self.data
        if (
            old is not None
            and old.shape == data.shape
            and old.dtype == data.dtype
            and not (old.requires_grad or data.requires_grad)
            and self._is_own(old)
        ):
            old.copy_(data)
        else:
            self.data = data if data is old else alias(data)
        self.dist = dist
        self.undefined = None
        self.tell_sharers()

    def writable(self) -> torch.Tensor:
        """The data, safe to change in place; tell_sharers() is for afterwards."""
        assert self.data is not None
        if not self._is_own(self.data):
            self.data = self.data.clone()
        self.note_write()
        return self.data

    def note_write(self) -> None:
        """Something was written to it: it is no longer memory and nothing more."""
        undefined = self.undefined
        if undefined is not None and undefined.ends_with_a_write:
            self.undefined = None

    def note_written_all(self) -> None:
        """Nothing of its memory is left as it was found."""
        for storage in self.sharers():
            storage.note_write()

    def await_replay(self, captured: CallSite) -> None:
        """A trace has recorded how its values are made, and will make them."""
        if self.undefined is None:
            self.undefined = Undefined("trace", captured, devices_of(self.dist), is_unreplayed=True)

    def warn_if_unwritten(self, doing: str) -> None:
        if self.undefined is not None and self.undefined.is_unwritten:
            HOOKS.of_memory(self.undefined, doing)

    def warn_if_unreplayed(self, doing: str) -> None:
        if self.undefined is not None and self.undefined.is_unreplayed:
            HOOKS.of_memory(self.undefined, doing)

    def warn_if_overwritten(self, doing: str) -> None:
        if self.undefined is not None and self.undefined.overwritten is not None:
            HOOKS.of_memory(self.undefined, doing)

    def replayed(self) -> None:
        undefined = self.undefined
        if undefined is not None and (undefined.is_unreplayed or undefined.overwritten is not None):
            self.undefined = None

    def lose_values(self, captured: CallSite, replayed: CallSite) -> None:
        """A trace that was captured before it was allocated has written here."""
        site = None if self.claim is None else self.claim.site
        overwriting = Overwriting(replayed, None if site is None else resolved(site))
        for storage in self.sharers():
            if storage.undefined is None or storage.undefined.overwritten is not None:
                storage.undefined = Undefined("trace", captured, devices_of(storage.dist), overwritten=overwriting)

    def _is_own(self, data: torch.Tensor) -> bool:
        """Whether nothing reads these values but what lies in its memory, and is to see the new ones."""
        return is_sole_owner(data) or (isinstance(self._memory, SharedMemory) and self._memory.owns(data))

    def piece(self, position: int) -> torch.Tensor:
        """A view of what the device at this position of the flattened grid holds."""
        assert self.data is not None
        return self.data[stored_index(self.dist, position)]

    def write_piece(self, position: int, values: torch.Tensor) -> None:
        """Give one device new values; the others keep theirs. A split stays, any other word becomes Local."""
        self._put_piece(position, values)
        self.tell_sharers()

    def note_piece_elsewhere(self) -> None:
        """Another process gives one of its devices new values."""
        self._set_apart(range(self.dist.lead))
        self.note_write()
        self.tell_sharers()

    def note_apart(self, axes: Collection[int]) -> None:
        """The processes along these axes may have given it other values each."""
        before = self.dist
        self._set_apart(axes)
        if self.dist is not before:
            self.tell_sharers()

    def _set_apart(self, axes: Collection[int]) -> None:
        """Each device along these axes has values of its own from now on, in all processes."""
        dist = self.dist
        own = tuple(
            LOCAL if axis in axes and n > 1 and not isinstance(word, Shard) else word
            for axis, (word, n) in enumerate(zip(dist.placements, dist.devices, strict=True))
        )
        self.dist = dist.with_placements(own)
        if self.dist.extents != dist.extents:
            assert self.data is not None
            self.data = self.data.expand(*self.dist.extents, *self.data.shape[dist.lead :]).clone()

    def _put_piece(self, position: int, values: torch.Tensor) -> None:
        self._set_apart(range(self.dist.lead))
        undefined = self.undefined
        self.writable()[stored_index(self.dist, position)] = values
        self.undefined = undefined and undefined.without(self.dist.coordinates()[position])


class SharedMemory:
    """Memory that several storages lie in; it goes back when the last of them does."""

    __slots__ = ("__weakref__", "_claim", "_holders", "_is_released")

    def __init__(self, claim: Claim, first: Storage) -> None:
        self._claim = claim
        self._is_released = False
        self._holders = [ref(first)]
        me = ref(self)

        def any_holder() -> Storage | None:
            shared = me()
            return None if shared is None else next(iter(shared.living()), None)

        self._claim.holder = any_holder

    def __del__(self) -> None:
        if not self._is_released:
            self._claim.pool.pending.append(self._claim)

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._claim.holder = None
            self._claim.pool.pending.append(self._claim)
        site = raw_call_site()
        for storage in self.living():
            storage.data, storage.freed, storage._span = None, site, None

    def add(self, storage: Storage) -> None:
        """A tensor that lives long may have been reshaped in every step: the dead are not kept."""
        if len(self._holders) > _MANY:
            self._holders = [holder for holder in self._holders if holder() is not None]
        self._holders.append(ref(storage))

    def owns(self, data: torch.Tensor) -> bool:
        """Whether nobody but the storages that lie here reads these values; they see what is written over them."""
        if data.requires_grad or data.is_inference() or not data.is_contiguous():
            return False
        held = [storage.data for storage in self.living() if storage.data is not None]
        held = [values for values in held if not values.requires_grad and share_memory(values, data)]
        return storage_owners(data.untyped_storage()._cdata) <= len(held) + 1

    def living(self) -> list[Storage]:
        return [storage for holder in self._holders if (storage := holder()) is not None]


def is_sole_owner(data: torch.Tensor) -> bool:
    """Whether nothing but `data` reads its memory, and it can be written over.

    torch counts the owners of a storage; asking for the storage makes one more.
    """
    if data._base is not None or data.requires_grad:
        return False
    if data.is_inference() and not torch.is_inference_mode_enabled():
        return False
    if not data.is_contiguous() and 0 in data.stride():  # one element in several places
        return False
    storage = data.untyped_storage()
    return storage_owners(storage._cdata) <= 2


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def alias(data: torch.Tensor) -> torch.Tensor:
    """The same memory under a torch tensor of its own, so that both are seen to share it."""
    return data.view_as(data)
