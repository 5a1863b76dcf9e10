"""Tokens generated in a traced loop: what the chips choose goes into the next step without passing the host.

Positions are raised, rotations looked up and tokens chosen inside the trace; the host only reads tokens, and writes
into the buffers that the trace reads when a user changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from chip_row import Row
from llama_modules import MeshLlama
from token_sampling import USERS, Choice, Penalties, Sampler
from torch_llama import LlamaConfig, TorchLlama, Weights, random_weights

import softmesh as ttnn

CONFIG = LlamaConfig(layers=1, vocab=512, length=64)
PAGES = CONFIG.length // CONFIG.block
ROW_MAJOR = ttnn.ROW_MAJOR_LAYOUT
STEPS = 5


@pytest.fixture(scope="module")
def weights() -> Weights:
    return random_weights(CONFIG)


@pytest.fixture(params=[(1, 1), (1, 8)], ids=["N150", "T3000"])
def mesh(request: pytest.FixtureRequest) -> Iterator[ttnn.MeshDevice]:
    ttnn.use_system("N150" if request.param == (1, 1) else "T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING if request.param == (1, 8) else ttnn.FabricConfig.DISABLED)
    opened = ttnn.open_mesh_device(ttnn.MeshShape(*request.param), trace_region_size=1 << 20, num_command_queues=2)
    yield opened
    ttnn.close_mesh_device(opened)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)


class Generator:
    """The buffers that a decode step reads and the step itself; `choose` turns logits into tokens, where they lie."""

    def __init__(self, mesh: ttnn.MeshDevice, weights: Weights) -> None:
        self.mesh, self.program = mesh, MeshLlama(mesh, CONFIG, weights, USERS)
        self.row = self.program.row
        self.table = torch.randperm(USERS * PAGES, generator=torch.Generator().manual_seed(1)).reshape(USERS, PAGES)
        self._trace: ttnn.MeshTraceId | None = None
        first, positions = torch.zeros(USERS).long(), torch.zeros(USERS).long()
        self.inputs = [ttnn.to_device(host, device=mesh) for host in self.on_host(first, positions)]
        self.tokens, self.positions, self.rope_ids, self.page_table = self.inputs
        self.logits: ttnn.Tensor | None = None

    def on_host(self, tokens: torch.Tensor, positions: torch.Tensor) -> list[ttnn.Tensor]:
        def host(values: torch.Tensor, dtype: ttnn.DataType) -> ttnn.Tensor:
            mapper = ttnn.ReplicateTensorToMesh(self.mesh)
            return ttnn.from_torch(values, dtype, layout=ROW_MAJOR, mesh_mapper=mapper)

        return [
            host(tokens.reshape(1, 1, 1, USERS), ttnn.uint32),
            host(positions, ttnn.int32),
            self.program.rope.ids(positions, None),
            host(self.table, ttnn.int32),
        ]

    def write(self, tokens: torch.Tensor, positions: torch.Tensor, cq_id: int = 0) -> None:
        for host, device in zip(self.on_host(tokens, positions), self.inputs, strict=True):
            ttnn.copy_host_to_device_tensor(host, device, cq_id=cq_id)

    def step(self, choose: Callable[[ttnn.Tensor], object]) -> None:
        self.logits = self.program.decode(*self.inputs)
        choose(self.logits)
        ttnn.plus_one(self.positions, skip_negative_entries=True)
        ttnn.plus_one(self.rope_ids)

    def capture(self, choose: Callable[[ttnn.Tensor], object]) -> None:
        """Once to compile the programs, once to record them."""
        self.step(choose)
        self._trace = ttnn.begin_trace_capture(self.mesh, cq_id=0)
        self.step(choose)
        ttnn.end_trace_capture(self.mesh, self._trace, cq_id=0)
        ttnn.synchronize_device(self.mesh)

    def replay(self) -> None:
        assert self._trace is not None
        ttnn.execute_trace(self.mesh, self._trace, cq_id=0, blocking=False)

    def read(self) -> torch.Tensor:
        return ttnn.to_torch(ttnn.get_device_tensors(self.tokens)[0]).flatten().long()

    def greedy(self, logits: ttnn.Tensor) -> None:
        """Of all logits, gathered, the place of the largest, into the buffer of the next step's tokens."""
        rows = ttnn.untilize(self.row.all_gather(logits, ttnn.L1_MEMORY_CONFIG), use_multicore=True)
        ttnn.argmax(rows, dim=-1, output_tensor=self.tokens, keepdim=False)


def first_tokens(seed: int = 2) -> torch.Tensor:
    return torch.randint(0, CONFIG.vocab, (USERS,), generator=torch.Generator().manual_seed(seed))


def generated(generator: Generator, first: torch.Tensor) -> torch.Tensor:
    """[steps + 1, users]: the first tokens, and those that a replay each has chosen."""
    generator.write(first, torch.zeros(USERS).long())
    chosen = [first]
    for _ in range(STEPS):
        generator.replay()
        chosen.append(generator.read())
    return torch.stack(chosen)


