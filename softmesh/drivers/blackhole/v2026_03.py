"""Driver for blackhole-py as of March 2026: C++ kernels, `queue` and `run`, buffers of tiles that only grow upwards.

alloc            dram.alloc(tiles, dtype, name, shape) after setting the allocator's next address
free             nothing: this library cannot; the mesh knows what is free
write, read      dram_write, dram_read: they turn rows into tiles and back, so tiles are turned back before
compile          the text of the kernels, with the compile arguments as #define lines
submit, wait     Program(...), queue, run on the card's thread
peers, traces    none of its own; traces by submitting again
reset, close     close and open again; close
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from softmesh.drivers.blackhole.boards import BlackholeCard, DramRange, Identify, Identity, chip_of, info_of
from softmesh.drivers.launches import Launch
from softmesh.drivers.protocol import CircularBuffer, Cores, Handle, ProgramSpec
from softmesh.errors import ArgumentValueError

KIND = "blackhole-py, March 2026"
DTYPE_CODES = {
    "float32": 0,
    "float16": 1,
    "bfloat16": 5,
    "int32": 8,
    "uint16": 9,
    "int8": 14,
    "uint32": 24,
    "uint8": 30,
}
_HEAP_BASE = 0x40
_MOVED_AS = {1024: "uint8", 2048: "uint16", 4096: "uint32"}  # a tile of so many bytes
_LARGEST_TRANSFER = 1 << 30
_ROLES = ("reader", "compute", "writer")
_MORE_ROLES = ("reader_recv", "writer_recv")


def march_cards(api: Any, identify: Identify) -> Callable[[int], MarchCard]:
    """`api` has the library's `Device`, `Program` and `CBConfig`."""
    return lambda index: MarchCard(api, index, identify(index))


class MarchImage(NamedTuple):
    name: str
    cores: Cores
    kernels: dict[str, str]
    cbs: tuple[CircularBuffer, ...]
    semaphores: int


class MarchCard(BlackholeCard):
    def __init__(self, api: Any, index: int, identity: Identity) -> None:
        chip = chip_of(identity)
        self._api, self._index = api, index
        self._device = api.Device(index)
        self._a_buffer: Any = None  # of the library's class, to make others like it
        heap = DramRange(chip.dram_banks, _HEAP_BASE, chip.dram_bank_bytes - _HEAP_BASE)
        cores = [tuple(core) for core in self._device.cores]
        super().__init__(info_of(KIND, index, identity, cores, heap, max(_MOVED_AS), _LARGEST_TRANSFER), cores)

    def _place(self, handle: Handle) -> None:
        super()._place(handle)
        if handle.page_size not in _MOVED_AS:
            raise ArgumentValueError(
                f"{KIND} moves tiles: pages have {', '.join(map(str, _MOVED_AS))} bytes, not {handle.page_size}"
            )
        allocator, furthest = self._device.dram, self._device.dram.next
        allocator.next = handle.address
        buffer = allocator.alloc(
            handle.pages,
            DTYPE_CODES[_MOVED_AS[handle.page_size]],
            name=f"softmesh_{handle.address:x}",
            shape=_rows_of_tiles(handle),
        )
        allocator.next = max(furthest, allocator.next)
        if buffer.addr != handle.address:
            raise MemoryError(f"asked for {hex(handle.address)}, and got {hex(buffer.addr)}")
        self._a_buffer = buffer

    def _buffer(self, handle: Handle) -> Any:
        code = DTYPE_CODES[_MOVED_AS[handle.page_size]]
        shape = _rows_of_tiles(handle)
        return replace(self._a_buffer, addr=handle.address, num_tiles=handle.pages, dtype=code, shape=shape)

    def _write_whole(self, buffer: Any, data: bytes) -> None:
        self._device.dram_write(buffer, _faces_and_rows_swapped(data, buffer.num_tiles, from_faces=True))

    def _read_whole(self, buffer: Any) -> bytes:
        rows = self._device.dram_read(buffer)
        return _faces_and_rows_swapped(rows, buffer.num_tiles, from_faces=False)

    def _compile(self, spec: ProgramSpec) -> MarchImage:
        missing = [role for role in _ROLES if role not in spec.kernels]
        unknown = [role for role in spec.kernels if role not in _ROLES + _MORE_ROLES]
        if missing or unknown:
            raise ArgumentValueError(
                f"program {spec.name!r}: {KIND} takes C++ text for each of {', '.join(_ROLES)} (an empty kernel where "
                f"there is nothing to do) and perhaps {', '.join(_MORE_ROLES)}; missing {missing}, unknown {unknown}"
            )
        defines = "".join(f"#define {name} {value}\n" for name, value in sorted(spec.compile_args.items()))
        kernels = {f"{role}_kernel": defines + text for role, text in spec.kernels.items()}
        return MarchImage(spec.name, spec.cores, kernels, tuple(spec.cbs), spec.semaphores)

    def _run(self, launch: Launch) -> None:
        image: MarchImage = launch.image
        if list(launch.cores) != self.cores[: len(launch.cores)]:
            raise ArgumentValueError(f"{KIND} runs on the first n of its cores; got {list(launch.cores)}")

        def args_of(core_index: int, xy: object, n_cores: int) -> list[int]:
            return [int(value) for value in launch.args[core_index]]

        program = self._api.Program(
            cores=len(launch.cores),
            cbs=[self._api.CBConfig(cb.index, DTYPE_CODES[cb.dtype], tiles=cb.pages) for cb in image.cbs],
            name=image.name,
            reader_args=args_of,
            writer_args=args_of,
            compute_args=args_of,
            semaphores=image.semaphores,
            **image.kernels,
        )
        self._device.queue(program)
        self._device.run()

    def _reset(self) -> None:
        self._device.close()
        self._device = self._api.Device(self._index)


def _rows_of_tiles(handle: Handle) -> tuple[int, int]:
    """A column of tiles: as a matrix, 32 elements wide."""
    return handle.pages * 32, 32


def _faces_and_rows_swapped(data: bytes, tiles: int, *, from_faces: bool) -> bytes:
    """Tiles of four faces as matrices of 32 x 32 elements, or those as tiles of four faces."""
    elements = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    inner = (2, 16) if from_faces else (16, 2)
    swapped = elements.reshape(tiles, 2, *inner, -1).transpose(2, 3)
    return bytes(swapped.contiguous().numpy().data)
