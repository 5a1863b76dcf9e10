"""Every example, and the program that `softmesh new` writes, planned: the planned program returns what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from planned_models import assert_close, loaded

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.errors import MeshError, SoftmeshError
from softmesh.estimation.planned_function import planned_in
from softmesh.estimation.whole_program import WholeProgram
from softmesh.planner.capture import NothingToPlan
from softmesh.planner.layout_plan import LayoutPlan, plan
from softmesh.project_template import written_files
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import LEAVING_LISTENERS

EXAMPLES = Path(__file__).parents[2] / "examples"
PLANNED: dict[str, tuple[list[str], int]] = {  # the arguments, and how many results of ops the program reads
    "falcon_mlp.py": ([], 3),
    "falcon_mlp_all_gather.py": ([], 1),
    "falcon_mlp_all_reduce.py": ([], 1),
    "hybrid_parallel.py": ([], 1),
    "replicated_matmul.py": ([], 1),
    "train_mlp.py": (["--steps", "1"], 3),
    "tutorial_mesh.py": ([], 3),
    "unified_llama_block.py": ([], 12),
    "llama/run.py": (["--no-trace", "--tokens", "2", "--users", "1"], 2),
}
# It looks for what the four devices of a row hold, and there is one.
CUT_SHORT = {"hybrid_parallel.py": "ArgumentValueError: pearson_correlation_coefficient: shapes differ"}
REFUSED: dict[str, tuple[list[str], str]] = {  # the arguments, and why there is no plan
    "big_mesh_pipeline.py": ([], "Four processes run this file together"),
    "four_stage_pipeline.py": ([], "Four processes run this file together"),
    "two_stage_pipeline.py": ([], "Two processes run this file together"),
    "train_pipeline.py": ([], r"Submesh shape .* does not fit within parent mesh"),
    "kernel_matmul.py": ([], "called no op on a device"),
    "metal_buffer_round_trip.py": ([], "called no op on a device"),
    "metal_dispatch.py": ([], "called no op on a device"),
    "metal_elementwise_add.py": ([], "called no op on a device"),
    "metal_five_functions.py": ([], "called no op on a device"),
    "metal_trace_and_events.py": ([], "called no op on a device"),
    "ring_all_gather_kernel.py": ([], "called no op on a device"),
    "ring_reduce_scatter_kernel.py": ([], "called no op on a device"),
    "ring_attention.py": ([], "point_to_point at ring_attention.py:45 moves data between devices"),
    "two_layer_mlp.py": (["--width", "256"], "reads nothing of what its ops compute"),
    "llama/run.py": (["--tokens", "3", "--users", "1"], "execute_trace at generator.py:90 replays ops on values"),
    "char_gpt/run.py": (["--steps", "1", "--forms", "TP 8"], "train.*is softmesh's own, and splits work over devices"),
    "plan/real_sizes.py": (["no such case"], "called no op on a device"),
    "plan/llama.py": ([], "Which function of .* is to be planned"),
    "plan/mixtral.py": ([], "Which function of .* is to be planned"),
}
FUNCTIONS = ("plan/gpt_training.py", "plan/llama.py", "plan/mixtral.py")  # test_example_models.py plans what is in them
YARDSTICKS = ("plan/llama_by_hand.py",)  # laid out by hand: what plans are compared with


@pytest.fixture(autouse=True)
def _as_a_command() -> Iterator[None]:
    with aliased(force=True):
        yield


def planned(path: Path, args: list[str]) -> tuple[WholeProgram, LayoutPlan]:
    wanted = planned_in(str(path), args, "N300")
    assert isinstance(wanted.function, WholeProgram)
    try:
        found = plan(wanted.function, "N300")
    except NothingToPlan as error:
        raise MeshError(f"{error.why} {wanted.function.early_end()}") from error
    return wanted.function, found


def values_and_reads(program: WholeProgram, found: LayoutPlan) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """What the planned program takes, and all that the program itself reads from a device."""
    reads: list[torch.Tensor] = []

    def note(tensor: Tensor) -> None:
        if tensor.storage.device is not None and not is_looking:
            is_looking.append(True)
            reads.append(ttnn.tensor.transfer.to_torch(tensor).clone())
            is_looking.clear()

    is_looking: list[bool] = []
    LEAVING_LISTENERS.append(note)
    try:
        return found.values(program), reads
    finally:
        LEAVING_LISTENERS.remove(note)


@pytest.mark.parametrize("name", PLANNED)
def test_a_planned_example_returns_what_the_example_reads(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    args, count = PLANNED[name]
    program, found = planned(EXAMPLES / name, args)
    assert (program.early_end() or "").partition(": expected")[0] == CUT_SHORT.get(name, "")
    values, reads = values_and_reads(program, found)
    assert "nan" not in "".join(capsys.readouterr())
    made = loaded(found.source())["run"](values)
    assert len(made) == count
    for one in made:
        assert any(one.shape == read.shape and is_close(one.float(), read.float()) for read in reads)


def is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """To a few roundings of bfloat16."""
    return float((one - other).abs().max()) <= 0.03 * float(other.abs().max())


@pytest.mark.parametrize("name", REFUSED)
def test_an_example_that_cannot_be_planned_is_refused_with_the_reason(name: str) -> None:
    args, why = REFUSED[name]
    with pytest.raises(SoftmeshError, match=why):
        planned(EXAMPLES / name, args)


def test_no_example_is_forgotten() -> None:
    programs = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.glob("*.py")}
    programs |= {str(path.relative_to(EXAMPLES)) for path in [*EXAMPLES.glob("*/run.py"), *EXAMPLES.glob("plan/*.py")]}
    assert programs == {*PLANNED, *REFUSED, *FUNCTIONS, *YARDSTICKS}


def test_the_program_of_a_new_project_is_planned_with_its_result(tmp_path: Path) -> None:
    for path, text in written_files("fresh"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    program, found = planned(tmp_path / "fresh.py", [])
    values, _ = values_and_reads(program, found)
    (made,) = loaded(found.source())["run"](values)
    assert_close(made, torch.nn.functional.gelu(values["on_mesh"] @ values["w1"]) @ values["w2"])
