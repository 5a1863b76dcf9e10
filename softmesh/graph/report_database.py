"""`ttnn.graph_report`: reports of captured graphs as the database that TT-NN Visualizer opens.

A report is what `ttnn.graph.end_graph_capture_to_file` writes, here or on silicon; a folder of them, of several ranks
or captures, becomes one database. Durations are the host's own, of the capture.
"""

from __future__ import annotations

import json
import os
import reprlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from softmesh.config import CONFIG
from softmesh.errors import MeshError, SoftmeshError
from softmesh.graph.buffer_chunks import aggregate_pages_to_chunks, parse_page
from softmesh.graph.captured_operations import Devices
from softmesh.graph.comparison_records import (
    COMPARISON_RECORDS_FILE,
    COMPARISON_RECORDS_SIDECAR_SUFFIX,
    import_tensor_comparison_records,
)
from softmesh.graph.dot_graph import visualize
from softmesh.graph.graph_import import import_devices, import_graph
from softmesh.graph.machine_descriptors import CLUSTER_FILE, MAPPING_FILE, file_name
from softmesh.graph.report_tables import (
    create_database_schema,
    import_metadata,
    insert_rows,
    save_database_schema_version,
)
from softmesh.graph.session import (
    PYTHON_IO_SIDECAR_SUFFIX,
    REPORT_VERSION,
    begin_graph_capture,
    end_graph_capture_to_file,
    is_graph_capture_active,
)
from softmesh.input_files.text_files import checked_path
from softmesh.terminal_text import readable

COMPARISON_RECORDS_FALLBACK_NAME = COMPARISON_RECORDS_FILE
SUPPORTED_REPORT_VERSION = REPORT_VERSION
OPERATION_ID_STRIDE_PER_RANK_FILE = 10_000

REPORTED: set[Path] = set()  # folders that the fixture of test suites has written

Report = Mapping[str, Any]


def import_report(
    report_path: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    db_name: str = "db.sqlite",
    generate_svgs: bool = False,
) -> Path:
    """Write reports of `ttnn.graph.end_graph_capture_to_file` into a database, and say where that is.

    `report_path` is one of them, or a folder: the second report of a rank has operations from 10,001 on.
    """
    where = "import_report"
    path = Path(checked_path(where, "report_path", report_path))
    folder = Path(checked_path(where, "output_dir", output_dir))
    reports = {file: _read(file) for file in _files(path)}
    database = folder / db_name
    captures: Counter[int] = Counter()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(database)) as connection, connection:
            cursor = connection.cursor()
            create_database_schema(cursor)
            for file, report in reports.items():
                rank, _ = _rank_of(file, report)
                _import_one(cursor, file, report, rank, captures[rank] * OPERATION_ID_STRIDE_PER_RANK_FILE)
                captures[rank] += 1
            save_database_schema_version(cursor)
        for file, report in reports.items():
            _write_descriptors(folder, report, *_rank_of(file, report))
            if generate_svgs:
                with _told_as_no_report(file):
                    generate_svg(list(report["graph"]), folder / f"{file.stem}.svg")
    except (OSError, sqlite3.Error) as error:
        raise MeshError(f"import_report: cannot write {database}: {error}.") from None
    return database


# What a report brings about whose parts are of other kinds or sizes than those of a capture.
_MALFORMED = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    *(sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.IntegrityError),
)


@contextmanager
def _told_as_no_report(path: Path) -> Iterator[None]:
    """Turn what the parts of a malformed report bring about into one error that names the file."""
    try:
        yield
    except SoftmeshError:
        raise
    except _MALFORMED as error:
        said = readable(repr(error))
        raise MeshError(f"import_report: {readable(str(path))} is no report of a graph capture: {said}.") from None


def _rank_of(path: Path, report: Report) -> tuple[int, int]:
    """And of how many there are."""
    try:
        metadata = report.get("metadata", {})
        return int(metadata.get("rank", 0)), int(metadata.get("world_size", 1) or 1)
    except (AttributeError, ArithmeticError, TypeError, ValueError) as error:
        raise MeshError(f"import_report: the metadata of {path} name no rank: {error!r}.") from None


