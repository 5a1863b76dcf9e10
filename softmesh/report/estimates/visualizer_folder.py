"""The folder that TT-NN Visualizer opens: the database, the configuration, and two files about the machine."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from softmesh.config import CONFIG
from softmesh.cost.timeline import Estimate
from softmesh.errors import MeshError
from softmesh.graph.comparison_records import import_tensor_comparison_records, kept_records
from softmesh.graph.machine_descriptors import (
    CLUSTER_FILE,
    CONFIG_FILE,
    MAPPING_FILE,
    Places,
    cluster_text,
    file_name,
    mapping_text,
)
from softmesh.graph.report_tables import create_database_schema, import_metadata, save_database_schema_version
from softmesh.report.estimates.output_files import PathLike, output_folder, write_file
from softmesh.report.estimates.visualizer_database import insert_estimate
from softmesh.version import __version__

DATABASE = "db.sqlite"


def write_visualizer(estimate: Estimate, folder: PathLike, option: str = "--visualizer") -> list[Path]:
    """What was written before under the same names is replaced."""
    into = output_folder(option, folder)
    written = [_write_database(estimate, into, option)]
    for rank in range(estimate.ranks):
        places = _places(estimate, rank)
        texts = {
            file_name(CONFIG_FILE, ".json", rank, estimate.ranks): _config_text(into),
            file_name(CLUSTER_FILE, ".yaml", rank, estimate.ranks): cluster_text(estimate.machine, places),
            file_name(MAPPING_FILE, ".yaml", rank, estimate.ranks): mapping_text(places),
        }
        written += [write_file(option, into / name, text) for name, text in texts.items()]
    return written


def _write_database(estimate: Estimate, folder: Path, option: str) -> Path:
    """Whole, or not at all: it is written beside and put in place when it is done."""
    database = folder / DATABASE
    unfinished = ""
    try:
        handle, unfinished = tempfile.mkstemp(prefix=".softmesh-", suffix=".sqlite", dir=folder)
        os.close(handle)
        with closing(sqlite3.connect(unfinished)) as connection, connection:
            cursor = connection.cursor()
            cursor.execute("PRAGMA synchronous = OFF")
            create_database_schema(cursor)
            left_out = insert_estimate(cursor, estimate)
            import_tensor_comparison_records(cursor, kept_records())
            save_database_schema_version(cursor)
            import_metadata(cursor, {**_metadata(estimate), **left_out})
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, database)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            os.unlink(unfinished)
        raise MeshError(f"{option}: cannot write {database}: {error}.") from None
    return database


def _metadata(estimate: Estimate) -> dict[str, object]:
    return {
        "rank": 0,
        "world_size": estimate.ranks,
        "program": estimate.program,
        "system": estimate.system,
        "fabric": estimate.fabric,
        "calibration": estimate.calibration,
        "durations": "predicted",
        "seconds": estimate.seconds,
        "made_by": f"softmesh {__version__}",
        "git_sha": "",
        "git_url": "",
    }


def _places(estimate: Estimate, rank: int) -> Places:
    """Of the chips of the rank's largest mesh; what is outside of it follows with the coordinates of its own mesh."""
    places: dict[int, tuple[int, ...]] = {}
    for mesh in sorted(estimate.meshes, key=lambda mesh: -len(mesh.devices)):
        if mesh.rank == rank:
            for device in mesh.devices:
                places.setdefault(device, mesh.coordinate(device))
    return dict(sorted(places.items()))


def _config_text(folder: Path) -> str:
    named = {"report_name": str(CONFIG.report_name or folder.resolve().name), "report_path": str(folder)}
    return json.dumps({**CONFIG.as_json(), **named}, indent=4) + "\n"
