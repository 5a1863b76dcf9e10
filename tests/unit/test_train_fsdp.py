"""Parameters in pieces: gathered for use, their gradients reduced and dealt out."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from small_gpt import (
    BATCH,
    BLOCKS,
    GPT,
    Counted,
    batch,
    farthest,
    gradients,
    mean_loss,
    one_thread,
    opened,
    placed,
    whole,
)

import softmesh as ttnn
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.placement.placements import REPLICATE, Partial, Shard
from softmesh.train import (
    SGD,
    AdamW,
    Initial,
    Linear,
    Module,
    clip_grad_norm,
    mse_loss,
    no_grad,
    on_mesh,
    parameter,
    recomputed,
    sync_gradients,
)
from softmesh.train.fsdp import fully_shard

STEPS = 4
FORMS = {
    "dp2_fsdp4": ((2, 4), ("dp", "fsdp")),
    "fsdp2_tp4": ((2, 4), ("fsdp", "tp")),
    "fsdp8": ((1, 8), ("dp", "fsdp")),
    "tp4_fsdp2": ((4, 2), ("tp", "fsdp")),
}


@pytest.fixture(autouse=True)
def fabric(idle_machine: None) -> Iterator[None]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    with one_thread():
        yield


@pytest.fixture
def line(fabric: None) -> Iterator[ttnn.MeshDevice]:
    with opened(1, 4, "dp", "fsdp") as mesh:
        yield mesh


def sharded(model: GPT, **options: Any) -> GPT:
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def trained(model: GPT, mesh: ttnn.MeshDevice, axes: list[str]) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of some steps, and the gradients of the first."""
    optimizer = AdamW(model, lr=1e-2)
    losses, first = [], {}
    for step in range(STEPS):
        loss = model(*placed(batch(step), mesh, dict.fromkeys(axes, 0)))
        loss.backward()
        sync_gradients(model, axes=axes)
        first = first or gradients(model)
        clip_grad_norm(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean_loss(loss))
    return losses, first


@pytest.fixture(scope="module")
def alone() -> tuple[list[float], dict[str, torch.Tensor]]:
    with one_thread(), opened(1, 1, "dp", "tp") as mesh:
        return trained(GPT(mesh), mesh, ["dp"])


@pytest.mark.parametrize("form", sorted(FORMS))
def test_training_in_pieces_is_training_on_one_device(alone, form):
    shape, names = FORMS[form]
    with opened(*shape, *names) as mesh:
        model = sharded(GPT(mesh, tp="tp" if "tp" in names else None))
        losses, first = trained(model, mesh, [name for name in names if name != "tp"])
    assert losses == pytest.approx(alone[0], abs=1e-5)
    assert farthest(first, alone[1]) < 2e-6


def test_a_step_gathers_every_parameter_twice_and_reduces_its_gradient_once(line):
    model = sharded(GPT(line))
    with ttnn.observe(Counted()) as seen:
        model(*placed(batch(0), line, {"fsdp": 0})).backward()
    count = len(model.parameters())
    assert seen.names["all_gather"] == 2 * count
    assert seen.names["reduce_scatter"] == count


def test_parameters_that_stay_gathered_are_gathered_once_a_step(line):
    model = sharded(GPT(line), reshard_after_forward=False)
    ids = placed(batch(0), line, {"fsdp": 0})
    optimizer = SGD(model, lr=0.1)
    losses = []
    for _ in range(2):
        with ttnn.observe(Counted()) as seen:
            loss = model(*ids)
            loss.backward()
        assert seen.names["all_gather"] == seen.names["reduce_scatter"] == len(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean_loss(loss))
    assert losses[1] < losses[0]


def test_each_device_keeps_its_piece_of_the_longest_dim(line):
    layer = Linear(line, 32, 64, Initial(), bias=True)
    before = layer.weight.to_torch(ttnn.ConcatMeshToTensor(line, 0))[:1]
    fully_shard(layer)
    assert ttnn.placements(layer.weight) == (REPLICATE, Shard(2))
    assert ttnn.placements(layer.bias) == (REPLICATE, Shard(3))
    assert tuple(layer.weight.shape) == (1, 1, 16, 32)
    assert torch.equal(whole(layer.weight, layer.weight.view_data().detach()), before)


def test_what_does_not_divide_stays_whole_and_its_gradients_are_contributions(line):
    layer = fully_shard(Linear(line, 3, 5, Initial(), bias=False))
    assert ttnn.placements(layer.weight) == (REPLICATE, REPLICATE)
    x = on_mesh(torch.randn(4, 1, 8, 3), line, {"fsdp": 0}, ttnn.float32, ttnn.TILE_LAYOUT)
    mse_loss(layer(x), layer(x) * 0.5).backward()
    assert ttnn.placements(layer.weight.grad)[1] is Partial("sum")
    assert sync_gradients(layer, axes=["fsdp"]).calls == 1


