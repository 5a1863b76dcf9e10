"""`ttnn.graph_report`: reports of captured graphs as a database, under the names that TT-NN's programs import.

    python -m softmesh.graph_report report.json folder

The underscored names at the end are TT-NN's own inner ones, which test suites reach for.
"""

from __future__ import annotations

import re
import sys
from urllib.parse import urlsplit, urlunsplit

from softmesh.graph.buffer_chunks import aggregate_pages_to_chunks as _aggregate_pages_to_chunks
from softmesh.graph.comparison_records import COMPARISON_RECORDS_SIDECAR_SUFFIX, import_tensor_comparison_records
from softmesh.graph.extraction import extract_operation_durations, extract_total_duration_from_graph
from softmesh.graph.graph_import import import_devices, import_graph
from softmesh.graph.graph_import import validate_graph_integrity as _validate_graph_integrity
from softmesh.graph.report_database import (
    COMPARISON_RECORDS_FALLBACK_NAME,
    SUPPORTED_REPORT_VERSION,
    generate_svg,
    get_tt_metal_git_report_metadata,
    import_report,
    run_pytest_graph_report_fixture,
)
from softmesh.graph.report_database import OPERATION_ID_STRIDE_PER_RANK_FILE as _OPERATION_ID_STRIDE_PER_RANK_FILE
from softmesh.graph.report_tables import (
    CREATE_INDEX_STACK_TRACES_SOURCE_FILE_SQL,
    CREATE_SOURCE_FILES_TABLE_SQL,
    CREATE_STACK_TRACES_TABLE_WITH_SOURCE_SQL,
    DATABASE_SCHEMA_VERSION,
    create_database_schema,
    import_metadata,
    save_database_schema_version,
)
from softmesh.graph.session import PYTHON_IO_SIDECAR_SUFFIX
from softmesh.graph.stack_trace_sources import (
    get_source_file_id,
    normalize_source_path_from_stack_trace,
    read_source_file,
)
from softmesh.graph.stack_trace_sources import innermost_frame as _innermost_stack_frame
from softmesh.graph.tensor_lifetimes import compute_tensor_lifetime_records

__all__ = [
    "COMPARISON_RECORDS_FALLBACK_NAME",
    "COMPARISON_RECORDS_SIDECAR_SUFFIX",
    "CREATE_INDEX_STACK_TRACES_SOURCE_FILE_SQL",
    "CREATE_SOURCE_FILES_TABLE_SQL",
    "CREATE_STACK_TRACES_TABLE_WITH_SOURCE_SQL",
    "DATABASE_SCHEMA_VERSION",
    "PYTHON_IO_SIDECAR_SUFFIX",
    "SUPPORTED_REPORT_VERSION",
    "_OPERATION_ID_STRIDE_PER_RANK_FILE",
    "_aggregate_pages_to_chunks",
    "_innermost_stack_frame",
    "_validate_graph_integrity",
    "compute_tensor_lifetime_records",
    "create_database_schema",
    "derive_report_name",
    "extract_operation_durations",
    "extract_total_duration_from_graph",
    "generate_svg",
    "get_source_file_id",
    "get_tt_metal_git_report_metadata",
    "import_devices",
    "import_graph",
    "import_metadata",
    "import_report",
    "import_tensor_comparison_records",
    "main",
    "normalize_source_path_from_stack_trace",
    "read_source_file",
    "run_pytest_graph_report_fixture",
    "sanitize_git_remote_url",
    "save_database_schema_version",
]

_SCP_STYLE = re.compile(r"^[^@/\s]+@(?P<rest>[^:/\s]+:.*)$")


def derive_report_name(nodeid: str) -> str:
    """A name for the folder of a test's report: `tests/test_a.py::test_b[c]` is `test_a_test_b_c`."""
    file, _, test = nodeid.partition("::")
    stem = file.rpartition("/")[2].removesuffix(".py")
    return re.sub(r"[^0-9A-Za-z.-]+", "_", f"{stem}_{test}" if test else stem).strip("_")


def sanitize_git_remote_url(url: str) -> str:
    """Without names, passwords, queries and fragments."""
    text = url.strip()
    scp = _SCP_STYLE.match(text)
    if scp is not None and "://" not in text:
        return scp["rest"]
    parts = urlsplit(text)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def main() -> None:
    """`report.json folder`: the report becomes folder/db.sqlite."""
    arguments = sys.argv[1:]
    if len(arguments) != 2:
        sys.exit("usage: python -m softmesh.graph_report REPORT FOLDER")
    report, folder = arguments
    print(import_report(report, folder))


if __name__ == "__main__":
    main()
