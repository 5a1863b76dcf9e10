"""The first divergence: which op, on which chip, made a run on the mesh differ from its reference."""

from __future__ import annotations

from softmesh.diff.comparing import assert_same, compare
from softmesh.diff.comparison import Comparison
from softmesh.diff.result import Cause, Divergence, Figures, OpDifference, Reason, Verdict

__all__ = [
    "Cause",
    "Comparison",
    "Divergence",
    "Figures",
    "OpDifference",
    "Reason",
    "Verdict",
    "assert_same",
    "compare",
]
