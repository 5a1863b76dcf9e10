"""What cards compute themselves in collectives over the fabric, as Python kernels for the software cards.

A card's own shard lies where it was, those of the others one after another in `scratch`, in the order of their
ranks. A card that runs other than Python kernels is given a program of its own with the same arguments:

    both      own, scratch and out addresses; own rank, number of ranks; pages of a shard, page size; DRAM banks
              that pages are dealt to (0: they are in L1)
    sum       then columns and holders: of each row of so many ranks, the first so many are added
    arrange   then run: so many pages of each rank in turn
"""

from __future__ import annotations

from functools import lru_cache

import torch

from softmesh.drivers.core import Core, Pages
from softmesh.drivers.handle import MemoryKind
from softmesh.drivers.protocol import ProgramSpec
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import FACTS, DataType, Layout
from softmesh.tensor.pages import from_pages, to_pages
from softmesh.tensor.spec import TensorSpec, make_spec

COMMON_ARGS = 8


class _Shards:
    """The pages of all ranks, as one card sees them."""

    def __init__(self, core: Core) -> None:
        own, scratch, out, self.rank, self.ranks, self.pages, page_size, banks = core.args[:COMMON_ARGS]
        mem: MemoryKind = "dram" if banks else "l1"
        self._own, self._scratch, self.out = (
            core.pages(address, page_size, mem=mem, banks=banks or None) for address in (own, scratch, out)
        )

    def page(self, rank: int, page: int) -> bytearray:
        source: Pages = self._own if rank == self.rank else self._scratch
        return source[page if rank == self.rank else rank * self.pages + page]


def total(addends: list[torch.Tensor], dtype: DataType) -> torch.Tensor:
    """Added in the order given, floats in fp32 and whole numbers exactly; rounded once."""
    wide = torch.float32 if FACTS[dtype].is_float else torch.int64
    added = addends[0].to(wide)
    for addend in addends[1:]:
        added = added + addend.to(wide)
    return round_to(added, dtype)


@lru_cache(maxsize=64)
def sum_program(page: TensorSpec) -> ProgramSpec:
    """Adds up the shards page by page; a page by itself looks like `page`."""

    def add_pages(core: Core) -> None:
        shards = _Shards(core)
        columns, holders = core.args[COMMON_ARGS:]
        ranks = [rank for rank in range(shards.ranks) if rank % columns < holders]
        for number in range(core.index, shards.pages, core.count):
            addends = [_values(shards.page(rank, number), page) for rank in ranks]
            shards.out[number] = _bytes(total(addends, page.dtype), page)

    return ProgramSpec({"compute": add_pages}, name="sum of shards")


@lru_cache(maxsize=1)
def arrange_program() -> ProgramSpec:
    """Lays shards side by side: `run` pages of each in turn."""

    def arrange_pages(core: Core) -> None:
        shards = _Shards(core)
        (run,) = core.args[COMMON_ARGS:]
        for number in range(core.index, shards.ranks * shards.pages, core.count):
            turn, place = divmod(number, run)
            row, rank = divmod(turn, shards.ranks)
            shards.out[number] = shards.page(rank, row * run + place)

    return ProgramSpec({"writer": arrange_pages}, name="shards side by side")


def page_of(spec: TensorSpec) -> TensorSpec:
    """What one page of a tensor is by itself: a tile, or a row."""
    shape = tuple(spec.tile.tile_shape) if spec.layout is Layout.TILE else (1, tuple(spec.padded_shape)[-1])
    return make_spec(shape, spec.dtype, spec.layout, spec.memory_config, spec.tile)


def _values(data: bytearray, page: TensorSpec) -> torch.Tensor:
    return from_pages(torch.frombuffer(data, dtype=torch.uint8).reshape(1, -1), page)


def _bytes(values: torch.Tensor, page: TensorSpec) -> bytes:
    return bytes(to_pages(values, page).reshape(-1).numpy().data)
