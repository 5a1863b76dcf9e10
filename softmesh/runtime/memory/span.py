"""Where an owner's memory lies."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from softmesh.runtime.memory.pool import Pool


class Span(NamedTuple):
    """From `start` to `end` in every bank of a pool. The owner is not kept alive."""

    pool: Pool | None  # None: memory of the host, which has no addresses
    start: int
    end: int
    number: int  # of the allocation; 0 where nothing was allocated
    what: Any  # a tensor's spec, or the layout of a buffer's pages
    owner: weakref.ref[Any]

    @property
    def place(self) -> str:
        return (
            "on the host" if self.pool is None else f"at {self.start} in {self.pool.region.buffer_type.name}"
        )
