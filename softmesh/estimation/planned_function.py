"""Finds what of a file is to be planned, and reads its arguments from a command line."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from softmesh.errors import ArgumentError, did_you_mean
from softmesh.estimation.whole_program import WholeProgram
from softmesh.planner.capture import DEVICE_NAMES
from softmesh.program_start import check_program, output_to_stderr


@dataclass(frozen=True)
class Planned:
    """What a file has to be planned: a function or a torch module, and what it is called with."""

    function: Callable[..., Any] | torch.nn.Module
    inputs: dict[str, Any]


def planned_in(file: str, args: Sequence[str], system: str) -> Planned:
    """FILE:NAME has it by name. FILE alone is its one function of a device; without any it is run as a whole."""
    path, _, name = file.partition(":")
    if not os.path.isfile(path):
        raise ArgumentError(f"There is no file {path}.")
    check_program(path, as_module=False)
    name = name or _function_of_a_device(Path(path), args) or ""
    if not name:
        return Planned(WholeProgram(path, args, system), {})
    with output_to_stderr():
        module = _loaded(Path(path))
    own = {key: value for key, value in vars(module).items() if _is_own(value, module) and not key.startswith("_")}
    if name not in own:
        raise ArgumentError(f"{path} has no function or torch module {name!r}.{did_you_mean(name, list(own))}")
    found = own[name]
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        found, args = _made(found, args)
    if isinstance(found, torch.nn.Module):
        return Planned(found, argument_values(found.forward, args, name, are_tensors=True))
    return Planned(found, argument_values(found, args, name))


def _is_own(value: Any, module: ModuleType) -> bool:
    """A function, class or callable value of this file, and not one that it imports."""
    if inspect.isroutine(value) or isinstance(value, type):
        return getattr(value, "__module__", None) == module.__name__
    return callable(value)


def _made(kind: type[torch.nn.Module], args: Sequence[str]) -> tuple[torch.nn.Module, list[str]]:
    """The module, of those arguments that its class takes, and the other arguments."""
    names = set(inspect.signature(kind).parameters)
    own = [text for text in args if text.partition("=")[0] in names]
    return kind(**argument_values(kind, own, kind.__name__)), [text for text in args if text not in own]


def _function_of_a_device(path: Path, args: Sequence[str]) -> str | None:
    """The one function at the top of a file that takes a device, and that nothing else in it calls.

    What only `if __name__ == "__main__"` calls is such a function, as it is not called where the file is imported; a
    program calls it if it needs what is not among `args`.
    """
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise ArgumentError(f"{path}{_line_of(error)}: {error.msg}") from None
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    called = {
        word
        for statement in tree.body
        if not _is_main_guard(statement)
        for word in _words_in(statement)
        if word != getattr(statement, "name", None)
    }
    is_program = any(map(_is_main_guard, tree.body))
    given = {text.partition("=")[0] for text in args} | set(DEVICE_NAMES)
    names = [
        one.name
        for one in functions
        if _parameters(one) & set(DEVICE_NAMES) and one.name not in called and not one.name.startswith("_")
        if not (is_program and _needed(one) - given)
    ]
    if len(names) > 1:
        raise ArgumentError(
            f"Which function of {path} is to be planned? Of a device it has: {', '.join(names)}. Write {path}:NAME."
        )
    return names[0] if names else None


def _line_of(error: SyntaxError) -> str:
    return "" if error.lineno is None else f":{error.lineno}"


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in _words_in(statement.test)


def _words_in(node: ast.AST) -> Iterator[str]:
    return (one.id for one in ast.walk(node) if isinstance(one, ast.Name))


def _parameters(function: ast.FunctionDef) -> set[str]:
    given = function.args
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def _needed(function: ast.FunctionDef) -> set[str]:
    """Its parameters without a default."""
    given = function.args
    ordered = [*given.posonlyargs, *given.args]
    needed = ordered[: len(ordered) - len(given.defaults)]
    needed += [one for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return {one.arg for one in needed}


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
        raise ArgumentError(f"{path}{_line_of(error)}: {error.msg}") from None
    return module


def argument_values(
    function: Callable[..., Any], args: Sequence[str], called: str, *, are_tensors: bool = False
) -> dict[str, Any]:
    """`args` are written name=value. Those of a torch module `are_tensors`, of which shapes are told."""
    parameters = inspect.signature(function).parameters.values()
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    names = [one.name for one in parameters if one.name not in DEVICE_NAMES and one.kind not in several]
    found = {}
    for text in args:
        name, equals, value = text.partition("=")
        if not equals or (name not in names and not takes_any):
            takes = ", ".join(f"{one}=..." for one in names) or "nothing"
            raise ArgumentError(f"{called} takes {takes}; got {text!r}.{did_you_mean(name, names)}")
        found[name] = _tensor_of(text, value) if are_tensors or _SHAPE_AND_DTYPE.fullmatch(value) else _literal(value)
    needed = [
        one.name for one in parameters if one.name in names and one.default is one.empty and one.name not in found
    ]
    if needed:
        wanted = ", ".join(f"{name}={'1x32:int64' if are_tensors else '...'}" for name in needed)
        how = "shapes of its inputs" if are_tensors else "give it, or the function a default"
        raise ArgumentError(f"{called} needs {wanted}: {how}.")
    return found


_SHAPE_AND_DTYPE = re.compile(r"(\d+(?:x\d+)*):([a-z]+\d*)")
_SHAPE = re.compile(r"(\d+(?:x\d+)*)(?::(\w+))?")


def _tensor_of(text: str, value: str) -> torch.Tensor:
    """Zeros of a shape, float32 where no dtype is told: `1x32x512`, `1x32:int64`."""
    told = _SHAPE.fullmatch(value)
    if told is None:
        raise ArgumentError(f"an input of torch is written as x=1x32x512 or tokens=1x32:int64, got {text!r}.")
    dtype = getattr(torch, told[2] or "float32", None)
    if not isinstance(dtype, torch.dtype):
        raise ArgumentError(f"{text!r}: torch has no dtype {told[2]!r}.")
    try:
        return torch.zeros((), dtype=dtype).expand([int(n) for n in told[1].split("x")])
    except (OverflowError, RuntimeError, TypeError, ValueError):
        raise ArgumentError(f"{text!r}: torch has no tensor of this shape.") from None


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
