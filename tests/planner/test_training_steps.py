"""Training steps as users write them: what is captured of backward() and step() computes what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from click.testing import CliRunner
from planned_models import captured_values, drawn, drawn_plan, example, loaded, opened, problem_on

import softmesh as ttnn
from softmesh import train
from softmesh.alias import aliased
from softmesh.cli import commands
from softmesh.errors import NotModelled
from softmesh.planner.capture import captured, leaf_values
from softmesh.planner.constraints import NotReplicated
from softmesh.planner.layout_plan import plan
from softmesh.planner.op_graph import Role
from softmesh.systems.chip import N300

Parameters = dict[str, ttnn.Tensor]
SMALL_GPT = {"layers": 2, "width": 64, "heads": 2, "vocabulary": 64, "sequences": 2, "tokens": 32}
TOKENS = torch.randint(64, (4, 32), generator=torch.Generator().manual_seed(0), dtype=torch.int32)


def kept(values: torch.Tensor, device: ttnn.MeshDevice) -> ttnn.Tensor:
    return train.parameter(values, device)


def ids(device: ttnn.MeshDevice, values: torch.Tensor = TOKENS) -> ttnn.Tensor:
    return ttnn.from_torch(values, ttnn.uint32, device=device)


def seen(q: ttnn.Tensor, k: ttnn.Tensor, v: ttnn.Tensor, **options: Any) -> ttnn.Tensor:
    return ttnn.transformer.scaled_dot_product_attention(q, k, v, **options)


SHAPES = {
    "x": (2, 1, 32, 64),
    "y": (2, 1, 32, 64),
    "row": (1, 1, 1, 64),
    "w": (64, 32),
    "flipped": (1, 1, 32, 64),
    "bias": (1, 1, 1, 32),
    "q": (2, 4, 32, 16),
    "k": (2, 2, 32, 16),
    "v": (2, 2, 32, 16),
    "many": (2, 1, 64, 32),
}
LOSSES: dict[str, Callable[[Any], ttnn.Tensor]] = {
    "add": lambda p: ttnn.add(p.x, p.row),
    "subtract": lambda p: ttnn.subtract(p.row, p.x),
    "rsub": lambda p: ttnn.rsub(p.x, p.y),
    "operators": lambda p: (p.x + 1.0) * p.row - p.y / 3.0,
    "multiply": lambda p: ttnn.multiply(p.x, p.row),
    "multiply by itself": lambda p: ttnn.multiply(p.x, p.x),
    "divide": lambda p: ttnn.divide(p.x, ttnn.add(ttnn.square(p.row), 1.0)),
    "activations": lambda p: ttnn.silu(ttnn.relu(ttnn.tanh(ttnn.sigmoid(p.x)))),
    "gelu": lambda p: ttnn.gelu(p.x),
    "powers": lambda p: ttnn.sqrt(ttnn.exp(ttnn.neg(ttnn.pow(p.x, 2)))),
    "log": lambda p: ttnn.log(ttnn.add(ttnn.multiply(p.x, p.x), 1.0)),
    "matmul": lambda p: ttnn.matmul(p.x, p.w),
    "matmul of batches": lambda p: ttnn.matmul(p.x, p.many),
    "matmul, first transposed": lambda p: ttnn.matmul(p.x, p.y, transpose_a=True),
    "matmul, both transposed": lambda p: ttnn.matmul(p.many, p.x, transpose_a=True, transpose_b=True),
    "linear": lambda p: ttnn.linear(p.x, p.w, bias=p.bias),
    "linear, transposed": lambda p: ttnn.linear(p.x, p.flipped, bias=p.bias, transpose_b=True),
    "linear with its activation": lambda p: ttnn.linear(p.x, p.w, bias=p.bias, activation="gelu"),
    "views": lambda p: ttnn.transpose(ttnn.permute(ttnn.reshape(p.x, (2, 32, 4, 16)), (0, 2, 1, 3)), 2, 3),
    "slice": lambda p: ttnn.slice(p.x, [0, 0, 8, 16], [2, 1, 24, 64]),
    "slice from behind": lambda p: ttnn.slice(p.x, [0, 0, -24, -48], [2, 1, 32, 64]),
    "concat": lambda p: ttnn.multiply(ttnn.concat([p.x, p.y], -1), 2.0),
    "mean": lambda p: ttnn.mean(p.x, -1, True),
    "sum": lambda p: ttnn.square(ttnn.sum(p.x, -2)),
    "softmax": lambda p: ttnn.softmax(p.x, dim=-1),
    "layer_norm": lambda p: ttnn.layer_norm(p.x, weight=p.row, bias=p.row),
    "rms_norm": lambda p: ttnn.rms_norm(p.x, weight=p.row),
    "rms_norm without a weight": lambda p: ttnn.rms_norm(p.x),
    "attention": lambda p: seen(p.q, p.k, p.v, is_causal=True),
    "attention of all": lambda p: seen(p.q, p.k, p.v, is_causal=False, scale=0.3),
    "embedding": lambda p: ttnn.embedding(ids(p.device, TOKENS % 32), p.flipped),
    "used twice": lambda p: ttnn.matmul(p.x, p.w) + ttnn.matmul(p.y, p.w),
}


class Given:
    """Parameters, made as they are asked for."""

    def __init__(self, device: ttnn.MeshDevice) -> None:
        self.device, self.made = device, Parameters()

    def __getattr__(self, name: str) -> ttnn.Tensor:
        if name not in self.made:
            self.made[name] = kept(drawn(*SHAPES[name], seed=len(name)), self.device)
        return self.made[name]


def gradients_of(loss: Callable[[Any], ttnn.Tensor]) -> Callable[[ttnn.MeshDevice], list[ttnn.Tensor]]:
    """The loss, and the gradients that its backward pass brings."""

    def step(device: ttnn.MeshDevice) -> list[ttnn.Tensor]:
        given = Given(device)
        made = loss(given)
        weights = ttnn.from_torch(drawn(*made.shape, seed=9), ttnn.float32, layout=ttnn.TILE_LAYOUT, device=device)
        total = ttnn.mean(ttnn.multiply(made, weights))
        total.backward()
        return [total, *(tensor.grad for tensor in given.made.values())]

    return step


def results_of(step: Callable[[ttnn.MeshDevice], Any]) -> list[torch.Tensor]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as device:
        return [ttnn.to_torch(one).detach().clone() for one in step(device)]


def assert_alike(made: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 1e-5) -> None:
    assert len(made) == len(expected)
    for one, other in zip(made, expected, strict=True):
        torch.testing.assert_close(one.reshape(other.shape), other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_that_are_captured_are_those_of_a_backward_pass(name: str) -> None:
    step = gradients_of(LOSSES[name])
    assert_alike(captured_values(step), results_of(step))
    graph = captured(step, chip=N300)
    parameters = [leaf for leaf in graph.leaves if is_parameter(leaf.name)]
    assert len(graph.outputs) == 1 + len(parameters)


def is_parameter(name: str) -> bool:
    return name.rpartition(".")[2] in SHAPES


class Doubled(train.Function):
    @staticmethod
    def forward(ctx: Any, x: ttnn.Tensor, factor: float) -> ttnn.Tensor:
        ctx.factor = factor
        return ttnn.multiply(ttnn.relu(x), factor)

    @staticmethod
    def backward(ctx: Any, gradient: ttnn.Tensor) -> Any:
        return ttnn.multiply(gradient, ctx.factor + 1.0), None  # not the true one: this one is asked for


def test_a_function_has_the_backward_that_was_written_for_it() -> None:
    step = gradients_of(lambda p: ttnn.add(Doubled.apply(ttnn.tanh(p.x), 2.0), p.y))
    assert_alike(captured_values(step), results_of(step))


def test_what_is_recomputed_is_computed_twice() -> None:
    def loss(p: Any) -> ttnn.Tensor:
        return train.recomputed(lambda x: ttnn.gelu(ttnn.matmul(ttnn.tanh(x), p.w)), ttnn.relu(p.x))

    step = gradients_of(loss)
    assert_alike(captured_values(step), results_of(step))
    ops = [node.op for node in captured(step, chip=N300).nodes]
    assert ops.count("tanh") == 2


def test_no_gradient_goes_past_what_is_detached() -> None:
    step = gradients_of(lambda p: ttnn.add(ttnn.relu(p.x).detach(), p.y))

    def only(device: ttnn.MeshDevice) -> list[ttnn.Tensor]:
        total, *gradients = step(device)
        return [total, *(one for one in gradients if one is not None)]

    assert len(results_of(only)) == 2
    assert_alike(captured_values(only), results_of(only))
    graph = captured(only, chip=N300)
    assert {value.name for value in graph.leaves} >= {"given.made.x", "given.made.y"}
    assert len(graph.leaves) == 3


OPTIMIZERS: dict[str, Callable[[Any], train.Optimizer]] = {
    "SGD": lambda model: train.SGD(model, lr=0.1),
    "SGD with momentum": lambda model: train.SGD(model, lr=0.1, momentum=0.9, weight_decay=0.1),
    "SGD of Nesterov": lambda model: train.SGD(model, lr=0.1, momentum=0.9, nesterov=True),
    "AdamW": lambda model: train.AdamW(model, lr=0.01),
    "AdamW without decay": lambda model: train.AdamW(model, lr=0.01, weight_decay=0.0, betas=(0.8, 0.9)),
}


class Small(train.Module):
    """All layers of one block, without biases whose gradient is nothing but rounding."""

    def __init__(self, device: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.float32, *, blocks: int = 0) -> None:
        initial = train.Initial(0, dtype)
        self.embedding = train.Embedding(device, 64, 64, initial)
        self.blocks = [train.TransformerBlock(device, 64, 2, initial) for _ in range(blocks)]
        self.norm = train.RMSNorm(device, 64, initial)
        self.up = train.Linear(device, 64, 128, initial, bias=False)
        self.head = train.Linear(device, 128, 64, initial)

    def forward(self, tokens: ttnn.Tensor) -> ttnn.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(ttnn.silu(self.up(self.norm(x))))


def steps_of(
    optimizer: Callable[[Any], train.Optimizer],
    steps: int = 2,
    clip: float | None = None,
    dtype: ttnn.DataType = ttnn.float32,
) -> Callable[[ttnn.MeshDevice], list[ttnn.Tensor]]:
    def step(device: ttnn.MeshDevice) -> list[ttnn.Tensor]:
        model = Small(device, dtype)
        stepper, losses = optimizer(model), []
        for _ in range(steps):
            stepper.zero_grad()
            loss = train.cross_entropy(model(ids(device)), ids(device, TOKENS.flip(0)))
            loss.backward()
            if clip:
                train.clip_grad_norm(model, clip)
            stepper.step()
            losses.append(loss)
        return [*losses, *model.parameters()]

    return step


PARAMETERS = ("embedding.weight", "norm.weight", "up.weight", "head.weight", "head.bias")


def optimizer_slots(name: str) -> tuple[str, ...]:
    return ("first", "second") if name.startswith("AdamW") else () if name == "SGD" else ("momentum",)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_steps_of_an_optimizer_change_parameters_as_it_does(name: str) -> None:
    step = steps_of(OPTIMIZERS[name], clip=0.1)
    assert_alike(captured_values(step), results_of(step))
    state = [leaf.name for leaf in captured(step, chip=N300).leaves if leaf.role is Role.OPTIMIZER_STATE]
    slots = optimizer_slots(name)
    assert sorted(state) == sorted(f"{slot}.{of}" for slot in slots for of in PARAMETERS)


def test_parameters_in_bfloat16_follow_masters() -> None:
    step = steps_of(OPTIMIZERS["SGD with momentum"], dtype=ttnn.bfloat16)
    assert_alike(captured_values(step), results_of(step), 1e-2)
    names = {leaf.name for leaf in captured(step, chip=N300).leaves}
    assert {"master.up.weight", "momentum.up.weight"} <= names


def trained(device: ttnn.MeshDevice) -> list[ttnn.Tensor]:
    """The loss, and the weights after a step."""
    model = Small(device, blocks=2)
    optimizer = train.SGD(model, lr=0.1, momentum=0.9)
    loss = train.cross_entropy(model(ids(device)), ids(device, TOKENS.flip(0)))
    loss.backward()
    train.clip_grad_norm(model, 0.5)
    optimizer.step()
    return [loss, *model.parameters()]


@pytest.fixture
def t3000() -> Iterator[None]:
    ttnn.use_system("T3000")
    with aliased():  # files import ttnn
        yield
    ttnn.use_system(None)


@pytest.mark.usefixtures("t3000")
@pytest.mark.filterwarnings("ignore:add. input_tensor")  # a drawn plan adds whole values to parts of a sum
@pytest.mark.parametrize(("shape", "seed"), [((1, 8), 0), ((2, 4), 1), ((2, 4), 2)])
def test_any_plan_of_a_step_is_a_file_that_trains_as_one_device_does(shape: tuple[int, ...], seed: int) -> None:
    with opened(shape) as mesh:
        source = drawn_plan(problem_on(trained, mesh), seed).source()
    assert_alike(loaded(source)["run"](leaf_values(trained, chip=N300)), results_of(trained))


def test_the_best_plan_of_a_step_is_a_file_that_diff_confirms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight is split, as in fully sharded data parallelism."""
    monkeypatch.setenv("SOFTMESH_SYSTEM", "")  # the command sets it for the process
    found = plan(trained, "N300", goal="training", constraints=[NotReplicated("*.weight")])
    file = tmp_path / "planned.py"
    file.write_text(found.source())
    assert "momentum.blocks.{i}.mlp.up.weight" in file.read_text()
    safetensors.torch.save_file(found.values(trained), tmp_path / "values.safetensors")
    arguments = [str(file), "--system", "N300", "--against", "one-device", str(tmp_path / "values.safetensors")]
    result = CliRunner().invoke(commands, ["diff", *arguments])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("No divergence: ")


