"""The benchmarks measure what they say and show it; how fast anything is, is not tested."""

from __future__ import annotations

import ast
import ctypes
import io
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from warm_python import warm_python

import softmesh as ttnn
from softmesh.bench import fabric, mlp, ops
from softmesh.bench.against import RatioTable, Recorded
from softmesh.bench.fabric import descriptor_text
from softmesh.bench.harness import (
    HIGHER,
    LOWER,
    Timing,
    connected_mesh,
    interleave,
    machine,
    repetitions_for,
    show,
    table,
    timed,
)
from softmesh.bench.mlp import FORMS, MeshMlp
from softmesh.bench.peer_process import PeerMissing, worker
from softmesh.errors import ArgumentValueError
from softmesh.fabric import settings
from softmesh.fabric.descriptors.loader import check_text
from softmesh.runtime import malloc_tuning
from softmesh.runtime.device_lifecycle import open_meshes
from softmesh.runtime.malloc_tuning import keep_freed_memory
from softmesh.systems.named_systems import load

pytestmark = pytest.mark.usefixtures("idle_machine")  # a fabric is set while nothing is open

# -- timing --------------------------------------------------------------------------------------


def test_peers_take_turns_back_and_forth_and_warm_ups_do_not_count():
    turns = []

    def peer(name):
        def run():
            turns.append(name)
            return float(len(turns))

        return run

    seen = interleave({"a": peer("a"), "b": peer("b")}, rounds=2, warm_ups=1)
    assert turns == ["a", "b", "b", "a", "a", "b"]
    assert seen == {"a": Timing((4.0, 5.0)), "b": Timing((3.0, 6.0))}


def test_after_so_many_seconds_a_round_is_the_last_one():
    turns = []
    peers = {name: lambda name=name: turns.append(name) or 1.0 for name in "ab"}
    assert interleave(peers, rounds=5, warm_ups=2, patience=0) == {"a": Timing((1.0,)), "b": Timing((1.0,))}
    assert turns == ["a", "b", "b", "a", "a", "b"]


def test_comparisons_are_medians_of_what_each_round_saw():
    ours, theirs = Timing((3.0, 30.0, 4.0)), Timing((1.0, 15.0, 1.0))
    assert ours.median == 4.0
    assert ours.above(theirs) == 3.0
    assert ours.relative_to(theirs) == 3.0


def test_timed_calls_as_often_as_told_and_at_least_once():
    calls = []
    timed(lambda: calls.append(1), repetitions=5)()
    assert len(calls) == 5
    assert repetitions_for(lambda: None, seconds=0) == 1
    assert repetitions_for(lambda: None, seconds=1) > 100


# -- memory that is kept -------------------------------------------------------------------------

_FAULTS = """
import resource, statistics, torch
from softmesh.runtime.malloc_tuning import keep_freed_memory
from softmesh.systems.named_systems import load

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = keep_freed_memory()
print(kept, round(statistics.median(faults() for _ in range(9))))
"""
_IS_GLIBC = platform.libc_ver()[0] == "glibc"


@pytest.mark.parametrize("choice", ["default", "keep"])
def test_a_big_result_takes_the_memory_of_the_one_freed_before_where_it_is_kept(choice):
    environment = {**os.environ, "SOFTMESH_MALLOC": choice, "THP_MEM_ALLOC_ENABLE": "0"}
    command = [*warm_python(), "-c", _FAULTS]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kept, faults = run.stdout.split()
    assert kept == str(_IS_GLIBC and choice == "keep")
    if _IS_GLIBC:
        assert (int(faults) < 100) == (choice == "keep")  # a fresh block has 16,384 pages


class MalloptCalls(list):
    """A C library that notes what it is told, and refuses thresholds above `limit`."""

    def __init__(self, monkeypatch, limit=1 << 31):
        self._limit = limit
        monkeypatch.setattr(malloc_tuning.sys, "platform", "linux")
        monkeypatch.setattr(ctypes, "CDLL", lambda name: self)

    def mallopt(self, option, value):
        self.append((option, value))
        return int(option != malloc_tuning._M_MMAP_THRESHOLD or value <= self._limit)


def test_by_default_torch_is_told_to_ask_for_huge_pages_and_big_blocks_are_still_given_back(monkeypatch):
    monkeypatch.delenv("SOFTMESH_MALLOC", raising=False)
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "")  # so that it is put back afterwards
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE")
    told = MalloptCalls(monkeypatch)
    assert keep_freed_memory()
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == "1"
    assert told == [(malloc_tuning._M_MMAP_THRESHOLD, 32 << 20), (malloc_tuning._M_TRIM_THRESHOLD, 128 << 20)]


