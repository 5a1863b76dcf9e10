"""A program comes out the same whether its calls are compiled or every one of them is made in full."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh import epoch
from softmesh.errors import MeshError
from softmesh.fabric import settings as fabric
from softmesh.runtime.commands import Command, attach, detach
from softmesh.runtime.grad_mode import GRADIENTS
from softmesh.runtime.queues import queue_id

Operands = dict[str, ttnn.Tensor]
CALLS: dict[str, Callable[[Operands], ttnn.Tensor]] = {
    "relu a": lambda t: ttnn.relu(t["a"]),
    "relu b": lambda t: ttnn.relu(t["b"]),
    "relu same": lambda t: ttnn.relu(t["same"]),
    "relu shard": lambda t: ttnn.relu(ttnn.get_device_tensors(t["a"])[1]),
    "add a b": lambda t: ttnn.add(t["a"], t["b"]),
    "add b a": lambda t: ttnn.add(t["b"], t["a"]),
    "add a same": lambda t: ttnn.add(t["a"], t["same"]),
    "half": lambda t: ttnn.multiply(t["a"], 0.5),
    "twice": lambda t: ttnn.multiply(t["a"], 2.0),
    "twice, an int": lambda t: ttnn.multiply(t["a"], 2),
    "rows": lambda t: ttnn.sum(t["a"], dim=2),
    "columns": lambda t: ttnn.sum(t["a"], dim=3),
    "columns kept": lambda t: ttnn.sum(t["a"], dim=3, keepdim=True),
    "gather": lambda t: ttnn.all_gather(t["a"], dim=3),
    "gather rows": lambda t: ttnn.all_gather(t["a"], dim=2),
    "gather by place": lambda t: ttnn.all_gather(t["a"], 3),
    "reduce": lambda t: ttnn.all_reduce(t["a"]),
}
CHANGES = ("fabric", "lenient", "observer", "programs", "capture")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(CALLS)), st.integers(1, 5)),
        st.tuples(st.sampled_from(CHANGES), st.just(1)),
    ),
    min_size=1,
    max_size=12,
)


class Stream:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_command(self, command: Command) -> None:
        self.seen.append(command.name)


class World:
    """The mesh, and what can be changed about it while a program runs."""

    def __init__(self, block: ExitStack) -> None:
        block.callback(fabric.activate, fabric.active())
        fabric.activate(fabric.FabricSettings(ttnn.FabricConfig.FABRIC_1D))  # meshes of other laws stay open
        shape = ttnn.MeshShape(1, 2)
        self.mesh = block.enter_context(ttnn.create_mesh_device(shape, trace_region_size=1 << 20))
        values = torch.arange(32.0 * 64).view(1, 1, 32, 64) % 9 - 4
        split, copied = ttnn.ShardTensorToMesh(self.mesh, dim=3), ttnn.ReplicateTensorToMesh(self.mesh)
        self.operands = {
            "a": self._put(values, split),
            "b": self._put(values + 1, split),
            "same": self._put(values[..., :32], copied),
        }
        self.stream = Stream()
        self._block = block
        self._undo: dict[str, Callable[[], object]] = {}

    def _put(self, values: torch.Tensor, mapper: object) -> ttnn.Tensor:
        return ttnn.from_torch(values, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=self.mesh, mesh_mapper=mapper)

    def change(self, what: str) -> None:
        """Switch it on, or off again."""
        if what in self._undo:
            self._undo.pop(what)()
        elif what == "programs":
            self.mesh.clear_program_cache()
        else:
            self._undo[what] = getattr(self, f"_{what}")()
            self._block.callback(self._undo_if_on, what)

    def _undo_if_on(self, what: str) -> None:
        if what in self._undo:
            self._undo.pop(what)()

    def _fabric(self) -> Callable[[], object]:
        before = fabric.active()
        fabric.activate(fabric.FabricSettings())
        return lambda: fabric.activate(before)

    def _lenient(self) -> Callable[[], object]:
        block = ttnn.lenient()
        block.__enter__()
        return lambda: block.__exit__(None, None, None)

    def _observer(self) -> Callable[[], object]:
        attach(self.stream)
        return lambda: detach(self.stream)

    def _capture(self) -> Callable[[], object]:
        number = ttnn.begin_trace_capture(self.mesh, cq_id=0)
        return lambda: ttnn.end_trace_capture(self.mesh, number, cq_id=0)


def outcome(world: World, call: Callable[[Operands], ttnn.Tensor]) -> object:
    try:
        made = call(world.operands)
    except MeshError as error:
        return str(error)
    stored = made.storage
    assert stored.data is not None
    return stored.data.tolist(), repr(stored.dist), repr(made.spec), made.buffer_address()


def outcomes(steps: list[tuple[str, int]], forgetting: bool) -> list[object]:
    found: list[object] = []
    with ExitStack() as block:
        for state, value in ((GRADIENTS, "in_use"), (queue_id, "is_pushed")):
            block.enter_context(mock.patch.object(state, value, False))
        world = World(block)
        for what, times in steps:
            if what in CHANGES:
                world.change(what)
                continue
            for _ in range(times):
                if forgetting:
                    epoch.invalidate()
                found.append(outcome(world, CALLS[what]))
        return [*found, world.stream.seen, world.mesh.num_program_cache_entries()]


@settings(max_examples=60)
@given(STEPS)
def test_compiled_calls_change_nothing(steps):
    assert outcomes(steps, forgetting=False) == outcomes(steps, forgetting=True)
