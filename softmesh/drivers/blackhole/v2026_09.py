"""Driver for blackhole-py as of September 2026, raw layer: bytes in DRAM, machine code on cores, a command queue.

alloc            one alloc_interleaved_dram over the whole heap; buffers are that one with other addresses
free             nothing: the mesh knows what is free
write, read      write_dram, read_dram
compile          an image for each processor, as it is
submit, wait     run(program, params=) on the card's thread; with `commands`, cq.enqueue and cq.wait
peers, traces    none of its own; traces by submitting again
reset, close     close, open and boot again; close
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from softmesh.drivers.blackhole.boards import BlackholeCard, DramRange, Identify, Identity, chip_of, info_of
from softmesh.drivers.launches import Launch
from softmesh.drivers.protocol import Cores, Handle, ProgramSpec, Xy, aligned
from softmesh.drivers.serial_card import RUN_SECONDS, TRANSFER_SECONDS
from softmesh.errors import ArgumentValueError

# Programs of machine code, as both layers of September 2026 take them: an image for each processor of a core.


PROCESSORS = ("brisc", "ncrisc", "trisc0", "trisc1", "trisc2")
MOST_PARAMS = 24
# The roles of a program, where they are given instead of processors; compute has an image for each of three.
_ROLES = {"writer": ("brisc",), "reader": ("ncrisc",), "compute": ("trisc0", "trisc1", "trisc2")}


class CodeImage(NamedTuple):
    name: str
    cores: Cores
    code: dict[str, bytes]  # by processor

    def on(self, cores: Sequence[Xy]) -> dict[Xy, dict[str, bytes]]:
        return dict.fromkeys(cores, self.code)


def code_image(spec: ProgramSpec) -> CodeImage:
    code: dict[str, bytes] = {}
    for role, kernel in spec.kernels.items():
        processors = (role,) if role in PROCESSORS else _ROLES.get(role, ())
        images = [kernel] if len(processors) == 1 else kernel
        if not processors or not _are_images(images) or len(images) != len(processors):
            raise ArgumentValueError(
                f"program {spec.name!r}: machine code is bytes for each of {', '.join(PROCESSORS)}, or for reader and "
                f"writer, and three for compute; got {role!r}"
            )
        code.update(zip(processors, images, strict=True))
    if spec.compile_args:
        raise ArgumentValueError(f"program {spec.name!r}: machine code has its compile arguments in it already")
    return CodeImage(spec.name, spec.cores, code)


def _are_images(images: Any) -> bool:
    return isinstance(images, list | tuple) and all(isinstance(image, bytes) for image in images)


def checked_params(args: Sequence[Sequence[int]]) -> list[list[int]]:
    most = max(map(len, args), default=0)
    if most > MOST_PARAMS:
        raise ArgumentValueError(f"a core takes {MOST_PARAMS} parameters at the most, got {most}")
    return [[int(value) for value in values] for values in args]


KIND = "blackhole-py, September 2026, raw"
SYSMEM_BYTES = 1 << 30
LARGEST_PAGE = 16 * 1024
_PAGE_STEP = 16
KEPT_PER_BANK = 64 << 20  # for the library's own needs

Commands = Callable[[Any, Any], Sequence[Any]]


def september_cards(
    api: Any,
    identify: Identify,
    *,
    heap_bytes_per_bank: int | None = None,
    banks: int | None = None,
    sysmem_size: int = SYSMEM_BYTES,
    commands: Commands | None = None,
) -> Callable[[int], SeptemberCard]:
    """`api` has the library's `Device` and `Program`; `commands(program, params)` makes the records of a launch."""

    def open_card(index: int) -> SeptemberCard:
        identity = identify(index)
        chip = chip_of(identity)
        per_bank = heap_bytes_per_bank or chip.dram_bank_bytes - KEPT_PER_BANK
        return SeptemberCard(api, index, identity, banks or chip.dram_banks, per_bank, sysmem_size, commands)

    return open_card


class SeptemberCard(BlackholeCard):
    def __init__(
        self,
        api: Any,
        index: int,
        identity: Identity,
        banks: int,
        heap_bytes_per_bank: int,
        sysmem_size: int,
        commands: Commands | None,
    ) -> None:
        self._api, self._index, self._sysmem_size, self._commands = api, index, sysmem_size, commands
        self._heap_size = banks * (heap_bytes_per_bank // LARGEST_PAGE * LARGEST_PAGE)
        self._heap_banks = banks
        self._device, self._whole = self._opened()
        heap = DramRange(banks, self._whole.address, self._heap_size // banks)
        cores = [tuple(core) for core in self._device.cores]
        super().__init__(info_of(KIND, index, identity, cores, heap, LARGEST_PAGE, sysmem_size), cores)

    def _opened(self) -> tuple[Any, Any]:
        """The device, and all of its DRAM as one buffer: from here on the mesh decides what lies where."""
        device = self._api.Device(self._index, sysmem_size=self._sysmem_size)
        try:
            device.boot()
            banks = range(self._heap_banks)
            whole = device.alloc_interleaved_dram(self._heap_size, page_size=LARGEST_PAGE, banks=banks)
        except BaseException:
            device.close()
            raise
        return device, whole

    def _place(self, handle: Handle) -> None:
        super()._place(handle)
        if handle.page_size % _PAGE_STEP:
            raise ArgumentValueError(f"{KIND}: pages are multiples of {_PAGE_STEP} bytes, not {handle.page_size}")

    def _buffer(self, handle: Handle) -> Any:
        values = {
            "address": handle.address,
            "size": handle.pages * handle.page_size,
            "physical_size": handle.pages * aligned(handle.page_size, self.info.dram_align),
            "page_size": handle.page_size,
            "page_count": handle.pages,
        }
        known = {field.name for field in fields(self._whole)}
        return replace(self._whole, **{name: value for name, value in values.items() if name in known})

    def _write_whole(self, buffer: Any, data: bytes) -> None:
        padded = data + bytes(buffer.size - len(data))
        self._device.write_dram(buffer, padded, timeout=TRANSFER_SECONDS)

    def _read_whole(self, buffer: Any) -> bytes:
        return bytes(self._device.read_dram(buffer))

    def _compile(self, spec: ProgramSpec) -> CodeImage:
        return code_image(spec)

    def _run(self, launch: Launch) -> None:
        program = self._api.Program(launch.image.on(launch.cores))
        params = dict(zip(launch.cores, checked_params(launch.args), strict=True))
        if self._commands is None:
            self._device.run(program, params=params, timeout=RUN_SECONDS)
        else:
            event = self._device.cq.enqueue(self._commands(program, params))
            self._device.cq.wait(event, RUN_SECONDS)

    def _reset(self) -> None:
        self._device.close()
        self._device, self._whole = self._opened()
