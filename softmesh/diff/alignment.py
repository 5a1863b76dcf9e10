"""Pairs the ops of two runs: by name, line and order first, and in what is left by name and size.

Collectives that only the mesh has are taken out of the sequence, so that the rest of it reads as on one device.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from softmesh.diff.assembly import whole_shape
from softmesh.diff.recording import READS, Entry, Recording
from softmesh.dispatch.operation import OPERATIONS, kind_of
from softmesh.kinds import Kind

Key = Callable[[Entry], Hashable]
_LATER = 6  # ops within which a bias is added
_UNIFIED = "distributed."


def aligned(mine: Recording, theirs: Recording) -> dict[int, int]:
    """For entries of one run, those of the other that are the same op."""
    others = comparable(theirs, mine)
    sends = {entry.name for entry in others if entry.sends}
    own = (one for one in _results(comparable(mine, theirs)) if not one.sends or _unified(one) or one.name in sends)
    ours = [one for one in own if one.gradient_of is None]
    first: Key = _called_alike(ours, others) if _share_lines(ours, others) else name_of
    pairs = _matched(ours, others, first)
    _add_biases_later(mine.entries, theirs.entries, pairs)
    return _filled(ours, theirs.entries, pairs, {one.number for one in theirs.entries} - {one.number for one in others})


def has_common_lines(mine: Recording, theirs: Recording) -> bool:
    """True if most ops of both stand on the same lines."""
    return _share_lines(comparable(mine, theirs), comparable(theirs, mine))


def _share_lines(ours: Sequence[Entry], theirs: Sequence[Entry]) -> bool:
    lines = {_line(entry) for entry in theirs}
    return 2 * sum(_line(entry) in lines for entry in ours) > len(ours)


def comparable(run: Recording, other: Recording) -> list[Entry]:
    """Without what was recorded into a trace where the other run has none: its replays are what counts."""
    if any(one.is_captured for one in other.entries):
        return run.entries
    return [one for one in run.entries if not one.is_captured]


def _results(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The ops, and of those that a unified op calls the last one: its result."""
    for at, entry in enumerate(entries):
        after = entries[at + 1] if at + 1 < len(entries) else None
        if not _unified(entry) or after is None or (_unified(after), after.site) != (_unified(entry), entry.site):
            yield entry


def _unified(entry: Entry) -> str:
    """The unified op that called it."""
    return entry.within[0] if entry.within and entry.within[0].startswith(_UNIFIED) else ""


def _line(entry: Entry) -> Hashable:
    return name_of(entry), entry.site.file, entry.site.line


def _called_alike(ours: Sequence[Entry], theirs: Sequence[Entry]) -> Key:
    """By line; where a helper of the program puts weights on devices, also by the lines that call it in both runs."""
    known = set.intersection(*({caller for one in run for caller in one.callers} for run in (ours, theirs)))
    return lambda entry: (_line(entry), () if entry.inputs else tuple(one for one in entry.callers if one in known))


def name_of(entry: Entry) -> str:
    name = _unified(entry).removeprefix(_UNIFIED) or entry.name
    return "read" if name in READS else same_name(name)


def same_name(op: str) -> str:
    """One name for ops that compute the same."""
    known = OPERATIONS.get(op)
    if known is None:
        return op
    return OPERATIONS[known.definition.same_as or op].name


def same_op(ours: Entry, theirs: Entry) -> bool:
    """Whether both go by the same name, or by two for the same computation."""
    return not theirs.name or theirs.name == "module" or name_of(ours) == name_of(theirs)


def form_of(entry: Entry) -> Hashable:
    """With how many inputs: one that also adds a bias is another op. Norms in two steps read statistics beside."""
    name = name_of(entry)
    return name, None if kind_of(name) is Kind.NORM else len(entry.inputs)


def size_of(entry: Entry) -> tuple[int, ...] | None:
    shape = whole_shape(entry.outputs[0])
    return None if shape is None else tuple(n for n in shape if n != 1)


def same_size(ours: Entry, theirs: Entry) -> bool:
    """As far as placements tell, both make as many elements by the same dims; of reshapes, only as many."""
    mine, other = size_of(ours), size_of(theirs)
    is_same = mine in (None, other)
    if not is_same and mine and other and kind_of(name_of(ours)) is Kind.RESHAPE:
        is_same = math.prod(mine) == math.prod(other)
    return len(ours.outputs) == len(theirs.outputs) and is_same


