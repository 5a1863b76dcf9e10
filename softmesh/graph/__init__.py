"""`ttnn.graph`: captures what a program did as a graph of functions, tensors and buffers.

The nodes have TT-NN's names and fields. The underscored names at the end are TT-NN's own inner ones, which test
suites reach for.
"""

import sys
from contextlib import ExitStack
from types import ModuleType

from softmesh.graph.comparison_records import (
    COMPARISON_RECORDS_SIDECAR_SUFFIX,
    flush_comparison_records_to_db,
    has_comparison_records,
    record_tensor_comparison_data,
    reset_comparison_records_data,
)
from softmesh.graph.dot_graph import pretty_format, pretty_print, visualize, visualize_edge, visualize_node
from softmesh.graph.extraction import (
    PeakMemoryUsagePerCore,
    TensorInfo,
    count_intermediate_and_output_tensors,
    extract_calltrace,
    extract_levelized_graph,
    extract_operation_durations,
    extract_output_info,
    extract_output_tensors,
    extract_peak_L1_memory_usage,
    extract_resource_usage_per_core,
    extract_total_duration_from_graph,
)
from softmesh.graph.python_io import RECORDS as _python_io_data
from softmesh.graph.python_io import (
    append_python_io_record,
    disable_python_io_recording,
    enable_python_io_recording,
    is_python_io_recording_enabled,
    record_python_operation,
    record_python_operation_error,
    store_output_tensor_ids,
)
from softmesh.graph.python_io import safe_arg_str as _safe_arg_str
from softmesh.graph.report_database import import_report
from softmesh.graph.session import (
    REPORT_VERSION,
    RunMode,
    begin_graph_capture,
    disable_detailed_buffer_tracing,
    disable_python_stack_traces,
    enable_detailed_buffer_tracing,
    enable_python_stack_traces,
    end_graph_capture,
    end_graph_capture_to_file,
    full_graph_capture,
    is_detailed_buffer_tracing_enabled,
    is_graph_capture_active,
    is_python_stack_trace_enabled,
    store_captured_graph,
    track_function_end,
    track_function_start,
)
from softmesh.graph.session import end_graph_capture as _cpp_end_graph_capture
from softmesh.graph.session import (
    follow_config_for_outer_capture as _configure_python_stack_traces_for_outer_graph_capture,
)


class ExitStackWithPop(ExitStack):
    """Context managers that can be left one by one, the latest first."""

    def pop(self) -> None:
        """Leave the latest."""
        if self._exit_callbacks:  # type: ignore[attr-defined]
            _, leave = self._exit_callbacks.pop()  # type: ignore[attr-defined]
            leave(None, None, None)


class _GraphModule(ModuleType):
    """Programs that put another list of records here mean the one that is written to reports."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "_python_io_data" and isinstance(value, list):
            _python_io_data[:] = value
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _GraphModule
