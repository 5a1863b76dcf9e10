"""Looks for the likely cause of a wrong value, by trying explanations on it until one fits.

The first questions are about the call itself (placements of its inputs, arguments, what it reads), the later ones
about the numbers (a multiple, shifted, transposed, in another order).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice

import torch

from softmesh.diff.alignment import same_op
from softmesh.diff.assembly import measured, whole_of, whole_shape
from softmesh.diff.causes_by_value import multiple, offset, other_argument, reordered, transposed
from softmesh.diff.entries import Entry
from softmesh.diff.explained_case import CLOSE, Case, Finding
from softmesh.diff.gradient_causes import is_of_training, ratio_of, training_cause
from softmesh.diff.judged import Expected, Judged
from softmesh.diff.judgement import Judgement
from softmesh.diff.piece_reads import unread_text
from softmesh.diff.recording import READS
from softmesh.diff.result import Cause
from softmesh.diff.tolerances import unit
from softmesh.kinds import Kind
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.train.equivalence.values import Value, whole


def explained(judgement: Judgement, judged: Judged) -> Finding:
    case = Case(judgement, judged)
    for explanation in _EXPLANATIONS:
        found = explanation(case)
        if found is not None:
            return found
    return Finding(Cause.UNKNOWN, "what it reads agrees with the reference, and what it makes of it does not.")


# -- about the call ----------------------------------------------------------------------------------


def _undefined(case: Case) -> Finding | None:
    if case.value is None or not case.value.data.is_floating_point():
        return None
    is_wild = not bool(case.value.data.isfinite().all())
    if not is_wild or (case.expected is not None and not bool(case.expected.isfinite().all())):
        return None
    return Finding(Cause.UNDEFINED, "it holds NaN or infinite values, and the reference's are finite.")


def _copies_for_shares(case: Case) -> Finding | None:
    found = unread_text(case.judged) if case.entry.name in READS else ""
    return Finding(Cause.OTHER_INPUT, found) if found else None


def _coarse(case: Case) -> Finding | None:
    judged = case.judged
    if judged.expected is None or judged.measure is None:
        return None
    ours, theirs = case.entry.outputs[judged.output].dtype, judged.expected.stored.dtype
    if not unit(ours) > 2 * unit(theirs) > 0 or judged.severity > 2 * unit(ours):
        return None
    return Finding(
        Cause.LOST_PRECISION, f"its result is {short(ours)} where the reference's is {short(theirs)}: rounding to it."
    )


def _other_op(case: Case) -> Finding | None:
    """Stands in for another op of the reference, or for none."""
    entry, partner = case.entry, case.partner
    if entry.sends or not entry.inputs or is_of_training(entry) or entry.name in READS or case.judged.expected is None:
        return None
    if partner is None:
        return Finding(
            Cause.OTHER_PROGRAM,
            f"the reference does not run it: it goes on with what this {entry.name} reads.",
        )
    if same_op(entry, partner):
        return None
    return Finding(
        Cause.OTHER_PROGRAM, f"it is {entry.name} where the reference runs {partner.name} ({partner.site}) on the same."
    )


def _wrong_collective(case: Case) -> Finding | None:
    """Moves data along an axis or a dim that its input is not split along."""
    entry = case.entry
    if not (entry.sends or entry.kind is Kind.PARTITION) or not case.words:
        return None
    words, grid = case.words[0], entry.inputs[0].dist.grid
    axis = entry.arguments.get("cluster_axis")
    own = words[axis] if isinstance(axis, int) and axis < len(words) else None
    others = [(at, word) for at, word in enumerate(words) if word is not REPLICATE and at != axis and grid[at] > 1]
    found = None
    if entry.kind is not None and entry.kind.is_sum and isinstance(axis, int) and own is not None:
        found = _wrong_sum(axis, own, grid, others)
    if entry.kind is Kind.PARTITION and isinstance(axis, int) and isinstance(own, Shard | Partial):
        return Finding(
            Cause.WRONG_AXIS,
            f"each device along mesh axis {axis} keeps a slice of a piece that it has already ({own!r}).",
        )
    if found is None and entry.kind is Kind.ALL_GATHER:
        found = _wrong_gather(case, axis, own, others)
    return found


def _wrong_sum(
    axis: int, own: Placement, grid: Sequence[int], others: Sequence[tuple[int, Placement]]
) -> Finding | None:
    partial = next((at for at, word in others if isinstance(word, Partial)), None)
    if not isinstance(own, Partial) and partial is not None:
        return Finding(
            Cause.WRONG_AXIS,
            f"it adds up along mesh axis {axis} ({own!r}), and the partial sums lie along axis {partial}.",
        )
    if own is REPLICATE and grid[axis] > 1:
        return Finding(
            Cause.DOUBLE_REDUCE,
            f"it adds up {grid[axis]} equal values: devices along mesh axis {axis} hold the whole already.",
        )
    if isinstance(own, Shard) and grid[axis] > 1:
        told = f"what devices along mesh axis {axis} hold are slices of dim {own.dim}, and no contributions to one sum"
        if others:
            return Finding(Cause.WRONG_AXIS, f"{told}.")
        return Finding(Cause.DOUBLE_REDUCE, f"{told}: it was added up before.")
    return None


def _wrong_gather(
    case: Case, axis: object, own: Placement | None, others: Sequence[tuple[int, Placement]]
) -> Finding | None:
    entry, dim = case.entry, case.entry.arguments.get("dim")
    split = own if isinstance(own, Shard) else next((word for _, word in others if isinstance(word, Shard)), None)
    if not isinstance(dim, int) or not isinstance(split, Shard):
        return None
    rank = len(entry.inputs[0].shape) - entry.inputs[0].dist.lead
    if own is not split:
        return Finding(
            Cause.WRONG_AXIS,
            f"it gathers along mesh axis {axis}, and its input is split along another: {_words(case.words[0])}.",
        )
    elsewhere = next((at for at, word in others if isinstance(word, Shard) and word.dim % rank == dim % rank), None)
    if dim % rank != split.dim % rank and elsewhere is not None:
        return Finding(
            Cause.WRONG_AXIS,
            f"it gathers dim {dim % rank} along mesh axis {axis}, and that dim is split along axis {elsewhere}: "
            f"{_words(case.words[0])}.",
        )
    if dim % rank != split.dim % rank:
        return Finding(
            Cause.WRONG_DIM, f"it gathers along dim {dim % rank}, and its input is split along dim {split.dim}."
        )
    return None


def _partial(case: Case) -> Finding | None:
    found = case.input_axes(Partial)
    if not found:
        return None
    axis = found[0][0]
    maker = _maker(case, lambda words: axis < len(words) and isinstance(words[axis], Partial))
    return Finding(
        Cause.PARTIAL_SUM,
        f"{maker} leaves a partial sum along mesh axis {axis}, and {case.entry.name} takes it for the whole: "
        f"an all_reduce or reduce_scatter along axis {axis} is missing between the two.",
    )


def _shard_only(case: Case) -> Finding | None:
    found = case.input_axes(Shard)
    if not found:
        return None
    if case.partner is not None and case.partner.name == case.entry.name:
        other = _other_input(case) or other_argument(case)
        if other is not None:
            return other
    axis, word = found[0]
    assert isinstance(word, Shard)
    return Finding(
        Cause.SHARD_ONLY,
        f"each device has its slice of dim {word.dim} only (mesh axis {axis}), and {case.entry.name} works on it as if "
        "it were all: gather first, or combine what the devices find.",
    )


def _other_input(case: Case) -> Finding | None:
    partner, judgement = case.partner, case.judgement
    if partner is None or not case.entry.inputs or not partner.inputs:
        return None
    if len(partner.inputs) != len(case.entry.inputs) and partner.name == case.entry.name:
        ours, theirs = len(case.entry.inputs), len(partner.inputs)
        return Finding(
            Cause.OTHER_INPUT,
            f"it reads {ours} tensor{'s' * (ours > 1)} where the reference reads {theirs}: a weight, bias or mask is "
            f"{'missing' if ours < theirs else 'one too many'}.",
        )
    count = len(partner.inputs) if partner.name == case.entry.name else 1  # the others stand in another order
    for at, (mine, yours) in enumerate(zip(case.entry.inputs[:count], partner.inputs, strict=False)):
        side = judgement.sides.laid(mine, Expected(judgement.theirs.store.values[yours.value], partner))
        if side is None:
            continue
        off = measured(side.value, side.expected, None)
        if off is None or off.severity > min(max(4 * case.judged.band, 1e-5), CLOSE, 2 * case.room):
            found = _read_instead(judgement, at, mine.value, yours.value)
            if found is not None:
                return found
    return None


def _read_instead(judgement: Judgement, at: int, mine: int, yours: int) -> Finding | None:
    """Which results it and the reference read, by the numbers of the values, where those are known and not the same."""
    known = judgement.expected.get(mine)
    others = [one for one in judgement.theirs.entries if one.name not in READS]
    makers = {value.number: one for one in others for value in one.outputs}
    wanted = makers.get(yours)
    is_same = known is not None and known.stored.number == yours
    if is_same or (known is None and wanted is None):
        return None
    instead = "a tensor" if known is None else f"the result of {_which(known.entry, others)}"
    place = "another one" if wanted is None else f"that of {_which(wanted, others)}"
    is_cache = wanted is not None and wanted.kind is Kind.CACHE
    cause = Cause.STALE_CACHE if is_cache else Cause.OTHER_INPUT
    return Finding(cause, f"input {at} is {instead}, and the reference reads {place}.")


def _which(entry: Entry, among: Sequence[Entry]) -> str:
    """Name an op by its line, the line that called its function, and its number where it ran there several times."""
    calls = [one for one in among if (one.name, one.site, one.callers) == (entry.name, entry.site, entry.callers)]
    others = (one for one in entry.callers if (one.file, one.line) != (entry.site.file, entry.site.line))
    caller = "".join(f" from {one}" for one in islice(others, 1))
    number = f", call {calls.index(entry) + 1} of {len(calls)}" if len(calls) > 1 and entry in calls else ""
    return f"{entry.name} ({entry.site}{caller}{number})"


def _bias(case: Case) -> Finding | None:
    """A whole tensor added to every contribution of a sum."""
    if case.value is None or case.expected is None or not case.value.data.is_floating_point():
        return None
    axes = [axis for axis, word in enumerate(case.made) if isinstance(word, Partial) or word is LOCAL]
    words = tuple(Partial("sum") if word is LOCAL else word for word in case.made)
    if len(words) != case.value.dist.lead:
        return None
    found = whole("a sum", Value(case.value.data, case.value.dist.with_placements(words)))
    devices = math.prod(case.grid[axis] for axis in axes)
    if devices < 2:
        return None
    for at, operand in enumerate(case.entry.inputs):
        if at and _is_replicated(operand.dist.placements, axes):
            bias = whole_of(case.judgement.mine, operand)
            if bias is None or not _broadcasts(bias, found):
                continue
            if case.same(found - (devices - 1) * bias) or case.same(found - devices * bias):
                return _added_often(at, devices)
    return None


def _is_replicated(words: Sequence[Placement], axes: Sequence[int]) -> bool:
    return all(words[axis] is REPLICATE for axis in axes if axis < len(words))


def _bias_of_contributions(case: Case) -> Finding | None:
    """By placements alone, where there is nothing to compare with: partial sums with a whole third input."""
    if case.expected is not None or len(case.entry.inputs) < 3:
        return None
    axes = {axis for words in case.words[:2] for axis, word in enumerate(words) if isinstance(word, Shard)}
    axes = {axis for axis in axes if axis < len(case.made) and case.made[axis] is LOCAL}
    third = case.words[2]
    if axes and all(axis < len(third) and third[axis] is REPLICATE for axis in axes):
        return _added_often(2, math.prod(case.grid[axis] for axis in axes))
    return None


def _added_often(at: int, devices: int) -> Finding:
    return Finding(
        Cause.DOUBLE_REDUCE,
        f"input {at} is whole on every device and is added {devices} times, once to each partial sum: add it after the "
        "reduction, or on one device.",
    )


def _broadcasts(small: torch.Tensor, large: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(small.shape, large.shape) == large.shape
    except RuntimeError:
        return False


def _of_training(case: Case) -> Finding | None:
    if not is_of_training(case.entry):
        return None
    found, expected = case.found, case.expected
    ratio = None if found is None or expected is None else ratio_of(found, expected)
    return Finding(*training_cause(case.entry, ratio))


# -- about the programs ------------------------------------------------------------------------------


def _read_in_place(case: Case) -> Finding | None:
    """Reads a value that no op before it explains: another of the reference's, or what a replay left."""
    entry, judgement = case.entry, case.judgement
    if entry.name not in READS or case.value is None:
        return None
    makers = {
        output.number: one for one in judgement.judged if one.entry.name not in READS for output in one.entry.outputs
    }
    maker = makers.get(entry.outputs[0].number)
    if maker is not None and maker.measure is not None:
        return None
    for other in judgement.theirs.entries:
        read = whole_of(judgement.theirs, other.outputs[0]) if other.name in READS else None
        if read is not None and case.found is not None and read.numel() == case.found.numel() and case.fits(read):
            return Finding(
                Cause.OTHER_INPUT,
                f"it is what the reference reads as {_which(other, judgement.theirs.entries)}: the result of another "
                "step, or the same in another order.",
            )
    if not judgement.mine.replayed.isdisjoint(one.value for one in entry.inputs):
        return Finding(
            Cause.UNKNOWN,
            "the replay of a trace left it, and nothing within a trace is compared with calls: look at what is "
            "written into its inputs before the replay, and at what was captured.",
        )
    return Finding(
        Cause.UNKNOWN,
        "the ops that lead to it are cut or written otherwise than the reference's and could not be compared one by "
        "one: what they make in the end is another value.",
    )


