"""Fork server: a process that has loaded torch, and of which the ranks of a job are forks.

Loading torch takes longer than the rest of a start.

    python fork_server.py LISTENER LINE

are the file descriptors of a socket at which clients in place of ranks connect (`fork_client.py`), and of a pipe that
closes when the launcher has gone. Run by its path: nothing of softmesh is loaded here, so a rank imports it in its
own environment. A fork ends with its client, and its client with it, in the same way.
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
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import ModuleType
from typing import Any

_LONGEST_REQUEST = 1 << 24  # bytes
_SECONDS_TO_REQUEST = 10.0
_RECEIVED_AT_ONCE = 1 << 20  # bytes
_MOST_VISITORS = 256
_MOST_FRAMES = 50
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


class ForkRequest:
    """What a client asks for: `python argv` in its surroundings and with its streams."""

    def __init__(self, text: bytes, streams: list[int]) -> None:
        said: dict[str, Any] = json.loads(text)
        self.argv = _texts(said["argv"])
        self.environ: dict[str, str] = dict(
            zip(_texts(list(said["environ"])), _texts(list(said["environ"].values())), strict=True)
        )
        self.folder = _texts([said["folder"]])[0]
        self.mask = _numbers([said["mask"]])[0]
        self.cores = _numbers(said["cores"])
        self.streams = streams

    def can_be_served(self) -> bool:
        own = dict(os.environ)
        names = [name for name in {*own, *self.environ} if own.get(name) != self.environ.get(name)]
        return len(self.streams) == len(_STREAMS) and not any(name.startswith(_READ_AT_LOADING) for name in names)


def _texts(values: list[Any]) -> list[str]:
    if not all(isinstance(value, str) and "\0" not in value for value in values) or not values:
        raise ValueError
    return values


def _numbers(values: list[Any]) -> list[int]:
    if not all(type(value) is int and 0 <= value < 1 << 16 for value in values) or not values:
        raise ValueError
    return values


class Visitor:
    """A connection that has not asked for anything yet: what came of its request so far."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.came = time.monotonic()
        self.text = bytearray()
        self.streams: list[int] = []

    def receive(self) -> ForkRequest | None:
        """Its request, once it is complete; an exception where it can become none."""
        try:
            text, streams, _, _ = socket.recv_fds(self.line, _RECEIVED_AT_ONCE, len(_STREAMS))
        except BlockingIOError:
            return None
        self.streams += streams
        self.text += text
        if not text or len(self.streams) > len(_STREAMS):
            raise ValueError
        if len(self.text) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self.text)[0]
        if end > _LONGEST_REQUEST or len(self.text) > end:
            raise ValueError
        return ForkRequest(bytes(self.text[_LENGTH.size :]), self.streams) if len(self.text) == end else None

    def close_streams(self) -> None:
        for stream in self.streams:
            os.close(stream)
        self.streams = []


