"""Values that leave memory after a forward pass, and come back when the backward pass reads them.

The graph of a forward pass holds on to what its ops read. A `Loan` empties the memory of such a value and
keeps its place: whatever refers to it, views included, finds the values there again once they are brought
back. What ops save while `watching()` asks for them by itself; who keeps values elsewhere calls `bring_back`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary, ref

import torch
from torch.autograd.graph import saved_tensors_hooks


class Lender(Protocol):
    def bring_back(self) -> None:
        """Fill the loans that are away: somebody reads one of them."""
        ...


class Loan:
    def __init__(self, data: torch.Tensor, lender: Lender) -> None:
        self.data = data.data  # with versions of its own: bringing values back is no change of them
        self._bytes = data.untyped_storage().nbytes()
        self._lender = ref(lender)  # a part of the graph, as all are that read the values
        self.is_away = False
        _LOANS[_place(data)] = self

    def take_away(self, *, empties: bool) -> None:
        """`empties`: give the memory back too."""
        self.is_away = True
        if empties:
            self.data.untyped_storage().resize_(0)

    def bring_back(self) -> None:
        lender = self._lender()
        if self.is_away and lender is not None:
            lender.bring_back()

    def fill(self, values: torch.Tensor) -> None:
        """Put the values in their place again."""
        self.is_away = False
        storage = self.data.untyped_storage()
        if storage.nbytes() < self._bytes:
            storage.resize_(self._bytes)
            self.data.copy_(values)


class _Part(NamedTuple):
    """A view of a value on loan."""

    loan: Loan
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


_LOANS: WeakValueDictionary[int, Loan] = WeakValueDictionary()


def _place(data: torch.Tensor) -> int:
    return int(data.untyped_storage()._cdata)


def _packed(saved: torch.Tensor) -> Any:
    loan = _LOANS.get(_place(saved))
    if loan is None or saved.dtype is not loan.data.dtype:
        return saved.detach()
    return _Part(loan, saved.size(), saved.stride(), int(saved.storage_offset()))


def _unpacked(kept: Any) -> torch.Tensor:
    if not isinstance(kept, _Part):
        return kept
    kept.loan.bring_back()
    return kept.loan.data.as_strided(kept.size, kept.stride, kept.offset)


def watching() -> AbstractContextManager[Any]:
    """While it lasts, ops that save a value on loan for the backward pass save only where it is found."""
    return saved_tensors_hooks(_packed, _unpacked)


def bring_back(values: Iterable[Any]) -> None:
    """Make sure that those of the values that are on loan are there."""
    if not _LOANS:
        return
    for value in values:
        if isinstance(value, torch.Tensor):
            loan = _LOANS.get(_place(value))
            if loan is not None:
                loan.bring_back()
