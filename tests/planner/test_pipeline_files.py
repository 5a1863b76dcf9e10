"""Plans in several stages, written as files: what they make, how they read, and what cannot be written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from planned_models import (
    Model,
    assert_close,
    drawn,
    drawn_plan,
    example,
    graph_of,
    llama_of,
    on_one_device,
    opened,
    put,
    values_of,
)

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.cli import commands
from softmesh.errors import NotModelled
from softmesh.planner.goal import Opening, Stage
from softmesh.planner.layout_plan import LayoutPlan
from softmesh.planner.pipeline_cuts import boundaries
from softmesh.planner.problem_setup import problem_of
from softmesh.planner.system_meshes import meshes_of

LAYERS, USERS = 4, 8
LLAMA = llama_of(LAYERS)


@pytest.fixture(autouse=True)
def _on_a_t3000() -> Iterator[None]:
    ttnn.use_system("T3000")
    with aliased():
        yield
    ttnn.use_system(None)


def tokens_of(call: int) -> torch.Tensor:
    return (torch.arange(64) * 3 + call).reshape(1, 1, 1, 64) % 256


def prefill(device: ttnn.MeshDevice, call: int = 0) -> ttnn.Tensor:
    config, values = LLAMA
    tokens = put(tokens_of(call), device, ttnn.uint32)
    return example("llama").Llama(config, device, values, 1, 64).prefill(tokens)


def decode(device: ttnn.MeshDevice) -> ttnn.Tensor:
    config, values = LLAMA
    model = example("llama").Llama(config, device, values, USERS, 64)
    for cache_ in model.caches:
        for at, name in enumerate(("k", "v")):
            cache_[name] = put(drawn(USERS, 4, 64, 32, seed=at), device)
    tokens = put(torch.arange(USERS).reshape(1, 1, 1, USERS) * 7, device, ttnn.uint32)
    return model.decode(tokens, put(torch.arange(USERS) + 5, device, ttnn.int32))


def blocks(device: ttnn.MeshDevice) -> list[ttnn.Tensor]:
    """What the first layer makes is an output, and read by the last one; the outputs are not in the order of stages."""
    layers = [{"up": put(drawn(64, 128, seed=at), device)} for at in range(LAYERS)]
    layers = [one | {"down": put(drawn(128, 64, seed=at), device)} for at, one in enumerate(layers)]
    x, made = put(drawn(1, 1, 32, 64), device), []
    for layer in layers:
        x = ttnn.add(x, ttnn.matmul(ttnn.gelu(ttnn.matmul(x, layer["up"])), layer["down"]))
        made.append(x)
    return [ttnn.add(made[-1], made[0]), made[0]]


@cache
def found(model: Model, stages: int) -> LayoutPlan:
    return ttnn.plan(model, "T3000", goal="prefill", stages=stages)


def loaded(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "planned"}
    exec(compile(source, "planned.py", "exec"), names)
    return names


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("model", [prefill, decode])
def test_a_pipeline_is_a_file_that_makes_what_one_device_makes(model: Model, stages: int) -> None:
    (made,) = loaded(found(model, stages).source())["run"](values_of(model))
    assert_close(made, on_one_device(model))


def cut_at_layers(model: Model, seed: int) -> LayoutPlan:
    """Any layout of each stage at all, a layer or two in each."""
    (mesh,) = (mesh for mesh in meshes_of("T3000") if mesh.shape == (2, 4))
    lines = (mesh.lines[0], mesh.lines[1]._replace(devices=2, is_ring=False))
    one = drawn_plan(problem_of(graph_of(model), (2, 2), lines, mesh.chip, stages=2), seed)
    middle = boundaries(one.problem)[1]
    edges = (0, middle, len(one.problem.graph.nodes))
    stages = tuple(Stage(first, end, 1e-3, 1e-5, 1) for first, end in pairwise(edges))
    return replace(one, stages=stages, opening=Opening("T3000", ttnn.FabricConfig.FABRIC_1D, (2, 4)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", [prefill, decode])
def test_any_layout_of_the_stages_makes_what_one_device_makes(model: Model, seed: int) -> None:
    plan = cut_at_layers(model, seed)
    assert plan.cost.moves
    (made,) = loaded(plan.source())["run"](values_of(model))
    assert_close(made, on_one_device(model))


@pytest.mark.parametrize("stages", [2, 4])
def test_outputs_of_any_stage_come_back_in_their_order(stages: int) -> None:
    made = loaded(found(blocks, stages).source())["run"](values_of(blocks))
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as device:
        expected = [ttnn.to_torch(one) for one in blocks(device)]
    for one, other in zip(made, expected, strict=True):
        assert_close(one, other)


def test_calls_that_follow_each_other_name_what_changes() -> None:
    program = loaded(found(prefill, 2).source())
    first = values_of(prefill)
    calls = [first, *({"tokens": tokens_of(call).to(first["tokens"].dtype)} for call in (1, 2))]
    made = program["run_calls"](calls)
    assert len(made) == 3
    assert not torch.equal(made[0][0], made[1][0])
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as device:
        for call, (own,) in enumerate(made):
            assert_close(own, ttnn.to_torch(prefill(device, call)))


def test_a_stage_has_its_layers_and_says_them_in_a_loop() -> None:
    source = found(prefill, 2).source()
    assert len(re.findall(r"^def layer", source, re.MULTILINE)) == 1
    assert "for i in range(2):" in source
    assert "for i in range(2, 4):" in source
    first, second = loaded(source)["TENSORS"]
    assert {name for name in first if name.startswith("layers.")} == {
        name.replace("layers.2", "layers.0").replace("layers.3", "layers.1")
        for name in second
        if name.startswith("layers.")
    }
    assert "head" in second.keys() - first.keys()
    assert "embedding" in first.keys() - second.keys()


def test_each_stage_is_next_to_the_one_before() -> None:
    whole = replace(found(prefill, 4), opening=Opening("Galaxy", ttnn.FabricConfig.FABRIC_1D, (4, 8)))
    shape = whole.mesh_shape
    order = loaded(whole.source())["ORDER"]
    columns = 8 // shape[1]
    places = [divmod(at, columns) for at in order]
    assert len(set(places)) == len(places) == 32 // (shape[0] * shape[1])
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in pairwise(places))


def test_a_plan_beside_the_mesh_of_others_is_opened_there() -> None:
    plan = ttnn.plan(blocks, "T3000", goal="prefill", taken=["2x2@0,0"], stages=2)
    source = plan.source()
    assert "offset=ttnn.MeshCoordinate(0, 2)" in source
    made = loaded(source)["run"](values_of(blocks))
    assert_close(made[1], on_one_device(lambda device: blocks(device)[1]))


def test_the_commands_run_a_pipeline_and_diff_confirms_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTMESH_SYSTEM", "")  # the command sets it for the process
    file = tmp_path / "planned.py"
    file.write_text(found(prefill, 4).source())
    ran = CliRunner().invoke(commands, ["run", "--system", "T3000", str(file)])
    assert ran.exit_code == 0, ran.output
    assert re.match(r"\[1, 1, \d+, 256\] mean ", ran.output)
    compared = CliRunner().invoke(commands, ["diff", "--system", "T3000", str(file), "--against", "one-device"])
    assert compared.exit_code == 0, compared.output
    assert compared.output.startswith("No divergence: ")


def one_cache(device: ttnn.MeshDevice) -> ttnn.Tensor:
    """All layers write into one."""
    kept = put(torch.zeros(1, 1, 32, 64), device)
    x = put(drawn(1, 1, 32, 64), device)
    for weight in [{"up": put(drawn(64, 64, seed=at), device)} for at in range(LAYERS)]:
        x = ttnn.matmul(x, weight["up"])
        ttnn.fill_cache(kept, x, 0)
    return ttnn.add(x, kept)


def refused(act: Callable[[], Any]) -> str:
    with pytest.raises(NotModelled) as error:
        act()
    return str(error.value)


def test_what_cannot_be_done_in_stages_is_told() -> None:
    said = refused(found(one_cache, 2).source)
    assert re.search(r"is changed in place, and stages 0 and 1 .* give each layer one of its own", said)
    plan = found(blocks, 2)
    with opened(plan.mesh_shape) as mesh:
        said = refused(lambda: plan.followed(mesh).__enter__())
        assert "a pipeline of 2 stages" in said
        assert "plan.source()" in said
        inside = ttnn.plan(blocks, mesh, goal="prefill", stages=2)
    assert 'plan for the system by its name, softmesh.plan(function, "T3000", stages=2)' in refused(inside.source)
