"""train.check: passes what is right on every mesh, and names what is not by op, parameter, device, axis and remedy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from small_models import GPT, batch, opened

import softmesh as ttnn
from softmesh.errors import MeshError
from softmesh.train import (
    ColumnParallelLinear,
    Linear,
    Module,
    RowParallelLinear,
    Sequential,
    VocabParallelEmbedding,
    all_reduce,
    cross_entropy,
    mse_loss,
    on_mesh,
    parameter,
    recomputed,
    sync_gradients,
    training_ops,
    vocab_parallel_cross_entropy,
)
from softmesh.train.check import CheckFailed, check
from softmesh.train.context_parallel import ContextParallelBlock
from softmesh.train.fsdp import fully_shard
from softmesh.train.layers import Initial

LAYOUTS = [(1, 8), (2, 4), (8, 1)]


@pytest.fixture
def gpt() -> Iterator[GPT]:
    with opened(2, 4) as mesh:
        yield with_biases(GPT(mesh))


def with_biases(model: GPT) -> GPT:
    """Not zero, so that adding one twice is seen."""
    for name, tensor in model.named_parameters():
        if name.endswith("bias"):
            tensor.storage.data.detach().add_(0.1)
    return model


def mesh_of(model: Module) -> ttnn.MeshDevice:
    device = model.parameters()[0].device()
    assert device is not None
    return device


@pytest.mark.parametrize("shape", LAYOUTS)
def test_a_gpt_computes_on_every_mesh_what_it_computes_on_one_device(shape: tuple[int, int]) -> None:
    with opened(*shape) as mesh:
        report = check(GPT(mesh), batch(mesh), sync=["dp"])
        assert report.ok, report
        report.raise_if_wrong()
        assert report.first is None
        assert report.compared["gradients of parameters"] == len(GPT(mesh).parameters())
        assert report.compared["values"] > 40
        assert report.compared["gradients of values"] > 40
        assert report.largest < 1e-5
        assert "computes what one device computes" in str(report)


def test_a_bfloat16_gpt_passes() -> None:
    with opened(2, 4) as mesh:
        model = GPT(mesh, blocks=1, dtype=ttnn.bfloat16)
        check(model, batch(mesh), sync=["dp"]).raise_if_wrong()


def test_three_axes_pass_and_unnamed_axes_do() -> None:
    with opened(2, 2, 2, names=("dp", "cp", "tp")) as mesh:
        check(GPT(mesh, blocks=1), batch(mesh, {"dp": 0}), sync=["dp"]).raise_if_wrong()
    with opened(2, 4, names=()) as mesh:
        check(GPT(mesh, tp=1, blocks=1), batch(mesh), sync=[0]).raise_if_wrong()


def test_sharded_parameters_and_recomputed_blocks_pass() -> None:
    with opened(2, 4, names=("fsdp", "tp")) as mesh:
        model = GPT(mesh, blocks=1)
        fully_shard(model.blocks[0])
        fully_shard(model)
        check(model, batch(mesh), sync=["fsdp"]).raise_if_wrong()
    with opened(2, 4) as mesh:
        model = GPT(mesh, blocks=1)
        check(model, batch(mesh), loss=recomputing, sync=["dp"]).raise_if_wrong()


def recomputing(model: GPT, ids: ttnn.Tensor, targets: ttnn.Tensor) -> ttnn.Tensor:
    x = recomputed(model.blocks[0], ttnn.add(model.embedding(ids), model.positions))
    logits = model.head(model.norm(x))
    return cross_entropy(logits, targets) if model.tp is None else vocab_parallel_cross_entropy(logits, targets, "tp")


def test_a_sequence_split_over_a_ring_passes_and_its_forgotten_sync_is_named() -> None:
    with opened(2, 4, names=("dp", "cp")) as mesh:
        model = ContextParallelBlock(mesh, 16, 4, Initial(), cp="cp")
        x = on_mesh(torch.randn(2, 1, 8, 16), mesh, {"dp": 0, "cp": 2}, layout=ttnn.TILE_LAYOUT)

        def loss(model: Module, x: ttnn.Tensor) -> ttnn.Tensor:
            return mse_loss(model(x), ttnn.multiply(x, 0.5))

        check(model, x, loss=loss, sync=["dp", "cp"]).raise_if_wrong()
        findings = check(model, x, loss=loss, sync=["dp"]).findings
        assert {finding.axis for finding in findings} == {"cp"}


def row_without_reduce(self: RowParallelLinear, x: ttnn.Tensor) -> ttnn.Tensor:
    return ttnn.add(ttnn.linear(x, self.weight, transpose_b=True), self.bias)


def row_with_bias_inside(self: RowParallelLinear, x: ttnn.Tensor) -> ttnn.Tensor:
    return all_reduce(Linear.forward(self, x), self.axis, noop_backward=True)


def row_reduced_backwards_too(self: RowParallelLinear, x: ttnn.Tensor) -> ttnn.Tensor:
    return ttnn.add(all_reduce(ttnn.linear(x, self.weight, transpose_b=True), self.axis), self.bias)


def row_reduced_twice(self: RowParallelLinear, x: ttnn.Tensor) -> ttnn.Tensor:
    out = ttnn.linear(x, self.weight, transpose_b=True)
    once = all_reduce(out, self.axis, noop_backward=True)
    return ttnn.add(all_reduce(once, self.axis, noop_backward=True), self.bias)


def embedding_without_reduce(self: VocabParallelEmbedding, ids: ttnn.Tensor) -> ttnn.Tensor:
    found = training_ops.own_embedding(ids, self.weight, self._first)
    return ttnn.reshape(found, (int(ids.shape[0]), 1, int(ids.shape[1]), int(found.shape[-1])))


def column_without_broadcast(self: ColumnParallelLinear, x: ttnn.Tensor) -> ttnn.Tensor:
    return Linear.forward(self, x)


@pytest.mark.parametrize("shape", [(1, 8), (2, 4)])
def test_the_forgotten_all_reduce_of_a_row_parallel_layer_is_named(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowParallelLinear, "forward", row_without_reduce)
    with opened(*shape) as mesh:
        report = check(with_biases(GPT(mesh)), batch(mesh), sync=["dp"])
    (finding,) = report.findings
    assert finding.phase == "forward"
    assert finding.path == "blocks.0.attention.out"
    assert "add" in finding.what
    assert finding.site.startswith("test_train_check.py:")
    assert finding.axis == "tp"
    assert "Partial(sum)" in finding.placement
    assert "missing all_reduce over mesh axis 'tp'" in finding.message
    assert "linear (test_train_check.py:" in finding.message
    assert "all_reduce(x, 'tp', noop_backward=True)" in finding.message


def test_a_forgotten_reduce_is_named_in_strict_mode_too(gpt: GPT, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    monkeypatch.setattr(RowParallelLinear, "forward", row_without_reduce)
    (finding,) = check(gpt, batch(mesh_of(gpt))).findings
    assert finding.path == "blocks.0.attention.out"
    assert "missing all_reduce over mesh axis 'tp'" in finding.message


def test_a_bias_added_before_the_reduce_is_named(gpt: GPT, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowParallelLinear, "forward", row_with_bias_inside)
    (finding,) = check(gpt, batch(mesh_of(gpt))).findings
    assert "linear" in finding.what
    assert "missing all_reduce over mesh axis 'tp' inside linear" in finding.message
    assert "the whole bias" in finding.message


def test_a_second_all_reduce_is_named(gpt: GPT, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowParallelLinear, "forward", row_reduced_twice)
    (finding,) = check(gpt, batch(mesh_of(gpt))).findings
    devices = mesh_of(gpt).shape[1]
    assert "all_reduce" in finding.what
    assert finding.path == "blocks.0.attention.out"
    assert finding.site.startswith("test_train_check.py:")
    assert f"adds up {devices} equal values" in finding.message
    assert len(finding.devices) == 8
    assert finding.difference is not None
    assert finding.difference > 0.5


def test_the_forgotten_all_reduce_of_a_split_embedding_is_named(gpt: GPT, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VocabParallelEmbedding, "forward", embedding_without_reduce)
    (finding,) = check(gpt, batch(mesh_of(gpt))).findings
    assert "add" in finding.what
    assert finding.site.startswith("small_models.py:")
    assert "missing all_reduce over mesh axis 'tp'" in finding.message
    assert "train.own_embedding (test_train_check.py:" in finding.message
    assert "in embedding)" in finding.message


@pytest.mark.filterwarnings("ignore:backward. the gradient that comes to all_reduce")
def test_a_forgotten_broadcast_is_named_where_the_gradient_branches(gpt: GPT, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ColumnParallelLinear, "forward", column_without_broadcast)
    report = check(gpt, batch(mesh_of(gpt)), sync=["dp"])
    first = report.first
    assert first is not None
    assert first.phase == "backward"
    assert first.path == "head"
    assert first.axis == "tp"
    assert "missing broadcast over mesh axis 'tp'" in first.message
    assert "broadcast(x, 'tp') where x enters head" in first.message
    by_name = {finding.what: finding.message for finding in report.findings}
    assert "sync_gradients(model, axes=['tp'], average=False)" in by_name["norm.weight"]
    assert "broadcast(x, 'tp') where x enters blocks.1.mlp.up" in by_name["blocks.1.norm_2.weight"]
    assert "head.weight" not in by_name


@pytest.mark.filterwarnings("ignore:backward. the gradient that comes to all_reduce")
def test_a_gradient_that_is_reduced_backwards_once_too_often_is_so_many_times_too_big(
    gpt: GPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowParallelLinear, "forward", row_reduced_backwards_too)
    report = check(gpt, batch(mesh_of(gpt)), sync=["dp"])
    devices = mesh_of(gpt).shape[1]
    first = report.first
    assert first is not None
    assert first.phase == "backward"
    assert first.what == "gradient of input of blocks.1.mlp.down"
    assert first.axis == "tp"
    assert f"{devices} times what it should be" in first.message
    assert "all_reduce(x, 'tp', noop_backward=True) in blocks.1.mlp.down" in first.message
    by_name = {finding.what: finding.message for finding in report.findings}
    assert f"{devices} times" in by_name["blocks.1.mlp.down.weight"]
    assert "head.weight" not in by_name


def test_forgotten_sync_gradients_is_named_for_each_parameter() -> None:
    with opened(2, 4) as mesh:
        model = GPT(mesh, blocks=1)
        report = check(model, batch(mesh))
        assert [finding.what for finding in report.findings] == [name for name, _ in model.named_parameters()]
        for finding in report.findings:
            assert finding.axis == "dp"
            assert "still Partial(sum) over mesh axis 'dp'" in finding.message
            assert "sync_gradients(model, axes=['dp'])" in finding.message


def test_gradients_that_are_summed_instead_of_averaged_are_named() -> None:
    with opened(2, 4) as mesh:
        report = check(GPT(mesh, blocks=1), batch(mesh), sync=lambda model: sync_gradients(model, average=False))
        first = report.first
        assert first is not None
        assert first.phase == "gradient"
        assert "2 times what it should be: along 'dp'" in first.message
        assert "sync_gradients(model, axes=['dp'], average=True)" in first.message


def test_a_parameter_that_came_apart_is_named() -> None:
    with opened(2, 4) as mesh:
        model = GPT(mesh, blocks=1)
        model.positions.storage.write_piece(5, torch.ones(1, 1, 8, 32))
        (first, *_) = check(model, batch(mesh)).findings
        assert (first.phase, first.what) == ("parameter", "positions")
        assert "come apart" in first.message


def test_the_first_device_that_differs_is_named() -> None:
    """An op that is wrong on one device only: a mask that is not the same on all."""
    with opened(1, 4) as mesh:

        class Masked(Module):
            def __init__(self, mesh: ttnn.MeshDevice, scales: list[float]) -> None:
                self.weight = parameter(torch.ones(1, 1, 8, 8), mesh)
                values = torch.tensor(scales).reshape(-1, 1, 1, 1)
                self.scale = on_mesh(values[: mesh.get_num_devices()], mesh, {"tp": 0}, layout=ttnn.TILE_LAYOUT)

            def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
                return mse_loss(ttnn.matmul(ttnn.multiply(x, self.scale), self.weight), x)

        model = Masked(mesh, [1.0, 1.0, 2.0, 1.0])
        x = on_mesh(torch.rand(1, 1, 8, 8), mesh, layout=ttnn.TILE_LAYOUT)
        (finding,) = check(model, x).findings
        assert "multiply" in finding.what
        assert tuple(finding.devices[0]) == (0, 2)


def test_the_loss_may_be_a_function_and_the_reference_a_factory() -> None:
    with opened(2, 4) as mesh:

        class Tied(Module):
            """Not made again from its arguments: the tie was made later."""

            def __init__(self, mesh: ttnn.MeshDevice) -> None:
                self.a = Linear(mesh, 8, 8, Initial(), bias=False)
                self.b = Linear(mesh, 8, 8, Initial(), bias=False)

            def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
                return self.b(self.a(x))

        def build(mesh: ttnn.MeshDevice) -> Tied:
            model = Tied(mesh)
            model.b.weight = model.a.weight
            return model

        x = on_mesh(torch.rand(4, 1, 8, 8), mesh, {"dp": 0}, layout=ttnn.TILE_LAYOUT)
        model = build(mesh)
        with pytest.raises(MeshError, match=r"'b.weight' is not in both.*reference=build"):
            check(model, x, loss=lambda model, x: mse_loss(model(x), x), sync=["dp"])
        check(model, x, loss=lambda model, x: mse_loss(model(x), x), sync=["dp"], reference=build).raise_if_wrong()


def test_a_sequence_of_layers_is_made_again_with_its_parts() -> None:
    with opened(2, 4) as mesh:
        model = Sequential(
            ColumnParallelLinear(mesh, 8, 16, Initial(1), axis="tp"),
            RowParallelLinear(mesh, 16, 8, Initial(2), axis="tp"),
        )
        x = on_mesh(torch.rand(4, 1, 8, 8), mesh, {"dp": 0}, layout=ttnn.TILE_LAYOUT)
        check(model, [x], loss=lambda model, x: mse_loss(model(x), x), sync="dp").raise_if_wrong()


def test_a_check_leaves_gradients_parameters_and_chance_as_they_were() -> None:
    with opened(2, 4) as mesh:
        model, tensors = GPT(mesh, blocks=1), batch(mesh)
        model(*tensors).backward()
        gradient, state = model.norm.weight.grad.view_data().clone(), torch.random.get_rng_state()
        values = model.head.weight.view_data().detach().clone()
        check(model, tensors, sync=["dp"])
        assert torch.equal(model.norm.weight.grad.view_data(), gradient)
        assert torch.equal(model.head.weight.view_data(), values)
        assert torch.equal(torch.random.get_rng_state(), state)


def test_a_parameter_without_a_gradient_is_told_of() -> None:
    with opened(2, 4) as mesh:
        model = GPT(mesh, blocks=1)
        model.unused = Linear(mesh, 8, 8, Initial())
        report = check(model, batch(mesh), sync=["dp"], reference=lambda mesh: with_unused(mesh))
        assert report.ok
        assert any("unused.weight takes no part in the loss" in note for note in report.notes)


def with_unused(mesh: ttnn.MeshDevice) -> GPT:
    model = GPT(mesh, blocks=1)
    model.unused = Linear(mesh, 8, 8, Initial())
    return model


def test_a_way_that_is_cut_on_the_mesh_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(2, 4) as mesh:
        model = GPT(mesh, blocks=1)
        forward = ColumnParallelLinear.forward

        def cut(self: ColumnParallelLinear, x: ttnn.Tensor) -> ttnn.Tensor:
            return forward(self, x).detach() if self is model.blocks[0].mlp.up else forward(self, x)

        monkeypatch.setattr(ColumnParallelLinear, "forward", cut)
        report = check(model, batch(mesh), sync=["dp"])
        messages = {finding.what: finding.message for finding in report.findings if finding.phase == "gradient"}
        assert "no gradient on the mesh" in messages["blocks.0.mlp.up.weight"]


@pytest.mark.filterwarnings("ignore:backward. the gradient that comes to all_reduce")
def test_what_is_wrong_is_raised_and_shown_as_a_table(gpt: GPT, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowParallelLinear, "forward", row_reduced_backwards_too)
    report = check(gpt, batch(mesh_of(gpt)), sync=["dp"])
    with pytest.raises(CheckFailed, match="noop_backward=True"):
        report.raise_if_wrong()
    lines = str(report).splitlines()
    assert "against one device" in lines[0]
    assert any("blocks.1.mlp.down.weight" in line and "│" in line for line in lines)
    assert max(map(len, (line for line in lines if "│" in line))) <= 120
    assert not isinstance(report.first, str)
    assert str(report.first).startswith("backward: gradient of input of blocks.1.mlp.down")


def test_a_check_warns_of_nothing_itself(gpt: GPT, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowParallelLinear, "forward", row_without_reduce)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not check(gpt, batch(mesh_of(gpt))).ok


def test_bad_input_is_refused_with_a_remedy(gpt: GPT) -> None:
    ids, targets = batch(mesh_of(gpt))
    with pytest.raises(MeshError, match=r"must be a softmesh.train.Module, got int"):
        check(3, ids)  # type: ignore[arg-type]
    with pytest.raises(MeshError, match="no parameters"):
        check(Sequential(), ids)
    with pytest.raises(MeshError, match=r"returned shape.*Give loss=function"):
        check(gpt, (ids, targets), loss=lambda model, ids, targets: model.embedding(ids))
    with pytest.raises(MeshError, match=r"returned NoneType"):
        check(gpt, (ids, targets), loss=lambda model, ids, targets: None)
    with pytest.raises(MeshError, match=r"reference\(mesh\) must return a Module, got NoneType"):
        check(gpt, (ids, targets), reference=lambda mesh: None)
    with pytest.raises(ValueError, match=r"the axes of .* are 'dp', 'tp'"):
        check(gpt, (ids, targets), sync=["pp"])
