"""What a plan says of itself: in a terminal, on a page, and before the policy."""

from __future__ import annotations

import re

import pytest
import torch
from unified_operands import SUM, commands_of, mesh_of, spread, words_of

import softmesh as ttnn
from softmesh import Replicate, Shard, distributed
from softmesh.distributed.plan_table import size, time

R = Replicate()


@pytest.fixture
def mesh(idle_machine):
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        opened.axis_names = ("dp", "tp")
        yield opened


def factors(mesh: ttnn.MeshDevice) -> tuple[ttnn.Tensor, ttnn.Tensor]:
    x = spread(torch.randn(1024, 4096), mesh, (Shard(0), Shard(1)), ttnn.bfloat16)
    w = spread(torch.randn(4096, 1024), mesh, (R, Shard(0)), ttnn.bfloat16)
    return x, w


GOLDEN = """\
matmul on a 2x4 mesh: # us, 4.0 MiB on each device
  a       [1024, 4096]  bfloat16  dp: Shard(0), tp: Shard(1)
  b       [4096, 1024]  bfloat16  dp: Replicate, tp: Shard(0)
  result  [1024, 1024]  bfloat16  dp: Shard(0), tp: Replicate
  dp (2 devices)  split m
  tp (4 devices)  split k
 # us  matmul of [512, 1024] and [1024, 1024] on each device
 # us  all_reduce(tp) of the result: 1.0 MiB through the link between neighbours in a line of 4
  lost:
 # us  tp: split k; all_gather(dim 0, dp) of a makes it # us longer
 # us  dp: contributions of a, tp: split k; all_gather(dim 0, dp) of a makes it # us longer
 # us  dp: contributions of b, tp: split k; all_gather(dim 0, dp) of a makes it # us longer
"""


def test_an_explanation_tells_operands_strategy_steps_and_what_lost(mesh):
    x, w = factors(mesh)
    with commands_of() as names:
        found = distributed.explain(distributed.matmul, x, w, output_topology=[Shard(0, axis="dp")])
    assert names == []  # nothing ran
    assert re.sub(r" *[\d.]+ us", " # us", f"{found}\n") == GOLDEN


def test_an_op_may_be_named_and_a_plain_one_means_its_unified_form(mesh):
    x, w = factors(mesh)
    by_name = distributed.explain("matmul", x, w)
    assert str(by_name) == str(distributed.explain(distributed.matmul, x, w))
    assert str(by_name) == str(ttnn.explain(ttnn.matmul, x, w))


def test_a_page_says_what_the_text_says(mesh):
    x, w = factors(mesh)
    found = distributed.explain(distributed.matmul, x, w)
    page = found._repr_html_()
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert "reduce_scatter(dim 1, tp) of the result" in " ".join(cells)
    for cell in cells:
        for part in cell.split("; "):
            assert part in str(found)
    assert page.count("<tr") == len(re.findall(r"^ +\S", str(found), re.MULTILINE)) - 1  # all but "lost:"


def test_a_block_is_explained_op_by_op_with_its_lines(mesh, capsys):
    x, w = factors(mesh)
    with ttnn.explain() as program:
        y = distributed.matmul(x, w)
        for _ in range(3):
            y = distributed.gelu(y)
    printed = capsys.readouterr().out
    titles = re.findall(r"^\d+\. (.*)$", printed, re.MULTILINE)
    assert [re.sub(r":\d+", "", title) for title in titles] == [
        "test_unified_explain.py",
        "test_unified_explain.py, 3 times",
    ]
    assert printed.rstrip().splitlines()[-1].startswith("4 unified ops: predicted ")
    assert [op.table.op for op in program.ops] == ["matmul", "gelu"]
    assert program.communication < program.seconds
    assert program._repr_html_().count("<table>") == 2


def test_a_block_may_keep_its_explanation_to_itself(mesh, capsys):
    x, w = factors(mesh)
    with ttnn.explain(show=False, runners_up=1) as program:
        distributed.matmul(x, w)
    assert capsys.readouterr().out == ""
    assert len(program.ops[0].table.lost) == 1


