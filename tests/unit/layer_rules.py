"""Who imports whom, read from the source without running it, and held against an order of layers.

A *unit* is a package or a root module, written as docs/layers.yaml writes it: `tensor/`, `mesh.py`. An import counts
wherever it stands: at the top, inside of a function, for type checkers only, or as a text that names a module.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from softmesh.report.layers_picture import Layers

PACKAGE = "softmesh"


class Import(NamedTuple):
    """Of the module `target`, on a line of a file of a unit."""

    path: Path
    line: int
    unit: str
    source: str
    target: str
    is_statement: bool  # that runs: neither for type checkers only, nor a text


@dataclass
class Source:
    """The modules of a tree that has the package and modules beside it; of each, all nodes."""

    root: Path
    modules: dict[str, list[ast.AST]] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        beside = self.root.glob(f"{PACKAGE}_*.py")
        for path in sorted((*(self.root / PACKAGE).rglob("*.py"), *beside)):
            parts = path.relative_to(self.root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.paths[name] = path.relative_to(self.root)
            self.modules[name] = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))

    def unit(self, module: str) -> str:
        parts = self.paths[module].parts
        if len(parts) == 1:
            return parts[0]
        return parts[1] if len(parts) == 2 else f"{parts[1]}/"

    @property
    def units(self) -> set[str]:
        return {self.unit(module) for module in self.modules}

    def known(self, name: str) -> str | None:
        """The module that a dotted name is, or is in."""
        while name and name not in self.modules:
            name = name.rpartition(".")[0]
        return name or None

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports())

    def _imports(self) -> Iterator[Import]:
        for module, nodes in self.modules.items():
            path, unit, for_types = self.paths[module], self.unit(module), set(_nodes_for_types(nodes))
            of_logs: set[ast.AST] = set()
            for node in nodes:
                for name in _imported(node, path):
                    target = self.known(name)
                    if target is not None and target != module:
                        yield Import(path, node.lineno, unit, module, target, node not in for_types)  # type: ignore[attr-defined]
                for line, name in _named(node, of_logs):
                    if name in self.modules and name != module:
                        yield Import(path, line, unit, module, name, False)


def _nodes_for_types(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                yield from ast.walk(statement)


def _imported(node: ast.AST, path: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        within = path.parts[: -node.level] if node.level else ()  # a dot is the folder of the file
        start = ".".join((*within, *([node.module] if node.module else ())))
        yield from (f"{start}.{alias.name}" for alias in node.names)


def _named(node: ast.AST, of_logs: set[ast.AST]) -> Iterator[tuple[int, str]]:
    """Texts that name a module, whole or below the package; the package itself only where it is looked up."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and "." in node.value and node not in of_logs:
            yield node.lineno, node.value
            yield node.lineno, f"{PACKAGE}.{node.value}"
    elif isinstance(node, ast.Call) and _last_name(node.func) == "getLogger":
        of_logs.update(node.args)  # names of loggers look like names of modules
    else:
        yield from ((text.lineno, PACKAGE) for text in _looked_up(node))


def _looked_up(node: ast.AST) -> Iterator[ast.Constant]:
    """`sys.modules["softmesh"]`, `import_module("softmesh")`"""
    found: list[ast.expr] = []
    if isinstance(node, ast.Subscript) and _last_name(node.value) == "modules":
        found = [node.slice]
    elif isinstance(node, ast.Call) and _last_name(node.func) == "import_module":
        found = node.args[:1]
    yield from (one for one in found if isinstance(one, ast.Constant) and one.value == PACKAGE)


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# -- what the order of layers says of them -----------------------------------------------------------


def wrong_imports(source: Source, layers: Layers) -> list[str]:
    """Each import that points up or to the left; and each late one that nobody makes any more."""
    order = [(layer.name, unit) for layer in layers.layers for unit in layer.holds]
    at = {unit: place for place, (_, unit) in enumerate(order)}
    late = {(one.source, one.target) for one in layers.late}
    wrong, made = [], set()
    for one in source.imports:
        above = source.unit(one.target)
        if above == one.unit or at.get(above, len(at)) > at.get(one.unit, -1):
            continue
        if (one.unit, one.target) in late:
            made.add((one.unit, one.target))
            continue
        (own, _), (other, _) = order[at[one.unit]], order[at[above]]
        where = "stands to the left of it" if own == other else "stands above it"
        wrong.append(
            f"{one.path}:{one.line}: {one.unit} (layer {own!r}) imports {one.target} of {above} (layer {other!r}), "
            f"which {where}"
        )
    stale = (f"late: {unit} does not look up {target}" for unit, target in sorted(late - made))
    return [*wrong, *stale]


