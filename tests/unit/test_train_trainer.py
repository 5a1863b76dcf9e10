"""The training loop: what it computes, what it tells, what it refuses, and how it goes on."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import softmesh as ttnn
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.runtime.device_lifecycle import open_meshes
from softmesh.train import SGD, AdamW, Module, Scheduler, mse_loss
from softmesh.train.checkpoints import latest, save
from softmesh.train.finite_checks import NotFiniteGradient, NotFiniteLoss
from softmesh.train.layers import Initial, column, row
from softmesh.train.schedules import linear
from softmesh.train.trainer import EVENTS, Trainer, TrainerCallback

ROWS, TOKENS, WIDTH = 8, 4, 8
LINE = re.compile(r"Step: (\d+), Loss: (\d+\.\d{6}), Time: (\d+\.\d\d) ms")


class Net(Module):
    def __init__(self, mesh, seed: int = 0) -> None:
        initial = Initial(seed)
        tp = "tp" if mesh.shape[1] > 1 else None
        self.up = column(mesh, WIDTH, 16, initial, tp)
        self.down = row(mesh, 16, WIDTH, initial, tp)

    def forward(self, x):
        return self.down(ttnn.gelu(self.up(x)))


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    shape = (ROWS, 1, TOKENS, WIDTH)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def opened(*shape: int):
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    mesh.axis_names = ("dp", "tp")
    return mesh


@pytest.fixture(scope="module", autouse=True)
def mesh() -> Iterator[ttnn.MeshDevice]:
    """One for all tests, under a fabric; nothing else is open before, nothing is left after."""
    for other in open_meshes():
        other.close()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny tensors: threads that wait for each other would take most of the time
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with opened(2, 4) as mesh:
        yield mesh
    torch.set_num_threads(threads)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)


def trainer(mesh, batches=batch, *, lr: float = 0.05, seed: int = 0, **options) -> Trainer:
    model = Net(mesh, seed)
    options = {"loss": mse_loss, "log_every": 0} | options
    return Trainer(model, AdamW(model, lr=lr), batches, **options)


def parameters(trained: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.view_data().detach().clone() for name, tensor in trained.model.named_parameters()}


def same_bits(one: Trainer, other: Trainer) -> bool:
    mine, theirs = parameters(one), parameters(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (2, 2), (8, 1)])
def test_every_mesh_trains_to_the_same_losses(shape):
    with opened(1, 1) as one, opened(*shape) as mesh:
        alone = trainer(one).train(4)
        assert alone[-1] < alone[0]
        assert trainer(mesh).train(4) == pytest.approx(alone, rel=1e-5)


def test_gradients_reduced_on_the_host_and_by_the_fabric_give_the_same_losses(mesh):
    assert trainer(mesh, sync="host").train(3) == pytest.approx(trainer(mesh, sync="fabric").train(3), rel=1e-6)


def test_accumulated_batches_count_as_one(mesh):
    halves = [(x[i::2], y[i::2]) for x, y in map(batch, range(3)) for i in range(2)]
    assert trainer(mesh, halves, accumulate=2).train(3) == pytest.approx(trainer(mesh).train(3), rel=1e-5)


def test_the_model_may_bring_its_own_loss(mesh):
    class WithLoss(Net):
        def forward(self, x, target):
            return mse_loss(super().forward(x), target)

    model = WithLoss(mesh)
    losses = Trainer(model, AdamW(model, lr=0.05), batch, log_every=0).train(2)
    assert losses == trainer(mesh).train(2)


def test_rows_may_be_split_over_two_axes(mesh):
    class Everywhere(Net):
        def __init__(self, mesh) -> None:
            initial = Initial(0)
            self.up, self.down = (column(mesh, a, b, initial, None) for a, b in ((WIDTH, 16), (16, WIDTH)))

    model = Everywhere(mesh)
    both = Trainer(model, AdamW(model, lr=0.05), batch, loss=mse_loss, axes=("dp", "tp"), log_every=0)
    assert both.train(3) == pytest.approx(trainer(mesh).train(3), rel=1e-5)


def test_each_step_is_a_line_that_tools_can_read(mesh, capsys):
    losses = trainer(mesh, log_every=2).train(4)
    found = [LINE.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
    assert [int(match[1]) for match in found] == [2, 4]
    assert [float(match[2]) for match in found] == pytest.approx(losses[1::2], abs=1e-6)
    trainer(mesh, log_every=0).train(1)
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_instead_of_lines(mesh, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for wants, expected in ((True, "3/3 loss "), (False, "Step: 3, Loss: ")):
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        trainer(mesh, progress=wants, log_every=1).train(3)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
        assert expected in text
        assert ("Step:" in text) is not wants


def test_metrics_are_a_line_of_json_for_each_step(mesh, tmp_path):
    path = tmp_path / "logs" / "metrics.jsonl"
    model = Net(mesh)
    optimizer = SGD(model, 1.0)
    schedule = Scheduler(optimizer, linear(4))
    losses = Trainer(model, optimizer, batch, loss=mse_loss, scheduler=schedule, metrics=path, log_every=0).train(3)
    lines = lines_of(path)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [line["loss"] for line in lines] == losses
    assert [line["lr"] for line in lines] == [1.0, 0.75, 0.5]
    assert all(line["grad_norm"] > 0 and line["samples_per_s"] > 0 for line in lines)
    # one all_reduce forward, one for each of four parameters; no gradient is asked for x
    weights = 4 * (WIDTH * 16 // 4 + 16 // 4 + 16 * WIDTH // 4 + WIDTH)
    activations = 4 * ROWS // 2 * TOKENS * WIDTH
    found = lines[0]["collectives"]
    assert found["by_name"]["all_reduce"] == {"calls": 5, "bytes": weights + activations}
    assert (found["calls"], found["bytes"]) == (5, weights + activations)


def test_tokens_in_a_second_are_told_of_ids(mesh, tmp_path):
    class Ids(Net):
        def forward(self, ids):
            wide = ttnn.typecast(ttnn.to_layout(ids, ttnn.TILE_LAYOUT), ttnn.float32)
            return super().forward(ttnn.reshape(wide, (ROWS // 2, 1, 1, WIDTH)))

    model = Ids(mesh)
    data = [(torch.ones(ROWS, WIDTH, dtype=torch.int64), batch(0)[1][:, :, :1])]
    Trainer(model, SGD(model, 0.1), data, loss=mse_loss, metrics=tmp_path / "m", log_every=0).train(1)
    (line,) = lines_of(tmp_path / "m")
    assert line["tokens_per_s"] == pytest.approx(WIDTH * line["samples_per_s"], rel=1e-3)


def test_gradients_are_clipped_before_they_are_applied(mesh, tmp_path):
    path = tmp_path / "metrics"
    norms = []

    class Norms:
        def on_before_optimizer_step(self, trainer):
            squares = [t.grad.view_data().square().sum() for t in trainer.model.parameters()]
            norms.append(float(torch.stack(squares).sum().sqrt()))

    trainer(mesh, max_grad_norm=1e-3, metrics=path, callbacks=[Norms()]).train(2)
    assert norms == pytest.approx([1e-3, 1e-3], rel=1e-3)
    assert all(line["grad_norm"] > 1e-2 for line in lines_of(path))


def test_callbacks_are_told_in_order(mesh, tmp_path):
    told = []

    def noting(event: str):
        return lambda self, trainer, *rest: told.append((event, trainer.step))

    All = type("All", (TrainerCallback,), {event: noting(event) for event in EVENTS})
    trainer(mesh, callbacks=[All()], accumulate=2, checkpoint_dir=tmp_path, save_every=2).train(2)
    step = ["after_forward", "after_forward", "after_backward", "before_optimizer_step"]
    names = ["train_begin", *step, "step_end", *step, "step_end", "save", "train_end"]
    assert [name.removeprefix("on_") for name, _ in told] == names
    assert [done for _, done in told] == [0] * 5 + [1] * 5 + [2] * 3


class Misspelt:
    def on_stepend(self, trainer):
        raise AssertionError


@pytest.mark.parametrize(
    ("callback", "words"),
    [(Misspelt(), "'on_stepend' is never called. Did you mean 'on_step_end'?"), (object(), "has none.")],
)
def test_a_callback_that_is_never_called_is_refused(mesh, callback, words):
    with pytest.raises(ArgumentError, match=re.escape(words)):
        trainer(mesh, callbacks=[callback])


class Poisoned:
    """Batches whose last rows, those of the second half of the devices, are no numbers in one step."""

    def __init__(self, at: int, value: float = float("nan")) -> None:
        self.at, self.value = at, value

    def __call__(self, number: int):
        x, y = batch(number)
        if number == self.at:
            y[ROWS // 2 :] = self.value
        return x, y


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_an_event_with_step_devices_and_checkpoint(mesh, tmp_path, value):
    path = tmp_path / "metrics"
    options = {"checkpoint_dir": tmp_path / "run", "save_every": 1, "metrics": path}
    trained = trainer(mesh, Poisoned(2, value), **options)
    trained.train(2)
    before, kept = parameters(trained), latest(tmp_path / "run")
    with pytest.raises(
        NotFiniteLoss, match=rf"loss of step 3 is {value} on 4 devices: \(1, 0\).*{kept.name}"
    ) as caught:
        trained.train(5)
    assert (caught.value.step, caught.value.devices) == (3, [(1, i) for i in range(4)])
    assert all(torch.equal(value, before[name]) for name, value in parameters(trained).items())
    assert all(tensor.grad is None for tensor in trained.model.parameters())
    assert latest(tmp_path / "run") == kept
    assert lines_of(path)[-1]["event"] == "NotFiniteLoss"
    healthy = trainer(mesh, **options)
    assert healthy.resume() == 2
    assert len(healthy.train(4)) == 2


def test_without_a_checkpoint_the_event_says_so(mesh):
    with pytest.raises(NotFiniteLoss, match=r"no checkpoint was saved \(checkpoint_dir="):
        trainer(mesh, Poisoned(0)).train(1)


def test_gradients_that_are_no_numbers_are_an_event_that_names_the_parameter(mesh):
    def steep(out, target):
        return mse_loss(ttnn.sqrt(ttnn.multiply(out, 0.0)), target)

    trained = trainer(mesh, loss=steep, max_grad_norm=1.0)
    before = parameters(trained)
    with pytest.raises(NotFiniteGradient, match=r"gradients of step 1 is nan: that of up.weight is not finite"):
        trained.train(1)
    assert all(torch.equal(value, before[name]) for name, value in parameters(trained).items())


def test_a_batch_that_does_not_divide_is_refused_with_the_numbers():
    with (
        opened(8, 1) as mesh,
        pytest.raises(
            MeshError,
            match=r"batch of step 1, dim 0 of \[6, 1, 4, 8\]: 6 does not divide among the 8 devices .* 'dp'",
        ),
    ):
        trainer(mesh, lambda number: tuple(part[:6] for part in batch(number))).train(1)


def test_an_axis_that_is_not_there_is_refused_before_any_step(mesh):
    with pytest.raises(ArgumentValueError, match=r"'dpp'.*axes of .* are 'dp', 'tp'. Did you mean 'dp'"):
        trainer(mesh, axes=("dpp",))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sync": "magic"}, 'sync must be "host" or "fabric"'),
        ({"accumulate": 0}, "accumulate must be a whole number of at least 1"),
        ({"save_every": 3}, "needs a checkpoint_dir"),
        ({"batches": 5}, "batches must be a list"),
        ({"loss": None}, "the loss must be a single value on each device"),
        ({"batches": []}, "batches is empty"),
        ({"batches": [("a", "b")]}, "batch 0 must be a torch tensor or several"),
        ({"batches": iter([batch(0)])}, "batches ended after 1, and begin no second time"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_words(mesh, options, words):
    if options.get("loss", ...) is None:
        options = {"batches": lambda number: batch(number)[:1]} | options
    with pytest.raises((MeshError, ArgumentError, ArgumentValueError), match=re.escape(words)):
        trainer(mesh, **options).train(3)


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 5 * ROWS

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = batch(i)
        return x[0], y[0]


def shuffled(seed: int | None) -> torch.utils.data.DataLoader:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return torch.utils.data.DataLoader(Rows(), batch_size=ROWS, shuffle=True, generator=generator)


class Counting:
    """Knows itself which batch comes next."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self):
        while True:
            self.at += 1
            yield batch(self.at - 1)

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


