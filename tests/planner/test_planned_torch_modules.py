"""Torch modules are planned as they are: what their files make is what torch makes, names of parameters stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from planned_models import drawn_plan, opened
from torch import nn

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.cost.mesh_lines import lines_of
from softmesh.errors import NotModelled
from softmesh.planner.capture import captured
from softmesh.planner.layout_plan import LayoutPlan, plan
from softmesh.planner.problem_setup import problem_of
from softmesh.planner.torch_modules import function_of
from softmesh.systems.chip import N300

WIDTH, HEADS = 128, 4


class Gpt(nn.Module):
    """Layer norms, fused queries, keys and values, GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for part in parts)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.down(nn.functional.gelu(self.up(self.other_norm(x))))


class Llama(nn.Module):
    """RMS norms, rotary positions by halves, a softmax of its own, SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other_norm = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        for name in ("wq", "wk", "wv", "wo"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))
        self.gate, self.up = nn.Linear(WIDTH, 256, bias=False), nn.Linear(WIDTH, 256, bias=False)
        self.down = nn.Linear(256, WIDTH, bias=False)
        angles = torch.outer(torch.arange(32), 10.0 ** -torch.linspace(0, 4, 16)).repeat(1, 2)
        self.register_buffer("cos", angles.cos()[None, None], persistent=False)
        self.register_buffer("sin", angles.sin()[None, None], persistent=False)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * self.cos + turned * self.sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(-1, (HEADS, -1)).permute(0, 2, 1, 3)

        h = self.norm(x)
        q, k = self.rotated(heads(self.wq(h))), self.rotated(heads(self.wk(h)))
        scores = torch.softmax(q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5, dim=-1)
        x = x + self.wo((scores @ heads(self.wv(h))).permute(0, 2, 1, 3).flatten(2))
        h = self.other_norm(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, block: type[nn.Module]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, WIDTH)
        self.layers = nn.ModuleList([block(), block()])
        self.head = nn.Linear(WIDTH, 256, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(x)
        return logits


@pytest.fixture(params=[Gpt, Llama])
def model(request: pytest.FixtureRequest) -> Model:
    torch.manual_seed(0)
    return Model(request.param).eval()


TOKENS = torch.arange(64).reshape(2, 32) * 3


def made_by(found: LayoutPlan, model: nn.Module) -> torch.Tensor:
    with aliased():
        names = {"__name__": "planned"}
        exec(compile(found.source(), "planned.py", "exec"), names)
        (output,) = names["run"](found.values(model, [TOKENS]))  # type: ignore[operator]
    result: torch.Tensor = output
    return result


def test_the_file_of_a_torch_module_makes_what_torch_makes(model: Model) -> None:
    found = plan(model, "N300", [TOKENS])
    with torch.no_grad():
        expected = model(TOKENS)
    assert ttnn.pearson_correlation_coefficient(expected, made_by(found, model).float()) > 0.999
    names = {leaf.name for leaf in found.problem.graph.leaves}
    assert {"tokens.weight", "layers.1.down.weight", "head.weight"} <= names
    assert found.problem.graph.named("layers.0.up.weight").shape[0] == WIDTH  # (in, out), as ttnn.linear takes it
    assert "for i in range(2):" in found.source()


def test_so_does_any_plan_at_all(model: Model) -> None:
    graph = captured(function_of(model, [TOKENS]), [TOKENS], chip=N300)
    with opened((2, 4), "T3000") as mesh:
        found = drawn_plan(problem_of(graph, (2, 4), lines_of(mesh), N300), 1)
    with torch.no_grad():
        expected = model(TOKENS)
    ttnn.use_system("T3000")
    made = made_by(found, model)
    ttnn.use_system(None)
    assert found.cost.moves
    assert ttnn.pearson_correlation_coefficient(expected, made.float()) > 0.999


class Encoder(nn.Module):
    """Positions and types of its own making, a mask of integers, queries of the first token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.kinds = (nn.Embedding(n, WIDTH) for n in (256, 64, 2))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, HEADS, 256, batch_first=True) for _ in range(2))
        self.head = nn.Linear(WIDTH, 32)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = (1.0 - mask[:, None].float()) * -10000.0
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1])) + self.kinds(torch.zeros_like(tokens))
        for layer in self.layers:
            x = layer(x, hidden.expand(-1, x.shape[1], -1).repeat_interleave(HEADS, 0))
        made: torch.Tensor = self.head(torch.tanh(x[:, 0]))
        return made


