"""A call that was compiled: what comes of it is what would have come, whatever has changed in between."""

from __future__ import annotations

import contextvars
import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch

import softmesh as ttnn
from softmesh.dispatch.entry_point import EntryPoint, intercepting
from softmesh.errors import MeshError
from softmesh.runtime.commands import Command, observe
from softmesh.runtime.grad_mode import GRADIENTS
from softmesh.runtime.queues import queue_id

SHAPE = (1, 1, 32, 64)


@pytest.fixture
def newly_begun(idle_machine, monkeypatch) -> None:
    """As in a process that has not trained and has not chosen a queue so far."""
    monkeypatch.setattr(GRADIENTS, "in_use", False)
    monkeypatch.setattr(queue_id, "is_pushed", False)


@pytest.fixture
def mesh(newly_begun) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=1 << 20) as mesh:
        yield mesh
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def put(mesh: ttnn.MeshDevice, values: torch.Tensor | None = None, shape: tuple[int, ...] = SHAPE) -> ttnn.Tensor:
    given = torch.arange(float(torch.Size(shape).numel())).view(shape) % 7 if values is None else values
    mapper = ttnn.ShardTensorToMesh(mesh, dim=3)
    return ttnn.from_torch(given, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def put_alike(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    """Of the shape that a device's piece of the other has."""
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    return ttnn.from_torch(
        torch.ones(1, 1, 32, 32), ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper
    )


def read(tensor: ttnn.Tensor) -> torch.Tensor:
    return ttnn.to_torch(tensor, mesh_composer=ttnn.ConcatMeshToTensor(tensor.device(), dim=3))


def repeated(call: Callable[[], object], op: EntryPoint) -> None:
    """Until another such call is made by what was compiled for it."""
    call()
    assert op.cache is not None
    with mock.patch.object(type(op), "invoke", side_effect=AssertionError("the call was made in full")):
        call()


class Seen:
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_command(self, command: Command) -> None:
        self.names.append(command.name)


def test_each_call_makes_a_tensor_of_its_own(mesh):
    a, b = put(mesh), put(mesh)
    repeated(lambda: ttnn.add(a, b), ttnn.add)
    made = [ttnn.add(a, b) for _ in range(3)]
    assert len({t.buffer_address() for t in made}) == len({t.tensor_id for t in made}) == 3
    assert all(torch.equal(read(t), 2 * read(a)) for t in made)
    doubled = put(mesh, 2 * read(a))
    assert torch.equal(read(ttnn.add(doubled, b)), 3 * read(a))


@pytest.mark.parametrize("other", [0.5, 2, True, 2.0], ids=["a fraction", "an int", "a truth value", "a whole float"])
def test_another_factor_is_another_call(mesh, other):
    a = put(mesh)
    repeated(lambda: ttnn.multiply(a, 1.0), ttnn.multiply)
    assert torch.equal(read(ttnn.multiply(a, other)), read(a) * other)


def test_the_same_values_under_other_names_are_another_call(mesh):
    a, bound = put(mesh), 3.0
    repeated(lambda: ttnn.clamp(a, min=bound), ttnn.clamp)
    assert torch.equal(read(ttnn.clamp(a, max=bound)), read(a).clamp(max=bound))
    repeated(lambda: ttnn.clamp(a, bound), ttnn.clamp)
    assert torch.equal(read(ttnn.clamp(a, max=bound)), read(a).clamp(max=bound))


def test_a_truth_value_is_no_number(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.sum(a, dim=1), ttnn.sum)
    with pytest.raises(TypeError, match="dim"):
        ttnn.sum(a, dim=True)


def test_a_truth_value_is_no_number_in_a_list_either(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.sum(a, dim=[1]), ttnn.sum)
    with pytest.raises(TypeError, match="dim"):
        ttnn.sum(a, dim=[True])


def test_other_shapes_placements_and_meshes_are_other_calls(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.neg(a), ttnn.neg)
    tall = put(mesh, shape=(1, 1, 64, 64))
    same = put_alike(mesh)
    assert torch.equal(read(ttnn.neg(tall)), -read(tall))
    assert str(ttnn.placements(ttnn.neg(same))) == str(ttnn.placements(same))
    half = ttnn.get_device_tensors(a)[1]
    assert torch.equal(ttnn.to_torch(ttnn.neg(half)), -ttnn.to_torch(half))
    repeated(lambda: ttnn.neg(a), ttnn.neg)
    sub = mesh.create_submesh(ttnn.MeshShape(1, 2))
    assert ttnn.neg(put(sub)).device() is sub


def test_more_and_fewer_arguments_are_other_calls_of_one_tensor(mesh):
    x = put(mesh)
    values = torch.stack([ttnn.to_torch(each) for each in ttnn.get_device_tensors(x)])

    def found(result: ttnn.Tensor) -> torch.Tensor:
        return torch.stack([ttnn.to_torch(each) for each in ttnn.get_device_tensors(result)])

    repeated(lambda: ttnn.sum(x), ttnn.sum)
    assert torch.equal(found(ttnn.sum(x, 2)).reshape(2, -1), values.sum(-2).reshape(2, -1))
    repeated(lambda: ttnn.sum(x, dim=2), ttnn.sum)
    assert found(ttnn.sum(x, dim=2, keepdim=True)).shape == (2, 1, 1, 1, 32)
    assert found(ttnn.sum(x, dim=2, keepdim=False)).shape == (2, 1, 1, 32)
    repeated(lambda: ttnn.sum(x, dim=2), ttnn.sum)
    assert found(ttnn.sum(x)).numel() == 2


def test_other_types_hosts_and_meshes_are_other_calls_of_one_tensor(mesh):
    x = put(mesh)
    repeated(lambda: ttnn.neg(x), ttnn.neg)
    rounded = ttnn.typecast(x, ttnn.bfloat16)
    repeated(lambda: ttnn.neg(x), ttnn.neg)
    assert ttnn.neg(rounded).dtype is ttnn.bfloat16
    repeated(lambda: ttnn.neg(x), ttnn.neg)
    with pytest.raises(MeshError, match="host"):
        ttnn.neg(ttnn.from_device(x))
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as other:
        y = put(other)
        repeated(lambda: ttnn.neg(x), ttnn.neg)
        made = ttnn.neg(y)
        assert made.device() is other
        assert any(allocation.owner is made.storage for allocation in other.allocator().live())
        assert torch.equal(read(ttnn.neg(y)), -read(x))
    repeated(lambda: ttnn.neg(x), ttnn.neg)
    ttnn.deallocate(x)
    with pytest.raises(MeshError, match="not allocated"):
        ttnn.neg(x)


def test_a_second_tensor_may_be_given_by_its_name(mesh):
    x, y = put(mesh), put(mesh)
    repeated(lambda: ttnn.add(x, input_tensor_b=y), ttnn.add)
    ttnn.multiply(y, 3.0, output_tensor=y)
    assert torch.equal(read(ttnn.add(x, input_tensor_b=y)), read(x) * 4)


def test_each_result_is_known_by_the_line_that_made_it(mesh):
    x = put(mesh)

    def one() -> ttnn.Tensor:
        return ttnn.neg(x)

    def other() -> ttnn.Tensor:
        return ttnn.neg(x)

    made = [call() for call in (one, other, one, one, one, other, other, other, one)]
    of = {each.buffer_address(): each for each in made}
    sites = [allocation.site for allocation in mesh.allocator().live() if allocation.address in of]
    lines = [site.line for site in sites]
    assert {site.function for site in sites} == {"one", "other"}
    assert sorted(lines) == sorted(
        call.__code__.co_firstlineno + 1 for call in (one, other, one, one, one, other, other, other, one)
    )
    assert all(site.file == __file__ for site in sites)


def test_an_observer_sees_the_next_call_and_no_more_when_it_is_gone(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.relu(a), ttnn.relu)
    with observe(Seen()) as seen:
        ttnn.relu(a)
    ttnn.relu(a)
    assert seen.names == ["relu"]


def test_an_interceptor_answers_for_the_next_call(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.relu(a), ttnn.relu)
    with intercepting(lambda op, args, kwargs, proceed: "mine"):
        assert ttnn.relu(a) == "mine"
    assert isinstance(ttnn.relu(a), ttnn.Tensor)


def test_a_capture_records_the_next_call(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.exp(a), ttnn.exp)
    number = ttnn.begin_trace_capture(mesh, cq_id=0)
    out = ttnn.exp(a)
    ttnn.end_trace_capture(mesh, number, cq_id=0)
    ttnn.copy_host_to_device_tensor(
        ttnn.from_torch(
            torch.zeros(SHAPE),
            ttnn.float32,
            layout=ttnn.TILE_LAYOUT,
            mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=3),
        ),
        a,
    )
    ttnn.execute_trace(mesh, number, cq_id=0, blocking=True)
    assert torch.equal(read(out), torch.ones(SHAPE))


def test_a_deallocated_operand_is_refused(mesh):
    a, b = put(mesh), put(mesh)
    repeated(lambda: ttnn.add(a, b), ttnn.add)
    ttnn.deallocate(b)
    with pytest.raises(MeshError, match="allocated"):
        ttnn.add(a, b)


def test_a_closed_mesh_is_refused(newly_begun):
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    a = put(mesh)
    repeated(lambda: ttnn.neg(a), ttnn.neg)
    ttnn.close_mesh_device(mesh)
    with pytest.raises(MeshError, match="closed"):
        ttnn.neg(a)


def test_a_mesh_that_everybody_else_has_dropped_is_gone(newly_begun):
    def use() -> weakref.ref[ttnn.MeshDevice]:
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2), physical_device_ids=[0, 1])
        a = put(mesh)
        repeated(lambda: ttnn.neg(a), ttnn.neg)
        return weakref.ref(mesh)

    first = use()
    gc.collect()
    assert first() is None
    use()  # its chips are free


