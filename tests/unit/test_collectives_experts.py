"""Mixture of experts and the merge at a root, against loops over devices."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh.collectives.moe.dispatch_and_combine import all_to_all_combine, all_to_all_dispatch
from softmesh.collectives.moe.routing_weights import moe_expert_token_remap, moe_routing_remap
from softmesh.collectives.rooted_collectives import reduce_to_root
from softmesh.errors import MeshError

ROWS = ttnn.ROW_MAJOR_LAYOUT


@pytest.fixture
def mesh(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


@pytest.fixture
def line(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(4, 1)) as opened:
        yield opened


def put(pieces: torch.Tensor, mesh: ttnn.MeshDevice, dtype: ttnn.DataType, layout: ttnn.Layout = ROWS):
    """pieces (devices, *local)."""
    flat = pieces.reshape(-1, *pieces.shape[2:])
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    return ttnn.from_torch(flat, dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper)


def shards(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ttnn.SoftmeshWarning)
        return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def choices(devices: int, batch: int, rows: int, k: int, experts: int) -> torch.Tensor:
    """Each token's experts, all different."""
    generator = torch.Generator().manual_seed(devices + experts)
    scores = torch.rand(devices, batch, 1, rows, experts, generator=generator)
    return scores.topk(k, -1).indices.to(torch.int32)


def homes(experts: int, devices: int) -> torch.Tensor:
    """Expert e lives on device (5 e) mod devices: not in order."""
    mapping = torch.zeros(1, 1, experts, devices, dtype=torch.int32)
    for expert in range(experts):
        mapping[0, 0, expert, 5 * expert % devices] = 1
    return mapping


