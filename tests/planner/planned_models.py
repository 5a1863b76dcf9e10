"""Small models as on one device, plans of them that a search would not choose, and what one device makes of them."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.cost.mesh_lines import lines_of
from softmesh.planner.capture import captured, leaf_values
from softmesh.planner.integer_program import Status
from softmesh.planner.layout_plan import LayoutPlan
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.placement_problem import Assignment, PlacementProblem
from softmesh.planner.problem_setup import problem_of
from softmesh.systems.chip import N300

Model = Callable[[ttnn.MeshDevice], Any]
EXAMPLES = Path(__file__).parents[2] / "examples" / "plan"
USERS = 8


@contextmanager
def opened(shape: tuple[int, ...], system: str | None = None) -> Iterator[ttnn.MeshDevice]:
    """A mesh, on the system that is set or on this one."""
    if system is not None:
        ttnn.use_system(system)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    try:
        with ttnn.create_mesh_device(ttnn.MeshShape(*shape)) as mesh:
            yield mesh
    finally:
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
        if system is not None:
            ttnn.use_system(None)


def put(
    values: torch.Tensor, device: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.bfloat16, mapper: Any = None
) -> ttnn.Tensor:
    layout = ttnn.TILE_LAYOUT if dtype is ttnn.bfloat16 else ttnn.ROW_MAJOR_LAYOUT
    return ttnn.from_torch(values, dtype, layout=layout, device=device, mesh_mapper=mapper)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return made * (shape[-2] ** -0.5 if len(shape) > 1 else 1)


ROUTER = drawn(128, 8, seed=13) * 4  # of no token the second and third choice are within a rounding


def assert_close(made: torch.Tensor, expected: torch.Tensor) -> None:
    assert made.shape == expected.shape
    assert expected.float().std() > 0  # nothing is like everything
    assert ttnn.pearson_correlation_coefficient(expected.float(), made.float()) > 0.999


def mlp(device: ttnn.MeshDevice) -> ttnn.Tensor:
    x = put(drawn(1, 1, 32, 256), device)
    up, down, scale = (put(drawn(*s), device) for s in ((256, 512), (512, 256), (256,)))
    hidden = ttnn.linear(ttnn.rms_norm(x, weight=scale), up, activation="gelu")
    return ttnn.add(x, ttnn.matmul(hidden, down))


def torch_mlp() -> torch.Tensor:
    x, up, down, scale = drawn(1, 1, 32, 256), drawn(256, 512), drawn(512, 256), drawn(256)
    normed = torch.nn.functional.rms_norm(x, (256,), scale, 1e-12)
    return x + torch.nn.functional.gelu(normed @ up) @ down


def attention(device: ttnn.MeshDevice) -> ttnn.Tensor:
    """8 heads of 32 over two sequences of 64, with a softmax of its own."""
    x = put(drawn(2, 1, 64, 256), device)
    names = ("wq", "wk", "wv", "wo")
    w = {name: put(drawn(256, 256, seed=at), device) for at, name in enumerate(names)}

    def heads(name: str) -> ttnn.Tensor:
        return ttnn.permute(ttnn.reshape(ttnn.matmul(x, w[name]), (x.shape[0], 64, 8, 32)), (0, 2, 1, 3))

    scores = ttnn.matmul(heads("wq"), ttnn.transpose(heads("wk"), -2, -1))
    weights = ttnn.softmax(ttnn.multiply(scores, 32**-0.5), dim=-1)
    seen = ttnn.permute(ttnn.matmul(weights, heads("wv")), (0, 2, 1, 3))
    return ttnn.add(x, ttnn.matmul(ttnn.reshape(seen, (2, 1, 64, 256)), w["wo"]))


def torch_attention() -> torch.Tensor:
    x = drawn(2, 1, 64, 256)
    q, k, v = ((x @ drawn(256, 256, seed=at)).reshape(2, 64, 8, 32).transpose(1, 2) for at in range(3))
    seen = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return x + seen.transpose(1, 2).reshape(2, 1, 64, 256) @ drawn(256, 256, seed=3)


def experts(device: ttnn.MeshDevice) -> ttnn.Tensor:
    """8 experts, of which each token asks two."""
    x, router = put(drawn(1, 1, 32, 128), device), put(ROUTER, device)
    up, down = put(drawn(1, 8, 128, 256), device), put(drawn(1, 8, 256, 128), device)
    shares = ttnn.softmax(ttnn.matmul(x, router), dim=-1)
    best, _ = ttnn.topk(shares, 2, dim=-1)
    chosen = ttnn.multiply(shares, ttnn.ge(shares, ttnn.min(best, dim=-1, keepdim=True)))
    made = ttnn.matmul(ttnn.silu(ttnn.matmul(x, up)), down)
    return ttnn.sum(ttnn.multiply(made, ttnn.permute(chosen, (0, 3, 2, 1))), dim=1, keepdim=True)


def torch_experts() -> torch.Tensor:
    x, up, down = drawn(1, 1, 32, 128), drawn(1, 8, 128, 256), drawn(1, 8, 256, 128)
    shares = (x @ ROUTER).softmax(-1)
    chosen = shares * (shares >= shares.topk(2, dim=-1).values.amin(-1, keepdim=True))
    made = torch.nn.functional.silu(x @ up) @ down
    return (made * chosen.permute(0, 3, 2, 1)).sum(1, keepdim=True)


@cache
def example(name: str) -> ModuleType:
    """It imports ttnn."""
    spec = importlib.util.spec_from_file_location(f"planned_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[f"planned_{name}"] = importlib.util.module_from_spec(spec)
    with aliased():
        spec.loader.exec_module(module)
    return module


def llama_of(layers: int) -> tuple[Any, dict[str, Any]]:
    """Its config and weights: made when a module is loaded, as what is drawn while a plan is made has no values."""
    config = example("llama").Config(layers, 256, 8, 4, 256, 256, 64)
    return config, example("llama").weights(config)


LLAMA = llama_of(3)


def decode(device: ttnn.MeshDevice, mapper: Callable[[str], Any] = lambda name: None) -> ttnn.Tensor:
    """`mapper` is asked for that of a cache, by its name."""
    config, values = LLAMA
    model = example("llama").Llama(config, device, values, USERS, 64)
    for layer, cache_ in enumerate(model.caches):
        for at, name in enumerate(("k", "v")):
            values_ = drawn(USERS, 4, 64, 32, seed=at)
            cache_[name] = put(values_, device, mapper=mapper(f"caches.{layer}.{name}"))
    tokens = put(torch.arange(USERS).reshape(1, 1, 1, USERS) * 7, device, ttnn.uint32)
    positions = put(torch.arange(USERS) + 5, device, ttnn.int32)
    return model.decode(tokens, positions)


def prefill(device: ttnn.MeshDevice) -> ttnn.Tensor:
    config, values = LLAMA
    model = example("llama").Llama(config, device, values, 1, 64)
    tokens = put(torch.arange(64).reshape(1, 1, 1, 64) * 3, device, ttnn.uint32)
    return model.prefill(tokens)


@cache
def graph_of(model: Model) -> OpGraph:
    return captured(model, chip=N300)


@cache
def values_of(model: Model) -> dict[str, torch.Tensor]:
    return leaf_values(model, chip=N300)


def captured_values(model: Model) -> list[torch.Tensor]:
    """The results of the ops that are captured of a model, with values."""
    made: list[torch.Tensor] = []

    def watched(device: ttnn.MeshDevice) -> Any:
        results = model(device)
        made.extend(ttnn.to_torch(one).detach().clone() for one in results)
        return results

    leaf_values(watched, chip=N300)
    return made


def loaded(source: str) -> dict[str, Any]:
    """The names of a plan's file."""
    names: dict[str, Any] = {"__name__": "planned"}
    exec(compile(source, "planned.py", "exec"), names)
    return names


