"""Gradients combined over mesh axes, on the host and over the fabric; and their norm, however parameters are split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from small_models import GPT, batch, opened

import softmesh as ttnn
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.placement.placements import Partial
from softmesh.train import Linear, Module, clip_grad_norm, parameter, sync_gradients
from softmesh.train.equivalence.values import Value, whole
from softmesh.train.layers import Initial


@pytest.fixture
def grid() -> Iterator[ttnn.MeshDevice]:
    with opened(2, 4) as mesh:
        yield mesh


def with_gradients(grid: ttnn.MeshDevice, splits: dict[str | int, int] | None = None) -> GPT:
    model = GPT(grid, blocks=1)
    model(*batch(grid, splits)).backward()
    return model


def gradients(model: Module) -> dict[str, torch.Tensor]:
    return {name: whole(name, Value.of(tensor.grad)).clone() for name, tensor in model.named_parameters()}


class Commands:
    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def on_command(self, command: ttnn.Command) -> None:
        self.names[command.name] += 1


@pytest.mark.parametrize("average", [False, True], ids=["sum", "average"])
def test_host_and_fabric_come_to_the_same(grid: ttnn.MeshDevice, average: bool) -> None:
    by_host, by_fabric = with_gradients(grid), with_gradients(grid)
    contributions = {name: tensor.grad.view_data().clone() for name, tensor in by_host.named_parameters()}
    on_host = sync_gradients(by_host, ["dp"], mode="host", average=average)
    with ttnn.observe(Commands()) as seen:
        on_fabric = sync_gradients(by_fabric, ["dp"], mode="fabric", average=average)
    count = len(contributions)
    assert on_host == on_fabric
    assert on_host.calls == seen.names["all_reduce"] == count
    assert on_host.bytes == sum(4 * tensor.logical_volume() for tensor in by_host.parameters())
    ours, theirs = gradients(by_host), gradients(by_fabric)
    for name, tensor in by_host.named_parameters():
        assert torch.equal(ours[name], theirs[name])
        expected = contributions[name].sum(0) / (2 if average else 1)
        assert torch.allclose(tensor.grad.view_data()[0], expected, atol=1e-9)
        assert not any(isinstance(word, Partial) for word in ttnn.placements(tensor.grad))


def test_host_mode_sends_nothing(grid: ttnn.MeshDevice) -> None:
    model = with_gradients(grid)
    with ttnn.observe(Commands()) as seen:
        sync_gradients(model, ["dp"], mode="host")
    assert not seen.names


def test_what_is_combined_already_is_left_alone(grid: ttnn.MeshDevice) -> None:
    model = with_gradients(grid)
    sync_gradients(model, ["dp"])
    once = gradients(model)
    with pytest.warns(ttnn.SoftmeshWarning, match="was added up over the 2 devices along mesh axis 0 before, at "):
        again = sync_gradients(model, ["dp", "tp", 0], average=True)
    assert (again.calls, again.bytes) == (0, 0)
    after = gradients(model)
    assert all(torch.equal(once[name], after[name]) for name in once)


def test_an_axis_may_be_one_name_or_one_number(grid: ttnn.MeshDevice) -> None:
    by_name, by_number = with_gradients(grid), with_gradients(grid)
    assert sync_gradients(by_name, "dp") == sync_gradients(by_number.named_parameters(), 0)
    assert all(
        torch.equal(a, b) for a, b in zip(gradients(by_name).values(), gradients(by_number).values(), strict=True)
    )


def test_bfloat16_contributions_are_added_up_in_float32_on_the_host(grid: ttnn.MeshDevice) -> None:
    shared = parameter(torch.zeros(1, 1, 1, 8), grid, dtype=ttnn.bfloat16)
    contributions = torch.tensor([1.0, 1 / 256, 1 / 256, 1 / 256]).bfloat16()
    shared.storage.gradient = contributions.reshape(1, 4, 1, 1, 1, 1).expand(1, 4, 1, 1, 1, 8).clone()
    sync_gradients([shared], ["tp"], mode="host", average=False)
    assert float(shared.grad.view_data().flatten()[0]) == float(contributions.float().sum().bfloat16())


def test_bad_input_changes_no_gradient(grid: ttnn.MeshDevice) -> None:
    model = with_gradients(grid)
    model.unused = Linear(grid, 8, 8, Initial())
    before = model.norm.weight.grad.view_data().clone()
    with pytest.raises(MeshError, match=r"unused\.weight has no gradient: it took no part in the loss"):
        sync_gradients(model, ["dp"])
    del model.unused
    with pytest.raises(ArgumentValueError, match=r"'dq': the axes of .* are 'dp', 'tp'. Did you mean 'dp'"):
        sync_gradients(model, ["dp", "dq"])
    with pytest.raises(ArgumentValueError, match='mode must be "host" or "fabric", got \'gloo\''):
        sync_gradients(model, ["dp"], mode="gloo")
    host = ttnn.from_torch(torch.zeros(1, 1, 1, 8)).requires_grad_()
    with pytest.raises(MeshError, match="parameter 0 is not on a mesh"):
        sync_gradients([host], ["dp"])
    assert torch.equal(model.norm.weight.grad.view_data(), before)


@pytest.mark.parametrize("shape", [(1, 8), (8, 1), (2, 4)], ids=["tp", "dp", "dp x tp"])
def test_the_norm_is_torchs_over_the_whole_gradients(shape: tuple[int, int]) -> None:
    with opened(*shape) as mesh:
        model = GPT(mesh, blocks=1)
        model(*batch(mesh)).backward()
        sync_gradients(model, ["dp"])
        whole_ones = [values.clone().requires_grad_() for values in gradients(model).values()]
        for leaf, values in zip(whole_ones, gradients(model).values(), strict=True):
            leaf.grad = values
        expected = float(torch.nn.utils.clip_grad_norm_(whole_ones, 0.5))
        assert clip_grad_norm(model, 0.5) == pytest.approx(expected, rel=1e-5)
        for leaf, values in zip(whole_ones, gradients(model).values(), strict=True):
            assert torch.allclose(values, leaf.grad, rtol=1e-4, atol=1e-7)
        assert clip_grad_norm(model, 1.0) == pytest.approx(0.5, rel=1e-5)
        assert clip_grad_norm(model, 1.0) == pytest.approx(0.5, rel=1e-5)


def test_the_norm_of_bfloat16_gradients_is_taken_in_float32(grid: ttnn.MeshDevice) -> None:
    leaf = parameter(torch.zeros(1, 1, 64, 64), grid, {"tp": 2}, ttnn.bfloat16)
    leaf.grad = parameter(torch.full((1, 1, 64, 64), 1.0), grid, {"tp": 2}, ttnn.bfloat16).detach()
    assert clip_grad_norm([leaf], 1e9) == 64.0


def test_a_norm_of_contributions_is_refused(grid: ttnn.MeshDevice) -> None:
    model = with_gradients(grid)
    with pytest.raises(MeshError, match=r"is still Partial\(sum\) over mesh axis 'dp'.*axes=\['dp'\]\) first"):
        clip_grad_norm(model, 1.0)
    with pytest.raises(ArgumentValueError, match="max_norm must be positive, got 0"):
        clip_grad_norm(model, 0)
    model.zero_grad()
    with pytest.raises(MeshError, match="no parameter has a gradient"):
        clip_grad_norm(model, 1.0)


def test_three_axes_are_combined_one_by_one() -> None:
    """Contributions along two of three axes, and none along the third."""
    with opened(2, 2, 2, names=("dp", "fsdp", "tp")) as mesh:
        spread = [parameter(torch.zeros(1, 1, 1, 8), mesh)]
        contributions = torch.arange(4.0).reshape(2, 2, 1, 1, 1, 1, 1).expand(2, 2, 1, 1, 1, 1, 8).clone()
        for mode in ("fabric", "host"):
            spread[0].storage.gradient = contributions
            assert sync_gradients(spread, ["dp"], mode).calls == 1
            assert isinstance(ttnn.placements(spread[0].grad)[1], Partial)
            assert sync_gradients(spread, ["fsdp", "tp"], mode).calls == 1
            assert torch.equal(spread[0].grad.view_data().flatten(), torch.full((8,), 1.5))
