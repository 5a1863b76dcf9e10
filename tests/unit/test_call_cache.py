"""A call like an earlier one takes a short way: to the same results, the same errors and the same observers."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from operands import R, S, put, random

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.dispatch.signature import Signature
from softmesh.runtime.commands import Command, attach, detach
from softmesh.strictness import listening


@pytest.fixture(scope="module")
def grid() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as opened:
        yield opened


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops that were bound, checked and looked up in full."""
    told: list[str] = []
    bind = Signature.bind

    def counted(self: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        told.append(self.op)
        return bind(self, args, kwargs)

    monkeypatch.setattr(Signature, "bind", counted)
    return told


def described(made: ttnn.Tensor) -> tuple[Any, ...]:
    return made.spec, ttnn.placements(made), made.pieces().tolist()


def test_only_the_first_of_several_calls_goes_the_long_way(grid, long_ways):
    x, y = put(random(4, 8), grid), put(random(8, 8), grid, (S(0), R))
    OPERATIONS["add"].forget_plans()
    results = [ttnn.add(x, y) for _ in range(3)]
    assert long_ways == ["add"]
    assert described(results[0]) == described(results[2])


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Calls = Callable[[ttnn.MeshDevice], list[Arguments]]


def call(*args: Any, **kwargs: Any) -> Arguments:
    return args, kwargs


def _pairs(grid: ttnn.MeshDevice) -> list[Arguments]:
    x, y, z = put(random(4, 8), grid), put(random(8, 8), grid, (S(0), R)), put(random(8, 4), grid, (R, S(1)))
    return [
        call(x, y),
        call(y, x),
        call(input_tensor_a=x, input_tensor_b=y),
        call(input_tensor_b=x, input_tensor_a=y),
        *(call(x, number) for number in (2.0, 3.0, 2, 3)),
        call(x, x),
        call(x, 2.5, dtype=ttnn.bfloat16),
        call(x, 2.5, memory_config=ttnn.L1_MEMORY_CONFIG),
        call(ttnn.typecast(x, ttnn.bfloat16), 2.5),
        call(z, z),
        call(ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT), 2.5),
    ]


def _norms(grid: ttnn.MeshDevice) -> list[Arguments]:
    x, w, b = put(random(4, 8), grid, (R, R)), put(random(1, 8), grid), put(2 * random(1, 8), grid)
    return [
        *(call(x, weight=w, epsilon=epsilon) for epsilon in (1e-5, 2.0)),
        *(call(x, epsilon=epsilon, weight=w) for epsilon in (1e-5, 2.0)),
        *(call(x, weight=w, bias=b, epsilon=epsilon) for epsilon in (1e-5, 2.0)),
        *(call(x, bias=w, weight=b, epsilon=epsilon) for epsilon in (1e-5, 2.0)),
        call(x, bias=w),
        call(x, weight=w),
        call(x),
    ]


def _reductions(grid: ttnn.MeshDevice) -> list[Arguments]:
    x = put(random(4, 8), grid, (R, R))
    return [
        *(call(x, dim) for dim in (0, 1, -1, None, (0, 1), [0])),
        *(call(x, 1, keep) for keep in (True, False)),
        *(call(x, dim=1, scalar=scalar) for scalar in (1.0, 2.0)),
        *(call(x, scalar=scalar, dim=1) for scalar in (1.0, 2.0)),
    ]


def _bounds(grid: ttnn.MeshDevice) -> list[Arguments]:
    x, y = put(random(4, 8), grid), put(random(4, 8) / 2, grid)
    return [
        call(x, 0.0, 0.5),
        call(x, 0.5, 1.0),
        call(x, min=0.0, max=0.5),
        call(x, max=0.5, min=0.0),
        call(x, max=0.0),
        call(x, min=0.0),
        call(x, min=y),
        call(x, max=y),
    ]


def _attention(grid: ttnn.MeshDevice) -> list[Arguments]:
    q, k = put(random(2, 2, 32, 32), grid), put(random(2, 2, 32, 32) / 2, grid)
    return [
        call(q, k, q),
        call(q, q, k),
        *(call(q, k, q, scale=scale) for scale in (0.1, 1.0)),
        *(call(q, k, q, is_causal=causal) for causal in (False, True)),
    ]


def _decoding(grid: ttnn.MeshDevice) -> list[Arguments]:
    q, k = put(random(1, 2, 2, 32), grid), put(random(2, 2, 32, 32), grid)
    at = [
        put(torch.tensor(places), grid, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT) for places in ([3, 9], [9, 3])
    ]
    return [
        *(call(q, k, k, cur_pos_tensor=places) for places in at),
        *(call(q, k, k, cur_pos=places) for places in ((3, 9), (9, 3), [3, 9])),
        call(q, k, k, cur_pos_tensor=at[0], scale=0.5),
    ]


