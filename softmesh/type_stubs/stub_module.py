"""One stub: what each public name of a module is, as text. Knows values, not where modules come from."""

from __future__ import annotations

import inspect
import sys
import types
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import ModuleType

from softmesh.dispatch.entry_point import EntryPoint, Function
from softmesh.type_stubs.type_text import TypeText, definition

_HEADER = "# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.\n"
# Overloads are tried in TT-NN's order, and a name of one module may hide that of another.
_OPTIONS = '# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"\n'


class StubModule:
    """`stars` are modules all of whose names it has, `submodules` those it has as attributes.

    What `base`, another module, has under a name is taken from there.
    """

    def __init__(
        self,
        name: str,
        members: Mapping[str, object],
        stars: Iterable[str] = (),
        submodules: Iterable[str] = (),
        base: ModuleType | None = None,
    ) -> None:
        self.name = name
        self._stars = list(stars)
        self._submodules = sorted(submodules)
        self._homes = {} if base is None else _ops_of(base)
        self._written: dict[int, str] = {}  # ops of this module, by identity
        self._types = TypeText()
        self._exports: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._variables: list[str] = []
        self._functions: list[str] = []
        for member in sorted(members, key=lambda name: (_is_alias(name, members[name]), name)):
            self._add(member, members[member])

    def add_namespace(self, name: str, members: Mapping[str, object]) -> None:
        """An object whose attributes are functions."""
        self._functions += [f"class _{name}:"]
        for member in sorted(members):
            lines = self._function(member, members[member], "@staticmethod")
            self._functions += [f"    {line}" for line in lines]
        self._variables.append(f"{name}: _{name}")

    def text(self) -> str:
        exported = {alias: module for module, names in self._exports.items() for _, alias in names}
        used: dict[str, set[str]] = defaultdict(set)
        for module, name in self._types.imports:
            if exported.get(name) != module:
                used[module].add(name)
        lines = [_import(module, names) for module, names in sorted(used.items())]
        lines += [
            _import(module, {f"{name} as {alias}" for name, alias in names})
            for module, names in sorted(self._exports.items())
        ]
        lines += [f"from {self.name} import {name} as {name}" for name in self._submodules]
        lines += [f"from {module} import *" for module in self._stars]
        parts = ["\n".join(part) for part in (lines, self._variables, self._functions) if part]
        return f"{_HEADER}{_OPTIONS}\n" + "\n\n".join(parts) + "\n"

    def _add(self, name: str, found: object) -> None:
        home = _home(found) or self._homes.get(id(found))
        if home is not None:
            self._exports[home[0]].add((home[1], name))
        elif id(found) in self._written:
            self._functions.append(f"{name} = {self._written[id(found)]}")
        elif isinstance(found, EntryPoint):
            self._written[id(found)] = name
            self._functions += self._function(name, found)
        elif isinstance(found, types.UnionType):
            self._types.imports.add(("typing", "TypeAlias"))
            self._variables.append(f"{name}: TypeAlias = {self._types.of(found)}")
        else:
            self._variables.append(f"{name}: {self._types.of(type(found))}")

    def _function(self, name: str, found: object, *decorators: str) -> list[str]:
        assert isinstance(found, EntryPoint), (name, found)
        result = self._types.of(found.result_type())
        return definition(name, found.call_forms(), result, found.description(), self._types, *decorators)


def _is_alias(name: str, found: object) -> bool:
    return isinstance(found, EntryPoint) and found.name.rpartition(".")[2] != name


def _ops_of(module: ModuleType) -> dict[int, tuple[str, str]]:
    """Where its ops are found: the module and the name, by identity."""
    return {id(value): (module.__name__, name) for name, value in vars(module).items() if isinstance(value, EntryPoint)}


def _home(found: object) -> tuple[str, str] | None:
    """The module that defines a function or a class, and its name there; None for what has none."""
    if type(found) is Function:
        found = found.function
    if not (inspect.isfunction(found) or inspect.isclass(found)):
        return None
    module = sys.modules.get(found.__module__)
    is_there = getattr(module, found.__name__, None) is found
    return (found.__module__, found.__name__) if is_there else None


def _import(module: str, names: Iterable[str]) -> str:
    several = sorted(names)
    line = f"from {module} import {', '.join(several)}"
    if len(line) <= 110:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in several) + ")"
