"""What a program reads on the host is an output of its graph, whatever it reads it with."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh import train
from softmesh.errors import NotModelled
from softmesh.planner.capture import NothingToPlan, captured
from softmesh.systems.chip import N300

Read = Callable[[ttnn.Tensor, Path], Any]


def put(values: torch.Tensor, device: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)


def into_host_tensor(tensor: ttnn.Tensor) -> None:
    ttnn.copy_device_to_host_tensor(tensor, ttnn.allocate_tensor_on_host(tensor.spec, tensor.device()))


def from_queue(tensor: ttnn.Tensor) -> None:
    host = ttnn.allocate_tensor_on_host(tensor.spec, tensor.device())
    tensor.device().mesh_command_queue(0).enqueue_read_tensor(tensor, host)


def in_shards(tensor: ttnn.Tensor) -> ttnn.Tensor:
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 1))})
    spec = ttnn.ShardSpec(grid, (32, 64), ttnn.ShardOrientation.ROW_MAJOR)
    config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, spec)
    return ttnn.to_memory_config(tensor, config)


READS: dict[str, Read] = {
    "to_torch": lambda t, _: ttnn.to_torch(t),
    "a method": lambda t, _: t.to_torch(),
    "a composer": lambda t, _: ttnn.to_torch(t, mesh_composer=ttnn.ConcatMeshToTensor(t.device(), dim=0)),
    "get_device_tensors": lambda t, _: [ttnn.to_torch(one) for one in ttnn.get_device_tensors(t)],
    "shards put together": lambda t, _: ttnn.to_torch(
        ttnn.combine_device_tensors(tensors=ttnn.get_device_tensors(t)),
        mesh_composer=ttnn.ConcatMeshToTensor(t.device(), dim=0),
    ),
    "cpu": lambda t, _: t.cpu(),
    "from_device": lambda t, _: ttnn.to_torch(ttnn.from_device(t)),
    "without waiting": lambda t, _: t.cpu(blocking=False),
    "a host tensor": lambda t, _: into_host_tensor(t),
    "a queue": lambda t, _: from_queue(t),
    "compose": lambda t, _: ttnn.compose(t),
    "aggregate_tensor": lambda t, _: ttnn.aggregate_tensor(t, ttnn.concat_mesh_to_tensor_composer(t.device(), 0)),
    "numpy": lambda t, _: t.to_numpy(),
    "a list": lambda t, _: t.to_list(),
    "repr": lambda t, _: repr(t),
    "an f-string": lambda t, _: f"{t}",
    "a notebook": lambda t, _: t._repr_html_(),
    "a deep copy": lambda t, _: ttnn.to_torch(copy.deepcopy(t)),
    "a file": lambda t, folder: ttnn.dump_tensor(folder / "made.tensorbin", t),
    "a loss": lambda t, _: train.loss_value(t),
    "twice": lambda t, _: (repr(t), ttnn.to_torch(t)),
    "back on the device": lambda t, _: ttnn.to_torch(ttnn.to_device(t.cpu(), t.device())),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_whatever_reads_a_result_makes_it_an_output(read: Read, tmp_path: Path) -> None:
    def program(device: ttnn.MeshDevice) -> None:
        unread = ttnn.matmul(put(torch.ones(64, 64), device), put(torch.ones(64, 64), device))
        read(ttnn.gelu(unread), tmp_path)

    graph = captured(program, chip=N300)
    assert [graph.values[number].name for number in graph.outputs] == ["gelu 1"]


def test_a_single_number_and_a_shard_of_a_core_are_reads() -> None:
    def program(device: ttnn.MeshDevice) -> None:
        made = ttnn.relu(put(torch.ones(64, 64), device))
        ttnn.sum(made).item()
        in_shards(made).extract_shard(ttnn.CoreCoord(0, 0))

    graph = captured(program, chip=N300)
    assert len(graph.outputs) == 2


ASKED: dict[str, Callable[[ttnn.Tensor], Any]] = {
    "its shape": lambda t: (t.shape, t.dtype, t.memory_config(), t.is_allocated(), len(t.shape)),
    "its placements": lambda t: (ttnn.placements(t), t.tensor_topology()),
    "its pieces, which nobody reads": ttnn.get_device_tensors,
    "to be freed": ttnn.deallocate,
    "zeros like it": ttnn.zeros_like,
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_looks_at_no_value_makes_no_output(asked: Callable[[ttnn.Tensor], Any]) -> None:
    def program(device: ttnn.MeshDevice) -> ttnn.Tensor:
        x = put(torch.ones(64, 64), device)
        asked(ttnn.gelu(x))
        return ttnn.relu(x)

    graph = captured(program, chip=N300)
    assert [graph.values[number].name.split()[0] for number in graph.outputs] == ["relu"]


def test_weights_that_are_read_before_any_op_are_no_outputs() -> None:
    def program(device: ttnn.MeshDevice) -> None:
        x = put(torch.ones(64, 64), device)
        repr(x)
        ttnn.to_torch(ttnn.relu(x))
        ttnn.to_torch(x)

    graph = captured(program, chip=N300)
    assert [graph.values[number].name for number in graph.outputs] == ["relu 0"]


def test_a_function_that_hands_on_nothing_is_refused() -> None:
    def program(device: ttnn.MeshDevice) -> None:
        ttnn.get_device_tensors(ttnn.relu(put(torch.ones(64, 64), device)))

    with pytest.raises(NothingToPlan, match=r"returns no tensor, and reads nothing of what its ops compute"):
        captured(program, chip=N300)


def test_where_nothing_is_returned_what_is_changed_in_place_is_the_result() -> None:
    def program(device: ttnn.MeshDevice) -> None:
        cache = put(torch.zeros(1, 2, 64, 32), device)
        for _ in range(2):
            ttnn.fill_cache(cache, put(torch.zeros(1, 2, 32, 32), device), 0)

    graph = captured(program, chip=N300)
    assert graph.outputs == graph.nodes[-1].results


def traced(device: ttnn.MeshDevice, is_fed: bool, is_changing: bool) -> torch.Tensor:
    x, total = put(torch.ones(64, 64), device), put(torch.zeros(64, 64), device)
    ttnn.add_(total, ttnn.relu(x))
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    made = ttnn.relu(x)
    if is_changing:
        ttnn.add_(total, made)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    if is_fed:
        host = ttnn.from_torch(torch.zeros(64, 64), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
        ttnn.copy_host_to_device_tensor(host, x)
    ttnn.execute_trace(device, trace, cq_id=0)
    return ttnn.to_torch(made)


@pytest.mark.parametrize(("is_fed", "is_changing"), [(True, False), (False, True)])
def test_a_replay_that_makes_other_values_than_its_capture_is_refused(is_fed: bool, is_changing: bool) -> None:
    with pytest.raises(NotModelled, match=r"execute_trace at test_host_reads.py:\d+ replays ops on values that"):
        captured(traced, {"is_fed": is_fed, "is_changing": is_changing}, chip=N300)


def test_a_replay_of_the_same_values_is_what_was_captured() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = captured(traced, {"is_fed": False, "is_changing": False}, chip=N300)
    assert [graph.values[number].name for number in graph.outputs] == ["relu 2"]


def test_a_kernel_between_ops_is_refused() -> None:
    """What it writes would be a weight of the plan, and what it reads would be lost."""

    def program() -> torch.Tensor:
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
            made = ttnn.relu(put(torch.ones(32, 32), mesh))
            written = ttnn.zeros_like(made)
            nothing = ttnn.ProgramDescriptor(kernels=[], semaphores=[], cbs=[])
            return ttnn.to_torch(ttnn.gelu(ttnn.generic_op([made, written], nothing)))

    with pytest.raises(NotModelled, match=r"generic_op at test_host_reads.py:\d+ writes to the memory of a device"):
        captured(program, chip=N300)
