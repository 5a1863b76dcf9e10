"""Two estimates beside each other: what became slower or faster, by op and by line, and why."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

from softmesh.cost.command_cost import Bound
from softmesh.cost.summaries import LineCost, OpCost, by_line, by_op, ran, size_text, time_text
from softmesh.cost.timeline import Estimate
from softmesh.systems.chip import Chip

_Row = TypeVar("_Row", OpCost, LineCost)


class Change(NamedTuple):
    """Of an op or a line; None where one of the two has none of it."""

    name: str
    before: OpCost | LineCost | None
    after: OpCost | LineCost | None
    why: str

    @property
    def seconds(self) -> float:
        """How much longer it takes afterwards."""
        return (self.after.seconds if self.after else 0.0) - (self.before.seconds if self.before else 0.0)


class Comparison(NamedTuple):
    before: Estimate
    after: Estimate
    ops: list[Change]  # the largest changes first
    lines: list[Change]
    remarks: list[str]  # what is different about the machines, the fabric and the links


def compared(before: Estimate, after: Estimate) -> Comparison:
    ops = _changes(by_op(before), by_op(after), lambda op: op.name, str, _why_op)
    shares = [_ops_of_lines(estimate) for estimate in (before, after)]

    def why_line(first: LineCost | None, second: LineCost | None) -> str:
        if first is None or second is None:
            return _only_in(first)
        place = (first.site.file, first.site.line)
        return _largest_change(*(share.get(place, {}) for share in shares))

    lines = _changes(
        by_line(before),
        by_line(after),
        lambda line: (line.site.file, line.site.line),
        lambda key: _line_text(*key),
        why_line,
    )
    return Comparison(before, after, ops, lines, list(_remarks(before, after)))


def _ops_of_lines(estimate: Estimate) -> dict[tuple[str, int], dict[str, float]]:
    """Seconds of each op that a line led to."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for command in ran(estimate):
        ops = found.setdefault((command.site.file, command.site.line), {})
        ops[command.name] = ops.get(command.name, 0.0) + command.seconds
    return found


def _largest_change(before: dict[str, float], after: dict[str, float]) -> str:
    """The op of a line that changed most; nothing where none did."""
    changes = {op: after.get(op, 0.0) - before.get(op, 0.0) for op in (*before, *after)}
    op = max(changes, key=lambda op: abs(changes[op]), default=None)
    if op is None or not changes[op]:
        return ""
    return f"{op} {'+' if changes[op] > 0 else '-'}{time_text(abs(changes[op]))}"


def _line_text(file: str, line: int) -> str:
    return f"{file.rpartition('/')[2]}:{line}"


_Key = TypeVar("_Key", bound=Hashable)


def _changes(
    before: Iterable[_Row],
    after: Iterable[_Row],
    key: Callable[[_Row], _Key],
    text: Callable[[_Key], str],
    why: Callable[[_Row | None, _Row | None], str],
) -> list[Change]:
    first: dict[_Key, _Row] = {key(row): row for row in before}
    second: dict[_Key, _Row] = {key(row): row for row in after}
    found = [
        Change(text(name), first.get(name), second.get(name), why(first.get(name), second.get(name)))
        for name in dict.fromkeys((*first, *second))
    ]
    return sorted((one for one in found if one.seconds or one.why), key=lambda one: -abs(one.seconds))


def _only_in(first: OpCost | LineCost | None) -> str:
    return "only in the second" if first is None else "only in the first"


def _why_op(before: OpCost | None, after: OpCost | None) -> str:
    """In words: calls, bytes, arithmetic, and what bounds it."""
    if before is None or after is None:
        return _only_in(before)
    reasons = []
    if before.calls != after.calls:
        reasons.append(f"{before.calls} -> {after.calls} calls")
    if before.link_bytes != after.link_bytes:
        reasons.append(f"{size_text(before.link_bytes)} -> {size_text(after.link_bytes)} over links")
    if before.dram_bytes != after.dram_bytes:
        reasons.append(f"{size_text(before.dram_bytes)} -> {size_text(after.dram_bytes)} of DRAM")
    if before.flops != after.flops:
        reasons.append(f"{before.flops / 1e9:.3g} -> {after.flops / 1e9:.3g} GFLOP")
    if before.bound is not after.bound:
        reasons.append(f"bound by {before.bound.value} -> {after.bound.value}")
    if not reasons and abs(after.seconds - before.seconds) > 1e-3 * before.seconds:
        reasons.append(_same_work(after.bound))
    return ", ".join(reasons)


def _same_work(bound: Bound) -> str:
    return {
        Bound.LINK: "the same bytes over other links",
        Bound.COMPUTE: "the same work on other cores",
        Bound.DRAM: "the same bytes from other memory",
    }.get(bound, "the same work")


def _remarks(before: Estimate, after: Estimate) -> Iterable[str]:
    if before.program != after.program:
        yield f"program: {before.program} -> {after.program}"
    if before.system != after.system:
        yield f"system: {before.system} -> {after.system}"
        old, new = _chip(before), _chip(after)
        if old is not None and new is not None and old != new:
            yield (
                f"chips: {old.kind} -> {new.kind}: {_grid(old)} -> {_grid(new)} cores at {old.clock_ghz:g} -> "
                f"{new.clock_ghz:g} GHz, DRAM {old.dram_gb_per_s:g} -> {new.dram_gb_per_s:g} GB/s, a link "
                f"{old.link_gb_per_s:g} -> {new.link_gb_per_s:g} GB/s"
            )
    if before.fabric != after.fabric:
        yield f"fabric: {before.fabric} -> {after.fabric}"
    yield from _broken(before, after)
    links = [one.busiest_link() for one in (before, after)]
    if links[0] is not None and links[1] is not None and links[0][:2] != links[1][:2]:
        texts = [f"{link.link} with {size_text(link.bytes)}" for link in links if link is not None]
        yield f"busiest link: {texts[0]} -> {texts[1]}"


def _chip(estimate: Estimate) -> Chip | None:
    return next((mesh.chip for mesh in estimate.meshes), None)


def _grid(chip: Chip) -> str:
    return "x".join(map(str, chip.grid()))


def _broken(before: Estimate, after: Estimate) -> Iterable[str]:
    old, new = (set() if one.machine is None else set(one.machine.down_links) for one in (before, after))
    for link in sorted(new - old):
        yield f"down: {link}"
    for link in sorted(old - new):
        yield f"up again: {link}"
