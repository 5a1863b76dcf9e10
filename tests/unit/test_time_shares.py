"""Where the time of a program goes: one whole, and the same figures in every report."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from io import StringIO

import pytest
import torch
from rich.console import Console

import softmesh as ttnn
from softmesh.cost.summaries import busy_share, by_bound, by_line, by_op, idle_times, text_table, unpriced
from softmesh.cost.timeline import Estimate
from softmesh.estimation.estimate_text import estimate_document, show_estimate
from softmesh.kinds import Kind
from softmesh.report.estimates.estimate_page import estimate_page
from softmesh.report.estimates.ops_csv import ops_csv_lines
from softmesh.report.estimates.perfetto_trace import _facts, perfetto_events
from softmesh.report.estimates.quantities import share_text
from softmesh.runtime import commands


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    opened = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), trace_region_size=1 << 20, num_command_queues=2)
    yield opened
    ttnn.close_mesh_device(opened)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def tensor(mesh: ttnn.MeshDevice, side: int) -> ttnn.Tensor:
    return ttnn.from_torch(torch.zeros(side, side), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)


def eager(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 256)
    for _ in range(3):
        ttnn.all_gather(ttnn.gelu(ttnn.matmul(x, x)), dim=0, cluster_axis=1)


def traced(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 256)
    ttnn.gelu(ttnn.matmul(x, x))
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    y = ttnn.gelu(ttnn.matmul(x, x))
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    for _ in range(2):
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
        ttnn.to_torch(y, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))


def two_queues(mesh: ttnn.MeshDevice) -> None:
    x = tensor(mesh, 2048)
    host = ttnn.from_torch(torch.zeros(2048, 2048), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    ttnn.matmul(x, x)
    ttnn.to_device(host, mesh, queue_id=1)
    event = ttnn.record_event(mesh, 1)
    ttnn.wait_for_event(0, event)
    ttnn.gelu(x)


def sub_devices(mesh: ttnn.MeshDevice) -> None:
    def cores(first: int, last: int) -> ttnn.CoreRangeSet:
        return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, first), ttnn.CoreCoord(7, last))])

    x = tensor(mesh, 1024)
    mesh.load_sub_device_manager(
        mesh.create_sub_device_manager([ttnn.SubDevice([cores(0, 3)]), ttnn.SubDevice([cores(4, 7)])], 0)
    )
    ttnn.all_gather(x, dim=0, cluster_axis=1, subdevice_id=ttnn.SubDeviceId(0))
    ttnn.all_gather(x, dim=0, cluster_axis=0, subdevice_id=ttnn.SubDeviceId(1))
    ttnn.matmul(x, x)
    mesh.clear_loaded_sub_device_manager()


def sockets(mesh: ttnn.MeshDevice) -> None:
    """Half of the mesh sends to the other half, which has waited for it."""
    first, second = mesh.create_submeshes(ttnn.MeshShape(1, 4))
    end = [ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, at), ttnn.CoreCoord(0, 0)) for at in range(4)]
    connections = [ttnn.SocketConnection(one, one) for one in end]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 4096)
    out, into = ttnn.create_socket_pair(first, second, ttnn.SocketConfig(connections, memory))
    x = tensor(first, 512)
    y = ttnn.allocate_tensor_on_device(x.spec, second)
    ttnn.matmul(x, x)
    ttnn.experimental.send_async(x, out)
    ttnn.experimental.recv_async(y, into)
    ttnn.matmul(y, y)


PROGRAMS = [eager, traced, two_queues, sub_devices, sockets]


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.__name__)
def estimate(request: pytest.FixtureRequest, mesh: ttnn.MeshDevice) -> Estimate:
    program: Callable[[ttnn.MeshDevice], None] = request.param
    with ttnn.estimate(mesh) as cost:
        program(mesh)
    return cost.estimate


def test_shares_of_ops_of_lines_and_of_idle_time_add_up_to_the_whole(estimate: Estimate) -> None:
    idle = idle_times(estimate)
    for parts in (by_op(estimate), by_line(estimate)):
        assert sum(one.share for one in parts) + sum(one.share for one in idle) == pytest.approx(1)
    bounds = sum(seconds for _, seconds in by_bound(estimate)) + sum(one.seconds for one in idle)
    assert bounds == pytest.approx(estimate.seconds)
    assert all(0 < one.share < 1 for one in idle)
    assert "host" in [one.name for one in idle]


def test_chips_are_as_busy_as_their_programs_take(estimate: Estimate) -> None:
    programs = sum(op.share for op in by_op(estimate) if op.bound.value != "host")
    assert busy_share(estimate) == pytest.approx(programs)
    for chip, seconds in estimate.spent.busy.items():
        assert seconds == pytest.approx(_covered(_programs_of(estimate, *chip)), abs=1e-12)


def test_every_report_says_the_same(estimate: Estimate) -> None:
    busy = busy_share(estimate)
    shown = StringIO()
    show_estimate(estimate, Console(file=shown, width=200))
    assert f"programs keep the chips busy for {busy:.1%} of the time" in shown.getvalue()
    shares = [float(cell.rstrip("%")) for cell in text_table(estimate).columns[4].cells]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))

    document = json.loads(json.dumps(estimate_document(estimate), default=str))
    assert document["busy"] == busy
    assert sum(one["share"] for one in (*document["ops"], *document["idle"])) == pytest.approx(1)

    page = estimate_page(estimate)
    assert f'<div class="figure">{share_text(busy, 1).replace("<", "&lt;")}</div>' in page
    for idle in idle_times(estimate):
        assert f"<td>({idle.name})</td>" in re.sub(r" data-v=\"[^\"]*\"", "", page)

    facts = _facts(estimate)
    assert facts["chips busy"] == f"{busy:.1%}"
    assert {idle.name: f"{idle.share:.1%}" for idle in idle_times(estimate)}.items() <= facts.items()


def test_the_tracks_of_a_trace_are_as_long_as_chips_are_busy(estimate: Estimate) -> None:
    names: dict[int, str] = {}
    slices: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in perfetto_events(estimate):
        if event["ph"] == "M" and event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            slices[event["pid"]].append((event["ts"] * 1e-6, (event["ts"] + event["dur"]) * 1e-6))
    tracks = {pid: name for pid, name in names.items() if name.startswith("chip ")}
    assert tracks
    for pid, name in tracks.items():
        busy = estimate.spent.busy[0, int(name.split()[1])]
        assert _covered(slices[pid]) == pytest.approx(busy, abs=1e-8)


@pytest.mark.parametrize("program", [eager, traced], ids=lambda program: program.__name__)
def test_durations_in_the_table_of_ops_add_up_to_what_chips_are_busy(
    program: Callable[[ttnn.MeshDevice], None], mesh: ttnn.MeshDevice
) -> None:
    """Where programs do not overlap."""
    with ttnn.estimate(mesh) as cost:
        program(mesh)
    took: dict[int, float] = defaultdict(float)
    for row in csv.DictReader(StringIO("".join(ops_csv_lines(cost.estimate)))):
        if row["OP TYPE"] == "tt_dnn_device":
            took[int(row["DEVICE ID"])] += float(row["DEVICE KERNEL DURATION [ns]"]) * 1e-9
    assert len(took) == 8
    for (_, chip), seconds in cost.estimate.spent.busy.items():
        assert took[chip] == pytest.approx(seconds, abs=1e-8)


def test_a_chip_waits_for_what_runs_elsewhere(mesh: ttnn.MeshDevice) -> None:
    with ttnn.estimate(mesh) as cost:
        sockets(mesh)
    assert cost.estimate.spent.waiting > 0.1 * cost.seconds
    assert cost.busy < 0.5


def test_the_host_between_two_replays_is_the_hosts(mesh: ttnn.MeshDevice) -> None:
    with ttnn.estimate(mesh) as cost:
        traced(mesh)
    assert cost.estimate.spent.host > 0.9 * cost.seconds


def test_what_has_no_price_is_named_and_views_are_not(mesh: ttnn.MeshDevice) -> None:
    with ttnn.estimate(mesh) as cost:
        ttnn.reshape(tensor(mesh, 64), (1, 64, 64))
        commands.emit(
            "someones own op",
            Kind.ELEMENTWISE,
            (),
            (),
            device=mesh,
            coords=tuple(ttnn.MeshCoordinate(0, at) for at in range(4)),
        )
    assert unpriced(cost.estimate) == {"someones own op": 1}
    shown = StringIO()
    show_estimate(cost.estimate, Console(file=shown, width=200))
    assert "no price, counted as nothing: someones own op (1)" in shown.getvalue()
    assert "No price, counted as nothing: someones own op (1)" in estimate_page(cost.estimate)
    assert estimate_document(cost.estimate)["unpriced"] == {"someones own op": 1}


def test_an_empty_estimate_has_no_shares() -> None:
    with ttnn.estimate() as cost:
        pass
    assert by_op(cost.estimate) == idle_times(cost.estimate) == []
    assert cost.busy == 0


def _programs_of(estimate: Estimate, rank: int, device: int) -> list[tuple[float, float]]:
    return [
        (one.start, one.end)
        for one in estimate.commands
        if one.rank == rank and device in one.devices and one.mesh >= 0 and one.cost.bound.value != "host"
    ]


def _covered(spans: list[tuple[float, float]]) -> float:
    """The length of their union."""
    total = until = 0.0
    for start, end in sorted(spans):
        total += max(end - max(start, until), 0.0)
        until = max(until, end)
    return total
