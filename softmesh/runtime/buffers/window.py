"""A view of memory that something else holds: other pages, the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch

from softmesh.errors import MeshError
from softmesh.runtime.buffers.page_map import Interleaved
from softmesh.runtime.buffers.paged import PagedMemory
from softmesh.runtime.buffers.placed import PageLayout, Placed
from softmesh.runtime.buffers.seen import Seen


class Window(Placed):
    """Pages of `base`, from an address inside it on.

    `data` is a view of base's bytes where its pages are the same; otherwise a copy, made anew when the base has
    changed, which `store` writes back.
    """

    def __init__(
        self,
        layout: PageLayout,
        address: int,
        mesh: Sequence[int],
        base: PagedMemory,
        base_layout: PageLayout,
    ) -> None:
        super().__init__(layout, address)
        self.mesh = tuple(mesh)
        self.base = base
        self._base_layout = base_layout
        if address + layout.bytes_per_bank > base.address + base_layout.bytes_per_bank:
            raise MeshError(
                f"A view of {layout.bytes_per_bank} bytes in each bank at address {address} reaches beyond the buffer "
                f"that begins at {base.address} and has {base_layout.bytes_per_bank}: views over several buffers are "
                "not modelled. Make a view for each."
            )
        self._first = self._first_shared_page()
        self._copied: tuple[Seen, torch.Tensor] | None = None

    def _first_shared_page(self) -> int | None:
        """Where the pages of this view begin among those of the base, if they are the same pages."""
        mine, base = self.layout, self._base_layout
        slot, offset = divmod(self.address - self.base.address, base.aligned_page_size)
        if mine.page_size != base.page_size or offset:
            return None
        if mine.page_map == base.page_map and slot == 0:
            return 0
        interleaved = isinstance(mine.page_map, Interleaved) and isinstance(base.page_map, Interleaved)
        first = slot * base.page_map.num_banks
        return first if interleaved and first + mine.num_pages <= base.num_pages else None

    @property
    def data(self) -> torch.Tensor:
        return self._part_of(self.base.data)

    def materialise(self) -> torch.Tensor:
        return self._part_of(self.base.materialise())

    def extended(self, extents: Sequence[int]) -> torch.Tensor:
        """At least these extents: the base gives every device its own copy where it has less."""
        data = self.data
        enough = all(have >= n for have, n in zip(data.shape, extents, strict=False))
        return data if enough else self.materialise()

    replaced = extended

    def store(self) -> None:
        if self._copied is not None:
            _, copied = self._copied
            unit, places = self._units
            inside = places >= 0
            target = self.base.data
            mine = copied.reshape(*copied.shape[:-2], -1, unit)
            target.view(*target.shape[:-2], -1, unit)[..., places[inside], :] = mine[..., inside, :]
            self._copied = Seen(target), copied
        self.base.store()

    def _part_of(self, base: torch.Tensor) -> torch.Tensor:
        if self._first is not None:
            return base[..., self._first : self._first + self.layout.num_pages, :]
        if self._copied is None or not self._copied[0].is_unchanged(base):
            unit, places = self._units
            flat = base.reshape(*base.shape[:-2], -1, unit)
            found = flat[..., places.clamp(min=0), :] * (places >= 0).unsqueeze(-1).to(base.device)
            pages = found.reshape(*base.shape[:-2], self.layout.num_pages, self.layout.page_size)
            self._copied = Seen(base), pages
        return self._copied[1]

    @cached_property
    def _units(self) -> tuple[int, torch.Tensor]:
        """The largest piece of memory that neither layout cuts, and for each such piece of this view its place in
        the base's data; -1 where the base has only padding.
        """
        mine, base = self.layout, self._base_layout
        offset = self.address - self.base.address
        unit = math.gcd(
            mine.page_size, mine.aligned_page_size, base.page_size, base.aligned_page_size, offset
        )
        held = torch.full((_banks(mine, base), base.bytes_per_bank // unit), -1)
        banks, starts = _unit_starts(base, unit)
        held[banks, starts] = torch.arange(banks.numel())
        my_banks, my_starts = _unit_starts(mine, unit)
        return unit, held[my_banks, my_starts + offset // unit]


def _banks(*layouts: PageLayout) -> int:
    return 1 + max(int(layout.page_map.slots()[0].max()) for layout in layouts)


def _unit_starts(layout: PageLayout, unit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bank and place of each unit of each page."""
    banks, slots = layout.page_map.slots()
    inside = torch.arange(layout.page_size // unit)
    starts = (slots * (layout.aligned_page_size // unit)).unsqueeze(-1) + inside
    return banks.repeat_interleave(inside.numel()), starts.flatten()
