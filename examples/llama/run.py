"""Greedy text from a Llama on a mesh of devices.

    softmesh run examples/llama/run.py --mesh 1x8
    softmesh run examples/llama/run.py --mesh 2x4 --data-parallel 2 --users 4
    softmesh run examples/llama/run.py --mesh 1x8 --checkpoint path/to/llama --prompt 128000,791,4320

Without a checkpoint the model is a small one with random weights. Tokens go in and come out as numbers. `--check`
compares the first logits, and all tokens, with the same model in plain torch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import ttnn
from tt_llama.checkpoint import StateDict, load_checkpoint, random_weights
from tt_llama.generator import Generator, Tokens, generate
from tt_llama.model import Transformer
from tt_llama.model_args import ModelArgs
from tt_llama.reference import TorchLlama, greedy
from tt_llama.tensor_parallel import TensorParallel

DTYPES = {"bfloat16": (ttnn.bfloat16, torch.bfloat16), "float32": (ttnn.float32, torch.float32)}


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="run.py"
    )
    parser.add_argument("--mesh", type=mesh_shape, default=(1, 8), metavar="ROWSxCOLUMNS")
    parser.add_argument(
        "--data-parallel", type=int, default=1, metavar="GROUPS", help="submeshes that share the users"
    )
    parser.add_argument(
        "--split-residual", action="store_true", help="reduce_scatter and all_gather, not all_reduce"
    )
    parser.add_argument("--dtype", choices=list(DTYPES), default="bfloat16")
    parser.add_argument("--checkpoint", type=Path, help="a folder in the layout of Hugging Face")
    parser.add_argument("--users", type=int, default=4, help="prompts at a time")
    parser.add_argument(
        "--prompt", type=tokens_of, help="numbers of tokens, for every user (default: random ones)"
    )
    parser.add_argument("--tokens", type=int, default=64, help="how many follow each prompt")
    parser.add_argument("--no-trace", action="store_true", help="run each step op by op")
    parser.add_argument("--check", action="store_true", help="compare with plain torch")
    return parser.parse_args(argv)


def mesh_shape(text: str) -> tuple[int, int]:
    rows, columns = (int(n) for n in text.split("x"))
    return rows, columns


def tokens_of(text: str) -> Tokens:
    return [int(token) for token in text.split(",")]


def group_shape(mesh: tuple[int, int], groups: int) -> tuple[int, int]:
    """A submesh for each group: some of the rows where they can be shared out, else some of the columns."""
    rows, columns = mesh
    if rows % groups == 0:
        return rows // groups, columns
    if columns % groups == 0:
        return rows, columns // groups
    raise ValueError(f"{groups} groups cannot share a mesh of {rows} x {columns} devices.")


def drawn_prompts(args: ModelArgs, users: int) -> list[Tokens]:
    """Of different lengths, as those of a server are."""
    draw = torch.Generator().manual_seed(1)
    lengths = [1 + (37 * user + 4) % 61 for user in range(users)]
    return [torch.randint(args.vocab_size, (n,), generator=draw).tolist() for n in lengths]


def generators(
    mesh_device: ttnn.MeshDevice, given: argparse.Namespace, args: ModelArgs, weights: StateDict, length: int
) -> list[Generator]:
    """One for each group of devices."""
    groups = [mesh_device]
    if given.data_parallel > 1:
        shape = ttnn.MeshShape(*group_shape(given.mesh, given.data_parallel))
        groups = mesh_device.create_submeshes(shape)
    if given.users % len(groups):
        raise ValueError(f"{given.users} users cannot be shared out to {len(groups)} groups.")
    dtype = DTYPES[given.dtype][0]
    models = (
        Transformer(TensorParallel(group, dtype, given.split_residual), args, weights, length)
        for group in groups
    )
    users = given.users // len(groups)
    return [Generator(model, users, length, use_trace=not given.no_trace) for model in models]


def answer(given: argparse.Namespace) -> int:
    args = ModelArgs() if given.checkpoint is None else ModelArgs.from_folder(given.checkpoint)
    weights = random_weights(args) if given.checkpoint is None else load_checkpoint(given.checkpoint, args)
    prompts = [given.prompt] * given.users if given.prompt else drawn_prompts(args, given.users)
    length = max(len(prompt) for prompt in prompts) + given.tokens
    if given.mesh != (1, 1):
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(*given.mesh))
    try:
        groups = generators(mesh_device, given, args, weights, length)
        start = time.perf_counter()
        answers = generate(groups, prompts, given.tokens)
        rate = given.users * given.tokens / (time.perf_counter() - start)
        print(f"{args.num_hidden_layers} layers of {args.hidden_size} on {mesh_device}, {given.dtype}")
        for user, tokens in enumerate(answers):
            shown = " ".join(map(str, tokens[:12]))
            print(f"user {user}: {len(prompts[user])} tokens -> {shown}{' ...' if len(tokens) > 12 else ''}")
        print(f"{rate:.0f} tokens/s", file=sys.stderr)
        return check(given, args, weights, length, prompts, groups, answers) if given.check else 0
    finally:
        ttnn.close_mesh_device(mesh_device)
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def check(
    given: argparse.Namespace,
    args: ModelArgs,
    weights: StateDict,
    length: int,
    prompts: list[Tokens],
    groups: Sequence[Generator],
    answers: list[Tokens],
) -> int:
    """Prints how the logits after the prompts, and the tokens, agree with torch's; 1 where logits do not."""
    model = TorchLlama(args, weights, given.users, length, DTYPES[given.dtype][1])
    expected = torch.stack([model.prefill(user, prompt) for user, prompt in enumerate(prompts)])
    share = given.users // len(groups)
    logits = torch.cat([group.prefill(prompts[i * share :][:share]) for i, group in enumerate(groups)])
    pcc = ttnn.pearson_correlation_coefficient(expected.float(), logits.float())
    wanted = greedy(model, prompts, given.tokens)
    alike = sum(
        a == b for own, torchs in zip(answers, wanted, strict=True) for a, b in zip(own, torchs, strict=True)
    )
    print(f"against torch: pcc {pcc:.5f}, {alike} of {given.users * given.tokens} tokens the same")
    return 0 if pcc > 0.999 else 1


if __name__ == "__main__":
    sys.exit(answer(arguments()))
