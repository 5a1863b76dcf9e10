"""Training steps through pipelines in one process: the gradients are those of one device on the whole batch."""

from __future__ import annotations

from collections.abc import Iterator

import cut_gpt
import pytest
import torch

import softmesh as ttnn
from softmesh.errors import MeshError, SoftmeshError
from softmesh.train import Linear, Module, mse_loss, sync_gradients
from softmesh.train.layers import Initial
from softmesh.train.pipeline import (
    Backward,
    Connection,
    Forward,
    Pipeline,
    Stage,
    cut,
    gpipe,
    live_activations,
    scheduled,
)

ROWS = 8


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors are small here: more threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def mesh(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        yield mesh


def submeshes(mesh: ttnn.MeshDevice, shape: tuple[int, int], names: tuple[str, str]) -> list[ttnn.MeshDevice]:
    found = mesh.create_submeshes(ttnn.MeshShape(*shape))
    for each in found:
        each.axis_names = names
    return found


def on_stages(meshes: list[ttnn.MeshDevice], parts: list[list[cut_gpt.Layer]]) -> list[Stage]:
    count = len(meshes)
    return [
        Stage(mesh, [cut_gpt.made(part, mesh) for part in parts[number::count]]) for number, mesh in enumerate(meshes)
    ]


def assert_like_one_device(pipeline: Pipeline, loss: float | None, parts, mesh: ttnn.MeshDevice) -> None:
    one = submeshes(mesh, (1, 1), ("dp", "tp"))[0]
    expected, gradients = cut_gpt.whole(parts, one, ROWS)
    assert loss == pytest.approx(expected, abs=1e-6)
    found = dict(pipeline.named_parameters())
    assert list(found) == list(gradients)
    for name, tensor in found.items():
        torch.testing.assert_close(cut_gpt.gradient(tensor), gradients[name], atol=1e-6, rtol=1e-6, msg=name)


@pytest.mark.parametrize("micro_batches", [1, 2, 4, 8])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_four_stages_of_one_device_give_the_gradients_of_one_device(mesh, schedule, micro_batches):
    parts = cut(cut_gpt.layers(4), 4)
    stages = on_stages(submeshes(mesh, (1, 1), ("dp", "tp"))[:4], parts)
    pipeline = Pipeline(stages, schedule=schedule, micro_batches=micro_batches, loss=cut_gpt.loss)
    assert_like_one_device(pipeline, pipeline.step(*cut_gpt.batch(ROWS)), parts, mesh)


@pytest.mark.parametrize(
    ("stages", "chunks", "shape", "schedule"),
    [
        (2, 1, (2, 2), "1f1b"),
        (2, 2, (2, 2), "interleaved"),
        (4, 1, (2, 1), "gpipe"),
        (4, 2, (2, 1), "interleaved"),
        (1, 2, (2, 2), "1f1b"),
    ],
)
def test_data_and_tensor_parallel_stages_give_the_gradients_of_one_device(mesh, stages, chunks, shape, schedule):
    parts = cut(cut_gpt.layers(max(4, stages * chunks)), stages * chunks)
    meshes = submeshes(mesh, shape, ("dp", "tp"))[:stages]
    pipeline = Pipeline(on_stages(meshes, parts), schedule=schedule, micro_batches=4, loss=cut_gpt.loss)
    loss = pipeline.step(*cut_gpt.batch(ROWS))
    sync_gradients(pipeline, axes=["dp"])
    assert_like_one_device(pipeline, loss, parts, mesh)


def test_tensor_parallel_stages_and_a_schedule_of_ones_own_give_the_gradients_of_one_device(mesh):
    """Backwards in the order opposite to that of the forwards, over FIFOs that hold nothing."""
    parts = cut(cut_gpt.layers(4), 2)
    order = [Forward(m) for m in range(2)] + [Backward(m) for m in (1, 0)]
    own = scheduled("last in, first out", 2, 1, [order, order])
    meshes = submeshes(mesh, (1, 2), ("dp", "tp"))[:2]
    pipeline = Pipeline(on_stages(meshes, parts), schedule=own, loss=cut_gpt.loss, fifo=0)
    assert_like_one_device(pipeline, pipeline.step(*cut_gpt.batch(ROWS)), parts, mesh)


class Counting(Module):
    """A layer that notes how many of its results await their gradients."""

    def __init__(self, mesh: ttnn.MeshDevice, seed: int) -> None:
        self.linear = Linear(mesh, 32, 32, Initial(seed))
        self.alive = self.most = 0

    def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        if torch.is_grad_enabled():
            self.alive += 1
            self.most = max(self.most, self.alive)
        y = self.linear(x)
        if y.requires_grad:
            y.view_data().register_hook(self._noticed)
        return y

    def _noticed(self, _: torch.Tensor) -> None:
        self.alive -= 1


@pytest.fixture
def pair_of_stages(mesh: ttnn.MeshDevice) -> list[Stage]:
    halves = submeshes(mesh, (1, 1), ("dp", "tp"))[:2]
    return [Stage(half, Counting(half, seed)) for seed, half in enumerate(halves)]


def numbers(rows: int) -> torch.Tensor:
    return torch.randn(rows, 1, 32, 32, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_a_stage_keeps_as_many_activations_as_the_check_says(pair_of_stages, schedule):
    pipeline = Pipeline(pair_of_stages, schedule=schedule, micro_batches=4, loss=mse_loss)
    pipeline.step(numbers(8), numbers(8))
    modules = [module for _, module in pipeline.children()]
    assert tuple(module.most for module in modules) == live_activations(pipeline.schedule)
    assert [module.alive for module in modules] == [0, 0]


def test_gradients_of_several_steps_add_up_and_batches_may_change_their_size(pair_of_stages):
    pipeline = Pipeline(pair_of_stages, micro_batches=2, loss=mse_loss)
    pipeline.step(numbers(4), numbers(4))
    first = [tensor.grad.view_data().clone() for tensor in pipeline.parameters()]
    pipeline.zero_grad()
    pipeline.step(numbers(8), numbers(8))
    second = [tensor.grad.view_data().clone() for tensor in pipeline.parameters()]
    pipeline.step(numbers(4), numbers(4))
    for tensor, a, b in zip(pipeline.parameters(), first, second, strict=True):
        torch.testing.assert_close(tensor.grad.view_data(), a + b, atol=1e-6, rtol=1e-6)


def test_after_its_first_step_the_report_knows_bytes(pair_of_stages):
    pipeline = Pipeline(pair_of_stages, micro_batches=2, loss=mse_loss)
    pipeline.step(numbers(4), numbers(4))
    tiles = 2 * 32 * 32 * 4
    assert pipeline.report.fifo_bytes()[Connection(0, 1, "activations")] == tiles


def test_a_step_that_failed_leaves_nothing_in_the_way_of_the_next(pair_of_stages):
    fails = True

    def loss(y: ttnn.Tensor, targets: ttnn.Tensor) -> ttnn.Tensor:
        if fails:
            raise ValueError("no loss today")
        return mse_loss(y, targets)

    pipeline = Pipeline(pair_of_stages, schedule="gpipe", micro_batches=2, loss=loss)
    with pytest.raises(ValueError, match="no loss today"):
        pipeline.step(numbers(4), numbers(4))
    fails = False
    assert pipeline.step(numbers(4), numbers(4)) == pytest.approx(
        Pipeline(pair_of_stages, micro_batches=1, loss=mse_loss).step(numbers(4), numbers(4)), abs=1e-6
    )


def test_a_first_part_without_parameters_gets_no_gradient_and_harms_nobody(mesh):
    halves = submeshes(mesh, (1, 1), ("dp", "tp"))[:2]
    last = Linear(halves[1], 32, 32, Initial(0))
    pipeline = Pipeline([Stage(halves[0], ttnn.relu), Stage(halves[1], last)], micro_batches=2, loss=mse_loss)
    assert pipeline.step(numbers(2), numbers(2)) > 0
    assert [name for name, _ in pipeline.named_parameters()] == ["parts.1.weight", "parts.1.bias"]
    assert last.weight.grad is not None


@pytest.mark.parametrize(
    ("arguments", "batch", "message"),
    [
        ({"micro_batches": 4}, (6, 6), "the 6 rows of inputs do not divide into 4 micro-batches"),
        ({"micro_batches": 2}, (4, 6), "4 rows of inputs and 6 of targets"),
        ({"micro_batches": 2, "splits": {"pp": 0}}, (4, 4), "Mesh axis 'pp': the axes of"),
        ({}, (4, 4), "say into how many micro_batches"),
        ({"schedule": "2f2b", "micro_batches": 2}, (4, 4), "the schedules are"),
        ({"schedule": gpipe(4, 2)}, (4, 4), "is for 4 stages, not 2"),
        ({"schedule": gpipe(2, 2), "micro_batches": 4}, (4, 4), "is for 2 micro-batches, not 4"),
        ({"micro_batches": 4, "fifo": 0}, (4, 4), "deadlock: stage 0 -> stage 1 -> stage 0"),
        (
            {"schedule": scheduled("mine", 1, 1, [[Forward(0)], [Forward(0), Backward(0)]])},
            (4, 4),
            "stage 0: Backward.* is missing",
        ),
        ({"micro_batches": 2, "loss": ttnn.subtract}, (4, 4), "loss must return one value on each device"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_words(pair_of_stages, arguments, batch, message):
    with pytest.raises(SoftmeshError, match=message):
        Pipeline(pair_of_stages, **{"loss": mse_loss, **arguments}).step(*map(numbers, batch))


def test_rows_that_do_not_divide_among_the_devices_of_a_stage_are_named(mesh):
    columns = submeshes(mesh, (2, 1), ("dp", "tp"))[:2]
    stages = [Stage(column, Counting(column, seed)) for seed, column in enumerate(columns)]
    pipeline = Pipeline(stages, micro_batches=2, loss=mse_loss)
    with pytest.raises(MeshError, match="dim 0 of a micro-batch of inputs: 3 does not divide among the 2 devices"):
        pipeline.step(numbers(6), numbers(6))


def test_parts_that_hand_on_what_cannot_travel_are_named(mesh, pair_of_stages):
    first, second = (stage.mesh for stage in pair_of_stages)

    def steps(part) -> None:
        stages = [Stage(first, part), Stage(second, Counting(second, 0))]
        Pipeline(stages, micro_batches=1, loss=mse_loss).step(numbers(1), numbers(1))

    with pytest.raises(MeshError, match="Part 0 of the pipeline returned tuple"):
        steps(lambda x: (x, x))
    with pytest.raises(MeshError, match=r"Part 0 of the pipeline returned DataType\.UINT32"):
        steps(lambda x: ttnn.typecast(x, ttnn.uint32))
    with pytest.raises(MeshError, match=r"end it with ttnn\.to_memory_config"):
        steps(lambda x: ttnn.to_memory_config(x, ttnn.L1_MEMORY_CONFIG))


def test_a_part_that_ignores_its_input_is_named(mesh):
    first, second = submeshes(mesh, (1, 1), ("dp", "tp"))[:2]
    own = Linear(second, 32, 32, Initial(0))
    stages = [Stage(first, Linear(first, 32, 32, Initial(1))), Stage(second, lambda _: own.weight)]
    pipeline = Pipeline(stages, micro_batches=1, loss=mse_loss)
    with pytest.raises(MeshError, match="Part 1 of the pipeline does not depend on what the part before it sends"):
        pipeline.step(numbers(1), numbers(1))


def test_stages_of_different_meshes_or_chunks_are_refused(mesh):
    one, other = submeshes(mesh, (1, 1), ("dp", "tp"))[:2]
    wide = submeshes(mesh, (1, 2), ("dp", "tp"))[1]
    with pytest.raises(MeshError, match="must have one shape"):
        Pipeline([Stage(one, ttnn.relu), Stage(wide, ttnn.relu)], micro_batches=1, loss=mse_loss)
    with pytest.raises(MeshError, match="stage 1 has 2 chunks, stage 0 1"):
        Pipeline([Stage(one, ttnn.relu), Stage(other, [ttnn.relu] * 2)], micro_batches=1, loss=mse_loss)
    with pytest.raises(TypeError, match="chunks must be a Module"):
        Stage(one, [])
    with pytest.raises(TypeError, match="stages must be a list of Stage"):
        Pipeline(4, micro_batches=1, loss=mse_loss)
