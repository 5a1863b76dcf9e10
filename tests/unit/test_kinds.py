"""The kinds of ops and commands, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh.cost.pricing import price_of
from softmesh.dispatch.operation import OPERATIONS, factors_of, kind_of
from softmesh.distributed.redistribution_ops import gather_uneven
from softmesh.graph.native_calls import native_name
from softmesh.kinds import Kind
from softmesh.systems.chip import N300


class Recorder:
    def __init__(self) -> None:
        self.commands: list[ttnn.Command] = []

    def on_command(self, command: ttnn.Command) -> None:
        self.commands.append(command)

    def kinds(self) -> dict[str, Kind]:
        return {command.name: command.kind for command in self.commands}


@pytest.fixture
def mesh(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4), trace_region_size=1 << 20) as opened:
        yield opened


def split(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    mapper = ttnn.ShardTensorToMesh(mesh, dim=3)
    return ttnn.from_torch(torch.rand(1, 1, 32, 128), layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def test_a_kind_is_of_one_group_at_most():
    for kind in Kind:
        groups = Counter([kind.is_exchange, kind.is_movement, kind.is_host_transfer, kind.is_note])
        assert groups[True] <= 1, kind


def test_ops_and_collectives_have_kinds_for_devices_and_none_for_the_host():
    of_the_host = {kind for kind in Kind if kind.is_note or kind.is_host_transfer}
    assert not of_the_host & {op.definition.kind for op in OPERATIONS.values()}
    assert all(op.definition.reads_other_devices for op in OPERATIONS.values() if op.definition.kind.is_exchange)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gelu", Kind.ELEMENTWISE),
        ("eq_", Kind.COMPARISON),
        ("mesh_partition", Kind.PARTITION),
        ("experimental.all_gather_async", Kind.ALL_GATHER),
        ("conv2d", Kind.CONVOLUTION),
        ("moreh_linear", Kind.PRODUCT),
        ("experimental.topk_large_indices", Kind.SELECTION),
        ("no such op", None),
    ],
)
def test_an_op_has_the_kind_that_its_definition_states(name: str, kind: Kind | None):
    assert kind_of(name) is kind


def test_commands_of_all_sorts_have_kinds(mesh: ttnn.MeshDevice):
    with ttnn.observe(Recorder()) as recorder:
        x = split(mesh)
        ttnn.gelu(x)
        number = ttnn.begin_trace_capture(mesh)
        y = ttnn.gelu(x)
        ttnn.end_trace_capture(mesh, number)
        ttnn.execute_trace(mesh, number)
        ttnn.release_trace(mesh, number)
        event = ttnn.record_event(mesh, 0)
        ttnn.wait_for_event(0, event)
        ttnn.synchronize_device(mesh)
        gathered = ttnn.all_gather(y, 3)
        ttnn.to_torch(gathered, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=3))
        ttnn.zeros((32, 32), device=mesh)
        ttnn.deallocate(gathered)
    kinds = recorder.kinds()
    expected = {
        "from_torch": Kind.HOST_WRITE,
        "gelu": Kind.ELEMENTWISE,
        "begin_trace_capture": Kind.CAPTURE_BEGIN,
        "end_trace_capture": Kind.CAPTURE_END,
        "execute_trace": Kind.REPLAY,
        "release_trace": Kind.RELEASE_TRACE,
        "enqueue_record_event_to_host": Kind.RECORD_EVENT,
        "enqueue_wait_for_event": Kind.WAIT_FOR_EVENT,
        "finish": Kind.FINISH,
        "all_gather": Kind.ALL_GATHER,
        "to_torch": Kind.HOST_READ,
        "zeros": Kind.HOST_FILL,
        "deallocate": Kind.DEALLOCATION,
    }
    assert {name: kinds.get(name) for name in expected} == expected


def test_a_gather_of_softmeshs_own_costs_what_a_gather_costs(mesh: ttnn.MeshDevice):
    x = split(mesh)
    with ttnn.observe(Recorder()) as recorder:
        ttnn.all_gather(x, 3, cluster_axis=1)
        gather_uneven(x, 3, cluster_axis=1)
    known, own = (price_of(command, N300) for command in recorder.commands)
    assert own.seconds == known.seconds > 0
    assert own.link_bytes == known.link_bytes > 0


def test_factors_are_those_whose_product_the_op_adds():
    assert factors_of("linear") == (0, 1)
    assert factors_of("addmm") == (1, 2)
    assert factors_of("sparse_matmul") == ()
    products = {op.name for op in OPERATIONS.values() if op.definition.factors}
    assert {kind_of(name) for name in products} == {Kind.PRODUCT}


@pytest.mark.parametrize("name", [name for name, op in OPERATIONS.items() if op.definition.same_as])
def test_another_form_of_an_op_is_of_its_kind(name: str):
    assert kind_of(OPERATIONS[name].definition.same_as) is kind_of(name)


@pytest.mark.parametrize("name", [name for name, op in OPERATIONS.items() if op.definition.mirrored])
def test_mirrored_ops_compute_the_same_with_their_operands_exchanged(mesh: ttnn.MeshDevice, name: str):
    op = OPERATIONS[name]
    a, b = split(mesh), split(mesh)
    composer = ttnn.ConcatMeshToTensor(mesh, dim=3)
    one, other = op(a, b), OPERATIONS[op.definition.mirrored](b, a)
    assert torch.allclose(*(ttnn.to_torch(made, mesh_composer=composer).float() for made in (one, other)), rtol=0.05)


def test_aliases_have_the_device_operation_of_their_op():
    assert all(native_name(alias) == native_name(op.name) for alias, op in OPERATIONS.items())