def wrong_lists(source: Source, layers: Layers) -> list[str]:
    """Units that no layer holds, or that are not there, or held twice."""
    held = [unit for layer in layers.layers for unit in layer.holds]
    return [
        *(f"{unit} is in no layer" for unit in sorted(source.units - set(held))),
        *(f"{unit} is in a layer, and there is no such package or module" for unit in set(held) - source.units),
        *(f"{unit} is in more than one layer" for unit in sorted(source.units) if held.count(unit) > 1),
    ]


def circles(source: Source) -> list[list[str]]:
    """Modules whose import statements load each other in a circle; those for type checkers only load nothing."""
    graph: dict[str, set[str]] = defaultdict(set)
    for one in source.imports:
        if one.is_statement:
            graph[one.source].add(one.target)
    left = set(graph)
    while True:  # whoever needs nothing that is left is in no circle
        free = {module for module in left if not graph[module] & left}
        if not free:
            return [_circle(graph, left)] if left else []
        left -= free


def _circle(graph: dict[str, set[str]], left: set[str]) -> list[str]:
    path = [min(left)]
    while True:
        following = min(graph[path[-1]] & left)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)


# -- private attributes ------------------------------------------------------------------------------


def private_reads(source: Source) -> list[str]:
    """`x._attr` where `_attr` belongs to classes of other units only, or where x is a module of another one."""
    owners: dict[str, set[str]] = defaultdict(set)
    for module, nodes in source.modules.items():
        for name in _own_attributes(nodes):
            owners[name].add(source.unit(module))
    return [
        f"{source.paths[module]}:{line}: {source.unit(module)} reads {text}, private to {', '.join(whose)}"
        for module, nodes in source.modules.items()
        for line, text, whose in _foreign(source, source.unit(module), nodes, owners)
    ]


def _own_attributes(nodes: list[ast.AST]) -> Iterator[str]:
    """Private names that classes give themselves: methods, fields, slots, what `self._x = ...` makes."""
    for kind in (node for node in nodes if isinstance(node, ast.ClassDef)):
        for node in ast.walk(kind):
            if isinstance(node, ast.FunctionDef):
                yield node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
                yield node.attr
            elif isinstance(node, ast.Assign) and "__slots__" in map(_last_name, node.targets):
                yield from (str(one.value) for one in ast.walk(node.value) if isinstance(one, ast.Constant))


def _foreign(
    source: Source, unit: str, nodes: list[ast.AST], owners: dict[str, set[str]]
) -> Iterator[tuple[int, str, Sequence[str]]]:
    imported = dict(_bound_modules(source, nodes))
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            target = source.known(node.module or "")
            for alias in node.names:
                if target is not None and _is_private(alias.name) and source.unit(target) != unit:
                    yield node.lineno, f"{node.module}.{alias.name}", [source.unit(target)]
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
            whose = owners.get(node.attr, set())
            other = imported.get(_last_name(node.value), unit)
            if other != unit:
                yield node.lineno, ast.unparse(node), [other]
            elif whose and unit not in whose:
                yield node.lineno, ast.unparse(node), sorted(whose)


def _bound_modules(source: Source, nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """The names in a file that mean modules, and their units."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if f"{node.module}.{alias.name}" in source.modules:
                    yield alias.asname or alias.name, source.unit(f"{node.module}.{alias.name}")


def _is_private(name: str) -> bool:
    """Names such as `__len__` and `_repr_html_` are agreed upon with others."""
    return name.startswith("_") and not name.endswith("_")


def _is_own(value: ast.AST) -> bool:
    if isinstance(value, ast.Call):
        return _last_name(value.func) == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")
