"""Placement propagation: the rules by which an op's operand placements give its result's, one mesh axis at a time.

A rule is asked once for each axis of the grid, with the words of the operands on that axis. It answers
the word of the result. Two cases never reach a rule: all operands Replicate gives Replicate, any
operand Local gives Local.

A replicated operand next to a sharded one counts as repeated for each device: a mask that fits every
shard of a batch leaves the result sharded. An answer of `Local` means that the results are not slices
of any one value; raising `UsesPartial` means that an addend was used as if it were the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from softmesh.errors import MeshError
from softmesh.placement.dim_labels import (
    EITHER,
    EVERY,
    FIRST,
    DimLabels,
    Labels,
    LabelsOf,
    Shapes,
    aligned,
    moved,
    named_dims,
    table,
    unlabelled,
    without_single,
    without_sums,
)
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard, placed

Dims = tuple[int, ...]
LINEAR_OPS = ("sum", "avg")  # contributions that a linear op may take one by one
IDEMPOTENT_OPS = ("avg", "max", "min")  # what all devices share is a contribution to itself


class Situation(NamedTuple):
    """One axis of one call. `words[i]` and `shapes[i]` belong to operand i; a scalar has neither."""

    words: tuple[Placement | None, ...]
    shapes: tuple[Dims | None, ...]
    out_shapes: tuple[Dims, ...]

    @property
    def word(self) -> Placement:
        """The word of the first operand."""
        assert self.words[0] is not None
        return self.words[0]

    @property
    def shape(self) -> Dims:
        assert self.shapes[0] is not None
        return self.shapes[0]

    @property
    def out_shape(self) -> Dims:
        return self.out_shapes[0]


Answer = Placement | Sequence[Placement]  # for all results, or for each


_Kind = TypeVar("_Kind", bound="Rule")


class Rule:
    """The placements of an op's results for those of its operands, and the labels of the dims that they follow from."""

    def __init__(self, answer: Callable[[Situation], Answer], labels: LabelsOf = unlabelled) -> None:
        self.answer, self._labels_of = answer, labels
        self.__module__, self.__qualname__ = answer.__module__, answer.__qualname__

    def __call__(self, at: Situation) -> Answer:
        return self.answer(at)

    def with_labels(self: _Kind, change: Callable[[LabelsOf], LabelsOf]) -> _Kind:
        """The same rule with other labels, made of its own."""
        return type(self)(self.answer, change(self._labels_of))

    def labels(self, shapes: Shapes, results: Sequence[Dims]) -> DimLabels:
        """Label the dims of a call of operands and results of these shapes."""
        return self._labels_of(shapes, results)


def _stated(at: Situation) -> Answer:
    raise AssertionError("an op's record has its rule")


STATED = Rule(_stated)


class SingleRule(Rule):
    """A rule that has one placement for all results."""

    answer: Callable[[Situation], Placement]

    def __call__(self, at: Situation) -> Placement:
        return self.answer(at)


def labelled(labels: LabelsOf) -> Callable[[Callable[[Situation], Placement]], SingleRule]:
    """Make a rule of a function that has one placement for all results."""
    return lambda answer: SingleRule(answer, labels)


class Pointwise(SingleRule):
    """The rule of an op whose elements come of the elements of the operands that they meet, and of nothing else."""


def pointwise(passes: str = "") -> Callable[[Callable[[Situation], Placement]], Pointwise]:
    """Make a rule of a function. Contributions pass from `every` operand, from the `first` one, or from `either`."""
    return lambda answer: Pointwise(answer, aligned(passes=passes))


def labelled_each(labels: LabelsOf) -> Callable[[Callable[[Situation], Answer]], Rule]:
    """Make a rule of a function that may have a placement for each result."""
    return lambda answer: Rule(answer, labels)


class UsesPartial(Exception):
    """Operand `index` is Partial, and the op is not linear in it.

    OWN_PRODUCT: a matmul's own product is a partial sum, and a bias was to be added on each device.
    `is_share`: it is right all the same where what each device adds is its share of the whole. `is_bias`: of one dim,
    as biases are, which programs divide beforehand; the result is a contribution then, as the operand was.
    """

    OWN_PRODUCT = -1

    def __init__(self, index: int, is_share: bool = False, is_bias: bool = False) -> None:
        super().__init__(index)
        self.index, self.is_share, self.is_bias = index, is_share, is_bias


