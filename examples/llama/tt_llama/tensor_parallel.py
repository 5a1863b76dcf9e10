"""How a model lies on a mesh of rows x columns, and where its devices must talk.

Along a row, devices share the heads, the columns of the MLP and the vocabulary: the width. Down a column they share
the hidden dim; with one row, as on 1x8, each device has all of it. Or they share the users: then each row is a whole
model with users of its own, and nothing goes down the columns.

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
    shares_users: bool = False

    @property
    def rows(self) -> int:
        """That share the hidden dim."""
        return 1 if self.shares_users else self.mesh_device.shape[DOWN]

    @property
    def groups(self) -> int:
        """Of users, each a row of the mesh."""
        return self.mesh_device.shape[DOWN] if self.shares_users else 1

    @property
    def columns(self) -> int:
        return self.mesh_device.shape[ALONG]

    @property
    def residual_axes(self) -> tuple[int, ...]:
        """The mesh axes that share the hidden dim of the residual stream."""
        is_shared = {DOWN: self.rows > 1, ALONG: self.splits_residual and self.columns > 1}
        return tuple(axis for axis, shared in is_shared.items() if shared)

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
            mesh_mapper=ttnn.ShardTensor2dMesh(self.mesh_device, tuple(self.mesh_device.shape), dims),
        )

    def put_numbers(self, values: torch.Tensor, users: int, dtype: ttnn.DataType) -> ttnn.Tensor:
        """Whole numbers, those of the users along dim `users`."""
        return ttnn.from_torch(values, dtype=dtype, device=self.mesh_device, mesh_mapper=self.over_users(users))

    def over_users(self, dim: int) -> ttnn.CppTensorToMesh:
        """To each row its users, where it has some of its own; all of them to each device where not."""
        dims = (dim if self.shares_users else None, None)
        return ttnn.ShardTensor2dMesh(self.mesh_device, tuple(self.mesh_device.shape), dims)

    def read(self, tensor: ttnn.Tensor, users: int) -> torch.Tensor:
        """The values of all users, from the first device of each row that has some of its own."""
        held = ttnn.get_device_tensors(tensor)
        return torch.cat([ttnn.to_torch(held[group * self.columns]) for group in range(self.groups)], users)

    def from_hidden(self, weight: torch.Tensor) -> ttnn.Tensor:
        """A weight (width, hidden), as checkpoints have it, ready to multiply activations of the hidden dim."""
        return self.put(weight.T, (self._hidden(0), 1))

    def to_hidden(self, weight: torch.Tensor) -> ttnn.Tensor:
        """A weight (hidden, width), ready to multiply activations of the width."""
        return self.put(weight.T, (self._hidden(1), 0))

    def like_residual(self, values: torch.Tensor, dim: int) -> ttnn.Tensor:
        """Row-major values whose `dim` is split as the hidden dim of the residual stream is."""
        if self.rows == 1 or not self.splits_residual:
            dims = (self._hidden(dim), dim if self.splits_residual else None)
            return self.put(values, dims, layout=ttnn.ROW_MAJOR_LAYOUT)
        mapper = ttnn.ShardTensorToMesh(self.mesh_device, dim)
        return ttnn.from_torch(values, dtype=self.dtype, device=self.mesh_device, mesh_mapper=mapper)

    def _hidden(self, dim: int) -> int | None:
        """The hidden dim, where a column shares it."""
        return dim if self.rows > 1 else None

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
