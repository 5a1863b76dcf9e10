"""Pipeline parallel training: schedules as data, a check before they run, and what runs them over sockets."""

from __future__ import annotations

from softmesh.train.pipeline.analysis import (
    Deadlock,
    FifoNeed,
    Report,
    bubble_share,
    check,
    deadlock,
    live_activations,
    picture,
    smallest_fifo,
    unhindered_fifo,
)
from softmesh.train.pipeline.execution import Pipeline
from softmesh.train.pipeline.schedule_rules import violations
from softmesh.train.pipeline.stage_schedules import (
    Backward,
    Connection,
    Forward,
    RecvActivation,
    RecvGradient,
    Schedule,
    SendActivation,
    SendGradient,
    gpipe,
    interleaved,
    one_forward_one_backward,
    schedule_named,
    scheduled,
)
from softmesh.train.pipeline.stages import Stage, cut

__all__ = [
    "Backward",
    "Connection",
    "Deadlock",
    "FifoNeed",
    "Forward",
    "Pipeline",
    "RecvActivation",
    "RecvGradient",
    "Report",
    "Schedule",
    "SendActivation",
    "SendGradient",
    "Stage",
    "bubble_share",
    "check",
    "cut",
    "deadlock",
    "gpipe",
    "interleaved",
    "live_activations",
    "one_forward_one_backward",
    "picture",
    "schedule_named",
    "scheduled",
    "smallest_fifo",
    "unhindered_fifo",
    "violations",
]