def _shapes(grid: ttnn.MeshDevice) -> list[Arguments]:
    x = put(random(4, 8), grid, (S(0), R))
    return [call(x, shape) for shape in ((8, 2), (2, 8), [16, 1], (1, 16))]


def _slopes(grid: ttnn.MeshDevice) -> list[Arguments]:
    x = put(random(4, 8), grid)
    slopes = (0.1, 0.5, 2.0)
    return [*(call(x, slope) for slope in slopes), *(call(x, negative_slope=slope) for slope in slopes)]


CASES: dict[str, Calls] = {
    "add": _pairs,
    "subtract": _pairs,
    "layer_norm": _norms,
    "rms_norm": _norms,
    "sum": _reductions,
    "clamp": _bounds,
    "transformer.scaled_dot_product_attention": _attention,
    "transformer.scaled_dot_product_attention_decode": _decoding,
    "reshape": _shapes,
    "leaky_relu": _slopes,
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_calls_in_any_order_give_what_each_gives_alone(grid, name):
    op, calls = OPERATIONS[name], CASES[name](grid)
    alone = []
    for args, kwargs in calls:
        op.forget_plans()
        alone.append(described(op(*args, **kwargs)))
    for _ in range(2):
        for (args, kwargs), expected in zip([*calls, *reversed(calls)], [*alone, *reversed(alone)], strict=True):
            assert described(op(*args, **kwargs)) == expected


@pytest.mark.parametrize("options", [{}, {"activation": "gelu"}], ids=["bare", "gelu"])
def test_a_product_does_not_depend_on_how_the_operands_before_lay_in_memory(grid, options):
    op = OPERATIONS["linear"]
    x, values = put(random(64, 512), grid), random(512, 128)
    straight = put(values, grid, (R, S(1)))
    turned = ttnn.transpose(put(values.T.contiguous(), grid, (R, S(0))), -2, -1)
    assert turned.spec == straight.spec
    for before, w in ((straight, turned), (turned, straight)):
        op.forget_plans()
        alone = described(op(x, w, **options))
        op.forget_plans()
        for _ in range(3):
            op(x, before, **options)
        assert described(op(x, w, **options)) == alone


def test_values_that_were_overwritten_are_read_anew(grid):
    x = put(random(4, 8), grid)
    for _ in range(2):
        ttnn.multiply(x, 2.0)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(3 * random(4, 8), layout=ttnn.TILE_LAYOUT), x)
    assert torch.equal(ttnn.multiply(x, 2.0).pieces()[0], 6 * random(4, 8))


def _twice(op: Operation, *args: Any, **kwargs: Any) -> None:
    for _ in range(2):
        op(*args, **kwargs)


def test_operands_that_are_gone_or_elsewhere_are_refused_as_ever(grid, pair):
    x, y, other = put(random(4, 8), grid), put(random(4, 8), grid), put(random(4, 8), pair)
    _twice(ttnn.add, x, y)
    with pytest.raises(RuntimeError, match="on the same device"):
        ttnn.add(x, other)
    with pytest.raises(RuntimeError, match="must be on device"):
        ttnn.add(x, ttnn.from_torch(random(4, 8)))
    with pytest.raises(TypeError, match="given twice"):
        ttnn.add(x, y, input_tensor_b=y)
    with pytest.raises(TypeError, match="no argument 'beta'"):
        ttnn.add(x, y, beta=1.0)
    ttnn.deallocate(y)
    with pytest.raises(RuntimeError, match="deallocated"):
        ttnn.add(x, y)


def test_a_mesh_that_was_closed_computes_no_more():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        x = put(random(4, 8), mesh)
        _twice(ttnn.square, x)
    with pytest.raises(RuntimeError, match="closed"):
        ttnn.square(x)


def test_each_mesh_has_programs_of_its_own(grid, pair):
    for mesh in (grid, pair, grid, pair):
        before = mesh.num_program_cache_entries()
        _twice(ttnn.cosh, put(random(2, 3), mesh))
        assert mesh.num_program_cache_entries() - before in (0, 1)
    pair.clear_program_cache()
    ttnn.cosh(put(random(2, 3), pair))
    assert pair.num_program_cache_entries() == 1


class Heard:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def on_command(self, command: Command) -> None:
        operands = [id(tensor) for tensor in command.inputs]
        self.told.append((command.name, command.arguments, operands, command.queue, command.site))


def test_observers_hear_of_the_second_call_what_they_heard_of_the_first(grid):
    x, y, observer = put(random(4, 8), grid), put(random(4, 8), grid), Heard()
    attach(observer)
    try:
        OPERATIONS["subtract"].forget_plans()
        for _ in range(3):
            ttnn.subtract(input_tensor_b=y, input_tensor_a=x)
        for _ in range(2):
            ttnn.multiply(x, 2.5)
    finally:
        detach(observer)
    first, second, third, *others = observer.told
    assert first == second == third
    assert [(name, arguments["input_tensor_b"]) for name, arguments, *_ in others] == [("multiply", 2.5)] * 2


