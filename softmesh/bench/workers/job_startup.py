"""Start-up time of a job: `python job_startup.py FILE KIND`; rank 0 writes the time of day when all ranks are there.

KIND is what a rank loads before the barrier: `mpi4py`, `torch` as well, or `softmesh` with an open mesh.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def meet(kind: str) -> int:
    """This process's rank, once all have come."""
    if kind == "softmesh":
        import softmesh as ttnn

        ttnn.open_mesh_device()
        ttnn.distributed_context_barrier()
        return int(ttnn.distributed_context_get_rank())
    if kind == "torch":
        import torch  # noqa: F401
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    return int(MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    if meet(sys.argv[2]) == 0:
        Path(sys.argv[1]).write_text(repr(time.time()))