def refuse_partial(at: Situation) -> None:
    """For an op that is linear in none of its operands."""
    for index, word in enumerate(at.words):
        if isinstance(word, Partial):
            raise UsesPartial(index)


def refuse_uneven(word: Shard, doing: str) -> None:
    """For an op that sums, multiplies or compares along a split dim."""
    if word.size is not None:
        raise MeshError(
            f"{doing} over dim {word.dim}, which is split unevenly ({word.size} elements): the zero filler of the "
            "last shard would take part. Pad the tensor to an even split, or gather it first."
        )


@placed("Split as the operands are, where their splits line up. A partial sum among them is an error.")
@pointwise()
def elementwise(at: Situation) -> Placement:
    """Shards that line up stay shards; a Partial is refused."""
    refuse_partial(at)
    return _lined_up(at)


def _lined_up(at: Situation) -> Placement:
    """The one dim of the result along which all sharded operands are split, if there is one."""
    out = at.out_shape
    rank = len(out)
    found: set[Shard] = set()
    for word, shape in zip(at.words, at.shapes, strict=True):
        if isinstance(word, Shard) and shape is not None:
            dim = word.dim + rank - len(shape)
            if shape[word.dim] != out[dim]:
                return LOCAL  # broadcast along its own split
            found.add(word.at(dim))
    if not found:
        return REPLICATE
    word = found.pop()
    return LOCAL if found or not _repeats_along(at, word.dim) else word


def _repeats_along(at: Situation, dim: int) -> bool:
    """Whether each operand meets `dim` of the result at full extent, or is broadcast along it."""
    out = at.out_shape
    back = len(out) - dim
    extents = [shape[-back] for shape in at.shapes if shape and back <= len(shape)]
    return all(n in (1, out[dim]) for n in extents)


@placed("Placed as the operand is; a partial sum stays one.")
@pointwise(FIRST)
def keeping(at: Situation) -> Placement:
    """As elementwise, for an op that leaves its one operand's values as they are: any word stays."""
    return at.word if isinstance(at.word, Partial) else _lined_up(at)


@placed("Placed as the operand is; a partial sum stays one.")
@pointwise(FIRST)
def linear(at: Situation) -> Placement:
    """As elementwise, for an op that is linear in its one operand: addends stay addends."""
    if isinstance(at.word, Partial) and at.word.op in LINEAR_OPS:
        return at.word
    return elementwise(at)


@placed("Split as the operands are, where their splits line up. Two partial sums give a partial sum.")
@pointwise(EVERY)
def additive(at: Situation) -> Placement:
    """a + b: sums of addends are addends; an average also takes what all devices share."""
    partials = {word for word in at.words if isinstance(word, Partial)}
    if not partials:
        return _lined_up(at)
    op = next(iter(partials)).op
    others = [word for word in at.words if not isinstance(word, Partial)]
    if len(partials) == 1 and op == "sum" and not others:
        return Partial("sum")
    is_shared = all(word in (None, REPLICATE) for word in others)
    if len(partials) == 1 and op == "avg" and is_shared:
        return Partial("avg")
    is_sum = len(partials) == 1 and op == "sum"
    if is_sum and all(_is_stacked(word, shape, at.out_shape) for word, shape in zip(at.words, at.shapes, strict=True)):
        return LOCAL
    added = [shape for word, shape in zip(at.words, at.shapes, strict=True) if word is REPLICATE]
    is_bias = is_shared and is_sum and bool(added) and all(map(_is_vector, added))
    return _first_partial(at, is_shared and is_sum, is_bias)


def _is_vector(shape: Dims | None) -> bool:
    return shape is not None and sum(n > 1 for n in shape) <= 1


def _is_stacked(word: Placement | None, shape: Dims | None, out_shape: Dims) -> bool:
    """Whether each device has something of its own to add: one row of what was stacked, for all rows of the result."""
    if isinstance(word, Partial):
        return True
    if not isinstance(word, Shard) or shape is None or shape[word.dim] != 1:
        return False
    return _is_vector(shape) or out_shape[word.dim - len(shape)] != 1  # a bias, such as b, 0, 0, 0; or a row for all


def _first_partial(at: Situation, is_share: bool = False, is_bias: bool = False) -> Placement:
    raise UsesPartial(next(i for i, word in enumerate(at.words) if isinstance(word, Partial)), is_share, is_bias)


