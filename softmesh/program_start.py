"""Starting a user's program in this process: as `python file.py args` would, with `import ttnn` meaning softmesh."""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from traceback import walk_tb
from types import TracebackType
from typing import TextIO, cast

from softmesh.alias import aliased
from softmesh.errors import MeshError
from softmesh.terminal_text import PrintableStream, printable

# What TT-Metal has as scripts of its repository, and softmesh as commands.
_SCRIPTS = {
    "generate_rank_bindings.py": "softmesh bindings",
    "test_physical_ethernet_link_ping.py": "softmesh ping",
}
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_INTERRUPTED = 130  # as a shell reports a program ended by Ctrl-C
_MOST_BYTES = 64 * 2**20  # of a program's text: Python takes many times as much to read it


def check_program(file: str, as_module: bool) -> None:
    """Refuse a program that is not there, in a sentence about that."""
    if as_module:
        _check_module(file)
    elif not os.path.exists(file):
        instead = _SCRIPTS.get(os.path.basename(file))
        raise MeshError(f"There is no file {file}.{f' Here this is a command: {instead}.' if instead else ''}")
    elif os.path.isdir(file) and not os.path.exists(os.path.join(file, "__main__.py")):
        raise MeshError(f"{file} is a folder without a __main__.py. Name the Python file to run.")
    elif os.path.isfile(file) and os.path.getsize(file) > _MOST_BYTES and not zipfile.is_zipfile(file):
        raise _too_large(file)


def _too_large(file: str) -> MeshError:
    return MeshError(f"{file} is larger than {_MOST_BYTES >> 20} MiB, which no program is; is it the right file?")


def _check_module(name: str) -> None:
    sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    package = name.partition(".")[0]  # what is in it cannot be asked for without importing it
    is_there = package.isidentifier() and importlib.util.find_spec(package) is not None
    sys.path.pop(0)
    if not is_there:
        raise MeshError(f"There is no module {package}: neither in this folder nor installed.")


@contextmanager
def as_program(file: str, args: Sequence[str], as_module: bool) -> Iterator[None]:
    """`import ttnn` means softmesh, also in processes that it starts; `sys.argv` and `sys.path` are as for `python`."""
    argv, path, python_path = sys.argv, list(sys.path), os.environ.get("PYTHONPATH")
    sys.argv = [file, *args]
    launcher = importlib.import_module("softmesh.processes.launcher.rank_environment")
    os.environ["PYTHONPATH"] = launcher.with_ttnn(python_path or "", os.environ)
    sys.path += launcher.ttnn_entries_of(os.environ["PYTHONPATH"])  # which multiprocessing hands to its children
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd() if as_module else os.path.dirname(os.path.realpath(file))
    try:
        with aliased(), _printable_names(file):
            yield
    finally:
        sys.argv, sys.path[:] = argv, path
        os.environ.pop("PYTHONPATH", None)
        os.environ.update({} if python_path is None else {"PYTHONPATH": python_path})


@contextmanager
def _printable_names(*files: str) -> Iterator[None]:
    """Keep names of files from commanding the terminal, where Python's tracebacks and warnings quote them."""
    stderr, paths = sys.stderr, "".join(map(os.path.abspath, files))
    if printable(paths) == paths:
        yield
        return
    ours = sys.stderr = cast(TextIO, PrintableStream(stderr))
    try:
        yield
    finally:
        if sys.stderr is ours:  # the program may have put a stream of its own there
            sys.stderr = stderr


def execute(file: str, as_module: bool) -> None:
    """Run it as `__main__`; an exception is shown, and is the exit code 1."""
    try:
        run_as_main(file, as_module)
    except SystemExit:
        raise
    except BaseException as error:
        sys.exit(shown(error))


def run_as_main(file: str, as_module: bool) -> None:
    if as_module:
        runpy.run_module(file, run_name="__main__", alter_sys=True)
    elif os.path.isfile(file) or os.path.isdir(file):
        runpy.run_path(file, run_name="__main__")
    else:
        code = compile(_streamed(file), file, "exec", dont_inherit=True)
        runpy._run_module_code(code, None, "__main__", script_name=file)  # type: ignore[attr-defined]  # as run_path


def _streamed(file: str) -> bytes:
    """What comes out of a pipe, which may never end."""
    with open(file, "rb") as stream:
        source = stream.read(_MOST_BYTES + 1)
    if len(source) > _MOST_BYTES:
        raise _too_large(file)
    return source


def shown(error: BaseException) -> int:
    """Show what ended a program as Python does, from the program's first line on; the exit code."""
    _drop_our_frames(error)
    with _printable_names(*(frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__))):
        sys.excepthook(type(error), error, error.__traceback__)
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _drop_our_frames(error: BaseException) -> None:
    ours = {runpy.__file__, "<frozen runpy>"}
    trace = error.__traceback__
    while trace is not None and (trace.tb_frame.f_code.co_filename in ours or _is_ours(trace)):
        trace = trace.tb_next
    error.__traceback__ = trace


def _is_ours(trace: TracebackType) -> bool:
    """A frame of what starts programs; a program's own come after it."""
    return trace.tb_frame.f_code.co_filename.startswith(_PACKAGE) and trace.tb_next is not None


@contextmanager
def output_to_stderr() -> Iterator[None]:
    """In the block: what a program prints is not the report."""
    stdout = sys.stdout
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = stdout
