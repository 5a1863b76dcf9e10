"""Types, defaults and calls as the text of a stub."""

from __future__ import annotations

import enum
import keyword
import re
import types
from collections.abc import Iterable
from typing import Any, TypeVar, Union, get_args, get_origin

from softmesh.dispatch.call_form import Argument, CallForm
from softmesh.dispatch.operand import Operand
from softmesh.tensor.tensor import Tensor

_WIDTH = 110
_NAMED: dict[str, Any] = {"Tensor": Tensor, "Any": Any}  # what results are spelled with


class TypeText:
    """Writes types, and notes what a stub must import for them."""

    def __init__(self) -> None:
        self.imports: set[tuple[str, str]] = set()

    def of(self, hint: Any) -> str:
        if isinstance(hint, str):
            for word in re.findall(r"[A-Z]\w+", hint):
                self.of(_NAMED[word]) if word in _NAMED else None
            return hint
        if hint is None or hint is type(None):
            return "None"
        if hint is Ellipsis:
            return "..."
        if hint is Any:
            return self._imported("typing", "Any")
        if isinstance(hint, TypeVar):
            return self.of(hint.__bound__ or object)
        origin, parts = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return self._either(parts)
        if isinstance(hint, list):  # the arguments of a Callable
            return f"[{', '.join(map(self.of, hint))}]"
        if origin is not None:
            return f"{self.of(origin)}[{', '.join(map(self.of, parts))}]"
        if hint is Operand:
            hint = Tensor
        if hint.__module__ == "builtins":
            return str(hint.__name__)
        outermost, _, inner = hint.__qualname__.partition(".")
        return ".".join(filter(None, (self._imported(hint.__module__, outermost), inner)))

    def _either(self, parts: Iterable[Any]) -> str:
        kinds = dict.fromkeys(map(self.of, parts))
        if "float" in kinds:
            kinds.pop("int", None)  # which a float may be
        if wide := next((kind for kind in ("Any", "object") if kind in kinds), None):
            return wide  # which None is, too; Python 3.10 writes it behind every default of None
        is_optional = kinds.pop("None", "no") is None
        return " | ".join((*kinds, *(["None"] if is_optional else [])))

    def _imported(self, module: str, name: str) -> str:
        self.imports.add((module, name))
        return name


def definition(
    name: str, forms: list[CallForm], result: str, doc: str | None, text: TypeText, *decorators: str
) -> list[str]:
    """The lines of one function; several forms are overloads."""
    shown = [way for form in forms for way in form.in_python()]
    lines: list[str] = []
    for at, form in enumerate(shown):
        lines += [*(["@overload"] if len(shown) > 1 else []), *decorators]
        lines += _header(name, form, result, text)
        if doc and at == 0:
            lines += [f'    """{_summary(doc)}"""']
        else:
            lines[-1] += " ..."
    if len(shown) > 1:
        text.imports.add(("typing", "overload"))
    return lines


def _header(name: str, form: CallForm, result: str, text: TypeText) -> list[str]:
    parts = [_parameter(argument, text) for argument in form.positional]
    if form.named and not form.named[0].name.startswith("*"):
        parts.append("*")
    parts += [_parameter(argument, text) for argument in form.named]
    line = f"def {name}({', '.join(parts)}) -> {result}:"
    if len(line) <= _WIDTH:
        return [line]
    together = f"    {', '.join(parts)}"
    inner = [together] if len(together) <= _WIDTH else [f"    {part}," for part in parts]
    return [f"def {name}(", *inner, f") -> {result}:"]


def _parameter(argument: Argument, text: TypeText) -> str:
    if keyword.iskeyword(argument.name):
        raise AssertionError(f"{argument.name} cannot be an argument")
    kind = text.of(argument.type)
    if argument.is_required:
        return f"{argument.name}: {kind}"
    if argument.default is None and kind not in ("object", "Any") and "None" not in kind:
        kind = f"{kind} | None"
    return f"{argument.name}: {kind} = {_default(argument.default)}"


def _default(value: Any) -> str:
    is_plain = isinstance(value, bool | int | float | str | tuple | None) and not isinstance(value, enum.Enum)
    shown = repr(value)
    return shown if is_plain and len(shown) < 20 and "<" not in shown and "inf" not in shown else "..."


def _summary(doc: str) -> str:
    """The first paragraph, on one line."""
    first = " ".join(doc.strip().split("\n\n")[0].split())
    return first.replace("\\", "\\\\").replace('"""', "'''") + (" " if first.endswith('"') else "")
