"""An estimate as the table of ops that TT-NN's profiler writes (form 2.1): tt-perf-report and TT-NN Visualizer read it.

A row for each program on each device, in the order of calls; work of the host and signposts between them. Columns
that a profiler fills from hardware counters are there and empty. What follows the profiler's columns is softmesh's own:
what bounds the op, the band of its duration, and the line that called it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from softmesh.cost.timeline import Estimate, Mark, TensorRecord, TimedCommand
from softmesh.report.estimates.device_programs import (
    available_cores,
    is_host_work,
    is_program,
    math_fidelity,
    op_code,
    roofline,
)
from softmesh.report.estimates.output_files import PathLike, output_folder, write_file, writing

OPS_FILE = "ops_perf_results.csv"
DEVICE_LOG_FILE = "profile_log_device.csv"
DEVICE, HOST, SIGNPOST = "tt_dnn_device", "python_fallback", "signpost"

_BEFORE_TENSORS = (
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
    "PARALLELIZATION STRATEGY",
    "HOST START TS",
    "HOST END TS",
    "HOST DURATION [ns]",
    "DEVICE FW START CYCLE",
    "DEVICE FW END CYCLE",
    "OP TO OP LATENCY [ns]",
    "OP TO OP LATENCY BR/NRISC START [ns]",
    "DEVICE FW DURATION [ns]",
    "DEVICE KERNEL DURATION [ns]",
    "DEVICE KERNEL DURATION DM START [ns]",
    "DEVICE KERNEL DURATION PER CORE MIN [ns]",
    "DEVICE KERNEL DURATION PER CORE MAX [ns]",
    "DEVICE KERNEL DURATION PER CORE AVG [ns]",
    "DEVICE KERNEL FIRST TO LAST START [ns]",
    "DEVICE BRISC KERNEL DURATION [ns]",
    "DEVICE NCRISC KERNEL DURATION [ns]",
    "DEVICE TRISC0 KERNEL DURATION [ns]",
    "DEVICE TRISC1 KERNEL DURATION [ns]",
    "DEVICE TRISC2 KERNEL DURATION [ns]",
    "DEVICE ERISC KERNEL DURATION [ns]",
    "DEVICE COMPUTE CB WAIT FRONT [ns]",
    "DEVICE COMPUTE CB RESERVE BACK [ns]",
    "DISPATCH TOTAL CQ CMD OP TIME [ns]",
    "DISPATCH GO SEND WAIT TIME [ns]",
)
_AFTER_TENSORS = (
    "METAL TRACE ID",
    "METAL TRACE REPLAY SESSION ID",
    "COMPUTE KERNEL SOURCE",
    "COMPUTE KERNEL HASH",
    "DATA MOVEMENT KERNEL SOURCE",
    "DATA MOVEMENT KERNEL HASH",
    "PROGRAM HASH",
    "PROGRAM CACHE HIT",
    "PM IDEAL [ns]",
    "PM COMPUTE [ns]",
    "PM BANDWIDTH [ns]",
    "PM REQ I BW",
    "PM REQ O BW",
    "PM FPU UTIL (%)",
    "NOC UTIL (%)",
    "MULTICAST NOC UTIL (%)",
    "DRAM BW UTIL (%)",
    "ETH BW UTIL (%)",
    "NPE CONG IMPACT (%)",
)
_OWN = ("BOUND", "DEVICE KERNEL DURATION LOW [ns]", "DEVICE KERNEL DURATION HIGH [ns]", "CALL SITE")
_DIMS = ("W", "Z", "Y", "X")
_FEWEST = {"INPUT": 2, "OUTPUT": 1}  # columns that readers ask for, also of a program without tensors
_FORMULA = ("=", "+", "-", "@")  # what a spreadsheet takes for the beginning of a formula

# Stand in a row for what each device has for itself: its number, the host's time stamp, and the gap before the op.
_OWN_CELLS = _DEVICE, _STAMP, _GAP = "\x01", "\x02", "\x03"

Row = dict[str, object]
Own = tuple[int, int, int]


def write_ops_csv(estimate: Estimate, folder: PathLike, option: str = "--ops-csv") -> list[Path]:
    """The table, and beside it the device log that the visualizer asks for, which holds no zones."""
    into = output_folder(option, folder)
    with writing(option, into / OPS_FILE) as sink:
        for line in ops_csv_lines(estimate):
            sink.write(line.encode("utf-8"))
    return [into / OPS_FILE, write_file(option, into / DEVICE_LOG_FILE, _device_log(estimate))]


def ops_csv_lines(estimate: Estimate) -> Iterator[str]:
    """The header, then the rows. What devices of a program have in common is put into words once."""
    programs = [command for command in estimate.commands if is_program(command)]
    inputs = max([len(command.inputs) for command in programs], default=0)
    outputs = max([len(command.outputs) for command in programs], default=0)
    text = io.StringIO()
    table = csv.DictWriter(text, header(inputs, outputs), restval="", lineterminator="\n")
    table.writeheader()
    yield text.getvalue()
    for row, devices in _rows(estimate):
        text.seek(0)
        text.truncate()
        table.writerow(row)
        line = text.getvalue()
        for own in devices:
            yield _filled(line, own)


def _filled(line: str, own: Own) -> str:
    """With what one device has for itself."""
    for mark, value in zip(_OWN_CELLS, own, strict=True):
        line = line.replace(mark, str(value))
    return line


def header(inputs: int, outputs: int) -> list[str]:
    """All columns, for programs of so many inputs and outputs."""
    tensors = [
        column
        for side, count in (("INPUT", inputs), ("OUTPUT", outputs))
        for number in range(max(count, _FEWEST[side]))
        for column in _tensor_columns(f"{side}_{number}")
    ]
    return [*_BEFORE_TENSORS, *tensors, *_AFTER_TENSORS, *_OWN]


def _tensor_columns(prefix: str) -> Iterator[str]:
    yield from (f"{prefix}_{dim}_PAD[LOGICAL]" for dim in _DIMS)
    yield from (f"{prefix}_{what}" for what in ("LAYOUT", "DATATYPE", "MEMORY"))


def _rows(estimate: Estimate) -> Iterator[tuple[Row, list[Own]]]:
    """Each with its devices; what belongs to none of them is there once."""
    marks = sorted(estimate.marks, key=lambda mark: mark.command)
    ended: dict[tuple[int, int], float] = {}  # by rank and device, when the last program did
    clock = _Clock()
    for command in estimate.commands:
        while marks and marks[0].command <= command.index:
            yield _signpost(marks.pop(0), clock)
        if is_program(command):
            yield _program_row(estimate, command), _own_cells(command, ended, clock)
        elif is_host_work(command):
            yield _host_row(command, clock)
    for mark in marks:
        yield _signpost(mark, clock)


class _Clock:
    """The host's time stamps: readers sort by them, so no two are the same."""

    def __init__(self) -> None:
        self._last = -1

    def stamp(self, seconds: float) -> int:
        self._last = max(_ns(seconds), self._last + 1)
        return self._last


