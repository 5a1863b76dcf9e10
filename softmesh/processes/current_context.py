"""The context of this process: made at its first use, over MPI where a launcher started the process.

`context.py` says what a context is, `mpi.py` is the one over MPI. mpi4py is loaded only where it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from softmesh.errors import MeshError
from softmesh.processes.context import DistributedContext, SingleProcess
from softmesh.processes.mpi_startup import connect

_LAUNCHED_BY = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE")


def launched(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a launcher started this process as one of several."""
    environ = os.environ if environ is None else environ
    return any(name in environ for name in _LAUNCHED_BY)


class _Current:
    """The contexts of this process: of all ranks, and of the sub-context it belongs to."""

    world: DistributedContext | None = None
    current: DistributedContext | None = None


def init() -> DistributedContext:
    """The context of this process, made at the first call: over MPI where a launcher started it."""
    if _Current.current is None:
        if launched():
            _Current.world, _Current.current = connect()
        else:
            _Current.world = _Current.current = SingleProcess()
    return _Current.current


def is_initialized() -> bool:
    return _Current.current is not None


def current_world() -> DistributedContext:
    """The ranks this process works with: the sub-context where the job is split."""
    return _initialized(_Current.current)


def world_context() -> DistributedContext:
    """All ranks that the launcher started."""
    return _initialized(_Current.world)


def set_current_world(context: DistributedContext) -> None:
    _Current.current = context


def _initialized(context: DistributedContext | None) -> DistributedContext:
    if context is None:
        raise MeshError("Distributed context not initialized. Call init_distributed_context() first.")
    return context