class ForkServer:
    """No visitor is waited for, and none can hold up or end what was made for others."""

    def __init__(self, listener: socket.socket, line: int) -> None:
        self._listener, self._line = listener, line
        listener.setblocking(False)
        self._ready = selectors.DefaultSelector()
        self._ready.register(listener, selectors.EVENT_READ, self._accept)
        self._ready.register(line, selectors.EVENT_READ, self._close)
        self._visitors: dict[int, Visitor] = {}  # by their file descriptors, the oldest first
        self._clients: dict[int, socket.socket] = {}  # by the process that was made for each
        self._request: ForkRequest | None = None
        self._is_open = True

    def serve(self) -> ForkRequest | None:
        """What this process, a copy, is to run; None for the one that all were copied from, at its end."""
        while self._is_open or self._clients:
            for key, _ in self._ready.select(_SECONDS_TO_REQUEST if self._visitors else None):
                key.data()
                if self._request is not None:
                    return self._request
            self._dismiss_late_visitors()
        return None

    def _accept(self) -> None:
        try:
            line, _ = self._listener.accept()
        except OSError:  # gone again, or the listener was closed just now, or too many are here
            self._dismiss_oldest_visitor()
            return
        if _user_of(line) != os.getuid():
            line.close()
            return
        if len(self._visitors) >= _MOST_VISITORS:
            self._dismiss_oldest_visitor()
        line.setblocking(False)
        visitor = self._visitors[line.fileno()] = Visitor(line)
        self._ready.register(line, selectors.EVENT_READ, lambda: self._receive(visitor))
        self._receive(visitor)  # who has a request sends it at once

    def _receive(self, visitor: Visitor) -> None:
        if self._visitors.get(visitor.line.fileno()) is not visitor:
            return
        try:
            request = visitor.receive()
            if request is None:
                return
            process = os.fork() if request.can_be_served() else None
        except Exception:  # whatever came, it is the trouble of who sent it
            self._dismiss(visitor)
            return
        if process is None:
            self._dismiss(visitor)
        elif process == 0:
            visitor.line.close()
            self._close_inherited()
            _become_rank(request)
            self._request = request
        else:
            self._made(process, visitor)

    def _made(self, process: int, visitor: Visitor) -> None:
        del self._visitors[visitor.line.fileno()]
        self._ready.unregister(visitor.line)
        visitor.close_streams()
        try:
            self._watch_process(process, visitor.line)
        except OSError:  # of too many open files
            _kill(process)
            visitor.line.close()

    def _dismiss(self, visitor: Visitor) -> None:
        del self._visitors[visitor.line.fileno()]
        self._ready.unregister(visitor.line)
        visitor.close_streams()
        visitor.line.close()

    def _dismiss_oldest_visitor(self) -> None:
        if self._visitors:
            self._dismiss(next(iter(self._visitors.values())))

    def _dismiss_late_visitors(self) -> None:
        due = time.monotonic() - _SECONDS_TO_REQUEST
        for visitor in [visitor for visitor in self._visitors.values() if visitor.came <= due]:
            self._dismiss(visitor)

    def _watch_process(self, process: int, client: socket.socket) -> None:
        end = os.pidfd_open(process)
        self._clients[process] = client
        self._ready.register(end, selectors.EVENT_READ, lambda: self._process_ended(process, end))
        self._ready.register(client, selectors.EVENT_READ, lambda: self._client_gone(process))
        _send_number(client, process)

    def _close_inherited(self) -> None:
        """A copy has nothing to do with what the others are for."""
        for key in list(self._ready.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._ready.close()

    def _process_ended(self, process: int, end: int) -> None:
        _, status = os.waitpid(process, 0)
        self._ready.unregister(end)
        os.close(end)
        client = self._clients.pop(process)
        self._ready.unregister(client)
        _send_number(client, status)
        client.close()

    def _client_gone(self, process: int) -> None:
        """Its client says nothing after its request: it has ended."""
        if process in self._clients:
            _kill(process)

    def _close(self) -> None:
        self._is_open = False
        self._ready.unregister(self._line)
        self._ready.unregister(self._listener)
        self._listener.close()
        for visitor in list(self._visitors.values()):
            self._dismiss(visitor)


def _kill(process: int) -> None:
    for kill in (os.killpg, os.kill):  # it leads a group as soon as it runs
        with suppress(OSError):
            kill(process, signal.SIGKILL)


def _send_number(client: socket.socket, number: int) -> None:
    with suppress(OSError):
        client.sendall(b"%d\n" % number)


def _user_of(line: socket.socket) -> int | None:
    try:
        return int(_PEER.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1])
    except OSError:
        return None


def _become_rank(request: ForkRequest) -> None:
    """Become the process that its client is taken for."""
    os.setpgid(0, 0)
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    for stream, given in zip(_STREAMS, request.streams, strict=True):
        os.dup2(given, stream)
    for given in request.streams:
        os.close(given)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
    os.umask(request.mask)
    os.chdir(request.folder)
    os.sched_setaffinity(0, request.cores)
    os.environ.clear()
    os.environ.update(request.environ)
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
    except SystemExit as leaving:
        sys.last_exit = leaving.code, _frames_of(leaving)  # type: ignore[attr-defined]  # for who tells of its end
        raise
    except BaseException as error:
        ours = {__file__, runpy.__file__, "<frozen runpy>"}
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in ours:
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.excepthook(type(error), error, trace)
        sys.exit(_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)


def _frames_of(error: BaseException) -> list[tuple[str, int, str]]:
    """Where it was raised, innermost first."""
    found = []
    trace = error.__traceback__
    while trace is not None:
        found.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_frame.f_code.co_name))
        trace = trace.tb_next
    return found[: -_MOST_FRAMES - 1 : -1]


def main(listener: int, line: int) -> None:
    """Where something fails here, the listener closes, and ranks start on their own."""
    os.close(os.pidfd_open(os.getpid()))  # some containers do not let it be called
    import torch  # noqa: F401

    gc.collect()
    gc.freeze()  # no page of theirs is written to, so copies share them
    request = ForkServer(socket.socket(fileno=listener), line).serve()
    if request is not None:
        run(request.argv)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
