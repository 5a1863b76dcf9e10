"""Plans of models at their real sizes, beside plans that are made by hand: how long it takes, and what it finds.

softmesh run examples/plan/real_sizes.py                      every case, one after the other: some minutes
softmesh run examples/plan/real_sizes.py "70B decode"         those whose name begins so

No weight is ever there: models are run for their shapes only. Each case is a process of its own, whose memory is told.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gpt_training
import llama
import mixtral
import ttnn

from softmesh.planner.constraints import MeshShapeIs, Pinned, WeightDtypes
from softmesh.planner.layout_plan import LayoutPlan

Hand = tuple[tuple[int, int], tuple[Any, Any], tuple[Any, Any]]  # the mesh, and how columns and rows are split
REPLICATE, S0, S1 = ttnn.Replicate(), ttnn.Shard(0), ttnn.Shard(1)
BY_HAND: dict[str, dict[str, Hand]] = {
    "T3000": {
        "tensor parallel 8": ((1, 8), (REPLICATE, S1), (REPLICATE, S0)),
        "data 2 x tensor 4": ((2, 4), (REPLICATE, S1), (REPLICATE, S0)),
        "2-D 2x4": ((2, 4), (S0, S1), (S1, S0)),
    },
    "Galaxy": {
        "tensor 8 x data 4": ((8, 4), (S1, REPLICATE), (S0, REPLICATE)),
        "data 8 x tensor 4": ((8, 4), (REPLICATE, S1), (REPLICATE, S0)),
        "2-D 8x4": ((8, 4), (S1, S0), (S0, S1)),
    },
}
COLUMNS, ROWS = ("wq", "wk", "wv", "gate", "up"), ("wo", "down")
SMALL = (WeightDtypes("layers.*", (ttnn.bfloat8_b,)), WeightDtypes("head", (ttnn.bfloat8_b,)))


class Case(NamedTuple):
    function: Callable[..., Any]
    system: str
    inputs: dict[str, Any]
    options: dict[str, Any] = {}
    has_hands: bool = False


CASES = {
    "70B decode Galaxy": Case(llama.decode, "Galaxy", {"size": "70b"}, {}, True),
    "70B decode Galaxy bf8": Case(llama.decode, "Galaxy", {"size": "70b"}, {"dtypes": SMALL}, True),
    "70B decode T3000": Case(llama.decode, "T3000", {"size": "70b"}, {"dtypes": SMALL}, True),
    "70B prefill Galaxy": Case(llama.prefill, "Galaxy", {"size": "70b"}, {"goal": "prefill"}, True),
    "70B prefill T3000": Case(llama.prefill, "T3000", {"size": "70b"}, {"goal": "prefill", "dtypes": SMALL}, True),
    "8B decode N150": Case(llama.decode, "N150", {"size": "8b", "users": 8}, {"dtypes": SMALL}),
    **{
        f"8B decode {system}": Case(llama.decode, system, {"size": "8b"}, {}, system in BY_HAND)
        for system in ("N300", "T3000", "Galaxy")
    },
    "Mixtral decode T3000": Case(mixtral.decode, "T3000", {}, {"dtypes": SMALL}),
    "GPT training T3000": Case(gpt_training.step, "T3000", {}, {"goal": "training", "time_limit": 75.0}),
}


def planned(case: Case, **more: Any) -> LayoutPlan:
    options = {"gap": 0.005, "time_limit": 45.0, **case.options, **more}
    return ttnn.plan(case.function, case.system, case.inputs, **options)


def by_hand(case: Case, hand: Hand) -> LayoutPlan:
    """Weights lie as said, the rest as is best for that."""
    mesh, columns, rows = hand
    pins = [Pinned(f"layers.*.{name}", columns) for name in COLUMNS]
    pins += [Pinned(f"layers.*.{name}", rows) for name in ROWS]
    return planned(case, constraints=[MeshShapeIs(mesh), *pins], stages=1)


def run(name: str) -> None:
    case, started = CASES[name], time.process_time()
    found = planned(case)
    took, held = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    shape, stages = "x".join(map(str, found.mesh_shape)), max(len(found.stages), 1)
    print(
        f"{name:22} {stages} x {shape:5} {found.seconds * 1e3:9.3f} ms, gap {found.gap:6.2%}, "
        f"{found.memory / 1e9:5.2f} GB on each device; {found.status.value}, {took:4.1f} CPU seconds, {held:.2f} GB",
        flush=True,
    )
    for how, hand in BY_HAND[case.system].items() if case.has_hands else ():
        try:
            other = by_hand(case, hand)
        except RuntimeError as error:
            print(f"    {how:18} {str(error).removeprefix('softmesh.plan: ')[:110]}", flush=True)
            continue
        print(f"    {how:18} {other.seconds * 1e3:9.3f} ms, {other.memory / 1e9:5.2f} GB", flush=True)
        assert found.seconds <= other.seconds * 1.005, f"{how} is faster"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run(sys.argv[2])
    else:
        for name in [name for name in CASES if name.startswith(" ".join(sys.argv[1:]))]:
            subprocess.run([sys.executable, "-m", "softmesh", "run", __file__, "--one", name], check=True)
