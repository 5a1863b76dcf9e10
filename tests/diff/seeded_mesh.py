"""What small programs with mistakes to switch on have in common: their form, and a mesh to put values on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

import softmesh as ttnn


@dataclass(frozen=True)
class Form:
    """Which program, on which mesh, written how; `but` names other ways to write it that are right."""

    program: str
    mesh: tuple[int, int] = (2, 4)
    dtype: ttnn.DataType = ttnn.bfloat16
    but: frozenset[str] = frozenset()
    mistake: str | None = None

    def on_one_device(self) -> Form:
        return replace(self, mesh=(1, 1), mistake=None)


@dataclass
class Desk:
    """An open mesh whose rows and columns a program shares its work among. On one device collectives do nothing."""

    form: Form
    mesh: ttnn.MeshDevice

    @property
    def rows(self) -> int:
        return self.mesh.shape[0]

    @property
    def columns(self) -> int:
        return self.mesh.shape[1]

    def wrong(self, mistake: str) -> bool:
        return self.form.mistake == mistake

    def like(self, way: str) -> bool:
        return way in self.form.but

    def mapper(self, down: int | None, along: int | None) -> ttnn.Mapper:
        return ttnn.ShardTensor2dMesh(self.mesh, tuple(self.mesh.shape), (down, along))

    def total(self, x: ttnn.Tensor, axis: int = 1) -> ttnn.Tensor:
        return x if self.mesh.shape[axis] == 1 else ttnn.all_reduce(x, cluster_axis=axis)

    def gathered(self, x: ttnn.Tensor, dim: int, axis: int = 1) -> ttnn.Tensor:
        return x if self.mesh.shape[axis] == 1 else ttnn.all_gather(x, dim=dim, cluster_axis=axis)

    def scattered(self, x: ttnn.Tensor, dim: int, axis: int = 1) -> ttnn.Tensor:
        return x if self.mesh.shape[axis] == 1 else ttnn.reduce_scatter(x, dim=dim, cluster_axis=axis)

    def read(self, x: ttnn.Tensor, down: int = 0, along: int = 3) -> torch.Tensor:
        composer = ttnn.ConcatMesh2dToTensor(self.mesh, tuple(self.mesh.shape), (down, along))
        return ttnn.to_torch(x, mesh_composer=composer)


@contextmanager
def opened(form: Form) -> Iterator[Desk]:
    alone = form.mesh == (1, 1)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED if alone else ttnn.FabricConfig.FABRIC_2D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*form.mesh), trace_region_size=1 << 20)
    mesh.axis_names = ("dp", "tp")
    try:
        yield Desk(form, mesh)
    finally:
        ttnn.close_mesh_device(mesh)
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
