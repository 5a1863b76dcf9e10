"""Compares what a dispatch of tokens went by with what their combination goes by: they have to be the same."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch

from softmesh import value_free
from softmesh.callsite import CallSite, user_call_site
from softmesh.strictness import warn_or_raise
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


class _Routing(NamedTuple):
    mapping: torch.Tensor
    axis: int | None
    site: CallSite


# By the memory of the metadata that a dispatch has made.
_ROUTINGS: weakref.WeakKeyDictionary[Storage, _Routing] = weakref.WeakKeyDictionary()


def note_routing(op: str, made: Any, given: dict[str, Any]) -> Any:
    """Keep the mapping by which tokens went, and hand on the results of the dispatch."""
    mapping: Tensor = given["expert_mapping_tensor"]
    held = mapping.view_data().clone()
    _ROUTINGS[made[1].storage] = _Routing(held, given["cluster_axis"], user_call_site())
    return made


def warn_of_other_routing(op: str, made: Any, given: dict[str, Any]) -> Any:
    """Warn where tokens were sent by another mapping, or along another axis; hand on the results."""
    metadata: Tensor = given["expert_metadata_tensor"]
    routing = _ROUTINGS.get(metadata.storage)
    if routing is None:
        return made
    axis = given.get("cluster_axis", routing.axis)  # weights of experts are no matter of an axis
    expert = _expert_elsewhere(routing.mapping, given["expert_mapping_tensor"].view_data(), metadata.view_data())
    if routing.axis not in (None, axis):
        what = f"goes along mesh axis {axis}, and the tokens went along axis {routing.axis}. Use that cluster_axis"
    elif expert is not None:
        what = (
            f"has another expert_mapping_tensor: expert {expert} lives on another device there, and what belongs to "
            "one expert is taken for another's. Give both calls one mapping"
        )
    else:
        return made
    warn_or_raise(f"{op}: the tokens were dispatched at {routing.site}, and this call {what}.")
    return made


def _expert_elsewhere(before: torch.Tensor, now: torch.Tensor, chosen: torch.Tensor) -> int | None:
    """The first chosen expert that the two mappings have on different devices."""
    if value_free.is_on or now.is_meta or chosen.is_meta or torch.equal(before, now):
        return None
    if before.shape[-2:] != now.shape[-2:]:
        return None
    differs = (before != now).any(-1).reshape(-1, now.shape[-2]).any(0)
    return next((expert for expert in chosen.unique().tolist() if differs[expert]), None)
