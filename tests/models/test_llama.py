"""A Llama as model code for TT-NN writes it, on one chip, on eight in a row and on a grid of 8 x 4, against torch.

Decode steps with activations sharded in L1 and weights over banks of DRAM, caches in pages, rotations looked up by
position; prefill of whole prompts and of chunks of one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from galaxy_modules import GalaxyLlama
from llama_modules import MeshLlama
from torch_llama import LlamaConfig, TorchLlama, Weights, pcc, random_weights

import softmesh as ttnn

CONFIG = LlamaConfig()
PAGES = CONFIG.length // CONFIG.block
TILE = ttnn.TILE_SIZE
ROW_MAJOR = ttnn.ROW_MAJOR_LAYOUT


@pytest.fixture(scope="module")
def weights() -> Weights:
    return random_weights(CONFIG)


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Iterator[ttnn.MeshDevice]:
    """A machine and a mesh on it, with the fabric that its collectives ask for."""
    system, shape, fabric = request.param
    ttnn.use_system(system)
    ttnn.set_fabric_config(fabric)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape), trace_region_size=1 << 20)
    yield mesh
    ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)


CHIP = ("N150", (1, 1), ttnn.FabricConfig.DISABLED)
ROW = ("T3000", (1, 8), ttnn.FabricConfig.FABRIC_1D_RING)
GRID = ("Galaxy", (8, 4), ttnn.FabricConfig.FABRIC_1D)


def on(*machines: tuple[str, tuple[int, int], ttnn.FabricConfig]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("opened", machines, ids=[machine[0] for machine in machines], indirect=True)


def random_ids(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randint(0, CONFIG.vocab, shape, generator=torch.Generator().manual_seed(seed))


def page_table(users: int) -> torch.Tensor:
    """Pages in no order, as a server deals them out."""
    order = torch.randperm(users * PAGES, generator=torch.Generator().manual_seed(5))
    return order.reshape(users, PAGES)


def ids(values: torch.Tensor, mesh: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.uint32) -> ttnn.Tensor:
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    return ttnn.from_torch(values, dtype, layout=ROW_MAJOR, device=mesh, mesh_mapper=mapper)


def in_a_tile(tokens: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(tokens.flatten(), (0, TILE - tokens.numel())).reshape(1, 1, 1, TILE)


def logits_of(result: ttnn.Tensor, mesh: ttnn.MeshDevice) -> torch.Tensor:
    return ttnn.to_torch(result, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=-1)).float()[0, 0]


def assert_alike(result: torch.Tensor, expected: torch.Tensor) -> None:
    assert pcc(result, expected) > 0.999
    torch.testing.assert_close(result, expected, rtol=0, atol=0.1 * float(expected.std()))


@on(CHIP, ROW)
@pytest.mark.parametrize("users", [1, 8])
def test_decode_after_a_prefill(opened, weights, users):
    program, torch_model = MeshLlama(opened, CONFIG, weights, users), TorchLlama(CONFIG, weights, users)
    table = ids(page_table(users), opened, ttnn.int32)
    lengths = torch.full((users,), 64)
    for user in range(users):
        prompt = random_ids(1, 64, seed=user)
        result = program.prefill(ids(prompt[None, None], opened), user, table)
        alone = TorchLlama(CONFIG, weights, 1)
        assert_alike(logits_of(result, opened), alone.forward(prompt, torch.zeros(1).long())[0, -TILE:])
        torch_model.caches[:, :, user] = alone.caches[:, :, 0]
    lengths[1::2] -= 20  # as if the prompt had been shorter: what is written then lies over it
    for step in range(2):
        tokens = random_ids(users, 1, seed=step)
        result = program.decode(
            ids(in_a_tile(tokens), opened),
            ids(lengths, opened, ttnn.int32),
            program.rope.ids(lengths, opened),
            table,
        )
        assert_alike(logits_of(result, opened)[:users], torch_model.forward(tokens, lengths)[:, 0])
        lengths += 1


@on(CHIP)
def test_users_who_have_left_are_skipped(opened, weights):
    program, torch_model = MeshLlama(opened, CONFIG, weights, 4), TorchLlama(CONFIG, weights, 4)
    table = ids(page_table(4), opened, ttnn.int32)
    positions = torch.tensor([0, -1, 0, -1])
    tokens = random_ids(4, 1)
    result = program.decode(
        ids(in_a_tile(tokens), opened), ids(positions, opened, ttnn.int32), program.rope.ids(positions, opened), table
    )
    expected = torch_model.forward(tokens, positions.clamp(min=0))[:, 0]
    assert_alike(logits_of(result, opened)[:4:2], expected[::2])
    written = ttnn.to_torch(ttnn.get_device_tensors(program.layers[0][1].caches[0])[0])
    pages = written.abs().amax((1, 2, 3)) > 0
    assert set(pages.nonzero().flatten().tolist()) == {int(page_table(4)[user, 0]) for user in (0, 2)}


@on(CHIP, ROW)
def test_a_prompt_in_chunks_is_the_whole_prompt(opened, weights):
    users, user, chunk = 2, 1, 64
    program = MeshLlama(opened, CONFIG, weights, users)
    pages = page_table(users)
    prompt = random_ids(1, 2 * chunk)
    for start in (0, chunk):
        part = pages[user : user + 1, start // CONFIG.block : (start + chunk) // CONFIG.block]
        result = program.prefill(
            ids(prompt[None, None, :, start : start + chunk], opened),
            0,
            ids(pages[user : user + 1], opened, ttnn.int32),
            ids(part, opened, ttnn.int32),
            start,
        )
    expected = TorchLlama(CONFIG, weights, 1).forward(prompt, torch.zeros(1).long())
    assert_alike(logits_of(result, opened), expected[0, -TILE:])


@on(GRID)
def test_decode_after_a_prefill_on_a_grid(opened, weights):
    users, columns = 32, opened.shape[1]
    program, torch_model = GalaxyLlama(opened, CONFIG, weights, users), TorchLlama(CONFIG, weights, users)
    put = program.grid.put
    own = users // columns
    table = put(page_table(users), (None, 0), ttnn.int32, ROW_MAJOR)
    composer = ttnn.ConcatMesh2dToTensor(opened, dims=(3, 1), mesh_shape=tuple(opened.shape))

    def logits(result: ttnn.Tensor) -> torch.Tensor:
        each_column = ttnn.to_torch(result, mesh_composer=composer).float()[0]
        assert all(torch.equal(column, each_column[0]) for column in each_column)
        return each_column[0]

    positions = torch.zeros(users).long()
    for user in (3, 20):
        prompt = random_ids(1, 64, seed=user)
        result = program.prefill(put(prompt[None, None], (None, None), ttnn.uint32, ROW_MAJOR), user, table)
        alone = TorchLlama(CONFIG, weights, 1)
        assert_alike(logits(result), alone.forward(prompt, torch.zeros(1).long())[0, -TILE:])
        torch_model.caches[:, :, user] = alone.caches[:, :, 0]
        positions[user] = 64
    for step in range(2):
        tokens = random_ids(users, 1, seed=step)
        rope_ids = torch.nn.functional.pad(positions.reshape(columns, own), (0, TILE - own))
        result = program.decode(
            put(tokens.reshape(1, 1, 1, users), (None, None), ttnn.uint32, ROW_MAJOR),
            put(positions, (None, 0), ttnn.int32, ROW_MAJOR),
            put(rope_ids, (None, 0), ttnn.uint32, ROW_MAJOR),
            table,
        )
        assert_alike(logits(result), torch_model.forward(tokens, positions)[:, 0])
        positions += 1


@on(ROW)
def test_a_traced_prefill_takes_other_prompts_and_pages(opened, weights):
    program = MeshLlama(opened, CONFIG, weights, 2)
    given = [ids(random_ids(1, 64)[None, None], opened), ids(page_table(2)[:1], opened, ttnn.int32)]
    program.prefill(given[0], 0, given[1])
    trace = ttnn.begin_trace_capture(opened, cq_id=0)
    result = program.prefill(given[0], 0, given[1])
    ttnn.end_trace_capture(opened, trace, cq_id=0)
    for user in (1, 0):
        prompt, pages = random_ids(1, 64, seed=user), page_table(2)[user : user + 1]
        for values, buffer in zip((prompt[None, None], pages), given, strict=True):
            host = ttnn.from_torch(
                values, buffer.dtype, layout=ROW_MAJOR, mesh_mapper=ttnn.ReplicateTensorToMesh(opened)
            )
            ttnn.copy_host_to_device_tensor(host, buffer)
        ttnn.execute_trace(opened, trace, cq_id=0, blocking=False)
        torch_model = TorchLlama(CONFIG, weights, 1)
        assert_alike(logits_of(result, opened), torch_model.forward(prompt, torch.zeros(1).long())[0, -TILE:])
        by_head = ttnn.ConcatMeshToTensor(opened, dim=1)
        keys = ttnn.to_torch(program.layers[0][1].caches[0], mesh_composer=by_head).float()
        written = keys[pages[0, :2]].transpose(0, 1).flatten(1, 2)
        assert_alike(written, torch_model.caches[0, 0, 0, :, :64])


@pytest.mark.parametrize("opened", [("T3000", (2, 4), ttnn.FabricConfig.FABRIC_1D)], ids=["T3000"], indirect=True)
def test_every_submesh_serves_users_of_its_own(opened, weights):
    submeshes = opened.create_submeshes(ttnn.MeshShape(1, 2))
    tables = [ids(page_table(2), submesh, ttnn.int32) for submesh in submeshes]
    programs = [MeshLlama(submesh, CONFIG, weights, 2) for submesh in submeshes]
    start = torch.zeros(2).long()
    results = []
    for number, (submesh, program, table) in enumerate(zip(submeshes, programs, tables, strict=True)):
        tokens = random_ids(2, 1, seed=number)
        where = ids(start, submesh, ttnn.int32), program.rope.ids(start, submesh)
        results.append((tokens, submesh, program.decode(ids(in_a_tile(tokens), submesh), *where, table)))
    for tokens, submesh, result in results:
        expected = TorchLlama(CONFIG, weights, 2).forward(tokens, start)[:, 0]
        assert_alike(logits_of(result, submesh)[:2], expected)