def test_a_program_that_fails_still_shows_how_far_it_came(mesh, capsys):
    x, w = factors(mesh)
    y = distributed.matmul(x, w)
    with pytest.raises(ttnn.MeshError), ttnn.explain():
        distributed.matmul(distributed.gelu(y), w)
    assert "1 unified op: predicted" in capsys.readouterr().out


def test_what_does_not_fit_is_told_with_both_sizes(mesh):
    x, w = factors(mesh)
    plan = distributed.explain(distributed.matmul, x, w).plan
    least = min(plan.problem.memory, plan.strategy.bytes_on_each)
    object.__setattr__(plan.problem, "memory", least)
    lost = distributed.explain(distributed.matmul, x, w, runners_up=100).table.lost
    assert any(
        one.seconds is None and one.reason.startswith("needs ") and one.reason.endswith(f"on each of {size(least)}")
        for one in lost
    )


def test_a_redistribution_can_be_explained_too(mesh):
    x, _ = factors(mesh)
    found = distributed.explain(distributed.redistribute, x, [Shard(1, axis="tp")])
    assert [step.what.partition(":")[0] for step in found.table.steps] == ["all_gather(dim 0, dp) of the result"]


@pytest.mark.parametrize("op", ["matmool", 3, print, ttnn.all_gather], ids=str)
def test_what_is_no_unified_op_cannot_be_explained(mesh, op):
    with pytest.raises(TypeError, match=r"explain\(\)"):
        distributed.explain(op, *factors(mesh))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0.0 us"), (9.999e-4, "999.9 us"), (1e-3, "1.0 ms"), (2.5, "2500.0 ms")]
)
def test_times_are_shown_in_microseconds_until_they_are_long(seconds, shown):
    assert time(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB")],
)
def test_sizes_are_shown_in_powers_of_1024(count, shown):
    assert size(count) == shown


# -- policy ----------------------------------------------------------------------------------------


def test_forbidden_communication_is_refused_before_anything_moves(mesh):
    x, w = factors(mesh)
    with (
        commands_of() as names,
        distributed.implicit("forbid"),
        pytest.raises(distributed.ImplicitCommunicationError, match=r"inserts reduce_scatter\(dim 1, tp\)"),
    ):
        distributed.matmul(x, w)
    assert names == []
    with pytest.raises(distributed.ImplicitCommunicationError, match="of statistics"):
        distributed.softmax(x, dim=-1, implicit="forbid")
    assert words_of(distributed.matmul(x, w, output_topology=[Shard(0), SUM], implicit="forbid")) == (
        Shard(0),
        SUM,
    )


def test_communication_that_is_asked_for_is_not_implicit(mesh):
    x, _ = factors(mesh)
    with distributed.implicit("forbid"):
        assert words_of(distributed.redistribute(x, [])) == (R, R)


def test_a_warning_names_what_is_inserted_and_the_line(mesh):
    x, w = factors(mesh)
    with pytest.warns(distributed.ImplicitCommunication, match=r"inserts reduce_scatter") as heard:
        distributed.matmul(x, w, implicit="warn")
    assert heard[0].filename == __file__


def test_under_strict_mode_the_warning_is_an_error(mesh, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.raises(distributed.ImplicitCommunicationError, match="inserts"), distributed.implicit("warn"):
        distributed.matmul(*factors(mesh))


def test_the_policy_of_a_call_is_stronger_than_that_of_the_block(mesh):
    with distributed.implicit("forbid"):
        distributed.matmul(*factors(mesh), implicit="allow")
    distributed.matmul(*factors(mesh))


def test_an_unknown_policy_is_refused_with_the_nearest(mesh):
    for call in (
        lambda: distributed.matmul(*factors(mesh), implicit="forbit"),
        lambda: distributed.implicit("forbit").__enter__(),
    ):
        with pytest.raises(ValueError, match=r"implicit='forbit' is not one of .* Did you mean 'forbid'\?"):
            call()


def test_the_meshes_of_other_tests_have_no_names():
    assert getattr(mesh_of(2, 4), "axis_names", None) is None
