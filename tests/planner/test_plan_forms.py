"""Forms that a plan knows as whoever writes a program by hand does: results in L1, sums made before an activation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from planned_models import (
    EXAMPLES,
    assert_close,
    decode,
    drawn,
    example,
    loaded,
    on_one_device,
    opened,
    put,
    values_of,
)

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.cli import commands
from softmesh.errors import MeshError
from softmesh.planner.constraints import Pinned, WeightDtypes
from softmesh.planner.explanation.unsearched_forms import unsearched_forms
from softmesh.planner.layout_plan import LayoutPlan, plan
from softmesh.planner.op_graph import GraphNode
from softmesh.planner.op_strategies import OpStrategy
from softmesh.planner.problem_setup import Freedom

Model = Callable[[ttnn.MeshDevice], ttnn.Tensor]
SPLIT_ALONG_K = (ttnn.Replicate(), ttnn.Shard(0))


@pytest.fixture(autouse=True)
def _on_a_t3000() -> Iterator[None]:
    ttnn.use_system("T3000")
    with aliased():  # files import ttnn
        yield
    ttnn.use_system(None)


def gated(activation: str) -> Model:
    def model(device: ttnn.MeshDevice) -> ttnn.Tensor:
        x, gate, up = (put(drawn(*shape), device) for shape in ((1, 1, 32, 512), (512, 256), (512, 256)))
        return ttnn.multiply(ttnn.linear(x, gate, activation=activation), ttnn.matmul(x, up))

    return model


def alone(activation: str) -> Model:
    """Nobody but the caller reads what is activated."""

    def model(device: ttnn.MeshDevice) -> ttnn.Tensor:
        x, gate = (put(drawn(*shape), device) for shape in ((1, 1, 32, 512), (512, 256)))
        return ttnn.linear(x, gate, activation=activation)

    return model


def read_twice(device: ttnn.MeshDevice) -> ttnn.Tensor:
    x, gate = (put(drawn(*shape), device) for shape in ((1, 1, 32, 512), (512, 512)))
    made = ttnn.linear(x, gate, activation="sigmoid")
    return ttnn.multiply(made, ttnn.add(made, x))


def split_along_k(model: Model, *names: str) -> LayoutPlan:
    with opened((1, 8)) as mesh:
        return plan(model, mesh, constraints=[Pinned(name, SPLIT_ALONG_K) for name in names])


def made_by(found: LayoutPlan, model: Model) -> torch.Tensor:
    (made,) = loaded(found.source())["run"](values_of(model))
    assert_close(made, on_one_device(model))
    return made


@pytest.mark.parametrize("activation", ["silu", "gelu", "sigmoid"])  # of 0 the last is none
def test_a_product_split_along_k_is_summed_before_its_activation(activation: str) -> None:
    model = alone(activation)
    found = split_along_k(model, "gate")
    source = found.source()
    forward = source[source.index("def forward") :]
    assert forward.index("ttnn.linear") < forward.index("cluster_axis=1") < forward.index("ttnn.unary_chain")
    assert not [move for move in found.cost.moves if move.value == found.problem.graph.named("gate").number]
    made_by(found, model)


@pytest.mark.parametrize("activation", ["silu", "gelu", "sigmoid"])
def test_an_activation_is_done_by_the_op_that_reads_it(activation: str) -> None:
    model = gated(activation)
    found = split_along_k(model, "gate", "up")
    source = found.source()
    assert f"input_tensor_a_activations=[ttnn.UnaryWithParam(ttnn.UnaryOpType.{activation.upper()})]" in source
    assert "unary_chain" not in source
    made_by(found, model)


def test_what_several_ops_read_is_activated_once() -> None:
    found = split_along_k(read_twice, "gate")
    assert "activations=" not in found.source().replace("activation=", "")
    made_by(found, read_twice)


@pytest.mark.parametrize("model", [gated("silu"), alone("gelu"), read_twice])
def test_a_program_that_follows_such_a_plan_makes_the_same(model: Model) -> None:
    names = ("gate", "up") if "up" in values_of(model) else ("gate",)
    expected = on_one_device(model)
    found = split_along_k(model, *names)
    with opened((1, 8)) as mesh, found.followed(mesh):
        made = ttnn.compose(model(mesh))
    assert_close(made, expected)


def chain(device: ttnn.MeshDevice, rows: int = 32) -> ttnn.Tensor:
    x = put(drawn(1, 1, rows, 512), device)
    for seed in range(3):
        x = ttnn.add(x, ttnn.matmul(x, put(drawn(512, 512, seed=seed), device)))
    return x


def test_small_results_stay_in_l1_and_what_is_returned_does_not() -> None:
    with opened((1, 8)) as mesh:
        found = plan(chain, mesh)
    source = found.source()
    forward = source[source.index("def forward") : source.index("def run")]
    assert "memory_config=ttnn.L1_MEMORY_CONFIG" in forward
    assert "ttnn.DRAM_MEMORY_CONFIG" in forward[forward.rindex("ttnn.add(") :]
    made_by(found, chain)


def test_results_that_do_not_fit_are_left_in_dram() -> None:
    with opened((1, 8)) as mesh:
        found = plan(lambda device: chain(device, rows=1 << 19), mesh)
    assert "L1_MEMORY_CONFIG" not in found.source()


def test_what_many_values_need_of_l1_is_given_up_after_its_last_use() -> None:
    def deep(device: ttnn.MeshDevice) -> ttnn.Tensor:
        x = y = put(drawn(1, 1, 32, 512), device)
        for at in range(60):
            y = ttnn.subtract(x, ttnn.multiply(y, at / 100))
        return y

    with opened((1, 8)) as mesh:
        found = plan(deep, mesh)
    assert "    del " in found.source()
    made_by(found, deep)


SIZE, USERS, KEYS = "tiny", 32, 64
BY_HAND = EXAMPLES / "llama_by_hand.py"


def of_the_first_token(device: ttnn.MeshDevice) -> ttnn.Tensor:
    """A Llama as on one device, with the values that the program by hand has."""
    llama = example("llama")
    model = llama.Llama(llama.CONFIGS[SIZE], device, llama.weights(llama.CONFIGS[SIZE]), USERS, KEYS)
    tokens = ttnn.from_torch(torch.arange(USERS, dtype=torch.int32)[None, None, None], ttnn.uint32, device=device)
    return model.decode(tokens, ttnn.from_torch(torch.zeros(USERS).int(), ttnn.int32, device=device))


@pytest.fixture
def _with_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("SOFTMESH_SYSTEM", "")  # commands set it for the process


@pytest.mark.usefixtures("_with_examples")
def test_the_llama_by_hand_makes_what_one_device_makes() -> None:
    assert_close(example("llama_by_hand").logits(SIZE, (4, 2), USERS, KEYS), on_one_device(of_the_first_token))


def device_seconds(file: Path, *arguments: str) -> float:
    """What `softmesh estimate` says of all its ops on devices."""
    told = ["estimate", "--json", "--no-values", "--system", "T3000", str(file), *arguments]
    result = CliRunner().invoke(commands, told)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout[result.stdout.index("{\n") :])
    of_calls = [op for op in found["ops"] if op["bound"] != "host" and op["name"] != "concat"]  # which joins weights
    return sum(op["seconds"] for op in of_calls)


@pytest.mark.usefixtures("_with_examples")
def test_a_plan_does_not_lose_to_the_program_by_hand_and_costs_what_its_file_does(tmp_path: Path) -> None:
    liberties = [WeightDtypes(names, (ttnn.bfloat8_b,)) for names in ("layers.*", "head", "caches.*")]
    found = plan(example("llama").decode, "T3000", {"size": SIZE, "keys": KEYS}, dtypes=liberties)
    assert found.home("caches.0.k").dtype is found.home("head").dtype is ttnn.bfloat8_b
    file = tmp_path / "planned.py"
    file.write_text(found.source())
    assert device_seconds(file) == pytest.approx(found.seconds, rel=0.05)
    assert found.seconds < device_seconds(BY_HAND, SIZE, "4x2")


def test_a_plan_with_smaller_caches_makes_what_one_device_makes() -> None:
    with opened((1, 8)) as mesh:
        found = plan(decode, mesh, dtypes=[WeightDtypes("caches.*", (ttnn.bfloat8_b,))])
    assert found.home("caches.0.k").dtype is ttnn.bfloat8_b
    made_by(found, decode)


def projected(*widths: int, bias: bool = False) -> Model:
    """Two layers with several products of one value; the first of them is activated."""

    def model(device: ttnn.MeshDevice) -> ttnn.Tensor:
        x = put(drawn(1, 1, 32, 512), device)
        numbered = [*enumerate(widths)]
        layers = [{f"w{at}": put(drawn(512, n, seed=9 * at + i), device) for at, n in numbered} for i in range(2)]
        back = [[put(drawn(n, 512, seed=9 * at + i), device) for at, n in numbered] for i in range(2)]
        more = {"bias": put(drawn(1, widths[0]), device)} if bias else {}
        for weights, after in zip(layers, back, strict=True):
            first, *others = weights.values()
            made = [ttnn.linear(x, first, activation="silu", **more), *(ttnn.matmul(x, one) for one in others)]
            for one, weight in zip(made, after, strict=True):
                x = ttnn.add(x, ttnn.linear(one, weight))
        return x

    return model


def is_joined(node: GraphNode, strategy: OpStrategy) -> bool:
    """For all that `projected` does with one value."""
    return strategy.joined is not None or (node.op != "matmul" and "silu" not in node.bound)


@pytest.mark.parametrize("dim", [0, 1], ids=["summed", "side by side"])
@pytest.mark.parametrize("shape", [(1, 8), (2, 4)])
def test_products_of_one_value_may_be_one_and_make_the_same(shape: tuple[int, ...], dim: int) -> None:
    model = projected(256, 512, 256)
    expected, pinned = on_one_device(model), Pinned("layers.*", (ttnn.Replicate(), ttnn.Shard(dim)))
    with opened(shape) as mesh:
        found = plan(model, mesh, freedom=Freedom(allows_strategy=is_joined), constraints=[pinned])
        with found.followed(mesh):
            assert_close(ttnn.compose(model(mesh)), expected)
    source = found.source()
    names = ", ".join(f'f"layers.{{i}}.w{at}"' for at in range(3))
    assert f'**{{f"layers.{{i}}.w0+w1+w2": ({names}) for i in range(2)}},' in source
    forward = source[source.index("def forward") : source.index("def run")]
    assert forward.count("ttnn.matmul(") == 2
    assert (forward.count("_scattered =") + forward.count("_reduced =") > 0) or dim == 1
    made_by(found, model)


def test_a_weight_that_lies_elsewhere_is_no_part_of_a_joined_one() -> None:
    pins = [Pinned(f"layers.*.w{at}", (ttnn.Replicate(), ttnn.Shard(at))) for at in (0, 1)]
    with opened((1, 8)) as mesh, pytest.raises(MeshError, match="layers"):
        plan(projected(256, 256), mesh, freedom=Freedom(allows_strategy=is_joined), constraints=pins)


def test_a_summary_names_the_forms_that_were_not_searched() -> None:
    with opened((1, 8)) as mesh:
        joined, *_ = unsearched_forms(plan(projected(256, 256, 256, bias=True), mesh))
        assert joined == "one product of weights that read the same value (w0, w1, w2)"
        for model in (projected(256, 256), chain):
            assert not [form for form in unsearched_forms(plan(model, mesh)) if "one product" in form]