def _matched(ours: Sequence[Entry], theirs: Sequence[Entry], key: Key) -> dict[int, int]:
    """Reads that follow one another on a line count as one: one run may read in more pieces than the other."""
    left, right = _read_together(ours, key), _read_together(theirs, key)
    matcher = SequenceMatcher(None, [key(one[0]) for one in left], [key(one[0]) for one in right], autojunk=False)
    return {
        own.number: other.number
        for a, b, count in matcher.get_matching_blocks()
        for step in range(count)
        for own, other in zip(left[a + step], right[b + step], strict=False)
    }


def _add_biases_later(ours: Sequence[Entry], theirs: Sequence[Entry], pairs: dict[int, int]) -> None:
    """Where a product has its bias in one run, and on the mesh after its sum: the addition is that product."""
    for number, partner in list(pairs.items()):
        product, whole = ours[number], theirs[partner]
        if product.name != "linear" or whole.name != "linear" or (len(product.inputs), len(whole.inputs)) != (2, 3):
            continue
        made = product.outputs[0].number
        for entry in ours[number + 1 : number + _LATER]:
            read = [one.value for one in entry.inputs]
            if made in read and entry.sends:
                made = entry.outputs[0].number
            elif made in read and same_name(entry.name) == "add" and not _is_made(ours[:number], entry, made):
                _hand_on(ours, pairs, entry.number, partner)
                del pairs[number]
                break


def _is_made(before: Sequence[Entry], entry: Entry, made: int) -> bool:
    """Whether an op made what is added, so that it is no parameter."""
    added = {one.value for one in entry.inputs} - {made}
    return any(
        one.inputs and not one.name.endswith(".step") and not added.isdisjoint(out.number for out in one.outputs)
        for one in before
    )


def _hand_on(ours: Sequence[Entry], pairs: dict[int, int], number: int, partner: int) -> None:
    """The op gets this partner; the one that it had goes to the next op of its name that has none."""
    freed = pairs.get(number)
    pairs[number] = partner
    if freed is None:
        return
    for entry in ours[number + 1 : number + _LATER]:
        if _line(entry) == _line(ours[number]) and entry.number not in pairs:
            pairs[entry.number] = freed
            return


def _read_together(entries: Sequence[Entry], key: Key) -> list[list[Entry]]:
    found: list[list[Entry]] = []
    for entry in entries:
        if found and entry.name in READS and key(entry) == key(found[-1][-1]):
            found[-1].append(entry)
        else:
            found.append([entry])
    return found


def in_order(ours: Sequence[Entry], theirs: Sequence[Entry]) -> Iterable[tuple[int, int]]:
    """Pairs by name, size and order alone."""
    return _matched(ours, theirs, lambda entry: (form_of(entry), size_of(entry))).items()


def _filled(
    ours: Sequence[Entry], theirs: Sequence[Entry], pairs: dict[int, int], left_out: set[int]
) -> dict[int, int]:
    """Between two pairs, ops of the same name and size that are as many on both sides are pairs too."""
    taken = left_out | set(pairs.values())
    gaps: list[tuple[list[Entry], list[Entry]]] = [([], [])]
    position = 0
    for entry in ours:
        partner = pairs.get(entry.number)
        if partner is None:
            gaps[-1][0].append(entry)
            continue
        gaps[-1][1].extend(one for one in theirs[position:partner] if one.number not in taken)
        position = partner + 1
        gaps.append(([], []))
    gaps[-1][1].extend(one for one in theirs[position:] if one.number not in taken)
    found = dict(pairs)
    for own, other in gaps:
        found.update(_alike(own, other))
    return found


def _alike(own: Sequence[Entry], other: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    forms: dict[Hashable, tuple[list[Entry], list[Entry]]] = defaultdict(lambda: ([], []))
    for side, entries in enumerate((own, other)):
        for entry in entries:
            forms[form_of(entry)][side].append(entry)
    for left, right in forms.values():
        sizes = [[size_of(entry) for entry in entries] for entries in (left, right)]
        if len(left) == len(right) and all(a == b or a is None for a, b in zip(*sizes, strict=True)):
            yield from ((a.number, b.number) for a, b in zip(left, right, strict=True))
            continue
        for size in set(sizes[0]) - {None}:
            a, b = ([one for one in entries if size_of(one) == size] for entries in (left, right))
            if len(a) == len(b):
                yield from ((one.number, same.number) for one, same in zip(a, b, strict=True))