@placed("Split as the operands are, where their splits line up. A partial sum times what all devices share stays one.")
@pointwise(EITHER)
def multiplicative(at: Situation) -> Placement:
    """a * b: an addend times what all devices share is an addend."""
    partials = [word for word in at.words if isinstance(word, Partial)]
    if not partials:
        return _lined_up(at)
    others = [word for word in at.words if not isinstance(word, Partial)]
    is_linear = partials[0].op in LINEAR_OPS and all(word in (None, REPLICATE) for word in others)
    return partials[0] if len(partials) == 1 and is_linear else _first_partial(at)


@placed("Split as the operands are, where their splits line up. A partial sum over what all devices share stays one.")
@pointwise(FIRST)
def dividing(at: Situation) -> Placement:
    """a / b is linear in a only."""
    if isinstance(at.words[1], Partial):
        raise UsesPartial(1)
    return multiplicative(at)


@placed("Split as the operands are, where their splits line up. A partial sum over what all devices share stays one.")
@pointwise()
def scaling(at: Situation) -> Placement:
    """f(a) * b is linear in b only."""
    if isinstance(at.words[0], Partial):
        raise UsesPartial(0)
    return multiplicative(at)


@placed("Split as the operand is. Split along the dim it works on, it is Local: each device sees its own part only.")
def within(*dims: int) -> SingleRule:
    """An op that mixes values along `dims` (softmax, norms, top-k): split there, nothing global is left."""

    @labelled(aligned(without=dims))
    def rule(at: Situation) -> Placement:
        word = elementwise(at)
        mixed = {dim % len(at.out_shape) for dim in dims}
        return LOCAL if isinstance(word, Shard) and word.dim in mixed else word

    return rule


def _reduced_labels(op: str | None, dims: Sequence[int], keepdim: bool) -> LabelsOf:
    def labels(shapes: Shapes, results: Sequence[Dims]) -> DimLabels:
        rank = len(shapes[0] or ())
        over = {dim % rank for dim in dims}
        kept = [dim for dim in range(rank) if dim not in over]
        to = {dim: dim if keepdim else at for at, dim in enumerate(kept)}
        sums = {} if op is None else dict.fromkeys(over, op)
        return moved(to.get, sums=sums, passes=FIRST if op in LINEAR_OPS else "")(shapes, results)

    return labels


@placed("A reduction over a split dim leaves Partial contributions, to be combined by a collective; other splits stay.")
def reducing(op: str | None, dims: Sequence[int], keepdim: bool) -> SingleRule:
    """A reduction over `dims`; over a split dim it leaves contributions, combined by `op` (None: by nothing)."""

    @labelled(_reduced_labels(op, dims, keepdim))
    def rule(at: Situation) -> Placement:
        word = at.word
        if isinstance(word, Partial):
            if word.op == op or (op in LINEAR_OPS and word.op in LINEAR_OPS):
                return word
            raise UsesPartial(0)
        assert isinstance(word, Shard)
        rank = len(at.shape)
        reduced = {dim % rank for dim in dims}
        if word.dim in reduced:
            refuse_uneven(word, "a reduction")
            return LOCAL if op is None else Partial(op)
        return word if keepdim else word.at(word.dim - sum(dim < word.dim for dim in reduced))

    return rule


def _reshaped_labels(shapes: Shapes, results: Sequence[Dims]) -> DimLabels:
    """Label the dims that start at the elements at which a dim of the new shape starts."""
    (shape,), (made, *_) = shapes, results
    words = ((dim, reshaping(Situation((Shard(dim),), (shape,), (made,)))) for dim in range(len(shape or ())))
    return moved({dim: word.dim for dim, word in words if isinstance(word, Shard)}.get)(shapes, results)


@placed("A split dim stays split where the new shape starts a dim at the same elements; otherwise it is Local.")
@labelled(_reshaped_labels)
def reshaping(at: Situation) -> Placement:
    """A split dim survives where it starts a run of elements that the new shape also starts."""
    word = at.word
    if not isinstance(word, Shard):
        return word
    before = math.prod(at.shape[: word.dim])
    starts = [d for d in range(len(at.out_shape)) if math.prod(at.out_shape[:d]) == before]
    if word.size is not None:  # uneven: the dim itself must come through whole
        starts = [d for d in starts if at.out_shape[d] == at.shape[word.dim]]
    if not starts:
        return LOCAL
    extent = at.shape[word.dim]
    best = min(starts, key=lambda d: (at.out_shape[d] != extent, at.out_shape[d] == 1, d))
    return word.at(best)


