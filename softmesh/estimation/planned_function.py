"""Finds the function of a file that is to be planned, and reads its arguments from a command line."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from softmesh.errors import ArgumentError, did_you_mean
from softmesh.planner.capture import DEVICE_NAMES


def named_function(file: str) -> Callable[..., Any]:
    path, _, name = file.partition(":")
    if not os.path.isfile(path):
        raise ArgumentError(f"There is no file {path}.")
    module = _loaded(Path(path))
    own = {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    }
    if name:
        if name not in own:
            raise ArgumentError(f"{path} has no function {name!r}.{did_you_mean(name, list(own))}")
        return own[name]
    called = {name for one in own.values() for name in _names_in(one.__code__) if name != one.__name__}
    on_device = [
        one
        for one in own.values()
        if set(inspect.signature(one).parameters) & set(DEVICE_NAMES) and one.__name__ not in called
    ]
    if len(on_device) != 1:
        names = ", ".join(one.__name__ for one in on_device) or "none"
        raise ArgumentError(
            f"Which function of {path} is to be planned? Of a device it has: {names}. Write {path}:NAME."
        )
    return on_device[0]


def _names_in(code: CodeType) -> Iterator[str]:
    """What a function speaks of, those within it too."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_in(inner)


def _loaded(path: Path) -> ModuleType:
    """The file as a module, beside which its own modules are found; in it `import ttnn` means softmesh."""
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(f"planned_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ArgumentError(f"{path}:{error.lineno}: {error.msg}") from None
    return module


def argument_values(function: Callable[..., Any], args: Sequence[str]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    names = [one.name for one in parameters if one.name not in DEVICE_NAMES and one.kind not in several]
    found = {}
    for text in args:
        name, equals, value = text.partition("=")
        if not equals or (name not in names and not takes_any):
            takes = ", ".join(f"{one}=..." for one in names) or "nothing"
            raise ArgumentError(f"{function.__name__} takes {takes}; got {text!r}.{did_you_mean(name, names)}")
        found[name] = _literal(value)
    needed = [
        one.name for one in parameters if one.name in names and one.default is one.empty and one.name not in found
    ]
    if needed:
        wanted = ", ".join(f"{name}=..." for name in needed)
        raise ArgumentError(f"{function.__name__} needs {wanted}: give it, or the function a default.")
    return found


def user_line(error: BaseException, file: str) -> str:
    """Where in the planned file an error came from."""
    path = Path(file.partition(":")[0]).resolve()
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path]
    return f" ({path.name}:{lines[-1]})" if lines else ""


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