def put_mapping(mapping: torch.Tensor, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    replicate = ttnn.ReplicateTensorToMesh(mesh)
    return ttnn.from_torch(mapping, dtype=ttnn.uint16, layout=ROWS, device=mesh, mesh_mapper=replicate)


def members(axis: int, device: int) -> list[int]:
    row, column = divmod(device, 4)
    return [row * 4 + c for c in range(4)] if axis == 1 else [column, column + 4]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dim", [1, 2])
def test_dispatch_brings_each_token_to_the_devices_of_its_experts(mesh, axis, dim):
    batch, rows, width, k, experts = 2, 3, 8, 2, 16
    x, chosen, mapping = (
        numbers(8, batch, 1, rows, width),
        choices(8, batch, rows, k, experts),
        homes(experts, 8),
    )
    tokens, metadata = all_to_all_dispatch(
        put(x, mesh, ttnn.bfloat16),
        put(chosen, mesh, ttnn.uint16),
        put_mapping(mapping, mesh),
        cluster_axis=axis,
        output_concat_dim=dim,
    )
    joined = 0 if dim == 1 else 2
    for device, (got, told) in enumerate(zip(shards(tokens), shards(metadata), strict=True)):
        group = members(axis, device)
        rows_all = torch.cat([x[d] for d in group], joined).transpose(0, 1)
        meta = torch.cat([chosen[d] for d in group], joined).transpose(0, 1)
        is_here = (mapping[0, 0, meta.long(), device] == 1).any(-1)
        assert torch.equal(told.int(), meta)
        assert torch.equal(got[is_here], rows_all[is_here])
        assert got[~is_here].isnan().all()
    assert 0 < sum(shard.isnan().any(-1).sum() for shard in shards(tokens)) < 8 * batch * rows * len(group)


def test_dispatch_over_a_whole_line_has_the_shapes_of_the_reference(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        x, chosen = numbers(8, 1, 1, 1, 64), choices(8, 1, 1, 4, 8)
        tokens, metadata = all_to_all_dispatch(
            put(x, mesh, ttnn.bfloat16), put(chosen, mesh, ttnn.uint16), put_mapping(homes(8, 8), mesh)
        )
        assert tokens.shape == [1, 8, 1, 64]
        assert tokens.dtype is ttnn.bfloat16
        assert metadata.shape == [1, 8, 1, 4]
        assert metadata.dtype is ttnn.uint16
        assert ttnn.placements(metadata) == (ttnn.Replicate(), ttnn.Replicate())


def test_rows_nobody_wrote_warn_when_they_are_read_and_written_ones_do_not(mesh):
    x, chosen = numbers(8, 1, 1, 2, 8), torch.zeros(8, 1, 1, 2, 1, dtype=torch.int32)
    tokens, metadata = all_to_all_dispatch(
        put(x, mesh, ttnn.bfloat16),
        put(chosen, mesh, ttnn.uint16),
        put_mapping(homes(8, 8), mesh),
        cluster_axis=1,
    )
    of_expert_0, other = ttnn.get_device_tensors(tokens)[:2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ttnn.to_torch(of_expert_0)
        ttnn.to_torch(ttnn.get_device_tensors(metadata)[0])
    with pytest.warns(ttnn.SoftmeshWarning, match=r"all_to_all_dispatch \(test_collectives_experts.py:\d+\)"):
        ttnn.to_torch(other)


def told_undefined(tensor: ttnn.Tensor) -> list[int]:
    """The devices whose pieces cannot be read without a warning."""
    found = []
    for device, shard in enumerate(ttnn.get_device_tensors(tensor)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ttnn.to_torch(shard)
        if caught:
            found.append(device)
    return found


def test_a_nan_of_the_program_itself_is_not_called_undefined(mesh):
    """Expert 0, which all tokens choose, lives on device 0; the tokens come as NaN."""
    x, chosen = torch.full((8, 1, 1, 2, 8), torch.nan), torch.zeros(8, 1, 1, 2, 1, dtype=torch.int32)
    operands = (
        put(x, mesh, ttnn.bfloat16),
        put(chosen, mesh, ttnn.uint16),
        put_mapping(homes(8, 8), mesh),
    )
    tokens, metadata = all_to_all_dispatch(*operands, cluster_axis=1)
    assert told_undefined(tokens) == list(range(1, 8))
    assert told_undefined(ttnn.relu(ttnn.to_layout(tokens, ttnn.TILE_LAYOUT))) == list(range(1, 8))
    assert told_undefined(ttnn.gt(tokens, 0.0)) == list(range(1, 8))
    back = all_to_all_combine(tokens, metadata, operands[2], cluster_axis=1)
    assert told_undefined(back) == []
    assert [shard.isnan().all().item() for shard in shards(back)] == [True] * 4 + [False] * 4
    assert all(shard.eq(0).all() for shard in shards(back)[4:])  # no device of the second row has the expert


def test_written_rows_can_be_cut_out_of_a_piece_and_read(mesh):
    x = numbers(8, 1, 1, 2, 8)
    chosen = torch.tensor([[0], [1]]).int().expand(8, 1, 1, 2, 1)  # row 0 for device 0, row 1 for device 5
    tokens, _ = all_to_all_dispatch(
        put(x, mesh, ttnn.bfloat16),
        put(chosen, mesh, ttnn.uint16),
        put_mapping(homes(8, 8), mesh),
        cluster_axis=1,
    )
    assert told_undefined(tokens) == list(range(8))
    assert told_undefined(tokens[:, :, :1]) == [1, 2, 3, 4, 5, 6, 7]
    assert told_undefined(tokens[:, :, 1:]) == [0, 1, 2, 3, 4, 6, 7]


def test_experts_at_work_between_dispatch_and_combine_read_nothing_undefined(idle_machine, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        x, chosen, mapping = numbers(8, 1, 1, 2, 8), choices(8, 1, 2, 2, 8), put_mapping(homes(8, 8), mesh)
        tokens, metadata = all_to_all_dispatch(
            put(x, mesh, ttnn.bfloat16), put(chosen, mesh, ttnn.uint16), mapping, cluster_axis=1
        )
        doubled = ttnn.multiply(tokens, 2)
        for answers in (doubled, ttnn.where(ttnn.gt(tokens, -1e9), doubled, 0.0)):
            back = all_to_all_combine(answers, metadata, mapping, cluster_axis=1)
            for device, shard in enumerate(ttnn.get_device_tensors(back)):
                assert torch.equal(ttnn.to_torch(shard), 2 * x[device].expand(2, 1, 2, 8))


def test_rows_of_a_given_output_that_were_undefined_and_stay_unwritten_are_so_still(mesh):
    x, mapping = put(numbers(8, 1, 1, 2, 8), mesh, ttnn.bfloat16), put_mapping(homes(8, 8), mesh)
    first, second = (put(torch.full((8, 1, 1, 2, 1), e), mesh, ttnn.uint16) for e in (0, 5))  # 5 lives on device 1
    given = all_to_all_dispatch(x, first, mapping, cluster_axis=1)
    all_to_all_dispatch(x, second, mapping, cluster_axis=1, output_tensors=given)
    assert told_undefined(given[0]) == list(range(2, 8))


def test_an_expert_without_a_home_gets_no_tokens_and_gives_no_answers(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        mapping = homes(16, 8)
        mapping[0, 0, 8] = 0  # it lived on device 0, with expert 0
        placed = put_mapping(mapping, mesh)
        x, chosen = numbers(8, 1, 1, 1, 8), torch.tensor([8, 0]).int().expand(8, 1, 1, 1, 2)
        with pytest.warns(ttnn.SoftmeshWarning, match="expert 8 is chosen, and no device holds it"):
            tokens, metadata = all_to_all_dispatch(
                put(x, mesh, ttnn.bfloat16), put(chosen, mesh, ttnn.uint16), placed, cluster_axis=1
            )
        assert told_undefined(tokens) == list(range(1, 8))
        for one in (False, True):
            slabs = put(torch.ones(8, 1 if one else 2, 8, 1, 8), mesh, ttnn.bfloat16)
            back = all_to_all_combine(slabs, metadata, placed, local_reduce=one, cluster_axis=1)
            assert told_undefined(back) == []
            for shard in shards(back):
                assert shard[0].eq(0).all()
                assert shard[1].eq(1).all()


def test_an_expert_beyond_the_share_of_its_device_does_not_answer_for_the_next(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        mapping = torch.zeros(1, 1, 8, 8)
        mapping[0, 0, :, 0] = 1  # all on one device, which has a slab for one of them
        slabs = torch.arange(1.0, 9.0).reshape(8, 1, 1, 1, 1).expand(8, 1, 8, 1, 8)
        meta = torch.tensor([0, 1]).int().expand(8, 1, 8, 1, 2)
        back = all_to_all_combine(
            put(slabs, mesh, ttnn.bfloat16),
            put(meta, mesh, ttnn.uint16),
            put_mapping(mapping, mesh),
            cluster_axis=1,
        )
        for shard in shards(back):
            assert shard[0].eq(1).all()
            assert shard[1].eq(0).all()


@pytest.mark.parametrize("is_planned", [False, True])
def test_numbers_of_experts_that_do_not_exist_are_refused_by_name(mesh, is_planned):
    x, mapping = put(torch.ones(8, 1, 1, 1, 8), mesh, ttnn.bfloat16), put_mapping(homes(8, 8), mesh)
    slabs = put(torch.ones(8, 1, 4, 1, 8), mesh, ttnn.bfloat16)
    good, bad = (
        (
            put(torch.full((8, 1, 1, 1, 1), e), mesh, ttnn.uint16),
            put(torch.full((8, 1, 4, 1, 1), e), mesh, ttnn.uint16),
        )
        for e in (7, 8)
    )
    if is_planned:
        all_to_all_dispatch(x, good[0], mapping, cluster_axis=1)
        all_to_all_combine(slabs, good[1], mapping, cluster_axis=1)
    with pytest.raises(MeshError, match=r"expert_indices_tensor names expert 8, .* has 8 experts"):
        all_to_all_dispatch(x, bad[0], mapping, cluster_axis=1)
    with pytest.raises(MeshError, match=r"expert_metadata_tensor names expert 8, .* has 8 experts"):
        all_to_all_combine(slabs, bad[1], mapping, cluster_axis=1)


def test_token_remap_gives_no_weight_to_experts_that_a_device_lacks(mesh):
    mapping = homes(16, 8)
    mapping[0, 0, 8] = 0  # device 0 keeps expert 0 alone
    kept, _ = moe_expert_token_remap(
        put(torch.ones(8, 1, 1, 2, 16), mesh, ttnn.bfloat16),
        put_mapping(mapping, mesh),
        put(torch.tensor([0, 1, 2]).int().expand(8, 1, 1, 2, 3), mesh, ttnn.uint16),
    )
    assert shards(kept)[0].flatten().tolist() == [1, 0, 1, 0]


def test_dispatch_leaves_rows_it_does_not_write_as_they_were_in_a_given_output(mesh):
    x, chosen = numbers(8, 1, 1, 2, 8), torch.zeros(8, 1, 1, 2, 1, dtype=torch.int32)
    given = [
        put(torch.full((8, 1, 4, 2, 8), 7.0), mesh, ttnn.bfloat16),
        put(torch.zeros(8, 1, 4, 2, 1, dtype=torch.int32), mesh, ttnn.uint16),
    ]
    tokens, metadata = all_to_all_dispatch(
        put(x, mesh, ttnn.bfloat16),
        put(chosen, mesh, ttnn.uint16),
        put_mapping(homes(8, 8), mesh),
        cluster_axis=1,
        output_tensors=given,
    )
    assert tokens is given[0]
    assert metadata is given[1]
    got = shards(given[0])
    assert torch.equal(got[0], torch.cat([x[d] for d in range(4)], 0).transpose(0, 1))
    assert (got[1] == 7).all()


def reference_slots(
    slabs: torch.Tensor, meta: dict[int, torch.Tensor], mapping: torch.Tensor, axis: int, dim: int, one: bool
) -> dict[int, torch.Tensor]:
    """Device -> (K, tokens of its own): what the experts of its group answered, NaN where none did."""
    per_device = mapping.shape[2] // 8
    slots = {}
    for device in range(8):
        group = members(axis, device)
        batch, rows, k = meta[device].shape[1:]
        out = torch.full((k, batch, rows, slabs.shape[-1]), torch.nan).bfloat16()
        for home in group:
            local = [e for e in range(mapping.shape[2]) if mapping[0, 0, e, home]]
            assert len(local) == per_device
            for b in range(batch):
                for r in range(rows):
                    for number, expert in enumerate(local):
                        found = (meta[device][0, b, r] == expert).nonzero().flatten().tolist()
                        for slot in found[:1] if one else found:
                            out[slot, b, r] = slabs[home][0 if one else number, b, r]
                        if found and one:
                            break
        slots[device] = out.chunk(len(group), dim)[group.index(device)]
    return slots


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("one", [False, True])
def test_combine_brings_the_answers_of_the_experts_back(mesh, axis, dim, one):
    size, k, experts, width = (2, 4)[axis], 3, 16, 4
    batch, rows = (2 * size, 3) if dim == 1 else (2, 3 * size)
    slabs = numbers(8, 1 if one else experts // 8, batch, rows, width)
    told = choices(8, 1, batch * rows, k, experts).reshape(8, 1, batch, rows, k)
    meta = {device: told[members(axis, device)[0]] for device in range(8)}
    mapping = homes(experts, 8)
    result = all_to_all_combine(
        put(slabs, mesh, ttnn.bfloat16),
        put(torch.stack([meta[d] for d in range(8)]), mesh, ttnn.uint16),
        put_mapping(mapping, mesh),
        local_reduce=one,
        output_shard_dim=dim,
        cluster_axis=axis,
    )
    wanted = reference_slots(slabs, meta, mapping, axis, dim, one)
    for device, got in enumerate(shards(result)):
        assert torch.equal(got, wanted[device].nan_to_num())


def test_combine_undoes_dispatch_when_experts_copy_on_a_line(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        x, chosen, mapping = numbers(8, 2, 1, 3, 8), choices(8, 2, 3, 2, 16), put_mapping(homes(16, 8), mesh)
        tokens, metadata = all_to_all_dispatch(
            put(x, mesh, ttnn.bfloat16), put(chosen, mesh, ttnn.uint16), mapping, cluster_axis=1
        )
        answers = ttnn.concat([tokens, tokens], dim=0)
        back = all_to_all_combine(answers, metadata, mapping, cluster_axis=1)
        for device, got in enumerate(shards(back)):
            assert torch.equal(got, x[device].transpose(0, 1).expand(2, 2, 3, 8))


def test_slots_of_a_zeroed_output_that_combine_does_not_write_stay_zero(mesh):
    slabs = torch.ones(8, 1, 4, 1, 8).bfloat16()
    meta = torch.tensor([0, 8]).int().expand(8, 1, 4, 1, 2)  # both experts live on device 0
    given = put(torch.zeros(8, 2, 1, 1, 8), mesh, ttnn.bfloat16)
    result = all_to_all_combine(
        put(slabs, mesh, ttnn.bfloat16),
        put(meta, mesh, ttnn.uint16),
        put_mapping(homes(16, 8), mesh),
        local_reduce=True,
        cluster_axis=1,
        output_tensor=given,
    )
    assert result is given
    assert [shard[:, 0, 0, 0].tolist() for shard in shards(given)] == [[1.0, 0.0]] * 4 + [[0.0, 0.0]] * 4


def test_each_member_keeps_its_run_of_the_weights_that_are_not_zero(mesh):
    weights = torch.tensor([0, 3, 0, 1, 4, 0, 5, 2]).bfloat16().reshape(1, 8)
    x = ttnn.from_torch(weights, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))
    result = moe_routing_remap(x, 4, 2, 0)
    first, second = [0, 3, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 4, 0, 5, 0]
    assert [shard.flatten().tolist() for shard in shards(result)] == [first] * 4 + [second] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 0, 0), "expert parallel size must be non-zero"),
        ((0, 2, 0), "Number of non zero weights must be non-zero"),
        ((4, 4, 0), "expert parallel size 4 should be the same as size of cluster axis"),
        ((5, 2, 0), "Number of non zero weights 5 must be evenly divisible by expert parallel size"),
    ],
)
def test_routing_remap_refuses_sizes_that_do_not_fit(mesh, arguments, message):
    x = ttnn.from_torch(torch.ones(1, 8), device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))
    with pytest.raises(RuntimeError, match=message):
        moe_routing_remap(x, *arguments)


def test_token_remap_keeps_the_weights_of_local_experts_that_were_chosen(mesh):
    batch, rows, k, experts, run = 2, 5, 3, 16, 4
    weights, mapping = numbers(8, 1, batch, rows, experts), homes(experts, 8)
    chosen = choices(8, 1, batch * rows, k, experts)[:1].reshape(1, 1, batch, rows, k).expand(8, -1, -1, -1, -1)
    kept, flags = moe_expert_token_remap(
        put(weights, mesh, ttnn.bfloat16),
        put_mapping(mapping, mesh),
        put(chosen, mesh, ttnn.uint16),
        reduction_size=run,
    )
    assert flags.dtype is ttnn.uint16
    for device, (got, marks) in enumerate(zip(shards(kept), shards(flags), strict=True)):
        local = [e for e in range(experts) if mapping[0, 0, e, device]]
        is_chosen = torch.stack([(chosen[device] == e).any(-1) for e in local], -1)
        wanted = weights[device][..., local] * is_chosen
        assert torch.equal(got, wanted)
        any_in_run = [part.ne(0).any(0) for part in wanted.reshape(-1, len(local)).split(run)]
        assert torch.equal(marks.int()[0, 0], torch.stack(any_in_run).int())


def test_the_first_column_of_each_block_weighs_the_merge_at_the_root(line):
    rows, blocks = 32, 2
    values = numbers(4, rows, blocks * 64)
    sums = numbers(4, rows, blocks * 32).abs() + 1
    maxima = numbers(4, rows, blocks * 32 + 1)[..., 1:]
    root = ttnn.MeshCoordinate(1, 0)
    operands = [put(part, line, ttnn.bfloat16, ttnn.TILE_LAYOUT) for part in (values, sums, maxima)]
    merged_values, merged_sums, merged_maxima = reduce_to_root(*operands, root, scale_fp32=0.5)
    top = maxima.float().amax(0)
    for block in range(blocks):
        column = 32 * block
        weight = ((maxima.float() - top)[:, :, column : column + 1] * 0.5).exp()
        total = (sums.float() * weight).sum(0)[:, column : column + 32]
        wide = (values.float() * weight).sum(0)[:, 64 * block : 64 * block + 64] / total[:, :1]
        got = shards(merged_values)[1].float()[:, 64 * block : 64 * block + 64]
        torch.testing.assert_close(got, wide, rtol=0.02, atol=0.02)
        torch.testing.assert_close(shards(merged_sums)[1].float()[:, column : column + 32], total, rtol=0.02, atol=0.02)
    assert torch.equal(shards(merged_maxima)[1], top.bfloat16())
    with pytest.warns(ttnn.SoftmeshWarning, match="reduce_to_root"):
        assert ttnn.to_torch(ttnn.get_device_tensors(merged_values)[0]).isnan().all()


def test_a_merge_writes_only_the_root_of_given_outputs(line):
    parts = [torch.ones(4, 32, 32) for _ in range(3)]
    operands = [put(part, line, ttnn.bfloat16, ttnn.TILE_LAYOUT) for part in parts]
    given = [put(torch.full((4, 32, 32), 9.0), line, ttnn.bfloat16, ttnn.TILE_LAYOUT) for _ in range(3)]
    made = reduce_to_root(
        *operands,
        ttnn.MeshCoordinate(1, 0),
        output_tensor_l=given[0],
        output_tensor_s=given[1],
        output_tensor_m=given[2],
    )
    assert all(a is b for a, b in zip(made, given, strict=True))
    assert [[shard[0, 0].item() for shard in shards(tensor)] for tensor in given] == [
        [9, 1, 9, 9],
        [9, 4, 9, 9],
        [9, 1, 9, 9],
    ]


def test_a_merge_needs_four_devices_in_a_line_and_its_root_second(mesh):
    x = put(torch.ones(8, 32, 32), mesh, ttnn.bfloat16, ttnn.TILE_LAYOUT)
    with pytest.raises(RuntimeError, match="exactly 4 devices in a line"):
        reduce_to_root(x, x, x, ttnn.MeshCoordinate(1, 0))
    line = mesh.create_submesh(ttnn.MeshShape(1, 4))
    y = put(torch.ones(4, 32, 32), line, ttnn.bfloat16, ttnn.TILE_LAYOUT)
    with pytest.raises(RuntimeError, match="second device of the line"):
        reduce_to_root(y, y, y, ttnn.MeshCoordinate(0, 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": (ttnn.bfloat16, ttnn.TILE_LAYOUT)}, "Input tensor must be in row major layout"),
        ({"x": (ttnn.float32, ROWS)}, "Input tensor must be bfloat16"),
        ({"chosen": (ttnn.int32, ROWS)}, "Indices tensor must be uint16"),
        ({"output_concat_dim": 3}, "Output concat dimension must be 1 or 2, got 3"),
        ({"experts": 7}, "7 experts cannot live on 8 devices"),
        ({"devices": 4}, "one column for each of the 8 devices"),
        ({"rows": 3}, "must have the same shape for all dimensions except the last"),
        ({"num_links": 0}, "num_links must be greater than 0"),
    ],
)
def test_dispatch_refuses_what_does_not_fit(mesh, change, message):
    x_form = change.pop("x", (ttnn.bfloat16, ROWS))
    chosen_form = change.pop("chosen", (ttnn.uint16, ROWS))
    mapping = homes(change.pop("experts", 8), change.pop("devices", 8))
    x, chosen = torch.ones(8, 1, 1, 2, 8), torch.zeros(8, 1, 1, change.pop("rows", 2), 1)
    with pytest.raises(RuntimeError, match=message):
        all_to_all_dispatch(
            put(x, mesh, *x_form),
            put(chosen, mesh, *chosen_form),
            put_mapping(mapping, mesh),
            cluster_axis=1,
            **change,
        )


def test_combine_needs_an_axis(mesh):
    x = put(torch.ones(8, 1, 4, 1, 8), mesh, ttnn.bfloat16)
    meta = put(torch.zeros(8, 1, 4, 1, 1), mesh, ttnn.uint16)
    with pytest.raises(RuntimeError, match="Axis must be specified at the moment"):
        all_to_all_combine(x, meta, put_mapping(homes(8, 8), mesh))


@pytest.mark.parametrize("axis", [0, 1])
def test_operands_that_several_groups_share_give_each_device_its_own_rows(mesh, axis):
    """Tokens and choices split along one axis of the mesh only, as data parallel programs have them."""
    x, chosen, mapping = numbers(4, 1, 2, 8), choices(4, 1, 2, 2, 16)[:, 0], homes(16, 8)
    size = (2, 4)[axis]
    dims = (0, None) if axis == 0 else (None, 0)
    split = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=dims)
    form = {"layout": ROWS, "device": mesh, "mesh_mapper": split}
    tokens, metadata = all_to_all_dispatch(
        ttnn.from_torch(x[:size], dtype=ttnn.bfloat16, **form),
        ttnn.from_torch(chosen[:size], dtype=ttnn.uint16, **form),
        put_mapping(mapping, mesh),
        cluster_axis=axis,
    )
    assert tokens.view_data().shape[:2] == tokens.view_distribution().extents
    assert metadata.view_data().shape[:2] == metadata.view_distribution().extents
    for device, (got, told) in enumerate(zip(shards(tokens), shards(metadata), strict=True)):
        assert torch.equal(told.int(), chosen[:size].transpose(0, 1))
        is_here = (mapping[0, 0, told.long(), device] == 1).any(-1)
        assert torch.equal(got[is_here], x[:size].transpose(0, 1)[is_here])
        assert got[~is_here].isnan().all()
    back = all_to_all_combine(
        ttnn.concat([tokens, tokens], dim=0), metadata, put_mapping(mapping, mesh), cluster_axis=axis
    )
    assert back.view_data().shape[:2] == back.view_distribution().extents
    for device, slots in enumerate(shards(back)):
        own = members(axis, device).index(device)
        for slot in range(2):
            home = mapping[0, 0].argmax(-1)[chosen[own, 0, :, slot].long()]
            for row in range(2):
                answered = home[row].item() in members(axis, device)
                got = slots[slot, 0, row]
                assert torch.equal(got, x[own, 0, row] if answered else torch.zeros_like(got))


def test_experts_on_a_mesh_of_three_axes(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    with ttnn.create_mesh_device(ttnn.MeshShape([2, 2, 2])) as mesh:
        x, chosen, mapping = numbers(8, 1, 1, 2, 8), choices(8, 1, 2, 2, 16), homes(16, 8)
        tokens, metadata = all_to_all_dispatch(
            put(x, mesh, ttnn.bfloat16),
            put(chosen, mesh, ttnn.uint16),
            put_mapping(mapping, mesh),
            cluster_axis=1,
        )
        for device, (got, told) in enumerate(zip(shards(tokens), shards(metadata), strict=True)):
            group = [device & ~2, device | 2]
            rows = torch.cat([x[d] for d in group]).transpose(0, 1)
            assert torch.equal(told.int(), torch.cat([chosen[d] for d in group]).transpose(0, 1))
            is_here = (mapping[0, 0, told.long(), device] == 1).any(-1)
            assert torch.equal(got[is_here], rows[is_here])
