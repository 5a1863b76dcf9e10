"""Finds literals that hold the names of three or more ops: tables of facts which belong to the ops themselves."""

from __future__ import annotations

import ast
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from softmesh.dispatch.operation import OPERATIONS

PACKAGE = Path(__file__).parents[2] / "softmesh"
WHERE_OPS_ARE = ("ops", "collectives")
FEWEST = 3
_DATA = (".txt", ".csv", ".gz", ".yaml", ".json")
_CONTAINERS = (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Call)


def names_of_ops() -> frozenset[str]:
    """Return all names and aliases of ops, with and without their namespaces."""
    return frozenset(form for name in OPERATIONS for form in (name, name.rpartition(".")[2]))


def tables(skipped: tuple[str, ...]) -> set[str]:
    """Return the tables outside of the ops, as `path: what the literal is assigned to`; of data files the path."""
    names = names_of_ops()
    found = set()
    for path in sorted(PACKAGE.rglob("*")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] in WHERE_OPS_ARE or str(place).startswith(skipped):
            continue
        if path.suffix == ".py":
            found |= {f"{place}: {owner}" for owner in tables_in(path.read_text(encoding="utf-8"), names)}
        elif path.suffix in _DATA and _holds_names(path, names):
            found.add(str(place))
    return found


def tables_in(source: str, names: frozenset[str]) -> set[str]:
    """Return the owners of all tables in the source of a module."""
    quoted = {
        word.removeprefix("ttnn.") for text in re.findall(r"""["']([^"'\n]*)["']""", source) for word in text.split()
    }
    if len(quoted & names) < FEWEST:
        return set()
    return set(_owners(ast.parse(source), "the module", names))


def _owners(node: ast.AST, owner: str, names: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        owner = node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        owner = ast.unparse(target)
    if isinstance(node, (*_CONTAINERS, ast.Constant)) and len(_names_in(node, names)) >= FEWEST:
        yield owner
        return
    for child in ast.iter_child_nodes(node):
        yield from _owners(child, owner, names)


def _names_in(node: ast.AST, names: frozenset[str]) -> set[str]:
    """Names in a literal and what it is made of; of a call those among its own arguments."""
    if isinstance(node, ast.Constant):
        return _words(node.value, names) if isinstance(node.value, str) else set()
    if isinstance(node, ast.Call):
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        parts: list[ast.AST] = [part for part in arguments if not isinstance(part, ast.Call)]
    else:
        parts = list(ast.iter_child_nodes(node)) if isinstance(node, (*_CONTAINERS, ast.Starred)) else []
    return {name for part in parts for name in _names_in(part, names)}


def _words(text: str, names: frozenset[str]) -> set[str]:
    """A text that is a name, or one that is split into names; prose has other words too."""
    if text in names:
        return {text}
    words = text.split() if len(text) > 8 else [text]
    known = {word for word in (one.removeprefix("ttnn.") for one in words) if word in names}
    return known if 3 * len(known) >= 2 * len(set(words)) else set()


def _holds_names(path: Path, names: frozenset[str]) -> bool:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    words = set(re.findall(r"[a-z][a-z0-9_.]*", text))
    return len({word for word in words if "_" in word and word in names}) >= FEWEST
