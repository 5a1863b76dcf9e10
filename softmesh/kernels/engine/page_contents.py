"""Formats of what lies in the L1 of a core: tiles that came from a tensor, or that the packer has made.

Circular buffers are bytes; only who unpacks a page, or stores one that was packed, takes them for numbers of a format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from softmesh.strictness import doubt
from softmesh.tensor.dtype import FACTS, DataType

if TYPE_CHECKING:
    from softmesh.kernels.engine.fifo import Fifo
    from softmesh.kernels.engine.scheduler import KernelThread


class Content(NamedTuple):
    """What begins at an address."""

    dtype: DataType
    is_packed: bool  # else it is of a tensor


def check_unpacked(thread: KernelThread, call: str, fifo: Fifo, address: int) -> None:
    """Whether a page has the format that the circular buffer says."""
    content, dtype = thread.core.content_at(address), fifo.format.dtype
    if content is not None and content.dtype is not dtype:
        origin = "was packed as" if content.is_packed else "is of a tensor of"
        tell_other_format(
            thread,
            f"content {fifo.index}",
            f"{call}: circular buffer {fifo.index} has the format {dtype}, and the page it reads {origin} "
            f"{content.dtype}: on a chip the bytes are taken for other numbers. Give the circular buffer the format "
            "and the page size of the tensor.",
            (content.dtype, dtype),
        )


def check_stored(thread: KernelThread, call: str, content: Content, target: Content | None) -> None:
    """Whether a tile goes to a tensor of its format; those of other tensors may be meant to."""
    if target is None or target.is_packed or content.dtype is target.dtype:
        return
    if content.is_packed:
        tell_other_format(
            thread,
            "stored",
            f"{call}: a tile that was packed as {content.dtype} goes to a tensor of {target.dtype}, which takes its "
            "bytes for other numbers. Give the circular buffer the format and the page size of the tensor.",
            (content.dtype, target.dtype),
        )
    elif FACTS[content.dtype].bits != FACTS[target.dtype].bits:
        doubt(
            f"{call}: a page of a tensor of {content.dtype} goes to a tensor of {target.dtype} as it is, which takes "
            f"its bytes for other numbers. Convert it with typecast_tile. [{thread.name}]",
        )


def tell_other_format(thread: KernelThread, kind: str, message: str, dtypes: tuple[DataType, DataType]) -> None:
    """Formats of one size may be meant, for bits are passed on as they are; integers are alike while they are small."""
    one, other = (FACTS[dtype] for dtype in dtypes)
    if (one.bits, one.is_block) != (other.bits, other.is_block):
        thread.complain(kind, message)
    elif one.is_float or other.is_float:
        doubt(f"{message} [{thread.name}]")