def test_tensor_parallel_parameters_are_split_along_another_dim():
    with opened(2, 4, "fsdp", "tp") as mesh:
        model = sharded(GPT(mesh, tp="tp"))
        attention = model.blocks[0].attention
        assert ttnn.placements(attention.asking.weight) == (Shard(3), Shard(2))
        assert ttnn.placements(attention.out.weight) == (Shard(2), Shard(3))
        assert ttnn.placements(attention.asking.bias) == (REPLICATE, Shard(3))  # no dim is left


def test_gradients_in_pieces_are_not_synchronised_again(line):
    model = sharded(GPT(line))
    model(*placed(batch(0), line, {"fsdp": 0})).backward()
    assert all(isinstance(ttnn.placements(each.grad)[1], Shard) for each in model.parameters())
    assert sync_gradients(model, axes=["dp", "fsdp"]).calls == 0


def test_only_the_data_axis_is_synchronised_where_there_are_both():
    with opened(2, 4, "dp", "fsdp") as mesh:
        model = sharded(GPT(mesh))
        model(*placed(batch(0), mesh, {"dp": 0, "fsdp": 0})).backward()
        words = {ttnn.placements(each.grad)[0] for each in model.parameters()}
        assert words == {Partial("sum")}
        assert sync_gradients(model, axes=["dp", "fsdp"]).calls == len(model.parameters())


def test_micro_batches_add_up_in_the_pieces(line):
    model, twin = sharded(GPT(line)), sharded(GPT(line))
    ids, targets = batch(0)
    for half in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH)):
        model(*placed((ids[half], targets[half]), line, {"fsdp": 0})).backward()
    twin(*placed((ids, targets), line, {"fsdp": 0})).backward()
    halved = {name: value / 2 for name, value in gradients(model).items()}
    assert farthest(halved, gradients(twin)) < 2e-6


def test_two_forward_passes_may_go_before_their_backward_passes(line):
    model, twin = sharded(GPT(line), shard_dim="auto"), sharded(GPT(line))
    first, second = (placed(batch(seed), line, {"fsdp": 0}) for seed in (1, 2))
    losses = model(*first), model(*second)
    for loss in losses:
        loss.backward()
    for each in (first, second):
        twin(*each).backward()
    assert farthest(gradients(model), gradients(twin)) < 2e-6


def test_a_backward_pass_through_a_kept_graph_gives_the_same_again(line):
    model = sharded(GPT(line))
    loss = model(*placed(batch(0), line, {"fsdp": 0}))
    loss.backward(retain_graph=True)
    once = gradients(model)
    model.zero_grad()
    loss.backward()
    assert all(torch.equal(value, once[name]) for name, value in gradients(model).items())


class Gathered:
    """The memory of everything that was gathered: as the mesh counts it, and as the host does."""

    def __init__(self) -> None:
        self.on_mesh: list[weakref.ref[Any]] = []
        self.on_host: list[torch.UntypedStorage] = []

    def on_command(self, command: ttnn.Command) -> None:
        if command.name == "all_gather":
            (out,) = command.outputs
            self.on_mesh.append(weakref.ref(out.storage))
            self.on_host.append(out.view_data().untyped_storage())

    def living(self) -> int:
        gc.collect()
        return sum(each() is not None for each in self.on_mesh)

    def bytes(self) -> int:
        return sum(each.nbytes() for each in self.on_host)


class Two(Module):
    """Products whose weights are split along their last dim: gathering them makes copies."""

    def __init__(self, mesh: ttnn.MeshDevice) -> None:
        initial = Initial()
        self.first = Linear(mesh, 64, 64, initial, bias=False)
        self.second = Linear(mesh, 64, 64, initial, bias=False)

    def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return self.second(ttnn.gelu(self.first(x)))


def rows(mesh: ttnn.MeshDevice, seed: int = 0, width: int = 64) -> ttnn.Tensor:
    values = torch.randn(4, 1, 8, width, generator=torch.Generator().manual_seed(seed))
    return on_mesh(values, mesh, {"fsdp": 0}, ttnn.float32, ttnn.TILE_LAYOUT)


def test_the_graph_keeps_no_gathered_parameter_alive(line):
    model = fully_shard(Two(line), shard_dim=3)
    with ttnn.observe(Gathered()) as seen:
        loss = mse_loss(model(rows(line)), rows(line, 1))
        assert len(seen.on_mesh) == 2
        assert (seen.living(), seen.bytes()) == (0, 0)
        loss.backward()
        assert len(seen.on_mesh) == 4
        assert seen.living() == 0
    assert all(each.grad is not None for each in model.parameters())


