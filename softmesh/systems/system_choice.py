"""Chooses the machine of this process: what `use_system` said, else what the environment says, else none.

None means the elastic machine. The answer is cached until a variable or `use_system` changes it. Readers of files and
named systems load lazily, when a machine is really chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from softmesh.agreed_variables import agreed
from softmesh.errors import ArgumentError, MeshError, did_you_mean
from softmesh.strictness import warn_or_raise

if TYPE_CHECKING:
    from softmesh.systems.machine import Machine

_Made = TypeVar("_Made")

ELASTIC = "elastic"

SYSTEM = agreed("SOFTMESH_SYSTEM")
DOWN = agreed("SOFTMESH_DOWN")
MOCK_DESCRIPTOR = "TT_METAL_MOCK_CLUSTER_DESC_PATH"
VISIBLE = "TT_VISIBLE_DEVICES"
# Set by the launcher: the mock descriptors of all hosts of the job, and this process's own host where it has a name.
MOCK_HOSTS = "SOFTMESH_MOCK_HOSTS"
HOST = "SOFTMESH_HOST"


class _SystemRequest(NamedTuple):
    """Everything that decides; equal requests have one answer."""

    in_program: Machine | str | None
    down_in_program: tuple[str, ...]
    system: str
    mock_descriptor: str
    mock_hosts: str
    host: str
    down: str
    visible: str


_in_program: tuple[Machine | str | None, tuple[str, ...]] = None, ()
_answer: tuple[_SystemRequest, Machine | None] | None = None


def use_system(system: Machine | str | None, down: Sequence[str] = ()) -> None:
    """Choose the machine in the program; it goes before every variable that names or breaks one.

    >>> use_system("T3000", down=["link:0-1"])
    >>> use_system("elastic")         # as many chips as asked for, whatever the environment says
    >>> use_system(None)              # back to what the environment says
    """
    global _in_program, _answer
    if isinstance(down, str):
        raise ArgumentError(f"use_system: down is a list of breakages, for example [{down!r}]")
    if system is None and down:
        raise MeshError("use_system: down needs a machine to break; name it in the same call")
    chosen = system, tuple(down)
    request = _system_request(*chosen)
    # A mistake in the program's own words shows at the caller's line, and then nothing has changed.
    answer = None if system is None else (request, _machine(request))
    _in_program, _answer = chosen, answer


def choose_in_environment(system: str | None, down: Sequence[str]) -> None:
    """What the options --system and --down of a command say, for this process and for those that it starts."""
    if system is not None:
        os.environ[SYSTEM] = system
        os.environ.pop(MOCK_DESCRIPTOR, None)  # what is said here wins
    if down:
        os.environ[DOWN] = ",".join(down)
    try:
        chosen_machine()
    except MeshError as error:
        told = str(error).replace(f"{SYSTEM}={system}: ", "--system: ") if system is not None else str(error)
        raise MeshError(told.replace(f"{DOWN}={','.join(down)}: ", "--down ") if down else told) from error


def chosen_machine(*, whole: bool = False) -> Machine | None:
    """The machine, the same object as long as nobody says otherwise; None: the elastic one.

    `whole` leaves TT_VISIBLE_DEVICES aside: processes that share a machine see it through their bindings.
    """
    global _answer
    request = _system_request(*_in_program)
    if whole:
        request = request._replace(visible="")
    if _answer is None or _answer[0] != request:
        _answer = request, _machine(request)
    return _answer[1]


def _system_request(system: Machine | str | None, down: tuple[str, ...]) -> _SystemRequest:
    said = os.environ.get
    visible = said(VISIBLE, "")
    if system is not None:
        return _SystemRequest(system, down, "", "", "", "", "", visible)
    mock = said(MOCK_DESCRIPTOR, "")
    host = said(HOST, "") or os.path.basename(mock)
    return _SystemRequest(None, (), said(SYSTEM, ""), mock, said(MOCK_HOSTS, ""), host, said(DOWN, ""), visible)


def _machine(request: _SystemRequest) -> Machine | None:
    whole = _whole_machine(request)
    if whole is None:
        if request.down_in_program or request.down.strip():
            raise MeshError(
                f"{f'{DOWN}={request.down}' if request.down else 'use_system'}: the elastic machine has no chips or "
                f"links of its own to be down. Choose a machine too, for example {SYSTEM}=T3000."
            )
        return None
    machine = _broken(whole, request)
    if not request.visible.strip():
        return machine
    from softmesh.systems.machine_restriction import restricted

    return restricted(machine, request.visible, _host_among(machine, request.host))


def _whole_machine(request: _SystemRequest) -> Machine | None:
    if request.in_program is not None:
        return _named(request.in_program) if isinstance(request.in_program, str) else _checked(request.in_program)
    if request.mock_descriptor:
        _warn_where_two_are_named(request)
        return _blaming(MOCK_DESCRIPTOR, request.mock_descriptor, lambda own: _mock(own, request.mock_hosts))
    return _blaming(SYSTEM, request.system, _named)


def _mock(own: str, hosts: str) -> Machine:
    """The host of one file; with those of the other ranks where this process is one of them."""
    from softmesh.systems.cluster_descriptor import load_cluster, load_hosts

    files = hosts.split(os.pathsep)
    return load_hosts(files) if own in files else load_cluster(own)


def own_host(machine: Machine) -> str:
    """The host of the machine that this process runs on, as far as it was told; else the first."""
    return _host_among(machine, _system_request(*_in_program).host) or machine.hosts[0]


def _host_among(machine: Machine, name: str) -> str | None:
    if name in machine.hosts:
        return name
    if name and name == os.environ.get(HOST):
        raise MeshError(
            f"{HOST}={name}: {machine.name} has no such host; its hosts: {', '.join(machine.hosts)}."
            f"{did_you_mean(name, machine.hosts)}"
        )
    return None


def _named(spec: str) -> Machine | None:
    if spec.strip().lower() in ("", ELASTIC):
        return None
    from softmesh.systems.named_systems import load

    return load(spec)


def _checked(system: object) -> Machine:
    from softmesh.systems.machine import Machine

    if not isinstance(system, Machine):
        raise ArgumentError(f"use_system takes the name of a system, a Machine or None, not {type(system).__name__}")
    return system


def _warn_where_two_are_named(request: _SystemRequest) -> None:
    if request.system.strip() not in ("", request.mock_descriptor):
        warn_or_raise(
            f"{MOCK_DESCRIPTOR} and {SYSTEM}={request.system} name two machines; the descriptor "
            f"{request.mock_descriptor} is used. Unset one of them.",
        )


def _broken(machine: Machine, request: _SystemRequest) -> Machine:
    specs = [spec.strip() for spec in request.down.split(",") if spec.strip()]
    if not specs and not request.down_in_program:
        return machine
    from softmesh.systems.machine_restriction import with_down

    if request.down_in_program:
        return with_down(machine, request.down_in_program)
    return _blaming(DOWN, request.down, lambda _: with_down(machine, specs))


def _blaming(variable: str, value: str, make: Callable[[str], _Made]) -> _Made:
    """An error on the way names the variable it came from."""
    try:
        return make(value)
    except MeshError as error:
        raise MeshError(f"{variable}={value}: {error}") from error
