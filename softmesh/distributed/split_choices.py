"""Sharding choices of an op: how the devices along one mesh axis can share its work, what each needs, and gives.

A matrix product has the dims "b m k, b k n -> b m n": split along m, n or b, devices work apart; split along
k, each makes a contribution to the sum. A strategy is one choice for each axis of the mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from softmesh.distributed.layouts import SUM, Layout, Value
from softmesh.placement.placements import REPLICATE, Partial, Placement, Shard

Labels = tuple[str | None, ...]  # the same label: the same dim; None: broadcast along it


@dataclass(frozen=True)
class Choice:
    """The word that each operand needs along the axis, and the word that the result gets."""

    name: str
    needs: tuple[Placement, ...]
    gives: Placement
    takes_uneven: bool = True  # whether the filler of an uneven split does no harm


@dataclass(frozen=True)
class Split:
    """One choice for each axis of the mesh: a strategy, as the op that is split sees it."""

    mesh: tuple[int, ...]
    choices: tuple[Choice, ...]

    def needs(self, operand: int) -> Layout:
        return tuple(choice.needs[operand] for choice in self.choices)

    @property
    def gives(self) -> Layout:
        return tuple(choice.gives for choice in self.choices)

    def axes(self, name: str) -> tuple[int, ...]:
        """Those along which this was chosen."""
        return tuple(axis for axis, choice in enumerate(self.choices) if choice.name == name)


def together(operands: int) -> Choice:
    """Every device does all of the work."""
    return Choice("all", (REPLICATE,) * operands, REPLICATE)


def by_labels(
    operands: Sequence[Labels],
    result: Labels,
    labels: Sequence[str],
    *,
    combines: Mapping[str, Placement] = MappingProxyType({}),
    carries: Sequence[frozenset[int]] = (),
    terms: frozenset[int] = frozenset(),
    names: Sequence[str] | None = None,
) -> tuple[Choice, ...]:
    """The choices of an op whose dims have labels; `labels` are those along which it can be split.

    A label that the result does not have is combined away: its split leaves contributions (a sum, or as `combines`
    says). `carries` has the sets of operands whose contributions the op hands on: those of either factor of a
    product, those of all terms of a sum together. `terms` are operands added to such a result: they must be
    contributions too.
    """
    made = [together(len(operands))]
    for label in labels:
        gives = Shard(result.index(label)) if label in result else combines.get(label, SUM)
        needs = [
            SUM if gives is SUM and i in terms else Shard(own.index(label)) if label in own else REPLICATE
            for i, own in enumerate(operands)
        ]
        made.append(Choice(f"split {label}", tuple(needs), gives, takes_uneven=label in result))
    called = names or [chr(ord("a") + i) for i in range(len(operands))]
    for carried in carries:
        needs = [SUM if i in carried or i in terms else REPLICATE for i in range(len(operands))]
        name = "contributions of " + " + ".join(called[i] for i in sorted(carried))
        made.append(Choice(name, tuple(needs), SUM))
    return tuple(made)


def broadcast_labels(shape: Sequence[int], result: Labels, sizes: Sequence[int]) -> Labels:
    """The labels of an operand that is broadcast to the result's shape, from the last dim on."""
    own = result[len(result) - len(shape) :]
    full = sizes[len(sizes) - len(shape) :]
    return tuple(label if n == whole and n > 1 else None for label, n, whole in zip(own, shape, full, strict=True))


def uneven_splits(
    choices: Sequence[Sequence[Choice]],
    layouts: Sequence[Layout],
    wanted: Layout | None,
    values: Sequence[Value],
) -> list[frozenset[tuple[int, int]]]:
    """For each operand and, last, the result: the splits (axis, dim) that do not divide and may be kept.

    A choice may split unevenly where an operand is split so already, or the result is asked for so.
    """
    kept: list[set[tuple[int, int]]] = [set() for _ in values]
    given = [*layouts, wanted]
    for axis, several in enumerate(choices):
        for choice in several:
            words = (*choice.needs, choice.gives)
            if choice.takes_uneven and any(
                layout is not None and layout[axis] is word and isinstance(word, Shard)
                for layout, word in zip(given, words, strict=True)
            ):
                for uneven, word in zip(kept, words, strict=True):
                    if isinstance(word, Shard):
                        uneven.add((axis, word.dim))
    for uneven, layout in zip(kept, given, strict=True):
        for axis, word in enumerate(layout or ()):
            if isinstance(word, Shard):
                uneven.add((axis, word.dim))
    return [
        frozenset((axis, dim) for axis, dim in uneven if value.shape[dim] % value.mesh[axis])
        for uneven, value in zip(kept, values, strict=True)
    ]


def without_partial_results(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Without those that leave contributions."""
    return tuple(choice for choice in choices if not isinstance(choice.gives, Partial))
