"""Greedy text from a Llama on a mesh of devices.

    softmesh run examples/llama/run.py --mesh 1x8
    softmesh run examples/llama/run.py --mesh 2x4 --data-parallel 2 --users 4
    softmesh run examples/llama/run.py --mesh 2x4 --share-users --users 4
    softmesh run examples/llama/run.py --mesh 1x8 --checkpoint path/to/llama --prompt 128000,791,4320

Without a checkpoint the model is a small one with random weights. Tokens go in and come out as numbers. `--check`
compares the first logits, and all tokens, with the same model in plain torch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
import ttnn
from tt_llama.checkpoint import StateDict, load_checkpoint, random_weights
from tt_llama.generator import Generator, Tokens, generate
from tt_llama.model import Transformer
from tt_llama.model_args import SIZES, ModelArgs
from tt_llama.reference import TorchLlama, greedy
from tt_llama.tensor_parallel import TensorParallel

DTYPES = {"bfloat16": (ttnn.bfloat16, torch.bfloat16), "float32": (ttnn.float32, torch.float32)}
SHOWN = 12  # tokens of each answer


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="run.py"
    )
    parser.add_argument("--mesh", type=mesh_shape, default=(1, 8), metavar="ROWSxCOLUMNS")
    parser.add_argument(
        "--data-parallel", type=positive, default=1, metavar="GROUPS", help="submeshes that share the users"
    )
    parser.add_argument("--split-residual", action="store_true", help="reduce_scatter and all_gather, not all_reduce")
    parser.add_argument(
        "--share-users",
        action="store_true",
        help="each row of the mesh has users of its own, and all of the hidden dim",
    )
    parser.add_argument("--dtype", choices=list(DTYPES), default="bfloat16")
    parser.add_argument("--model", choices=list(SIZES), default="small", help="with random weights")
    parser.add_argument("--checkpoint", type=Path, help="a folder in the layout of Hugging Face")
    parser.add_argument("--users", type=positive, default=4, help="prompts at a time")
    parser.add_argument("--prompt", type=tokens_of, help="numbers of tokens, for every user (default: random ones)")
    parser.add_argument("--tokens", type=positive, default=64, help="how many follow each prompt")
    parser.add_argument("--no-trace", action="store_true", help="run each step op by op")
    parser.add_argument("--check", action="store_true", help="compare with plain torch")
    return parser.parse_args(argv)


def mesh_shape(text: str) -> tuple[int, int]:
    try:
        rows, columns = (positive(n) for n in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be two numbers such as 2x4, got {text!r}") from None
    return rows, columns


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def tokens_of(text: str) -> Tokens:
    try:
        return [int(token) for token in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers such as 128000,791, got {text!r}") from None


def group_shape(mesh: tuple[int, int], groups: int) -> tuple[int, int]:
    """A submesh for each group: some of the rows where they can be shared out, else some of the columns."""
    rows, columns = mesh
    if rows % groups == 0:
        return rows // groups, columns
    if columns % groups == 0:
        return rows, columns // groups
    raise ValueError(f"{groups} groups cannot share a mesh of {rows} x {columns} devices.")


@dataclass(frozen=True)
class Request:
    """What is asked of which model."""

    args: ModelArgs
    weights: StateDict
    prompts: list[Tokens]
    tokens: int

    @classmethod
    def of(cls, given: argparse.Namespace) -> Request:
        args = SIZES[given.model] if given.checkpoint is None else ModelArgs.from_folder(given.checkpoint)
        for token in given.prompt or ():
            if not 0 <= token < args.vocab_size:
                raise ValueError(f"token {token} of the prompt is not one of the {args.vocab_size} of the model.")
        prompts = [given.prompt] * given.users if given.prompt else drawn_prompts(args, given.users)
        check_length(args, max(map(len, prompts)), given.tokens)
        if given.checkpoint is None:
            weights = random_weights(args)
        else:
            weights = load_checkpoint(given.checkpoint, args)
        return cls(args, weights, prompts, given.tokens)

    @property
    def length(self) -> int:
        return max(map(len, self.prompts)) + self.tokens


def check_length(args: ModelArgs, prompt: int, tokens: int) -> None:
    most = args.max_position_embeddings
    if prompt + tokens > most:
        remedy = f"take --tokens {most - prompt} or fewer" if prompt < most else "take a shorter --prompt"
        raise ValueError(
            f"--tokens {tokens} after a prompt of {prompt} make {prompt + tokens} positions, and the model has {most} "
            f"(max_position_embeddings): {remedy}."
        )


def drawn_prompts(args: ModelArgs, users: int) -> list[Tokens]:
    """Of different lengths, as those of a server are."""
    draw = torch.Generator().manual_seed(1)
    lengths = [1 + (37 * user + 4) % 61 for user in range(users)]
    return [torch.randint(args.vocab_size, (n,), generator=draw).tolist() for n in lengths]


def generators(mesh_device: ttnn.MeshDevice, given: argparse.Namespace, request: Request) -> list[Generator]:
    """One for each group of devices."""
    groups = [mesh_device]
    if given.data_parallel > 1:
        shape = ttnn.MeshShape(*group_shape(given.mesh, given.data_parallel))
        groups = mesh_device.create_submeshes(shape)
    if given.users % len(groups):
        raise ValueError(f"{given.users} users cannot be shared out to {len(groups)} groups.")
    dtype = DTYPES[given.dtype][0]
    layouts = [TensorParallel(group, dtype, given.split_residual, given.share_users) for group in groups]
    models = [Transformer(layout, request.args, request.weights, request.length) for layout in layouts]
    users = given.users // len(groups)
    return [Generator(model, users, request.length, use_trace=not given.no_trace) for model in models]


@contextmanager
def opened(shape: tuple[int, int]) -> Iterator[ttnn.MeshDevice]:
    """Devices that are connected, where there are several."""
    if shape != (1, 1):
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    try:
        yield mesh_device
    finally:
        ttnn.close_mesh_device(mesh_device)
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(argv)
    try:
        request = Request.of(given)
        with opened(given.mesh) as mesh_device:
            groups = generators(mesh_device, given, request)
            answers = answer(groups, request)
            show(f"on {mesh_device}, {given.dtype}", request, answers)
            return check(given.dtype, request, groups, answers) if given.check else 0
    except (ValueError, OSError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2


def answer(groups: Sequence[Generator], request: Request) -> list[Tokens]:
    start = time.perf_counter()
    answers = generate(groups, request.prompts, request.tokens)
    if sys.stderr.isatty():
        rate = len(answers) * request.tokens / (time.perf_counter() - start)
        print(f"{rate:.0f} tokens/s", file=sys.stderr)
    return answers


def show(where: str, request: Request, answers: list[Tokens]) -> None:
    print(f"{request.args.num_hidden_layers} layers of {request.args.hidden_size} {where}")
    for user, (prompt, tokens) in enumerate(zip(request.prompts, answers, strict=True)):
        more = " ..." if len(tokens) > SHOWN else ""
        print(f"user {user}: {len(prompt)} tokens -> {' '.join(map(str, tokens[:SHOWN]))}{more}")


def check(dtype: str, request: Request, groups: Sequence[Generator], answers: list[Tokens]) -> int:
    """Prints how the logits after the prompts, and the tokens, agree with torch's; 1 where logits do not."""
    prompts = request.prompts
    model = TorchLlama(request.args, request.weights, len(prompts), request.length, DTYPES[dtype][1])
    expected = torch.stack([model.prefill(user, prompt) for user, prompt in enumerate(prompts)])
    share = len(prompts) // len(groups)
    logits = torch.cat([group.prefill(prompts[i * share :][:share]) for i, group in enumerate(groups)])
    pcc = ttnn.pearson_correlation_coefficient(expected.float(), logits.float())
    wanted = greedy(model, prompts, request.tokens)
    pairs = zip(chain(*answers), chain(*wanted), strict=True)
    same = sum(own == torchs for own, torchs in pairs)
    print(f"against torch: pcc {pcc:.5f}, {same} of {len(prompts) * request.tokens} tokens the same")
    return 0 if pcc > 0.999 else 1


if __name__ == "__main__":
    sys.exit(main())
