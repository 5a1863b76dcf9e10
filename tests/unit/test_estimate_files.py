"""Estimates as files of other tools: the table of ops, the trace for Perfetto, the folder of TT-NN Visualizer."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hand_made_estimates import ODD_NAME, hand_made_estimate

import softmesh as ttnn
from softmesh.cost.timeline import Estimate, TimedCommand
from softmesh.dispatch.operation import OPERATIONS
from softmesh.graph.native_calls import Form, native_name
from softmesh.report.estimate_outputs import check_outputs, write_outputs
from softmesh.report.estimates import visualizer_database
from softmesh.report.estimates.ops_csv import header, ops_csv_lines
from softmesh.report.estimates.output_files import write_file
from softmesh.report.estimates.perfetto_trace import perfetto_events
from softmesh.systems.cluster_descriptor import load_descriptor


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    return hand_made_estimate()


# -- tt-perf-report -------------------------------------------------------------------------------------------


def test_the_header_has_the_columns_of_form_2_1():
    columns = header(2, 1)
    assert len(columns) == len(set(columns))
    readers_ask_for = (
        "OP CODE",
        "OP TYPE",
        "GLOBAL CALL COUNT",
        "DEVICE ID",
        "DEVICE ARCH",
        "ATTRIBUTES",
        "MATH FIDELITY",
        "CORE COUNT",
        "AVAILABLE WORKER CORE COUNT",
        "SUB DEVICE ID",
        "HOST START TS",
        "DEVICE FW START CYCLE",
        "OP TO OP LATENCY [ns]",
        "DEVICE KERNEL DURATION [ns]",
        "METAL TRACE ID",
        "METAL TRACE REPLAY SESSION ID",
        "PM IDEAL [ns]",
        "PM COMPUTE [ns]",
        "PM BANDWIDTH [ns]",
        "PM FPU UTIL (%)",
        "DRAM BW UTIL (%)",
        "ETH BW UTIL (%)",
        "INPUT_1_Y_PAD[LOGICAL]",
        "INPUT_0_MEMORY",
        "OUTPUT_0_DATATYPE",
    )
    assert set(readers_ask_for) <= set(columns)
    assert header(0, 0) == columns, "the columns of two inputs and an output are always there"
    assert "INPUT_2_LAYOUT" in header(3, 1)


def rows_of(estimate: Estimate) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(ops_csv_lines(estimate)))))


def test_every_device_has_a_row_of_every_program_with_what_it_could_do_at_best(estimate: Estimate):
    rows = rows_of(estimate)
    products = [row for row in rows if row["OP CODE"] == "MatmulDeviceOperation"]
    assert Counter(row["DEVICE ID"] for row in products) == {str(device): 3 for device in range(8)}
    first = products[0]
    assert (first["OP TYPE"], first["DEVICE ARCH"], first["MATH FIDELITY"]) == ("tt_dnn_device", "wormhole_b0", "HiFi2")
    assert first["INPUT_1_X_PAD[LOGICAL]"] == "1024[1024]"
    assert first["INPUT_0_MEMORY"] == "DEV_0_DRAM_INTERLEAVED"
    assert first["DEVICE KERNEL DURATION [ns]"] == "40000"
    flops_per_ns = 64 * 4096 / 2
    assert int(first["PM COMPUTE [ns]"]) == -(-2 * 64 * 512 * 1024 // flops_per_ns)
    assert int(first["PM BANDWIDTH [ns]"]) == -(-(1 << 20) // 288)
    assert int(first["PM IDEAL [ns]"]) >= int(first["PM BANDWIDTH [ns]"])
    assert 0 < float(first["PM FPU UTIL (%)"]) < 100
    assert first["BOUND"] == "compute"


def test_signposts_replays_and_work_of_the_host_have_their_rows(estimate: Estimate):
    rows = rows_of(estimate)
    kinds = [row["OP TYPE"] for row in rows]
    assert [row["OP CODE"] for row in rows if row["OP TYPE"] == "signpost"] == ["start", "replay & <more>"]
    assert kinds[0] == "signpost"
    assert kinds[-1] == "python_fallback"
    replayed = [row for row in rows if row["METAL TRACE ID"] == "7"]
    assert len(replayed) == 8
    assert {row["METAL TRACE REPLAY SESSION ID"] for row in replayed} == {"1"}
    stamps = [int(row["HOST START TS"]) for row in rows]
    assert stamps == sorted(set(stamps)), "readers sort by them"


def test_no_text_of_a_program_becomes_a_formula_or_a_row_of_its_own(estimate: Estimate):
    mark = estimate.marks[0]._replace(text="=cmd()\nmore\x01\x02")
    odd = replace(estimate, marks=(mark,))
    assert rows_of(odd)[0]["OP CODE"] == "'=cmd() more"
    assert rows_of(replace(estimate, commands=(), marks=())) == []


# -- Perfetto ---------------------------------------------------------------------------------------------------

Event = dict[str, Any]


def events_of(estimate: Estimate) -> list[Event]:
    return list(json.loads(json.dumps(list(perfetto_events(estimate)))))


def tracks_of(events: list[Event]) -> dict[tuple[int, int], str]:
    return {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}


def test_chips_queues_links_and_ranks_have_tracks(estimate: Estimate):
    events = events_of(estimate)
    processes = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    assert {"rank 0", "chip 0 at (0, 0)", "chip 7 at (1, 3)", "links", "mesh 1 (2x4): memory"} <= set(
        processes.values()
    )
    by_process = defaultdict(set)
    for (process, _), name in tracks_of(events).items():
        by_process[processes[process]].add(name)
    assert by_process["chip 3 at (0, 3)"] == {"queue 0", "queue 1"}
    assert by_process["rank 0"] == {"program", "steps"}
    assert len(by_process["links"]) == len(estimate.links)


def test_the_events_are_of_the_form_that_perfetto_reads(estimate: Estimate):
    events = events_of(estimate)
    fields = {
        "M": {"name", "args"},
        "X": {"name", "ts", "dur"},
        "C": {"name", "ts", "args"},
        "i": {"name", "ts", "s"},
        "s": {"id", "ts", "cat"},
        "t": {"id", "ts", "cat"},
        "f": {"id", "ts", "cat", "bp"},
    }
    for event in events:
        assert fields[event["ph"]] | {"pid", "tid"} <= set(event), event
        assert event.get("dur", 1) > 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    assert set(fields) == {event["ph"] for event in events}
    named = set(tracks_of(events))
    assert {(each["pid"], each["tid"]) for each in events if each["ph"] == "X"} <= named


def slices_by_track(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return found


def test_slices_of_one_track_do_not_overlap(estimate: Estimate):
    first = estimate.commands[0]
    beside = first._replace(index=len(estimate.commands), start=first.start + 1e-6, end=first.end + 1e-6)
    events = events_of(replace(estimate, commands=(*_moved(estimate.commands), beside)))
    for slices in slices_by_track(events).values():
        ordered = sorted(slices, key=lambda each: each["ts"])
        for one, other in pairwise(ordered):
            assert one["ts"] + one["dur"] <= other["ts"] + 1e-6  # of floats; readers count picoseconds at best
    assert "queue 0, track 2" in tracks_of(events).values()


def _moved(commands: tuple[TimedCommand, ...]) -> list[TimedCommand]:
    """Start and end at moments that no number of decimals holds."""
    return [one._replace(start=one.start + 1e-6 / 3, end=one.end + 1e-6 / 3) for one in commands]


def test_an_arrow_goes_from_the_sender_over_the_link_to_the_receiver(estimate: Estimate):
    events = events_of(estimate)
    slices = slices_by_track(events)

    def inside(event: Event) -> bool:
        track = slices[event["pid"], event["tid"]]
        return any(each["ts"] <= event["ts"] <= each["ts"] + each["dur"] for each in track)

    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            assert inside(event)
            arrows[event["id"]].append(event)
    assert len(arrows) == 2 * len(estimate.links), "one for each link and all_reduce"
    processes = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    start, over, end = arrows[1]
    link = estimate.links[0].link
    assert processes[start["pid"]].startswith(f"chip {link.source.chip} ")
    assert tracks_of(events)[over["pid"], over["tid"]] == str(link)
    assert processes[end["pid"]].startswith(f"chip {link.target.chip} ")
    assert start["ts"] <= over["ts"] <= end["ts"]


def test_counters_tell_memory_and_the_rates_of_links(estimate: Estimate):
    counters = defaultdict(list)
    for event in events_of(estimate):
        if event["ph"] == "C":
            counters[event["name"]].append(next(iter(event["args"].values())))
    assert max(counters["DRAM of each bank"]) == 2 * 88064
    assert counters["L1 of each bank"][-1] == 0
    assert counters["all links"][-1] == 0
    assert max(counters["all links"]) > 0
    assert "over its links" in counters


def test_ranks_share_one_trace(estimate: Estimate):
    second = [command._replace(rank=1, mesh=1) for command in estimate.commands]
    both = replace(
        estimate,
        ranks=2,
        commands=(*estimate.commands, *second),
        meshes=(*estimate.meshes, estimate.meshes[0]._replace(index=1, rank=1)),
    )
    names = [each["args"]["name"] for each in events_of(both) if each["name"] == "process_name"]
    assert {"rank 0", "rank 1", "rank 0, chip 0 at (0, 0)", "rank 1, chip 0 at (0, 0)"} <= set(names)
    assert len(names) == len(set(names))


def test_a_message_between_ranks_is_an_arrow(estimate: Estimate):
    sent = estimate.commands[0]
    received = sent._replace(index=len(estimate.commands), rank=1, mesh=1, start=sent.end, end=2 * sent.end, after=0)
    mesh = estimate.meshes[0]._replace(index=1, rank=1)
    both = replace(estimate, ranks=2, commands=(*estimate.commands, received), meshes=(*estimate.meshes, mesh))
    events = events_of(both)
    names = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    arrows = defaultdict(list)
    for event in events:
        if event["name"] == "message":
            arrows[event["id"]].append((event["ph"], names[event["pid"]], event["ts"]))
    assert len(arrows) == 8
    start, end = next(iter(arrows.values()))
    assert start == ("s", "rank 0, chip 0 at (0, 0)", 0)
    assert end == ("f", "rank 1, chip 0 at (0, 0)", pytest.approx(40))


# -- TT-NN Visualizer ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(estimate: Estimate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("visualizer")
    write_outputs(estimate, visualizer=path)
    return path


@pytest.fixture
def database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / "db.sqlite")) as connection:
        yield connection


def count(database: sqlite3.Connection, what: str) -> int:
    return int(database.execute(f"SELECT COUNT(*) FROM {what}").fetchone()[0])


def test_the_database_has_the_tables_of_schema_3_3(database: sqlite3.Connection):
    assert database.execute("SELECT value FROM report_metadata WHERE key = 'schema_version'").fetchone() == ("3.3",)
    columns = {
        "devices": "device_id worker_l1_size l1_num_banks cb_limit num_storage_cores rank",
        "operations": "operation_id name duration rank",
        "tensors": "tensor_id shape dtype layout memory_config device_id address buffer_type rank",
        "device_tensors": "tensor_id device_id address rank",
        "buffers": "operation_id device_id address max_size_per_bank buffer_type buffer_layout rank",
        "buffer_chunks": "operation_id device_id address bank_id core_x core_y chunk_address chunk_size page_size "
        "num_pages buffer_type rank",
        "captured_graph": "operation_id captured_graph rank",
        "stack_traces": "operation_id stack_trace source_file_id rank",
        "source_files": "id path contents",
        "errors": "operation_id operation_name error_type error_message stack_trace timestamp rank",
        "tensor_lifetime": "tensor_id producer_operation_id last_use_operation_id deallocate_operation_id rank",
        "local_tensor_comparison_records": "tensor_id golden_tensor_id matches desired_pcc actual_pcc rank",
        **dict.fromkeys(
            ("nodes", "edges", "operation_arguments", "input_tensors", "output_tensors"), "operation_id rank"
        ),
        **dict.fromkeys(("tensor_consumers", "tensor_producers", "global_tensor_comparison_records"), "tensor_id rank"),
    }
    for table, names in columns.items():
        found = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
        assert set(names.split()) <= found, table


def test_operations_have_predicted_durations_tensors_and_traces(database: sqlite3.Connection, estimate: Estimate):
    operations = database.execute("SELECT operation_id, name, duration FROM operations ORDER BY 1").fetchall()
    assert [name for _, name, _ in operations[:3]] == ["ttnn.matmul", "ttnn.gelu", "ttnn.all_reduce"]
    assert operations[0][2] == pytest.approx(40e-6)
    (trace,) = database.execute("SELECT stack_trace FROM stack_traces WHERE operation_id = 1").fetchone()
    assert trace.startswith(f'  File "{ODD_NAME}", line 14, in forward')
    assert count(database, "input_tensors WHERE operation_id = 1") == 2
    graph = json.loads(database.execute("SELECT captured_graph FROM captured_graph").fetchone()[0])
    assert [node["counter"] for node in graph] == list(range(len(graph)))
    assert {"ttnn.matmul", "MatmulDeviceOperation"} <= {node["params"].get("name") for node in graph}
    assert count(database, "operations") == len(estimate.commands)


def test_every_device_has_its_addresses_buffers_and_pages(database: sqlite3.Connection):
    assert count(database, "devices") == 8
    for table in ("device_tensors WHERE tensor_id = 1", "buffers WHERE operation_id = 1 AND address = 1048576"):
        assert count(database, table) == 8
    assert count(database, "buffers WHERE operation_id = 1") == 8 * 3, "two in DRAM, one in L1"
    assert count(database, "buffers WHERE operation_id = 8") == 8 * 2, "what was given back is gone"
    pages = database.execute(
        "SELECT SUM(num_pages), SUM(chunk_size) FROM buffer_chunks WHERE operation_id = 1 AND address = 1048576 "
        "AND device_id = 5"
    ).fetchone()
    assert pages == (512 * 1024 // 1024, 512 * 1024 * 2), "every tile is in one bank"


def test_beyond_a_bound_memory_is_told_of_the_first_device(
    estimate: Estimate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(visualizer_database, "MOST_BUFFER_ROWS", 18)
    write_outputs(estimate, visualizer=tmp_path)
    with closing(sqlite3.connect(tmp_path / "db.sqlite")) as database:
        assert count(database, "buffers WHERE operation_id = 1") == 24, "an operation that has begun is told in full"
        assert count(database, "buffers WHERE operation_id = 2") == 3
        (note,) = database.execute("SELECT value FROM report_metadata WHERE key = 'buffers of rank 0'").fetchone()
        assert note.startswith("from operation 2 on of the first device of each mesh only, from operation ")
        assert count(database, "buffers WHERE operation_id = 8") == 0


def test_the_machine_stands_beside_the_database(folder: Path):
    machine = load_descriptor(folder / "cluster_descriptor.yaml")
    assert len(machine.asics) == 8
    mapping = (folder / "physical_chip_mesh_coordinate_mapping.yaml").read_text()
    assert "chips:\n  0: [0, 0]\n" in mapping
    assert "  7: [1, 3]\n" in mapping
    assert json.loads((folder / "config.json").read_text())["report_name"] == folder.name


def test_the_elastic_machine_is_described_as_a_grid(estimate: Estimate, tmp_path: Path):
    write_outputs(replace(estimate, machine=None), visualizer=tmp_path)
    assert load_descriptor(tmp_path / "cluster_descriptor.yaml").links_between(0, 4)


def test_ranks_have_files_of_their_own_and_one_database(estimate: Estimate, tmp_path: Path):
    second = [command._replace(rank=1, mesh=1) for command in estimate.commands]
    mesh = estimate.meshes[0]._replace(index=1, rank=1)
    both = replace(estimate, ranks=2, commands=(*estimate.commands, *second), meshes=(*estimate.meshes, mesh))
    write_outputs(both, visualizer=tmp_path)
    assert {"config_1_of_2.json", "cluster_descriptor_2_of_2.yaml"} <= {file.name for file in tmp_path.iterdir()}
    with closing(sqlite3.connect(tmp_path / "db.sqlite")) as database:
        assert count(database, "operations WHERE rank = 1") == count(database, "operations WHERE rank = 0")


def test_how_a_program_failed_is_an_error_of_its_last_operation(estimate: Estimate, tmp_path: Path):
    write_outputs(replace(estimate, error="ValueError: no <such> thing"), visualizer=tmp_path)
    with closing(sqlite3.connect(tmp_path / "db.sqlite")) as database:
        row = database.execute("SELECT operation_name, error_type, error_message FROM errors").fetchone()
    assert row == ("ttnn.to_layout", "ValueError", "no <such> thing")


# -- paths ----------------------------------------------------------------------------------------------------------


def test_all_outputs_are_written_and_named(estimate: Estimate, tmp_path: Path):
    odd = tmp_path / "a folder, <odd> & 'quoted' é"
    outputs = {"perfetto": odd / "t.json.gz", "visualizer": odd / "v", "ops_csv": odd / "ops", "html": odd / "r.html"}
    check_outputs(**outputs)
    written = write_outputs(estimate, **outputs)
    assert {path.name for path in written} >= {"t.json.gz", "db.sqlite", "ops_perf_results.csv", "r.html"}
    assert all(path.is_file() for path in written)
    assert json.loads(gzip.decompress((odd / "t.json.gz").read_bytes()))["traceEvents"]
    assert not list(odd.rglob(".softmesh-*"))


@pytest.mark.parametrize("option", ["perfetto", "html", "visualizer", "ops_csv"])
def test_a_path_that_cannot_be_written_is_refused_before_anything_runs(option: str, tmp_path: Path):
    (tmp_path / "file").write_text("kept")
    name = {"perfetto": "--perfetto", "html": "-o", "visualizer": "--visualizer", "ops_csv": "--ops-csv"}[option]
    inside = tmp_path / "file" / "below" / "it"
    with pytest.raises(ttnn.MeshError, match=f"^{name}: "):
        check_outputs(**{option: inside})
    assert (tmp_path / "file").read_text() == "kept"


def test_a_folder_is_no_file_and_a_file_no_folder(estimate: Estimate, tmp_path: Path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(ttnn.MeshError, match="is a folder; name a file"):
        write_outputs(estimate, html=tmp_path)
    with pytest.raises(ttnn.MeshError, match="is a file; name a folder"):
        write_outputs(estimate, visualizer=tmp_path / "file")
    with pytest.raises(ttnn.MeshError, match="NUL"):
        write_outputs(estimate, perfetto="a\0b")
    with pytest.raises(ttnn.MeshError, match="name a path"):
        write_outputs(estimate, perfetto="")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_told(estimate: Estimate, tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(ttnn.MeshError, match="permission denied"):
        check_outputs(ops_csv=tmp_path)
    tmp_path.chmod(0o700)


def test_a_device_that_is_named_as_an_output_is_written_to_and_not_replaced(tmp_path):
    nowhere = tmp_path / "nowhere.json"
    nowhere.symlink_to(os.devnull)
    assert write_file("--json", nowhere, "{}") == nowhere
    assert nowhere.is_symlink()
    full = tmp_path / "full.json"
    full.symlink_to("/dev/full")
    with pytest.raises(ttnn.MeshError, match="No space left on device"):
        write_file("--json", full, "{}")


# -- one name per op --------------------------------------------------------------------------------------------


def device_operations(database: sqlite3.Connection) -> list[str]:
    """What TT-NN Visualizer joins with the rows of the table: starts of functions that are no functions of ttnn."""
    graphs = database.execute("select captured_graph from captured_graph order by operation_id")
    nodes = [node for (graph,) in graphs for node in json.loads(graph) if node["node_type"] == "function_start"]
    names = [node["params"]["name"] for node in nodes]
    return [name for name in names if "::" not in name and "ttnn." not in name and "(torch)" not in name]


def programs_of(estimate: Estimate) -> list[str]:
    """The rows of one device, without signposts and work of the host."""
    rows = [row for row in rows_of(estimate) if row["OP TYPE"] == "tt_dnn_device"]
    return [row["OP CODE"] for row in rows if row["DEVICE ID"] == rows[0]["DEVICE ID"]]


def test_every_op_has_one_name_in_the_table_the_database_and_captured_graphs(estimate: Estimate, tmp_path: Path):
    some = next(one for one in estimate.commands if one.name == "matmul")
    commands = [
        some._replace(index=at, name=name, start=at * 1e-6, end=at * 1e-6 + 5e-7) for at, name in enumerate(OPERATIONS)
    ]
    every = replace(estimate, commands=tuple(commands), memory=(), marks=(), steps=())
    write_outputs(every, visualizer=tmp_path)
    with closing(sqlite3.connect(tmp_path / "db.sqlite")) as database:
        in_database = device_operations(database)
    assert in_database == programs_of(every)
    form = Form("TILE", "INTERLEAVED")
    assert in_database == [native_name(name, form, form) for name in OPERATIONS]
    assert len(in_database) == len(OPERATIONS)


def test_the_reports_of_a_program_can_be_linked(tmp_path: Path):
    """Conversions are named by what they convert, views launch nothing, and marked steps are signposts."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh, ttnn.estimate(mesh) as cost:
        ttnn.mark_step("prompt", tokens=32)
        x = ttnn.ones((1, 1, 64, 128), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
        total = ttnn.all_reduce(ttnn.exp(x), cluster_axis=1)
        statistics = ttnn.rms_norm_pre_all_gather(total)
        gathered = ttnn.all_gather(statistics, dim=3, cluster_axis=1)
        ttnn.mark_step("step", tokens=1)
        normed = ttnn.rms_norm_post_all_gather(total, gathered)
        sharded = ttnn.to_memory_config(
            normed,
            ttnn.create_sharded_memory_config((1, 1, 64, 128), ttnn.CoreGrid(x=1, y=2), ttnn.ShardStrategy.HEIGHT),
        )
        ttnn.to_layout(ttnn.sharded_to_interleaved(sharded), ttnn.ROW_MAJOR_LAYOUT)
        ttnn.reshape(total, (1, 64, 128))
        ttnn.to_torch(ttnn.get_device_tensors(total)[0])
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    write_outputs(cost.estimate, visualizer=tmp_path)
    with closing(sqlite3.connect(tmp_path / "db.sqlite")) as database:
        linked = device_operations(database)
    assert linked == programs_of(cost.estimate)
    assert {"AllReduceAsyncDeviceOperation", "UntilizeDeviceOperation", "InterleavedToShardedDeviceOperation"} <= {
        *linked
    }
    signposts = [row["OP CODE"] for row in rows_of(cost.estimate) if row["OP TYPE"] == "signpost"]
    assert signposts == ["prompt", "step"]