def _missing(case: Case) -> Finding | None:
    """An op of the reference that the program leaves out just before."""
    judgement, partner = case.judgement, case.partner
    if partner is None:
        return None
    taken = set(judgement.pairs.values())
    before = [one for one in judgement.theirs.entries[: partner.number] if one.number not in taken]
    last = next((one for one in reversed(before) if not one.sends and one.gradient_of is None), None)
    if last is None:
        return None
    cause = Cause.STALE_CACHE if last.kind is Kind.CACHE else Cause.OTHER_PROGRAM
    return Finding(cause, f"the reference also runs {last.name} ({last.site}) before it, and the program does not.")


def _fused_parts(case: Case) -> Finding | None:
    """A slice of a fused product is not a slice of each of its parts."""
    entry = case.entry
    is_split = "create_qkv_heads" in entry.name or "split_query_key_value" in entry.name
    shards = [word for words in case.words[:1] for word in words if isinstance(word, Shard)]
    if not is_split or not any(
        word.dim == len(entry.inputs[0].shape) - entry.inputs[0].dist.lead - 1 for word in shards
    ):
        return None
    return Finding(
        Cause.REORDERED,
        "each device has a slice of the fused queries, keys and values, and takes it for its share of each of them: "
        "deal the fused weight out, so that a device has its queries, keys and values side by side.",
    )


