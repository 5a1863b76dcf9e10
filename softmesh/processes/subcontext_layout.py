"""Sub-contexts of a job: how its ranks are split, read from the launcher's environment variables and checked.

The ranks of sub-context 0 come first in the world, then those of 1, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from softmesh.errors import MeshError, SoftmeshError

ID = "TT_RUN_SUBCONTEXT_ID"
SIZES = "TT_RUN_SUBCONTEXT_SIZES"


class RankIndexError(SoftmeshError, IndexError):
    """A rank or a sub-context that the job does not have."""


@dataclass(frozen=True)
class SubcontextLayout:
    """`id` is None where the job is not split."""

    sizes: tuple[int, ...]
    id: int | None = None

    def size(self, subcontext_id: int) -> int:
        self._check(subcontext_id)
        return self.sizes[subcontext_id]

    def world_rank(self, subcontext_id: int, local_rank: int) -> int:
        size = self.size(subcontext_id)
        if not 0 <= local_rank < size:
            raise RankIndexError(
                f"local_rank out of range for subcontext {subcontext_id}: "
                f"expected 0 <= local_rank < {size}, got {local_rank}"
            )
        return sum(self.sizes[:subcontext_id]) + local_rank

    def _check(self, subcontext_id: int) -> None:
        if not 0 <= subcontext_id < len(self.sizes):
            raise RankIndexError(
                f"subcontext_id out of range: expected 0 <= subcontext_id < {len(self.sizes)}, got {subcontext_id}"
            )


def read_layout(environ: Mapping[str, str], world_size: int) -> SubcontextLayout:
    """What the launcher said of the split, or one context of all processes."""
    text = environ.get(ID, "")
    if not text:
        return SubcontextLayout((world_size,))
    id = _number(text, f"Invalid {ID} (expected integer): {text!r}")
    if id < 0:
        raise _refusal(f"Invalid {ID} (must not be negative): {id}")
    if not environ.get(SIZES):
        raise _refusal(f"{ID} is set but {SIZES} is missing")
    sizes = _sizes(environ[SIZES])
    if id >= len(sizes):
        raise _refusal(f"{ID} {id} out of range for {len(sizes)} sub-contexts")
    if sum(sizes) != world_size:
        raise _refusal(f"{SIZES} sum {sum(sizes)} does not match MPI_COMM_WORLD size {world_size}")
    return SubcontextLayout(sizes, id)


def _sizes(text: str) -> tuple[int, ...]:
    wrong = f"{SIZES}: sizes must be positive integers with commas between them, got {text!r}"
    sizes = tuple(_number(part, wrong) for part in text.split(","))
    if min(sizes) <= 0:
        raise _refusal(wrong)
    return sizes


def _number(text: str, wrong: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _refusal(wrong) from None


def _refusal(problem: str) -> MeshError:
    return MeshError(f"{problem}. tt-run --rank-bindings-mapping sets both; otherwise unset {ID}")
