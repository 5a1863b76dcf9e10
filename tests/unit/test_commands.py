"""The command stream: what observers see of everything that runs."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from rich.console import Console

import softmesh as ttnn
from softmesh import Command, MeshCoordinate, MeshDevice, MeshShape
from softmesh.dispatch import call_cache
from softmesh.report.command_log import CommandLog
from softmesh.runtime import commands as command_stream
from softmesh.tensor.device_allocation import deallocate


class Recorder:
    def __init__(self) -> None:
        self.seen: list[Command] = []

    def on_command(self, command: Command) -> None:
        self.seen.append(command)

    def names(self) -> list[str]:
        return [command.name for command in self.seen]


@pytest.fixture(scope="module")
def mesh() -> Iterator[MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), physical_device_ids=range(130, 138)) as mesh_device:
        yield mesh_device


@pytest.fixture
def x(mesh: MeshDevice) -> ttnn.Tensor:
    return ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)


def line_of_caller() -> int:
    return inspect.currentframe().f_back.f_lineno


def test_a_command_tells_what_ran_on_what_and_where(mesh: MeshDevice, x: ttnn.Tensor):
    with ttnn.observe(Recorder()) as recorder:
        y = ttnn.add(x, x)
    (command,) = recorder.seen
    assert command.name == "add"
    assert [id(t) for t in command.inputs] == [id(x), id(x)]
    assert [id(t) for t in command.outputs] == [id(y)]
    assert command.queue == 0
    assert command.coords == tuple(MeshShape(2, 4).coordinates())
    assert repr(command.mesh_range) == (
        "MeshCoordinateRangeSet([MeshCoordinateRange(start=MeshCoordinate([0, 0]), end=MeshCoordinate([1, 3]))])"
    )


def test_a_call_like_an_earlier_one_is_told_like_it(mesh: MeshDevice, x: ttnn.Tensor):
    y = ttnn.zeros([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
    lines = []
    with ttnn.observe(Recorder()) as recorder:
        for _ in range(3):
            lines.append(line_of_caller() + 1)
            ttnn.subtract(input_tensor_b=x, input_tensor_a=y, fast_and_approximate_mode=True)
    for command, line in zip(recorder.seen, lines, strict=True):
        assert [id(t) for t in command.inputs] == [id(y), id(x)]
        assert command.arguments == recorder.seen[0].arguments
        assert command.arguments["fast_and_approximate_mode"] is True
        assert (command.site.file, command.site.line) == (__file__, line)
        assert command.cost == recorder.seen[0].cost
        assert (command.coords, command.queue, command.device) == (recorder.seen[0].coords, 0, mesh)


def test_a_command_names_the_users_own_line(mesh: MeshDevice, x: ttnn.Tensor):
    calls: list[Callable[[], Any]] = [
        lambda: ttnn.relu(x),
        lambda: x + 1,
        lambda: x[0:1],
        lambda: x.reshape(1, 1, 32, 32),
        lambda: ttnn.from_torch(torch.ones(2), device=mesh),
        lambda: ttnn.get_device_tensors(x)[0].to_torch(),
        lambda: x.cpu(),
    ]
    for call in calls:
        with ttnn.observe(Recorder()) as recorder:
            call()
        site = recorder.seen[0].site
        assert site.file == __file__
        assert site.function == "<lambda>"
        assert site.line == call.__code__.co_firstlineno
        assert str(site) == f"test_commands.py:{site.line}"


def test_the_line_is_the_call_and_not_the_block(x: ttnn.Tensor):
    with ttnn.observe(Recorder()) as recorder:
        ttnn.exp(x)
        expected = line_of_caller() - 1
    assert recorder.seen[0].site.line == expected
    assert recorder.seen[0].site.function == "test_the_line_is_the_call_and_not_the_block"


def test_arguments_that_only_tune_hardware_are_shown(x: ttnn.Tensor):
    program = ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(8, 8),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=1,
        fuse_batch=True,
        fused_activation=None,
        mcast_in0=True,
    )
    kernel = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi4)
    grid = ttnn.CoreGrid(x=8, y=4)
    with ttnn.observe(Recorder()) as recorder:
        ttnn.linear(x, x, program_config=program, compute_kernel_config=kernel, activation="relu")
        ttnn.matmul(x, x, core_grid=grid, dtype=ttnn.float32, memory_config=ttnn.L1_MEMORY_CONFIG)
    linear, matmul = recorder.seen
    assert linear.arguments["program_config"] is program
    assert linear.arguments["compute_kernel_config"] is kernel
    assert linear.arguments["activation"] == "relu"
    assert matmul.arguments["core_grid"] is grid
    assert matmul.arguments["dtype"] is ttnn.float32
    assert matmul.arguments["memory_config"] == ttnn.L1_MEMORY_CONFIG


def test_numbers_in_place_of_tensors_are_arguments(x: ttnn.Tensor):
    with ttnn.observe(Recorder()) as recorder:
        ttnn.add(x, 2.5)
        ttnn.softmax(x, dim=-1)
    assert recorder.seen[0].arguments["input_tensor_b"] == 2.5
    assert recorder.seen[1].arguments["dim"] == -1


def test_the_queue_is_the_one_asked_for():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2), num_command_queues=2)
    x = ttnn.ones((2, 2), device=mesh)
    with mesh, ttnn.observe(Recorder()) as recorder:
        ttnn.add(x, x, queue_id=1)
        ttnn.from_torch(torch.ones(2), device=mesh, cq_id=1)
        host = ttnn.from_device(x, queue_id=1)
        ttnn.to_device(host, mesh, queue_id=1)
        ttnn.copy_host_to_device_tensor(host, x, cq_id=1)
        ttnn.copy_device_to_host_tensor(x, host, cq_id=1)
        ttnn.relu(x)
    assert [(c.name, c.queue) for c in recorder.seen] == [
        ("add", 1),
        ("from_torch", 1),
        ("from_device", 1),
        ("to_device", 1),
        ("copy_host_to_device_tensor", 1),
        ("copy_device_to_host_tensor", 1),
        ("relu", 0),
    ]


def test_the_mesh_range_covers_only_where_it_ran(mesh: MeshDevice):
    five = ttnn.from_torch(torch.ones(5, 32), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    shard = ttnn.get_device_tensors(five)[4]
    with ttnn.observe(Recorder()) as recorder:
        ttnn.relu(five)
        ttnn.relu(shard)
    assert len(recorder.seen[0].coords) == 5
    assert recorder.seen[1].coords == (MeshCoordinate(1, 0),)
    start = "MeshCoordinateRange(start=MeshCoordinate([1, 0]), end=MeshCoordinate([1, 0]))"
    assert repr(recorder.seen[1].mesh_range) == f"MeshCoordinateRangeSet([{start}])"


def test_transfers_and_allocations_are_commands_too(mesh: MeshDevice):
    spec = ttnn.TensorSpec([2, 2], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)
    with ttnn.observe(Recorder()) as recorder:
        x = ttnn.from_torch(torch.ones(2, 2), device=mesh)
        ttnn.to_torch(ttnn.get_device_tensors(x)[0])
        ttnn.allocate_tensor_on_device(spec, mesh)
        ttnn.allocate_tensor_on_host(spec, mesh)
        deallocate(x)
    assert recorder.names() == [
        "from_torch",
        "to_torch",
        "allocate_tensor_on_device",
        "allocate_tensor_on_host",
        "deallocate",
    ]
    assert [id(t) for t in recorder.seen[0].outputs] == [id(x)]
    assert recorder.seen[0].inputs == ()


def test_what_makes_a_tensor_from_nothing_is_a_command_of_its_own_name(mesh: MeshDevice):
    with ttnn.observe(Recorder()) as recorder:
        made = [
            ttnn.empty([32, 32], device=mesh),
            ttnn.zeros([32, 32], device=mesh),
            ttnn.ones([32, 32], device=mesh),
            ttnn.full([32, 32], 2.0, device=mesh),
            ttnn.arange(32, device=mesh),
            ttnn.rand([32, 32], mesh),
        ]
    assert recorder.names() == ["empty", "zeros", "ones", "full", "arange", "rand"]
    assert [id(command.outputs[0]) for command in recorder.seen] == [id(tensor) for tensor in made]


def test_the_cost_is_that_of_one_device(mesh: MeshDevice):
    x = ttnn.ones([32, 64], layout=ttnn.TILE_LAYOUT, device=mesh)
    w = ttnn.ones([64, 96], layout=ttnn.TILE_LAYOUT, device=mesh)
    with ttnn.observe(Recorder()) as recorder:
        ttnn.matmul(x, w)
    assert recorder.seen[0].cost.flops == 2 * 32 * 64 * 96
    assert recorder.seen[0].cost.bytes == 2 * (32 * 64 + 64 * 96 + 32 * 96)


def test_an_op_that_fails_is_not_a_command(mesh: MeshDevice, x: ttnn.Tensor):
    with ttnn.observe(Recorder()) as recorder:
        with pytest.raises(RuntimeError):
            ttnn.add(x, ttnn.ones([7, 7], layout=ttnn.TILE_LAYOUT, device=mesh))
        ttnn.relu(x)
    assert recorder.names() == ["ones", "relu"]


# -- attaching -------------------------------------------------------------------------------------


def test_observers_nest_and_leave(x: ttnn.Tensor):
    with ttnn.observe(Recorder()) as outer:
        ttnn.relu(x)
        with ttnn.observe(Recorder()) as inner:
            ttnn.exp(x)
        ttnn.neg(x)
    ttnn.abs(x)
    assert outer.names() == ["relu", "exp", "neg"]
    assert inner.names() == ["exp"]


def test_an_observer_leaves_when_its_block_ends_in_an_error(x: ttnn.Tensor):
    recorder = Recorder()
    with pytest.raises(KeyError), ttnn.observe(recorder):
        raise KeyError
    ttnn.relu(x)
    assert recorder.seen == []
    assert not command_stream.observed()


def test_one_observer_may_be_attached_twice(x: ttnn.Tensor):
    recorder = Recorder()
    with ttnn.observe(recorder):
        with ttnn.observe(recorder):
            ttnn.relu(x)
        ttnn.exp(x)
    assert recorder.names() == ["relu", "relu", "exp"]


def test_without_an_observer_no_command_is_built(mesh: MeshDevice, x: ttnn.Tensor, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a Command was built")

    monkeypatch.setattr(command_stream, "Command", refuse)
    monkeypatch.setattr(call_cache, "Command", refuse)
    monkeypatch.setattr(command_stream, "raw_call_site", refuse)
    y = ttnn.relu(x) + x
    host = ttnn.from_device(ttnn.from_torch(torch.ones(2), device=mesh))
    ttnn.to_device(host, mesh)
    ttnn.to_torch(ttnn.get_device_tensors(y)[0])
    deallocate(y)
    with pytest.raises(AssertionError, match="a Command was built"), ttnn.observe(Recorder()):
        ttnn.relu(x)


# -- the log ---------------------------------------------------------------------------------------


def wide_console() -> Console:
    return Console(file=io.StringIO(), width=220, color_system=None)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_log_is_a_table_of_what_ran(mesh: MeshDevice):
    console = wide_console()
    values = torch.ones(32, 256)
    mapper = ttnn.ShardTensorToMesh(mesh, 1)
    with ttnn.log_commands(console) as log:
        x = ttnn.from_torch(values, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
        line = line_of_caller() + 1
        ttnn.relu(x)
    text = text_of(console)
    assert "2 commands" in text
    header = next(row for row in text.splitlines() if "command" in row and "inputs" in row)
    for column in CommandLog.columns:
        assert column in header
    row = next(row for row in text.splitlines() if " relu " in row)
    assert row.split() == [
        "1",
        "relu",
        "bf16",
        "32x32",
        "bf16",
        "32x32",
        "0",
        "0,0..1,3",
        f"test_commands.py:{line}",
    ]
    assert text.count("Shard(1), Shard(1)") == 2
    assert len(log) == 2


def test_the_log_is_printed_when_the_block_ends_in_an_error(mesh: MeshDevice, x: ttnn.Tensor):
    console = wide_console()
    other = ttnn.ones([7, 7], layout=ttnn.TILE_LAYOUT, device=mesh)
    with pytest.raises(RuntimeError, match="broadcast"), ttnn.log_commands(console):
        ttnn.add(ttnn.exp(x), other)
    assert " exp " in text_of(console)


def test_the_log_prints_to_the_terminal_unless_told_otherwise(x: ttnn.Tensor, capsys: pytest.CaptureFixture[str]):
    with ttnn.log_commands(show=False) as log:
        ttnn.exp(x)
    assert capsys.readouterr().out == ""
    assert [row[1] for row in log.rows] == ["exp"]
    with ttnn.log_commands():
        ttnn.exp(x)
    assert "exp" in capsys.readouterr().out


def test_the_log_keeps_no_tensor_alive(mesh: MeshDevice):
    import gc
    import weakref

    with ttnn.log_commands(show=False) as log:
        x = ttnn.ones([2, 2], device=mesh)
        gone = weakref.ref(x)
        del x
        gc.collect()
    assert gone() is None
    assert len(log) == 1


def test_a_log_can_be_drawn_again(x: ttnn.Tensor):
    with ttnn.log_commands(show=False) as log:
        ttnn.exp(x)
    console = wide_console()
    console.print(log.table())
    assert " exp " in text_of(console)
