"""Every call of the public API is seen by whoever looks on: the same calls, in the same order."""

from __future__ import annotations

import copy
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


def by_function(x: ttnn.Tensor) -> list[object]:
    mesh = x.device()
    host = ttnn.from_device(x)
    again = ttnn.reshape(ttnn.to_device(host, mesh), [1, 32, 64])
    made = [ttnn.to_torch(again), ttnn.to_torch(host).tolist(), ttnn.to_torch(ttnn.from_torch(torch.ones(1))).item()]
    ttnn.deallocate(again, True)
    return [*made, again.is_allocated()]


def by_method(x: ttnn.Tensor) -> list[object]:
    mesh = x.device()
    host = x.cpu()
    again = host.to(mesh).reshape(1, 32, 64)
    made = [again.to_torch(), host.to_list(), ttnn.Tensor(torch.ones(1)).item()]
    again.deallocate(True)
    return [*made, again.is_allocated()]


SEEN = "from_device to_device reshape to_torch to_torch from_torch to_torch deallocate"


@pytest.fixture
def one_device(device: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.from_torch(torch.rand(32, 64), ttnn.float32, layout=ttnn.TILE_LAYOUT, device=device)


@pytest.mark.parametrize("looking_on", [interceptor, hooks, op_log, comparison], ids=lambda way: way.__name__)
def test_a_method_is_seen_as_the_function_of_its_name(one_device: ttnn.Tensor, looking_on: Callable):
    for way in (by_function, by_method, by_method):
        names: list[str] = []
        with looking_on(names):
            values, listed, one, is_left = way(one_device)
        assert names == [f"ttnn.{name}" for name in SEEN.split()]
        assert torch.equal(values, ttnn.to_torch(one_device).reshape(1, 32, 64))
        assert (listed, one, is_left) == (values[0].tolist(), 1.0, False)


def test_observers_are_told_the_same_of_both_ways(one_device: ttnn.Tensor):
    streams: list[list[str]] = []
    for way in (by_function, by_method):
        streams.append([])
        with ttnn.observe(Stream(streams[-1])):
            way(one_device)
    assert streams[0] == streams[1]
    assert {"ttnn.from_device", "ttnn.to_device", "ttnn.to_torch", "ttnn.deallocate"} <= set(streams[0])


# Of methods of Tensor: those that neither make, move, read nor free values, or are TT-NN's own answers to Python.
QUERIES = """
    buffer_address buffer_aligned_page_size buffer_num_pages buffer_page_size buffer_unique_id check_allocated
    check_readable check_writable device device_coords devices element_size experimental_per_core_buffer_address
    get_dtype get_layout get_tile handed_on is_allocated is_per_core_allocated is_range_lockstep_allocated is_shared
    is_sharded logical_volume memory_config mesh_coordinates own_coordinates storage_type tensor_topology
    update_tensor_topology view_distribution volume
"""
INSIDE = "make overwrite pieces same_memory view_data"  # what entry points themselves are made of
GRADIENTS = "backward detach requires_grad_"  # of autograd, which TT-NN does not have
MOVING: dict[str, tuple[str, Callable[[ttnn.Tensor, ttnn.Tensor], object]]] = {
    # what is seen of them, on a host tensor in rows or one that is sharded on a device
    "cpu": ("from_device", lambda host, there: there.cpu()),
    "deallocate": ("deallocate", lambda host, there: ttnn.relu(there).deallocate()),
    "extract_shard": ("Tensor.extract_shard", lambda host, there: there.extract_shard(0)),
    "host_buffer": ("get_device_tensors", lambda host, there: host.host_buffer()),
    "item": ("to_torch", lambda host, there: host[:1, :1].item()),
    "pad": ("Tensor.pad", lambda host, there: host.pad([64, 64], [0, 0], 1.0)),
    "pad_to_tile": ("Tensor.pad_to_tile", lambda host, there: host.pad_to_tile(0.0)),
    "reshape": ("reshape", lambda host, there: host.reshape(64, 32)),
    "to": ("Tensor.to", lambda host, there: host.to(ttnn.TILE_LAYOUT)),
    "to_list": ("to_torch", lambda host, there: there.to_list()),
    "to_numpy": ("to_torch", lambda host, there: there.to_numpy()),
    "to_torch": ("to_torch", lambda host, there: there.to_torch()),
    "to_torch_with_padded_shape": ("to_torch", lambda host, there: there.to_torch_with_padded_shape()),
    "unpad": ("Tensor.unpad", lambda host, there: host.unpad([0, 0], [8, 8])),
    "unpad_from_tile": ("Tensor.unpad_from_tile", lambda host, there: host.unpad_from_tile([32, 64])),
    "__deepcopy__": ("Tensor.__deepcopy__", lambda host, there: copy.deepcopy(there)),
    "__init__": ("from_torch", lambda host, there: ttnn.Tensor([1.0, 2.0], [2], ttnn.float32)),
    "__getitem__": ("slice", lambda host, there: host[:8]),
}


@pytest.mark.parametrize(("seen", "call"), MOVING.values(), ids=list(MOVING))
def test_every_method_that_moves_values_passes_through_the_door(one_device: ttnn.Tensor, seen: str, call: Callable):
    on_one_core = ttnn.create_sharded_memory_config([32, 64], ttnn.CoreGrid(x=1, y=1), ttnn.ShardStrategy.HEIGHT)
    sharded = ttnn.to_memory_config(one_device, on_one_core)
    host = ttnn.from_torch(torch.ones(32, 64), ttnn.float32)
    names: list[str] = []
    with interceptor(names):
        call(host, sharded)
    assert names[-1] == f"ttnn.{seen}"


def test_every_method_of_tensors_is_known_to_move_values_or_not():
    known = {*QUERIES.split(), *INSIDE.split(), *GRADIENTS.split(), *MOVING}
    methods = {name for name in dir(ttnn.Tensor) if not name.startswith("_") and callable(getattr(ttnn.Tensor, name))}
    assert methods - known == set()


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
