"""Strict and lenient mode: SOFTMESH_STRICT turns warnings into errors; `lenient()` allows uneven shards."""

from __future__ import annotations

import posix
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from softmesh import epoch
from softmesh.agreed_variables import agreed, switch
from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError, SoftmeshWarning

_WARNED: dict[str, dict[Any, Any]] = {}  # of each file, as Python's warnings keep it
_LISTENERS: list[Callable[[str, type[SoftmeshWarning]], None]] = []  # to what strict mode warns of, in every mode
STRICT = agreed("SOFTMESH_STRICT", meaning=switch).encode()
ENVIRONMENT = posix.environ  # what os.environ reads and writes: a look takes no frame and 30 ns
compiled_under = ENVIRONMENT.get(STRICT)  # the setting that today's compiled calls were made under
LENIENT: ContextVar[bool] = ContextVar("softmesh_lenient", default=False)


@contextmanager
def lenient() -> Iterator[None]:
    """Allow what TT-NN refuses but has one obvious meaning: uneven shards.

    The tail of an uneven split is filled with zeros so that all shards have one shape; the true extent
    is remembered, and composing cuts the filler off again.
    """
    token = LENIENT.set(True)
    try:
        yield
    finally:
        LENIENT.reset(token)


def is_lenient() -> bool:
    return LENIENT.get()


def is_strict() -> bool:
    return ENVIRONMENT.get(STRICT, b"0") not in (b"", b"0")


def note_setting() -> None:
    """Begin an epoch: whoever looks up a compiled call has found the setting changed."""
    global compiled_under
    compiled_under = ENVIRONMENT.get(STRICT)
    epoch.invalidate()


@contextmanager
def listening(listener: Callable[[str, type[SoftmeshWarning]], None]) -> Iterator[None]:
    """Within the block `listener` is given each warning of strict mode, whatever the mode."""
    _LISTENERS.append(listener)
    epoch.invalidate()
    try:
        yield
    finally:
        _LISTENERS.remove(listener)
        epoch.invalidate()


def warn_or_raise(
    message: str,
    warning: type[SoftmeshWarning] = SoftmeshWarning,
    error: type[MeshError] = MeshError,
    at: CallSite | None = None,
) -> None:
    """A warning at the user's line, told once there as Python's own are; under SOFTMESH_STRICT=1 an error.

    `at` is that line where the program is at another one by now.
    """
    if is_strict():
        raise error(f"{message} [{at or user_call_site()}]")
    warn(message, warning, at)


def doubts_are_heard() -> bool:
    return bool(_LISTENERS) or is_strict()


def doubt(message: str, warning: type[SoftmeshWarning] = SoftmeshWarning, at: CallSite | None = None) -> None:
    """A warning that is told in strict mode only: right programs may do the same."""
    for listener in _LISTENERS:
        listener(message, warning)
    if is_strict():
        warn(message, warning, at)


def warn(message: str, warning: type[SoftmeshWarning] = SoftmeshWarning, at: CallSite | None = None) -> None:
    """At the user's line, told once there as Python's own are; in strict mode too."""
    site = at or user_call_site()
    told = _WARNED.setdefault(site.file, {})
    warnings.warn_explicit(message, warning, site.file, site.line, registry=told)
