"""The Llama example: the same numbers as plain torch on every mesh, with and without a trace, from any checkpoint."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from warm_python import warm_python

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.bench import llama as bench
from softmesh.cli import commands
from softmesh.runtime.device_lifecycle import open_meshes

EXAMPLE = Path(__file__).parent.parent / "examples" / "llama"
sys.path.insert(0, str(EXAMPLE))
with aliased():
    import run as run_script
    from tt_llama import model, progress, rope
    from tt_llama.checkpoint import StateDict, load_checkpoint, random_weights
    from tt_llama.generator import Generator, Tokens, generate
    from tt_llama.model_args import ModelArgs, RopeScaling
    from tt_llama.reference import TorchLlama, greedy
    from tt_llama.tensor_parallel import TensorParallel
sys.path.remove(str(EXAMPLE))
RUN: ModuleType = run_script
del sys.modules["run"]  # a name that others may want

ARGS = ModelArgs()
MESHES = [(1, 2), (1, 8), (2, 4)]
LAYOUTS = [*((shape, False) for shape in MESHES), ((2, 4), True), ((4, 2), True)]
each_layout = pytest.mark.parametrize(
    ("shape", "shares"), LAYOUTS, ids=[f"{r}x{c}{', users' if shares else ''}" for (r, c), shares in LAYOUTS]
)
PROMPTS: list[Tokens] = [[1, 2, 3, 4, 5], list(range(40, 77)), [7], [9] * 32]
STEPS = 64
LENGTH = 128
USERS = len(PROMPTS)


def close_all() -> None:
    for mesh in open_meshes():
        mesh.close()


@pytest.fixture(autouse=True)
def _one_thread_and_nothing_left_behind():
    """Products this small cost less than waking a thread for them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    close_all()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    yield
    close_all()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    torch.set_num_threads(threads)


@cache
def weights(is_counting: bool = False) -> StateDict:
    """Random ones; those that count predict the token after the last one, by far."""
    drawn = random_weights(ARGS)
    if is_counting:
        drawn["lm_head.weight"] = drawn["model.embed_tokens.weight"].roll(1, 0) * ARGS.hidden_size**-0.5
    return drawn


def reference(dtype: torch.dtype, is_counting: bool = False) -> TorchLlama:
    return TorchLlama(ARGS, weights(is_counting), USERS, LENGTH, dtype)


@cache
def expected_tokens(dtype: torch.dtype, is_counting: bool = False) -> list[Tokens]:
    return greedy(reference(dtype, is_counting), PROMPTS, STEPS)


def generator(
    shape: tuple[int, int],
    dtype: ttnn.DataType,
    *,
    splits: bool = False,
    shares: bool = False,
    use_trace: bool = True,
    is_counting: bool = False,
) -> Generator:
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    layout = TensorParallel(mesh, dtype, splits, shares)
    transformer = model.Transformer(layout, ARGS, weights(is_counting), LENGTH)
    return Generator(transformer, USERS, LENGTH, use_trace=use_trace)


def decoded(own: Generator, steps: int) -> list[torch.Tensor]:
    """The logits of so many steps, (users, vocabulary) each."""
    found = []
    for _ in range(steps):
        own.step()
        found.append(own.model.tp.read(own.logits, users=2).reshape(USERS, -1))
    return found


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten().double(), b.flatten().double()]))[0, 1])


# -- against torch -------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [False, True], ids=["all_reduce", "reduce_scatter"])
@each_layout
def test_logits_in_float32_are_torchs(shape, shares, splits):
    own, torchs = generator(shape, ttnn.float32, splits=splits, shares=shares), reference(torch.float32)
    expected = torch.stack([torchs.prefill(user, prompt) for user, prompt in enumerate(PROMPTS)])
    torch.testing.assert_close(own.prefill(PROMPTS), expected, atol=1e-4, rtol=1e-4)
    tokens, positions = expected.argmax(-1).tolist(), [len(prompt) for prompt in PROMPTS]
    (logits,) = decoded(own, 1)
    torch.testing.assert_close(logits, torchs.decode(tokens, positions), atol=1e-4, rtol=1e-4)


