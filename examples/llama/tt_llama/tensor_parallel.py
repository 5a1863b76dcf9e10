"""How a model lies on a mesh of rows x columns, and where its devices must talk.

Along a row, devices share the heads, the columns of the MLP and the vocabulary: the width. Down a column they share
the hidden dim; with one row, as on 1x8, each device has all of it.

    x [.., hidden / rows]    @ w [hidden / rows, width / columns]    a sum down the columns is missing
    y [.., width / columns]  @ w [width / columns, hidden / rows]    a sum along the rows is missing

The second sum is added to the residual stream. Either each device of a row gets all of it (all_reduce), or its own
slice (reduce_scatter): then the stream is split along the row too, and gathered before the next product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import ttnn

DOWN, ALONG = 0, 1  # mesh axes: down a column, along a row
_FEATURES = 3  # the dim of activations [1, 1, tokens, features] that is split


@dataclass(frozen=True)
class TensorParallel:
    mesh_device: ttnn.MeshDevice
    dtype: ttnn.DataType = ttnn.bfloat16
    splits_residual: bool = False

    @property
    def rows(self) -> int:
        return self.mesh_device.shape[DOWN]

    @property
    def columns(self) -> int:
        return self.mesh_device.shape[ALONG]

    @property
    def residual_axes(self) -> tuple[int, ...]:
        """The mesh axes that share the hidden dim of the residual stream."""
        axes = (DOWN, ALONG) if self.splits_residual else (DOWN,)
        return tuple(axis for axis in axes if self.mesh_device.shape[axis] > 1)

    # -- what lies on the devices ------------------------------------------------------------------

    def put(
        self,
        values: torch.Tensor,
        dims: tuple[int | None, int | None] = (None, None),
        *,
        dtype: ttnn.DataType | None = None,
        layout: ttnn.Layout = ttnn.TILE_LAYOUT,
    ) -> ttnn.Tensor:
        """On the mesh, with the dim that a column shares and the one that a row shares; None for neither."""
        return ttnn.from_torch(
            values,
            dtype=dtype or self.dtype,
            layout=layout,
            device=self.mesh_device,
            mesh_mapper=ttnn.ShardTensor2dMesh(self.mesh_device, (self.rows, self.columns), dims),
        )

    def from_hidden(self, weight: torch.Tensor) -> ttnn.Tensor:
        """A weight (width, hidden), as checkpoints have it, ready to multiply activations of the hidden dim."""
        return self.put(weight.T, (0, 1))

    def to_hidden(self, weight: torch.Tensor) -> ttnn.Tensor:
        """A weight (hidden, width), ready to multiply activations of the width."""
        return self.put(weight.T, (1, 0))

    def like_residual(self, values: torch.Tensor, dim: int) -> ttnn.Tensor:
        """Row-major values whose `dim` is split as the hidden dim of the residual stream is."""
        if not self.splits_residual:
            return self.put(values, (dim, None), layout=ttnn.ROW_MAJOR_LAYOUT)
        mapper = ttnn.ShardTensorToMesh(self.mesh_device, dim)
        return ttnn.from_torch(values, dtype=self.dtype, device=self.mesh_device, mesh_mapper=mapper)

    # -- where they talk ---------------------------------------------------------------------------

    def summed_over_hidden(self, partial: ttnn.Tensor) -> ttnn.Tensor:
        return partial if self.rows == 1 else ttnn.all_reduce(partial, cluster_axis=DOWN)

    def summed_over_width(self, partial: ttnn.Tensor) -> ttnn.Tensor:
        """A contribution to the residual stream."""
        if self.columns == 1:
            return partial
        if self.splits_residual:
            return ttnn.reduce_scatter(partial, dim=_FEATURES, cluster_axis=ALONG)
        return ttnn.all_reduce(partial, cluster_axis=ALONG)

    def gathered(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """What a row shares, on each of its devices."""
        return x if self.columns == 1 else ttnn.all_gather(x, dim=_FEATURES, cluster_axis=ALONG)
