"""Strict and lenient mode: SOFTMESH_STRICT turns warnings into errors; `lenient()` allows uneven shards."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from softmesh.agreed_variables import agreed, switch
from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError, SoftmeshWarning

_WARNED: dict[str, dict[Any, Any]] = {}  # of each file, as Python's warnings keep it
DOUBT_HEARERS: list[Callable[[str, type[SoftmeshWarning]], None]] = []  # told of doubts in every mode
STRICT = agreed("SOFTMESH_STRICT", meaning=switch)
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
    return os.environ.get(STRICT, "0") not in ("", "0")


def warn_or_raise(
    message: str, warning: type[SoftmeshWarning], error: type[MeshError], at: CallSite | None = None
) -> None:
    """A warning at the user's line, told once there as Python's own are; under SOFTMESH_STRICT=1 an error.

    `at` is that line where the program is at another one by now.
    """
    if is_strict():
        raise error(f"{message} [{at or user_call_site()}]")
    warn(message, warning, at)


def doubts_are_heard() -> bool:
    return bool(DOUBT_HEARERS) or is_strict()


def doubt(message: str, warning: type[SoftmeshWarning], at: CallSite | None = None) -> None:
    """A warning that is told in strict mode only: right programs may do the same."""
    for hear in DOUBT_HEARERS:
        hear(message, warning)
    if is_strict():
        warn(message, warning, at)


def warn(message: str, warning: type[SoftmeshWarning], at: CallSite | None = None) -> None:
    """At the user's line, told once there as Python's own are; in strict mode too."""
    site = at or user_call_site()
    told = _WARNED.setdefault(site.file, {})
    warnings.warn_explicit(message, warning, site.file, site.line, registry=told)
