"""An estimate for a terminal: tables of ops, lines, steps and links, and what two estimates differ in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from softmesh import terminal_text
from softmesh.cost.comparison import Change, Comparison
from softmesh.cost.summaries import (
    busy_share,
    by_line,
    by_op,
    by_step,
    headline,
    idle_times,
    ran,
    size_text,
    text_table,
    time_text,
    unpriced,
)
from softmesh.cost.timeline import Estimate

_MOST = 20
_MOST_LINKS = 5


def console() -> Console:
    """As wide as its text where nobody looks at a terminal: no line is cut, and there are no colours."""
    plain = terminal_text.console()
    return plain if plain.is_terminal else terminal_text.console(width=200, no_color=True)


def say(to: Console, *lines: str) -> None:
    for line in lines:
        to.print(line, markup=False, highlight=False, soft_wrap=True)


def show_table(to: Console, table: Table) -> None:
    """Elsewhere than on a terminal without the spaces that fill lines up."""
    if to.is_terminal:
        to.print(table)
        return
    with to.capture() as held:
        to.print(table)
    text = [line.rstrip() for line in held.get().splitlines()]
    say(to, *(line for line in text if line), "")


def plain_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> Table:
    """`numbers` are the columns that are set to the right."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place in numbers else "left", no_wrap=place in numbers)
    for row in rows:
        table.add_row(*row)
    return table


def show_estimate(estimate: Estimate, to: Console) -> None:
    show_table(to, text_table(estimate, _MOST))
    lines = by_line(estimate)
    if lines:
        show_table(to, _lines_table(estimate))
    steps = by_step(estimate)
    if steps:
        show_table(to, _steps_table(estimate))
    if estimate.links:
        show_table(to, _links_table(estimate))
    say(to, *_notes(estimate))


def _lines_table(estimate: Estimate) -> Table:
    lines = by_line(estimate)
    rows = [
        (
            str(line.site),
            ", ".join(line.ops[:3]) + (" ..." if len(line.ops) > 3 else ""),
            str(line.calls),
            time_text(line.seconds),
            f"{line.share:.1%}",
            line.bound.value,
        )
        for line in lines[:_MOST]
    ]
    rest = lines[_MOST:]
    if rest:
        times = time_text(sum(line.seconds for line in rest)), f"{sum(line.share for line in rest):.1%}"
        rows.append((f"{len(rest)} more", "", str(sum(line.calls for line in rest)), *times, ""))
    for idle in idle_times(estimate):
        rows.append((f"({idle.name})", "", "", time_text(idle.seconds), f"{idle.share:.1%}", ""))
    return plain_table("by line", ("line", "ops", "calls", "time", "share", "bound by"), rows, (2, 3, 4))


def _steps_table(estimate: Estimate) -> Table:
    rows = []
    for step in by_step(estimate):
        rate = step.tokens_per_second
        each = time_text(step.seconds / step.marks)
        rows.append((step.name, str(step.marks), each, "" if rate is None else f"{rate:.4g}"))
    return plain_table("by step", ("step", "times", "time of one", "tokens/s"), rows, (1, 2, 3))


def _links_table(estimate: Estimate) -> Table:
    busiest = sorted(estimate.links, key=lambda use: -use.bytes)[:_MOST_LINKS]
    rows = [
        (str(use.link), size_text(use.bytes), time_text(use.busy_seconds), f"{use.busy_seconds / estimate.seconds:.1%}")
        for use in busiest
    ]
    title = f"the busiest of {len(estimate.links)} links, one way each"
    return plain_table(title, ("link", "bytes", "in use", "of the whole time"), rows, (1, 2, 3))


def _notes(estimate: Estimate) -> list[str]:
    commands = ran(estimate)
    found = [
        f"{len(commands)} commands; programs keep the chips busy for {busy_share(estimate):.1%} of the time. "
        "Shares are of the whole time, on average over the chips, and add up to 100 %."
    ]
    missing = [f"{name} ({calls})" for name, calls in unpriced(estimate).items()]
    if missing:
        found.append(f"no price, counted as nothing: {', '.join(missing)}")
    guessed = {command.name for command in commands if not command.cost.is_measured}
    if guessed:
        found.append(f"? nothing was measured behind: {', '.join(sorted(guessed)[:8])}{' ...' * (len(guessed) > 8)}")
    if not estimate.has_values:
        found.append("shapes only: no value was computed")
    if estimate.error is not None:
        found.append(f"The program did not end by itself ({estimate.error}): this is what it took up to there.")
    return found


def show_comparison(comparison: Comparison, to: Console) -> None:
    before, after = comparison.before, comparison.after
    factor = after.seconds / before.seconds if before.seconds else 0.0
    say(to, "", f"first:  {headline(before)}", f"second: {headline(after)}")
    say(to, f"the second takes {factor:.3g} times as long")
    for name, one in (("first", before), ("second", after)):
        if one.error is not None:
            say(to, f"the {name} did not end by itself: {one.error}")
    say(to, *comparison.remarks)
    for title, changes in (("by op", comparison.ops), ("by line", comparison.lines)):
        if changes:
            show_table(to, _changes_table(title, changes))
        else:
            say(to, f"{title}: nothing changed")


def _changes_table(title: str, changes: Sequence[Change]) -> Table:
    rows = [
        (
            one.name,
            *(time_text(side.seconds) if side else "-" for side in (one.before, one.after)),
            f"{'+' if one.seconds >= 0 else '-'}{time_text(abs(one.seconds))}",
            one.why,
        )
        for one in changes[:_MOST]
    ]
    return plain_table(title, (title.removeprefix("by "), "first", "second", "change", "why"), rows, (1, 2, 3))


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """For `--json`: sums and no single commands."""
    low, high = estimate.band()
    busiest = estimate.busiest_link()
    return {
        "program": estimate.program,
        "system": estimate.system,
        "fabric": estimate.fabric,
        "ranks": estimate.ranks,
        "has_values": estimate.has_values,
        "calibration": estimate.calibration,
        "error": estimate.error,
        "seconds": estimate.seconds,
        "low": low,
        "high": high,
        "commands": len(ran(estimate)),
        "busy": busy_share(estimate),
        "tokens_per_second": estimate.tokens_per_second(),
        "ops": [op._asdict() | {"bound": op.bound.value} for op in by_op(estimate)],
        "idle": [idle._asdict() for idle in idle_times(estimate)],
        "unpriced": unpriced(estimate),
        "lines": [
            line._asdict() | {"bound": line.bound.value, "file": line.site.file, "line": line.site.line}
            for line in by_line(estimate)
        ],
        "steps": [step._asdict() | {"tokens_per_second": step.tokens_per_second} for step in by_step(estimate)],
        "busiest_link": None if busiest is None else str(busiest.link),
        "links": [
            {"link": str(use.link), "bytes": use.bytes, "busy_seconds": use.busy_seconds} for use in estimate.links
        ],
    }
