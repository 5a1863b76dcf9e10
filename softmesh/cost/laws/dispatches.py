"""Program dispatch: what the dispatcher writes to the cores before a program starts, and the run it may hide behind."""

from __future__ import annotations

import math

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.law import Coefficients, Law, Numbers, larger
from softmesh.cost.workloads import Dispatch

UNTRACED_US = {"wormhole_b0": 38.0, "blackhole": 5.0}  # more between two calls that the host enqueues one by one
# Between two replays whose results are read: the host takes tokens, does its own work, and writes what comes next.
# The one number that is fitted on published decode speeds (`softmesh bench decode`); they tell no more of it.
TURN_AROUND_US = 4300.0
GAP_US = {"wormhole_b0": 0.69, "blackhole": 0.6}  # between two ops of a trace, median of a decoder's published gaps


def _terms(work: Dispatch) -> tuple[float, ...]:
    configs = work.buffers + work.semaphores
    each_core = 64.0 if work.all_cores else 1.0
    return (
        float(bool(work.runtime_args or work.common_args or configs)),
        float(work.all_cores),
        float(work.runtime_args > 0) * float(work.all_cores),
        each_core * work.runtime_args * work.processors,
        float(work.common_args),
        float(configs),
        float(work.groups - 1),
        float(work.kernel_bytes),
        work.run_us,
    )


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    """Cores get what they share in one write; arguments of their own, group by group and core by core."""
    has_data, all_cores, has_args, args, common, configs, groups, kernel, run = terms
    write = (
        c["start_us"]
        + has_data * (c["data_us"] + all_cores * c["spread_us"])
        + has_args * (c["args_us"] + groups * c["group_args_us"])
        + args * c["arg_ns"] * 1e-3
        + common * c["common_arg_ns"] * 1e-3
        + configs * c["config_ns"] * 1e-3
        + groups * c["group_us"]
        + kernel * c["kernel_byte_ns"] * 1e-3
    )
    return larger(write * 1e-6, (run + c["gap_us"]) * 1e-6, sharpness=6.0)


def _starting(_: str) -> dict[str, float]:
    return {
        "start_us": 1.5,
        "data_us": 0.2,
        "spread_us": 0.2,
        "args_us": 2.0,
        "group_args_us": 0.2,
        "arg_ns": 0.08,
        "common_arg_ns": 1.0,
        "config_ns": 2.0,
        "group_us": 0.4,
        "kernel_byte_ns": 0.001,
        "gap_us": 1.0,
    }


def _position(work: Dispatch) -> tuple[float, ...]:
    return (
        math.log2(1 + work.runtime_args),
        math.log2(1 + work.common_args),
        math.log2(1 + work.buffers),
        math.log2(1 + work.semaphores),
        math.log2(work.groups),
        math.log2(1 + work.run_us),
        float(work.all_cores),
        work.processors / 5,
    )


DISPATCH = Law(
    name="dispatch",
    key=lambda work: work.chip.arch_name,
    starting=_starting,
    terms=_terms,
    seconds=_seconds,
    position=_position,
    reach=(2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0),
    doubt=0.3,
    noise=0.02,
    bound=lambda terms, c: Bound.DISPATCH,
)
