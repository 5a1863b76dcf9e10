"""Who wants to hear of plans: `with softmesh.explain():` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from softmesh.distributed.planner import Plan
from softmesh.runtime.device import MeshDevice

Listener = Callable[[Plan, MeshDevice], None]
LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("softmesh_explain", default=())


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Within the block, each unified op tells its plan before it runs."""
    token = LISTENERS.set((*LISTENERS.get(), listener))
    try:
        yield
    finally:
        LISTENERS.reset(token)
