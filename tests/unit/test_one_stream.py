"""Every call of the public API is seen by whoever looks on: the same calls, in the same order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch

import softmesh as ttnn
from softmesh import distributed
from softmesh.dispatch import comparison_mode
from softmesh.dispatch.entry_point import EntryPoint, intercepting
from softmesh.runtime.commands import Command

CALLS = [
    "ttnn.from_torch",
    "ttnn.relu",
    "ttnn.all_gather",
    "ttnn.experimental.send_async",
    "ttnn.experimental.recv_async",
    "softmesh.distributed.matmul",
    "ttnn.bernoulli",
    "ttnn.to_torch",
]


class Meshes:
    def __init__(self, mesh: ttnn.MeshDevice) -> None:
        self.left = mesh.create_submesh(ttnn.MeshShape(1, 2), ttnn.MeshCoordinate(0, 0))
        self.right = mesh.create_submesh(ttnn.MeshShape(1, 2), ttnn.MeshCoordinate(0, 2))
        core = ttnn.CoreCoord(0, 0)
        ends = [ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, at), core) for at in range(2)]
        config = ttnn.SocketConfig(
            [ttnn.SocketConnection(end, end) for end in ends],
            ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 1 << 16),
        )
        self.sender, self.receiver = ttnn.create_socket_pair(self.left, self.right, config)
        self.landing = self.put(self.right)

    def put(self, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=1)
        return ttnn.from_torch(
            torch.ones(64, 64), ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper
        )


@pytest.fixture
def meshes(idle_machine) -> Iterator[Meshes]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 4), trace_region_size=1 << 20) as mesh:
        yield Meshes(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def program(on: Meshes) -> torch.Tensor:
    """Eight calls: a transfer, an op, a collective, a send, a receive, a unified op, a composite, a transfer."""
    x = on.put(on.left)
    y = ttnn.relu(x)
    whole = ttnn.all_gather(y, dim=1)
    ttnn.experimental.send_async(y, on.sender)
    ttnn.experimental.recv_async(on.landing, on.receiver)
    product = distributed.matmul(whole, x)
    drawn = ttnn.bernoulli(product, seed=1)
    return ttnn.to_torch(drawn, mesh_composer=ttnn.ConcatMeshToTensor(on.left, dim=1))


# Each way to look on: within its block, calls are noted by their qualified names, those inside of others left out.


@contextmanager
def interceptor(names: list[str]) -> Iterator[None]:
    depth = 0

    def note(op: EntryPoint, args: tuple, kwargs: dict, proceed: Callable) -> object:
        nonlocal depth
        if not depth:
            names.append(op.python_fully_qualified_name)
        depth += 1
        try:
            return proceed(*args, **kwargs)
        finally:
            depth -= 1

    with intercepting(note):
        yield


@contextmanager
def hooks(names: list[str]) -> Iterator[None]:
    open_calls: list[str] = []

    def before(op: EntryPoint, args: tuple, kwargs: dict) -> None:
        if not open_calls:
            names.append(op.python_fully_qualified_name)
        open_calls.append(op.name)

    def after(op: EntryPoint, args: tuple, kwargs: dict, output: object) -> None:
        assert open_calls.pop() == op.name

    with ttnn.register_pre_operation_hook(before), ttnn.register_post_operation_hook(after):
        yield


@contextmanager
def op_log(names: list[str]) -> Iterator[None]:
    depth = 0

    class Reader(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            nonlocal depth
            if record.msg.startswith("Started"):
                if not depth:
                    names.append(str(record.args[0]))
                depth += 1
            else:
                depth -= 1

    log, reader = logging.getLogger("softmesh.ops"), Reader()
    level = log.level
    log.addHandler(reader)
    log.setLevel(logging.INFO)
    with ttnn.manage_config("enable_logging", True):
        yield
    log.removeHandler(reader)
    log.setLevel(level)


@contextmanager
def comparison(names: list[str]) -> Iterator[None]:
    depth, plain = 0, comparison_mode._compared

    def compared(op: EntryPoint, args: tuple, kwargs: dict, proceed: Callable) -> object:
        nonlocal depth
        if not depth:
            names.append(op.python_fully_qualified_name)
        depth += 1
        try:
            return plain(op, args, kwargs, proceed)
        finally:
            depth -= 1

    with (
        mock.patch.object(comparison_mode, "_compared", compared),
        ttnn.manage_config("enable_comparison_mode", True),
    ):
        yield


@contextmanager
def graph(names: list[str]) -> Iterator[None]:
    ttnn.graph.begin_graph_capture()
    ttnn.graph.enable_python_io_recording()
    try:
        yield
    finally:
        ttnn.graph.disable_python_io_recording()
        ttnn.graph.end_graph_capture()
    seen = [record["name"] for record in ttnn.graph._python_io_data]
    names += list(dict.fromkeys(name for name in seen if name in CALLS))  # ops inside of others are recorded, too


class Stream:
    """The commands, each under the outermost call that it is part of."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def on_command(self, command: Command) -> None:
        outermost = command.within[0] if command.within else command.name
        prefix = "softmesh" if outermost.startswith("distributed.") else "ttnn"
        name = f"{prefix}.{outermost}"
        if not self._names or self._names[-1] != name:
            self._names.append(name)