KINDS = {
    "function": lambda: batch,
    "list": lambda: [batch(i) for i in range(3)],
    "generator": lambda: (batch(i) for i in range(99)),
    "shuffled loader": lambda: shuffled(None),
    "loader with a generator": lambda: shuffled(4),
    "stateful": Counting,
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_run_that_is_taken_up_again_has_the_bits_of_one_that_was_not_broken_off(mesh, tmp_path, kind):
    torch.manual_seed(0)
    unbroken = trainer(mesh, KINDS[kind](), accumulate=2)
    losses = unbroken.train(8)
    torch.manual_seed(0)
    options = {"accumulate": 2, "checkpoint_dir": tmp_path, "save_every": 3}
    broken = trainer(mesh, KINDS[kind](), **options)
    assert broken.resume() == 0
    broken.train(3)
    broken.save_every = 0
    broken.train(5)  # two steps that are lost
    torch.manual_seed(99)
    again = trainer(mesh, KINDS[kind](), seed=1, **options)
    assert again.resume() == 3
    assert again.train(8) == losses[3:]
    assert same_bits(again, unbroken)


def test_a_run_goes_back_to_an_earlier_step(mesh, tmp_path):
    options = {"checkpoint_dir": tmp_path, "save_every": 1, "keep": None}
    losses = trainer(mesh, **options).train(4)
    again = trainer(mesh, seed=1, **options)
    assert again.resume(step=1) == 1
    assert again.train(4) == losses[1:]
    with pytest.raises(MeshError, match="no checkpoint of step 9"):
        again.resume(step=9)


def test_a_run_goes_on_on_another_mesh(tmp_path):
    options = {"checkpoint_dir": tmp_path, "save_every": 2}
    with opened(2, 4) as mesh:
        losses = trainer(mesh, **options).train(2)
        expected = trainer(mesh).train(5)
    assert losses == expected[:2]
    with opened(4, 1) as mesh:
        again = trainer(mesh, seed=1, **options)
        assert again.resume() == 2
        assert again.train(5) == pytest.approx(expected[2:], rel=1e-5)


def test_metrics_of_steps_that_are_done_again_are_told_once(mesh, tmp_path):
    path = tmp_path / "metrics"
    options = {"checkpoint_dir": tmp_path / "run", "metrics": path}
    first = trainer(mesh, **options)
    first.train(2)
    first.save()
    first.train(4)
    with path.open("a") as file:
        file.write('{"step": 5, "lo')  # cut off by a crash
    again = trainer(mesh, **options)
    again.resume()
    again.train(5)
    assert [line["step"] for line in lines_of(path)] == [1, 2, 3, 4, 5]


def test_a_checkpoint_that_no_trainer_saved_is_not_taken_up(mesh, tmp_path):
    model = Net(mesh, seed=5)
    save(tmp_path, model, AdamW(model), step=3)
    trained = trainer(mesh, checkpoint_dir=tmp_path)
    before = parameters(trained)
    with pytest.raises(MeshError, match="was not saved by a Trainer"):
        trained.resume()
    assert all(torch.equal(value, before[name]) for name, value in parameters(trained).items())


def test_without_a_folder_there_is_nothing_to_save_into_or_resume_from(mesh):
    for call in (Trainer.save, Trainer.resume):
        with pytest.raises(ArgumentError, match="needs a checkpoint_dir"):
            call(trainer(mesh))


def test_only_the_last_checkpoints_are_kept(mesh, tmp_path):
    trainer(mesh, checkpoint_dir=tmp_path, save_every=1, keep=2).train(4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]