def test_calls_are_recorded_into_a_trace_and_replayed():
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2), trace_region_size=1 << 20) as mesh:
        x = put(random(4, 8), mesh)
        _twice(ttnn.multiply, x, 2.0)
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        made = ttnn.multiply(x, 2.0)
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(3 * random(4, 8), layout=ttnn.TILE_LAYOUT), x)
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
        assert torch.equal(made.pieces()[0], 6 * random(4, 8))


def test_an_operand_that_asks_for_a_gradient_gets_one(grid, long_ways):
    x, y = put(random(4, 8), grid), put(random(4, 8), grid)
    _twice(ttnn.multiply, x, y)
    _twice(ttnn.multiply, y, y)
    x.requires_grad_()
    ttnn.sum(ttnn.multiply(x, y)).backward()
    assert torch.equal(x.grad.pieces()[0], random(4, 8))
    long_ways.clear()
    ttnn.multiply(y, y)
    with ttnn.train.no_grad():
        assert not ttnn.multiply(x, y).requires_grad
    assert not long_ways, "nobody asks for a gradient"


def test_collectives_that_are_spelled_in_several_ways_take_it_too(grid):
    x = put(random(4, 8), grid, (S(0), R))
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
    semaphores = tuple(ttnn.create_global_semaphore(grid, cores, 0) for _ in range(2))
    gather = ttnn.experimental.strided_all_gather_async
    with ttnn.lenient():
        by_name = [
            gather(
                x,
                persistent_output_buffer=None,
                dim=dim,
                multi_device_global_semaphore=semaphores,
                cluster_axis=0,
            )
            for dim in (0, 0, 1, 1)
        ]
        by_place = [gather(x, None, dim, semaphores, cluster_axis=0) for dim in (0, 0, 1, 1)]
        expected = [ttnn.all_gather(x, dim, cluster_axis=0) for dim in (0, 0, 1, 1)]
    for one, other, plain in zip(by_name, by_place, expected, strict=True):
        assert torch.equal(one.pieces(), plain.pieces())
        assert torch.equal(other.pieces(), plain.pieces())


def test_partial_sums_are_warned_of_each_time(grid):
    x, w = put(random(4, 8), grid, (R, S(1))), put(random(8, 4), grid, (R, S(0)))
    partial = ttnn.matmul(x, w)
    for _ in range(3):
        with pytest.warns(ttnn.PartialWarning):
            ttnn.relu(partial)


def test_a_semaphore_that_is_dropped_gives_its_memory_back_though_calls_with_it_are_remembered(grid):
    x = put(random(4, 8), grid, (S(0), R))
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])

    def used() -> int:
        return grid.allocator().get_statistics(ttnn.BufferType.L1).total_allocated_bytes

    def gathered() -> None:
        ready = [ttnn.create_global_semaphore(grid, cores, 0) for _ in range(3)]
        ttnn.experimental.all_gather_async(
            x, None, 0, ready[:2], cluster_axis=0, barrier_semaphore=ready[2], topology=ttnn.Topology.Linear
        )

    before = used()
    with ttnn.lenient():
        for _ in range(3):
            gathered()
    gc.collect()
    assert used() == before


# -- strict mode -------------------------------------------------------------------------------------


def warnings_of(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


def test_calls_compiled_before_strict_mode_are_checked_in_it(grid, monkeypatch):
    x, full = put(random(4, 8), grid, (S(1), R)), put(torch.full((4, 8), 512.0), grid, dtype=ttnn.bfloat16)
    lines = {"softmax: dim 1 is split": lambda: ttnn.softmax(x, 1), "nothing changes": lambda: ttnn.add(full, 1.0)}
    for _ in range(2):
        for call in lines.values():
            assert warnings_of(call) == []
    for strict in ("1", "1", "0", "1"):
        monkeypatch.setenv("SOFTMESH_STRICT", strict)
        for said, call in lines.items():
            assert [said in text for text in warnings_of(call)] == [True] * int(strict)
    monkeypatch.delenv("SOFTMESH_STRICT")
    for call in lines.values():
        assert warnings_of(call) == []


def test_a_listener_hears_of_calls_compiled_before_it_came(grid):
    x = put(random(4, 8), grid, (S(1), R))
    for _ in range(2):
        ttnn.softmax(x, 1)
    heard: list[str] = []
    with listening(lambda text, warning: heard.append(text)):
        ttnn.softmax(x, 1)
    assert "softmax: dim 1 is split" in heard[0]
    ttnn.softmax(x, 1)
    assert len(heard) == 1


def test_a_call_that_strict_mode_warns_of_is_compiled_outside_of_it(grid, long_ways):
    x = put(random(4, 8), grid, (S(1), R))
    OPERATIONS["softmax"].forget_plans()
    for _ in range(3):
        ttnn.softmax(x, 1)
    assert long_ways == ["softmax"]