@each_layout
def test_greedy_tokens_in_float32_are_torchs_over_64_steps(shape, shares):
    own = generator(shape, ttnn.float32, shares=shares)
    assert generate([own], PROMPTS, STEPS) == expected_tokens(torch.float32)


@each_layout
def test_logits_in_bfloat16_follow_torchs_step_by_step(shape, shares):
    own, torchs = generator(shape, ttnn.bfloat16, shares=shares), reference(torch.bfloat16)
    expected = torch.stack([torchs.prefill(user, prompt) for user, prompt in enumerate(PROMPTS)])
    logits = own.prefill(PROMPTS)
    assert correlation(logits, expected) > 0.999
    tokens = logits.argmax(-1).tolist()
    for step, logits in enumerate(decoded(own, 8)):
        expected = torchs.decode(tokens, [len(prompt) + step for prompt in PROMPTS])
        assert correlation(logits, expected) > 0.999
        tokens = logits.argmax(-1).tolist()


@pytest.mark.parametrize("shape", MESHES)
def test_greedy_tokens_in_bfloat16_are_torchs_where_one_is_clearly_the_likeliest(shape):
    tokens = generate([generator(shape, ttnn.bfloat16, is_counting=True)], PROMPTS, STEPS)
    assert tokens == expected_tokens(torch.bfloat16, is_counting=True)
    assert all(len(set(each)) == STEPS for each in tokens)


@pytest.mark.parametrize(("shape", "group"), [((2, 4), (1, 4)), ((1, 8), (1, 4))])
def test_groups_of_devices_share_the_users_between_them(shape, group):
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    submeshes = mesh.create_submeshes(ttnn.MeshShape(*group))
    groups = [
        Generator(
            model.Transformer(TensorParallel(submesh, ttnn.float32), ARGS, weights(), LENGTH),
            USERS // len(submeshes),
            LENGTH,
        )
        for submesh in submeshes
    ]
    answers = generate(groups, PROMPTS, 16)
    assert answers == [tokens[:16] for tokens in expected_tokens(torch.float32)]


# -- traces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "splits", "shares"),
    [
        ((1, 2), ttnn.bfloat16, False, False),
        ((1, 8), ttnn.bfloat16, False, False),
        ((2, 4), ttnn.bfloat16, False, False),
        ((2, 4), ttnn.float32, True, False),
        ((2, 4), ttnn.bfloat16, False, True),
    ],
)
def test_a_replayed_step_gives_the_bits_of_one_that_runs_op_by_op(shape, dtype, splits, shares):
    traced, plain = (generator(shape, dtype, splits=splits, shares=shares, use_trace=use) for use in (True, False))
    assert traced.prefill(PROMPTS).equal(plain.prefill(PROMPTS))
    for replayed, run in zip(decoded(traced, 12), decoded(plain, 12), strict=True):
        assert replayed.equal(run)


def test_a_trace_serves_the_prompts_that_come_after():
    own, torchs = generator((1, 2), ttnn.float32), reference(torch.float32)
    others = [[*prompt[::-1], user] for user, prompt in enumerate(PROMPTS)]
    assert generate([own], PROMPTS, 4) == [tokens[:4] for tokens in expected_tokens(torch.float32)]
    assert generate([own], others, 8) == greedy(torchs, others, 8)


def test_a_released_trace_is_captured_anew():
    own = generator((1, 2), ttnn.float32)
    first = generate([own], PROMPTS, 4)
    own.release()
    own.release()
    assert generate([own], PROMPTS, 4) == first


# -- what lies where -----------------------------------------------------------------------------


