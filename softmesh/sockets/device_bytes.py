"""A piece of a tensor as the bytes that a socket to the host carries: its pages, each filled up to its alignment."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from softmesh.tensor.pages import from_pages, to_pages
from softmesh.tensor.spec import TensorSpec


def byte_count(spec: TensorSpec) -> int:
    return spec.num_pages() * spec.aligned_page_size()


def to_bytes(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Of one piece, whose values are in the storage's type."""
    pages = to_pages(values.detach().cpu(), spec)
    return pad(pages, (0, spec.aligned_page_size() - spec.page_size())).reshape(-1)


def from_bytes(data: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """The values of a piece, in the storage's type; the inverse of `to_bytes`."""
    pages = data.reshape(spec.num_pages(), spec.aligned_page_size())
    return from_pages(pages[:, : spec.page_size()], spec)