def _size(case: Case) -> Finding | None:
    if not case.judged.unfit or case.expected is None or case.value is None:
        return None
    local, wanted = tuple(case.value.data.shape[case.value.dist.lead :]), tuple(case.expected.shape)
    if not case.entry.inputs and all(word is REPLICATE for word in case.made):
        return Finding(
            Cause.OTHER_VALUES,
            f"the host puts a tensor of shape {local} there, and the reference one of {wanted}.",
        )
    made = whole_shape(case.entry.outputs[case.judged.output])
    if not case.entry.inputs and local == wanted and made is not None and made != wanted:
        times = math.prod(made) // max(math.prod(wanted), 1)
        return Finding(
            Cause.OTHER_VALUES,
            f"the host deals out a tensor of shape {made}, {times} times the reference's {wanted}, the size "
            "of one device's share: where a size is made from the number of devices, as a batch for each of them is, "
            "the two do not compute the same. Give both one size, or a reference on as many (--against float32).",
        )
    return Finding(
        Cause.WRONG_DIM,
        f"each device holds {local} placed {_words(case.made)}, which does not make up the reference's {wanted}.",
    )


def _other_values(case: Case) -> Finding | None:
    if case.entry.inputs or case.judged.measure is None:
        return None
    digest = case.entry.outputs[case.judged.output].digest
    same = next((one for one in case.judgement.theirs.entries if digest and one.outputs[0].digest == digest), None)
    if same is not None:
        where = "".join(f", from {one}" for one in same.callers[:2])
        return Finding(
            Cause.OTHER_VALUES,
            f"they are what the reference puts on the devices elsewhere: {same.name} ({same.site}{where}).",
        )
    unlike = abs(case.judged.measure.figures.pcc) < 0.1
    hint = " They have nothing in common: are random numbers seeded?" if unlike else ""
    return Finding(Cause.OTHER_VALUES, f"the host put other numbers on the devices than the reference's.{hint}")


