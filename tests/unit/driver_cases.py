"""The drivers that one suite tests: how each opens its cards, and what a Python function is as one of its kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "fixtures"))

from blackhole_py import adapter, march, september
from blackhole_py.silicon import FIRMWARE

from softmesh.drivers.blackhole.boards import Identity
from softmesh.drivers.blackhole.v2026_03 import march_cards
from softmesh.drivers.blackhole.v2026_09 import september_cards
from softmesh.drivers.blackhole.v2026_09_adapter import adapter_cards
from softmesh.drivers.rack import byte_rack, serial_of, virtual_rack

PAGE = 4096  # a page size that every era takes
_SMALL_HEAP = 1 << 20
ERAS = {"march": march, "september": september, "september-queue": september, "adapter": adapter}


def identify(index: int) -> Identity:
    return Identity(serial_of(index), "P150A")


def in_python(function: Callable[..., None]) -> dict[str, Any]:
    return {"compute": function}


def in_cpp(function: Callable[..., None]) -> dict[str, Any]:
    text = f"void kernel_main() {{ {function.__name__}(); }}\n"
    FIRMWARE[text] = function
    return {"reader": "void kernel_main() {}\n", "compute": text, "writer": "void kernel_main() {}\n"}


def in_machine_code(function: Callable[..., None]) -> dict[str, Any]:
    code = function.__name__.encode()
    FIRMWARE[code] = function
    return {"reader": b"idle", "writer": b"idle", "compute": (b"unpack", code, b"pack")}


def adapters(count: int) -> Callable[[int], Any]:
    ends = adapter.cabled([serial_of(0), serial_of(1)])
    return adapter_cards(
        adapter,
        identify,
        heap_bytes_per_bank=_SMALL_HEAP,
        exchange=lambda index, device: ends[index] if index < 2 else None,
    )


def queued(program: Any, params: Any) -> list[Any]:
    return [september.Run(program, params), september.Signal()]


@dataclass(frozen=True)
class Case:
    cards: Callable[[int], Callable[[int], Any]]
    kernels: Callable[[Callable[..., None]], dict[str, Any]]
    is_cabled: bool = False
    has_l1: bool = False
    cores_differ: bool = True


CASES = {
    "virtual": Case(virtual_rack, in_python, is_cabled=True, has_l1=True),
    "bytearray": Case(byte_rack, in_python, is_cabled=True, has_l1=True),
    "march": Case(lambda count: march_cards(march, identify), in_cpp),
    "september": Case(
        lambda count: september_cards(september, identify, heap_bytes_per_bank=_SMALL_HEAP), in_machine_code
    ),
    "september-queue": Case(
        lambda count: september_cards(september, identify, heap_bytes_per_bank=_SMALL_HEAP, commands=queued),
        in_machine_code,
    ),
    "adapter": Case(adapters, in_machine_code, is_cabled=True, cores_differ=False),
}


@contextmanager
def fresh_machine() -> Iterator[None]:
    """No card holds anything, and none is left open."""
    for era in ERAS.values():
        era.CHIPS.clear()
        era.OPEN.clear()
    yield
    for name, era in ERAS.items():
        assert era.OPEN == [], f"{name} was left open"


def increased(core: Any) -> None:
    """Adds the last argument to every byte of some pages, which the cores share."""
    address, count, step = core.args
    pages = core.pages(address, PAGE)
    for page in range(core.index, count, core.count):
        pages[page] = bytes((value + step) % 256 for value in pages[page])


def marked(core: Any) -> None:
    """Writes the core's index and its second argument into the page that its first argument names."""
    address, value = core.args[:2]
    core.pages(address, PAGE)[core.index] = bytes([core.index, value % 256, core.count])


def shared_sum(core: Any) -> None:
    """The sum of all ranks' shards of float32, with the arguments of a reduction program."""
    import torch

    own, scratch, out, rank, ranks, pages, page_size, _banks, _columns, holders = core.args
    sources = {True: core.pages(own, page_size), False: core.pages(scratch, page_size)}
    target = core.pages(out, page_size)
    for number in range(core.index, pages, core.count):
        places = [(r == rank, number if r == rank else r * pages + number) for r in range(min(ranks, holders))]
        shards = [torch.frombuffer(sources[own][place], dtype=torch.float32) for own, place in places]
        total = shards[0]
        for shard in shards[1:]:
            total = total + shard
        target[number] = total.numpy().tobytes()
