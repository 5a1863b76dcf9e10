"""`softmesh coverage`: the share of a usage file's names that the installed package has, and what it lacks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence

import click

import softmesh
from softmesh.coverage.usage_survey import Lacking, Share, Survey, read_usage, survey
from softmesh.input_files.text_files import FileError
from softmesh.option_types import Number
from softmesh.terminal_text import echo

_SHOWN = 40


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="FILE.csv")
@click.option("--json", "wants_json", is_flag=True, help="One JSON document instead of text.")
@click.option("--all", "wants_all", is_flag=True, help=f"Every missing name, not the {_SHOWN} heaviest.")
@click.option("--at-least", type=Number(0, 100), metavar="PERCENT", help="Exit 1 below this share.")
@click.option(
    "--complete",
    metavar="GROUPS",
    default="",
    help="Exit 1 if a name these groups use is missing without a reason: --complete a,b,c",
)
def coverage(file: str, wants_json: bool, wants_all: bool, at_least: float | None, complete: str) -> None:
    """Tell which of the names that programs use exist in softmesh.

    FILE.csv has the columns name and score, and a_files, b_files ... for groups of programs. The share of the
    whole weighs each name by its score; that of a group by the number of its files in which the name stands. A
    name that is there only to raise NotModelled counts as missing.

    Exit code 0: as much as asked for is there; 1: it is not; 2: wrong usage, or a file that cannot be read.

    \b
    Examples:
      softmesh coverage api-usage.csv
      softmesh coverage api-usage.csv --at-least 95 --complete a,b,c
    """
    try:
        found = survey(softmesh, read_usage(file))
    except FileError as error:
        raise click.UsageError(str(error)) from None
    wanted = _groups(found, complete)
    if wants_json:
        echo(json.dumps(_document(found), indent=2))
    else:
        for line in _lines(found, len(found.lacking) if wants_all else _SHOWN):
            echo(line)
    falls_short = list(_shortfalls(found, at_least, wanted))
    for line in falls_short:
        echo(f"softmesh coverage: {line}", err=True)
    sys.exit(1 if falls_short else 0)


def _groups(found: Survey, named: str) -> list[str]:
    groups = [group.strip() for group in named.split(",") if group.strip()]
    for group in groups:
        if group not in found.groups:
            there = ", ".join(found.groups) or "none"
            raise click.UsageError(f"--complete: the file has no group {group!r}; its groups are: {there}.")
    return groups


def _shortfalls(found: Survey, at_least: float | None, groups: Sequence[str]) -> Iterator[str]:
    if at_least is not None and found.whole.percent < at_least:
        yield f"{found.whole.percent:.2f} % by score, and {at_least:g} % were asked for"
    for group in groups:
        for lack in found.unexplained(group):
            yield f"group {group} uses {lack.used.name}, which is missing without a reason"


def _lines(found: Survey, shown: int) -> Iterator[str]:
    whole = found.whole
    yield f"{whole.percent:.2f} % of what programs use, by score: {whole.found} of {whole.names} names"
    if found.groups:
        yield ""
        yield "by group, each name weighing the files that use it:"
        yield from (f"  {group}  {_share_text(found.of_group(group))}" for group in found.groups)
    plain = [lack for lack in found.lacking if lack.reason is None]
    listed = [lack for lack in found.lacking if lack.reason is not None]
    if plain:
        yield ""
        yield f"missing ({len(plain)}), the heaviest first: score, name, groups that use it"
        yield from map(_lacking_text, plain[:shown])
        if len(plain) > shown:
            rest = sum(lack.used.score for lack in plain[shown:])
            yield f"  ... and {len(plain) - shown} more of {rest:.3f} together; --all shows them"
    if listed:
        yield ""
        yield f"not modelled, for a reason ({len(listed)}):"
        yield from (f"{_lacking_text(lack)}: {lack.reason}" for lack in listed)


def _share_text(share: Share) -> str:
    return f"{share.percent:6.2f} %  {share.found} of {share.names} names"


def _lacking_text(lack: Lacking) -> str:
    used_by = f"  ({' '.join(lack.groups)})" if lack.groups else ""
    return f"  {lack.used.score:8.3f}  {lack.used.name}{used_by}"


def _document(found: Survey) -> dict[str, object]:
    return {
        "score": _share_document(found.whole),
        "groups": {group: _share_document(found.of_group(group)) for group in found.groups},
        "missing": [
            {
                "name": lack.used.name,
                "score": lack.used.score,
                "groups": lack.groups,
                "reason": lack.reason,
            }
            for lack in found.lacking
        ],
    }


def _share_document(share: Share) -> dict[str, object]:
    return {
        "percent": round(share.percent, 4),
        "names": share.names,
        "found": share.found,
        "weight": round(share.weight, 4),
        "found_weight": round(share.found_weight, 4),
    }
