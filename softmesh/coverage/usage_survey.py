"""API coverage of a usage file: how often programs use each TT-NN name, and which of them the package has.

A name is there, listed as not modelled with a reason, or missing; missing names are weighed by their use.
"""

from __future__ import annotations

import ast
import csv
import inspect
import io
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType

from softmesh.dispatch.operation import Operation
from softmesh.errors import NotModelled
from softmesh.input_files.text_files import FileError, read_text
from softmesh.namespaces import reason_for
from softmesh.unmodelled import StandIn

_NEEDED = ("name", "score")
_FILES = "_files"


@dataclass(frozen=True)
class Used:
    """A name, what it weighs, and in how many files of each group it stands."""

    name: str
    score: float
    files: Mapping[str, float] = field(default_factory=dict)


def read_usage(path: str | Path) -> list[Used]:
    """The names of a usage file; a FileError that says which line is wrong."""
    rows = csv.reader(io.StringIO(read_text(path, kind="usage file")), strict=True)
    try:
        header = next(rows, [])
        _check_header(path, header)
        return list(_names(path, header, rows, lambda: rows.line_num))
    except csv.Error as error:
        raise FileError(path, f"is not a table with commas: {error}", rows.line_num) from None


def _check_header(path: str | Path, header: Sequence[str]) -> None:
    lacking = [column for column in _NEEDED if column not in header]
    if lacking:
        found = ", ".join(header[:8]) or "nothing"
        raise FileError(
            path,
            f"has no column {' and no column '.join(lacking)}: the first line of a usage file names its columns "
            f"(name, score, and a_files, b_files ... for groups of programs); found {found}",
            1,
        )


def _names(
    path: str | Path, header: Sequence[str], rows: Iterator[list[str]], line: Callable[[], int]
) -> Iterator[Used]:
    groups = [column for column in header if column.endswith(_FILES) and column != _FILES]
    seen: dict[str, int] = {}
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise FileError(path, f"{len(row)} values under {len(header)} columns", line())
        cells = dict(zip(header, row, strict=True))
        name = cells["name"]
        if not name.startswith("ttnn."):
            raise FileError(path, f"{name!r} is not a name of TT-NN: they begin with 'ttnn.'", line())
        if name in seen:
            raise FileError(path, f"{name} stands in line {seen[name]} already", line())
        seen[name] = line()
        numbers = {column: _number(path, line(), column, cells[column]) for column in ("score", *groups)}
        yield Used(name, numbers["score"], {column.removesuffix(_FILES): numbers[column] for column in groups})
    if not seen:
        raise FileError(path, "names nothing: there is no line below the columns")


def _number(path: str | Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise FileError(path, f"{column} must be a number that is not negative, got {text!r}", line)
    return value


@dataclass(frozen=True)
class Share:
    """Of what programs use, how much is there: counted in names, and weighed."""

    names: int
    found: int
    weight: float
    found_weight: float

    @property
    def percent(self) -> float:
        return 100.0 * (self.found_weight / self.weight if self.weight else 1.0)


@dataclass(frozen=True)
class Lacking:
    """A name that is not there; the reason, where softmesh gives one."""

    used: Used
    reason: str | None

    @property
    def groups(self) -> list[str]:
        return [group for group, files in self.used.files.items() if files]


@dataclass(frozen=True)
class Survey:
    """What one package has of the names of one usage file."""

    used: Sequence[Used]
    lacking: Sequence[Lacking]  # the heaviest first

    @cached_property
    def _absent(self) -> frozenset[str]:
        return frozenset(lack.used.name for lack in self.lacking)

    @property
    def groups(self) -> list[str]:
        return sorted(self.used[0].files)

    @property
    def whole(self) -> Share:
        """Every name by its score."""
        return self._share(lambda used: used.score)

    def of_group(self, group: str) -> Share:
        """The names that a group uses, each by the number of the group's files in which it stands.

        Not by calls: an enum member is never called, and a program needs it all the same.
        """
        return self._share(lambda used: used.files[group])

    def _share(self, weight: Callable[[Used], float]) -> Share:
        counted = [used for used in self.used if weight(used) > 0]
        found = [used for used in counted if used.name not in self._absent]
        return Share(len(counted), len(found), sum(map(weight, counted)), sum(map(weight, found)))

    def unexplained(self, group: str) -> list[Lacking]:
        """What a group uses, and the package neither has nor lists with a reason."""
        return [lack for lack in self.lacking if lack.used.files.get(group) and lack.reason is None]


def survey(package: ModuleType, used: Sequence[Used]) -> Survey:
    lacking = [Lacking(one, reason_for(one.name)) for one in used if not has(package, one.name)]
    return Survey(used, sorted(lacking, key=lambda lack: (-lack.used.score, lack.used.name)))


def has(package: ModuleType, name: str) -> bool:
    """Whether `ttnn.x.y` is there and does something.

    A name that is there only to say NotModelled is not.
    """
    found: object = package
    for part in name.split(".")[1:]:
        try:
            found = getattr(found, part)
        except AttributeError:
            return False
    return not only_refuses(found)


def only_refuses(found: object) -> bool:
    """Whether calling it can do nothing but raise NotModelled."""
    if isinstance(found, StandIn):
        return True
    function = found.definition.define if isinstance(found, Operation) else found
    if not inspect.isfunction(function):
        return False
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # made at run time, or a lambda
        return False
    body = getattr(tree, "body", None) or [None]
    if isinstance(body, list) and inspect.getdoc(function):
        body = body[1:]
    return isinstance(body, list) and len(body) == 1 and _raises_not_modelled(body[0])


def _raises_not_modelled(statement: object) -> bool:
    if not isinstance(statement, ast.Raise) or not isinstance(statement.exc, ast.Call):
        return False
    raised = statement.exc.func
    return isinstance(raised, ast.Name) and raised.id == NotModelled.__name__
