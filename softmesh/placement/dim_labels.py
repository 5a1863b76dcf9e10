"""Labels of an op's dims: equal labels are one dim, along which the devices of a mesh axis can share the work.

A matrix product has the labels "m k, k n -> m n". Split along m or n, devices work apart; split along k, which the
result does not have, each makes a contribution to a sum. Dims without a label cannot be split: what an op normalises,
sorts or cuts belongs to one device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

Extents = tuple[int, ...]
Labels = tuple[str | None, ...]
Shapes = Sequence[Extents | None]  # of the operands; None for a number
EVERY, FIRST, EITHER = "every", "first", "either"
_NOTHING: Mapping[str, str] = MappingProxyType({})


class DimLabels(NamedTuple):
    """The labels of one call. Every result has the labels of `result`.

    `sums` has the labels that no result has, and how contributions over each of them combine. `passes` are the sets of
    operands whose contributions, taken together, give contributions to the result. `terms` are added to it: they must
    be contributions where it is one. The values of `unread` operands do not matter.
    """

    operands: tuple[Labels | None, ...]
    result: Labels
    sums: Mapping[str, str] = _NOTHING
    passes: tuple[frozenset[int], ...] = ()
    terms: frozenset[int] = frozenset()
    unread: frozenset[int] = frozenset()


LabelsOf = Callable[[Shapes, Sequence[Extents]], DimLabels]


def unlabelled(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
    """Return no label at all: only one device can do the work."""
    return DimLabels(tuple(None if shape is None else (None,) * len(shape) for shape in shapes), ())


def aligned(*, without: Sequence[int] = (), passes: str = "") -> LabelsOf:
    """Label operands that are broadcast to the result, from the last dim on, but not the dims `without`.

    Contributions pass from `every` operand together, from the `first` alone, or from `either` of them.
    """

    def labels(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
        full = results[0]
        left_out = {dim % len(full) for dim in without} if full else set()
        names = named_dims(full, left_out)
        own = tuple(None if shape is None else _broadcast(shape, names, full) for shape in shapes)
        return DimLabels(own, names, passes=_passing(passes, shapes))

    return labels


def named_dims(shape: Extents, without: Iterable[int] = ()) -> Labels:
    """Name each dim after its place, but those of one element and those `without` a label."""
    left_out = set(without)
    return tuple(None if dim in left_out or n == 1 else f"dim {dim}" for dim, n in enumerate(shape))


def _broadcast(shape: Extents, names: Labels, full: Extents) -> Labels:
    if len(shape) > len(full):
        return (None,) * len(shape)
    own = zip(names[len(names) - len(shape) :], shape, full[len(full) - len(shape) :], strict=True)
    return tuple(name if n == whole else None for name, n, whole in own)


def _passing(how: str, shapes: Shapes) -> tuple[frozenset[int], ...]:
    tensors = [at for at, shape in enumerate(shapes) if shape is not None]
    if how == EITHER:
        return tuple(frozenset({at}) for at in tensors)
    if how == EVERY:
        return (frozenset(tensors),) if len(tensors) == len(shapes) else ()
    return (frozenset({0}),) if how == FIRST and 0 in tensors else ()


def moved(
    to: Callable[[int], int | None],
    *,
    sums: Mapping[int, str] = MappingProxyType({}),
    passes: str | None = None,
    of_all: bool = False,
    is_read: bool = True,
) -> LabelsOf:
    """Label the first operand: its dim d becomes dim `to(d)` of the results, or is combined by `sums[d]`.

    `of_all`: the other operands have the same dims. `is_read`: the first one's values matter.
    """
    passing = passes if passes is not None else EVERY if of_all else FIRST

    def labels(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
        shape = shapes[0] or ()
        result: list[str | None] = [None] * len(results[0])
        own: Labels = tuple(_move(dim, n, to, sums, result) for dim, n in enumerate(shape))
        others = tuple(
            None if other is None else own if of_all and len(other) == len(shape) else (None,) * len(other)
            for other in shapes[1:]
        )
        combined = {f"dim {dim}": op for dim, op in sums.items() if own[dim] is not None}
        unread = frozenset() if is_read else frozenset({0})
        return DimLabels((own, *others), tuple(result), combined, _passing(passing, shapes), unread=unread)

    return labels


def _move(
    dim: int, extent: int, to: Callable[[int], int | None], sums: Mapping[int, str], result: list[str | None]
) -> str | None:
    at, name = to(dim), f"dim {dim}"
    if extent == 1 or (at is None and dim not in sums):
        return None
    if at is not None and dim not in sums:
        result[at] = name
    return name


def without_sums(labels_of: LabelsOf) -> LabelsOf:
    """Label as another rule, but nothing that leaves contributions."""

    def labels(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
        return labels_of(shapes, results)._replace(sums=_NOTHING, passes=())

    return labels


def without_label(dims: DimLabels, label: str | None) -> DimLabels:
    """Drop a label everywhere."""
    own = (None if labels is None else _dropped(labels, label) for labels in dims.operands)
    return dims._replace(operands=tuple(own), result=_dropped(dims.result, label))


def _dropped(labels: Labels, label: str | None) -> Labels:
    return tuple(None if one == label else one for one in labels)


def whole(labels_of: LabelsOf, dims: Sequence[tuple[int, int]]) -> LabelsOf:
    """Label as another rule, but these dims (operand, dim) stay whole: other operands count their elements."""

    def labels(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
        found = labels_of(shapes, results)
        kept = (
            None if own is None else tuple(None if (at, dim) in dims else label for dim, label in enumerate(own))
            for at, own in enumerate(found.operands)
        )
        return found._replace(operands=tuple(kept))

    return labels


def without_passes(labels_of: LabelsOf) -> LabelsOf:
    """Label as another rule, but contributions do not pass."""
    return lambda shapes, results: labels_of(shapes, results)._replace(passes=())


def with_sum(labels_of: LabelsOf, dims: Sequence[tuple[int, int]]) -> LabelsOf:
    """Label as another rule, and the dims (operand, dim) over which the op adds up."""

    def labels(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
        found = labels_of(shapes, results)
        own = list(found.operands)
        for operand, dim in dims:
            words = own[operand] or ()
            own[operand] = (*words[:dim], "inner", *words[dim + 1 :])
        return found._replace(operands=tuple(own), sums={"inner": "sum"})

    return labels


def reordered(labels_of: LabelsOf, order: Sequence[int]) -> LabelsOf:
    """Label as another rule that has the operands in this order."""

    def labels(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
        found = labels_of([shapes[at] for at in order], results)
        passes, terms = ([frozenset(order[at] for at in one) for one in (*found.passes, found.terms)],) * 2
        return found._replace(
            operands=tuple(found.operands[order.index(at)] for at in range(len(order))),
            passes=tuple(passes[:-1]),
            terms=terms[-1],
        )

    return labels


def table(dims: Mapping[int, Sequence[tuple[int, int | None]]], *, passes: Sequence[Sequence[int]] = ()) -> LabelsOf:
    """Label by pairs: `dims[o]` has for dim o of the results the dims (operand, dim) that run along it."""

    def labels(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
        own: list[list[str | None] | None] = [None if shape is None else [None] * len(shape) for shape in shapes]
        result: list[str | None] = [None] * len(results[0])
        for to, pairs in dims.items():
            _label_pairs(own, shapes, result, to, pairs)
        labelled = tuple(None if one is None else tuple(one) for one in own)
        return DimLabels(labelled, tuple(result), passes=tuple(map(frozenset, passes)))

    return labels


def _label_pairs(
    own: Sequence[list[str | None] | None],
    shapes: Shapes,
    result: list[str | None],
    to: int,
    pairs: Sequence[tuple[int, int | None]],
) -> None:
    name = f"dim {to % len(result)}"
    for operand, dim in pairs:
        labels, shape = (own[operand], shapes[operand]) if operand < len(own) else (None, None)
        if labels is not None and shape is not None and dim is not None and shape[dim] > 1:
            labels[dim] = result[to] = name


def spelled(text: str, *, passes: Sequence[Sequence[int]] = (), sums: str = "sum") -> LabelsOf:
    """Label by a text, "m k, k n -> m n", from the last dims on; `_` is a dim without a label, `*rows` several.

    A label that the result does not have is combined by `sums`.
    """
    given, _, made = text.partition("->")
    operands, words_of_result = [_words(one) for one in given.split(",")], _words(made)

    def labels(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
        own = tuple(
            None if shape is None else _fitted(words, len(shape))
            for words, shape in zip((*operands, *((),) * len(shapes)), shapes, strict=False)
        )
        result = _fitted(words_of_result, len(results[0]))
        over = {label: sums for one in own for label in one or () if label is not None and label not in result}
        return DimLabels(own, result, over, tuple(map(frozenset, passes)))

    return labels


def without_single(labels_of: LabelsOf) -> LabelsOf:
    """Label as another rule, but no dims of one element, which are broadcast."""

    def labels(shapes: Shapes, results: Sequence[Extents]) -> DimLabels:
        found = labels_of(shapes, results)
        own = tuple(
            None if labels is None else _of_several(labels, shape or ())
            for labels, shape in zip(found.operands, shapes, strict=True)
        )
        left = {label for labels in own for label in labels or ()}
        sums = {label: op for label, op in found.sums.items() if label in left}
        return found._replace(operands=own, result=_of_several(found.result, results[0]), sums=sums)

    return labels


def _of_several(labels: Labels, shape: Extents) -> Labels:
    return tuple(None if n == 1 else label for label, n in zip(labels, shape, strict=True))


def _words(text: str) -> Labels:
    return tuple(None if word == "_" else word for word in text.split())


def _fitted(words: Labels, rank: int) -> Labels:
    if words and words[0] is not None and words[0].startswith("*"):  # any number of dims, named from the last one on
        others = max(rank - len(words) + 1, 0)
        words = (*(f"{words[0]} {dim - others}" for dim in range(others)), *words[1:])
    missing = rank - len(words)
    return (None,) * missing + words if missing >= 0 else words[-missing:]
