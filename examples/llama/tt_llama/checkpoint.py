"""Weights by the names of Hugging Face: drawn at random, or read from safetensors files.

    model.embed_tokens.weight                      lm_head.weight (unless tied)
    model.layers.N.self_attn.q_proj.weight         ... k_proj, v_proj, o_proj
    model.layers.N.mlp.gate_proj.weight            ... up_proj, down_proj
    model.layers.N.input_layernorm.weight          ... post_attention_layernorm
    model.norm.weight

A matrix is (out, in), as torch.nn.Linear keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open

from tt_llama.model_args import ModelArgs
from tt_llama.progress import progress

StateDict = dict[str, torch.Tensor]
_ONE_FILE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def shapes(args: ModelArgs) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every weight that a model of these sizes has."""
    hidden, inner = args.hidden_size, args.intermediate_size
    yield "model.embed_tokens.weight", (args.vocab_size, hidden)
    for n in range(args.num_hidden_layers):
        layer = f"model.layers.{n}"
        yield f"{layer}.self_attn.q_proj.weight", (args.query_size, hidden)
        yield f"{layer}.self_attn.k_proj.weight", (args.key_size, hidden)
        yield f"{layer}.self_attn.v_proj.weight", (args.key_size, hidden)
        yield f"{layer}.self_attn.o_proj.weight", (hidden, args.query_size)
        yield f"{layer}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.up_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.down_proj.weight", (hidden, inner)
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not args.tie_word_embeddings:
        yield "lm_head.weight", (args.vocab_size, hidden)


def random_weights(args: ModelArgs, seed: int = 0, dtype: torch.dtype = torch.float32) -> StateDict:
    """Matrices that keep the size of what they multiply; norms around 1."""
    draw = torch.Generator().manual_seed(seed)
    made: StateDict = {}
    for name, shape in shapes(args):
        values = torch.randn(shape, generator=draw)
        if len(shape) == 1:
            values = 1 + 0.1 * values
        elif name != "model.embed_tokens.weight":
            values *= shape[-1] ** -0.5
        made[name] = values.to(dtype)
    return made


def load_checkpoint(folder: Path, args: ModelArgs) -> StateDict:
    """All weights of `folder`: one safetensors file, or several and the index that says which has what."""
    wanted = dict(shapes(args))
    found: StateDict = {}
    for file, names in progress(_files(folder, list(wanted)).items(), "Reading weights"):
        with safe_open(file, framework="pt") as tensors:
            missing = set(names) - set(tensors.keys())
            if missing:
                raise ValueError(f"{file} lacks {', '.join(sorted(missing))}.")
            found.update((name, tensors.get_tensor(name)) for name in names)
    for name, shape in wanted.items():
        if tuple(found[name].shape) != shape:
            raise ValueError(f"{name} in {folder} is {tuple(found[name].shape)}; config.json makes it {shape}.")
    return found


def _files(folder: Path, wanted: list[str]) -> dict[Path, list[str]]:
    index = folder / _INDEX
    if not index.exists():
        if not (folder / _ONE_FILE).exists():
            raise FileNotFoundError(f"{folder} holds neither {_ONE_FILE} nor {_INDEX}.")
        return {folder / _ONE_FILE: wanted}
    place = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    missing = [name for name in wanted if name not in place]
    if missing:
        raise ValueError(f"{index} does not say where to find {', '.join(missing)}.")
    files: dict[Path, list[str]] = {}
    for name in wanted:
        file = folder / Path(place[name]).name  # beside the index, wherever it points
        files.setdefault(file, []).append(name)
    return files
