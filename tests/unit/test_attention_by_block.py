"""Decoding over caches big enough that their blocks are read where they lie: the same as over rows copied together."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh.ops.attention import paged_decode

USERS, PAGES, BLOCK, WIDTH = 4, 10, 32, 64
KV_HEADS = 8  # a cache takes more than 1 MiB in any dtype
BLOCKS = USERS * PAGES
DTYPES = {"float32": (ttnn.float32, 2e-5), "bfloat16": (ttnn.bfloat16, 2e-2)}


@pytest.fixture(scope="module")
def mesh():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        yield mesh


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


def shuffled_pages() -> torch.Tensor:
    return torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(3)).reshape(USERS, PAGES).int()


def expected(q, k, v, table, positions) -> torch.Tensor:
    """User by user, in float64."""
    out = torch.zeros_like(q, dtype=torch.float64)
    group = q.shape[2] // k.shape[1]
    for user, last in enumerate(positions):
        if last < 0:
            continue
        pages = table[user, : last // BLOCK + 1].long()
        keys, values = (
            x[pages].double().transpose(0, 1).flatten(1, 2)[:, : last + 1].repeat_interleave(group, 0) for x in (k, v)
        )
        scores = torch.einsum("hw,hsw->hs", q[0, user].double(), keys) * WIDTH**-0.5
        out[0, user] = torch.einsum("hs,hsw->hw", scores.softmax(-1), values)
    return out


def put(mesh, values, dtype, dim=None, layout=ttnn.TILE_LAYOUT):
    mapper = ttnn.ReplicateTensorToMesh(mesh) if dim is None else ttnn.ShardTensorToMesh(mesh, dim)
    return ttnn.from_torch(values, dtype, layout=layout, device=mesh, mesh_mapper=mapper)


def decoded(mesh, q, k, v, table, positions, dtype=ttnn.float32) -> torch.Tensor:
    """Heads shared by the devices."""
    out = ttnn.transformer.paged_scaled_dot_product_attention_decode(
        put(mesh, q, dtype, 2),
        put(mesh, k, dtype, 1),
        put(mesh, v, dtype, 1),
        put(mesh, table, ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT),
        cur_pos_tensor=put(mesh, torch.tensor(positions), ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT),
    )
    assert ttnn.placements(out) == (ttnn.Replicate(), ttnn.Shard(2))
    return ttnn.compose(out)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize(
    "positions",
    [[319, 319, 319, 319], [300, 200, 319, 256], [310, 0, -1, 31]],
    ids=["all pages", "some", "one user idle"],
)
def test_each_user_attends_to_its_own_pages(mesh, dtype, group, positions):
    kind, tolerance = DTYPES[dtype]
    q = draw(1, USERS, KV_HEADS * group, WIDTH, seed=0)
    k, v = (draw(BLOCKS, KV_HEADS, BLOCK, WIDTH, seed=seed) for seed in (1, 2))
    table = shuffled_pages()
    found = decoded(mesh, q, k, v, table, positions, kind)
    wanted = expected(q, k, v, table, positions)
    torch.testing.assert_close(found.double(), wanted, atol=tolerance, rtol=tolerance)


def test_pages_beyond_a_users_position_may_be_numbered_at_will(mesh):
    q, k, v = (
        draw(1, USERS, KV_HEADS, WIDTH, seed=0),
        *(draw(BLOCKS, KV_HEADS, BLOCK, WIDTH, seed=s) for s in (1, 2)),
    )
    table = shuffled_pages()
    positions = [319, 10, 100, 319]
    wanted = expected(q, k, v, table, positions)
    table[1, 1:], table[2, 4:] = -1, table[0, 0]
    torch.testing.assert_close(decoded(mesh, q, k, v, table, positions).double(), wanted, atol=2e-5, rtol=2e-5)


def test_users_may_share_the_pages_of_a_common_beginning(mesh):
    q, k, v = (
        draw(1, USERS, KV_HEADS, WIDTH, seed=0),
        *(draw(BLOCKS, KV_HEADS, BLOCK, WIDTH, seed=s) for s in (1, 2)),
    )
    table = shuffled_pages()
    table[:, :2] = table[0, :2]
    positions = [319, 250, 300, 70]
    wanted = expected(q, k, v, table, positions)
    torch.testing.assert_close(decoded(mesh, q, k, v, table, positions).double(), wanted, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("number", [-1, BLOCKS])
def test_a_page_that_is_read_and_does_not_exist_is_named(mesh, number):
    q, k = draw(1, USERS, KV_HEADS, WIDTH, seed=0), draw(BLOCKS, KV_HEADS, BLOCK, WIDTH, seed=1)
    table = shuffled_pages()
    table[2, 1] = number
    with pytest.raises(RuntimeError, match=f"names block {number} for positions that are read"):
        decoded(mesh, q, k, k, table, [319, 319, 319, 319])


@pytest.mark.parametrize(
    "positions",
    [[319] * USERS, [300, 200, 319, 256], [310, 0, -1, 31]],
    ids=["all pages", "some", "one user idle"],
)
def test_rows_of_devices_may_have_users_and_pages_of_their_own(positions, monkeypatch):
    """Two rows share the users, two columns the heads; each row numbers its own blocks. Nothing is copied."""
    if len(set(positions)) == 1:
        monkeypatch.setattr(paged_decode, "positions_in_order", None)
    q = draw(1, USERS, KV_HEADS, WIDTH, seed=0)
    k, v = (draw(BLOCKS, KV_HEADS, BLOCK, WIDTH, seed=seed) for seed in (1, 2))
    own = BLOCKS // 2
    tables = [torch.randperm(own, generator=torch.Generator().manual_seed(row)) for row in (4, 5)]
    halves = [table.reshape(USERS // 2, PAGES).int() for table in tables]
    wanted = expected(q, k, v, torch.cat([halves[0], halves[1] + own]), positions)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as mesh:

        def share(values, dtype, dims, layout=ttnn.TILE_LAYOUT):
            mapper = ttnn.ShardTensor2dMesh(mesh, (2, 2), dims)
            return ttnn.from_torch(values, dtype, layout=layout, device=mesh, mesh_mapper=mapper)

        found = ttnn.transformer.paged_scaled_dot_product_attention_decode(
            share(q, ttnn.float32, (1, 2)),
            share(k, ttnn.float32, (0, 1)),
            share(v, ttnn.float32, (0, 1)),
            share(torch.cat(halves), ttnn.int32, (0, None), ttnn.ROW_MAJOR_LAYOUT),
            cur_pos_tensor=share(torch.tensor(positions), ttnn.int32, (0, None), ttnn.ROW_MAJOR_LAYOUT),
        )
        rows = ttnn.ConcatMesh2dToTensor(mesh, (2, 2), (1, 2))
        out = ttnn.to_torch(found, mesh_composer=rows)
    torch.testing.assert_close(out.double(), wanted, atol=2e-5, rtol=2e-5)
