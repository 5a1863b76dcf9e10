"""`softmesh systems`, as a user types it."""

from __future__ import annotations

import json

from click.testing import CliRunner

from softmesh.report.systems_list import systems
from softmesh.systems.named_systems import entries, load


def run(*arguments: str, columns: int = 80) -> str:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(systems, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def row_of(output: str, name: str) -> list[str]:
    """Of the lines that begin with this word, the one that is more than a rest of other names."""
    rows = [line.split() for line in output.splitlines() if line.split()[:1] == [name]]
    return max(rows, key=len)


def test_every_built_in_system_has_a_row():
    output = run()
    for entry in entries():
        assert row_of(output, entry.name)[1] == str(len(load(entry.name).asics))


def test_a_row_tells_chips_mesh_links_hosts_architecture_memory_and_other_names():
    assert row_of(run(columns=120), "T3000") == [
        *("T3000", "8", "2x4", "x2", "1", "WH", "96"),
        *("T3K,", "LoudBox,", "QuietBox-WH"),
    ]
    assert row_of(run(), "Exabox")[1:9] == ["160", "5", "of", "8x4", "x4", "5", "WH", "1920"]
    assert row_of(run(), "N150")[1:] == ["1", "1x1", "-", "1", "WH", "12"]


def test_eighty_columns_suffice():
    lines = run().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def test_generators_and_ways_to_choose_are_told():
    output = run()
    for words in ("mesh:RxC", "torus:RxC", "line:N", "SOFTMESH_SYSTEM=", "--system T3000"):
        assert words in output


def test_json_has_the_same_for_programs():
    listed = json.loads(run("--json"))
    by_name = {system["name"]: system for system in listed["systems"]}
    assert by_name.keys() == {entry.name for entry in entries()}
    galaxy = by_name["Galaxy"]
    assert (galaxy["chips"], galaxy["mesh"], galaxy["links_per_edge"]) == (32, [8, 4], 4)
    assert galaxy["memory_gib"] == 384
    assert "6U" in galaxy["aliases"]
    assert "torus:RxC" in listed["generated"]