@cache
def on_one_device(model: Model) -> torch.Tensor:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as device:
        made: torch.Tensor = ttnn.to_torch(model(device))
    return made


def problem_on(model: Model, mesh: ttnn.MeshDevice) -> PlacementProblem:
    return problem_of(graph_of(model), tuple(mesh.shape), lines_of(mesh), N300)


def drawn_plan(problem: PlacementProblem, seed: int, layers: int = 1) -> LayoutPlan:
    """Any plan at all, mostly of splits; nodes at the same place of each layer are split alike."""
    draw, graph = random.Random(seed), problem.graph
    period = len(graph.nodes) // layers if layers > 1 else len(graph.nodes)
    by_place: dict[Any, int] = {}
    chosen = []
    for node, own in zip(graph.nodes, problem.strategies, strict=True):
        splits = [at for at, one in enumerate(own) if any(name != "all" for name in one.split_names)]
        pick = draw.choice(splits) if splits and draw.random() < 0.8 else draw.randrange(len(own))
        chosen.append(by_place.setdefault((node.op, node.number % period, len(own)), pick))
    homes = {number: draw.randrange(len(own)) for number, own in problem.homes.items()}
    _put_in_place(problem, chosen, homes)
    _join(problem, chosen, homes, draw, period)
    assignment = Assignment(tuple(chosen), homes)
    return LayoutPlan(problem, assignment, problem.cost(assignment), 0.0, 1.0, Status.OPTIMAL)