@placed("Split in the place to which the split dim goes.")
def permuting(order: Sequence[int]) -> SingleRule:
    @labelled(moved({dim: at for at, dim in enumerate(order)}.get))
    def rule(at: Situation) -> Placement:
        return at.word.at(list(order).index(at.word.dim)) if isinstance(at.word, Shard) else at.word

    return rule


@placed("Splits of dims that it leaves alone stay; split along a dim that it cuts or extends, it is Local.")
def resizing(dims: Sequence[int], shift: int = 0) -> SingleRule:
    """An op that cuts, pads, repeats or joins along `dims` and leaves the others alone.

    `shift` is added to the others' positions (dims added or dropped in front).
    """
    touched = set(dims)

    @labelled(moved(lambda dim: None if dim in touched else dim + shift, of_all=True))
    def rule(at: Situation) -> Placement:
        words = {word for word in at.words if word is not None and word is not REPLICATE}
        if len(words) > 1:
            refuse_partial(at)
            return LOCAL
        word = words.pop()
        if isinstance(word, Partial):
            shared = REPLICATE in at.words
            return _first_partial(at) if shared and word.op not in IDEMPOTENT_OPS else word
        assert isinstance(word, Shard)
        return LOCAL if word.dim in touched else word.at(word.dim + shift)

    return rule


@placed("Split as the operand is: each element is repeated where it stands.")
def repeating_each(dims: Sequence[int]) -> SingleRule:
    """An op that makes several of each element along `dims`, side by side."""
    touched = set(dims)

    @labelled(moved(lambda dim: dim))
    def rule(at: Situation) -> Placement:
        word = at.word
        is_uneven = isinstance(word, Shard) and word.size is not None and word.dim in touched
        return LOCAL if is_uneven else word

    return rule


def _product_labels(shapes: Shapes, results: Sequence[Dims]) -> DimLabels:
    """Label rows, columns and batches as the product has them, and the inner dim, over which contributions add up."""
    (a, b, *more), made = shapes, results[0]
    names = named_dims(made)
    own: list[Labels | None] = []
    for shape, inner in ((a, -1), (b, -2)):
        assert shape is not None
        words = list(aligned()((shape,), results).operands[0] or ())
        if len(words) >= -inner:
            words[inner] = "inner" if shape[inner] > 1 else None
        own.append(tuple(words))
    others = tuple(None if shape is None else aligned()((shape,), results).operands[0] for shape in more)
    bias = frozenset({2}) if any(shape is not None for shape in more) else frozenset()
    return DimLabels((*own, *others), names, {"inner": "sum"}, (frozenset({0}), frozenset({1})), bias)


@placed(
    "Rows split give rows split, columns split give columns split; the inner dim split in both gives a Partial sum."
)
@labelled(_product_labels)
def matmul(at: Situation) -> Placement:
    """a (..., M, K) @ b (..., K, N), with an optional bias as third operand."""
    product = _product_word(at)
    bias = at.words[2] if len(at.words) > 2 else None
    if bias is None:
        return product
    if isinstance(product, Partial):  # a shared bias would be added once for each device
        is_own = isinstance(bias, Shard) and product.op == "sum"  # a contribution of each device, such as b, 0, 0, 0
        if bias is product or is_own or (bias is REPLICATE and product.op == "avg"):
            return product
        is_share = bias is REPLICATE and product.op == "sum"
        index = 2 if isinstance(bias, Partial) else UsesPartial.OWN_PRODUCT
        raise UsesPartial(index, is_share, is_share and _is_vector(at.shapes[2]))
    if isinstance(bias, Partial):
        raise UsesPartial(2)
    if product is LOCAL:
        return LOCAL
    return _lined_up(Situation((product, bias), (at.out_shape, at.shapes[2]), at.out_shapes))


def _product_word(at: Situation) -> Placement:
    a, b = at.words[0], at.words[1]
    for index, (this, other) in enumerate(((a, b), (b, a))):
        if isinstance(this, Partial):
            if other is REPLICATE and this.op in LINEAR_OPS:
                return this
            raise UsesPartial(index)
    shards = [
        (word, shape, inner)
        for word, shape, inner in zip((a, b), at.shapes, (-1, -2), strict=False)
        if isinstance(word, Shard) and shape is not None
    ]
    summed = [word for word, shape, inner in shards if word.dim == len(shape) + inner]
    if len(summed) == 2:
        for word in summed:
            refuse_uneven(word, "matmul")
        return Partial("sum")
    found = {LOCAL if summed else _product_split(word, shape, at.out_shape) for word, shape, _ in shards}
    if not found:
        return REPLICATE
    return found.pop() if len(found) == 1 else LOCAL