def _maker(case: Case, wanted: Callable[[tuple[Placement, ...]], bool]) -> str:
    """The op that first left its result like this, on the way to the wrong one."""
    entries = case.judgement.mine.entries
    makers = {value.number: one for one in entries for value in one.outputs}
    entry, found = case.entry, None
    while True:
        source = next((one for one in entry.inputs if wanted(one.dist.placements)), None)
        maker = None if source is None else makers.get(source.value)
        if maker is None or maker.number >= entry.number:
            break
        entry = found = maker
    return "a tensor" if found is None else f"{found.name} ({found.site})"


def _words(words: tuple[Placement, ...]) -> str:
    return ", ".join(f"axis {axis}: {word!r}" for axis, word in enumerate(words))


def short(dtype: object) -> str:
    return str(getattr(dtype, "name", dtype)).lower()


_EXPLANATIONS: tuple[Callable[[Case], Finding | None], ...] = (
    _undefined,
    _copies_for_shares,
    _coarse,
    _of_training,
    _wrong_collective,
    _partial,
    _other_op,
    _bias,
    _bias_of_contributions,
    _shard_only,
    _other_input,
    other_argument,
    multiple,
    offset,
    transposed,
    reordered,
    _fused_parts,
    _size,
    _read_in_place,
    _missing,
    _other_values,
)
