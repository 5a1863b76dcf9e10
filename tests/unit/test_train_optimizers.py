"""Optimizers equal torch's on the same numbers; gradients that nobody combined are told of; schedules."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from small_models import GPT, batch, opened

import softmesh as ttnn
from softmesh.errors import ArgumentValueError, MeshError, PartialError, PartialWarning
from softmesh.train import SGD, AdamW, Optimizer, Scheduler, parameter, schedules, sync_gradients

OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (AdamW, torch.optim.AdamW, {"lr": 0.01}),
    "adamw tuned": (
        AdamW,
        torch.optim.AdamW,
        {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
    ),
    "sgd": (SGD, torch.optim.SGD, {"lr": 0.1}),
    "sgd decayed": (SGD, torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.05}),
    "sgd momentum": (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "sgd nesterov": (
        SGD,
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
}
SHAPES = [(1, 1, 8, 16), (1, 1, 1, 8)]


@pytest.fixture(scope="module")
def grid() -> Iterator[ttnn.MeshDevice]:
    with opened(2, 4) as mesh:
        yield mesh


def leaves(grid: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.float32) -> tuple[list[ttnn.Tensor], list[torch.Tensor]]:
    """A parameter that is split, one that is shared, and the same in torch."""
    chance = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=chance) for shape in SHAPES]
    ours = [parameter(values[0], grid, {"tp": 2}, dtype), parameter(values[1], grid, dtype=dtype)]
    return ours, [whole(tensor).float().clone().requires_grad_() for tensor in ours]


def whole(tensor: ttnn.Tensor) -> torch.Tensor:
    data = tensor.view_data().detach()
    return torch.cat(list(data[0]), 2) if data.shape[1] == 4 else data[0, 0]


def give_gradients(grid: ttnn.MeshDevice, ours: list[ttnn.Tensor], theirs: list[torch.Tensor], step: int) -> None:
    """The same ones to both, rounded as the parameters are."""
    chance = torch.Generator().manual_seed(100 + step)
    for mine, other, splits in zip(ours, theirs, ({"tp": 2}, {}), strict=True):
        gradient = torch.randn(other.shape, generator=chance)
        if mine.dtype is ttnn.bfloat16:
            gradient = gradient.bfloat16().float()
        mine.grad = parameter(gradient, grid, splits, mine.dtype).detach()
        other.grad = gradient


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_steps_are_torchs_steps(grid: ttnn.MeshDevice, name: str) -> None:
    make, reference, arguments = OPTIMIZERS[name]
    ours, theirs = leaves(grid)
    optimizer, other = make(ours, **arguments), reference(theirs, **arguments)
    for step in range(4):
        give_gradients(grid, ours, theirs, step)
        optimizer.step()
        other.step()
    for mine, expected in zip(ours, theirs, strict=True):
        assert torch.allclose(whole(mine), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "sgd momentum"])
def test_bfloat16_parameters_follow_masters_in_float32(grid: ttnn.MeshDevice, name: str) -> None:
    """Steps too small for bfloat16 to notice one by one add up in the masters."""
    make, reference, arguments = OPTIMIZERS[name]
    arguments = {**arguments, "lr": 1e-4}
    ours, theirs = leaves(grid, ttnn.bfloat16)
    optimizer, other = make(ours, **arguments), reference(theirs, **arguments)
    for step in range(30):
        give_gradients(grid, ours, theirs, step)
        optimizer.step()
        other.step()
    for mine, expected in zip(ours, theirs, strict=True):
        assert mine.dtype is ttnn.bfloat16
        assert torch.equal(whole(mine).float(), expected.detach().bfloat16().float())


def test_state_goes_on_where_it_was_saved(grid: ttnn.MeshDevice) -> None:
    ours, theirs = leaves(grid)
    first = AdamW(ours, lr=0.01)
    give_gradients(grid, ours, theirs, 0)
    first.step()
    saved = first.state_dict()
    second = AdamW(ours, lr=0.5)
    second.load_state_dict(saved)
    assert (second.get_lr(), second.get_steps()) == (0.01, 1)
    before = [whole(tensor).clone() for tensor in ours]
    give_gradients(grid, ours, theirs, 1)
    first.step()
    after = [whole(tensor).clone() for tensor in ours]
    for tensor, values in zip(ours, before, strict=True):
        splits = {"tp": 2} if values.shape[2] == 8 else {}
        tensor.storage.data.detach().copy_(parameter(values, grid, splits).view_data())
    second.step()
    assert all(torch.equal(whole(tensor), values) for tensor, values in zip(ours, after, strict=True))


def test_state_of_another_model_is_refused_by_name(grid: ttnn.MeshDevice) -> None:
    ours, theirs = leaves(grid)
    optimizer = SGD([("a", ours[0]), ("b", ours[1])], lr=0.1, momentum=0.9)
    give_gradients(grid, ours, theirs, 0)
    optimizer.step()
    saved = optimizer.state_dict()
    with pytest.raises(MeshError, match="no parameter 'a'"):
        SGD([("c", ours[0])], lr=0.1).load_state_dict(saved)
    with pytest.raises(MeshError, match=r"momentum of a has shape \[1, 4, 1, 1, 2, 16\]"):
        SGD([("b", ours[0]), ("a", ours[1])], lr=0.1).load_state_dict(saved)
    with pytest.raises(MeshError, match="no state of an optimizer"):
        optimizer.load_state_dict({"lr": 0.1})


def test_rates_can_be_set_and_steps_counted(grid: ttnn.MeshDevice) -> None:
    ours, theirs = leaves(grid)
    optimizer = SGD(ours, lr=0.1)
    give_gradients(grid, ours, theirs, 0)
    optimizer.set_lr(0.0)
    before = whole(ours[0]).clone()
    optimizer.step()
    assert torch.equal(whole(ours[0]), before)
    assert optimizer.get_steps() == 1
    optimizer.set_steps(7)
    assert optimizer.get_steps() == 7
    optimizer.zero_grad()
    assert ours[0].grad is None


def test_a_parameter_without_a_gradient_is_named_or_skipped(grid: ttnn.MeshDevice) -> None:
    ours, theirs = leaves(grid)
    give_gradients(grid, ours, theirs, 0)
    ours[1].grad = None
    pairs = [("weight", ours[0]), ("bias", ours[1])]
    before = [whole(tensor).clone() for tensor in ours]
    with pytest.raises(MeshError, match=r"SGD: bias has no gradient.*skip_missing=True"):
        SGD(pairs, lr=0.1).step()
    assert torch.equal(whole(ours[0]), before[0])
    SGD(pairs, lr=0.1, skip_missing=True).step()
    assert torch.equal(whole(ours[1]), before[1])
    assert not torch.equal(whole(ours[0]), before[0])


def test_bad_arguments_of_optimizers_are_refused(grid: ttnn.MeshDevice) -> None:
    ours, _ = leaves(grid)
    with pytest.raises(MeshError, match="needs parameters"):
        SGD([], lr=0.1)
    with pytest.raises(MeshError, match=r"a parameter is a ttnn\.Tensor, got int"):
        SGD([3], lr=0.1)  # type: ignore[list-item]
    with pytest.raises(ArgumentValueError, match="lr must not be negative"):
        SGD(ours, lr=-1.0)
    with pytest.raises(ArgumentValueError, match="nesterov needs a momentum"):
        SGD(ours, lr=0.1, nesterov=True)
    with pytest.raises(ArgumentValueError, match="betas must lie in"):
        AdamW(ours, betas=(0.9, 1.0))


def test_a_step_with_gradients_that_nobody_combined_warns_and_the_parameter_comes_apart(
    grid: ttnn.MeshDevice,
) -> None:
    model = GPT(grid, blocks=1)
    shared = model.norm.weight
    model(*batch(grid)).backward()
    optimizer = SGD(model, lr=1.0, momentum=0.9)
    with pytest.warns(PartialWarning) as warned:
        optimizer.step()
    message = next(text for one in warned if "norm.weight" in (text := str(one.message)) and "blocks" not in text)
    assert "SGD: the gradient of norm.weight is still Partial(sum) over mesh axis 'dp'" in message
    assert "softmesh.train.sync_gradients(params, axes=['dp'])" in message
    assert warned[0].filename == __file__
    pieces = shared.pieces().detach()
    assert not torch.equal(pieces[0], pieces[4])
    assert torch.equal(pieces[0], pieces[1])
    assert torch.allclose(1 - pieces[4], shared.grad.view_data()[1, 0], atol=1e-6)
    assert shared.requires_grad


def test_a_parameter_that_comes_apart_later_takes_its_state_with_it(grid: ttnn.MeshDevice) -> None:
    for dtype in (ttnn.float32, ttnn.bfloat16):
        model = GPT(grid, blocks=1, dtype=dtype)
        optimizer = AdamW(model, lr=0.01)
        model(*batch(grid)).backward()
        sync_gradients(model)
        optimizer.step()
        optimizer.zero_grad()
        model(*batch(grid)).backward()
        with pytest.warns(PartialWarning):
            optimizer.step()
        pieces = model.norm.weight.pieces().detach()
        assert not torch.equal(pieces[0], pieces[4])


def test_strict_mode_refuses_such_a_step_and_changes_nothing(
    grid: ttnn.MeshDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = GPT(grid, blocks=1)
    model(*batch(grid)).backward()
    before = model.head.weight.view_data().detach().clone()
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.raises(PartialError, match=r"over mesh axis 'dp'.*sync_gradients\(params, axes=\['dp'\]\)"):
        AdamW(model).step()
    assert torch.equal(model.head.weight.view_data(), before)
    sync_gradients(model, ["dp"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AdamW(model).step()


class Rate:
    lr = 2.0


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (schedules.constant(), [1.0, 1.0, 1.0, 1.0, 1.0]),
        (schedules.cosine(4), [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0.0]),
        (schedules.cosine(2, end=0.1), [1.0, 0.55, 0.1, 0.1, 0.1]),
        (schedules.linear(2), [1.0, 0.5, 0.0, 0.0, 0.0]),
        (schedules.linear(4, 0.0, 2.0), [0.0, 0.5, 1.0, 1.5, 2.0]),
        (schedules.stepwise(2, 0.5), [1.0, 1.0, 0.5, 0.5, 0.25]),
        (schedules.warmup(4), [0.25, 0.5, 0.75, 1.0, 1.0]),
        (schedules.sequential([(2, schedules.warmup(2))], schedules.linear(2)), [0.5, 1.0, 1.0, 0.5, 0.0]),
        (lambda step: 1 / (1 + step), [1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
    ],
    ids=[
        "constant",
        "cosine",
        "cosine to",
        "linear",
        "linear up",
        "stepwise",
        "warmup",
        "sequential",
        "function",
    ],
)
def test_schedules_set_the_rate_of_each_step(schedule: schedules.Schedule, expected: list[float]) -> None:
    optimizer = Rate()
    scheduler = Scheduler(optimizer, schedule)
    seen = []
    for _ in expected:
        seen.append(optimizer.lr / 2)
        scheduler.step()
    assert seen == pytest.approx(expected)


def test_a_schedule_goes_on_where_it_was_saved() -> None:
    first = Scheduler(Rate(), schedules.linear(10))
    for _ in range(3):
        first.step()
    optimizer = Rate()
    second = Scheduler(optimizer, schedules.linear(10))
    optimizer.lr = 99.0
    second.load_state_dict(first.state_dict())
    assert optimizer.lr == pytest.approx(1.4)
    second.step()
    assert optimizer.lr == pytest.approx(1.2)


@pytest.mark.parametrize(
    "make",
    [schedules.cosine, schedules.linear, schedules.stepwise, schedules.warmup],
    ids=["cosine", "linear", "stepwise", "warmup"],
)
def test_schedules_need_steps(make: Callable[[int], schedules.Schedule]) -> None:
    with pytest.raises(ArgumentValueError, match="at least 1 step, got 0"):
        make(0)
    with pytest.raises(ArgumentValueError, match="sequential: needs at least 1 step"):
        schedules.sequential([(0, schedules.constant())], schedules.constant())
