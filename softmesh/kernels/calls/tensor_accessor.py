"""Tensor accessors: translate a page number of a tensor or buffer to its NoC address."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.engine.noc_address import encode
from softmesh.kernels.engine.scheduler import KernelThread, here
from softmesh.kernels.engine.simulated_chip import SimulatedChip
from softmesh.kernels.engine.transfers import Endpoint
from softmesh.kernels.program.packed_args import ACCESSOR_WORDS, AccessorWords
from softmesh.runtime.buffers.mesh_memory import MemoryWithLayout
from softmesh.runtime.buffers.paged_memory import Sharded
from softmesh.strictness import doubt


class TensorAccessorArgs:
    """Which memory a tensor lies in, from the compile-time arguments that the host's TensorAccessorArgs gave.

    `TensorAccessorArgs(first)` or `TensorAccessorArgs[first]()`, `first` being the index of its first word.
    """

    def __init__(self, cta_offset: int = 0, crta_offset: int = 0) -> None:
        kernel = here("TensorAccessorArgs").kernel
        given = kernel.config.compile_args[cta_offset : cta_offset + ACCESSOR_WORDS]
        if len(given) < ACCESSOR_WORDS:
            raise MeshError(
                f"TensorAccessorArgs({cta_offset}): {kernel.name} has {len(kernel.config.compile_args)} compile-time "
                "arguments. On the host, append TensorAccessorArgs(tensor).get_compile_time_args() to them."
            )
        self.words = AccessorWords.of(given)
        self._offset = cta_offset

    def __repr__(self) -> str:
        return f"TensorAccessorArgs({self._offset}, {self.words})"

    def __class_getitem__(cls, offsets: int | tuple[int, int]) -> Callable[[], TensorAccessorArgs]:
        return functools.partial(cls, *offsets) if isinstance(offsets, tuple) else functools.partial(cls, offsets)

    def next_compile_time_args_offset(self) -> int:
        return self._offset + ACCESSOR_WORDS

    def next_common_runtime_args_offset(self) -> int:
        return 0


class TensorAccessor:
    """The pages of the tensor or buffer at an address, interleaved or sharded as it is."""

    def __init__(self, args: TensorAccessorArgs, bank_base_address: int, page_size: int | None = None) -> None:
        words = args.words
        self._set(bank_base_address, words.page_size if page_size is None else page_size, words.is_dram)

    def _set(self, address: int, page_size: int, is_dram: bool) -> None:
        self.bank_base_address = address
        self.page_size = page_size
        self._type = BufferType.DRAM if is_dram else BufferType.L1

    def __repr__(self) -> str:
        where = f"{self._type.name} from {self.bank_base_address:#x}"
        return f"{type(self).__name__}(pages of {self.page_size} bytes in {where})"

    def get_noc_addr(self, page_id: int, offset: int = 0) -> int:
        thread = here("get_noc_addr")
        bank, address = self._bank(thread.core.chip, page_id)
        return bank_noc_address(thread.core.chip, self._type, bank, address + offset)

    def locate(self, thread: KernelThread, page_id: int) -> tuple[Endpoint, int]:
        """The bank or core that holds a page, and the page's address there."""
        chip = thread.core.chip
        bank, address = self._bank(chip, page_id)
        return chip.bank(self._type, bank), address

    def locate_shard(self, thread: KernelThread, shard_id: int) -> tuple[Endpoint, int, int]:
        """The core that holds a shard, the address of its first page there, and its bytes."""
        chip = thread.core.chip
        paged = chip.memory(self._type, self.bank_base_address).paged
        pages = paged.layout.page_map
        if not isinstance(pages, Sharded):
            raise MeshError(
                f"The buffer at {paged.address} is not sharded: its pages are dealt to all banks one by one."
            )
        grid, shape = pages.spec.shard_grid(), pages.spec.shard_shape_in_pages
        if not 0 <= shard_id < math.prod(grid):
            raise MeshError(f"The buffer at {paged.address} has {math.prod(grid)} shards, and no shard {shard_id}.")
        first = 0
        place = np.unravel_index(shard_id, grid)
        for at, extent, each in zip(place, pages.spec.tensor_shape_in_pages, shape, strict=True):
            first = first * extent + int(at) * each
        bank, address = paged.locate(first)
        return chip.bank(self._type, bank), address, math.prod(shape) * paged.aligned_page_size

    def _bank(self, chip: SimulatedChip, page_id: int) -> tuple[int, int]:
        paged = chip.memory(self._type, self.bank_base_address).paged
        if paged.address != self.bank_base_address or paged.page_size != self.page_size:
            if isinstance(paged.layout.page_map, Sharded):
                raise MeshError(
                    f"Pages of {self.page_size} bytes from address {self.bank_base_address} on: the sharded buffer "
                    f"there has pages of {paged.page_size} bytes from {paged.address} on, and is addressed by those."
                )
            return self._interleaved(chip, page_id, paged)
        if not 0 <= page_id < paged.num_pages:
            raise MeshError(
                f"Page {page_id} is outside the buffer at {paged.address}: it has {paged.num_pages} pages of "
                f"{paged.page_size} bytes on each device."
            )
        return paged.locate(page_id)

    def _interleaved(self, chip: SimulatedChip, page_id: int, paged: MemoryWithLayout) -> tuple[int, int]:
        """Other pages than those of the buffer: dealt round-robin to all banks."""
        slot, bank = divmod(page_id, chip.num_banks(self._type))
        alignment = chip.alignment(self._type)
        stride = -(-self.page_size // alignment) * alignment
        if slot and paged.address == self.bank_base_address and paged.aligned_page_size != stride:
            doubt(
                f"Page {page_id} of {self.page_size} bytes is not page {page_id} of the buffer at {paged.address}, "
                f"whose pages have {paged.page_size} bytes and lie {paged.aligned_page_size} apart in each bank: give "
                "the accessor the page size of the buffer.",
            )
        return bank, self.bank_base_address + slot * stride


class InterleavedAddrGen(TensorAccessor):
    """The older way to say it: `InterleavedAddrGen(address, page_size, is_dram)`."""

    def __init__(self, bank_base_address: int, page_size: int, is_dram: bool = True) -> None:
        self._set(bank_base_address, page_size, is_dram)


def bank_noc_address(chip: SimulatedChip, buffer_type: BufferType, bank: int, address: int) -> int:
    if buffer_type is BufferType.DRAM:
        return encode(bank, 0, address)
    place = chip.mesh.worker_core_from_logical_core(chip.core_of_bank(bank))
    return encode(place.x, place.y, address)