def test_what_the_user_told_torch_about_huge_pages_stands(monkeypatch):
    monkeypatch.setenv("SOFTMESH_MALLOC", "huge")
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    MalloptCalls(monkeypatch)
    keep_freed_memory()
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == "0"


def test_the_user_can_leave_the_allocator_alone(monkeypatch):
    monkeypatch.setenv("SOFTMESH_MALLOC", "default")
    told = MalloptCalls(monkeypatch)
    assert not keep_freed_memory()
    assert told == []


def test_a_choice_that_does_not_exist_is_named_with_the_nearest(monkeypatch):
    monkeypatch.setenv("SOFTMESH_MALLOC", "kep")
    with pytest.raises(ArgumentValueError, match=r"SOFTMESH_MALLOC=kep .* Did you mean 'keep'\?"):
        keep_freed_memory()


@pytest.mark.parametrize(
    ("platform_name", "library"),
    [("darwin", SimpleNamespace(mallopt=lambda *_: pytest.fail("not glibc"))), ("linux", SimpleNamespace())],
)
def test_other_c_libraries_are_left_alone(monkeypatch, platform_name, library):
    monkeypatch.delenv("SOFTMESH_MALLOC", raising=False)
    monkeypatch.setattr(malloc_tuning.sys, "platform", platform_name)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert not keep_freed_memory()


def test_a_glibc_that_refuses_high_thresholds_maps_no_blocks_at_all_to_keep_them(monkeypatch):
    monkeypatch.setenv("SOFTMESH_MALLOC", "keep")
    told = MalloptCalls(monkeypatch, limit=32 << 20)
    assert keep_freed_memory()
    assert (malloc_tuning._M_MMAP_MAX, 0) in told