def test_a_fabric_that_goes_is_missed(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.all_gather(a, dim=3), ttnn.all_gather)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    with pytest.raises(MeshError, match="un-initialized fabric context"):
        ttnn.all_gather(a, dim=3)


def test_what_one_thread_is_lenient_about_another_is_not(mesh):
    a = put(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    refused: list[str] = []

    def elsewhere() -> None:
        try:
            ttnn.all_gather(a, dim=3)
        except MeshError as error:
            refused.append(str(error))

    with ttnn.lenient():
        for _ in range(5):
            assert ttnn.all_gather(a, dim=3).shape == SHAPE
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(10)
    assert "un-initialized fabric context" in refused[0]
    with pytest.raises(MeshError, match="un-initialized fabric context"):
        ttnn.all_gather(a, dim=3)


def test_a_context_that_was_lenient_when_it_was_copied_speaks_for_itself(mesh):
    a = put(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    with ttnn.lenient():
        context = contextvars.copy_context()
    for _ in range(5):
        context.run(ttnn.all_gather, a, dim=3)
    with pytest.raises(MeshError, match="un-initialized fabric context"):
        ttnn.all_gather(a, dim=3)


def test_wishes_are_looked_at_under_the_strictness_of_their_call(mesh, monkeypatch):
    a = put(mesh)

    def call() -> ttnn.Tensor:
        return ttnn.all_gather(a, dim=3, topology=ttnn.Topology.Ring)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            call()
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.raises(MeshError):
        call()


def test_a_cleared_program_cache_counts_the_next_call(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.relu(a), ttnn.relu)
    mesh.clear_program_cache()
    ttnn.relu(a)
    assert mesh.num_program_cache_entries() == 1


def test_the_first_gradient_is_asked_for(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.all_gather(a, dim=3), ttnn.all_gather)
    weight = put(mesh).requires_grad_()
    gathered = ttnn.all_gather(weight, dim=3)
    with pytest.warns(ttnn.SoftmeshWarning, match="2 times too large"):
        gathered.backward(ttnn.ones_like(gathered))
    assert torch.equal(read(weight.grad), torch.full(SHAPE, 2.0))  # both devices have it from this one


def test_a_queue_that_was_chosen_is_used(newly_begun):
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        a = put(mesh)
        repeated(lambda: ttnn.neg(a), ttnn.neg)
        with ttnn.command_queue(1), pytest.raises(MeshError, match="out of range"):
            ttnn.neg(a)


def test_a_queue_is_in_use_again_after_the_mesh_was_quiesced(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.neg(a), ttnn.neg)
    mesh.quiesce_devices()
    assert not mesh.mesh_command_queue(0).in_use
    ttnn.neg(a)
    assert mesh.mesh_command_queue(0).in_use


def test_memory_that_was_taken_from_everybody_is_asked_for_anew(mesh):
    a = put(mesh)
    repeated(lambda: ttnn.neg(a), ttnn.neg)
    mesh.memory.deallocate_buffers()
    b = put(mesh)
    made = ttnn.neg(b)
    assert made.buffer_address() != b.buffer_address()
    assert len(mesh.memory.live()) == 2


def test_undefined_pieces_are_told_of(mesh):
    holey = ttnn.point_to_point(
        put(mesh), ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1), topology=ttnn.Topology.Linear
    )
    whole = put_alike(mesh)
    second = ttnn.get_device_tensors(whole)[1]
    ttnn.copy(ttnn.neg(second), second)
    assert ttnn.placements(whole) == ttnn.placements(holey)
    repeated(lambda: ttnn.neg(whole), ttnn.neg)
    assert ttnn.neg(holey).storage.undefined is not None
