"""Inserted communication as data: each step changes the word of one mesh axis.

all_gather         Shard(dim)  -> Replicate
all_reduce         Partial     -> Replicate
reduce_scatter     Partial     -> Shard(dim)
all_to_all         Shard(dim)  -> Shard(to_dim)
partition          Replicate   -> Shard(dim)     nothing travels
contribute         Replicate   -> Partial        nothing travels: the first keeps it, the others hold zeros
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from softmesh.distributed.layouts import SUM, Layout, Value, is_split, with_word
from softmesh.perf import link_costs
from softmesh.perf.chip_costs import copy_seconds
from softmesh.perf.link_costs import Line, LinkCost
from softmesh.placement.words import REPLICATE, Partial, Shard

GATHER, REDUCE, REDUCE_SCATTER = "all_gather", "all_reduce", "reduce_scatter"
PARTITION, EXCHANGE, CONTRIBUTE = "partition", "all_to_all", "contribute"
LOCAL_STEPS = (PARTITION, CONTRIBUTE)
RING = "ring"  # blocks passed on from neighbour to neighbour, in the midst of an op


class Step(NamedTuple):
    kind: str
    axis: int
    dim: int | None  # the dim that is gathered, scattered, partitioned, or given up
    to_dim: int | None
    after: Layout
    cost: LinkCost
    combines: str = "sum"  # how contributions become the value

    @property
    def travels(self) -> bool:
        return self.kind not in LOCAL_STEPS

    def __str__(self) -> str:
        return self.named(f"axis {self.axis}")

    def named(self, axis: str) -> str:
        """The step with what its axis is called."""
        dims = "" if self.dim is None else f"dim {self.dim}"
        dims += "" if self.to_dim is None else f" to dim {self.to_dim}"
        how = "" if self.combines == "sum" else self.combines
        return f"{self.kind}({', '.join(filter(None, (how, dims, axis)))})"


def steps_from(layout: Layout, value: Value, lines: tuple[Line, ...]) -> Iterator[Step]:
    """Every step that can be taken from here."""
    here = value.bytes_on_each(layout)
    for axis, word in enumerate(layout):
        if value.mesh[axis] == 1:
            continue
        if isinstance(word, Shard):
            yield from _from_split(layout, axis, word, here, value, lines[axis])
        elif isinstance(word, Partial):
            yield from _from_contributions(layout, axis, word.op, here, value, lines[axis])
        else:
            yield from _from_copies(layout, axis, here, value, lines[axis])


def _from_split(
    layout: Layout, axis: int, word: Shard, here: int, value: Value, line: Line
) -> Iterator[Step]:
    if any(is_split(later, word.dim) for later in layout[axis + 1 :]):
        return  # not the innermost split of this dim
    gathered = with_word(layout, axis, REPLICATE)
    yield Step(GATHER, axis, word.dim, None, gathered, link_costs.all_gather(line, here))
    if not value.divides(layout, axis, word.dim):
        return
    for dim, after in _even_splits(gathered, axis, value):
        if dim != word.dim:
            yield Step(EXCHANGE, axis, word.dim, dim, after, link_costs.all_to_all(line, here))


def _from_contributions(
    layout: Layout, axis: int, combines: str, here: int, value: Value, line: Line
) -> Iterator[Step]:
    total = with_word(layout, axis, REPLICATE)
    yield Step(REDUCE, axis, None, None, total, link_costs.all_reduce(line, here), combines)
    if combines == "sum":
        for dim, after in _even_splits(layout, axis, value):
            yield Step(REDUCE_SCATTER, axis, dim, None, after, link_costs.reduce_scatter(line, here))


def _from_copies(layout: Layout, axis: int, here: int, value: Value, line: Line) -> Iterator[Step]:
    for dim in range(len(value.shape)):
        if value.may_split(layout, axis, dim):
            after = with_word(layout, axis, Shard(dim))
            piece = value.bytes_on_each(after)
            yield Step(PARTITION, axis, dim, None, after, LinkCost(copy_seconds(line.chip, piece), 0))
    zeros = LinkCost(copy_seconds(line.chip, here), 0)
    yield Step(CONTRIBUTE, axis, None, None, with_word(layout, axis, SUM), zeros)


def _even_splits(layout: Layout, axis: int, value: Value) -> Iterator[tuple[int, Layout]]:
    for dim in range(len(value.shape)):
        is_outer = any(is_split(word, dim) for word in layout[axis + 1 :])
        if not is_outer and value.divides(layout, axis, dim):
            yield dim, with_word(layout, axis, Shard(dim))
