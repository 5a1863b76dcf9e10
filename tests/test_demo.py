"""Each step of `softmesh demo` shows what it says."""

import io

import pytest
from rich.console import Console

from softmesh import demo

SHOWN = {
    "split_a_tensor": "Dev. ID: 7",
    "run_data_parallel": "PCC 0.9999",
    "forget_a_collective": "ttnn.all_reduce(input_tensor, cluster_axis=1)",
    "train_on_any_mesh": "missing all_reduce over mesh axis 'tp'",
    "find_the_first_divergence": "First divergence: gelu",
    "break_a_link": "free of routing deadlock",
    "tell_the_cost": "busiest link",
    "plan_a_layout": "up (Replicate, Shard(1)), down (Replicate, Shard(0))",
    "grow_to_a_thousand": "1024 devices: relu",
}


@pytest.mark.usefixtures("idle_machine")
@pytest.mark.parametrize("step", demo.STEPS, ids=lambda step: step.__name__)
def test_a_step_shows_what_it_says(step, capsys):
    console = Console(file=io.StringIO(), width=200)
    step(console)
    shown = console.file.getvalue() + capsys.readouterr().out
    assert SHOWN[step.__name__] in " ".join(shown.split())
