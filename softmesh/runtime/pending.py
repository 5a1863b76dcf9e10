"""What devices may still be busy with when a call returns: those who start such work say how to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

Finish = Callable[["MeshDevice"], None]
_FINISHES: list[Finish] = []


def finishes_with(finish: Finish) -> Finish:
    """Call `finish(mesh)` whenever a mesh must come to rest."""
    _FINISHES.append(finish)
    return finish


def finish_pending(mesh: MeshDevice) -> None:
    for finish in _FINISHES:
        finish(mesh)
