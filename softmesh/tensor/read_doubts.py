"""Warnings on reading a tensor: partial sums taken for the whole, shards concatenated along another dim.

A warning where the numbers are wrong for certain; under SOFTMESH_STRICT=1 only where right programs do the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import PartialError, PartialWarning
from softmesh.fabric import settings
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import stored_index
from softmesh.placement.placements import Partial
from softmesh.strictness import doubt, doubts_are_heard, is_strict, warn_or_raise
from softmesh.tensor.composers import MeshToTensor
from softmesh.tensor.stacked_copies import is_made_whole, of_aggregate, piece_of, stacked
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


def warn_if_partial(tensor: Tensor, doing: str, composer: MeshToTensor | None = None) -> None:
    """Contributions that a composer stacks, and averages, may be added up or averaged here."""
    dist = tensor.view_distribution()
    for axis, word in enumerate(dist.placements):
        if isinstance(word, Partial):
            text = (
                f"{doing}: the tensor {tuple(tensor.shape)} is still {word} over mesh axis {axis}: its "
                f"{dist.devices[axis]} devices hold contributions that nobody has combined. Missing before this: "
                f"ttnn.all_reduce(t, cluster_axis={axis}) or ttnn.reduce_scatter(t, dim, cluster_axis={axis})."
                f"{settings.needed_line()}"
            )
            if composer is not None and (word.op == "avg" or composer.stacks(dist, axis, tensor.shape)):
                doubt(text, PartialWarning)
            else:
                warn_or_raise(text, PartialWarning, PartialError)


class _Contributions:
    """The contributions to a sum that single devices hold, as the host reads them one by one."""

    def __init__(self, text: str, pieces: set[tuple[int, ...]]) -> None:
        self.left = pieces
        weakref.finalize(self, _tell_if_some, pieces, len(pieces), text, user_call_site())


def _tell_if_some(left: set[tuple[int, ...]], count: int, text: str, site: CallSite) -> None:
    if 0 < len(left) < count:
        doubt(text, PartialWarning, site)


_CONTRIBUTIONS: weakref.WeakKeyDictionary[Storage, _Contributions] = weakref.WeakKeyDictionary()
_ON_HOST: weakref.WeakKeyDictionary[Storage, tuple[_Contributions, tuple[int, ...]]] = weakref.WeakKeyDictionary()


def doubt_part(tensor: Tensor, doing: str) -> None:
    """Note a read of what one device contributes to a sum: all are read to be added up, and one by mistake."""
    held = _ON_HOST.get(tensor.storage)
    if held is not None:
        held[0].left.discard(held[1])
    elif tensor.shard_positions is not None and doubts_are_heard():
        contributions = _contributions_of(tensor, doing)
        for position in tensor.shard_positions if contributions is not None else ():
            contributions.left.discard(stored_index(tensor.storage.dist, position))  # type: ignore[union-attr]


def _contributions_of(tensor: Tensor, doing: str) -> _Contributions | None:
    storage, dist = tensor.storage, tensor.storage.dist
    words = [word for word in dist.placements if isinstance(word, Partial)]
    if words and storage not in _CONTRIBUTIONS:
        text = (
            f"{doing}: this is what one device holds of a tensor that is still {words[0]}: a contribution to the "
            "whole, not the whole, and those of other devices are not read. ttnn.all_reduce gives every device the "
            "whole."
        )
        pieces = {stored_index(dist, position) for position in range(len(dist.coordinates()))}
        _CONTRIBUTIONS[storage] = _Contributions(text, pieces)
    return _CONTRIBUTIONS.get(storage) if words else None


def note_pieces(tensor: Tensor, pieces: Sequence[Tensor], doing: str) -> None:
    """Note what single devices hold of a tensor on the host, which is about to be looked at."""
    contributions = _contributions_of(tensor, doing) if doubts_are_heard() else None
    for position, piece in enumerate(pieces if contributions is not None else ()):
        _ON_HOST[piece.storage] = (contributions, stored_index(tensor.storage.dist, position))  # type: ignore[assignment]


def doubt_composer(tensor: Tensor, composer: MeshToTensor, doing: str) -> None:
    """Shards may be stacked to be looked at one by one; or somebody has forgotten how they were split."""
    if not is_strict() or not tensor.shape:
        return
    dist = tensor.view_distribution()
    missing = composer.left_out(dist)
    if missing is not None:
        doubt(
            f"{doing}: the composer for {composer.composed_shape} leaves out what {missing} holds, and the tensor's "
            f"parts lie on {MeshShape(dist.mesh)}: some of it is missing. Give the composer the shape of the mesh.",
        )
    for axis, split, joined in composer.misplaced(dist, len(tensor.shape)):
        doubt(
            f"{doing}: dim {split} was split over mesh axis {axis}, and the composer puts the shards together along "
            f"dim {joined}: the result is not the tensor that was split. Compose along dim {split}.",
        )


def watch_copies(
    tensor: Tensor, dist: Distribution, composer: MeshToTensor | None, result: torch.Tensor
) -> torch.Tensor:
    """Return the result of `to_torch`; in strict mode, as a tensor that notes how copies are used."""
    if not is_strict() or result.dim() != len(tensor.shape):
        return result
    if composer is None:
        return of_aggregate(piece_of(result, tensor), tensor)
    copied = composer.copied(dist, tensor.shape)
    if copied is None:
        return result
    times, dim = copied
    is_told_unused = dist.is_replicated or not is_made_whole(tensor)
    return stacked(result, result.shape[dim], times, "to_torch", is_told_unused)
