"""Writes reach the tensors that share a buffer, and nothing else.

A model with one plain torch tensor per buffer and device predicts every value. Shards taken with
get_device_tensors share their parent's buffer; results of ops, copies and the user's own torch tensors
do not, however much memory they share underneath.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from strategies import (
    LAWS,
    Like,
    Words,
    by_coordinate,
    can_be_made,
    leading_extents_are_true,
    mesh_of,
    placed,
    quietly,
    seeds,
    words_for,
)

import softmesh as ttnn
from softmesh.placement.placements import REPLICATE, Shard

SHAPE = (2, 3)
Cells = dict[ttnn.MeshCoordinate, torch.Tensor]


@dataclass(eq=False)
class Held:
    """A tensor and the model's buffer behind it: the cells at `coords` are its pieces."""

    tensor: ttnn.Tensor
    cells: Cells
    coords: list[ttnn.MeshCoordinate]

    @property
    def is_live(self) -> bool:
        return bool(self.cells)

    def values(self) -> Cells:
        return {coord: self.cells[coord] for coord in self.coords}


def fresh(tensor: ttnn.Tensor, values: Cells) -> Held:
    """A tensor with a buffer of its own."""
    return Held(tensor, {coord: value.clone() for coord, value in values.items()}, list(values))


VIEWS = {
    "reshape": (lambda t: ttnn.reshape(t, [3, 2]), lambda x: x.reshape(3, 2)),
    "slice": (lambda t: t[:, 1:], lambda x: x[:, 1:]),
    "permute": (lambda t: ttnn.permute(t, [1, 0]), lambda x: x.permute(1, 0)),
    "split": (lambda t: ttnn.split(t, 2, 1)[0], lambda x: x[:, :2]),
    "to_layout": (lambda t: ttnn.to_layout(t, ttnn.ROW_MAJOR_LAYOUT), lambda x: x),
    "to_memory_config": (lambda t: ttnn.to_memory_config(t, ttnn.L1_MEMORY_CONFIG), lambda x: x),
    "typecast": (lambda t: ttnn.typecast(t, ttnn.float32), lambda x: x),
    "assign": (lambda t: ttnn.assign(t, memory_config=ttnn.DRAM_MEMORY_CONFIG), lambda x: x),
    "expand": (lambda t: ttnn.expand(t, [2, 2, 3]), lambda x: x.expand(2, 2, 3)),
    "neg": (lambda t: ttnn.neg(t), lambda x: -x),
    "from_device": (lambda t: ttnn.from_device(t), lambda x: x),
    "there and back": (lambda t: ttnn.to_device(ttnn.from_device(t), t.device()), lambda x: x),
}


def _address(tensor: ttnn.Tensor) -> int | None:
    return None if tensor.storage_type() is ttnn.StorageType.HOST else tensor.buffer_address()