# -- softmesh bench ops --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick_ops():
    command = [*warm_python(), "-m", "softmesh.bench.ops", "--quick", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_ops_measures_each_op_in_each_dtype_on_each_number_of_devices(quick_ops):
    seen = {(m["op"], m["operands"], m["dtype"], m["devices"]) for m in quick_ops["small_ops"]}
    operands = {
        "add": ("sharded", "replicated"),
        "relu": ("sharded", "replicated"),
        "matmul": ("sharded", "sharded, replicated", "replicated"),
    }
    assert seen == {
        (op, which, dtype, devices)
        for op, several in operands.items()
        for which in several
        for dtype in ("float32", "bfloat16")
        for devices in (1, 8)
    }
    assert all(m["softmesh_us"] > 0 and m["torch_us"] > 0 for m in quick_ops["small_ops"])


def test_ops_measures_rates_of_big_tensors(quick_ops):
    seen = {(m["op"], m["dtype"], m["unit"]) for m in quick_ops["rates"]}
    rates = {("add", "GB/s"), ("relu", "GB/s"), ("matmul", "GFLOP/s")}
    assert seen == {(op, dtype, unit) for op, unit in rates for dtype in ("float32", "bfloat16")}


def test_a_tensor_replicated_on_1024_devices_takes_the_memory_of_one_copy(quick_ops):
    memory = quick_ops["replicated_memory"]
    assert memory == {"devices": 1024, "bytes_of_one_copy": 4096, "bytes_stored": 4096}


def test_ops_names_the_machine_and_the_import_time(quick_ops):
    assert torch.__version__ in quick_ops["machine"]
    assert quick_ops["import_time"]["torch_s"] > 0


def test_both_sides_of_a_case_compute_the_same():
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        for case in ops.small_cases(ops.Operands(mesh, "float32", 32, 32)):
            assert torch.allclose(case.on_mesh().view_data(), case.in_torch(), atol=1e-4), case


def test_ops_shows_a_cell_for_each_number_of_devices():
    few = ops.SmallOp("add", "sharded", "float32", 1, softmesh_us=7.52, torch_us=1.9, above_us=5.6)
    many = ops.SmallOp("add", "sharded", "float32", 1024, softmesh_us=250.0, torch_us=251.0, above_us=-1.0)
    rows = ops.small_op_rows([few, many])
    assert rows == [["add", "sharded", "float32", "7.5/1.9 +5.6", "250/251 -1.0"]]


# -- softmesh bench mlp --------------------------------------------------------------------------


def test_mlp_runs_every_peer_and_says_why_jax_is_left_out(capsys):
    assert mlp.main(["--quick", "--json", "--jax-python", "no-such-python"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(row["form"], row["dtype"], row["peer"]) for row in shown["rows"]] == [
        (form, dtype, peer)
        for form in ("data", "all_gather", "all_reduce")
        for dtype, peer in (
            ("float32", "softmesh"),
            ("float32", "torch"),
            ("bfloat16", "softmesh"),
            ("bfloat16", "torch"),
            ("bfloat16", "torch, fp32"),
        )
    ]
    assert "cannot start no-such-python" in shown["note"]
    assert "pip install 'softmesh[bench]'" in shown["note"]


def test_mlp_prints_a_table_and_the_remedy_whole(capsys):
    assert mlp.main(["--quick", "--jax-python", "no-such-python"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "pip install 'softmesh[bench]'" in shown
    assert "time / softmesh" in shown
    assert "MLP 32 -> 64 -> 32, on 8 devices" in shown


def test_mlp_leaves_no_mesh_and_no_fabric_behind(capsys):
    mlp.main(["--quick", "--json", "--jax-python", "no-such-python"])
    assert open_meshes() == []
    assert not settings.active().is_on


@pytest.mark.parametrize(
    ("form", "result", "collectives"),
    [
        ("data", (ttnn.Replicate(), ttnn.Shard(0)), []),
        ("all_gather", (ttnn.Replicate(), ttnn.Shard(1)), ["all_gather"]),
        ("all_reduce", (ttnn.Replicate(), ttnn.Replicate()), ["all_reduce"]),
    ],
)
def test_each_form_of_the_mlp_runs_its_collective_and_no_other(form, result, collectives):
    operands = mlp.Operands.random(256, 64, 128)
    with connected_mesh(*mlp.MESH) as mesh:
        work = MeshMlp(mesh, operands, "float32", form)
        with ttnn.log_commands(show=False) as log:
            output = work()
        assert ttnn.placements(output) == result
        assert [name for _, name, *_ in log.rows if name.startswith("all_")] == collectives
        assert mlp.relative_errors({form: ttnn.compose(output)}, operands)[form] <= 1e-6


def test_jax_has_every_form_of_the_mlp():
    """Read, not imported: the worker runs under an interpreter that has JAX."""
    assigned = {
        target.id: node.value
        for node in ast.parse(Path(worker("jax_mlp.py")).read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert [key.value for key in assigned["FORMS"].keys] == list(FORMS)


_WORKER = """
import json, sys
import numpy as np, torch
print(json.dumps({"ready": "0.0"}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if "prepare" in order:
        o = {name: torch.from_numpy(value) for name, value in np.load(f"{sys.argv[1]}/operands.npz").items()}
        result = torch.nn.functional.gelu(o["x"] @ o["w1"] + o["b1"]) @ o["w2"] + o["b2"]
        np.save(f"{sys.argv[1]}/result.npy", result.numpy())
    print(json.dumps({"seconds": 0.5}), flush=True)
"""


def test_a_peer_in_a_process_of_its_own_takes_its_turn_and_is_checked():
    operands = mlp.Operands.random(256, 32, 64)
    with mlp.MlpPeer([sys.executable, "-c", _WORKER]) as jax, connected_mesh(*mlp.MESH) as mesh:
        rows = [row for form in FORMS for row in mlp.measure(form, "float32", operands, mlp.QUICK, mesh, jax)]
    assert [row.form for row in rows if row.peer == "JAX, 8 devices"] == list(FORMS)
    assert rows[-1].milliseconds == 500.0
    assert all(row.agrees for row in rows)


def test_an_interpreter_without_jax_is_named_with_what_it_said():
    command = [sys.executable, "-c", "import no_such_module"]
    with pytest.raises(PeerMissing, match="No module named 'no_such_module'"), mlp.MlpPeer(command):
        pass


def test_a_worker_and_its_files_are_gone_afterwards():
    with mlp.MlpPeer([sys.executable, "-c", _WORKER]) as jax:
        process, folder = jax._process, jax.folder
    assert process.poll() is not None
    assert not os.path.exists(folder)


def test_a_result_further_from_the_exact_one_than_its_dtype_allows_is_marked():
    good = mlp.Row("data", 256, "float32", "softmesh", 1.0, 2.0, 1.0, error=1e-7)
    bad = mlp.Row("data", 256, "float32", "torch", 1.0, 2.0, 1.0, error=1e-2)
    assert good.agrees
    assert not bad.agrees
    assert mlp.table_rows([good, bad])[1][-1] == "1.0e-02 (!)"


# -- shown ---------------------------------------------------------------------------------------


def test_a_table_keeps_words_left_and_numbers_right():
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(table("Costs", ["op", "us"], [["add", "7.5"], ["matmul", "123.4"]]))
    assert console.export_text().rstrip().splitlines()[-3:-1] == [
        "│ add    │   7.5 │",
        "│ matmul │ 123.4 │",
    ]


def test_the_machine_line_names_cores_and_versions():
    assert f"{os.cpu_count()} cores" in machine()
    assert f"Python {platform.python_version()}" in machine()


def test_an_unknown_option_is_a_usage_error():
    with pytest.raises(SystemExit) as stopped:
        mlp.main(["--slowly"])
    assert stopped.value.code == 2


# -- fabric --------------------------------------------------------------------------------------


def test_the_fabric_benchmark_times_every_step_until_the_proof(capsys):
    assert fabric.main(["--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["system"] for row in rows] == ["T3000", "torus:8x8"]
    for row in rows:
        assert set(row["milliseconds"]) == set(fabric.STEPS)
        assert row["total"] == pytest.approx(sum(row["milliseconds"].values()))
        assert "free of routing deadlock" in row["proof"]


def test_the_fabric_benchmark_shows_a_table(capsys):
    assert fabric.main(["--quick"]) == 0
    printed = capsys.readouterr().out
    assert "T3000" in printed
    assert "us per chip" in printed


def test_the_benchmark_asks_for_one_mesh_on_each_host_connected_as_the_hosts_are():
    text = descriptor_text(load("Exabox"), fabric.WANTED[3])
    graph = check_text(text).graph
    assert graph is not None
    assert len(graph.meshes) == 5
    assert {connection.count for connection in graph.connections} == {4}
    assert len(graph.connections) == 10


# -- today against a recorded run ----------------------------------------------------------------


def table_of(*cells: list[str]) -> RatioTable:
    ratios = {"time / torch": LOWER, "of copy": HIGHER}
    return table("Small ops", ["op", "dtype", "us", "time / torch", "of copy"], cells, words=2, ratios=ratios)


@pytest.fixture
def recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Recorded:
    """A page that quotes what a run printed."""
    show(table_of(["add", "float32", "7.5", "1.00", "90 %"], ["relu", "float32", "5.0", "7.5/2.5 +5.0", "80 %"]))
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n```text\n{capsys.readouterr().out}```\n")
    return Recorded.read(str(page))


def test_a_ratio_that_is_worse_by_a_tenth_is_listed_and_ends_with_1(recorded, capsys):
    code = show(
        table_of(["add", "float32", "99", "1.20", "80 %"], ["relu", "float32", "1", "3.2", "81 %"]), against=recorded
    )
    printed = " ".join(capsys.readouterr().out.split())  # a long path is wrapped
    assert code == 1
    assert "4 ratios compared" in printed
    assert "2 are worse by more than 10%" in printed
    worse = printed.partition("Worse than recorded")[2]
    assert worse.index("20%") < worse.index("12%"), "the worst first"
    assert "relu" not in worse


def test_better_ratios_and_seconds_of_another_machine_are_no_fall(recorded, capsys):
    code = show(table_of(["add", "float32", "999", "0.50", "99 %"]), against=recorded)
    assert code == 0
    assert "0 are worse" in " ".join(capsys.readouterr().out.split())


def test_rows_that_were_never_recorded_are_named(recorded, capsys):
    assert show(table_of(["exp", "float32", "7.5", "1.00", "90 %"]), against=recorded) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "0 ratios compared" in printed
    assert "Not in that file: exp, float32." in printed


@pytest.mark.parametrize("text", ["", "no table", "┏", "title\n┏\n┃", None])
def test_a_file_without_a_table_is_refused_before_anything_is_measured(tmp_path, text, capsys):
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    with pytest.raises(SystemExit) as ended:
        fabric.main(["--against", str(page)])
    assert ended.value.code == 2
    assert str(page) in capsys.readouterr().err


def test_tables_name_the_commit_they_were_measured_at():
    assert machine().startswith("softmesh ")