def _signpost(mark: Mark, clock: _Clock) -> tuple[Row, list[Own]]:
    at = clock.stamp(mark.time)
    return {"OP CODE": _text(mark.text), "OP TYPE": SIGNPOST, "HOST START TS": at, "HOST END TS": at}, [(0, at, 0)]


def _host_row(command: TimedCommand, clock: _Clock) -> tuple[Row, list[Own]]:
    at = clock.stamp(command.issued)
    row: Row = {
        "OP CODE": f"(torch) {command.name}",
        "OP TYPE": HOST,
        "GLOBAL CALL COUNT": command.index + 1,
        "HOST START TS": at,
        "HOST END TS": at + _ns(command.seconds),
        "HOST DURATION [ns]": _ns(command.seconds),
        "DEVICE KERNEL DURATION [ns]": 0,
        "BOUND": command.cost.bound.value,
        "CALL SITE": _text(str(command.site)),
    }
    return row, [(0, at, 0)]


def _own_cells(command: TimedCommand, ended: dict[tuple[int, int], float], clock: _Clock) -> list[Own]:
    found = []
    for device in command.devices:
        key = command.rank, device
        before = ended.get(key)
        gap = 0 if before is None else max(0, _ns(command.start - before))
        ended[key] = max(command.end, before or 0.0)
        found.append((device, clock.stamp(command.issued), gap))
    return found


def _program_row(estimate: Estimate, command: TimedCommand) -> Row:
    chip = estimate.meshes[command.mesh].chip
    row: Row = {
        **_common(estimate, command),
        "DEVICE ID": _DEVICE,
        "HOST START TS": _STAMP,
        "HOST END TS": _STAMP,
        "HOST DURATION [ns]": 0,
        "DEVICE FW START CYCLE": round(command.start * chip.clock_ghz * 1e9),
        "DEVICE FW END CYCLE": round(command.end * chip.clock_ghz * 1e9),
        "OP TO OP LATENCY [ns]": _GAP,
        "OP TO OP LATENCY BR/NRISC START [ns]": _GAP,
    }
    for side, tensors in (("INPUT", command.inputs), ("OUTPUT", command.outputs)):
        for number, tensor in enumerate(tensors):
            row |= _tensor_cells(f"{side}_{number}", tensor)
    return row


