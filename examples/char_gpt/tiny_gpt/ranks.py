"""The pipeline of four stages, two devices each: four processes under tt-run."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tiny_gpt.forms import Plan

PIPELINE = "PP 4 x DP 2"
_STAGE = Path(__file__).parent.parent / "stage.py"
_SOFTMESH = [sys.executable, "-m", "softmesh"]
_TT_RUN = str(Path(sys.executable).with_name("tt-run"))
_DEADLINE = 1800  # seconds


def pipelined(plan: Plan) -> Iterable[float]:
    """The losses that the last stage has written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        split = ["--system", "elastic", "--split", "2x1,2x1,2x1,2x1", "-o", name]
        subprocess.run([*_SOFTMESH, "bindings", *split], check=True, timeout=_DEADLINE, stdout=subprocess.DEVNULL)
        binding = next(folder.glob("*_rank_binding.yaml"))
        program = [
            sys.executable,
            str(_STAGE),
            "--steps",
            str(plan.steps),
            "--losses",
            str(folder / "losses.json"),
        ]
        launch = [_TT_RUN, "--system", "elastic", "--rank-binding", str(binding), "--", *program]
        subprocess.run(launch, check=True, timeout=_DEADLINE)
        found: list[float] = json.loads((folder / "losses.json").read_text(encoding="utf-8"))
        return found
