"""Sequences that are split over devices: keys and values go round, and nothing is gathered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_gpt import GPT, TOKENS, Counted, batch, farthest, gradients, mean_loss, one_thread, opened, placed
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import softmesh as ttnn
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.placement.placements import REPLICATE, Shard
from softmesh.train import Initial, on_mesh, sync_gradients
from softmesh.train.context_parallel import (
    ContextParallelAttention,
    PositionalEmbedding,
    positions,
    ring_attention,
)
from softmesh.train.fsdp import fully_shard

FORMS = {
    "cp4_tp2": ((4, 2), ("cp", "tp")),
    "cp8": ((1, 8), ("dp", "cp")),
    "dp2_cp4": ((2, 4), ("dp", "cp")),
    "tp2_cp4": ((2, 4), ("tp", "cp")),
}


@pytest.fixture(autouse=True)
def fabric(idle_machine: None) -> Iterator[None]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    with one_thread():
        yield


@pytest.fixture
def ring(fabric: None) -> Iterator[ttnn.MeshDevice]:
    with opened(1, 4, "dp", "cp") as mesh:
        yield mesh


def first_gradients(
    mesh: ttnn.MeshDevice, splits: dict[str, int], **axes: str | None
) -> tuple[float, dict[str, torch.Tensor]]:
    model = GPT(mesh, **axes)
    loss = model(*placed(batch(3), mesh, splits))
    loss.backward()
    sync_gradients(model, axes=list(splits))
    return mean_loss(loss), gradients(model)


@pytest.fixture(scope="module")
def alone() -> tuple[float, dict[str, torch.Tensor]]:
    with one_thread(), opened(1, 1, "dp", "tp") as mesh:
        return first_gradients(mesh, {"dp": 0})


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_split_sequence_has_the_loss_and_the_gradients_of_one_device(alone, form):
    shape, names = FORMS[form]
    splits = {name: dim for name, dim in (("dp", 0), ("cp", 1)) if name in names}
    with opened(*shape, *names) as mesh:
        loss, found = first_gradients(mesh, splits, cp="cp", tp="tp" if "tp" in names else None)
    assert loss == pytest.approx(alone[0], abs=1e-6)
    assert max(float((found[name] - value).abs().max()) for name, value in alone[1].items()) < 1e-6
    assert farthest(found, alone[1]) < 4e-6


def test_parameters_may_be_in_pieces_along_the_axis_of_the_sequence(alone):
    with opened(2, 4, "dp", "cp") as mesh:
        model = GPT(mesh, cp="cp")
        for block in model.blocks:
            fully_shard(block, axis="cp")
        fully_shard(model, axis="cp")
        model(*placed(batch(3), mesh, {"dp": 0, "cp": 1})).backward()
        sync_gradients(model, axes=["dp", "cp"])
        assert farthest(gradients(model), alone[1]) < 4e-6


def three(heads: int, kv_heads: int, tokens: int, width: int = 8, scale: float = 1.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    shapes = [(2, heads, tokens, width), (2, kv_heads, tokens, width), (2, kv_heads, tokens, width)]
    return [torch.randn(shape, generator=generator) * scale for shape in shapes]


def split(values: torch.Tensor, mesh: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.float32) -> ttnn.Tensor:
    return on_mesh(values, mesh, {"cp": 2}, dtype, ttnn.TILE_LAYOUT)


def expected(
    values: list[torch.Tensor], onward: torch.Tensor, is_causal: bool
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """What one device computes, in double precision."""
    leaves = [each.double().requires_grad_() for each in values]
    out = F.scaled_dot_product_attention(*leaves, is_causal=is_causal, enable_gqa=True)
    out.backward(onward.double())
    return out.detach(), [leaf.grad for leaf in leaves]


def joined(tensor: ttnn.Tensor) -> torch.Tensor:
    """All tokens, in order."""
    return torch.cat(list(tensor.pieces().detach()), 2)


def attended(
    values: list[torch.Tensor],
    onward: torch.Tensor,
    mesh: ttnn.MeshDevice,
    is_causal: bool,
    dtype: ttnn.DataType = ttnn.float32,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    leaves = [split(each, mesh, dtype).requires_grad_() for each in values]
    out = ring_attention(*leaves, "cp", is_causal=is_causal)
    out.backward(split(onward, mesh, dtype))
    return joined(out), [joined(leaf.grad) for leaf in leaves]


def agree_on_the_ring(values: list[torch.Tensor], mesh: ttnn.MeshDevice, is_causal: bool) -> None:
    """Results and gradients are those of one device."""
    onward = torch.randn(values[0].shape, generator=torch.Generator().manual_seed(0))
    out, found = attended(values, onward, mesh, is_causal)
    true_out, true_gradients = expected(values, onward, is_causal)
    assert torch.allclose(out.double(), true_out, atol=1e-6)
    for gradient, true in zip(found, true_gradients, strict=True):
        assert torch.allclose(gradient.double(), true, atol=2e-6)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "tokens"), [(2, 2, 8), (4, 2, 16), (6, 1, 40), (1, 1, 4)])
def test_the_ring_attends_as_one_device_does_and_so_does_its_backward_pass(ring, heads, kv_heads, tokens, is_causal):
    agree_on_the_ring(three(heads, kv_heads, tokens), ring, is_causal)


def test_rows_that_are_taken_a_few_at_a_time_give_the_same(ring):
    agree_on_the_ring(three(1, 1, 4 * 160), ring, True)  # more rows on each device than are scored at a time


def test_scores_of_thousands_neither_overflow_nor_lose_the_largest(ring):
    values = three(2, 2, 16, scale=60.0)
    onward = torch.ones(values[0].shape)
    out, found = attended(values, onward, ring, True)
    assert torch.allclose(out.double(), expected(values, onward, True)[0], rtol=1e-3, atol=1e-2)
    assert all(bool(gradient.isfinite().all()) for gradient in found)


def test_bfloat16_is_rounded_at_the_end_only(ring):
    values = [each.bfloat16().float() for each in three(2, 2, 32)]
    onward = torch.ones(values[0].shape)
    out, found = attended(values, onward, ring, True, ttnn.bfloat16)
    true_out, true_gradients = expected(values, onward, True)
    assert torch.equal(out, true_out.bfloat16())
    for gradient, true in zip(found, true_gradients, strict=True):
        assert torch.allclose(gradient.double(), true, rtol=2**-7, atol=2**-9)


def test_keys_and_values_are_passed_on_and_never_gathered(ring):
    values = three(2, 2, 16)
    with ttnn.observe(Counted()) as seen:
        leaves = [split(each, ring).requires_grad_() for each in values]
        out = ring_attention(*leaves, "cp")
        forwards = seen.names["train.ring_shift"]
        out.backward(split(torch.ones(values[0].shape), ring))
    assert forwards == 2 * 3
    assert seen.names["train.ring_shift"] - forwards == 2 * 3 + 2 * 4  # and their gradients come home
    assert not [name for name in seen.names if "gather" in name or "reduce" in name]


def test_blocks_behind_the_queries_are_not_computed(ring):
    leaves = [split(each, ring).requires_grad_() for each in three(2, 2, 64)]
    onward = split(torch.ones(2, 2, 64, 8), ring)

    def flops(is_causal: bool) -> int:
        with FlopCounterMode(display=False) as counter:
            ring_attention(*leaves, "cp", is_causal=is_causal).backward(onward)
        return counter.get_total_flops()

    assert flops(True) * 16 == flops(False) * 10  # 4 + 3 + 2 + 1 of 4 x 4 blocks


class Largest(TorchDispatchMode):
    """The most elements that one result had."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else [made]:
            if isinstance(each, torch.Tensor):
                self.elements = max(self.elements, each.numel())
        return made


