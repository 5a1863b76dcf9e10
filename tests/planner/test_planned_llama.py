"""The Llama of the examples: on one device it is torch's, on a mesh its plan is no slower than those made by hand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh import Replicate, Shard
from softmesh.planner.constraints import Constraint, MeshShapeIs, Pinned
from softmesh.planner.layout_plan import LayoutPlan, plan

EXAMPLES = Path(__file__).parents[2] / "examples" / "plan"
PROMPTS, LENGTH = 2, 32


@pytest.fixture(scope="module")
def llama() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLES))
    with ttnn.alias.aliased():
        yield importlib.import_module("llama")
    sys.path.remove(str(EXAMPLES))
    sys.modules.pop("llama")


def torch_logits(config: Any, values: dict[str, Any], tokens: torch.Tensor) -> torch.Tensor:
    """tokens (prompts, length) -> (prompts, length, vocabulary)"""
    prompts, length = tokens.shape

    def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (config.width,), weight.float(), 1e-5)

    def heads(x: torch.Tensor, weight: torch.Tensor, count: int) -> torch.Tensor:
        return (x @ weight.float()).reshape(prompts, length, count, config.head).transpose(1, 2)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * values["cos"][:, :, :length] + torch.cat([-b, a], -1) * values["sin"][:, :, :length]

    x = values["embedding"].float()[tokens]
    for w in values["layers"]:
        h = normed(x, w["attention_norm"])
        q, k, v = (
            heads(h, w["wq"], config.heads),
            heads(h, w["wk"], config.kv_heads),
            heads(h, w["wv"], config.kv_heads),
        )
        seen = torch.nn.functional.scaled_dot_product_attention(
            rotated(q), rotated(k), v, is_causal=True, enable_gqa=True
        )
        x = x + seen.transpose(1, 2).reshape(prompts, length, config.width) @ w["wo"].float()
        h = normed(x, w["mlp_norm"])
        inner = torch.nn.functional.silu(h @ w["gate"].float()) * (h @ w["up"].float())
        x = x + inner @ w["down"].float()
    return normed(x, values["norm"]) @ values["head"].float()


def tokens_of(config: Any) -> torch.Tensor:
    return torch.randint(config.vocabulary, (PROMPTS, LENGTH), generator=torch.Generator().manual_seed(1))


def prefilled(model: Any, tokens: torch.Tensor, device: ttnn.MeshDevice) -> ttnn.Tensor:
    given = tokens[:, None, None].to(torch.int32)
    return model.prefill(ttnn.from_torch(given, ttnn.uint32, device=device))


def decoded(model: Any, tokens: torch.Tensor, position: int, device: ttnn.MeshDevice) -> ttnn.Tensor:
    newest = tokens[None, None, None, :, position].to(torch.int32)
    at = torch.full((PROMPTS,), position, dtype=torch.int32)
    return model.decode(
        ttnn.from_torch(newest, ttnn.uint32, device=device), ttnn.from_torch(at, ttnn.int32, device=device)
    )


def test_on_one_device_it_is_what_torch_computes(llama: ModuleType) -> None:
    config = llama.CONFIGS["tiny"]
    values, tokens = llama.weights(config), tokens_of(config)
    expected = torch_logits(config, values, tokens)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as device:
        model = llama.Llama(config, device, values, PROMPTS, 64)
        logits = ttnn.to_torch(prefilled(model, tokens, device)).reshape(expected.shape)
        assert ttnn.pearson_correlation_coefficient(expected, logits.float()) > 0.998
        again = ttnn.to_torch(decoded(model, tokens, LENGTH - 1, device)).reshape(PROMPTS, -1)
        assert ttnn.pearson_correlation_coefficient(expected[:, -1], again.float()) > 0.998


HANDS: dict[str, tuple[tuple[int, ...], Callable[[str], tuple[Any, Any]]]] = {
    "tensor parallel 8": (
        (1, 8),
        lambda name: (Replicate(), Shard(0) if name in ("wo", "down") else Shard(1)),
    ),
    "data parallel 2 x tensor parallel 4": (
        (2, 4),
        lambda name: (Replicate(), Shard(0) if name in ("wo", "down") else Shard(1)),
    ),
    "2-D": (
        (2, 4),
        lambda name: (Shard(1), Shard(0)) if name in ("wo", "down") else (Shard(0), Shard(1)),
    ),
}
MATRICES = ("wq", "wk", "wv", "wo", "gate", "up", "down")


@pytest.fixture(scope="module", params=["decode", "prefill"])
def program(request: pytest.FixtureRequest, llama: ModuleType) -> Callable[..., Any]:
    """One layer of the width of Llama-8B."""
    llama.CONFIGS["short"] = replace(llama.CONFIGS["8b"], layers=1, vocabulary=4096)
    found: Callable[..., Any] = getattr(llama, request.param)
    return found


GAP = 0.005


@pytest.fixture(scope="module")
def best(program: Callable[..., Any]) -> LayoutPlan:
    return planned(program)


def planned(program: Callable[..., Any], *constraints: Constraint) -> LayoutPlan:
    inputs = {"size": "short", **({"length": 512} if program.__name__ == "prefill" else {})}
    return plan(program, "T3000", inputs, constraints=constraints, gap=GAP)


@pytest.mark.parametrize("how", HANDS)
def test_no_plan_that_is_made_by_hand_is_faster(program: Callable[..., Any], best: LayoutPlan, how: str) -> None:
    """Weights lie as people put them; what else there is to choose, the search chooses for them."""
    shape, placement = HANDS[how]
    pins = [Pinned(f"layers.*.{name}", placement(name)) for name in MATRICES]
    by_hand = planned(program, MeshShapeIs(shape), *pins)
    assert by_hand.layout("layers.0.down") == placement("down")
    assert best.cost.fits
    assert best.cost.ranked_seconds <= by_hand.cost.ranked_seconds * (1 + GAP)
