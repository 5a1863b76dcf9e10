"""Joins the pages of buffers to chunks, one for each buffer and bank: the rows of `buffer_chunks`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from softmesh.hardware.enums import BufferType

Page = tuple[int, int, int, int, int, int, int, int, int]
Chunk = tuple[int, int, int, int, int, int, int, int, int, int, int, int]


def buffer_number(kind: object) -> int | None:
    """`1`, `"1"`, `"L1"` and `"BufferType::L1"` are the same; None of what is none of them."""
    if kind is None or kind == "":
        return None
    text = str(kind).rpartition("::")[2].rpartition(".")[2]
    if text == "SYSTEM_MEMORY":
        return 2
    return int(text) if text.isdigit() else BufferType[text].value if text in BufferType.__members__ else None


def parse_page(page: Mapping[str, Any], device_id: int) -> Page:
    """(device, address, core_y, core_x, bank, index, page address, page size, buffer type)."""
    numbers = [int(page[name]) for name in ("address", "core_y", "core_x", "bank_id", "page_index", "page_address")]
    kind = buffer_number(page.get("buffer_type"))
    return device_id, *numbers, int(page["page_size"]), 0 if kind is None else kind  # type: ignore[return-value]


def aggregate_pages_to_chunks(op_id: int, pages: Iterable[Page], rank: int = 0) -> list[Chunk]:
    """One row for all pages of a buffer in one bank, in the order in which the first of them came."""
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for device, address, core_y, core_x, bank, _, at, size, kind in pages:
        groups.setdefault((device, address, bank, core_x, core_y, kind), []).append((at, size))
    rows: list[Chunk] = []
    for (device, address, bank, core_x, core_y, kind), found in groups.items():
        first, end = min(at for at, _ in found), max(at + size for at, size in found)
        largest = max(size for _, size in found)
        where = op_id, device, address, bank, core_x, core_y
        rows.append((*where, first, end - first, largest, len(found), kind, rank))
    return rows
