"""The programs that other tests here break on purpose are right, and every mistake changes what comes out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import seeded_cases
import seeded_gpt
import seeded_llama
import torch
from seeded_llama import EPSILON, HEAD, HEADS, HIDDEN, KV_HEADS, PROMPT

import softmesh as ttnn

pytestmark = pytest.mark.usefixtures("idle_machine")


def turned(x: torch.Tensor) -> torch.Tensor:
    """Pairs of neighbouring columns turned by the angles of positions 0 to n - 1."""
    angles = torch.outer(torch.arange(x.shape[-2]), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD))
    cos, sin = (table.repeat_interleave(2, 1) for table in (angles.cos(), angles.sin()))
    other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos + other * sin


def torch_logits(tokens: torch.Tensor) -> torch.Tensor:
    w = {name.removeprefix("0."): value for name, value in seeded_llama.weights(1).items()}
    n = len(tokens)

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (HIDDEN,), weight, EPSILON)

    def split(x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.reshape(n, heads, HEAD).transpose(0, 1)

    x = w["embedding"][tokens.long()]
    h = norm(x, w["norm_1"])
    q, k, v = split(h @ w["q"], HEADS), split(h @ w["k"], KV_HEADS), split(h @ w["v"], KV_HEADS)
    attend = torch.nn.functional.scaled_dot_product_attention
    seen = attend(turned(q)[None], turned(k)[None], v[None], is_causal=True, enable_gqa=True)[0]
    x = x + seen.transpose(0, 1).reshape(n, -1) @ w["o"] + w["o_bias"]
    h = norm(x, w["norm_2"])
    x = x + (torch.nn.functional.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
    return norm(x, w["norm"]) @ w["head"]


@pytest.mark.parametrize("mesh", [(1, 1), (1, 8), (2, 4), (4, 8)])
def test_the_llama_is_that_of_torch(mesh: tuple[int, int]) -> None:
    prefilled = seeded_llama.run(seeded_llama.Form(mesh=mesh, dtype=ttnn.float32))
    for user, prompt in enumerate(seeded_llama.prompts()):
        torch.testing.assert_close(prefilled[user][0, 0], torch_logits(prompt), rtol=1e-3, atol=1e-3)
    one_more = torch.cat([seeded_llama.prompts(), seeded_llama.prompts()[:, :1]], 1)
    expected = torch.stack([torch_logits(tokens)[PROMPT].softmax(-1) for tokens in one_more])
    torch.testing.assert_close(prefilled[-1][0, 0], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mesh", [(1, 8), (2, 4), (4, 8)])
def test_the_gpt_trains_as_on_one_device(mesh: tuple[int, int]) -> None:
    expected = seeded_gpt.run(seeded_gpt.Form(mesh=(1, 1), steps=3))
    torch.testing.assert_close(seeded_gpt.run(seeded_gpt.Form(mesh=mesh, steps=3)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning")
def test_every_mistake_changes_what_comes_out() -> None:
    right: dict[object, list[torch.Tensor]] = {}
    for case in seeded_cases.MISTAKES:
        form = case.form if isinstance(case.form, seeded_llama.Form) else replace(case.form, steps=3)
        one_device = form.on_one_device()
        if one_device not in right:
            right[one_device] = case.program.run(one_device)
        pairs = zip(case.program.run(form), right[one_device], strict=True)
        same = (a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in pairs)
        assert not all(same), case.name