class Vision(nn.Module):
    """Patches by a convolution, a token for the class, queries, keys and values unbound from one product."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.first, self.places = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 17, WIDTH))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 32)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(17, 17).tril().bool())
        made: torch.Tensor = self.out(seen.transpose(1, 2).flatten(2).relu_()[:, 0])
        return made


class Grouped(nn.Module):
    """Angles and masks that are computed in it, keys that several heads share, weights that are shared."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(256, WIDTH), nn.Linear(WIDTH, 256, bias=False)
        self.head.weight = self.tokens.weight
        self.wq, self.wk, self.wv = (nn.Linear(WIDTH, n, bias=False) for n in (WIDTH, WIDTH // 2, WIDTH // 2))
        self.register_buffer("steps", 10.0 ** -torch.linspace(0, 4, 16))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        (users, length), x = tokens.shape, self.tokens(tokens)
        angles = torch.outer(torch.arange(length).float(), self.steps).repeat(1, 2)
        q, k, v = (w(x).view(users, length, -1, 32).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = (y * angles.cos() + torch.cat([-y[..., 16:], y[..., :16]], -1) * angles.sin() for y in (q, k))
        k, v = (y[:, :, None].expand(-1, -1, 2, -1, -1).reshape(users, HEADS, length, 32) for y in (k, v))
        scores = (q @ k.transpose(2, 3) / 32**0.5).masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        seen = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v
        made: torch.Tensor = self.head(x + seen.transpose(1, 2).reshape(users, length, -1))
        return made


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4, bias=False)
        self.up, self.down = (nn.Parameter(torch.randn(4, *s) / 8) for s in ((WIDTH, 64), (64, WIDTH)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = self.router(x).softmax(-1)
        shares = torch.where(shares >= shares.topk(2, -1)[0][..., -1:], shares, torch.zeros_like(shares))
        inner = nn.functional.silu(torch.einsum("td,edf->etf", x, self.up))
        made = torch.einsum("etf,efd->etd", inner, self.down) * shares.t()[:, :, None]
        return made.sum(0)


OTHERS: list[tuple[type[nn.Module], list[torch.Tensor]]] = [
    (Encoder, [TOKENS, (TOKENS < 150).int()]),
    (Vision, [torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))]),
    (Grouped, [TOKENS]),
    (Experts, [torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(2))]),
]


@pytest.mark.parametrize(("kind", "inputs"), OTHERS, ids=[kind.__name__ for kind, _ in OTHERS])
def test_what_depends_on_no_input_is_a_tensor_of_the_plan(kind: type[nn.Module], inputs: list[torch.Tensor]) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    found = plan(module, "N300", inputs)
    with torch.no_grad():
        expected = module(*inputs)
    with aliased():
        names = {"__name__": "planned"}
        exec(compile(found.source(), "planned.py", "exec"), names)
        (made,) = names["run"](found.values(module, inputs))  # type: ignore[operator]
    assert ttnn.pearson_correlation_coefficient(expected, made.float()) > 0.998


class Calls(nn.Module):
    """What a function makes of a tensor, beside buffers whose names torch gives to results of its own, too."""

    def __init__(self, function: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("two", torch.tensor(2.0))
        self.register_buffer("cos", torch.linspace(0, 3, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def changed(x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Both as it is called later, and what the change has returned."""
    y = x * 1.5
    return change(y) * 2 + y


CALLS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "a number divided": lambda module, x: module.two / x,
    "a number less": lambda module, x: module.two - x,
    "a number compared": lambda module, x: torch.where((module.two * 0.7).ge(x), x, x * 2),
    "the other way round, with a factor": lambda module, x: torch.rsub(x, x * 3, alpha=2),
    "a number less so many": lambda module, x: torch.rsub(x, 3.0, alpha=2),
    "a number so many times": lambda module, x: torch.add(x, 3.0, alpha=2),
    "so many less": lambda module, x: torch.sub(x, x * 3, alpha=2),
    "fractions cut off": lambda module, x: (x * 3).to(torch.int32) + x,
    "whole numbers but nothing": lambda module, x: (x * 3).long().bool().float() + x,
    "anything but nothing": lambda module, x: (x - 1.5).relu().bool().float() + x,
    "two to the power of it": lambda module, x: module.two**x,
    "itself to the power of it": lambda module, x: x**x,
    "like another": lambda module, x: (x * 3).type_as(torch.arange(3)) + x,
    "names of its own": lambda module, x: x * module.cos + x * torch.arange(64).float().cos(),
    "in place": lambda module, x: changed(x, lambda y: y.add_(1)),
    "in place, one after the other": lambda module, x: changed(x, lambda y: y.add_(1).relu_()),
    "a part of it, from what was in place": lambda module, x: changed(x, lambda y: y.relu_()[:1]),
}


def assert_planned_right(module: nn.Module, inputs: list[torch.Tensor]) -> None:
    found = plan(module, "N150", inputs)
    with aliased():
        names = {"__name__": "planned"}
        exec(compile(found.source(), "planned.py", "exec"), names)
        (made,) = names["run"](found.values(module, inputs))  # type: ignore[operator]
    torch.testing.assert_close(made.float(), module(*inputs), atol=0.05, rtol=0.02)


# halves, so that no cast cuts off what was rounded
NUMBERS = torch.randint(2, 5, (32, 64), generator=torch.Generator().manual_seed(3)) / 2


@pytest.mark.parametrize("name", CALLS)
def test_a_call_means_what_it_means_to_torch(name: str) -> None:
    assert_planned_right(Calls(CALLS[name]), [NUMBERS])


def test_an_input_may_be_called_as_a_parameter_is() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((64,), 5.0), requires_grad=False)

        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return x * weight + self.weight

    assert_planned_right(Scaled(), [NUMBERS, NUMBERS * 2])


@pytest.mark.parametrize("least", [-32, 0])
def test_integers_may_be_negative_or_become_so(least: int) -> None:
    class Below(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Embedding(64, 64)

        def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = x * (counts < 0) + (counts - 5).float() + self.places(counts[:, 0] + 32)
            return made

    counts = torch.arange(2048).reshape(32, 64) // 128 + least
    assert_planned_right(Below().requires_grad_(False), [NUMBERS, counts])


class Angles(nn.Module):
    """As models compute them: without gradients, and in float32 whatever the rest is in."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return x * torch.outer(torch.arange(32).float(), torch.linspace(0, 0.1, 64)).cos()


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))
        return made


def test_parts_in_contexts_of_their_own_are_planned_and_branches_refused() -> None:
    assert_planned_right(nn.Sequential(Angles(), nn.Softmax(-1)), [NUMBERS])
    with pytest.raises(NotModelled, match=r"graphs of their own \(true_graph_0, false_graph_0\)"):
        plan(Branching(), "N150", [NUMBERS])


def test_keys_that_are_padding_are_hidden() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

        def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.attention(x, x, x, need_weights=False, key_padding_mask=padding)[0]
            return made

    torch.manual_seed(0)
    assert_planned_right(Attending().eval(), [torch.randn(2, 32, 64), torch.arange(64).reshape(2, 32) > 50])


def test_an_output_may_be_none() -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
            return x * 2, None

    found = plan(Halves(), "N150", [NUMBERS])
    assert len(found.problem.graph.outputs) == 1


@pytest.mark.parametrize("view", [lambda y: y.view(64, 32), lambda y: y[:, :32]], ids=["reshaped", "cut"])
@pytest.mark.parametrize("is_first", [True, False])
def test_views_of_what_is_changed_in_place_are_refused(view: Callable[..., torch.Tensor], is_first: bool) -> None:
    def function(module: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * 1.5
        part = view(y)
        (part if is_first else y).mul_(2)
        return y + 1 if is_first else part + 1

    with pytest.raises(NotModelled, match=r"aten\.mul_\.Tensor in place, where another view of that tensor is read"):
        plan(Calls(function), "N150", [NUMBERS])


class Spectrum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x).real


def test_what_is_not_covered_is_named_with_its_line() -> None:
    with pytest.raises(NotModelled, match=r"calls aten\.fft_fft .*fft\.fft\(x\)\.real.* Covered are .*layer_norm"):
        plan(nn.Sequential(nn.Linear(32, 32), Spectrum()), "N150", [torch.randn(4, 32)])
    with pytest.raises(NotModelled, match=r"dropout while training: call module\.eval\(\) first"):
        plan(nn.Dropout(0.5).train(), "N150", [torch.randn(4, 32)])


def test_other_inputs_and_other_programs_are_refused() -> None:
    with pytest.raises(TypeError, match="inputs of a torch module are torch tensors, got list"):
        plan(nn.Linear(32, 32), "N150", [[1, 2]])
    found = plan(nn.Linear(32, 32), "N150", [torch.zeros(32, 32)])
    with pytest.raises(TypeError, match="the plan has weight, this program has not"):
        found.values(nn.Sequential(nn.Linear(32, 32)), [torch.zeros(32, 32)])
