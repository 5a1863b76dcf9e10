"""One price: `explain`, `plan` and `estimate` ask the same function what an op takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh import distributed
from softmesh.cost.run_recorder import RunRecorder
from softmesh.distributed import explain
from softmesh.planner.one_chip_mesh import one_chip_mesh
from softmesh.runtime.device import MeshDevice
from softmesh.systems.chip import N150, N300, P150, Chip
from softmesh.value_free import without_values

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
DTYPES = {ttnn.bfloat16: torch.bfloat16, ttnn.float32: torch.float32}


class Operands:
    """Tensors on a mesh, of one dtype but for whole numbers."""

    def __init__(self, mesh: MeshDevice, dtype: ttnn.DataType) -> None:
        self._mesh, self._dtype = mesh, dtype

    def __call__(self, *shape: int, layout: ttnn.Layout = ttnn.TILE_LAYOUT) -> ttnn.Tensor:
        values = torch.empty(shape, dtype=DTYPES[self._dtype])
        return ttnn.from_torch(values, self._dtype, layout=layout, device=self._mesh)

    def rows(self, *shape: int) -> ttnn.Tensor:
        return self(*shape, layout=ttnn.ROW_MAJOR_LAYOUT)

    def numbers(self, *shape: int) -> ttnn.Tensor:
        values = torch.zeros(shape, dtype=torch.int32)
        return ttnn.from_torch(values, ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=self._mesh)


def _sdpa(given: Operands, heads: int = 8, kv_heads: int = 8, **options: Any) -> Call:
    keys = given(1, kv_heads, 1024, 64)
    return ttnn.transformer.scaled_dot_product_attention, (given(1, heads, 1024, 64), keys, keys), options


def _decode(given: Operands) -> Call:
    keys = given(32, 8, 1024, 64)
    return (
        ttnn.transformer.scaled_dot_product_attention_decode,
        (given(1, 32, 32, 64), keys, keys),
        {"cur_pos": [1023] * 32},
    )


def _square(given: Operands, **options: Any) -> Call:
    return ttnn.matmul, (given(512, 4096), given(4096, 4096)), options


def _one(op: Callable[..., Any], *more: Any, **options: Any) -> Callable[[Operands], Call]:
    """An op of one large operand."""
    return lambda given: (op, (given(1, 1, 512, 4096), *more), options)


def _two(op: Callable[..., Any], **options: Any) -> Callable[[Operands], Call]:
    return lambda given: (op, (given(1, 1, 512, 4096), given(1, 1, 512, 4096)), options)


CALLS: dict[str, Callable[[Operands], Call]] = {
    "add": _two(ttnn.add),
    "add of a row": lambda given: (ttnn.add, (given(1, 1, 512, 4096), given(1, 1, 1, 4096)), {}),
    "multiply by a number": _one(ttnn.multiply, 2.0),
    "divide": _two(ttnn.divide),
    "eq": _two(ttnn.eq),
    "maximum": _two(ttnn.maximum),
    "pow": _one(ttnn.pow, 2.0),
    "where": lambda given: (ttnn.where, tuple(given(1, 1, 512, 4096) for _ in range(3)), {}),
    "clamp": _one(ttnn.clamp, min=0.0, max=1.0),
    "relu": _one(ttnn.relu),
    "gelu": _one(ttnn.gelu),
    "silu": _one(ttnn.silu),
    "tanh": _one(ttnn.tanh),
    "exp": _one(ttnn.exp),
    "rsqrt": _one(ttnn.rsqrt),
    "typecast": _one(ttnn.typecast, ttnn.bfloat8_b),
    "sum": _one(ttnn.sum, dim=-1),
    "mean": _one(ttnn.mean, dim=-1, keepdim=True),
    "max": _one(ttnn.max, dim=-1),
    "prod": lambda given: (ttnn.prod, (given(1, 1, 64, 64),), {"dim": 3}),
    "cumsum": lambda given: (ttnn.cumsum, (given(1, 1, 64, 64),), {"dim": 2}),
    "softmax": _one(ttnn.softmax, dim=-1),
    "layer_norm": _one(ttnn.layer_norm),
    "rms_norm": lambda given: (ttnn.rms_norm, (given(1, 1, 512, 4096),), {"weight": given(1, 4096)}),
    "matmul": _square,
    "matmul at a fidelity": lambda given: _square(
        given, compute_kernel_config=ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.LoFi)
    ),
    "matmul on a grid": lambda given: _square(given, core_grid=ttnn.CoreGrid(x=4, y=4)),
    "matmul of few rows": lambda given: (ttnn.matmul, (given(1, 1, 32, 4096), given(4096, 4096)), {}),
    "batched matmul": lambda given: (ttnn.matmul, (given(4, 8, 512, 64), given(4, 8, 64, 512)), {}),
    "matmul into L1": lambda given: _square(given, memory_config=ttnn.L1_MEMORY_CONFIG),
    "linear": lambda given: (
        ttnn.linear,
        (given(512, 4096), given(4096, 1024)),
        {"bias": given(1, 1024), "activation": "gelu"},
    ),
    "scaled_dot_product_attention": lambda given: _sdpa(given, is_causal=True),
    "attention of groups": lambda given: _sdpa(given, 32, 8, is_causal=False),
    "scaled_dot_product_attention_decode": _decode,
    "embedding": lambda given: (ttnn.embedding, (given.numbers(1, 512), given.rows(4096, 1024)), {}),
    "permute": _one(ttnn.permute, (0, 1, 3, 2)),
    "transpose": _one(ttnn.transpose, -2, -1),
    "reshape": _one(ttnn.reshape, (1, 8, 64, 4096)),
    "reshape that moves": _one(ttnn.reshape, (1, 1, 4096, 512)),
    "concat": lambda given: (ttnn.concat, ([given(1, 1, 512, 512), given(1, 1, 512, 512)],), {"dim": 3}),
    "slice": _one(ttnn.slice, (0, 0, 0, 0), (1, 1, 256, 4096)),
    "repeat": _one(ttnn.repeat, (1, 2, 1, 1)),
    "pad": _one(ttnn.pad, ((0, 0), (0, 0), (0, 32), (0, 0)), 0.0),
    "to_layout": _one(ttnn.to_layout, ttnn.ROW_MAJOR_LAYOUT),
    "topk": _one(ttnn.topk, 32),
    "argmax": lambda given: (ttnn.argmax, (given.rows(1, 1, 32, 4096),), {"dim": -1}),
    "nlp_concat_heads": lambda given: (ttnn.experimental.nlp_concat_heads, (given(1, 8, 512, 64),), {}),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name.lower())
@pytest.mark.parametrize("chip", [N150, N300, P150], ids=lambda chip: chip.kind)
@pytest.mark.parametrize("name", CALLS)
def test_explain_plan_and_estimate_agree_on_the_price_of_an_op(name: str, chip: Chip, dtype: ttnn.DataType):
    with one_chip_mesh(chip) as mesh, without_values():
        op, args, options = CALLS[name](Operands(mesh, dtype))
        estimated = _estimated(lambda: op(*args, **options))
        explained = explain(_unified(op), *args, **options).plan.seconds
        planned = ttnn.plan(lambda: op(*args, **options), mesh).seconds
    assert explained == pytest.approx(estimated, rel=0.01)
    assert planned == pytest.approx(estimated, rel=0.01)


def _unified(op: Any) -> Any:
    found = distributed
    for part in op.name.split("."):
        found = getattr(found, part)
    return found


def _estimated(run: Callable[[], object]) -> float:
    """Return the seconds of what runs on the device, as `softmesh estimate` prices it."""
    recorder = RunRecorder()
    with ttnn.observe(recorder):
        run()
    return sum(one.form.cost.seconds for one in recorder.run.commands if not one.form.kind.is_host_transfer)


S0, S1, R, SUM = ttnn.Shard(0), ttnn.Shard(1), ttnn.Replicate(), ttnn.Partial()
MOVES = {
    "all_gather": (S1, R),
    "all_reduce": (SUM, R),
    "reduce_scatter": (SUM, S0),
    "all_to_all": (S1, S0),
    "partition": (R, S1),
    "contribute": (R, SUM),
}


@pytest.fixture(params=[ttnn.FabricConfig.FABRIC_1D, ttnn.FabricConfig.FABRIC_1D_RING], ids=["line", "ring"])
def mesh(request: pytest.FixtureRequest, idle_machine: None) -> Iterator[MeshDevice]:
    ttnn.set_fabric_config(request.param)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as opened:
        yield opened


def _placed(mesh: MeshDevice, along: ttnn.Placement, dtype: ttnn.DataType = ttnn.bfloat16) -> ttnn.Tensor:
    whole = torch.ones(1024, 1024, dtype=DTYPES[dtype])
    split = R if along is SUM else along
    mapper = distributed.mesh_mapper(mesh, [R, split])
    placed = ttnn.from_torch(whole, dtype, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
    return distributed.redistribute(placed, [R, SUM]) if along is SUM else placed


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name.lower())
@pytest.mark.parametrize("name", MOVES)
def test_explain_and_estimate_agree_on_a_change_of_placement(mesh: MeshDevice, name: str, dtype: ttnn.DataType):
    before, after = MOVES[name]
    given = _placed(mesh, before, dtype)
    explained = explain(distributed.redistribute, given, [R, after]).plan
    assert [step.kind for step in (*(s for _, s in explained.steps_before), *explained.steps_behind)] == [name]
    estimated = _estimated(lambda: distributed.redistribute(given, [R, after]))
    assert explained.seconds == pytest.approx(estimated, rel=0.01)


@pytest.mark.parametrize(("a", "b"), [(S1, S0), (R, S1), (S0, R), (S0, S1), (R, S0)])
def test_explain_and_estimate_agree_on_a_split_and_what_it_inserts(
    mesh: MeshDevice, a: ttnn.Placement, b: ttnn.Placement
):
    given = _placed(mesh, a), _placed(mesh, b)
    explained = explain(distributed.matmul, *given).plan.seconds
    estimated = _estimated(lambda: distributed.matmul(*given, implicit="allow"))
    assert explained == pytest.approx(estimated, rel=0.01)