def test_what_has_no_gradient_here_is_named() -> None:
    with pytest.raises(NotModelled, match=r"gradient of ttnn.cumsum \(test_training_steps.py:\d+\) is not covered"):
        captured(gradients_of(lambda p: ttnn.cumsum(p.x, dim=-1)), chip=N300)
    with pytest.raises(NotModelled, match="sliding_window_size=8"):
        captured(gradients_of(lambda p: seen(p.q, p.k, p.v, is_causal=True, sliding_window_size=8)), chip=N300)
    with pytest.raises(NotModelled, match=r"gradient of ttnn\.div with rounding_mode='floor'"):
        captured(gradients_of(lambda p: ttnn.div(p.x, 0.3, rounding_mode="floor")), chip=N300)
    with pytest.raises(NotModelled, match=r"gradient of ttnn\.linear with an activation of its own"):
        captured(gradients_of(lambda p: ttnn.linear(p.x, p.w, activation="gelu_approx")), chip=N300)


def test_an_optimizer_of_ones_own_is_named() -> None:
    class Signed(train.SGD):
        pass

    with pytest.raises(NotModelled, match=r"Signed.step\(\) at test_training_steps.py:\d+ is not covered"):
        captured(steps_of(lambda model: Signed(model, lr=0.1)), chip=N300)


