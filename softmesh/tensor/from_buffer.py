"""`from_buffer`: a tensor on a device from flat numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from softmesh.arguments import checked, checked_ints, described, refused
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.tensor import Tensor

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

_KINDS = {
    DataType.UINT8: torch.int64,
    DataType.INT8: torch.int64,
    DataType.UINT16: torch.int64,
    DataType.INT32: torch.int64,
    DataType.UINT32: torch.int64,
    DataType.FLOAT32: torch.float32,
    DataType.BFLOAT16: torch.float32,
}


def from_buffer(
    buffer: Any,
    shape: Sequence[int],
    dtype: DataType,
    device: MeshDevice,
    layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """The numbers of a list, row-major, as a tensor on a device: in rows and in DRAM where nothing else is said."""
    wanted = checked("from_buffer", "dtype", dtype, DataType, "a ttnn dtype such as ttnn.bfloat16")
    if wanted not in _KINDS:
        known = ", ".join(str(kind) for kind in _KINDS)
        raise MeshError(f"Unreachable: from_buffer makes no {wanted}; take one of {known}, then ttnn.typecast.")
    sizes = checked_ints("from_buffer", "shape", shape)
    try:
        values = torch.as_tensor(buffer, dtype=_KINDS[wanted])
    except (TypeError, ValueError, RuntimeError) as error:
        raise refused("from_buffer", f"buffer must hold numbers, got {described(buffer)}: {error}") from None
    if values.numel() != torch.Size(sizes).numel():
        raise MeshError(f"from_buffer: {values.numel()} numbers do not make a tensor of {sizes}.")
    made = from_torch(
        values.reshape(sizes),
        dtype=wanted,
        layout=layout or Layout.ROW_MAJOR,
        device=device,
        memory_config=memory_config,
    )
    assert made is not None
    return made
