"""A tensor as commands and their observers know it: what it is, and where its memory lies.

Tensors are built on the runtime and not the other way round, so the stream asks what an operand can tell instead of
importing its class (`tensor.tensor.Tensor`, `tensor.storage.Storage`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from softmesh.hardware.enums import DataType, Layout
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.hardware.shape import Shape
from softmesh.placement.distribution import Distribution
from softmesh.runtime.memory.allocations import Span

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


class TensorMemory(Protocol):
    """The storage behind a tensor; `device` is None on the host, `data` once it was deallocated."""

    @property
    def data(self) -> torch.Tensor | None: ...
    @property
    def device(self) -> MeshDevice | None: ...
    @property
    def dist(self) -> Distribution: ...
    @property
    def spec(self) -> Any: ...
    @property
    def address(self) -> int: ...
    def span(self) -> Span | None: ...
    def is_shared(self) -> bool: ...


class CommandTensor(Protocol):
    """An input or output of a command."""

    @property
    def storage(self) -> TensorMemory: ...
    @property
    def spec(self) -> Any: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> DataType: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def tensor_id(self) -> int: ...
    @property
    def shard_positions(self) -> tuple[int, ...] | None: ...
    def memory_config(self) -> MemoryConfig: ...
    def logical_volume(self) -> int: ...
    def view_data(self) -> torch.Tensor: ...
    def view_distribution(self) -> Distribution: ...