def test_rows_that_share_the_users_have_whole_weights_and_caches_of_their_own():
    own = generator((2, 4), ttnn.bfloat16, shares=True)
    keys, _ = own._cache.layers[0]
    assert ttnn.placements(keys) == (ttnn.Shard(0), ttnn.Shard(1))
    assert ttnn.placements(own.model._layers[0]._mlp._w1) == (ttnn.Replicate(), ttnn.Shard(1))
    assert ttnn.placements(own._cache.page_table) == (ttnn.Shard(0), ttnn.Replicate())


def test_users_that_the_rows_cannot_share_are_refused():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    transformer = model.Transformer(TensorParallel(mesh, shares_users=True), ARGS, weights(), LENGTH)
    with pytest.raises(ValueError, match="3 users cannot be shared out to the 2 rows"):
        Generator(transformer, 3, LENGTH)


def test_heads_are_split_along_the_rows_and_the_hidden_dim_down_the_columns():
    own = generator((2, 4), ttnn.bfloat16)
    keys, _ = own._cache.layers[0]
    assert ttnn.placements(keys) == (ttnn.Replicate(), ttnn.Shard(1))
    assert ttnn.placements(own.model._layers[0]._mlp._w1) == (ttnn.Shard(0), ttnn.Shard(1))
    own.prefill(PROMPTS)
    own.step()
    assert ttnn.placements(keys) == (ttnn.Replicate(), ttnn.Shard(1))
    assert ttnn.placements(own.logits) == (ttnn.Replicate(), ttnn.Replicate())


def test_a_vocabulary_that_does_not_fill_whole_tiles_is_filled_up_and_cut_again():
    args = ModelArgs(vocab_size=500, num_hidden_layers=1, tie_word_embeddings=True)
    tied = random_weights(args)
    assert "lm_head.weight" not in tied
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 8))
    transformer = model.Transformer(TensorParallel(mesh, ttnn.float32), args, tied, 64)
    logits = Generator(transformer, 1, 64).prefill([[3, 1, 4]])
    expected = TorchLlama(args, tied, 1, 64).prefill(0, [3, 1, 4])
    torch.testing.assert_close(logits[0], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("args", "shape", "name"),
    [
        (ModelArgs(num_key_value_heads=4), (1, 8), "num_key_value_heads=4"),
        (ModelArgs(intermediate_size=320), (1, 8), "intermediate_size=320"),
        (ModelArgs(hidden_size=96), (2, 4), "hidden_size=96"),
        (ModelArgs(head_dim=16), (1, 2), "head_dim=16"),
    ],
)
def test_a_model_that_a_mesh_cannot_share_is_refused_with_the_size_at_fault(args, shape, name):
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    with pytest.raises(ValueError, match=name):
        model.Transformer(TensorParallel(mesh), args, {}, LENGTH)


def test_prompts_that_do_not_fit_the_generator_are_refused():
    own = generator((1, 2), ttnn.bfloat16)
    for prompts in ([[1]], [[1], [], [2], [3]], [[1] * 129] * 4):
        with pytest.raises(ValueError, match="takes 4 prompts of 1 to 128 tokens"):
            own.prefill(prompts)


# -- checkpoints ---------------------------------------------------------------------------------

SMALL = ModelArgs(num_hidden_layers=1, vocab_size=64)
CONFIG = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "vocab_size": 64,
    "rms_norm_eps": 1e-5,
}


