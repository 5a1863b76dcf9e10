"""Memory that an owner was promised: its size at once, its address when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import ref

from softmesh.callsite import RawSite

if TYPE_CHECKING:
    from softmesh.runtime.memory.pool import Pool


class Claim(ref[object]):
    """Of `size` bytes in each bank of a pool.

    It is a weak reference to its owner: one object for each tensor, which the interpreter itself hands over when the
    tensor dies.
    """

    __slots__ = ("holder", "label", "number", "pool", "requested", "settled_at", "site", "size")

    pool: Pool
    size: int
    requested: int  # counts all banks
    number: int  # of all allocations of the process
    site: RawSite | None  # who asked for it
    label: str | None  # None: the owner knows
    holder: Callable[[], object | None] | None  # gives one of several owners that still lives
    settled_at: int | None

    @property
    def address(self) -> int:
        """Where it begins, in every bank."""
        if self.settled_at is None:
            self.pool.settle()
        assert self.settled_at is not None
        return self.settled_at

    def has_others(self) -> bool:
        """Whether somebody else still has it when its first owner is gone."""
        return self.holder is not None and self.holder() is not None

    def owner(self) -> object | None:
        """None once nobody has it."""
        return self() if self.holder is None else self.holder()
