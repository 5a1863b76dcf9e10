"""Meshes on a machine that is chosen for them, with the fabric that their collectives ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import softmesh as ttnn
from softmesh.runtime.device_lifecycle import open_meshes


@contextmanager
def opened_on(
    system: str, shape: tuple[int, int], fabric: ttnn.FabricConfig = ttnn.FabricConfig.DISABLED, **options: Any
) -> Iterator[ttnn.MeshDevice]:
    """A machine is chosen while nothing is open: what other tests have left so is closed."""
    for left in open_meshes():
        left.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(system)
    ttnn.set_fabric_config(fabric)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape), **options)
    try:
        yield mesh
    finally:
        for one in open_meshes():
            one.close()
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
        ttnn.use_system(None)
