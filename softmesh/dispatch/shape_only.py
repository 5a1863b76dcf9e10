"""Ops on devices that other processes hold: nothing is computed, and only the form of the result comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.errors import SoftmeshError

_NOWHERE = torch.device("meta")


def form_only(compute: Callable[..., Any]) -> Callable[..., Any]:
    """The computation on tensors without values; one that looks at values is shown zeros."""

    def run(*values: Any) -> Any:
        try:
            return compute(*values)
        except SoftmeshError:
            raise
        except RuntimeError:  # torch's, for every look at values that are not there
            results = compute(*(_zeros(value) if isinstance(value, torch.Tensor) else value for value in values))
            if isinstance(results, torch.Tensor):
                return results.to(_NOWHERE)
            return type(results)(result.to(_NOWHERE) for result in results)

    return run


def _zeros(value: torch.Tensor) -> torch.Tensor:
    return torch.zeros(value.shape, dtype=value.dtype)
