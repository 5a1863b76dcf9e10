"""Reports of device memory, buffer by buffer and page by page, and of what a chip has room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from softmesh.arguments import checked_all
from softmesh.cores import CoreCoord
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import TensorMemoryLayout
from softmesh.runtime.buffers.mesh_memory import MemoryWithLayout, memory_of
from softmesh.runtime.buffers.paged_memory import Interleaved
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.allocations import Allocation
from softmesh.tensor import device_pages  # noqa: F401  (tells how the bytes of a tensor are found)
from softmesh.tensor.storage import Storage

_ON_WORKERS = (BufferType.L1, BufferType.L1_SMALL)


class _Record:
    def as_json(self) -> dict[str, Any]:
        values = asdict(self)  # type: ignore[call-overload]
        return {name: value.name if isinstance(value, Enum) else value for name, value in values.items()}


@dataclass(frozen=True)
class BufferInfo(_Record):
    """A buffer at one address on every chip of a mesh; `device_id` is the mesh's."""

    device_id: int
    address: int
    max_size_per_bank: int
    buffer_type: BufferType
    buffer_layout: TensorMemoryLayout


@dataclass(frozen=True)
class BufferPageInfo(_Record):
    """One page of a buffer: `core_x`, `core_y` is the logical worker core, or the DRAM core of its bank."""

    device_id: int
    address: int
    core_y: int
    core_x: int
    bank_id: int
    page_index: int
    page_address: int
    page_size: int
    buffer_type: BufferType


@dataclass(frozen=True)
class DeviceInfo(_Record):
    """One chip of a mesh; sizes in bytes."""

    num_y_cores: int
    num_x_cores: int
    num_y_compute_cores: int
    num_x_compute_cores: int
    worker_l1_size: int
    l1_num_banks: int
    l1_bank_size: int
    address_at_first_l1_bank: int
    address_at_first_l1_cb_buffer: int
    num_banks_per_storage_core: int
    num_compute_cores: int
    num_storage_cores: int
    total_l1_memory: int
    total_l1_for_tensors: int
    total_l1_for_interleaved_buffers: int
    total_l1_for_sharded_buffers: int
    cb_limit: int


def get_buffers(devices: MeshDevice | Sequence[MeshDevice]) -> list[BufferInfo]:
    """Every buffer and tensor that is allocated, by memory and address."""
    return [
        BufferInfo(mesh.id(), held.address, held.bytes_per_bank, held.buffer_type, _memory_layout(held.owner, memory))
        for mesh, held, memory in _allocated("get_buffers", devices)
    ]


def get_buffer_pages(devices: MeshDevice | Sequence[MeshDevice]) -> list[BufferPageInfo]:
    """The pages of those whose layout is known: tensors and mesh buffers."""
    return [
        page
        for mesh, held, memory in _allocated("get_buffer_pages", devices)
        if memory is not None
        for page in _pages(mesh, held, memory)
    ]


def _allocated(where: str, devices: object) -> Iterator[tuple[MeshDevice, Allocation, MemoryWithLayout | None]]:
    given = [devices] if isinstance(devices, MeshDevice) else devices
    for mesh in checked_all(where, "devices", given, (MeshDevice,), "MeshDevices"):
        mesh.check_open(where)
        for allocation in mesh.memory.live():
            yield mesh, allocation, memory_of(allocation.owner)


def _memory_layout(owner: object, memory: MemoryWithLayout | None) -> TensorMemoryLayout:
    if isinstance(owner, Storage) and owner.spec is not None:
        return owner.spec.memory_config.memory_layout
    is_dealt = memory is None or isinstance(memory.layout.page_map, Interleaved)
    return TensorMemoryLayout.INTERLEAVED if is_dealt else TensorMemoryLayout.ND_SHARDED


def _pages(mesh: MeshDevice, held: Allocation, memory: MemoryWithLayout) -> Iterator[BufferPageInfo]:
    layout, kind = memory.layout, held.buffer_type
    cores = mesh.memory.memory_map.core_of_bank if kind in _ON_WORKERS else None
    for page in range(layout.num_pages):
        bank, slot = layout.page_map.slot(page)
        core = CoreCoord(bank, 0) if cores is None else cores[bank]
        at = held.address + slot * layout.aligned_page_size
        yield BufferPageInfo(mesh.id(), held.address, core.y, core.x, bank, page, at, layout.aligned_page_size, kind)


def get_device_info(device: MeshDevice) -> DeviceInfo:
    (mesh,) = checked_all("get_device_info", "device", [device], (MeshDevice,), "MeshDevices")
    chip, l1 = mesh.system.chip, mesh.memory.memory_map.regions[BufferType.L1]
    columns, rows = mesh.memory.memory_map.grid
    for_tensors = l1.banks * l1.size
    return DeviceInfo(
        num_y_cores=chip.tensix_grid[1],
        num_x_cores=chip.tensix_grid[0],
        num_y_compute_cores=rows,
        num_x_compute_cores=columns,
        worker_l1_size=chip.l1_bytes,
        l1_num_banks=l1.banks,
        l1_bank_size=l1.size,
        address_at_first_l1_bank=l1.base,
        address_at_first_l1_cb_buffer=l1.base,
        num_banks_per_storage_core=1,
        num_compute_cores=columns * rows,
        num_storage_cores=l1.banks,
        total_l1_memory=l1.banks * chip.l1_bytes,
        total_l1_for_tensors=for_tensors,
        total_l1_for_interleaved_buffers=for_tensors,
        total_l1_for_sharded_buffers=for_tensors,
        cb_limit=chip.l1_bytes - l1.base,
    )
