"""`softmesh coverage`: what share of a usage file there is, and what is said of files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

import softmesh
from softmesh.coverage.coverage_command import coverage
from softmesh.coverage.usage_survey import Used, has, survey
from softmesh.errors import NotModelled

HEADER = "name,kind,files,calls,a_files,a_calls,b_files,b_calls,score"
LINES = [
    "ttnn.add,operation,9,20,6,15,3,5,6.0",
    "ttnn.bfloat16,enum-member,4,0,4,0,0,0,3.0",
    "ttnn.no_such_name,function,1,1,0,0,1,1,0.75",
    "ttnn.D2DStreamService,class,1,1,1,1,0,0,0.25",
]


@pytest.fixture
def usage(tmp_path: Path) -> Path:
    file = tmp_path / "usage.csv"
    file.write_text("\n".join([HEADER, *LINES]) + "\n")
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(coverage, list(map(str, arguments)))


def test_the_share_is_weighed_by_score_and_groups_by_files(usage: Path):
    shown = run(usage)
    assert shown.exit_code == 0
    assert shown.output.startswith("90.00 % of what programs use, by score: 2 of 4 names")
    assert "  a   90.91 %  2 of 3 names" in shown.output
    assert "  b   75.00 %  1 of 2 names" in shown.output


def test_missing_names_are_listed_by_weight_and_those_with_a_reason_apart(usage: Path):
    missing, _, listed = run(usage).output.partition("not modelled, for a reason (1):")
    assert "   0.750  ttnn.no_such_name  (b)" in missing
    assert "ttnn.D2DStreamService  (a): its two ends are kernels" in listed
    assert "create_socket_pair" in listed


def test_json_holds_the_same(usage: Path):
    found = json.loads(run(usage, "--json").output)
    assert found["score"] == {
        "percent": 90.0, "names": 4, "found": 2, "weight": 10.0, "found_weight": 9.0,
    }  # fmt: skip
    assert found["groups"]["b"]["percent"] == 75.0
    assert [one["name"] for one in found["missing"]] == ["ttnn.no_such_name", "ttnn.D2DStreamService"]
    assert found["missing"][0] == {
        "name": "ttnn.no_such_name",
        "score": 0.75,
        "groups": ["b"],
        "reason": None,
    }
    assert "kernels" in found["missing"][1]["reason"]


def test_the_exit_code_says_whether_as_much_as_asked_for_is_there(usage: Path):
    assert run(usage, "--at-least", 90).exit_code == 0
    short = run(usage, "--at-least", 90.5)
    assert short.exit_code == 1
    assert "90.00 % by score, and 90.5 % were asked for" in short.output
    assert run(usage, "--complete", "a").exit_code == 0, "a name with a reason does not count against a group"
    incomplete = run(usage, "--complete", "a,b")
    assert incomplete.exit_code == 1
    assert "group b uses ttnn.no_such_name, which is missing without a reason" in incomplete.output
    assert run(usage, "--complete", "z").exit_code == 2


def test_only_the_heaviest_are_shown_unless_all_are_asked_for(tmp_path: Path):
    file = tmp_path / "usage.csv"
    file.write_text("name,score\n" + "".join(f"ttnn.missing_{i},1\n" for i in range(50)))
    assert "... and 10 more of 10.000 together; --all shows them" in run(file).output
    assert run(file, "--all").output.count("ttnn.missing_") == 50


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no column name and no column score"),
        ("name,files\nttnn.add,3\n", "no column score"),
        ("name,score\n", "names nothing"),
        ("name,score\nttnn.add,lots\n", ":2: score must be a number that is not negative, got 'lots'"),
        ("name,score\nttnn.add,-1\n", ":2: score must be a number"),
        ("name,score\nttnn.add,nan\n", ":2: score must be a number"),
        ("name,score\nttnn.add,1\nttnn.add,2\n", ":3: ttnn.add stands in line 2 already"),
        ("name,score\nttnn.add,1,7\n", ":2: 3 values under 2 columns"),
        ("name,score\ntorch.add,1\n", ":2: 'torch.add' is not a name of TT-NN"),
        ('name,score\n"ttnn.add,1\n', "is not a table with commas"),
    ],
)
def test_a_file_that_is_no_usage_file_is_refused_with_its_line(text: str, complaint: str, tmp_path: Path):
    file = tmp_path / "usage.csv"
    file.write_text(text)
    refused = run(file)
    assert refused.exit_code == 2
    assert complaint in refused.output
    assert "Traceback" not in refused.output


def test_files_that_cannot_be_read_are_refused(tmp_path: Path):
    assert "no such file" in run(tmp_path / "none.csv").output
    assert "is not a plain file" in run(tmp_path).output
    binary = tmp_path / "usage.csv"
    binary.write_bytes(b"name,score\n\xff\xfe\n")
    refused = run(binary)
    assert refused.exit_code == 2
    assert "not UTF-8" in refused.output


def refuses() -> None:
    """There only to say so."""
    raise NotModelled("not yet")


def refuses_sometimes(flag: bool) -> None:
    if flag:
        raise NotModelled("not yet")


def test_a_name_that_can_only_refuse_counts_as_missing():
    package = ModuleType("package")
    vars(package).update(refuses=refuses, refuses_sometimes=refuses_sometimes, constant=0)
    assert not has(package, "ttnn.refuses")
    assert has(package, "ttnn.refuses_sometimes")
    assert has(package, "ttnn.constant")
    assert not has(package, "ttnn.constant.of_nothing")


def test_the_survey_asks_the_installed_package():
    names = [Used("ttnn.add", 1.0), Used("ttnn.graph.RunMode.NORMAL", 1.0), Used("ttnn.graph.nothing", 2.0)]
    found = survey(softmesh, names)
    assert [lack.used.name for lack in found.lacking] == ["ttnn.graph.nothing"]
    assert found.whole.percent == 50.0
