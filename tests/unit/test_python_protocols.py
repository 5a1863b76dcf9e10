"""A Tensor in the hands of Python, numpy and torch; and every public object says what it is."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh import Partial, Replicate, Shard, collectives, drivers, kernels, metal, train
from softmesh.namespaces import LAZY
from softmesh.systems import named_systems
from softmesh.train.pipeline import stage_schedules


@pytest.fixture
def mesh():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        yield mesh
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def put(mesh, dims=(None, 1)):
    mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=dims)
    values = torch.arange(64 * 256.0).reshape(64, 256)
    return ttnn.from_torch(values, dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def test_a_deep_copy_has_the_values_the_placements_and_memory_of_its_own(mesh):
    x = put(mesh)
    y = copy.deepcopy(x)
    assert ttnn.placements(y) == ttnn.placements(x) == (Replicate(), Shard(1))
    assert y.buffer_address() != x.buffer_address()
    assert y.spec == x.spec
    for one, other in zip(ttnn.get_device_tensors(x), ttnn.get_device_tensors(y), strict=True):
        assert torch.equal(ttnn.to_torch(one), ttnn.to_torch(other))
    ttnn.deallocate(x)
    assert y.is_allocated()


def test_a_deep_copy_of_contributions_is_still_contributions(mesh):
    x = put(mesh)
    partial = ttnn.matmul(x, x, transpose_b=True)
    assert ttnn.placements(copy.deepcopy(partial)) == (Replicate(), Partial("sum"))


def test_what_is_one_tensor_twice_is_one_tensor_twice_in_the_copy(mesh):
    x = put(mesh)
    first, second = copy.deepcopy([x, x])
    assert first is second


def test_a_copy_shares_its_memory(mesh):
    x = put(mesh)
    assert copy.copy(x).buffer_address() == x.buffer_address()
    assert copy.copy(ttnn.get_device_tensors(x)[3]).device_coords() == [ttnn.MeshCoordinate(0, 3)]


def test_a_tensor_on_the_host_is_copied_too():
    x = ttnn.from_torch(torch.ones(2, 3))
    assert torch.equal(ttnn.to_torch(copy.deepcopy(x)), torch.ones(2, 3))


def test_pickling_is_refused_with_the_way_that_works(mesh):
    with pytest.raises(TypeError, match=r"cannot be pickled.*ttnn\.dump_tensor\(path, tensor\)"):
        pickle.dumps(put(mesh))


@pytest.mark.parametrize("convert", [np.asarray, np.array, lambda t: np.asarray(t, dtype=np.float32)])
def test_numpy_is_told_which_call_was_meant(mesh, convert):
    with pytest.raises(TypeError, match=r"ttnn\.to_torch\(tensor\)\.float\(\)\.numpy\(\)"):
        convert(put(mesh))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (torch.relu, r"torch's relu\(\) was handed a ttnn\.Tensor: ttnn\.relu\(\.\.\.\) takes it"),
        (torch.nn.functional.softmax, r"ttnn\.softmax"),
        (lambda t: torch.add(t, 1), r"ttnn\.add"),
        (lambda t: torch.nn.Linear(256, 8)(t), r"ttnn\.linear"),
        (torch.linalg.svd, r"TT-NN's ops, ttnn\.\*, take it, or make a torch tensor"),
    ],
)
def test_torch_is_told_which_call_was_meant(mesh, call, said):
    with pytest.raises(TypeError, match=said):
        call(put(mesh))


@given(st.floats(-4, 4, width=16))
def test_numbers_of_numpy_compute_with_tensors(value):
    x = ttnn.from_torch(torch.ones(2, 2), dtype=ttnn.float32)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        on_mesh = ttnn.to_device(ttnn.to_layout(x, ttnn.TILE_LAYOUT), mesh)
        assert torch.equal(ttnn.to_torch(np.float32(value) * on_mesh), torch.ones(2, 2) * value)


def test_every_public_class_says_what_its_objects_are():
    members = {name: getattr(ttnn, name) for name in (*vars(ttnn), *LAZY) if not name.startswith("_")}
    for package in ("collectives", "distributed", "drivers", "graph", "kernels", "metal", "tracer", "train"):
        found = vars(importlib.import_module(f"softmesh.{package}"))
        members |= {f"{package}.{name}": value for name, value in found.items() if not name.startswith("_")}
    silent = [
        name
        for name, value in members.items()
        if inspect.isclass(value)
        and value.__module__.startswith("softmesh")
        and value.__repr__ is object.__repr__
        and not (value.__subclasses__() or getattr(value, "_is_protocol", False))  # bases have no objects of their own
        and vars(value).get("__init__") is not None  # nor have mere collections of functions
    ]
    assert silent == []


def test_a_mesh_refuses_to_be_copied_or_pickled_with_the_way_that_works(mesh):
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"cannot be copied or pickled.*ttnn.open_mesh_device"):
            attempt(mesh)


def test_objects_of_a_machine_tell_what_they_are_in_a_line(mesh):
    tensor = ttnn.from_torch(torch.ones(32, 32), device=mesh)
    with ttnn.log_commands(show=False) as log:
        ttnn.relu(tensor)
    told = {
        "Machine('T3000', 8 wormhole_b0 chips, 20 links)": named_systems.load("T3000"),
        "ChipAssignment(2x4 on T3000, chips ": collectives.on_system("T3000", (2, 4)),
        "Schedule('all_gather', 4 devices, 2 steps, ": collectives.schedule_for("all_gather", (4,), True, 1),
        "Schedule('gpipe', 2 stages, 4 micro-batches, ": stage_schedules.gpipe(2, 4),
        "CommandLog(1 command: relu)": log,
        "HostBuffer(MeshShape([": tensor.cpu().host_buffer(),
    }
    for start, value in told.items():
        assert repr(value).startswith(start)
        assert len(repr(value)) < 120


def test_a_model_is_printed_as_a_tree_and_its_training_in_a_line(mesh):
    initial = train.Initial(seed=3)
    parts = [train.Linear(mesh, 32, 64, initial), train.LayerNorm(mesh, 64, initial)]
    model = train.Sequential(*parts)
    assert repr(model) == "\n".join(["Sequential(", *(f"  (parts.{i}): {part!r}" for i, part in enumerate(parts)), ")"])
    assert repr(parts[0]) == "Linear(weight [1, 1, 64, 32], bias [1, 1, 1, 64])"
    optimizer = train.AdamW(model, lr=0.01)
    assert repr(optimizer) == "AdamW(lr=0.01, 4 parameters, 0 steps done)"
    assert repr(train.Scheduler(optimizer, train.schedules.warmup(4))) == "Scheduler(lr=0.0025 of 0.01, 0 steps done)"
    told = repr(train.Trainer(model, optimizer, [], axes=0))
    assert told == "Trainer(Sequential, AdamW(lr=0.0025, 4 parameters, 0 steps done), 0 steps done)"
    assert repr(initial) == "Initial(seed=3, dtype=DataType.FLOAT32)"


def test_what_kernels_and_cards_are_made_of_tells_what_it_is():
    card = drivers.virtual_rack(2)(1)
    assert repr(card) == "VirtualCard(1, 'SM-0001': p150, 130 cores, open)"
    card.close()
    assert repr(card).endswith(", closed)")
    assert repr(drivers.virtual_rack(2)) == "Rack(0: SM-0000, 1: SM-0001)"
    buffers = metal.CircularBufferConfig(4096, {0: ttnn.bfloat16}).set_page_size(0, 2048)
    assert repr(buffers) == "CircularBufferConfig(4096 bytes; 0: BFLOAT16 in pages of 2048)"
    assert repr(metal.MeshWorkload()) == "MeshWorkload(empty)"
    assert repr(metal.DistributedHostBuffer(ttnn.MeshShape(2, 4))).endswith("0 of 8 shards here)")
    assert repr(kernels.reduce_tile).startswith("<reduce_tile[")
