"""Plans as files of plain TT-NN calls, and plans that a program follows: both make what one device makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from planned_models import (
    Model,
    assert_close,
    attention,
    decode,
    drawn,
    drawn_plan,
    experts,
    loaded,
    mlp,
    on_one_device,
    opened,
    prefill,
    problem_on,
    put,
    torch_attention,
    torch_experts,
    torch_mlp,
    values_of,
)

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.cli import commands
from softmesh.errors import NotModelled
from softmesh.planner.layout_plan import plan
from softmesh.planner.problem_setup import Freedom

TORCH = {mlp: torch_mlp, attention: torch_attention, experts: torch_experts}
MESHES = [(1, 2), (1, 8), (2, 4)]


@pytest.fixture(autouse=True)
def _on_a_t3000() -> Iterator[None]:
    ttnn.use_system("T3000")
    with aliased():  # files import ttnn
        yield
    ttnn.use_system(None)


def run(source: str, values: dict[str, torch.Tensor]) -> torch.Tensor:
    (output,) = loaded(source)["run"](values)
    made: torch.Tensor = output
    return made


@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("model", [*TORCH, decode, prefill])
def test_a_plan_is_a_file_that_makes_what_one_device_makes(model: Model, shape: tuple[int, ...]) -> None:
    with opened(shape) as mesh:
        source = plan(model, mesh).source()
    made = run(source, values_of(model))
    assert_close(made, on_one_device(model))
    if model in TORCH:
        assert_close(made, TORCH[model]())


@pytest.mark.parametrize(("shape", "seed"), [((1, 8), 0), ((2, 4), 1), ((2, 4), 2)])
@pytest.mark.parametrize("model", [*TORCH, decode, prefill])
def test_any_plan_at_all_makes_what_one_device_makes(model: Model, shape: tuple[int, ...], seed: int) -> None:
    with opened(shape) as mesh:
        found = drawn_plan(problem_on(model, mesh), seed)
    assert found.cost.moves
    assert_close(run(found.source(), values_of(model)), on_one_device(model))


def test_what_is_sent_is_told_once() -> None:
    """Also where a step takes several calls."""
    with opened((2, 4)) as mesh:
        found = drawn_plan(problem_on(attention, mesh), 1)
    steps = [step for move in found.cost.moves for step in move.way.steps]
    assert len({step.kind for step in steps}) > 2
    assert found.source().count(" through a link, ") == sum(step.travels for step in steps)


def in_shards(device: ttnn.MeshDevice) -> ttnn.Tensor:
    """Tuned for one device: its memory, its cores."""
    x, w = put(drawn(64, 128), device), put(drawn(128, 256), device)
    shards = ttnn.create_sharded_memory_config((64, 128), ttnn.CoreGrid(x=2, y=2), ttnn.ShardStrategy.BLOCK)
    y = ttnn.relu(ttnn.interleaved_to_sharded(x, shards), memory_config=shards)
    y = ttnn.to_memory_config(ttnn.sharded_to_interleaved(y, ttnn.DRAM_MEMORY_CONFIG), ttnn.L1_MEMORY_CONFIG)
    tuned = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(2, 2),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=4,
        transpose_mcast=False,
        fused_activation=None,
    )
    return ttnn.linear(y, w, program_config=tuned)


def convolved(device: ttnn.MeshDevice) -> ttnn.Tensor:
    images = put(drawn(4, 16, 16, 8), device)
    weight = ttnn.from_torch(drawn(16, 8, 3, 3), ttnn.bfloat16)
    made = ttnn.conv2d(
        input_tensor=ttnn.to_layout(images, ttnn.ROW_MAJOR_LAYOUT),
        weight_tensor=weight,
        device=device,
        in_channels=8,
        out_channels=16,
        batch_size=4,
        input_height=16,
        input_width=16,
        kernel_size=(3, 3),
        stride=(1, 1),
        padding=(1, 1),
        conv_config=ttnn.Conv2dConfig(weights_dtype=ttnn.bfloat16, enable_act_double_buffer=True),
    )
    return ttnn.max_pool2d(
        ttnn.relu(made),
        batch_size=4,
        input_h=16,
        input_w=16,
        channels=16,
        kernel_size=[2, 2],
        stride=[2, 2],
        padding=[0, 0],
        dilation=[1, 1],
    )


def test_images_are_shared_by_devices() -> None:
    split = Freedom(allows_home=lambda value, home: value.name != "images" or home.layout[1] == ttnn.Shard(0))
    with opened((1, 4)) as mesh:
        found = plan(convolved, mesh, freedom=split)
        with found.followed(mesh):
            followed = ttnn.compose(convolved(mesh))
    assert {names[1] for names in (one.split_names for one in found.strategies)} >= {"split images"}
    assert "batch_size=4 // mesh.shape[1]" in found.source()
    assert_close(run(found.source(), values_of(convolved)), on_one_device(convolved))
    assert_close(followed, on_one_device(convolved))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_plan_of_images_makes_what_one_device_makes(seed: int) -> None:
    with opened((2, 4)) as mesh:
        found = drawn_plan(problem_on(convolved, mesh), seed)
    assert_close(run(found.source(), values_of(convolved)), on_one_device(convolved))


def with_activations_in_configs(device: ttnn.MeshDevice) -> ttnn.Tensor:
    def config(columns: int, kind: ttnn.UnaryOpType) -> Any:
        return ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
            compute_with_storage_grid_size=(2, 2),
            in0_block_w=1,
            out_subblock_h=1,
            out_subblock_w=1,
            per_core_M=2,
            per_core_N=columns // 128,
            fuse_batch=True,
            mcast_in0=True,
            fused_activation=ttnn.UnaryWithParam(kind),
        )

    x, up, down = put(drawn(64, 128), device), put(drawn(128, 256), device), put(drawn(256, 128), device)
    exactly = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi4, fp32_dest_acc_en=True)
    h = ttnn.linear(x, up, program_config=config(256, ttnn.UnaryOpType.GELU), compute_kernel_config=exactly)
    return ttnn.matmul(h, down, program_config=config(128, ttnn.UnaryOpType.SIGMOID))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_activation_of_a_program_config_stays_and_its_sizes_do_not(seed: int) -> None:
    model = with_activations_in_configs
    with opened((2, 4)) as mesh:
        found = drawn_plan(problem_on(model, mesh), seed)
        with found.followed(mesh):
            followed = ttnn.compose(model(mesh))
    source = found.source()
    assert "HIFI4_FP32 = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi4" in source
    assert source.count("compute_kernel_config=HIFI4_FP32") == 1
    assert_close(run(source, values_of(model)), on_one_device(model))
    assert_close(followed, on_one_device(model))


@pytest.mark.parametrize("model", [in_shards, convolved])
def test_what_is_tuned_for_one_device_is_planned_without_that(model: Model) -> None:
    with opened((2, 4)) as mesh:
        found = plan(model, mesh)
        with found.followed(mesh):
            followed = ttnn.compose(model(mesh))
    made = run(found.source(), values_of(model))
    assert_close(made, on_one_device(model))
    assert_close(followed, on_one_device(model))


def test_what_a_function_hands_back_as_it_was_is_an_output_too() -> None:
    def both(device: ttnn.MeshDevice) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        x = put(drawn(32, 64), device)
        return x, ttnn.relu(x)

    with opened((1, 2)) as mesh:
        source = plan(both, mesh).source()
    same, made = loaded(source)["run"](values_of(both))
    assert_close(same, drawn(32, 64))
    assert_close(made, drawn(32, 64).relu())


@pytest.mark.parametrize("dims", [(None, 0), (0, None), (0, 0)])
def test_an_output_may_have_fewer_dims_than_the_mesh_has_axes(dims: tuple[int | None, ...]) -> None:
    def doubled(device: ttnn.MeshDevice) -> ttnn.Tensor:
        return ttnn.multiply(put(drawn(256), device), 2.0)

    words = [ttnn.Replicate() if dim is None else ttnn.Shard(dim) for dim in dims]
    with opened((2, 4)) as mesh:
        problem = problem_on(doubled, mesh)
        (node,) = problem.graph.nodes
        seeds = (drawn_plan(problem, seed) for seed in range(100))
        found = next(one for one in seeds if list(one.left(node.results[0])) == words and not one.cost.broken)
    assert f"OUTPUTS = ({dims},)" in found.source()
    assert_close(run(found.source(), values_of(doubled)), drawn(256) * 2)


def test_layers_become_a_function_and_the_names_of_weights_stay() -> None:
    with opened((1, 8)) as mesh:
        source = plan(decode, mesh).source()
    assert "for i in range(3):" in source
    assert len(re.findall(r"^def layer", source, re.MULTILINE)) == 1
    assert 't[f"layers.{i}.wo"]' in source
    assert source.count("down") <= 4  # in the table, and where it is used


# Weights on every device are the best of small ones.
SPLIT = Freedom(
    allows_home=lambda value, home: value.name not in ("up", "down") or isinstance(home.layout[1], ttnn.Shard)
)


def test_collectives_are_in_the_file_where_the_plan_has_them() -> None:
    with opened((1, 8)) as mesh:
        found = plan(mlp, mesh, freedom=SPLIT)
        steps = [step for move in found.cost.moves for step in move.way.steps if step.travels]
    source = found.source()
    assert steps
    for kind in {step.kind for step in steps} & {"all_gather", "all_reduce", "reduce_scatter"}:
        assert source.count(f"ttnn.{kind}(") == sum(step.kind == kind for step in steps)
    assert "distributed" not in source


@pytest.mark.parametrize(("model", "seed"), [(attention, 0), (experts, 1), (decode, 2)])
def test_a_program_that_follows_a_plan_makes_what_its_file_makes(model: Model, seed: int) -> None:
    with opened((2, 4)) as mesh:
        found = drawn_plan(problem_on(model, mesh), seed)
        caches = {"mapper": lambda name: found.mapper(name, mesh)} if model is decode else {}
        with found.followed(mesh):
            output = model(mesh, **caches)
        made = ttnn.compose(output)
    assert_close(made, run(found.source(), values_of(model)))


def test_a_cache_has_to_lie_where_it_is_written() -> None:
    with opened((2, 4)) as mesh:
        found = drawn_plan(problem_on(decode, mesh), 2)
        remedy = r"changes caches\.0\.k in place.*mesh_mapper=plan\.mapper\('caches\.0\.k', mesh\)"
        with pytest.raises(RuntimeError, match=remedy), found.followed(mesh):
            decode(mesh)


def test_a_plan_is_followed_as_often_as_the_program_runs() -> None:
    weights = {"up": drawn(64, 256), "down": drawn(256, 64)}

    def block(x: ttnn.Tensor, up: ttnn.Tensor, down: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.matmul(ttnn.relu(ttnn.matmul(x, up)), down)

    def program(device: ttnn.MeshDevice) -> ttnn.Tensor:
        up, down = (put(value, device) for value in weights.values())
        return block(put(torch.zeros(32, 64), device), up, down)

    with opened((1, 8)) as mesh:
        found = plan(program, mesh, freedom=SPLIT)
        up, down = (
            ttnn.from_torch(
                value, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=found.mapper(name, mesh)
            )
            for name, value in weights.items()
        )
        assert list(up.shape) == [64, 32]
        for seed in range(2):
            x = drawn(32, 64, seed=seed)
            with found.followed(mesh):
                made = ttnn.compose(block(put(x, mesh), up, down))
            assert_close(made, (x @ weights["up"]).relu() @ weights["down"])


@pytest.mark.parametrize("seed", range(3))
def test_a_layout_is_the_topology_that_a_unified_op_leaves_its_result_in(seed: int) -> None:
    with opened((2, 4)) as mesh:
        found = drawn_plan(problem_on(mlp, mesh), seed)
        for name, shape in (("up", (256, 512)), ("down", (512, 256))):
            values = drawn(*shape)
            where = found.layout(name)
            made = ttnn.distributed.add(put(values, mesh), put(values, mesh), output_topology=where)
            assert tuple(ttnn.placements(made)) == tuple(where)
            assert_close(ttnn.compose(made), 2 * values)


def test_another_program_than_the_planned_one_is_told() -> None:
    with opened((1, 2)) as mesh:
        found = plan(mlp, mesh)
        x = put(torch.zeros(1, 1, 32, 256), mesh)
        other = "calls relu, where the program that was planned calls rms_norm"
        with pytest.raises(RuntimeError, match=other), found.followed(mesh):
            ttnn.relu(x)
        with pytest.raises(RuntimeError, match="ended after 1 of the plan's 4 ops"), found.followed(mesh):
            ttnn.rms_norm(x, weight=put(torch.ones(256), mesh))
        size = r"x is \[1, 1, 64, 256\].* planned as \[1, 1, 32, 256\]"
        with pytest.raises(RuntimeError, match=size), found.followed(mesh):
            ttnn.rms_norm(put(torch.zeros(1, 1, 64, 256), mesh), weight=put(torch.ones(256), mesh))
    shape = pytest.raises(ValueError, match=r"the plan is for a mesh of \(1, 2\)")
    with opened((2, 4)) as mesh, shape, found.followed(mesh):
        pass


def test_what_no_public_op_does_cannot_be_written() -> None:
    def long_context(device: ttnn.MeshDevice) -> ttnn.Tensor:
        q, k, v = (put(torch.zeros(1, 1, 4096, 64), device) for _ in range(3))
        return ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)

    def is_ring(node: Any, strategy: Any) -> bool:
        return "ring of keys" in strategy.split_names

    with opened((1, 8)) as mesh:
        found = plan(long_context, mesh, freedom=Freedom(plain_only=False, allows_strategy=is_ring))
    with pytest.raises(NotModelled, match="done by ring_attention, which no public op of TT-NN does"):
        found.source()


def test_values_that_do_not_fit_the_plan_are_told() -> None:
    with opened((1, 2)) as mesh:
        program = loaded(plan(mlp, mesh).source())
    with pytest.raises(SystemExit, match="There are no values for x, scale, up, down"):
        program["run"]({})
    with pytest.raises(SystemExit, match=r"x is \(2, 2\), and was planned as \(1, 1, 32, 256\)"):
        program["run"](program["random_values"]() | {"x": torch.zeros(2, 2)})


def test_the_commands_run_a_plan_and_diff_confirms_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTMESH_SYSTEM", "")  # the commands set it for the process
    file = tmp_path / "planned.py"
    with opened((2, 4)) as mesh:
        file.write_text(drawn_plan(problem_on(attention, mesh), 3).source())
    ran = CliRunner().invoke(commands, ["run", "--system", "T3000", str(file)])
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("[2, 1, 64, 256] mean ")
    compared = CliRunner().invoke(commands, ["diff", "--system", "T3000", str(file), "--against", "one-device"])
    assert compared.exit_code == 0, compared.output
    assert compared.output.startswith("No divergence: ")