def _join(
    problem: PlacementProblem, chosen: list[int], homes: dict[int, int], draw: random.Random, period: int
) -> None:
    """Products of one value as one or each on its own, as it is drawn for each place of a layer."""
    drawn: dict[Any, int | None] = {}
    for join in problem.joins:
        numbers = sorted({one.joined for one in problem.strategies[join.nodes[0]] if one.joined is not None})
        wanted = draw.choice(numbers) if numbers and draw.random() < 0.5 else None
        wanted = drawn.setdefault((join.nodes[0] % period, len(numbers)), wanted)
        for node, weight in zip(join.nodes, join.weights(problem.graph), strict=True):
            own, layouts = problem.strategies[node], [home.layout for home in problem.homes[weight.number]]
            if own[chosen[node]].joined != wanted:
                chosen[node] = next(at for at, one in enumerate(own) if one.joined == wanted)
            if wanted is not None:
                homes[weight.number] = layouts.index(own[chosen[node]].needs[1])


def _put_in_place(problem: PlacementProblem, chosen: list[int], homes: dict[int, int]) -> None:
    """What is changed in place lies where all that change it take it, as the first of them, or its maker, has drawn."""
    graph = problem.graph
    writers: dict[int, list[tuple[int, int]]] = {}
    for node in graph.nodes:
        for place in node.writes:
            writers.setdefault(graph.root(node.operands[place]), []).append((node.number, place))
    for root, changes in writers.items():
        able = [{one.needs[place] for one in problem.strategies[node]} for node, place in changes]
        first, place = changes[0]
        drawn = problem.strategies[first][chosen[first]].needs[place]
        maker = graph.makers.get(root)
        if maker is None:
            layouts = [home.layout for home in problem.homes[root]]
        else:
            at = graph.nodes[maker].results.index(root)
            layouts = [one.gives[at] for one in problem.strategies[maker]]
            drawn = layouts[chosen[maker]]
        common = [layout for layout in layouts if all(layout in some for some in able)]
        lies = drawn if drawn in common else common[0]
        if maker is None:
            homes[root] = layouts.index(lies)
        elif drawn != lies:
            chosen[maker] = layouts.index(lies)
        for node, place in changes:
            strategies = problem.strategies[node]
            if strategies[chosen[node]].needs[place] != lies:
                chosen[node] = next(at for at, one in enumerate(strategies) if one.needs[place] == lies)
