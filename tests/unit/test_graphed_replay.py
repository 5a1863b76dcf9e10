"""Traces as CUDA graphs, without a GPU: a recorder of torch's calls stands for the graph, and repeats them in place.

What a graph does is what matters here: nothing runs at its capture, and each launch reads and writes the memory that
the capture found. What only a card can show is in tests/gpu.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import softmesh as ttnn
from softmesh.errors import GpuRemark
from softmesh.runtime.traces import trace_api
from softmesh.runtime.traces.trace import Trace


def tensors_of(values: object) -> list[torch.Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]


class RecordedGraph(TorchDispatchMode):
    """Stands for torch.cuda.CUDAGraph, and for the block in which one is captured."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], Any, Any, Any]] = []
        self.before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.launches = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            self.before += [(one, one.clone()) for one in tensors_of((args, kwargs))]
        made = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, made))
        return made

    def take_back(self) -> None:
        """A capture runs nothing: what was there before is as it was."""
        for one, values in reversed(self.before):
            one.copy_(values)
        self.before.clear()

    def replay(self) -> None:
        self.launches += 1
        for func, args, kwargs, made in self.calls:
            known = {one.untyped_storage().data_ptr() for one in tensors_of((args, kwargs))}
            for old, new in zip(tensors_of(made), tensors_of(func(*args, **kwargs)), strict=True):
                if old.untyped_storage().data_ptr() not in known:  # neither a view nor written in place
                    old.copy_(new)


CARD = torch.device("cuda", 1)
CURRENT: list[torch.device] = []  # the one that torch's launches go to, while a program has chosen it


@contextmanager
def current(card: torch.device) -> Iterator[None]:
    CURRENT.append(card)
    yield
    CURRENT.pop()


