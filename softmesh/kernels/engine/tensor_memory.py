"""A tensor as a launch sees it: bytes that nobody changes, from which its values are made when somebody asks."""

from __future__ import annotations

from sys import getrefcount

import torch

from softmesh.kernels.engine.held_bytes import HeldBytes, one_thread, over
from softmesh.kernels.engine.kept_bytes import KEPT
from softmesh.kernels.engine.memory import Box, Memory
from softmesh.runtime.buffers.seen import Seen
from softmesh.tensor.device_pages import TensorBytes
from softmesh.tensor.owed import owe, owes, value_memory
from softmesh.tensor.pages import from_pages
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import Storage, is_sole_owner, share_memory

_MOST_PIECES = 4096
_MOST_TIMES_ITS_SIZE = 2  # bytes that the pieces of a tensor keep from being freed


class TensorMemory(Memory):
    paged: TensorBytes

    def __init__(self, paged: TensorBytes) -> None:
        self._storage = paged.tensor.storage
        super().__init__(paged, self._storage.undefined is not None)
        self._size = paged.num_pages * paged.page_size
        self._before: HeldBytes | None = None  # what all devices had
        self._is_kept = False  # and others know that
        self._after: HeldBytes | None = None  # what they have then
        self._pages: torch.Tensor | None = None  # the same in one piece, where values are made of it at once

    def _as_it_is(self, box: Box) -> HeldBytes:
        if self._before is None:
            self._before = KEPT.find(self._storage)
            self._is_kept = self._before is not None
        if self._before is None:
            paged = self.paged
            self._before = over(lambda: paged.data)
        held = self._before
        return held.copy() if box.is_whole else HeldBytes(lambda start, size: box.of(held.read(start, size)))

    def write_back(self) -> None:
        whole = [held for box, held in self._held.items() if box.is_whole]
        if not whole:
            self._after = _over(self._merged())
        else:
            (self._after,) = whole
            if self._after.covers(self._size):
                self._after = self._after.alone()
            if _is_wasteful(self._after, self._bytes_of(self._after)):
                self._after = _over(self._in_pages(self._after).clone())
        if not self._may_owe(self._after):
            self._pages = self._in_pages(self._after)
            self._after = _over(self._pages)

    def _bytes_of(self, held: HeldBytes) -> int:
        return self._size * held.extents(self._size).numel()

    def _in_pages(self, held: HeldBytes) -> torch.Tensor:
        return held.read(0, self._size).unflatten(-1, (self.paged.num_pages, self.paged.page_size))

    def _merged(self) -> torch.Tensor:
        """What all devices have, and what some of them wrote."""
        assert self._before is not None
        mesh = self.paged.tensor.view_distribution().mesh
        pages = self._in_pages(self._before).expand(*mesh, -1, -1).clone()
        for box, held in self._held.items():
            held.write_to(box.of(pages).flatten(-2))
        return pages

    def _may_owe(self, held: HeldBytes) -> bool:
        """Whether the tensor's storage is the only way to its values, and these stay where they are."""
        if type(self._storage) is not Storage and not owes(self._storage):
            return False
        values = self._values()
        is_free = is_sole_owner(values) and not values.is_inference()
        del values
        fits = self.paged.fits(held.extents(self._size)) and KEPT.has_room_for(self._bytes_of(held))
        return fits and is_free and getrefcount(value_memory(self._storage)) == _UNREAD

    def store(self) -> None:
        if self._pages is not None:
            self.paged.replace(self._pages)
            if not share_memory(self._values(), self._pages):  # else the values took it, and may change
                self._keep(self._after)
        elif self._after is not None:
            self._storage.undefined = None
            seen = Seen(self._values())
            owe(self._storage, Decoding(self._after, self._size, self.paged.tensor.spec, seen))
            KEPT.keep(self._storage, self._after, self._bytes_of(self._after), seen)
        elif not self._is_kept:
            self._keep(self._before)

    def _keep(self, held: HeldBytes | None) -> None:
        """Those of the values that are there; what inference mode makes changes unseen."""
        if held is not None and not self._values().is_inference():
            KEPT.keep(self._storage, held, self._bytes_of(held), Seen(self._values()))

    def _values(self) -> torch.Tensor:
        values = value_memory(self._storage)
        assert values is not None
        return values


class Decoding:
    """Makes a tensor's values of its bytes."""

    def __init__(self, held: HeldBytes, size: int, spec: TensorSpec, seen: Seen) -> None:
        self.held = held
        self._size = size
        self._spec = spec
        self._seen = seen

    def __call__(self, room: torch.Tensor) -> None:
        spec = self._spec
        with one_thread():
            data = self.held.read(0, self._size)
        values = from_pages(data.unflatten(-1, (spec.num_pages(), spec.page_size())), spec, room)
        if values is not room:
            room.copy_(values)
        self._seen.look_again()


def _over(pages: torch.Tensor) -> HeldBytes:
    return over(lambda: pages)


def _is_wasteful(held: HeldBytes, size: int) -> bool:
    """Whether it is better put together: it is in crumbs, or keeps much memory that it has small parts of."""
    blocks = [piece.untyped_storage() for piece in held.pieces()]
    kept = {block.data_ptr(): block.nbytes() for block in blocks}
    return len(blocks) > _MOST_PIECES or sum(kept.values()) > _MOST_TIMES_ITS_SIZE * size


def _owners_of_unread_values() -> int:
    storage = Storage.__new__(Storage)
    storage.data = torch.empty(0)
    return getrefcount(value_memory(storage))


_UNREAD = _owners_of_unread_values()
