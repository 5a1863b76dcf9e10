"""Which GPU a rank takes, and what is told when it is full: on a machine that need not have one."""

from __future__ import annotations

import warnings

import pytest
import torch

import softmesh as ttnn
from softmesh.errors import GpuFailure, GpuRemark, OutOfGpuMemory
from softmesh.runtime import torch_device
from softmesh.runtime.machine_errors import gpu_error_of
from softmesh.runtime.queues import queue_base
from softmesh.runtime.torch_device import chosen_torch_device
from softmesh.runtime.traces.trace import Trace


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("SOFTMESH_DEVICE", "cuda")
    for name in torch_device._LOCAL_RANKS:
        monkeypatch.delenv(name, raising=False)
    torch_device._tell_of_sharing.cache_clear()
    return monkeypatch


def test_a_process_alone_takes_the_first_card_or_the_one_it_names(two_cards: pytest.MonkeyPatch):
    assert chosen_torch_device() == torch.device("cuda", 0)
    two_cards.setenv("SOFTMESH_DEVICE", "cuda:1")
    assert chosen_torch_device() == torch.device("cuda", 1)


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"])
def test_ranks_of_a_host_take_cards_in_turn(two_cards: pytest.MonkeyPatch, variable: str):
    for rank, card in ((0, 0), (1, 1), (2, 0)):
        two_cards.setenv(variable, str(rank))
        assert chosen_torch_device() == torch.device("cuda", card)


def test_ranks_that_share_a_card_are_told_once(two_cards: pytest.MonkeyPatch):
    two_cards.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    two_cards.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4")
    with pytest.warns(GpuRemark, match="4 ranks share the 2 GPUs of this host"):
        chosen_torch_device()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen_torch_device()


def test_a_full_card_is_told_apart_from_a_full_chip():
    refused = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity")
    assert gpu_error_of("add", RuntimeError("The size of tensor a must match"), None) is None
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        found = gpu_error_of("add", refused, mesh)
    assert isinstance(found, OutOfGpuMemory)
    assert "add: the GPU's memory has run out: 2.00 GiB more are needed" in str(found)
    assert "DRAM left" in str(found)
    assert "Deallocate what is no longer used" in str(found)


def test_an_op_that_the_card_has_no_room_for_says_so(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 MiB.")

    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        tensor = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
        with monkeypatch.context() as scarce:
            scarce.setattr(torch, "softmax", refuse)
            with pytest.raises(OutOfGpuMemory, match=r"softmax: .*64\.00 MiB more are needed"):
                ttnn.softmax(tensor, dim=-1)
        assert ttnn.to_torch(ttnn.get_device_tensors(ttnn.softmax(tensor, dim=-1))[0]).shape == (32, 32)


LOST = "CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported at some other call"


def test_a_card_that_is_lost_says_so_wherever_it_is_noticed(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> torch.Tensor:
        raise RuntimeError(LOST)

    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        tensor = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
        said = r"softmax: the GPU has failed: unspecified launch failure\. .*start the program anew"
        with monkeypatch.context() as failing:
            failing.setattr(torch, "softmax", fail)
            for _ in range(2):
                with pytest.raises(GpuFailure, match=said):
                    ttnn.softmax(tensor, dim=-1)
        ttnn.softmax(tensor, dim=-1)
        with monkeypatch.context() as failing:
            failing.setattr(torch, "softmax", fail)
            with pytest.raises(GpuFailure, match=said):
                ttnn.softmax(tensor, dim=-1)
        queue = mesh.mesh_command_queue()
        with monkeypatch.context() as failing:
            failing.setattr(queue, "_is_on_gpu", True)
            failing.setattr(queue_base, "stream_of", fail)
            with pytest.raises(GpuFailure, match="synchronize_device: the GPU has failed"):
                ttnn.synchronize_device(mesh)
        ttnn.synchronize_device(mesh)


def test_what_a_graph_cannot_hold_is_no_failure_of_the_card():
    refused = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    assert gpu_error_of("add", refused, None) is None


@pytest.mark.parametrize("call", ["from_torch", "to_device", "Tensor.to", "execute_trace"])
def test_a_full_card_is_told_wherever_memory_is_asked_for(monkeypatch: pytest.MonkeyPatch, call: str):
    def refuse(*_: object, **__: object) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 MiB.")

    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        values = torch.ones(32, 32)
        host = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT)
        tensor = ttnn.to_device(host, mesh)
        ttnn.sum(tensor)
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        total = ttnn.sum(tensor)
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        calls = {
            "from_torch": lambda: ttnn.from_torch(values, device=mesh),
            "to_device": lambda: ttnn.to_device(host, mesh),
            "Tensor.to": lambda: host.to(mesh),
            "execute_trace": lambda: ttnn.execute_trace(mesh, trace, cq_id=0),
        }
        with monkeypatch.context() as scarce:
            scarce.setattr(torch.Tensor, "to", refuse)
            scarce.setattr(Trace, "replay", refuse)
            told = "to_device" if call == "Tensor.to" else call  # the method is that function
            with pytest.raises(OutOfGpuMemory, match=rf"^{told}: .*64\.00 MiB more are needed.* DRAM left"):
                calls[call]()
        calls[call]()
        assert total.is_allocated()
