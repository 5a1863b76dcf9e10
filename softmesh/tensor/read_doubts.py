"""Warnings on reading a tensor: partial sums taken for the whole, shards concatenated along another dim.

A warning where the numbers are wrong for certain; under SOFTMESH_STRICT=1 only where right programs do the same.
"""

from __future__ import annotations

import torch

from softmesh.errors import PartialError, PartialWarning, SoftmeshWarning
from softmesh.fabric import settings
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import Partial
from softmesh.strictness import doubt, is_strict, warn_or_raise
from softmesh.tensor.composers import MeshToTensor
from softmesh.tensor.stacked_copies import is_made_whole, of_aggregate, piece_of, stacked
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


def doubt_part(tensor: Tensor, doing: str) -> None:
    """A shard that is one device's contribution to a sum may be read to be added up here; or taken for the whole."""
    if tensor.shard_positions is not None:
        doubt_pieces(tensor, doing)


def doubt_pieces(tensor: Tensor, doing: str) -> None:
    """What single devices hold is about to be looked at."""
    words = [word for word in tensor.storage.dist.placements if isinstance(word, Partial)]
    if words:
        doubt(
            f"{doing}: this is what one device holds of a tensor that is still {words[0]}: a contribution to the "
            "whole, not the whole. ttnn.all_reduce gives every device the whole.",
            PartialWarning,
        )


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
            SoftmeshWarning,
        )
    for axis, split, joined in composer.misplaced(dist, len(tensor.shape)):
        doubt(
            f"{doing}: dim {split} was split over mesh axis {axis}, and the composer puts the shards together along "
            f"dim {joined}: the result is not the tensor that was split. Compose along dim {split}.",
            SoftmeshWarning,
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
