"""Rankfiles of Open MPI: which host each rank is placed on, read, written and passed to mpirun of either generation."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softmesh.input_files.text_files import FileError, read_text
from softmesh.processes.launcher.console import LaunchError

_LINE = re.compile(r"rank\s+(\d{1,7})\s*=\s*(\S+?)\s+slots?\s*=\s*(\S+)")
_LONGEST_LINE = 1000  # characters; the time to match one grows with the square
_OPTIONS = ("--rankfile", "-rankfile", "-rf")
_MAP_BY = ("--map-by", "-map-by")
_BY_FILE = re.compile(r"rankfile:(?:.*[:,])?file=(.+)", re.IGNORECASE)
_PARAMETER = "rmaps_rankfile_path"


@dataclass(frozen=True)
class ExtractedRankfile:
    """A rankfile among arguments, and the arguments without it."""

    path: str | None
    rest: list[str]


def extract_rankfile(arguments: Sequence[str]) -> ExtractedRankfile:
    """Every spelling counts: `--rankfile F`, `-rf F`, `--map-by rankfile:file=F`, `--mca rmaps_rankfile_path F`."""
    path, rest, place = None, [], 0
    while place < len(arguments):
        found, length = _at(arguments, place)
        if found is None:
            rest.append(arguments[place])
        else:
            path = found
        place += length
    return ExtractedRankfile(path, rest)


def _at(arguments: Sequence[str], place: int) -> tuple[str | None, int]:
    """The rankfile that is named here, if one is, and how many arguments that takes."""
    here, after = arguments[place], [*arguments[place + 1 : place + 3]]
    name, _, value = here.partition("=")
    if here in _OPTIONS and after:
        return after[0], 2
    if name in _OPTIONS and value:
        return value, 1
    if here in _MAP_BY and after and (by_file := _BY_FILE.fullmatch(after[0])):
        return by_file[1], 2
    if name in _MAP_BY and (by_file := _BY_FILE.fullmatch(value)):
        return by_file[1], 1
    if here in ("--mca", "-mca") and after[:1] == [_PARAMETER] and len(after) == 2:
        return after[1], 3
    return None, 1


def rankfile_arguments(path: str | Path, syntax: str, launch_directory: Path) -> list[str]:
    """`syntax` is rankfile, map-by or mca; mpirun runs in the launch directory."""
    written = os.path.relpath(os.path.join(launch_directory, path), launch_directory)
    if syntax == "map-by":
        return ["--map-by", f"rankfile:file={written}"]
    if syntax == "mca":
        return ["--mca", _PARAMETER, written]
    return ["--rankfile", written]


def hosts_by_rank(path: str | Path) -> dict[int, str]:
    """A FileError where the file cannot be read or a line means nothing."""
    placed: dict[int, str] = {}
    for number, line in enumerate(read_text(path, kind="rankfile").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = _LINE.fullmatch(text) if len(text) <= _LONGEST_LINE else None
        if found is None:
            raise FileError(path, f"expected `rank N=host slot=S`, found {text[:60]!r}", number)
        if int(found[1]) in placed:
            raise FileError(path, f"rank {int(found[1])} has a line already", number)
        placed[int(found[1])] = found[2]
    return placed


def check_ranks(path: str, placed: Mapping[int, str], count: int) -> None:
    """Every rank has a place. Lines for ranks that the job does not have do no harm."""
    missing = [rank for rank in range(count) if rank not in placed]
    if placed and missing:
        raise LaunchError(
            f"The rankfile {path} has no line for rank {missing[0]}: the job has ranks 0 to {count - 1}, and the file "
            f"places {len(placed)} of them. Add `rank {missing[0]}=host slot=0`."
        )


def text_of(hosts: Sequence[str]) -> str:
    """The file that puts rank r on hosts[r]; slots count up on each host."""
    used: Counter[str] = Counter()
    lines = []
    for rank, host in enumerate(hosts):
        lines.append(f"rank {rank}={host} slot={used[host]}")
        used[host] += 1
    return "\n".join(lines) + "\n"
