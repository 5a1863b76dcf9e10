"""Tokens sent out, the experts' products, answers sent back and added up, against loops over tokens."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch

import softmesh as ttnn
from softmesh.ops.moe import weight_packing

ROWS, TILE = ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT
UTILS = ttnn.experimental.moe_compute_utils
ACTIVATION = ttnn.operations.ccl.MoEActivationFunction
HIDDEN, INNER, K = 64, 96, 3


@pytest.fixture
def mesh(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


@pytest.fixture
def line(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as opened:
        yield opened


def numbers(*shape: int) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return made.bfloat16().float()


def put(pieces: torch.Tensor, mesh: ttnn.MeshDevice, dtype: ttnn.DataType, layout: ttnn.Layout = ROWS) -> ttnn.Tensor:
    """pieces (devices, *local)"""
    flat = pieces.reshape(-1, *pieces.shape[2:])
    return ttnn.from_torch(
        flat, dtype=dtype, layout=layout, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0)
    )


def shards(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ttnn.SoftmeshWarning)
        return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


class Model(NamedTuple):
    """Tokens (devices, batch, 1, rows, hidden) with their choices; weights (devices, layers, own experts, ...)."""

    tokens: torch.Tensor
    chosen: torch.Tensor
    scores: torch.Tensor
    mapping: torch.Tensor
    w0: torch.Tensor
    w1: torch.Tensor
    w2: torch.Tensor

    def experts_of(self, device: int) -> list[int]:
        return [e for e in range(self.mapping.shape[1]) if self.mapping[device, e] == device]

    def answer(self, token: torch.Tensor, home: int, expert: int, layer: int = 0) -> torch.Tensor:
        slot = self.experts_of(home).index(expert)
        gate, up = (token @ w[home, layer, slot] for w in (self.w0, self.w1))
        return (torch.nn.functional.silu(gate) * up) @ self.w2[home, layer, slot]

    def operands(self, mesh: ttnn.MeshDevice) -> list[ttnn.Tensor]:
        return [
            put(self.tokens, mesh, ttnn.bfloat16),
            put(self.chosen, mesh, ttnn.uint16),
            put(self.scores, mesh, ttnn.bfloat16),
            shared(self.mapping, mesh),
        ]

    def weights(self, mesh: ttnn.MeshDevice) -> list[ttnn.Tensor]:
        """Packed on the devices."""
        _, layers, own, hidden, inner = self.w0.shape
        sizes = {"L": layers, "E": own, "K": hidden, "N": inner}
        w0, w1, w2 = (put(w, mesh, ttnn.float32, TILE) for w in (self.w0, self.w1, self.w2))
        return [
            ttnn.experimental.prepare_w0_w1_tensor_for_moe_compute(w0, w1, **sizes),
            ttnn.experimental.prepare_w2_tensor_for_moe_compute(w2, **sizes),
        ]


def shared(mapping: torch.Tensor, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.from_torch(
        mapping, dtype=ttnn.uint16, layout=ROWS, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh)
    )


def model(devices: int, own: int = 2, layers: int = 1, batch: int = 2, rows: int = 2) -> Model:
    experts = devices * own
    scores = torch.rand(devices, batch, 1, rows, experts, generator=torch.Generator().manual_seed(devices))
    best = scores.topk(K, -1)
    homes = torch.tensor([5 * e % devices for e in range(experts)]).expand(devices, experts)
    sizes = (devices, layers, own)
    return Model(
        numbers(devices, batch, 1, rows, HIDDEN),
        best.indices.int(),
        best.values.bfloat16().float(),
        homes.int(),
        numbers(*sizes, HIDDEN, INNER) / 8,
        numbers(*sizes, HIDDEN, INNER + 1)[..., :INNER] / 8,
        numbers(*sizes, INNER, HIDDEN) / 8,
    )


def members(mesh: ttnn.MeshDevice, axis: int, device: int) -> list[int]:
    rows, columns = mesh.shape
    row, column = divmod(device, columns)
    return [row * columns + c for c in range(columns)] if axis == 1 else [r * columns + column for r in range(rows)]


def tokens_of(made: Model, group: list[int]) -> list[tuple[int, torch.Tensor, list[int]]]:
    """(source, token, its experts) for all of a group, in order."""
    found = []
    for source in group:
        rows, choices = made.tokens[source].reshape(-1, HIDDEN), made.chosen[source].reshape(-1, K)
        found += [(source, row, choice.tolist()) for row, choice in zip(rows, choices, strict=True)]
    return found


# -- sending out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_dispatch_sends_tokens_with_their_indices_and_scores(mesh, axis):
    made = model(8)
    tokens, indices, scores = ttnn.experimental.all_to_all_dispatch_metadata(*made.operands(mesh), cluster_axis=axis)
    rows, told_indices, told_scores = (shards(one) for one in (tokens, indices, scores))
    for device in range(8):
        group = members(mesh, axis, device)
        wanted = tokens_of(made, group)
        assert tokens.shape == [1, len(wanted), HIDDEN]
        assert indices.shape == scores.shape == [1, len(wanted), K]
        for got, (source, row, choice) in zip(rows[device][0], wanted, strict=True):
            is_here = any(made.mapping[source, e] == device for e in choice)
            assert torch.equal(got.float(), row) if is_here else got.isnan().all()
        assert told_indices[device][0].tolist() == [choice for _, _, choice in wanted]
        told = torch.cat([made.scores[source].reshape(-1, K) for source in group])
        assert torch.equal(told_scores[device][0].float(), told)
    assert (tokens.dtype, indices.dtype, scores.dtype) == (ttnn.bfloat16, ttnn.uint16, ttnn.bfloat16)


def test_dispatch_writes_into_given_tensors_and_leaves_the_other_rows_as_they_were(mesh):
    made = model(8)
    outputs = [
        put(torch.full((8, 1, 16, HIDDEN), 7.0), mesh, ttnn.bfloat16),
        put(torch.zeros(8, 1, 16, K).int(), mesh, ttnn.uint16),
        put(torch.zeros(8, 1, 16, K), mesh, ttnn.bfloat16),
    ]
    fresh = ttnn.experimental.all_to_all_dispatch_metadata(*made.operands(mesh), cluster_axis=1)
    got = ttnn.experimental.all_to_all_dispatch_metadata(*made.operands(mesh), cluster_axis=1, output_tensors=outputs)
    assert all(one is output for one, output in zip(got, outputs, strict=True))
    for new, kept in zip(shards(fresh[0]), shards(got[0]), strict=True):
        assert torch.equal(kept, torch.where(new.isnan(), 7.0, new))


def test_tokens_of_each_device_go_to_the_copy_of_a_shared_expert_that_is_nearest(mesh):
    made = model(8)
    homes = {16: [0, 5], 17: [2, 4]}  # a copy in each row of the mesh
    mapping = UTILS.map_shared_experts(made.mapping, homes, (2, 4), 1)
    operands = [*made.operands(mesh)[:3], shared(mapping, mesh)]
    tokens, indices, scores = ttnn.experimental.all_to_all_dispatch_metadata(
        *operands, cluster_axis=1, shared_expert_ids=[16, 17]
    )
    assert indices.shape == scores.shape == [1, 16, K + 2]
    assert (shards(indices)[3][0, :, K:].int() == torch.tensor([16, 17])).all()
    assert (shards(scores)[3][0, :, K:] == 1).all()
    assert mapping[:, 16].tolist() == [0, 0, 0, 0, 5, 5, 5, 5]
    assert not shards(tokens)[0].isnan().any()  # all of the row's tokens visit expert 16 there
    assert not shards(tokens)[4].isnan().any()
    assert shards(tokens)[1].isnan().any()


def test_dispatch_refuses_what_does_not_belong_together(mesh):
    made = model(8)
    tokens, indices, scores, mapping = made.operands(mesh)
    op = ttnn.experimental.all_to_all_dispatch_metadata
    with pytest.raises(RuntimeError, match="must agree in all dims but the last"):
        op(tokens, indices, put(numbers(8, 2, 1, 1, K), mesh, ttnn.bfloat16), mapping, cluster_axis=1)
    with pytest.raises(RuntimeError, match="a row for each of the 8 devices"):
        op(tokens, indices, scores, shared(made.mapping[:3], mesh), cluster_axis=1)
    with pytest.raises(RuntimeError, match=r"names expert .* the mapping has 4 experts"):
        op(tokens, indices, scores, shared(made.mapping[:, :4], mesh), cluster_axis=1)
    with pytest.raises(RuntimeError, match="Indices tensor must be uint16"):
        op(tokens, scores, scores, mapping, cluster_axis=1)
    with pytest.raises(TypeError, match=r"no argument 'cluster_axes'.*cluster_axis"):
        op(tokens, indices, scores, mapping, cluster_axes=1)


# -- computing and sending back --------------------------------------------------------------------


def run(made: Model, mesh: ttnn.MeshDevice, axis: int, layer: int = 0, **more: Any) -> list[ttnn.Tensor]:
    sent = ttnn.experimental.all_to_all_dispatch_metadata(*made.operands(mesh), cluster_axis=axis)
    result = ttnn.experimental.moe_compute(
        *sent,
        shared(made.mapping, mesh),
        *made.weights(mesh),
        layer_id=layer,
        output_height_shard_dim=4,
        intermediate_size=INNER,
        cluster_axis=axis,
        **more,
    )
    assert isinstance(result, list)
    return result


def close(got: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(got.float(), wanted, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("axis", [0, 1])
def test_each_slot_of_a_token_gets_the_answer_of_its_expert(mesh, axis):
    made = model(8, layers=2)
    combined = run(made, mesh, axis, layer=1)[-1]
    assert combined.shape == [K, 4, HIDDEN]
    pieces = shards(combined)
    for device in range(8):
        group = members(mesh, axis, device)
        for place, (_, token, choice) in enumerate(tokens_of(made, [device])):
            for k, expert in enumerate(choice):
                home, got = int(made.mapping[device, expert]), pieces[device][k, place]
                if home in group:
                    close(got, made.answer(token, home, expert, layer=1))
                else:
                    assert got.isnan().all()


def test_the_lists_beside_the_answers_say_which_tokens_they_are_to(mesh):
    made = model(8)
    counts, rows, maps, dense, answers = map(shards, run(made, mesh, 1, compute_only=True))
    for device in range(8):
        tokens = tokens_of(made, members(mesh, 1, device))
        mine = made.experts_of(device)
        lines = [row.tolist() for row in rows[device].long()]
        here = [i for i, (_, _, choice) in enumerate(tokens) if set(choice) & set(mine)]
        assert [line[0] for line in lines[: len(here) + 1]] == [*here, 2**32 - 1]
        for slot, expert in enumerate(mine):
            chose = [i for i in here if expert in tokens[i][2]]
            assert counts[device][0, slot] == len(chose)
            assert maps[device][slot].long().tolist()[: len(chose) + 1] == [*chose, 2**32 - 1]
            for place, token in enumerate(chose):
                assert torch.equal(dense[device][slot, place].float(), tokens[token][1])
                close(answers[device][slot, place], made.answer(tokens[token][1], device, expert))
                line = lines[here.index(token)]
                k = tokens[token][2].index(expert)
                assert line[1 + slot] == k
                source, at = tokens[token][0], token % 4
                bits = made.scores[source].reshape(-1, K)[at, k].bfloat16().view(torch.int16)
                assert line[3 + slot] == int(bits) & 0xFFFF


@pytest.mark.parametrize("axis", [0, 1])
def test_the_whole_of_it_is_a_mixture_of_experts(mesh, axis):
    made = model(8)
    combined = run(made, mesh, axis)[-1]
    tiles = ttnn.experimental.deepseek_moe_post_combine_tilize(combined, output_memory_config=ttnn.DRAM_MEMORY_CONFIG)
    pieces = ttnn.experimental.deepseek_moe_fast_reduce_nc_fused(
        ttnn.unsqueeze(tiles, 1),
        put(made.chosen, mesh, ttnn.uint16),
        shared(made.mapping, mesh),
        0,
        split_size=32,
        cluster_axis=axis,
        scores_tensor=put(made.scores, mesh, ttnn.bfloat16),
    )
    assert [list(piece.shape) for piece in pieces] == [[1, 1, 4, 32]] * 2
    for device in range(8):
        group = members(mesh, axis, device)
        got = torch.cat([shards(piece)[device] for piece in pieces], -1)[0, 0]
        weights = made.scores[device].reshape(-1, K)
        for place, (_, token, choice) in enumerate(tokens_of(made, [device])):
            homes = [int(made.mapping[device, e]) for e in choice]
            wanted = sum(
                (
                    weights[place, k] * made.answer(token, home, e)
                    for k, (home, e) in enumerate(zip(homes, choice, strict=True))
                    if home in group
                ),
                torch.zeros(HIDDEN),
            )
            close(got[place], wanted)


def test_slots_keep_what_a_given_tensor_held_where_nobody_answers(mesh):
    made = model(8)
    out = put(torch.zeros(8, K, 4, HIDDEN), mesh, ttnn.bfloat16)
    fresh, kept = run(made, mesh, 1)[-1], run(made, mesh, 1, optional_output_tensor=out)[-1]
    assert kept is out
    for new, old in zip(shards(fresh), shards(kept), strict=True):
        assert torch.equal(old, new.nan_to_num(0.0))


def test_a_line_needs_no_axis_and_fills_every_slot(line):
    made = model(4)
    sent = ttnn.experimental.all_to_all_dispatch_metadata(*made.operands(line))
    combined = ttnn.experimental.moe_compute(
        *sent,
        shared(made.mapping, line),
        *made.weights(line),
        layer_id=0,
        output_height_shard_dim=4,
        intermediate_size=INNER,
    )[-1]
    pieces = shards(combined)
    for device in range(4):
        for place, (_, token, choice) in enumerate(tokens_of(made, [device])):
            for k, expert in enumerate(choice):
                wanted = made.answer(token, int(made.mapping[device, expert]), expert)
                close(pieces[device][k, place], wanted)


def test_shared_experts_are_computed_behind_the_routed_ones(line):
    made = model(4, own=2)
    homes = {8: [0, 1, 2, 3]}
    mapping = UTILS.map_shared_experts(made.mapping, homes, (1, 4), 1)
    extra = [numbers(4, 1, 1, *w.shape[3:]) / 8 for w in (made.w0, made.w1, made.w2)]
    both = Model(*made[:3], mapping, *(torch.cat([w, more], 2) for w, more in zip(made[4:], extra, strict=True)))
    sent = ttnn.experimental.all_to_all_dispatch_metadata(*both.operands(line), cluster_axis=1, shared_expert_ids=[8])
    combined = ttnn.experimental.moe_compute(
        *sent,
        shared(mapping, line),
        *both.weights(line),
        layer_id=0,
        output_height_shard_dim=4,
        intermediate_size=INNER,
        cluster_axis=1,
        num_shared_experts_per_device=1,
    )[-1]
    assert combined.shape == [K + 1, 4, HIDDEN]
    pieces = ttnn.experimental.deepseek_moe_fast_reduce_nc_fused(
        ttnn.unsqueeze(ttnn.to_layout(combined, TILE), 1),
        put(both.chosen, line, ttnn.uint16),
        shared(mapping, line),
        0,
        split_size=HIDDEN,
        cluster_axis=1,
        scores_tensor=put(both.scores, line, ttnn.bfloat16),
        num_shared_experts=1,
        shared_expert_scale=0.5,
    )
    for device in range(4):
        weights = both.scores[device].reshape(-1, K)
        for place, (_, token, choice) in enumerate(tokens_of(both, [device])):
            wanted = 0.5 * both.answer(token, device, 8)
            for k, expert in enumerate(choice):
                wanted += weights[place, k] * both.answer(token, int(mapping[device, expert]), expert)
            close(shards(pieces[0])[device][0, 0, place], wanted)


def test_a_trace_replays_the_pipeline_on_other_tokens(line):
    made = model(4)
    tokens, *rest = made.operands(line)
    weights, mapping = made.weights(line), shared(made.mapping, line)

    def step() -> ttnn.Tensor:
        sent = ttnn.experimental.all_to_all_dispatch_metadata(tokens, *rest, cluster_axis=1)
        sizes = {"layer_id": 0, "output_height_shard_dim": 4, "intermediate_size": INNER, "cluster_axis": 1}
        return ttnn.experimental.moe_compute(*sent, mapping, *weights, **sizes)[-1]

    step()
    trace = ttnn.begin_trace_capture(line, cq_id=0)
    replayed = step()
    ttnn.end_trace_capture(line, trace, cq_id=0)
    others = ttnn.from_torch(
        -made.tokens.reshape(-1, *made.tokens.shape[2:]),
        dtype=ttnn.bfloat16,
        layout=ROWS,
        mesh_mapper=ttnn.ShardTensorToMesh(line, dim=0),
    )
    ttnn.copy_host_to_device_tensor(others, tokens)
    ttnn.execute_trace(line, trace, cq_id=0, blocking=True)
    assert all(torch.equal(a, b) for a, b in zip(shards(replayed), shards(step()), strict=True))


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (up + 1) * gate * torch.sigmoid(1.702 * gate)


ACTIVATIONS = {
    "SILU": lambda gate, up: torch.nn.functional.silu(gate) * up,
    "GELU": lambda gate, up: torch.nn.functional.gelu(gate) * up,
    "SWIGLU": swiglu,
    "CLAMPED_SILU": lambda gate, up: torch.nn.functional.silu(gate.clamp(max=0.5)) * up.clamp(-0.5, 0.5),
}


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_every_activation_with_and_without_biases(device, name, has_bias):
    """One device with two experts, both chosen by both tokens."""
    x = numbers(1, 2, 64)
    w0, w1, w2 = numbers(1, 2, 64, 32) / 8, numbers(1, 2, 64, 33)[..., :32] / 8, numbers(1, 2, 32, 64) / 4
    b0, b1, b2 = numbers(1, 2, 32), numbers(1, 2, 33)[..., :32], numbers(1, 2, 64)
    sizes = {"L": 1, "E": 2, "K": 64, "N": 32}

    def on(values: torch.Tensor, dtype: ttnn.DataType = ttnn.float32, layout: ttnn.Layout = TILE) -> ttnn.Tensor:
        return ttnn.from_torch(values, dtype=dtype, layout=layout, device=device)

    if has_bias:
        first = ttnn.experimental.prepare_w0_w1_tensor_with_bias(on(w0), on(w1), on(b0), on(b1), **sizes)
        second = ttnn.experimental.prepare_w2_tensor_with_bias(on(w2), on(b2), **sizes)
    else:
        first = ttnn.experimental.prepare_w0_w1_tensor_for_moe_compute(on(w0), on(w1), **sizes)
        second = ttnn.experimental.prepare_w2_tensor_for_moe_compute(on(w2), **sizes)
    *_, answers = ttnn.experimental.moe_compute(
        on(x, ttnn.bfloat16, ROWS),
        on(torch.tensor([[[0, 1], [1, 0]]]).int(), ttnn.uint16, ROWS),
        on(torch.ones(1, 2, 2), ttnn.bfloat16, ROWS),
        on(torch.zeros(1, 2).int(), ttnn.uint16, ROWS),
        first,
        second,
        layer_id=0,
        output_height_shard_dim=1,
        intermediate_size=32,
        has_bias=has_bias,
        activation_type=getattr(ACTIVATION, name),
        activation_limit=0.5 if name == "CLAMPED_SILU" else None,
        compute_only=True,
    )
    on_off = float(has_bias)
    for expert in range(2):
        gate, up = (x[0] @ w[0, expert] + on_off * b[0, expert] for w, b in ((w0, b0), (w1, b1)))
        wanted = ACTIVATIONS[name](gate, up) @ w2[0, expert] + on_off * b2[0, expert]
        close(ttnn.to_torch(answers)[expert], wanted)


def test_moe_compute_names_what_does_not_fit(line):
    made = model(4)
    sent = ttnn.experimental.all_to_all_dispatch_metadata(*made.operands(line), cluster_axis=1)
    w0_w1, w2 = made.weights(line)
    mapping = shared(made.mapping, line)
    sizes = {"layer_id": 0, "output_height_shard_dim": 4, "intermediate_size": INNER, "cluster_axis": 1}

    def refused(match: str, *operands: Any, **changes: Any) -> None:
        with pytest.raises(RuntimeError, match=match):
            ttnn.experimental.moe_compute(*operands, **{**sizes, **changes})

    refused("layer_id=1, and the weights have 1 layers", *sent, mapping, w0_w1, w2, layer_id=1)
    refused("does not hold 1 layers of 2 experts", *sent, mapping, w0_w1, w2, intermediate_size=608)
    refused(r"must be \[cores, layers", *sent, mapping, mapping, w2)
    every = shared(torch.zeros(4, 8).int(), line)
    refused("gives a device 8 experts", *sent, every, w0_w1, w2)
    limit = {"activation_type": ACTIVATION.CLAMPED_SILU}
    refused("cuts values off at activation_limit", *sent, mapping, w0_w1, w2, **limit)
    refused(
        r"and the weights are those of\s+2 experts",
        *sent,
        mapping,
        w0_w1,
        w2,
        num_shared_experts_per_device=3,
    )


def test_combining_refuses_lists_that_are_not_those_of_the_answers(line):
    made = model(4)
    counts, rows, maps, _, answers = run(made, line, 1, compute_only=True)
    rest = (HIDDEN, 16, 1, K, 1, ttnn.Topology.Linear, 1, 1, 1, [ttnn.CoreCoord(0, 0)], ttnn.CoreRangeSet([]))
    whole = ttnn.experimental.selective_reduce_combine(answers, rows, maps, counts, *rest)
    assert whole.shape == [K, 4, HIDDEN]
    with pytest.raises(RuntimeError, match=r"dense_input_tensor .* must be"):
        ttnn.experimental.selective_reduce_combine(answers, rows, maps, counts, 32, *rest[1:])
    with pytest.raises(RuntimeError, match="slots beyond 1"):
        ttnn.experimental.selective_reduce_combine(answers, rows, maps, counts, *rest[:3], 1, *rest[4:])


# -- weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiles", [1, 5, 12, 64])
def test_cores_share_tiles_as_evenly_as_they_can(tiles):
    for cores in (1, 3, 8, 12):
        shares = UTILS._shard_tiles(tiles, cores)
        assert sum(shares) == tiles
        assert max(shares) - min(shares) <= 1
        blocks = UTILS._w2_shard_tiles(tiles, cores)
        assert all(0 <= own <= 4 and own + zeros == 4 for own, zeros in blocks)
        assert (tiles - sum(own for own, _ in blocks)) % (4 * cores) == 0


@pytest.mark.parametrize(("hidden", "inner", "cores"), [(64, 96, 12), (320, 160, 3), (7 * 32, 64, 8)])
def test_packed_weights_hold_every_element_and_zeros(hidden, inner, cores):
    w0, w1 = numbers(1, 2, hidden, inner), numbers(1, 2, hidden, inner + 1)[..., :inner]
    w2 = numbers(1, 2, inner, hidden)
    shares = UTILS._shard_tiles(inner // 32, cores)
    blocks = UTILS._w2_shard_tiles(hidden // 32, cores)
    first = UTILS.prepare_w0_w1_tensor_for_moe_compute(w0, w1, 1, 2, hidden, inner, shares)
    second = UTILS.prepare_w2_tensor_for_moe_compute(w2, 1, 2, inner, hidden, blocks, shares)
    rows = UTILS.w0_w1_bank_rows_per_expert(hidden // 32, inner // 32, cores)
    assert first.shape[:3] == second.shape[:3] == (cores, 1, 2)
    assert first[0, 0, 0].numel() == rows * 128
    rows = UTILS.w2_core_rows_per_expert(hidden // 32, inner // 32, cores, UTILS.DEFAULT_TILES_PER_TXN)
    assert second[0, 0, 0].numel() == rows * 128
    for packed, parts in ((first, (w0, w1)), (second, (w2,))):
        elements = torch.cat([part.flatten() for part in parts])
        assert torch.equal(packed[packed != 0].sort().values, elements[elements != 0].sort().values)
    order = weight_packing.w2_order(inner, hidden, tuple(shares), 14)
    assert torch.equal(weight_packing.unpacked(second, order, inner, hidden), w2)


def test_a_core_reads_its_own_rows_of_w2_first_and_then_those_of_the_core_before_it():
    shares = (1, 2, 1)
    rows = weight_packing.w2_order(4 * 32, 96, shares, 14).rows[:, 0, :, 0]
    tiles = [(rows[core, ::32][:4] // 32).tolist() for core in range(3)]
    assert tiles == [[0, 3, 1, 2], [1, 2, 0, 3], [3, 1, 2, 0]]


def test_devices_pack_as_the_host_does(line):
    made = model(4, own=1)
    maps = UTILS.get_weight_core_shard_maps(line, HIDDEN, INNER)
    assert len(maps.w0_w1_shard_map) == UTILS.effective_matmul_ring_size(line) == 12
    first, second = made.weights(line)
    host = UTILS.prepare_w0_w1_tensor_for_moe_compute(made.w0[2], made.w1[2], 1, 1, HIDDEN, INNER, maps.w0_w1_shard_map)
    assert torch.equal(shards(first)[2], host)
    host = UTILS.prepare_w2_tensor_for_moe_compute(
        made.w2[2], 1, 1, INNER, HIDDEN, maps.w2_shard_map, maps.w0_w1_shard_map
    )
    assert torch.equal(shards(second)[2], host)
    configs = ttnn.experimental.get_weight_mem_configs(
        line, num_layers=1, experts_per_device=1, hidden_size=HIDDEN, intermediate_size=INNER
    )
    assert configs == UTILS.get_weight_mem_configs(1, 1, HIDDEN, INNER, *maps)
    shard = configs.w2.shard_spec.shape
    assert shard[0] * shard[1] == host[0].numel()
    small = ttnn.experimental.quantize_weights_via_host(second, dtype=ttnn.bfloat4_b, memory_config=configs.w2)
    assert small.dtype is ttnn.bfloat4_b
    assert small.memory_config() == configs.w2


def test_blackhole_has_a_ring_of_eight(idle_machine):
    ttnn.use_system("P150")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        assert UTILS.effective_matmul_ring_size(mesh) == 8
        assert len(UTILS.get_weight_core_shard_maps(mesh, 256, 512).w0_w1_shard_map) == 8


def test_weights_of_other_sizes_are_refused_by_name(line):
    w = put(numbers(4, 1, 1, 64, 64), line, ttnn.float32, TILE)
    prepare = ttnn.experimental.prepare_w0_w1_tensor_for_moe_compute
    with pytest.raises(RuntimeError, match=r"tt_w0 is \[1, 1, 64, 64\], and L, E, K and N say \[1, 2, 64, 64\]"):
        prepare(w, w, L=1, E=2, K=64, N=64)
    with pytest.raises(RuntimeError, match="must be a positive multiple of 32"):
        UTILS.get_weight_core_shard_maps(line, 50, 64)
    with pytest.raises(RuntimeError, match="must share out 2 tiles"):
        UTILS.prepare_w0_w1_tensor_for_moe_compute(*[numbers(1, 1, 64, 64)] * 2, 1, 1, 64, 64, [1, 2])
    with pytest.raises(ttnn.NotModelled, match="num_banks=3"):
        UTILS.prepare_w0_w1_tensor_for_moe_compute(*[numbers(1, 1, 64, 64)] * 2, 1, 1, 64, 64, [1, 1], 3)
    with pytest.raises(TypeError, match="no argument 'layers'"):
        prepare(w, w, layers=1)
    with pytest.raises(RuntimeError, match="on the host"):
        prepare(*[ttnn.from_torch(numbers(1, 1, 64, 64))] * 2, L=1, E=1, K=64, N=64)


# -- shared experts and cores ----------------------------------------------------------------------


def test_distances_go_around_the_ring_and_only_along_the_axis():
    assert UTILS.cluster_distance(0, 3, (2, 4), 1) == 1
    assert UTILS.cluster_distance(0, 2, (2, 4), 1) == 2
    assert UTILS.cluster_distance(1, 5, (2, 4), 0) == 1
    assert math.isinf(UTILS.cluster_distance(0, 5, (2, 4), 1))
    with pytest.raises(RuntimeError, match="device 8 is none of the mesh's 8"):
        UTILS.cluster_distance(0, 8, (2, 4), 1)


def test_a_shared_expert_needs_a_copy_that_every_device_can_reach():
    with pytest.raises(RuntimeError, match="none of which device 4 reaches along axis 1"):
        UTILS.map_shared_experts(torch.zeros(8, 8), {8: [1]}, (2, 4), 1)


def test_shared_weights_stand_behind_each_device_s_routed_ones(pair):
    routed, one, two = numbers(1, 4, 32, 32), numbers(1, 1, 32, 32), numbers(1, 1, 33, 32)[:, :, :32]
    given = {8: one, 9: two}
    homes = {8: [0], 9: [1]}
    got = UTILS.add_shared_expert_weights(routed, routed, routed, given, given, given, homes, 2)
    wanted = torch.cat([routed[:, :2], one, routed[:, 2:], two], 1)
    assert all(torch.equal(part, wanted) for part in got)
    assert UTILS.get_shared_experts_per_device(homes, 2) == [[8], [9]]
    with pytest.raises(RuntimeError, match=r"have \[1, 0\] shared experts"):
        UTILS.add_shared_expert_weights(routed, routed, routed, given, given, given, {8: [0]}, 2)
    split = ttnn.ShardTensorToMesh(pair, dim=1)
    on = [ttnn.from_torch(w, layout=TILE, device=pair, mesh_mapper=split) for w in (routed, torch.cat([one, two], 1))]
    first, _, _ = ttnn.experimental.add_shared_expert_weights(on[0], on[0], on[0], on[1], on[1], on[1], 1)
    pieces = [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(first)]
    assert torch.equal(torch.cat(pieces, 1), wanted)


def test_cores_of_moe_compute_do_not_overlap(device):
    mux = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 0))])
    cores = ttnn.experimental.get_moe_combine_cores(device, 4, 2, 128, mux)
    drain = ttnn.experimental.get_moe_tilize_drain_core(device, 4, 2, 128, mux)
    box = ttnn.experimental.get_moe_worker_mcast_bounding_box(device, 4, 2, 128, mux_core_range_set=mux)
    assert len(set(cores)) == 8
    assert drain not in cores
    assert not mux.contains(drain)
    assert not any(mux.contains(core) for core in cores)
    assert all(box.contains(core) for core in (*cores, drain))
    assert {(core.x, core.y) for core in cores} == {(x, y) for x in (6, 7) for y in range(4)}
    assert drain.y >= device.compute_with_storage_grid_size().y - 2
    with pytest.raises(RuntimeError, match="more than the"):
        ttnn.experimental.get_moe_combine_cores(device, 32, 4, 128)
    with pytest.raises(RuntimeError, match="share hidden_size=130 equally"):
        ttnn.experimental.get_moe_combine_cores(device, 4, 4, 130)


def test_rows_of_the_output_are_shared_by_as_many_cores_as_divide_them():
    assert [UTILS.auto_output_width_shard_dim(size) for size in (7168, 2880, 32, 160)] == [4, 3, 1, 1]
    assert UTILS.auto_output_width_shard_dim(160, max_dim=5) == 5
    assert UTILS.auto_output_width_shard_dim(160, max_dim=5, matmul_ring_size=12) == 1
    assert UTILS.auto_output_width_shard_dim(7168, matmul_ring_size=12) == 4
    with pytest.raises(RuntimeError, match="hidden_size=50"):
        UTILS.auto_output_width_shard_dim(50)