@contextmanager
def capturing(graph: RecordedGraph, **_: object) -> Iterator[None]:
    assert CURRENT == [CARD], "a capture records the current card's stream and no other"
    with graph:
        yield
    graph.take_back()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[RecordedGraph]:
    """Those that were captured."""
    made: list[RecordedGraph] = []

    def graph() -> RecordedGraph:
        made.append(RecordedGraph())
        return made[-1]

    monkeypatch.setattr(torch.cuda, "CUDAGraph", graph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", current)
    monkeypatch.setattr(trace_api, "Trace", lambda found, manager, _, **more: Trace(found, manager, CARD, **more))
    CURRENT.clear()
    return made


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        yield mesh


def put(values: torch.Tensor, mesh: ttnn.MeshDevice | None) -> ttnn.Tensor:
    mapper = None if mesh is None else ttnn.ShardTensorToMesh(mesh, dim=0)
    return ttnn.from_torch(values, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def captured(mesh: ttnn.MeshDevice, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    work()
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    made = work()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    return lambda: ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True), made


def overwrite(tensor: ttnn.Tensor, values: torch.Tensor, mesh: ttnn.MeshDevice) -> None:
    host = ttnn.from_torch(
        values, ttnn.float32, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0)
    )
    ttnn.copy_host_to_device_tensor(host, tensor)


def whole(tensor: ttnn.Tensor) -> torch.Tensor:
    return ttnn.compose(tensor).clone()


def test_a_replay_reads_what_was_written_in_place(mesh: ttnn.MeshDevice, graphs: list[RecordedGraph]) -> None:
    x = put(torch.randn(128, 64), mesh)
    replay, out = captured(mesh, lambda: ttnn.exp(ttnn.add(x, 1.0)))
    for _ in range(5):
        values = torch.randn(128, 64)
        overwrite(x, values, mesh)
        replay()
        torch.testing.assert_close(whole(out), torch.exp(values + 1.0))
    assert [graph.launches for graph in graphs] == [4]


def test_a_view_of_the_last_result_keeps_it(mesh: ttnn.MeshDevice, graphs: list[RecordedGraph]) -> None:
    x = put(torch.randn(128, 64), mesh)
    replay, out = captured(mesh, lambda: ttnn.exp(x))
    turned = None
    for _ in range(5):
        overwrite(x, torch.randn(128, 64), mesh)
        before = None if turned is None else whole(turned)
        replay()
        if turned is not None:
            assert torch.equal(whole(turned), before)
        torch.testing.assert_close(whole(out), torch.exp(whole(x)))
        turned = ttnn.transpose(out, 0, 1)
    assert len(graphs) == 1


@pytest.mark.parametrize("is_before", [True, False])
def test_a_view_of_an_input_keeps_what_it_saw(
    mesh: ttnn.MeshDevice, graphs: list[RecordedGraph], is_before: bool
) -> None:
    """Made before the graph is captured, or after it: the graph reads that very memory."""
    x = put(torch.randn(128, 64), mesh)
    replay, out = captured(mesh, lambda: ttnn.exp(x))
    replay()
    turned = ttnn.transpose(x, 0, 1) if is_before else None
    replay()
    turned = ttnn.transpose(x, 0, 1) if turned is None else turned
    seen = whole(turned)
    for _ in range(3):
        values = torch.randn(128, 64)
        overwrite(x, values, mesh)
        replay()
        torch.testing.assert_close(whole(out), torch.exp(values))
        assert torch.equal(whole(turned), seen)
    assert len(graphs) == 1


def test_a_replay_goes_on_from_the_state_that_the_last_one_left(
    mesh: ttnn.MeshDevice, graphs: list[RecordedGraph]
) -> None:
    x = put(torch.zeros(128, 64), mesh)
    replay, _ = captured(mesh, lambda: ttnn.add_(x, 1.0))
    begun = whole(x)[0, 0]
    for number in range(1, 6):
        replay()
        assert whole(x)[0, 0] == begun + number
    assert [graph.launches for graph in graphs] == [4]


def test_a_step_that_fails_at_the_capture_leaves_no_part_to_run_twice(
    mesh: ttnn.MeshDevice, graphs: list[RecordedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = put(torch.zeros(128, 64), mesh)
    replay, out = captured(mesh, lambda: ttnn.layer_norm(ttnn.add_(x, 1.0)))
    replay()
    real, failures = F.layer_norm, iter(["cannot be captured", "the host has no memory", None, None])

    def failing(*args: Any, **kwargs: Any) -> torch.Tensor:
        if (why := next(failures)) is not None:
            raise RuntimeError(why)
        return real(*args, **kwargs)

    monkeypatch.setattr(F, "layer_norm", failing)
    with pytest.raises(RuntimeError, match="the host has no memory"):
        replay()
    with pytest.warns(GpuRemark, match="replayed as 1 CUDA graphs, cut at 1 of its 2 steps.*layer_norm: cannot be"):
        replay()
    before = whole(x)
    replay()
    assert torch.equal(whole(x), before + 1.0)
    assert bool((whole(out) == 0.0).all())


def test_what_is_changed_and_dropped_within_a_trace_needs_no_memory_before_it(
    mesh: ttnn.MeshDevice, graphs: list[RecordedGraph]
) -> None:
    x = put(torch.randn(128, 64), mesh)

    def work() -> ttnn.Tensor:
        inner = ttnn.add(x, 1.0)
        ttnn.multiply_(inner, 2.0)
        kept = ttnn.exp(inner)
        ttnn.add_(kept, 1.0)
        return kept

    replay, out = captured(mesh, work)
    for _ in range(4):
        values = torch.randn(128, 64)
        overwrite(x, values, mesh)
        replay()
        torch.testing.assert_close(whole(out), torch.exp((values + 1.0) * 2.0) + 1.0)
    assert [graph.launches for graph in graphs] == [3]


def test_values_that_the_program_dropped_pass_from_graph_to_graph(
    mesh: ttnn.MeshDevice, graphs: list[RecordedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = put(torch.randn(128, 64), mesh)

    def work() -> ttnn.Tensor:
        inner = ttnn.add(x, 1.0)
        normed = ttnn.layer_norm(inner)
        ttnn.multiply_(inner, 2.0)
        return ttnn.add(ttnn.exp(normed), inner)

    replay, out = captured(mesh, work)
    real = F.layer_norm

    def on_the_host(*args: Any, **kwargs: Any) -> torch.Tensor:
        if CURRENT:
            raise RuntimeError("cannot be captured")
        return real(*args, **kwargs)

    monkeypatch.setattr(F, "layer_norm", on_the_host)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(4):
            values = torch.randn(128, 64)
            overwrite(x, values, mesh)
            replay()
            inner = values + 1.0
            torch.testing.assert_close(whole(out), torch.exp(real(inner, (64,), eps=1e-12)) + inner * 2.0)
    assert [one.category for one in told] == [GpuRemark]
    assert [graph.launches for graph in graphs if graph.launches] == [3, 3]


def test_a_capture_keeps_what_is_cached_about_its_inputs(mesh: ttnn.MeshDevice, graphs: list[RecordedGraph]) -> None:
    """Values read back are cached by address and version: neither may change because a graph was captured."""
    x = put(torch.randn(128, 64), mesh)
    data = x.storage.data = x.storage.data.view_as(x.storage.data)  # a view, as many operands are
    replay, _ = captured(mesh, lambda: ttnn.exp(x))
    before = data.data_ptr(), data._version
    for _ in range(3):
        replay()
    now = x.storage.data
    assert (now.data_ptr(), now._version) == before
    data.add_(1.0)
    assert now._version == data._version, "a write through the view must invalidate what is cached"