class CopyOnWrite(RuleBasedStateMachine):
    """`tensors` are of one shape on one mesh; `results` are whatever ops made of them."""

    tensors = Bundle("tensors")
    results = Bundle("results")

    @initialize(shape=st.sampled_from([(1, 1), (1, 2), (2, 2), (1, 3)]))
    def open(self, shape: tuple[int, int]) -> None:
        self.mesh = mesh_of(shape)
        self.held: list[Held] = []

    def keep(self, held: Held) -> Held:
        self.held.append(held)
        return held

    # -- making ----------------------------------------------------------------------------------

    @rule(target=tensors, words=st.tuples(words_for(2), words_for(2)), seed=seeds)
    def make(self, words: Words, seed: int) -> Held:
        words = words if can_be_made(words) else (words[0], REPLICATE)
        tensor = placed(self.mesh, Like(SHAPE), words, seed)
        return self.keep(fresh(tensor, by_coordinate(tensor)))

    @rule(target=tensors, seed=seeds)
    def make_from_a_torch_tensor_that_changes_later(self, seed: int) -> Held:
        source = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
        tensor = ttnn.from_torch(source, layout=ttnn.TILE_LAYOUT, device=self.mesh)
        assert tensor is not None
        held = self.keep(fresh(tensor, dict.fromkeys(tensor.device_coords(), source)))
        source.zero_()
        return held

    @rule(target=tensors, of=tensors)
    def take_shards(self, of: Held) -> object:
        if not of.is_live:
            return multiple()
        shards = ttnn.get_device_tensors(of.tensor)
        return multiple(*(self.keep(Held(s, of.cells, [c])) for s, c in zip(shards, of.coords, strict=True)))

    @rule(target=tensors, of=tensors, order=st.randoms(use_true_random=False))
    def put_shards_together(self, of: Held, order: object) -> object:
        if not of.is_live:
            return multiple()
        pairs = list(zip(ttnn.get_device_tensors(of.tensor), of.coords, strict=True))
        order.shuffle(pairs)  # type: ignore[attr-defined]
        together = ttnn.combine_device_tensors(tensors=[shard for shard, _ in pairs])
        return self.keep(Held(together, of.cells, [coord for _, coord in pairs]))

    @rule(target=results, of=tensors, name=st.sampled_from(sorted(VIEWS)))
    def compute(self, of: Held, name: str) -> object:
        if not of.is_live:
            return multiple()
        on_mesh, on_torch = VIEWS[name]
        with quietly():
            made = on_mesh(of.tensor)
        return self.keep(fresh(made, {c: on_torch(v) for c, v in of.values().items()}))

    @rule(target=results, of=results)
    def take_results_apart(self, of: Held) -> object:
        if not of.is_live or of.tensor.storage_type() is ttnn.StorageType.HOST:
            return multiple()
        shards = ttnn.get_device_tensors(of.tensor)
        return multiple(*(self.keep(Held(s, of.cells, [c])) for s, c in zip(shards, of.coords, strict=True)))

    # -- writing ---------------------------------------------------------------------------------

    @rule(to=tensors | results, seed=seeds)
    def write_the_same_to_all(self, to: Held, seed: int) -> None:
        if not to.is_live or to.tensor.storage_type() is ttnn.StorageType.HOST:
            return
        values = torch.randn(tuple(to.tensor.shape), generator=torch.Generator().manual_seed(seed))
        host = ttnn.from_torch(values, ttnn.float32, layout=to.tensor.layout)
        assert host is not None
        ttnn.copy_host_to_device_tensor(host, to.tensor)
        to.cells.update(dict.fromkeys(to.coords, values))

    @rule(to=tensors, of=tensors)
    def write_what_another_tensor_holds(self, to: Held, of: Held) -> None:
        if to.is_live and of.is_live and set(of.coords) & set(to.coords):
            ttnn.copy_host_to_device_tensor(ttnn.from_device(of.tensor), to.tensor)
            to.cells.update({c: v.clone() for c, v in of.values().items() if c in to.coords})

    @rule(to=tensors, a=tensors, b=tensors)
    def compute_into(self, to: Held, a: Held, b: Held) -> None:
        shared = set(a.coords) & set(b.coords)
        if not (to.is_live and a.is_live and b.is_live and shared & set(to.coords)):
            return
        with quietly():
            ttnn.maximum(a.tensor, b.tensor, output_tensor=to.tensor)
        new = {c: torch.maximum(a.cells[c], b.cells[c]) for c in shared if c in to.coords}
        to.cells.update(new)

    @rule(to=tensors, of=tensors)
    def copy_into(self, to: Held, of: Held) -> None:
        if to.is_live and of.is_live and set(of.coords) & set(to.coords):
            with quietly():
                ttnn.copy(of.tensor, to.tensor)
            to.cells.update({c: v.clone() for c, v in of.values().items() if c in to.coords})

    @rule(to=results, of=tensors)
    def copy_into_a_host_tensor(self, to: Held, of: Held) -> None:
        is_host = to.tensor.storage_type() is ttnn.StorageType.HOST
        if is_host and to.is_live and of.is_live and to.coords == of.coords:
            ttnn.copy_device_to_host_tensor(of.tensor, to.tensor)
            to.cells.update({c: v.clone() for c, v in of.values().items()})

    # -- reading and dropping --------------------------------------------------------------------

    @rule(of=tensors | results)
    def spoil_what_to_torch_gave(self, of: Held) -> None:
        if of.is_live and len(of.coords) == 1:
            ttnn.to_torch(of.tensor).fill_(77.0)

    @rule(of=consumes(tensors))
    def deallocate(self, of: Held) -> None:
        """Tensors that only read the same memory in another way are gone with it, as on the device."""
        place = of.tensor.buffer_address() if of.is_live else 0
        alike = [held for held in self.held if held.is_live and _address(held.tensor) == place]
        of.tensor.deallocate(force=True)
        for held in [of, *alike]:
            held.cells.clear()

    @rule(of=consumes(results))
    def forget(self, of: Held) -> None:
        self.held.remove(of)

    @invariant()
    def every_tensor_holds_what_the_model_says(self) -> None:
        for held in getattr(self, "held", []):
            assert held.tensor.is_allocated() == held.is_live
            if held.is_live:
                assert leading_extents_are_true(held.tensor)
                found = by_coordinate(held.tensor)
                assert list(found) == held.coords
                assert all(torch.equal(found[c].cpu(), v.cpu()) for c, v in held.values().items())


TestSequencesOfWrites = CopyOnWrite.TestCase
TestSequencesOfWrites.settings = settings(LAWS, max_examples=100, stateful_step_count=20)


def test_shards_written_back_in_another_order_stay_on_their_devices() -> None:
    t = placed(mesh_of((1, 2)), Like(SHAPE), (REPLICATE, Shard(0)), 1)
    first, second = ttnn.get_device_tensors(t)
    before = [first.pieces().cpu().clone(), second.pieces().cpu().clone()]
    ttnn.copy(ttnn.combine_device_tensors(tensors=[second, first]), t)
    assert torch.equal(first.pieces().cpu(), before[0])
    assert torch.equal(second.pieces().cpu(), before[1])


def test_a_host_tensor_for_some_devices_overwrites_only_those() -> None:
    mesh = mesh_of((2, 2))
    t = placed(mesh, Like(SHAPE), (Shard(0), Shard(1)), 1)
    before = by_coordinate(t)
    row = ttnn.from_torch(
        torch.ones(2, 6),
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=ttnn.create_mesh_mapper(
            mesh,
            ttnn.MeshMapperConfig(
                [ttnn.PlacementReplicate(), ttnn.PlacementShard(1)],
                ttnn.MeshShape(1, 2),
                mesh_offset_override=ttnn.MeshCoordinate(1, 0),
            ),
        ),
    )
    assert row is not None
    shards = ttnn.get_device_tensors(t)
    before = {coord: piece.clone() for coord, piece in before.items()}
    ttnn.copy_host_to_device_tensor(row, t)
    for shard, (coord, old) in zip(shards, before.items(), strict=True):
        assert shard.device_coords() == [coord]
        assert torch.equal(shard.pieces().cpu()[0], torch.ones(SHAPE) if coord[0] == 1 else old.cpu())