def _product_split(word: Shard, shape: Dims, out_shape: Dims) -> Placement:
    """The split of the product that a split of one factor makes; Local where that is broadcast along it."""
    dim = word.dim + len(out_shape) - len(shape)
    return word.at(dim) if shape[word.dim] == out_shape[dim] else LOCAL


def of_whole(rule: Rule) -> Rule:
    """The rule, for a result that a further, not linear step is made of: it must not be a partial sum."""

    @labelled_each(without_sums(rule.labels))
    def whole(at: Situation) -> Placement | Sequence[Placement]:
        try:
            word = rule(at)
        except UsesPartial as use:
            raise UsesPartial(use.index) from None  # shares of the sum are none of what is made of it
        if isinstance(word, Partial):
            raise UsesPartial(UsesPartial.OWN_PRODUCT)
        return word

    return whole


@placed("Of operands that are the same on all devices, the same on all; of split ones, Local.")
@labelled(unlabelled)
def opaque(at: Situation) -> Placement:
    """Nothing is known of how the result relates to split operands."""
    refuse_partial(at)
    return LOCAL


@placed("Split where the operands are, dim by dim as their shapes belong together; any other split gives Local.")
def along(dims: Mapping[int, Sequence[tuple[int, int | None]]]) -> SingleRule:
    """A table for ops with a fixed shape contract.

    `dims[o]` lists for dim o of each output the pairs (operand, dim): a shard of that operand's dim splits
    the output's. Every other split is Local. Sharded operands must agree.
    """

    @labelled(table(dims))
    def rule(at: Situation) -> Placement:
        refuse_partial(at)
        found: set[Placement] = set()
        for index, word in enumerate(at.words):
            if isinstance(word, Shard):
                target = [o for o, pairs in dims.items() if (index, word.dim) in pairs]
                found.add(word.at(target[0]) if target else LOCAL)
        return found.pop() if len(found) == 1 else LOCAL

    return rule


def by_labels(labels_of: LabelsOf) -> SingleRule:
    """An op that works alike along each label: split there, a device makes its part of the result, or of a sum."""

    @placed(
        "Split as the operands are along dims that it keeps; a split dim that it adds up over leaves a Partial sum."
    )
    @labelled(without_single(labels_of))
    def rule(at: Situation) -> Placement:
        dims = labels_of(at.shapes, at.out_shapes)
        partials = [index for index, word in enumerate(at.words) if isinstance(word, Partial)]
        if partials:
            return _passing(at, partials, dims)
        split = {
            (own[word.dim], shape[word.dim], word)
            for word, own, shape in zip(at.words, dims.operands, at.shapes, strict=True)
            if isinstance(word, Shard) and own is not None and shape is not None
        }
        label, extent, word = next(iter(split))
        if label is None or any(other[:2] != (label, extent) for other in split):
            return LOCAL
        if label in dims.result:
            to = dims.result.index(label)
            return word.at(to) if at.out_shape[to] == extent else LOCAL  # it may be broadcast along its own split
        refuse_uneven(word, "a sum")
        having = [other for other, own in zip(at.words, dims.operands, strict=True) if label in (own or ())]
        return Partial(dims.sums[label]) if all(isinstance(other, Shard) for other in having) else LOCAL

    return rule


def _passing(at: Situation, partials: Sequence[int], dims: DimLabels) -> Placement:
    """The contribution that comes of contributions, beside operands that all devices share."""
    word = at.words[partials[0]]
    assert isinstance(word, Partial)
    others = {other for index, other in enumerate(at.words) if index not in partials}
    if frozenset(partials) in dims.passes and word.op in LINEAR_OPS and others <= {None, REPLICATE}:
        return word
    raise UsesPartial(partials[0])


def among(at: Situation, operands: Sequence[int], rule: SingleRule) -> Placement:
    """The word of one of several results, which comes of some of the operands only."""
    own = with_operands(at, operands)
    if all(word is None or word is REPLICATE for word in own.words):
        return REPLICATE
    return rule(own)


def with_operands(at: Situation, operands: Sequence[int]) -> Situation:
    """As of these operands only."""
    return Situation(tuple(at.words[i] for i in operands), tuple(at.shapes[i] for i in operands), at.out_shapes)
