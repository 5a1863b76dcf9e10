"""A process that has loaded torch, and of which ranks are copies: loading it takes longer than the rest of a start.

    python warm.py DOOR LINE

are the file descriptors of a socket at which stand-ins of ranks call (`stand_in.py`), and of a pipe that closes when
the launcher has gone. Run by its path: nothing of softmesh is loaded here, so a rank imports it in its own
environment. A copy ends with its stand-in, and its stand-in with it, in the same way.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import runpy
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import ModuleType
from typing import Any

_LONGEST_ORDER = 1 << 24  # bytes
_SECONDS_TO_ORDER = 10.0
_LENGTH = struct.Struct("<I")
_PEER = struct.Struct("iII")  # process, user, group
_STREAMS = (0, 1, 2)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_INTERRUPTED = 130
# Read when Python, torch or the C library are loaded: a rank that has others of these must load them itself.
_READ_AT_LOADING = (
    "PYTHON", "LD_PRELOAD", "LD_BIND", "LD_AUDIT", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NPY_", "NUMPY_",
    "TORCH", "PYTORCH", "ATEN_", "DNNL_", "ONEDNN_", "MALLOC_", "GLIBC_", "LANG", "LC_ALL", "TZ",
)  # fmt: skip


class Order:
    """What a stand-in asks for: `python argv` in its surroundings and with its streams."""

    def __init__(self, text: bytes, streams: list[int]) -> None:
        said: dict[str, Any] = json.loads(text)
        self.argv: list[str] = said["argv"]
        self.environ: dict[str, str] = said["environ"]
        self.folder: str = said["folder"]
        self.mask: int = said["mask"]
        self.cores: list[int] = said["cores"]
        self.streams = streams

    def can_be_met(self) -> bool:
        own = dict(os.environ)
        names = [name for name in {*own, *self.environ} if own.get(name) != self.environ.get(name)]
        return len(self.streams) == len(_STREAMS) and not any(
            name.startswith(_READ_AT_LOADING) for name in names
        )


class Warm:
    def __init__(self, door: socket.socket, line: int) -> None:
        self._door, self._line = door, line
        self._ready = selectors.DefaultSelector()
        self._ready.register(door, selectors.EVENT_READ, self._admit)
        self._ready.register(line, selectors.EVENT_READ, self._close)
        self._callers: dict[int, socket.socket] = {}  # by the process that was made for each
        self._order: Order | None = None
        self._is_open = True

    def serve(self) -> Order | None:
        """What this process, a copy, is to run; None for the one that all were copied from, at its end."""
        while self._is_open or self._callers:
            for key, _ in self._ready.select():
                key.data()
                if self._order is not None:
                    return self._order
        return None

    def _admit(self) -> None:
        try:
            caller, _ = self._door.accept()
        except OSError:  # gone again, or the door was closed just now
            return
        try:
            order = _order_of(caller)
            process = os.fork() if order.can_be_met() else None
        except (OSError, ValueError, KeyError, TypeError):
            caller.close()
            return
        if process == 0:
            caller.close()
            self._leave()
            _take_place(order)
            self._order = order
            return
        for stream in order.streams:
            os.close(stream)
        if process is None:
            caller.close()
        else:
            self._look_after(process, caller)

    def _look_after(self, process: int, caller: socket.socket) -> None:
        self._callers[process] = caller
        end = os.pidfd_open(process)
        self._ready.register(end, selectors.EVENT_READ, lambda: self._ended(process, end))
        self._ready.register(caller, selectors.EVENT_READ, lambda: self._abandoned(process))
        _tell(caller, process)

    def _leave(self) -> None:
        """A copy has nothing to do with what the others are for."""
        for key in list(self._ready.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._ready.close()

    def _ended(self, process: int, end: int) -> None:
        _, status = os.waitpid(process, 0)
        self._ready.unregister(end)
        os.close(end)
        caller = self._callers.pop(process)
        self._ready.unregister(caller)
        _tell(caller, status)
        caller.close()

    def _abandoned(self, process: int) -> None:
        """Its stand-in says nothing after its order: it has ended."""
        if process in self._callers:
            for kill in (os.killpg, os.kill):  # it leads a group as soon as it runs
                with suppress(OSError):
                    kill(process, signal.SIGKILL)

    def _close(self) -> None:
        self._is_open = False
        self._ready.unregister(self._line)
        self._ready.unregister(self._door)
        self._door.close()


def _tell(caller: socket.socket, number: int) -> None:
    with suppress(OSError):
        caller.sendall(b"%d\n" % number)


def _order_of(caller: socket.socket) -> Order:
    caller.settimeout(_SECONDS_TO_ORDER)
    _, user, _ = _PEER.unpack(caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if user != os.getuid():
        raise PermissionError
    head, streams, _, _ = socket.recv_fds(caller, _LENGTH.size, len(_STREAMS))
    length = _LENGTH.unpack(head)[0]
    if length > _LONGEST_ORDER:
        raise ValueError
    text = bytearray()
    while len(text) < length:
        part = caller.recv(length - len(text))
        if not part:
            raise ValueError
        text += part
    return Order(bytes(text), streams)


def _take_place(order: Order) -> None:
    """Become the process that its stand-in is taken for."""
    os.setpgid(0, 0)
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    for stream, given in zip(_STREAMS, order.streams, strict=True):
        os.dup2(given, stream)
    for given in order.streams:
        os.close(given)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
    os.umask(order.mask)
    os.chdir(order.folder)
    os.sched_setaffinity(0, order.cores)
    os.environ.clear()
    os.environ.update(order.environ)
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def program_of(argv: list[str]) -> Callable[[], object]:
    """What runs `python argv`, after `sys.argv` and `sys.path` are as that has them."""
    first, rest = argv[0], argv[1:]
    if first == "-m":
        _begin(rest, os.getcwd())
        return lambda: _run_module(rest[0])
    if first == "-c":
        _begin(["-c", *rest[1:]], "")
        return lambda: _run_main(rest[0], "<string>")
    _begin(argv, os.path.dirname(os.path.realpath(first)))
    return lambda: _run_file(os.path.abspath(first))


def _begin(argv: list[str], place: str) -> None:
    sys.argv = argv
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = place


def _run_module(name: str) -> None:
    _new_main()
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # what Python itself calls for -m


def _run_file(path: str) -> None:
    loader = SourceFileLoader("__main__", path)
    _run_main(loader.get_data(path), path, __loader__=loader, __file__=path, __cached__=None)


def _run_main(source: str | bytes, path: str, **names: object) -> None:
    main = _new_main()
    main.__dict__.update(names)
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _new_main() -> ModuleType:
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __loader__=BuiltinImporter, __annotations__={})
    return main


def run(argv: list[str]) -> None:
    """An exception is shown as Python shows it, from the program's first line on."""
    program = program_of(argv)
    try:
        program()
    except SystemExit:
        raise
    except BaseException as error:
        ours = {__file__, runpy.__file__, "<frozen runpy>"}
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in ours:
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.excepthook(type(error), error, trace)
        sys.exit(_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)


def main(door: int, line: int) -> None:
    """Where something fails here, the door closes, and ranks start on their own."""
    os.close(os.pidfd_open(os.getpid()))  # some containers do not let it be called
    import torch  # noqa: F401

    gc.collect()
    gc.freeze()  # no page of theirs is written to, so copies share them
    order = Warm(socket.socket(fileno=door), line).serve()
    if order is not None:
        run(order.argv)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