@contextmanager
def observer(names: list[str]) -> Iterator[None]:
    with ttnn.observe(Stream(names)):
        yield


@contextmanager
def sanitizer(names: list[str]) -> Iterator[None]:
    """It is an observer like any other: what it is told, it is told in the same order."""
    with ttnn.observe(Stream(names)), ttnn.sanitize() as findings:
        yield
    assert findings == []


@pytest.mark.parametrize(
    "looking_on",
    [interceptor, hooks, op_log, comparison, graph, observer, sanitizer],
    ids=lambda way: way.__name__,
)
def test_eight_calls_are_seen_in_full_and_in_order(meshes: Meshes, looking_on: Callable):
    alone = program(meshes)
    for _ in range(2):  # planned, and compiled
        names: list[str] = []
        with looking_on(names):
            assert torch.equal(program(meshes), alone)
        assert names == CALLS


def test_the_tracer_has_those_that_led_to_the_result(meshes: Meshes):
    with ttnn.manage_config("enable_fast_runtime_mode", False), ttnn.tracer.trace():
        result = program(meshes)
    nodes = ttnn.tracer.get_graph(result).nodes(data=True)
    names = [data["operation"].to_string() for _, data in nodes]
    led_to_it = [name for name in CALLS if "_async" not in name]
    assert [name for name in names if name in CALLS] == led_to_it


def test_a_capture_records_what_devices_do_of_them(meshes: Meshes):
    """Transfers from and to the host cannot be part of a trace; the others are, whatever kind of call they were."""
    x = meshes.put(meshes.left)

    def work() -> ttnn.Tensor:
        whole = ttnn.all_gather(ttnn.relu(x), dim=1)
        return distributed.matmul(whole, x)

    work()
    trace = ttnn.begin_trace_capture(meshes.left, cq_id=0)
    made = work()
    ttnn.end_trace_capture(meshes.left, trace, cq_id=0)
    ttnn.execute_trace(meshes.left, trace, cq_id=0, blocking=True)
    before = ttnn.to_torch(made, mesh_composer=ttnn.ConcatMeshToTensor(meshes.left, dim=1))
    ttnn.multiply(x, 2.0, output_tensor=x)
    ttnn.execute_trace(meshes.left, trace, cq_id=0, blocking=True)
    after = ttnn.to_torch(made, mesh_composer=ttnn.ConcatMeshToTensor(meshes.left, dim=1))
    assert torch.equal(after, 4 * before)


def test_all_names_of_ops_are_callables_of_one_kind():
    for path in CALLS[:1] + CALLS[1:5] + CALLS[6:]:
        found: object = ttnn
        for part in path.split(".")[1:]:
            found = getattr(found, part)
        assert isinstance(found, EntryPoint), path
    assert isinstance(distributed.matmul, EntryPoint)