def _common(estimate: Estimate, command: TimedCommand) -> Row:
    """What is the same on every device."""
    chip, duration = estimate.meshes[command.mesh].chip, command.seconds * 1e9
    best = roofline(command, chip)
    return {
        "OP CODE": op_code(command),
        "OP TYPE": DEVICE,
        "GLOBAL CALL COUNT": command.index + 1,
        "DEVICE ARCH": chip.arch_name,
        "ATTRIBUTES": _attributes(command),
        "MATH FIDELITY": math_fidelity(command),
        "CORE COUNT": command.cost.cores or available_cores(estimate, command),
        "AVAILABLE WORKER CORE COUNT": available_cores(estimate, command),
        "SUB DEVICE ID": command.sub_devices[0] if len(command.sub_devices) == 1 else "",
        "DEVICE FW DURATION [ns]": round(duration),
        "DEVICE KERNEL DURATION [ns]": round(duration),
        "METAL TRACE ID": "" if command.trace is None else command.trace,
        "METAL TRACE REPLAY SESSION ID": "" if command.session is None else command.session + 1,
        "PM IDEAL [ns]": math.ceil(best.ideal),
        "PM COMPUTE [ns]": math.ceil(best.compute),
        "PM BANDWIDTH [ns]": math.ceil(best.bandwidth),
        "PM FPU UTIL (%)": _percent(best.compute, duration),
        "DRAM BW UTIL (%)": _percent(best.bandwidth, duration),
        "ETH BW UTIL (%)": _percent(best.link, duration) if command.cost.link_bytes else "",
        "BOUND": command.cost.bound.value,
        "DEVICE KERNEL DURATION LOW [ns]": round(command.cost.low * 1e9),
        "DEVICE KERNEL DURATION HIGH [ns]": round(command.cost.high * 1e9),
        "CALL SITE": _text(str(command.site)),
    }


def _tensor_cells(prefix: str, tensor: TensorRecord) -> Row:
    where = "HOST" if tensor.is_on_host else f"DEV_{_DEVICE}_{tensor.buffer_type}_{tensor.memory_layout}"
    sizes = zip(_DIMS, _four(tensor.padded_shape), _four(tensor.shape), strict=True)
    return {
        **{f"{prefix}_{dim}_PAD[LOGICAL]": f"{padded}[{logical}]" for dim, padded, logical in sizes},
        f"{prefix}_LAYOUT": tensor.layout,
        f"{prefix}_DATATYPE": tensor.dtype,
        f"{prefix}_MEMORY": where,
    }


def _four(shape: Sequence[int]) -> tuple[int, ...]:
    """W, Z, Y, X; what a tensor has beyond four dims is counted in W."""
    filled = (*(1 for _ in range(4 - len(shape))), *shape)
    return (math.prod(filled[:-3]), *filled[-3:])


def _attributes(command: TimedCommand) -> str:
    """As the profiler writes a dictionary: `{'transpose_b': 'false'; 'dim': '1'}`."""
    pairs = (f"'{name}': '{_attribute(value)}'" for name, value in command.arguments.items() if value is not None)
    return "{" + "; ".join(pairs) + "}"


def _attribute(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _one_line(text.replace("'", '"'))


def _text(text: str) -> str:
    """One line that a spreadsheet does not run."""
    line = _one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def _one_line(text: str) -> str:
    """Without line ends and other characters that print nothing."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def _device_log(estimate: Estimate) -> str:
    """The line of the chip and the names of columns: nothing was measured inside of programs."""
    mesh = estimate.meshes[0] if estimate.meshes else None
    first = "ARCH: none, CHIP_FREQ[MHz]: 0, Max Compute Cores: 0"
    if mesh is not None:
        cores = mesh.grid[0] * mesh.grid[1]
        clock = round(mesh.chip.clock_ghz * 1000)
        first = f"ARCH: {mesh.chip.arch_name}, CHIP_FREQ[MHz]: {clock}, Max Compute Cores: {cores}"
    columns = (
        "PCIe slot",
        "core_x",
        "core_y",
        "RISC processor type",
        "timer_id",
        "time[cycles since reset]",
        "data",
        "run host ID",
        "trace id",
        "trace id counter",
        "zone name",
        "type",
        "source line",
        "source file",
        "meta data",
    )
    return f"{first}\n{', '.join(columns)}\n"


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 3)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
