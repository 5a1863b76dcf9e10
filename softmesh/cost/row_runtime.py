"""Rows of the runtime: transfers between host and chip, programs that are dispatched, gaps between two ops."""

from __future__ import annotations

import re

from softmesh.cost.row_texts import RowTexts, Unexpressed, bytes_in
from softmesh.cost.workloads import Dispatch, HostTransfer, TypicalOp
from softmesh.systems.chip import Chip


def gap(row: RowTexts, chip: Chip, op: str) -> TypicalOp | None:
    if op.endswith("op2op"):  # a benchmark of its own
        return TypicalOp("op2op", chip, "untraced")
    if "op-to-op gap" not in row.unit.lower():
        return None
    return TypicalOp("gap", chip, "traced" if "traced" in row.config.lower() else "untraced")


def host_transfer(row: RowTexts, chip: Chip, op: str) -> HostTransfer | None:
    if not op.startswith(("hostread", "hostwrite")):
        return None
    text = row.shapes.lower()
    memory = row.memory.lower()
    is_sharded = "sharded" in op
    size = bytes_in(text, "transfer" if not is_sharded else "size") or bytes_in(text, "size")
    page = bytes_in(text, "contiguity" if is_sharded else "page")
    if not size or not page:
        raise Unexpressed("page and transfer sizes are not told")
    return HostTransfer(
        op.startswith("hostwrite"),
        chip,
        size,
        page,
        in_l1=memory == "l1" or memory.endswith("type:1"),
        is_sharded=is_sharded,
        is_pinned="pinned" in op,
        is_remote=(row.number(row.config) or 0) > 0,
        has_iommu="iommu" in row.system.lower(),
    )


_PROCESSORS = (("all_processors", 5), ("brisc_trisc", 4), ("trisc", 3))  # the first that is named counts
_STRESSES = ("shadow", "load_prefetcher", "eth_dispatch", "maxed")


def dispatch(row: RowTexts, chip: Chip, op: str) -> Dispatch | None:
    if op != "programdispatch":
        return None
    text = row.shapes.lower()
    name = text.split(",")[0]
    size = bytes_in(text, "kernel size") or 0
    if any(word in name for word in _STRESSES):
        raise Unexpressed("a stress of the dispatcher whose programs are not told")

    def number(pattern: str) -> int:
        found = re.search(pattern, name)
        return int(found[1]) if found else 0

    run = number(r"^(\d+)_kernel") or (size if name.startswith("256_bytes") else 0)
    on_all = bool(run) or any(word in name for word in ("all_cores", "groups"))
    return Dispatch(
        chip,
        next((count for word, count in _PROCESSORS if word in name), 1),
        on_all and "1_core" not in name,
        runtime_args=number(r"_(\d+)_rta"),
        common_args=number(r"_(\d+)_crta"),
        buffers=number(r"_(\d+)_?cb"),
        semaphores=int("sem" in name),
        groups=number(r"_(\d+)g\b") or (8 if "kernel_groups" in name else 1),
        kernel_bytes=0 if run else size,
        run_us=run * 1e-3 / chip.clock_ghz,
    )