def written(folder: Path, found: StateDict, files: int = 1) -> Path:
    """A checkpoint as Hugging Face lays it out."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    if files == 1:
        save_file(found, folder / "model.safetensors")
        return folder
    place = {name: f"model-{i % files}.safetensors" for i, name in enumerate(found)}
    for file in sorted(set(place.values())):
        save_file({name: found[name] for name in place if place[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": place}))
    return folder


@pytest.mark.parametrize("files", [1, 3])
def test_a_checkpoint_on_disk_gives_the_model_that_was_written(tmp_path, files):
    saved = random_weights(SMALL, seed=7, dtype=torch.bfloat16)
    folder = written(tmp_path, saved, files)
    args = ModelArgs.from_folder(folder)
    assert args == SMALL
    found = load_checkpoint(folder, args)
    assert found.keys() == saved.keys()
    assert all(found[name].equal(saved[name]) for name in saved)


def test_a_model_from_a_checkpoint_answers_as_torch_does(tmp_path, capsys):
    folder = written(tmp_path, random_weights(SMALL, seed=7), files=2)
    options = f"--mesh 1x2 --dtype float32 --checkpoint {folder} --prompt 5,6,7 --users 1 --tokens 8 --check"
    assert RUN.main(options.split()) == 0
    assert "pcc 1.00000, 8 of 8 tokens the same" in capsys.readouterr().out


def test_a_checkpoint_without_weights_says_what_it_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        load_checkpoint(tmp_path, SMALL)


@pytest.mark.parametrize("files", [1, 2])
def test_a_weight_that_is_missing_is_named(tmp_path, files):
    saved = random_weights(SMALL)
    del saved["model.norm.weight"]
    with pytest.raises(ValueError, match=r"model\.norm\.weight"):
        load_checkpoint(written(tmp_path, saved, files), SMALL)


def test_a_weight_of_another_shape_is_named_with_both(tmp_path):
    saved = random_weights(SMALL)
    saved["lm_head.weight"] = torch.zeros(64, 32)
    with pytest.raises(ValueError, match=r"lm_head\.weight .* is \(64, 32\); .* \(64, 256\)"):
        load_checkpoint(written(tmp_path, saved), SMALL)


def test_an_index_cannot_lead_out_of_its_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    written(folder, random_weights(SMALL), files=2)
    (folder / "model-0.safetensors").rename(tmp_path / "model-0.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"model-0', '"../model-0'))
    with pytest.raises(FileNotFoundError):
        load_checkpoint(folder, SMALL)


@pytest.mark.parametrize("key", ["attention_bias", "mlp_bias"])
def test_a_config_with_biases_is_refused(key):
    with pytest.raises(ValueError, match="without biases"):
        ModelArgs.from_config(CONFIG | {key: True})


def test_a_config_of_another_kind_of_rope_is_refused():
    with pytest.raises(ValueError, match="'yarn' is not known"):
        ModelArgs.from_config(CONFIG | {"rope_scaling": {"rope_type": "yarn"}})


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_stretched_frequencies_keep_the_fast_ones_and_divide_the_slow_ones(place):
    found = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = CONFIG | {place: found, "rope_theta": 500_000.0, "head_dim": 128}
    args = ModelArgs.from_config(config)
    assert args.rope_scaling == RopeScaling(8.0, 1.0, 4.0, 8192)
    plain = rope.frequencies(ModelArgs(head_dim=128, rope_theta=500_000.0))
    ratio = rope.frequencies(args) / plain
    turns = 8192 * plain / (2 * torch.pi)
    assert ratio[turns > 4].eq(1).all()
    assert torch.allclose(ratio[turns < 1], torch.tensor(1 / 8, dtype=torch.float64))
    assert (ratio.diff() <= 0).all()
    assert ((ratio > 1 / 8) & (ratio < 1)).any()


# -- as a program --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["--mesh", "1x2"],
        ["--mesh", "1x8", "--split-residual"],
        ["--mesh", "2x4"],
        ["--mesh", "2x4", "--data-parallel", "2"],
        ["--mesh", "2x4", "--share-users"],
        ["--mesh", "1x1", "--no-trace", "--dtype", "float32"],
    ],
    ids=" ".join,
)
def test_the_program_runs_under_softmesh_run_and_agrees_with_torch(options):
    program = [str(EXAMPLE / "run.py"), "--tokens", "4", "--users", "2", "--check"]
    result = CliRunner().invoke(commands, ["run", *program, *options])
    assert result.exit_code == 0, result.output
    assert "against torch: pcc 0.999" in result.output or "against torch: pcc 1.000" in result.output
    assert not open_meshes()


def test_the_program_runs_in_a_process_of_its_own_on_a_t3000():
    program = [str(EXAMPLE / "run.py"), "--mesh", "1x8", "--tokens", "2", "--users", "1", "--check"]
    command = [*warm_python(), "-m", "softmesh", "run", "--system", "T3000", *program]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0, result.stderr
    assert "2 layers of 256 on MeshDevice(1x8 grid, 8 devices), bfloat16" in result.stdout


def test_groups_are_made_of_whole_rows_where_that_goes_and_else_of_columns():
    assert RUN.group_shape((2, 4), 2) == (1, 4)
    assert RUN.group_shape((1, 8), 4) == (1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--mesh 2x4 --data-parallel 3", "3 groups cannot share a mesh of 2 x 4 devices"),
        ("--mesh 2x4 --data-parallel 2 --users 3", "3 users cannot be shared out to 2 groups"),
        ("--mesh 1x16", "num_key_value_heads=8 must be a multiple of 16"),
        ("--checkpoint no_such_folder", "no_such_folder"),
        ("--prompt 5,512", "token 512 of the prompt is not one of the 512 of the model"),
        (
            "--prompt 5,6 --tokens 100000000",
            "--tokens 100000000 after a prompt of 2 make 100000002 positions, and the model has 2048 "
            "(max_position_embeddings): take --tokens 2046 or fewer.",
        ),
        (
            f"--prompt {','.join('5' * 2048)} --tokens 1",
            "--tokens 1 after a prompt of 2048 make 2049 positions, and the model has 2048 "
            "(max_position_embeddings): take a shorter --prompt.",
        ),
        (
            "--mesh 1x8 --prompt 5,6 --users 100000 --tokens 2046",
            "the caches of 100000 users with 2048 tokens each take 48.8 GiB of every device, and 12.0 GiB are free: "
            "take fewer --users or --tokens, or more devices.",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_code_2(options, message, capsys):
    assert RUN.main(options.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("run.py: ")
    assert message in said
    assert not open_meshes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--mesh 2by4", "--mesh: must be two numbers such as 2x4, got '2by4'"),
        ("--mesh 0x4", "--mesh: must be at least 1, got 0"),
        ("--prompt one,two", "--prompt: must be numbers such as 128000,791"),
    ],
)
def test_an_option_that_cannot_be_read_is_named(options, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        RUN.main(options.split())
    assert message in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_shows_its_progress_on_a_terminal_and_nowhere_else(monkeypatch):
    for stream, is_shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert list(progress.progress(range(3), "Decoding")) == [0, 1, 2]
        assert ("Decoding" in stream.getvalue()) is is_shown


# -- the benchmark -------------------------------------------------------------------------------


def test_the_benchmark_measures_every_mesh_with_and_without_a_trace_and_agrees_with_torch(capsys):
    assert bench.main(["--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["dtype"] for row in rows} == {"float32", "bfloat16"}
    meshes = ["1x1", "1x2", "2x4", "2x4, 2-D"]
    assert [row["peer"] for row in rows if (row["phase"], row["dtype"]) == ("prefill", "float32")] == [
        "torch",
        *meshes,
    ]
    decoded = [row["peer"] for row in rows if (row["phase"], row["dtype"]) == ("decode", "bfloat16")]
    assert decoded == ["torch", *(name for mesh in meshes for name in (mesh, f"{mesh}, trace"))]
    assert all(row["correlation"] > 0.999 for row in rows)
    assert not open_meshes()


def test_the_benchmark_without_the_example_says_how_to_name_it(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        bench.main(["--example", str(tmp_path)])
    assert ended.value.code == 2
    assert "--example PATH" in capsys.readouterr().err
