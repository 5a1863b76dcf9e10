"""The result of comparing two runs: figures and verdicts of single ops, the first divergence and its cause."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from softmesh.callsite import CallSite
from softmesh.mesh import MeshCoordinate

_SHOWN = 8  # chips in a text


class Cause(enum.Enum):
    """Why an op's value is not that of the reference: the word in a report, and what it stands for."""

    PARTIAL_SUM = "a partial sum taken for the whole"
    SHARD_ONLY = "computed over a shard as if it were the whole"
    WRONG_DIM = "gathered or split along another dim"
    WRONG_AXIS = "reduced or gathered along another mesh axis"
    DOUBLE_REDUCE = "added up more often than once"
    WRONG_SCALE = "a multiple of what it should be"
    REORDERED = "the right values in another order"
    TRANSPOSED = "the right values, transposed"
    OFFSET = "shifted by some positions"
    STALE_CACHE = "a cache that was not written, or another page of it"
    OTHER_ARGUMENT = "called with another argument"
    OTHER_INPUT = "reads another tensor than the reference"
    OTHER_VALUES = "other values were put on the devices"
    LOST_PRECISION = "a coarser data type than the reference's"
    UNDEFINED = "undefined values"
    OTHER_PROGRAM = "the programs differ in their ops"
    UNKNOWN = "no simple explanation fits the values"


class Verdict(enum.Enum):
    """The verdict on one op.

    `ROUNDING` is what its dtypes explain, `INHERITED` what its inputs do, `MISTAKE` neither. Ops without a value to be
    held against are `THROUGH_READERS` where what reads them is right, and `UNREAD` where nothing does.
    """

    EXACT = "exact"
    ROUNDING = "within rounding"
    COARSER = "a loss of precision"
    INHERITED = "inherited"
    REARRANGED = "in another order or form"
    MISTAKE = "a mistake"
    THROUGH_READERS = "compared through what reads it"
    UNREAD = "read by nothing"
    NOT_COMPARED = "not compared"


class Reason(enum.Enum):
    """The reason why an op could not be compared: its word for `--allow-uncompared`, and what it stands for."""

    NO_COUNTERPART = "no-counterpart"
    NO_GOLDEN = "no-golden"
    OWN_VALUES = "own-values"
    TOO_LARGE = "too-large"
    NEAR_TIE = "near-tie"
    PART_READ = "part-read"

    @property
    def text(self) -> str:
        return _REASONS[self]


_REASONS = {
    Reason.NO_COUNTERPART: "the reference has no op like it, and nothing that was compared reads its result",
    Reason.NO_GOLDEN: "no golden function tells what such a call makes",
    Reason.OWN_VALUES: "each device holds a value of its own, and the reference has another mesh",
    Reason.TOO_LARGE: "the values were too large in all to be kept",
    Reason.NEAR_TIE: "the runs take other ways after a choice between values that agree within rounding",
    Reason.PART_READ: "the host reads only a part of what the reference's host reads",
}


@dataclass(frozen=True)
class Figures:
    """How far a value is off. `error` is relative: the norm of the difference to that of the reference."""

    error: float
    pcc: float
    max_error: float
    ulp: float  # the largest difference, in steps of the dtype at the reference's largest value


@dataclass(frozen=True)
class OpDifference:
    """One op of the program beside the same of the reference."""

    number: int
    op: str
    site: CallSite
    verdict: Verdict
    figures: Figures | None  # None where there is nothing to compare with
    band: float  # what `figures.error` may be, by dtypes, accumulation and what the inputs bring
    module: str = ""
    errors: tuple[tuple[MeshCoordinate, float], ...] = ()  # of each chip
    lost: float = 0.0  # the part of the error that the op itself adds
    shape: tuple[int, ...] = ()  # of the result on each device
    dtype: str = ""
    reason: Reason | None = None  # why it could not be compared
    coarser_than: str = ""  # the reference's dtype, where the op loses precision by its own

    def __str__(self) -> str:
        if self.figures is None:
            return f"{self.op} ({self.site}): {self.verdict.value}"
        return f"{self.op} ({self.site}): off by {self.figures.error:.1e}, may be {self.band:.1e}: {self.verdict.value}"


@dataclass(frozen=True)
class Divergence:
    """The first op that is itself wrong: where it stands, on which chips, and what looks like the cause."""

    number: int
    op: str
    site: CallSite
    coords: tuple[MeshCoordinate, ...]
    shard: tuple[slice, ...]  # where the whole tensor is off, by dims: the smallest box around it
    pcc: float
    max_error: float
    ulp: float
    error: float
    band: float
    cause: Cause
    explanation: str
    module: str = ""
    callers: tuple[CallSite, ...] = ()  # of the function that the line stands in, the innermost first
    against_float32: str = ""  # which side differs from float32, where that can be told

    def __str__(self) -> str:
        inside = f" in {self.module}" if self.module else ""
        box = ", ".join(f"{part.start}:{part.stop}" for part in self.shard)
        return "\n".join(
            [
                f"First divergence: {self.op} at {self.site} ({self.site.function}){inside}, op {self.number}",
                *([f"  called   {callers_text(self.callers)}"] if self.callers else []),
                f"  chips    {chips_text(self.coords)}",
                f"  indices  [{box}]",
                f"  figures  PCC {self.pcc:.6f}, largest error {self.max_error:.3g} ({self.ulp:.0f} ulp), "
                f"off by {self.error:.1e} where rounding explains {self.band:.1e}",
                f"  cause    {self.cause.value}: {self.explanation}",
                *([f"  float32  {self.against_float32}"] if self.against_float32 else []),
            ]
        )


def callers_text(callers: Sequence[CallSite]) -> str:
    return ", ".join(f"from {one} ({one.function})" for one in callers)


def chips_text(coords: Sequence[MeshCoordinate]) -> str:
    if not coords:
        return "none in particular"
    shown = " ".join(str(tuple(coord)) for coord in coords[:_SHOWN])
    return shown if len(coords) <= _SHOWN else f"{shown} and {len(coords) - _SHOWN} more"