def _files(path: Path) -> list[Path]:
    if not os.path.isdir(path):
        return [path]
    beside = (COMPARISON_RECORDS_SIDECAR_SUFFIX, PYTHON_IO_SIDECAR_SUFFIX)
    others = (COMPARISON_RECORDS_FILE, "config.json")
    found = [file for file in sorted(path.glob("*.json")) if not file.name.endswith(beside) and file.name not in others]
    if not found:
        raise MeshError(f"import_report: there is no report of a graph capture in {path}.")
    return found


def _read(path: Path) -> Report:
    shown = readable(str(path))
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe or a device may never end
        raise MeshError(f"import_report: {shown} is no report of a graph capture: it is not a plain file.")
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        graph, version = report["graph"], report["version"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise MeshError(f"import_report: {shown} is no report of a graph capture: {error!r}.") from None
    if version != SUPPORTED_REPORT_VERSION:
        named = reprlib.repr(version)
        raise MeshError(f"import_report: {shown} has version {named}, known is {SUPPORTED_REPORT_VERSION}.")
    if not isinstance(graph, list) or not all(isinstance(node, dict) and "counter" in node for node in graph):
        raise MeshError(f"import_report: {shown} is no report of a graph capture: its graph is no list of nodes.")
    return dict(report)


def _import_one(cursor: sqlite3.Cursor, path: Path, report: Report, rank: int, base: int) -> None:
    with _told_as_no_report(path):
        devices = report.get("devices") or []
        import_devices(cursor, devices, rank)
        python_io = report.get("python_io") or _beside(path, PYTHON_IO_SIDECAR_SUFFIX) or []
        import_graph(cursor, report["graph"], base, devices, python_io, rank=rank)
        pages, numbers = report.get("buffer_pages") or [], Devices(devices)
        last = cursor.execute("SELECT MAX(operation_id) FROM operations WHERE rank = ?", (rank,)).fetchone()[0] or base
        parsed = [parse_page(page, numbers.number(page["device_id"])) for page in pages]
        insert_rows(cursor, "buffer_chunks", aggregate_pages_to_chunks(last, parsed, rank))
        records = _beside(path, COMPARISON_RECORDS_SIDECAR_SUFFIX) or _read_json(path.parent / COMPARISON_RECORDS_FILE)
        import_tensor_comparison_records(cursor, records or {}, rank)
        import_metadata(cursor, {**get_tt_metal_git_report_metadata(), **report.get("metadata", {})})


def _beside(report: Path, suffix: str) -> Any:
    return _read_json(report.with_suffix(suffix))


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _write_descriptors(folder: Path, report: Report, rank: int, ranks: int) -> None:
    for key, stem in (("cluster_descriptor", CLUSTER_FILE), ("mesh_coordinate_mapping", MAPPING_FILE)):
        if report.get(key):
            (folder / file_name(stem, ".yaml", rank, ranks)).write_text(str(report[key]), encoding="utf-8")


def generate_svg(graph: list[Any], output_path: str | os.PathLike[str]) -> None:
    """The graph as a drawing, where graphviz is installed."""
    visualize(graph, file_name=Path(output_path))


def get_tt_metal_git_report_metadata() -> dict[str, str]:
    """Of which checkout of TT-Metal a report is: of none, here."""
    return {"git_sha": "", "git_url": ""}


def run_pytest_graph_report_fixture(request: Any) -> Iterator[None]:
    """What a fixture yields from: the test is captured, and its report written where `ttnn.CONFIG` says."""
    folder = CONFIG.report_path
    if folder is None or not str(CONFIG.report_name) or is_graph_capture_active():
        yield
        return
    begin_graph_capture()
    try:
        yield
    finally:
        if is_graph_capture_active():
            folder.mkdir(parents=True, exist_ok=True)
            end_graph_capture_to_file(folder / "graph_capture.json")
            import_report(folder / "graph_capture.json", folder)
            CONFIG.save_to_file(folder / "config.json")
            REPORTED.add(folder.resolve())
