"""The models of the examples: on one device they are torch's, and no plan by hand is faster than the one found."""

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
from softmesh.planner.capture import leaf_values
from softmesh.planner.constraints import Constraint, MeshShapeIs, Pinned
from softmesh.planner.layout_plan import LayoutPlan, plan
from softmesh.planner.op_graph import Role
from softmesh.planner.parallel_degrees import degrees
from softmesh.systems.chip import N300

EXAMPLES = Path(__file__).parents[2] / "examples" / "plan"
PROMPTS, LENGTH = 2, 32
GAP = 0.005


@pytest.fixture(scope="module")
def examples() -> Iterator[dict[str, ModuleType]]:
    names = ("llama", "mixtral", "gpt_training")
    sys.path.insert(0, str(EXAMPLES))
    with ttnn.alias.aliased(force=True):
        yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(EXAMPLES))
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def llama(examples: dict[str, ModuleType]) -> ModuleType:
    return examples["llama"]


def torch_mlp(config: Any, h: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
    return (torch.nn.functional.silu(h @ w["gate"].float()) * (h @ w["up"].float())) @ w["down"].float()


def torch_experts(config: Any, h: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
    shares = (h @ w["router"].float()).softmax(-1)
    kept = shares * (shares >= shares.topk(config.chosen, -1).values.amin(-1, keepdim=True))
    factors = kept / kept.sum(-1, keepdim=True)
    made = [
        torch_mlp(config, h, {name: w[name][0, at] for name in ("gate", "up", "down")}) for at in range(config.experts)
    ]
    return sum(factors[..., at : at + 1] * one for at, one in enumerate(made))


def torch_logits(
    config: Any, values: dict[str, Any], tokens: torch.Tensor, mlp: Callable[..., torch.Tensor] = torch_mlp
) -> torch.Tensor:
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
        x = x + mlp(config, normed(x, w["mlp_norm"]), w)
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


def test_a_mixture_of_experts_is_what_torch_computes(examples: dict[str, ModuleType]) -> None:
    mixtral = examples["mixtral"]
    config = mixtral.CONFIGS["tiny"]
    values, tokens = mixtral.weights(config), tokens_of(config)[:1]
    expected = torch_logits(config, values, tokens, torch_experts)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as device:
        logits = prefilled(mixtral.Mixtral(config, device, values, 1, 64), tokens, device)
        made = ttnn.to_torch(logits).reshape(expected.shape).float()
    assert ttnn.pearson_correlation_coefficient(expected, made) > 0.98  # of near ties another expert may be chosen


def test_a_mixture_of_experts_is_split_by_experts(examples: dict[str, ModuleType]) -> None:
    found = plan(
        examples["mixtral"].decode, "T3000", {"layers": 1, "keys": 128}, gap=0.02, constraints=[MeshShapeIs((1, 8))]
    )
    assert "expert" in degrees(found)


def test_a_training_step_is_what_torch_does(examples: dict[str, ModuleType]) -> None:
    """The ops that are captured of it."""
    size = {"layers": 2, "width": 64, "heads": 2, "vocabulary": 128, "sequences": 4, "tokens": 32}
    of_step: dict[str, Any] = {}

    def step(device: ttnn.MeshDevice) -> ttnn.Tensor:
        loss, model, tokens = examples["gpt_training"].trained(device, dtype=ttnn.float32, **size)
        of_step["loss"] = float(ttnn.to_torch(loss))
        of_step["after"] = {name: ttnn.to_torch(value).detach() for name, value in model.named_parameters()}
        of_step["tokens"] = [ttnn.to_torch(one) for one in tokens]
        return loss

    before = leaf_values(step, chip=N300)
    params = {name: torch.nn.Parameter(before[name].detach().clone()) for name in of_step["after"]}
    expected = torch_gpt_loss(params, *(one.long() for one in of_step["tokens"]))
    expected.backward()
    torch.optim.AdamW(params.values(), 1e-3, weight_decay=0.01).step()
    assert of_step["loss"] == pytest.approx(expected.item(), rel=1e-4)
    for name, value in params.items():
        made, wanted = of_step["after"][name], value.detach()
        if name.endswith("asking.bias"):  # nothing depends on those of keys: Adam goes by the sign of a rounding
            made, wanted = (one.reshape(2, 3, 32)[:, ::2] for one in (made, wanted))
        assert torch.allclose(made, wanted, atol=1e-4), name


def torch_gpt_loss(w: dict[str, Any], tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    functions = torch.nn.functional

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        return functions.layer_norm(x, (64,), w[f"{name}.weight"].flatten(), w[f"{name}.bias"].flatten())

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return functions.linear(x, w[f"{name}.weight"][0, 0], w[f"{name}.bias"].flatten())

    x = w["embedding.weight"][0, 0][tokens] + w["position"][0, 0]
    for at in range(2):
        asked = linear(normed(x, f"blocks.{at}.norm_1"), f"blocks.{at}.attention.asking")
        q, k, v = asked.reshape(*tokens.shape, 2, 3, 32).permute(3, 0, 2, 1, 4)
        seen = functions.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + linear(seen, f"blocks.{at}.attention.out")
        inner = linear(normed(x, f"blocks.{at}.norm_2"), f"blocks.{at}.mlp.up")
        x = x + linear(functions.gelu(inner), f"blocks.{at}.mlp.down")
    logits = normed(x, "norm") @ w["head.weight"][0, 0].T
    return functions.cross_entropy(logits.flatten(0, 1), targets.flatten())


def test_a_training_step_is_fully_sharded_data_parallel(examples: dict[str, ModuleType]) -> None:
    small = {"layers": 1, "width": 512, "heads": 8, "sequences": 8, "tokens": 256}
    found = plan(examples["gpt_training"].step, "N300", small, goal="training", gap=GAP)
    roles = {leaf.name: leaf.role for leaf in found.problem.graph.leaves}
    assert roles["blocks.0.mlp.up.weight"] is Role.WEIGHT
    assert roles["first.blocks.0.mlp.up.weight"] is Role.OPTIMIZER_STATE
    assert any(isinstance(word, Shard) for word in found.layout("first.head.weight"))
    kinds = {step.kind for move in found.cost.moves for step in move.way.steps if step.travels}
    assert {"all_gather", "reduce_scatter"} <= kinds
    with pytest.raises(TypeError, match="not cut into stages"):
        plan(examples["gpt_training"].step, "N300", small, goal="training", stages=2)


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
