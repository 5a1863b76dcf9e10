"""Whether a torch tensor is still what it was when somebody looked at it."""

from __future__ import annotations

import weakref

import torch


class Seen:
    """One torch tensor at one moment; torch counts the writes to it."""

    __slots__ = ("_data", "_writes")

    def __init__(self, data: torch.Tensor) -> None:
        self._data = weakref.ref(data)
        self._writes = _writes(data)

    def look_again(self) -> None:
        """As it is by now."""
        data = self._data()
        if data is not None:
            self._writes = _writes(data)

    def is_unchanged(self, data: torch.Tensor) -> bool:
        """Whether `data` is that tensor, not written to since."""
        return self._data() is data and self._writes == _writes(data)


def _writes(data: torch.Tensor) -> int:
    return 0 if data.is_inference() else data._version  # what inference mode makes has no count
