"""Published decode speeds against predicted ones: `softmesh bench decode`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from softmesh.bench import decode
from softmesh.bench.decode import PUBLISHED, Judged, fitted, judged, kendall_tau, read_rows

_QUICK = {("Llama-3.2-1B", "N150"), ("Llama-3.2-1B", "T3000"), ("Llama-3.2-3B", "N300"), ("Llama-3.1-8B", "P150")}
_HEAD = "model,layers,hidden,heads,kv_heads,ffn,vocab,system,chips,batch,tokens_per_second_per_user"


@pytest.fixture(scope="module")
def found() -> list[Judged]:
    return [judged(row) for row in read_rows(PUBLISHED) if (row.model, row.system) in _QUICK]


def test_predicted_speeds_are_near_published_ones_that_the_fit_has_not_seen(found: list[Judged]) -> None:
    assert len(found) == len(_QUICK)
    for at, one in enumerate(found):
        host = fitted([*found[:at], *found[at + 1 :]])
        assert 0.7 < one.ratio(host) < 1.4, one.row
        assert one.low < 1 / one.row.rate < one.high, one.row


def test_predicted_speeds_have_the_order_of_published_ones(found: list[Judged]) -> None:
    assert kendall_tau([one.row.rate for one in found], [1 / one.seconds for one in found]) >= 0.9


def test_the_fitted_time_of_the_host_is_the_one_that_is_modelled(found: list[Judged]) -> None:
    exact = [one._replace(row=one.row._replace(rate=1 / one.seconds)) for one in found]
    assert math.isclose(fitted(exact), 4.3e-3, rel_tol=0.01)


def test_a_table_of_ones_own_is_judged_on_any_number_of_chips(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More chips than heads of keys: the hidden dim is shared too."""
    table = tmp_path / "own.csv"
    table.write_text(
        f"{_HEAD},head_dim\nsmall,2,2048,32,8,5632,32000,Galaxy,32,32,100,\nwide,1,2048,32,8,5632,32000,P300,2,1,90,128\n"
    )
    assert decode.main(["--rows", str(table), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in told["rows"]] == ["small", "wide"]
    assert all(row["ratio"] > 0 for row in told["rows"])
    assert told["left_out"] is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model,layers\na,1\n", "the column hidden is missing"),
        (f"{_HEAD}\n", "there are no rows"),
        (f"{_HEAD}\na,x,64,2,2,64,64,N150,1,1,10\n", "line 2"),
        (f"{_HEAD}\na,1,64,2,2,64,64,N150,1,1,0\n", "must be positive"),
        (f"{_HEAD}\na,1,2048,32,8,5632,32000,N1500,1,1,10\n", "N1500"),
    ],
)
def test_bad_rows_are_refused_with_their_place(
    tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(text)
    assert decode.main(["--rows", str(table)]) == 2
    assert says in capsys.readouterr().err


def test_pairs_in_the_other_order_count_against() -> None:
    assert kendall_tau([1, 2, 3], [1, 2, 3]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
