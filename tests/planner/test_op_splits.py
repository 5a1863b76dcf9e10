"""Any way to split an op makes what one device makes: in files, and followed. Ops that address places by numbers, that
write into an operand, or that count what they have, above all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from planned_models import assert_close, drawn, drawn_plan, loaded, on_one_device, opened, problem_on, values_of

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.errors import NotModelled

TILE, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
Op = Callable[[ttnn.MeshDevice], ttnn.Tensor]


@pytest.fixture(autouse=True)
def _on_a_t3000() -> Iterator[None]:
    ttnn.use_system("T3000")
    with aliased():  # files import ttnn
        yield
    ttnn.use_system(None)


def floats(device: ttnn.MeshDevice, *shape: int, layout: ttnn.Layout = TILE) -> ttnn.Tensor:
    return ttnn.from_torch(drawn(*shape), ttnn.bfloat16, layout=layout, device=device)


def whole_numbers(device: ttnn.MeshDevice, values: torch.Tensor, dtype: ttnn.DataType = ttnn.int32) -> ttnn.Tensor:
    return ttnn.from_torch(values, dtype, layout=ROWS, device=device)


def pages(device: ttnn.MeshDevice, users: int) -> ttnn.Tensor:
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    return whole_numbers(device, order.reshape(users, -1))


def positions(device: ttnn.MeshDevice) -> ttnn.Tensor:
    return whole_numbers(device, torch.tensor([3, 9, 40, 63]))


def tokens(device: ttnn.MeshDevice, row: int = 0) -> ttnn.Tensor:
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, row), ttnn.CoreCoord(3, row))})
    shards = ttnn.ShardSpec(cores, [32, 64], ttnn.ShardOrientation.ROW_MAJOR)
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shards)
    return ttnn.to_memory_config(floats(device, 1, 4, 1, 64), memory)


def fill_cache(device: ttnn.MeshDevice) -> ttnn.Tensor:
    cache = floats(device, 4, 2, 64, 32)
    ttnn.fill_cache(cache, floats(device, 1, 2, 32, 32), 1)
    return ttnn.clone(cache)


def update_cache(device: ttnn.MeshDevice) -> ttnn.Tensor:
    cache = floats(device, 4, 2, 64, 32)
    ttnn.update_cache(cache, floats(device, 1, 2, 4, 32), 5)
    return ttnn.clone(cache)


def update_cache_of_some_rows(device: ttnn.MeshDevice) -> ttnn.Tensor:
    cache = floats(device, 4, 2, 64, 32)
    ttnn.update_cache(cache, floats(device, 1, 2, 32, 32), 5, batch_offset=4)
    return ttnn.clone(cache)


def paged_fill_cache(device: ttnn.MeshDevice) -> ttnn.Tensor:
    cache = floats(device, 8, 2, 32, 64)
    ttnn.experimental.paged_fill_cache(cache, floats(device, 1, 2, 64, 64), pages(device, 2), batch_idx=1)
    return ttnn.clone(cache)


def paged_update_cache(device: ttnn.MeshDevice) -> ttnn.Tensor:
    cache, table = floats(device, 8, 1, 32, 64), pages(device, 4)
    where = positions(device)
    ttnn.experimental.paged_update_cache(cache, tokens(device), update_idxs_tensor=where, page_table=table)
    return ttnn.clone(cache)


def update_cache_of_each_user(device: ttnn.MeshDevice) -> ttnn.Tensor:
    cache = floats(device, 4, 1, 64, 64)
    ttnn.experimental.paged_update_cache(cache, tokens(device), update_idxs_tensor=positions(device))
    return ttnn.clone(cache)


def update_two_caches(device: ttnn.MeshDevice) -> ttnn.Tensor:
    keys, values = floats(device, 4, 1, 64, 64), floats(device, 4, 1, 64, 64)
    ttnn.experimental.paged_fused_update_cache(
        keys, tokens(device), values, tokens(device, 1), update_idxs_tensor=positions(device)
    )
    return ttnn.add(keys, values)


def attend_to_pages(device: ttnn.MeshDevice) -> ttnn.Tensor:
    keys, values = floats(device, 8, 2, 32, 64), floats(device, 8, 2, 32, 64)
    return ttnn.transformer.paged_scaled_dot_product_attention_decode(
        floats(device, 1, 4, 8, 64), keys, values, pages(device, 4), cur_pos_tensor=positions(device)
    )


def prefill_from_pages(device: ttnn.MeshDevice) -> ttnn.Tensor:
    keys, values = floats(device, 8, 2, 32, 64), floats(device, 8, 2, 32, 64)
    queries = floats(device, 2, 4, 32, 64)
    return ttnn.transformer.chunked_scaled_dot_product_attention(
        queries, keys, values, pages(device, 2), chunk_start_idx=32
    )


def gather(device: ttnn.MeshDevice) -> ttnn.Tensor:
    index = torch.randint(0, 64, (64, 32), generator=torch.Generator().manual_seed(1))
    index = ttnn.from_torch(index, ttnn.uint32, layout=TILE, device=device)
    return ttnn.gather(floats(device, 64, 64), 1, index)


def index_fill(device: ttnn.MeshDevice) -> ttnn.Tensor:
    which = whole_numbers(device, torch.tensor([1, 3]), ttnn.uint32)
    return ttnn.index_fill(floats(device, 4, 64, layout=ROWS), 0, which, 2.0)


def slice_write(device: ttnn.MeshDevice) -> ttnn.Tensor:
    target = floats(device, 2, 4, 64, 64, layout=ROWS)
    part = floats(device, 2, 4, 16, 64, layout=ROWS)
    ttnn.experimental.slice_write(part, target, [0, 0, 8, 0], [2, 4, 24, 64], [1, 1, 1, 1])
    return ttnn.clone(target)


def group_norm(device: ttnn.MeshDevice) -> ttnn.Tensor:
    images = floats(device, 2, 1, 64, 64, layout=ROWS)
    weight, bias = (floats(device, 1, 1, 2, 32, layout=ROWS) for _ in range(2))
    grid = ttnn.CoreGrid(x=1, y=1)
    return ttnn.group_norm(images, num_groups=2, core_grid=grid, weight=weight, bias=bias)


def batch_norm(device: ttnn.MeshDevice) -> ttnn.Tensor:
    mean, variance = floats(device, 1, 64, 1, 1), ttnn.abs(floats(device, 1, 64, 1, 1))
    return ttnn.batch_norm(floats(device, 4, 64, 8, 8), running_mean=mean, running_var=variance, training=False)


def product_of_rows(device: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.prod(floats(device, 4, 64), dim=1)


def variance_of_columns(device: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.var(floats(device, 64, 64), dim=0)


def other_bounds(device: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.reshape(floats(device, 1, 4, 64, 256), (1, 4, 40, 256), (1, 4, 64, 256))


def fewer_rows(device: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.reshape(floats(device, 1, 1, 32, 256), (1, 1, 8, 256), (1, 1, 32, 256))


def masked_attention(device: ttnn.MeshDevice) -> ttnn.Tensor:
    """-inf goes wherever the mask goes, and a change in place reaches who reads the scores by either name."""
    above = torch.full((32, 32), -torch.inf).triu(1)
    mask = ttnn.from_torch(above, ttnn.bfloat16, layout=TILE, device=device)
    scores = ttnn.add(ttnn.matmul(floats(device, 4, 32, 64), floats(device, 4, 64, 32)), mask)
    ttnn.multiply_(scores, 0.125)
    weights = ttnn.softmax_in_place(scores)
    return ttnn.add(ttnn.matmul(weights, floats(device, 4, 32, 64)), ttnn.matmul(scores, floats(device, 4, 32, 64)))


WRITING = [  # into what they would have to place by the plan's mapper first
    *(fill_cache, update_cache, update_cache_of_some_rows, paged_fill_cache, paged_update_cache),
    *(update_cache_of_each_user, update_two_caches, slice_write),
]
OPS = [
    *WRITING,
    *(attend_to_pages, prefill_from_pages, gather, index_fill),
    *(masked_attention, group_norm, batch_norm, product_of_rows, variance_of_columns, other_bounds, fewer_rows),
]


@pytest.mark.parametrize("op", OPS)
def test_any_split_of_an_op_makes_what_one_device_makes(op: Op) -> None:
    expected = on_one_device(op)
    with opened((2, 2)) as mesh:
        problem = problem_on(op, mesh)
        plans = [drawn_plan(problem, seed) for seed in range(6)]
    assert len({tuple(one.split_names for one in found.strategies) for found in plans}) > 1
    for found in plans:
        (made,) = loaded(found.source())["run"](values_of(op))
        assert_close(made, expected)
        if op not in WRITING:
            with opened((2, 2)) as mesh, found.followed(mesh):
                followed = ttnn.compose(op(mesh))
            assert_close(followed, expected)


def rows_of_a_place(device: ttnn.MeshDevice) -> ttnn.Tensor:
    tables = (floats(device, 1, 1, 64, 64) for _ in range(2))
    turn = floats(device, 1, 1, 32, 32)
    indexed = ttnn.experimental.deepseek_prefill.rotary_embedding_indexed
    return indexed(floats(device, 1, 2, 32, 64), *tables, turn, 0, cluster_axis=1)


def some_results(device: ttnn.MeshDevice) -> ttnn.Tensor:
    rows = floats(device, 1, 1, 32, 64)
    return ttnn.moreh_layer_norm(rows, 1, 1e-5, None, None)[0]


@pytest.mark.parametrize(("op", "told"), [(rows_of_a_place, "the place of a device"), (some_results, "gives None")])
def test_what_a_plan_has_no_form_for_is_refused(op: Op, told: str) -> None:
    with opened((1, 2)) as mesh, pytest.raises(NotModelled, match=told):
        problem_on(op, mesh)


def heads_of_shards(device: ttnn.MeshDevice) -> ttnn.Tensor:
    shards = ttnn.create_sharded_memory_config((1, 32, 384), ttnn.CoreGrid(x=2, y=1), ttnn.ShardStrategy.WIDTH)
    row = ttnn.to_memory_config(floats(device, 1, 32, 384), shards)
    return ttnn.transformer.split_query_key_value_and_split_heads(row, num_heads=2)[0]


def test_heads_that_come_in_another_order_from_shards_are_refused() -> None:
    with opened((1, 2)) as mesh, pytest.raises(NotModelled, match="a plan has no shards"):
        problem_on(heads_of_shards, mesh)


def dropout(device: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.experimental.dropout(floats(device, 64, 64), probability=0.5, scale=2.0, seed=1)


def batch_norm_of_a_step(device: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.batch_norm(floats(device, 4, 64, 8, 8), training=True)


@pytest.mark.parametrize("op", [dropout, batch_norm_of_a_step])
def test_what_is_a_part_of_a_function_is_not_written_alone(op: Op) -> None:
    with opened((1, 2)) as mesh:
        found = drawn_plan(problem_on(op, mesh), 0)
    with pytest.raises(NotModelled, match="is a part of what TT-NN does in one function"):
        found.source()
