"""Keeps strangers from an mpirun whose ranks are all here, where the library that does so was not compiled.

That one (native/loopback.c) lets mpirun listen on the loopback alone, and answer none but its job. Without it mpirun
listens on every interface, and waits in its one thread for the end of whatever a connection begins to say. Here the
launcher, from which mpirun descends, asks the kernel for copies of mpirun's sockets: nothing reaches those that listen
to other machines, and connections that are not of the job are shut down.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from softmesh.processes.launcher.job_sweeper import members_of

_GET_DESCRIPTOR = 438  # the number of the system call pidfd_getfd, on every kind of machine
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
_TABLES = ("tcp", "tcp6")
_LISTENS, _CONNECTED = "0A", "01"
_OF_A_SOCKET = "socket:["
_SILENCE_SECONDS = 300
_MOST_LOOKS, _SECONDS_BETWEEN_LOOKS = 50, 0.002  # a signal to the launcher waits as long


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


_KEEP_NOTHING = _Instruction(code=0x06, value=0)  # return 0: of no packet is any byte kept


class _Socket(NamedTuple):
    """A line of the kernel's table: addresses as it writes them."""

    own: str
    other: str
    state: str
    inode: str

    @property
    def port(self) -> str:
        return self.own.rpartition(":")[2]

    @property
    def is_everywhere(self) -> bool:
        """On every interface, not the loopback alone; a connection to it has the address of one of them."""
        return set(self.own.rpartition(":")[0]) == {"0"}


class DoorKeeper:
    """Looks at the doors again and again; `sessions` are those of the job, the last of them that of mpirun."""

    def __init__(self, sessions: Sequence[int]) -> None:
        self._sessions = sessions
        self._known: set[str] = set()  # sockets of mpirun that need no second look

    def look(self) -> None:
        """As long as strangers stand at the doors: mpirun turns to the next one when one is dismissed."""
        with suppress(OSError):  # mpirun has ended, or the kernel does not give its sockets away
            for _ in range(_MOST_LOOKS if self._sessions else 0):
                if not self._has_dismissed(self._sessions[-1]):
                    return
                time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _has_dismissed(self, mpirun: int) -> bool:
        own = _sockets_of(mpirun)
        if own.keys() <= self._known:
            return False
        dismissed = False
        for table in _TABLES:
            lines = _lines(table)
            mine = [line for line in lines if line.inode in own and line.inode not in self._known]
            self._close_to_others(mpirun, own, [line for line in mine if line.state == _LISTENS])
            doors = {line.port for line in lines if line.state == _LISTENS and line.inode in own}
            asked = [line for line in mine if line.port in doors and line.state == _CONNECTED]
            for stranger in self._strangers(lines, asked):
                dismissed = True
                with _copied(mpirun, own[stranger.inode]) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
        return dismissed

    def _close_to_others(self, mpirun: int, own: dict[str, int], listeners: Iterable[_Socket]) -> None:
        for listener in listeners:
            program = _Filter(1, ctypes.pointer(_KEEP_NOTHING))
            with _copied(mpirun, own[listener.inode]) as door:
                if listener.is_everywhere:
                    door.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, bytes(program))
                else:  # who says nothing is not seen by mpirun
                    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _SILENCE_SECONDS)
            self._known.add(listener.inode)

    def _strangers(self, lines: Sequence[_Socket], asked: Sequence[_Socket]) -> list[_Socket]:
        """The connections of which nobody of the job has the other end."""
        ends = {(line.own, line.other): line.inode for line in lines if line.state == _CONNECTED}
        ours = {inode for process in members_of(self._sessions) for inode in _sockets_of(process)} if asked else set()
        self._known.update(line.inode for line in asked if ends.get((line.other, line.own)) in ours)
        return [line for line in asked if line.inode not in self._known]


def _copied(process: int, descriptor: int) -> socket.socket:
    """A copy of a socket that another process has open."""
    handle = os.pidfd_open(process)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(_GET_DESCRIPTOR, handle, descriptor, 0)
    finally:
        os.close(handle)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return socket.socket(fileno=copy)


def _sockets_of(process: int) -> dict[str, int]:
    """The sockets that a process has open, by their inodes, with its descriptor of each."""
    found = {}
    with suppress(OSError):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                target = os.readlink(entry)
                if target.startswith(_OF_A_SOCKET):
                    found[target[len(_OF_A_SOCKET) : -1]] = int(entry.name)
    return found


def _lines(table: str) -> list[_Socket]:
    text = Path(f"/proc/net/{table}").read_text()
    return [_Socket(words[1], words[2], words[3], words[9]) for words in map(str.split, text.splitlines()[1:])]