def test_memory_grows_with_the_tokens_of_a_device_and_not_with_their_square(ring):
    def largest(tokens: int) -> int:
        leaves = [split(torch.ones(1, 1, 4 * tokens, 2), ring).requires_grad_() for _ in range(3)]
        onward = split(torch.ones(1, 1, 4 * tokens, 2), ring)
        with Largest() as seen:
            ring_attention(*leaves, "cp").backward(onward)
        return seen.elements

    assert largest(1024) == 2 * largest(512)


def test_the_result_is_placed_as_the_queries(ring):
    q, k, v = (split(each, ring) for each in three(2, 2, 16))
    assert ttnn.placements(ring_attention(q, k, v, "cp")) == (REPLICATE, Shard(2))


def test_an_axis_of_one_device_is_plain_attention(ring):
    q, k, v = (on_mesh(each, ring, {}, ttnn.float32, ttnn.TILE_LAYOUT) for each in three(2, 2, 16))
    with ttnn.observe(Counted()) as seen:
        out = ring_attention(q, k, v, "dp")
    plain = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(out.pieces(), plain.pieces(), atol=1e-6)
    assert seen.names["train.ring_shift"] == 0


def test_each_device_has_the_positions_of_its_own_tokens(ring):
    found = positions(ring, 12, "cp").pieces()
    assert found.flatten(1).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert positions(ring, 3).pieces().flatten(1).tolist() == [[0, 1, 2]] * 4


def test_a_shorter_sequence_takes_the_first_positions(ring):
    table = PositionalEmbedding(ring, TOKENS, 4, Initial(), cp="cp")
    rows = table.weight.pieces().detach()[0, 0, 0]
    out = table(split(torch.zeros(1, 1, 8, 4), ring))
    assert torch.equal(joined(out)[0, 0], rows[:8])


