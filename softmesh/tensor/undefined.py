"""Pieces of a tensor that nothing has written: who left them so, and the warning for whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from softmesh.callsite import CallSite
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.lenience import warn_or_raise

if TYPE_CHECKING:
    from softmesh.tensor.tensor import Tensor

_SHOWN = 4


class Undefined(NamedTuple):
    """`positions` are those of the flattened grid; None: wherever the NaN it was filled with still stands."""

    op: str
    site: CallSite
    positions: frozenset[int] | None

    def without(self, position: int) -> Undefined | None:
        """After a write to one device."""
        if self.positions is None:
            return self
        left = self.positions - {position}
        return self._replace(positions=left) if left else None


def warn_if_undefined(tensor: Tensor, doing: str) -> None:
    """Called where values leave for the host."""
    undefined = tensor._storage.undefined
    if undefined is None:
        return
    read = tensor._where or range(len(tensor._storage.dist.coordinates()))
    found = _undefined_among(tensor, read, undefined.positions)
    if not found:
        return
    coords = tensor._storage.dist.coordinates()
    named = ", ".join(repr(coords[position]) for position in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    what = "rows of it were" if undefined.positions is None else "it was"
    warn_or_raise(
        f"{doing}: the tensor {tuple(tensor.shape)} holds undefined values on {named}{more}: {what} never written "
        f"there by {undefined.op} ({undefined.site}). On silicon this reads what the memory held before; here it "
        "is NaN, or the largest integer. Read the shards that were written with ttnn.get_device_tensors(t), or give "
        f"{undefined.op} an output tensor whose contents are known.",
        SoftmeshWarning,
        MeshError,
    )


def _undefined_among(tensor: Tensor, read: Sequence[int], positions: frozenset[int] | None) -> list[int]:
    if positions is not None:
        return [position for position in read if position in positions]
    poisoned = tensor.pieces().isnan().flatten(1).any(1).tolist()
    return [position for position, is_poisoned in zip(read, poisoned, strict=True) if is_poisoned]
