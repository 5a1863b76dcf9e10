"""`ttnn.device.ClearKernelCache`: forget how ops run, so that each is planned anew."""

from __future__ import annotations

from softmesh.dispatch.operation import OPERATIONS


def ClearKernelCache() -> None:
    """What ops learnt from their first calls is gone; results stay the same. Program caches of meshes are others'."""
    for op in set(OPERATIONS.values()):
        op.forget_plans()
