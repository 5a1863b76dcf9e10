"""The sizes of a Llama, as its `config.json` tells them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TILE = 32
_LLAMA3 = "llama3"


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's stretched frequencies: slow ones divided by `factor`, fast ones kept, a ramp in between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class ModelArgs:
    hidden_size: int = 256
    intermediate_size: int = 512
    num_hidden_layers: int = 2
    num_attention_heads: int = 8
    num_key_value_heads: int = 8
    head_dim: int = 32
    vocab_size: int = 512
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    max_position_embeddings: int = 2048

    @classmethod
    def from_folder(cls, folder: Path) -> ModelArgs:
        """From the `config.json` of a checkpoint in the layout of Hugging Face."""
        return cls.from_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ModelArgs:
        kind = config.get("model_type", "llama")
        if kind != "llama" or config.get("attention_bias") or config.get("mlp_bias"):
            raise ValueError(f"This is a plain Llama without biases; config.json describes a {kind!r} with others.")
        heads = config["num_attention_heads"]
        rope = config.get("rope_parameters") or {}  # newer files keep all of it in one place
        return cls(
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_hidden_layers=config["num_hidden_layers"],
            num_attention_heads=heads,
            num_key_value_heads=config.get("num_key_value_heads", heads),
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
            rms_norm_eps=config.get("rms_norm_eps", cls.rms_norm_eps),
            rope_theta=rope.get("rope_theta", config.get("rope_theta", cls.rope_theta)),
            rope_scaling=_rope_scaling(config.get("rope_scaling") or rope),
            tie_word_embeddings=config.get("tie_word_embeddings", False),
            max_position_embeddings=config.get("max_position_embeddings", cls.max_position_embeddings),
        )

    @property
    def query_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def key_size(self) -> int:
        return self.num_key_value_heads * self.head_dim


_STRETCHED = RopeScaling(8.0, 1.0, 4.0, 8192)
_LLAMA_3_1 = {
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128_256,
    "rope_theta": 500_000.0,
    "rope_scaling": _STRETCHED,
    "max_position_embeddings": 131_072,
}
SIZES = {
    "small": ModelArgs(),
    "llama-3.1-8b": ModelArgs(4096, 14_336, 32, 32, **_LLAMA_3_1),
    "llama-3.1-70b": ModelArgs(8192, 28_672, 80, 64, **_LLAMA_3_1),
}


def _rope_scaling(found: dict[str, Any]) -> RopeScaling | None:
    kind = found.get("rope_type", found.get("type", "default"))
    if kind == "default":
        return None
    if kind != _LLAMA3:
        raise ValueError(f"rope_scaling of type {kind!r} is not known here; {_LLAMA3!r} is.")
    return RopeScaling(**{name: found[name] for name in RopeScaling.__dataclass_fields__})
