"""What tests of the sanitizer share."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

import softmesh as ttnn
from softmesh.runtime.sanitizer.findings import Finding, FindingKind


@contextmanager
def watched() -> Iterator[list[Finding]]:
    """Findings are looked at by the test, and no warnings besides."""
    with warnings.catch_warnings(), ttnn.sanitize() as findings:
        warnings.simplefilter("ignore", ttnn.SanitizerWarning)
        yield findings


def kinds(findings: list[Finding]) -> list[FindingKind]:
    return [finding.kind for finding in findings]


def line() -> int:
    return inspect.currentframe().f_back.f_lineno


def on_mesh(mesh: ttnn.MeshDevice, value: float = 1.0, cq_id: int = 0) -> ttnn.Tensor:
    return ttnn.from_torch(
        torch.full((32, 32), value), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, cq_id=cq_id
    )


def on_host(value: float = 2.0) -> ttnn.Tensor:
    return ttnn.from_torch(torch.full((32, 32), value), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