def test_tokens_that_do_not_divide_are_refused(ring):
    with pytest.raises(MeshError, match="10 does not divide among the 4 devices along mesh axis 'cp'"):
        positions(ring, 10, "cp")


def test_ids_that_do_not_divide_are_refused(ring):
    with pytest.raises(MeshError, match="dim 1 has 10 elements, which 4 devices cannot share evenly"):
        on_mesh(torch.zeros(2, 10, dtype=torch.int32), ring, {"cp": 1}, ttnn.uint32)


def test_a_sequence_with_filler_behind_it_is_refused(ring):
    with ttnn.lenient():
        q = on_mesh(torch.zeros(2, 2, 10, 8), ring, {"cp": 2}, ttnn.float32, ttnn.TILE_LAYOUT)
    with pytest.raises(MeshError, match=r"is Shard\(2, size=10\) along mesh axis 'cp'.*in equal parts"):
        ring_attention(q, q, q, "cp")


def test_an_empty_sequence_has_no_positions(ring):
    with pytest.raises(ArgumentValueError, match="at least one token"):
        positions(ring, 0, "cp")


def test_a_sequence_longer_than_its_table_is_refused(ring):
    table = PositionalEmbedding(ring, 8, 4, Initial(), cp="cp")
    with pytest.raises(MeshError, match="a sequence of 16 tokens, and there are rows for 8 positions"):
        table(split(torch.zeros(1, 1, 16, 4), ring))


def test_an_axis_that_is_not_there_is_refused_by_name(ring):
    q, k, v = (split(each, ring) for each in three(2, 2, 16))
    with pytest.raises(ArgumentValueError, match=r"Mesh axis 'pc': the axes of .* are 'dp', 'cp'"):
        ring_attention(q, k, v, "pc")
    with pytest.raises(ArgumentValueError, match="Mesh axis 'ring'"):
        ContextParallelAttention(ring, 16, 2, Initial(), cp="ring")


def test_tokens_and_heads_are_split_along_different_axes(ring):
    with pytest.raises(ArgumentValueError, match="cannot both be split along mesh axis 'cp'"):
        ContextParallelAttention(ring, 16, 4, Initial(), cp="cp", tp=1)


def test_a_sequence_that_is_not_split_is_refused(ring):
    q, k, v = (on_mesh(each, ring, {}, ttnn.float32, ttnn.TILE_LAYOUT) for each in three(4, 4, 16))
    with pytest.raises(MeshError, match=r"q .* is Replicate along mesh axis 'cp'.*on_mesh\(ids, mesh, {'cp': 1}\)"):
        ring_attention(q, k, v, "cp")


def test_a_split_of_the_heads_is_no_split_of_the_sequence(ring):
    q, k, v = (on_mesh(each, ring, {"cp": 1}, ttnn.float32, ttnn.TILE_LAYOUT) for each in three(4, 4, 16))
    with pytest.raises(MeshError, match=r"is Shard\(1\) along mesh axis 'cp'"):
        ring_attention(q, k, v, "cp")


def test_a_split_of_the_width_is_refused():
    with opened(2, 2, "tp", "cp") as mesh:
        q, k, v = (on_mesh(each, mesh, {"cp": 2, "tp": 3}, ttnn.float32, ttnn.TILE_LAYOUT) for each in three(2, 2, 16))
        with pytest.raises(MeshError, match="the width of the heads is split over devices"):
            ring_attention(q, k, v, "cp")


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        (((2, 2, 8, 8), (2, 2, 16, 8), (2, 2, 16, 8)), "of one batch and of the same tokens"),
        (((2, 2, 8, 8), (1, 2, 8, 8), (1, 2, 8, 8)), "of one batch and of the same tokens"),
        (((2, 3, 8, 8), (2, 2, 8, 8), (2, 2, 8, 8)), "3 query heads cannot share 2 key heads"),
        (((2, 2, 8, 8), (2, 2, 8, 4), (2, 2, 8, 4)), "the heads of q have width 8"),
        (((2, 2, 8, 8), (2, 2, 8, 8), (2, 2, 8, 4)), "must have one shape"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(ring, shapes, complaint):
    q, k, v = (split(torch.zeros(shape), ring) for shape in shapes)
    with pytest.raises(MeshError, match=complaint):
        ring_attention(q, k, v, "cp")


def test_tensors_on_the_host_are_refused(ring):
    values = [ttnn.from_torch(each, layout=ttnn.TILE_LAYOUT) for each in three(2, 2, 16)]
    with pytest.raises(MeshError, match="q is on the host"):
        ring_attention(*values, "cp")