def logits_of(weights: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """[steps, users, vocab] that torch has for these tokens."""
    model = TorchLlama(CONFIG, weights, USERS)
    return model.forward(tokens[:-1].T, torch.zeros(USERS).long()).transpose(0, 1)


def test_the_best_token_of_each_user(mesh, weights):
    generator = Generator(mesh, weights)
    generator.capture(generator.greedy)
    tokens = generated(generator, first_tokens())
    expected = logits_of(weights, tokens)
    lost = expected.amax(-1) - expected.gather(-1, tokens[1:, :, None])[..., 0]
    assert float(lost.max()) < 0.1 * float(expected.std())  # logits are block floats of eight bits
    assert float((lost == 0).float().mean()) > 0.9
    again = generated(generator, first_tokens())
    assert torch.equal(again, tokens)
    assert generator.positions.shape == [USERS]
    assert set(ttnn.to_torch(ttnn.get_device_tensors(generator.positions)[0]).tolist()) == {STEPS}


def test_a_traced_loop_chooses_what_single_steps_do(mesh, weights):
    generator = Generator(mesh, weights)
    sampler = Sampler(generator.row, CONFIG.vocab, Choice.alike(k=1, p=0.0, temperature=1.0))

    def choose(logits: ttnn.Tensor) -> None:
        sampler(logits, into=generator.tokens)

    generator.write(first_tokens(), torch.zeros(USERS).long())
    chosen = [first_tokens()]
    for _ in range(STEPS):
        generator.step(choose)
        chosen.append(generator.read())
    generator.capture(choose)
    assert torch.equal(generated(generator, first_tokens()), torch.stack(chosen))


def test_draws_come_from_the_best_and_follow_their_seeds(mesh, weights):
    generator = Generator(mesh, weights)
    k = 8
    sampler = Sampler(generator.row, CONFIG.vocab, Choice.alike(k=k, p=0.95, temperature=1.0, seed=11))
    sampler.reseed()

    def choose(logits: ttnn.Tensor) -> None:
        sampler(logits, into=generator.tokens)

    generator.capture(choose)
    sampler.reseed()
    tokens = generated(generator, first_tokens())
    expected = logits_of(weights, tokens)
    drawn = expected.gather(-1, tokens[1:, :, None])[..., 0]
    short = expected.topk(k).values[..., -1] - drawn
    assert float(short.max()) < 0.1 * float(expected.std())
    assert float((drawn < expected.amax(-1)).float().mean()) > 0.3  # not always the best
    other = generated(generator, first_tokens())
    sampler.reseed()
    assert torch.equal(generated(generator, first_tokens()), tokens)
    assert not torch.equal(other, tokens)


def test_users_change_over_a_second_queue_while_the_first_runs(mesh, weights):
    generator = Generator(mesh, weights)
    generator.capture(generator.greedy)
    alone = {seed: generated(generator, first_tokens(seed)) for seed in (2, 3)}
    done = ttnn.record_event(mesh, cq_id=0)
    found: dict[int, list[torch.Tensor]] = {seed: [] for seed in alone}
    for seed, read in found.items():
        ttnn.wait_for_event(1, done)  # the buffers are not read any more
        generator.write(first_tokens(seed), torch.zeros(USERS).long(), cq_id=1)
        written = ttnn.record_event(mesh, cq_id=1)
        ttnn.wait_for_event(0, written)
        for _ in range(STEPS):
            generator.replay()
            host = generator.tokens.cpu(blocking=False, cq_id=0)
            done = ttnn.record_event(mesh, cq_id=0)
            ttnn.event_synchronize(done)
            read.append(ttnn.to_torch(ttnn.get_device_tensors(host)[0]).flatten().long())
    for seed, read in found.items():
        assert torch.equal(torch.stack(read), alone[seed][1:])


@pytest.mark.parametrize("mesh", [(1, 1)], ids=["N150"], indirect=True)
def test_tokens_chosen_before_are_penalised(mesh, weights):
    generator = Generator(mesh, weights)
    strict = Penalties(generator.row, CONFIG.vocab, presence=50.0, frequency=0.5, repetition=1.0)
    sampler = Sampler(generator.row, CONFIG.vocab, Choice.alike(k=1, p=0.0, temperature=1.0))

    def choose(logits: ttnn.Tensor) -> None:
        sampler(strict(ttnn.to_memory_config(logits, ttnn.DRAM_MEMORY_CONFIG)), into=generator.tokens)
        strict.note(generator.tokens)

    generator.capture(choose)
    for _ in range(2):
        strict.reset()
        tokens = generated(generator, first_tokens())[1:]
        assert all(len(set(user.tolist())) == STEPS for user in tokens.T)  # nobody hears a token twice
    free = Penalties(generator.row, CONFIG.vocab, presence=0.0, frequency=0.0, repetition=1.0)
    assert torch.equal(ttnn.to_torch(free(generator.logits)), ttnn.to_torch(generator.logits))


@pytest.mark.parametrize("mesh", [(1, 1)], ids=["N150"], indirect=True)
def test_penalties_are_those_of_the_textbook(mesh):
    row = Row(mesh)
    penalties = Penalties(row, CONFIG.vocab, presence=0.5, frequency=0.25, repetition=1.5)
    seen = torch.randint(0, 8, (3, USERS), generator=torch.Generator().manual_seed(9))
    for tokens in seen:
        penalties.note(row.replicated(tokens[None, None, None], ttnn.uint32, ROW_MAJOR))
    logits = row.replicated(torch.randn(1, 1, USERS, CONFIG.vocab), ttnn.bfloat8_b)
    before = ttnn.to_torch(logits).float()[0, 0]
    count = torch.zeros(USERS, CONFIG.vocab).scatter_add_(1, seen.T, torch.ones(USERS, 3))
    expected = before - 0.5 * (count > 0) - 0.25 * count
    expected = torch.where(count > 0, torch.where(expected > 0, expected / 1.5, expected * 1.5), expected)
    torch.testing.assert_close(ttnn.to_torch(penalties(logits)).float()[0, 0], expected, rtol=0.02, atol=0.05)
