"""`softmesh bench runtime` measures what it says and shows it; how fast anything is, is not tested."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh.bench import runtime, runtime_workload
from softmesh.bench.runtime import QUICK, Row, table_rows
from softmesh.cli import main as command_line
from softmesh.hardware.enums import BufferType

MEASURED = [
    "20 small ops: trace replay",
    "20 small ops: op by op",
    "MLP: trace replay",
    "MLP: op by op",
    "event, recorded and waited for",
    "empty workload, enqueued",
    "allocation among 200",
    "freeing among 200",
    "20 small ops under the sanitizer",
    "kernels copying 2 tiles on 8 devices, alike on all",
    "kernels copying 2 tiles on 8 devices, other ones on each",
    "  the same, and the values read",
]


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with runtime.opened(2, 4) as opened:
        yield opened


def test_the_table_has_a_line_for_everything(capsys):
    with pytest.raises(SystemExit) as ended:
        command_line(["bench", "runtime", "--quick"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "The runtime, on 2x4 devices" in shown
    for what in MEASURED:
        assert what in shown


def test_json_has_the_same_numbers_with_their_meaning(capsys):
    assert runtime.main(["--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["effort"]["live_buffers"] == QUICK.live_buffers
    assert [row["what"] for row in found["rows"]] == MEASURED
    for row in found["rows"]:
        assert row["microseconds"] > 0
        assert (row["ratio"] is None) == (row["against"] == "")


def test_a_line_without_a_peer_shows_no_ratio():
    rows = [Row("a", 1234.56, "", None), Row("b", 0.04, "bare torch", 1.006)]
    assert table_rows(rows) == [["a", "1,234.6", "", ""], ["b", "0.0", "1.01", "bare torch"]]


@pytest.mark.parametrize("build", [runtime_workload.chain, lambda mesh: runtime_workload.mlp(mesh, 64, 32)])
def test_trace_ops_and_torch_compute_the_same(mesh, build):
    replay = build(mesh)
    expected = replay.by_hand()
    eager = replay.eager()
    traced = replay.trace()
    assert torch.equal(eager.pieces(), traced.pieces())
    torch.testing.assert_close(traced.view_data().flatten(), expected.flatten(), rtol=1e-4, atol=1e-5)


def test_the_allocator_has_as_many_buffers_after_a_turn_as_before(mesh):
    allocator = mesh.allocator()
    churn = runtime_workload.Churn(mesh, live=80)
    assert len(allocator.live()) == 80
    assert churn.allocating() > 0
    assert churn.freeing() > 0
    assert len(allocator.live()) == 80
    assert {one.buffer_type for one in allocator.live()} == {BufferType.DRAM}


@pytest.mark.parametrize("alike", [False, True])
def test_kernels_copy_what_they_are_given(mesh, alike):
    copied = runtime_workload.CopyProgram(mesh, tiles=3, alike=alike)
    copied.run()
    copied.run_and_read()
    assert torch.equal(copied.target.pieces(), copied.source.pieces())
