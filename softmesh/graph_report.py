"""`ttnn.graph_report`: reports of captured graphs as a database, under the name that TT-NN's suites import."""

from __future__ import annotations

from softmesh.graph.comparison_records import COMPARISON_RECORDS_SIDECAR_SUFFIX
from softmesh.graph.report_database import (
    COMPARISON_RECORDS_FALLBACK_NAME,
    SUPPORTED_REPORT_VERSION,
    import_report,
    run_pytest_graph_report_fixture,
)

__all__ = [
    "COMPARISON_RECORDS_FALLBACK_NAME",
    "COMPARISON_RECORDS_SIDECAR_SUFFIX",
    "SUPPORTED_REPORT_VERSION",
    "import_report",
    "run_pytest_graph_report_fixture",
]
