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
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import ModuleType
from typing import Any

_LONGEST_REQUEST = 1 << 24  # bytes
_SECONDS_TO_REQUEST = 10.0
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
        self.argv: list[str] = said["argv"]
        self.environ: dict[str, str] = said["environ"]
        self.folder: str = said["folder"]
        self.mask: int = said["mask"]
        self.cores: list[int] = said["cores"]
        self.streams = streams

    def can_be_served(self) -> bool:
        own = dict(os.environ)
        names = [name for name in {*own, *self.environ} if own.get(name) != self.environ.get(name)]
        return len(self.streams) == len(_STREAMS) and not any(name.startswith(_READ_AT_LOADING) for name in names)


class ForkServer:
    def __init__(self, listener: socket.socket, line: int) -> None:
        self._listener, self._line = listener, line
        self._ready = selectors.DefaultSelector()
        self._ready.register(listener, selectors.EVENT_READ, self._accept)
        self._ready.register(line, selectors.EVENT_READ, self._close)
        self._clients: dict[int, socket.socket] = {}  # by the process that was made for each
        self._request: ForkRequest | None = None
        self._is_open = True

    def serve(self) -> ForkRequest | None:
        """What this process, a copy, is to run; None for the one that all were copied from, at its end."""
        while self._is_open or self._clients:
            for key, _ in self._ready.select():
                key.data()
                if self._request is not None:
                    return self._request
        return None

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # gone again, or the listener was closed just now
            return
        try:
            request = _receive_request(client)
            process = os.fork() if request.can_be_served() else None
        except (OSError, ValueError, KeyError, TypeError):
            client.close()
            return
        if process == 0:
            client.close()
            self._close_inherited()
            _become_rank(request)
            self._request = request
            return
        for stream in request.streams:
            os.close(stream)
        if process is None:
            client.close()
        else:
            self._watch_process(process, client)

    def _watch_process(self, process: int, client: socket.socket) -> None:
        self._clients[process] = client
        end = os.pidfd_open(process)
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
            for kill in (os.killpg, os.kill):  # it leads a group as soon as it runs
                with suppress(OSError):
                    kill(process, signal.SIGKILL)

    def _close(self) -> None:
        self._is_open = False
        self._ready.unregister(self._line)
        self._ready.unregister(self._listener)
        self._listener.close()


def _send_number(client: socket.socket, number: int) -> None:
    with suppress(OSError):
        client.sendall(b"%d\n" % number)


def _receive_request(client: socket.socket) -> ForkRequest:
    client.settimeout(_SECONDS_TO_REQUEST)
    _, user, _ = _PEER.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if user != os.getuid():
        raise PermissionError
    head, streams, _, _ = socket.recv_fds(client, _LENGTH.size, len(_STREAMS))
    length = _LENGTH.unpack(head)[0]
    if length > _LONGEST_REQUEST:
        raise ValueError
    text = bytearray()
    while len(text) < length:
        part = client.recv(length - len(text))
        if not part:
            raise ValueError
        text += part
    return ForkRequest(bytes(text), streams)


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
