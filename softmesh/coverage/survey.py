"""Which of the used names the package has, which it lists with a reason, and what the rest weighs."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

from softmesh.coverage.usage_file import Used
from softmesh.dispatch.operation import Operation
from softmesh.errors import NotModelled
from softmesh.not_modelled import reason_for


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