def test_gathered_parameters_stay_where_they_are_to_stay(line):
    model = fully_shard(Two(line), shard_dim=3, reshard_after_forward=False)
    with ttnn.observe(Gathered()) as seen:
        loss = mse_loss(model(rows(line)), rows(line, 1))
        assert seen.living() == 2
        loss.backward()
        del loss
        assert seen.living() == 0


def test_no_gradients_no_second_gathering_and_nothing_left(line):
    model = fully_shard(Two(line), shard_dim=3)
    with ttnn.observe(Gathered()) as seen, no_grad():
        model(rows(line))
        assert len(seen.on_mesh) == 2
        assert seen.living() == 0


def test_unshard_gathers_for_all_passes_until_reshard(line):
    model = fully_shard(Two(line), shard_dim=3)
    twin = fully_shard(Two(line), shard_dim=3)
    with ttnn.observe(Gathered()) as seen:
        model.unshard()
        for _ in range(2):
            mse_loss(model(rows(line)), rows(line, 1)).backward()
        assert len(seen.on_mesh) == 2
        model.reshard()
        assert seen.living() == 0
    for _ in range(2):
        mse_loss(twin(rows(line)), rows(line, 1)).backward()
    assert farthest(gradients(model), gradients(twin)) < 1e-6


def test_what_unshard_keeps_is_gathered_anew_after_a_step(line):
    model = fully_shard(Two(line), shard_dim=3)
    model.unshard()
    before = mse_loss(model(rows(line)), rows(line, 1))
    before.backward()
    SGD(model, lr=0.5).step()
    after = mse_loss(model(rows(line)), rows(line, 1))
    model.reshard()
    again = mse_loss(model(rows(line)), rows(line, 1))
    assert mean_loss(after) == mean_loss(again) != mean_loss(before)


def test_a_recomputed_unit_is_gathered_once_in_the_backward_pass(line):
    model, twin = fully_shard(Two(line), shard_dim=3), fully_shard(Two(line), shard_dim=3)
    with ttnn.observe(Gathered()) as seen:
        mse_loss(recomputed(model, rows(line)), rows(line, 1)).backward()
        assert len(seen.on_mesh) == 4
        assert seen.living() == 0
    mse_loss(twin(rows(line)), rows(line, 1)).backward()
    assert farthest(gradients(model), gradients(twin)) < 1e-6


def test_parameters_are_the_pieces_again_when_a_forward_pass_fails(line):
    model = fully_shard(Two(line), shard_dim=3)
    with pytest.raises(MeshError, match="width"):
        model(rows(line, width=32))
    assert all(ttnn.placements(each) == (REPLICATE, Shard(3)) for each in model.parameters())


class Aside(Two):
    """Returns its own weight, keeps a view of another, and a loss that its result knows nothing of."""

    def forward(self, x: ttnn.Tensor) -> Any:
        out = super().forward(x)
        self.kept = ttnn.reshape(self.second.weight, (1, 1, 32, 128))
        self.extra = ttnn.mean(ttnn.multiply(self.first(x), self.first.weight[0:1, 0:1, 0:1, :]))
        return out, self.first.weight


def test_results_and_attributes_that_are_gathered_parameters_stay_readable(line):
    model, plain = fully_shard(Aside(line), shard_dim=3), Aside(line)
    (_, weight), (_, expected) = model(rows(line)), plain(rows(line))
    assert torch.equal(weight.view_data(), expected.view_data())
    assert torch.equal(model.kept.view_data(), plain.kept.view_data())


def test_a_loss_beside_the_result_finds_the_parameters(line):
    model, plain = fully_shard(Aside(line), shard_dim=3), Aside(line)
    for each in (model, plain):
        each(rows(line))
        each.extra.backward()
    sync_gradients([plain.first.weight], axes=["fsdp"])
    found = whole(model.first.weight, model.first.weight.grad.view_data())
    assert torch.allclose(found, plain.first.weight.grad.view_data()[0, 0], rtol=1e-5, atol=1e-8)
    assert model.second.weight.grad is None


class Gated(Two):
    def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.multiply(ttnn.matmul(x, ttnn.gelu(self.first.weight)), self.second.weight[0:1, 0:1, 0:1, :])


def test_ops_of_parameters_alone_find_them_in_the_backward_pass(line):
    model, plain = fully_shard(Gated(line), shard_dim=3), Gated(line)
    for each in (model, plain):
        mse_loss(each(rows(line)), rows(line, 1)).backward()
    sync_gradients(plain, axes=["fsdp"])
    assert farthest(gradients(model), gradients(plain)) < 2e-6