def test_a_backward_pass_is_not_followed() -> None:
    with opened((1, 2), "N300") as mesh:
        found = plan(trained, mesh, goal="training")
        with pytest.raises(NotModelled, match="the ops of a backward pass"), found.followed(mesh):
            pass


def test_layers_of_training_are_followed_in_their_forward_pass() -> None:
    def evaluated(device: ttnn.MeshDevice) -> ttnn.Tensor:
        with train.no_grad():
            return train.cross_entropy(Small(device, blocks=1)(ids(device)), ids(device, TOKENS.flip(0)))

    (expected,) = results_of(lambda device: [evaluated(device)])
    with opened((2, 4), "T3000") as mesh:
        found = drawn_plan(problem_on(evaluated, mesh), 0)
        with found.followed(mesh):
            made = ttnn.compose(evaluated(mesh))
    torch.testing.assert_close(made.float().reshape(()), expected.reshape(()), atol=1e-3, rtol=1e-3)


def test_a_file_of_a_step_runs_by_itself(tmp_path: Path) -> None:
    """With weights at random, and nothing that the optimizer remembers."""
    source = plan(example("gpt_training").step, "N300", SMALL_GPT, goal="training").source()
    with aliased():
        program = loaded(source)
        values = program["random_values"]()
        assert all(not values[name].any() for name in program["STATE"])
        (loss,) = program["run"](values)
    assert loss.isfinite()
