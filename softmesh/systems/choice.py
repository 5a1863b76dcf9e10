"""Which machine this process has: what `use_system` said, else what the environment says, else none.

None means the elastic machine. Readers of files and catalogues load when a machine is really chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from softmesh.errors import ArgumentError, MeshError, SoftmeshWarning, did_you_mean
from softmesh.lenience import warn_or_raise

if TYPE_CHECKING:
    from softmesh.systems.machine import Machine

_Made = TypeVar("_Made")

ELASTIC = "elastic"

SYSTEM = "SOFTMESH_SYSTEM"
DOWN = "SOFTMESH_DOWN"
MOCK_DESCRIPTOR = "TT_METAL_MOCK_CLUSTER_DESC_PATH"
VISIBLE = "TT_VISIBLE_DEVICES"
# Set by the launcher: the mock descriptors of all hosts of the job, and this process's own host where it has a name.
MOCK_HOSTS = "SOFTMESH_MOCK_HOSTS"
HOST = "SOFTMESH_HOST"


class _Wish(NamedTuple):
    """Everything that decides; equal wishes have one answer."""

    in_program: Machine | str | None
    down_in_program: tuple[str, ...]
    system: str
    mock_descriptor: str
    mock_hosts: str
    host: str
    down: str
    visible: str


_in_program: tuple[Machine | str | None, tuple[str, ...]] = None, ()
_answer: tuple[_Wish, Machine | None] | None = None


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
    wish = _wish(*chosen)
    # A mistake in the program's own words shows at the caller's line, and then nothing has changed.
    answer = None if system is None else (wish, _machine(wish))
    _in_program, _answer = chosen, answer


def chosen_machine(*, whole: bool = False) -> Machine | None:
    """The machine, the same object as long as nobody says otherwise; None: the elastic one.

    `whole` leaves TT_VISIBLE_DEVICES aside: processes that share a machine see it through their bindings.
    """
    global _answer
    wish = _wish(*_in_program)
    if whole:
        wish = wish._replace(visible="")
    if _answer is None or _answer[0] != wish:
        _answer = wish, _machine(wish)
    return _answer[1]


def _wish(system: Machine | str | None, down: tuple[str, ...]) -> _Wish:
    said = os.environ.get
    visible = said(VISIBLE, "")
    if system is not None:
        return _Wish(system, down, "", "", "", "", "", visible)
    mock = said(MOCK_DESCRIPTOR, "")
    host = said(HOST, "") or os.path.basename(mock)
    return _Wish(None, (), said(SYSTEM, ""), mock, said(MOCK_HOSTS, ""), host, said(DOWN, ""), visible)


def _machine(wish: _Wish) -> Machine | None:
    whole = _whole_machine(wish)
    if whole is None:
        if wish.down_in_program or wish.down.strip():
            raise MeshError(
                f"{f'{DOWN}={wish.down}' if wish.down else 'use_system'}: the elastic machine has no chips or "
                f"links of its own to be down. Choose a machine too, for example {SYSTEM}=T3000."
            )
        return None
    machine = _broken(whole, wish)
    if not wish.visible.strip():
        return machine
    from softmesh.systems.visible import restricted

    return restricted(machine, wish.visible, _host_among(machine, wish.host))


def _whole_machine(wish: _Wish) -> Machine | None:
    if wish.in_program is not None:
        return _named(wish.in_program) if isinstance(wish.in_program, str) else _checked(wish.in_program)
    if wish.mock_descriptor:
        _warn_where_two_are_named(wish)
        return _blaming(MOCK_DESCRIPTOR, wish.mock_descriptor, lambda own: _mock(own, wish.mock_hosts))
    return _blaming(SYSTEM, wish.system, _named)


def _mock(own: str, hosts: str) -> Machine:
    """The host of one file; with those of the other ranks where this process is one of them."""
    from softmesh.systems.cluster_descriptor import load_cluster, load_hosts

    files = hosts.split(os.pathsep)
    return load_hosts(files) if own in files else load_cluster(own)


def own_host(machine: Machine) -> str:
    """The host of the machine that this process runs on, as far as it was told; else the first."""
    return _host_among(machine, _wish(*_in_program).host) or machine.hosts[0]


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
    from softmesh.systems.catalogue import load

    return load(spec)


def _checked(system: object) -> Machine:
    from softmesh.systems.machine import Machine

    if not isinstance(system, Machine):
        raise ArgumentError(
            f"use_system takes the name of a system, a Machine or None, not {type(system).__name__}"
        )
    return system


def _warn_where_two_are_named(wish: _Wish) -> None:
    if wish.system.strip() not in ("", wish.mock_descriptor):
        warn_or_raise(
            f"{MOCK_DESCRIPTOR} and {SYSTEM}={wish.system} name two machines; the descriptor "
            f"{wish.mock_descriptor} is used. Unset one of them.",
            SoftmeshWarning,
            MeshError,
        )


def _broken(machine: Machine, wish: _Wish) -> Machine:
    specs = [spec.strip() for spec in wish.down.split(",") if spec.strip()]
    if not specs and not wish.down_in_program:
        return machine
    from softmesh.systems.breakage import with_down

    if wish.down_in_program:
        return with_down(machine, wish.down_in_program)
    return _blaming(DOWN, wish.down, lambda _: with_down(machine, specs))


def _blaming(variable: str, value: str, make: Callable[[str], _Made]) -> _Made:
    """An error on the way names the variable it came from."""
    try:
        return make(value)
    except MeshError as error:
        raise MeshError(f"{variable}={value}: {error}") from error