def test_products_that_are_computed_again_for_gradients_of_each_device_find_the_parameters():
    """x is the same along "fsdp", and what comes of it meets values that are not."""
    with opened(2, 2, "dp", "fsdp") as mesh:
        x, y = (
            on_mesh(torch.randn(4, 1, 8, 64), mesh, {axis: 0}, ttnn.float32, ttnn.TILE_LAYOUT)
            for axis in ("dp", "fsdp")
        )
        model, plain = fully_shard(Two(mesh), shard_dim=3), Two(mesh)
        for each in (model, plain):
            mse_loss(ttnn.multiply(each(x), y), y).backward()
            sync_gradients(each, axes=["dp", "fsdp"])
        assert farthest(gradients(model), gradients(plain)) < 2e-6


def test_bfloat16_parameters_are_trained_in_pieces(line):
    layer = fully_shard(Linear(line, 64, 64, Initial(dtype=ttnn.bfloat16)), shard_dim=3)
    optimizer = AdamW(layer, lr=1e-2)
    x = ttnn.typecast(rows(line), ttnn.bfloat16)
    losses = []
    for _ in range(3):
        loss = mse_loss(layer(x), ttnn.multiply(x, 0.5))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean_loss(loss))
    assert losses == sorted(losses, reverse=True)


def test_an_axis_of_one_device_leaves_parameters_whole(line):
    model = fully_shard(Two(line), axis="dp")
    with ttnn.observe(Counted()) as seen:
        mse_loss(model(rows(line)), rows(line, 1)).backward()
    assert seen.names["all_gather"] == 0
    assert ttnn.placements(model.first.weight) == (REPLICATE, REPLICATE)


def test_a_change_between_forward_and_backward_is_refused_by_name(line):
    model = fully_shard(Two(line), shard_dim=3)
    mse_loss(model(rows(line)), rows(line, 1)).backward()
    late = mse_loss(model(rows(line)), rows(line, 1))
    SGD(model, lr=0.1).step()
    with pytest.raises(MeshError, match=r"first\.weight was changed between .* optimizer\.step\(\) behind"):
        late.backward()


def test_a_parameter_of_an_inner_unit_that_is_used_outside_is_refused(line):
    model = Two(line)
    model.second.weight = model.first.weight
    fully_shard(model.first)
    with pytest.raises(MeshError, match=r"second\.weight is also a parameter of the unit 'first'"):
        fully_shard(model)


def test_a_parameter_with_two_uses_in_a_unit_is_gathered_once_and_gets_both_gradients(line):
    model, plain = Two(line), Two(line)
    for each in (model, plain):
        each.second.weight = each.first.weight
    fully_shard(model)
    with ttnn.observe(Counted()) as seen:
        mse_loss(model(rows(line)), rows(line, 1)).backward()
    mse_loss(plain(rows(line)), rows(line, 1)).backward()
    sync_gradients(plain, axes=["fsdp"])
    assert seen.names["all_gather"] == 2
    assert farthest(gradients(model), gradients(plain)) < 1e-6


def test_blocks_own_their_parameters_and_the_root_the_rest(line):
    model = GPT(line)
    blocks = sum(len(block.parameters()) for block in model.blocks)
    for block in model.blocks:
        fully_shard(block)
    with ttnn.observe(Counted()) as seen:
        fully_shard(model).unshard()
    assert seen.names["all_gather"] == len(model.parameters()) - blocks
    assert blocks == BLOCKS * 12


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"axis": "fdsp"}, "Mesh axis 'fdsp': the axes of .* are 'dp', 'fsdp'.*fsdp"),
        ({"axis": 7}, "Mesh axis 7"),
        ({"shard_dim": "first"}, 'shard_dim must be "auto" or a dim'),
        ({"shard_dim": True}, 'shard_dim must be "auto" or a dim'),
        ({"shard_dim": 1}, "no parameter can be split along dim 1 over the 4 devices"),
        ({"shard_dim": 9}, "no parameter can be split along dim 9"),
    ],
)
def test_what_cannot_be_split_so_is_refused(line, options, complaint):
    with pytest.raises((ArgumentValueError, MeshError), match=complaint):
        fully_shard(Two(line), **options)


def test_a_module_is_made_a_unit_once(line):
    model = fully_shard(Two(line))
    with pytest.raises(MeshError, match="this Two is a unit already"):
        fully_shard(model)


def test_only_modules_are_sharded(line):
    with pytest.raises(ArgumentValueError, match=r"takes a softmesh\.train\.Module, got Tensor"):
        fully_shard(parameter(torch.zeros(1, 1, 8, 8), line))


def test_a_parameter_that_the_axis_splits_already_is_refused(line):
    layer = Linear(line, 8, 8, Initial(), bias=False, splits={"fsdp": 2})
    with pytest.raises(MeshError, match=r"weight is Shard\(2\) along mesh axis 'fsdp' already"):
        fully_shard(layer)
