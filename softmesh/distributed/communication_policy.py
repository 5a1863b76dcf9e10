"""The policy for implicit communication: unified ops may insert any (`allow`), `warn` of each, or none (`forbid`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from softmesh.errors import ArgumentValueError, MeshError, SoftmeshWarning, did_you_mean
from softmesh.strictness import warn_or_raise

POLICIES = ("allow", "warn", "forbid")
_CURRENT: ContextVar[str] = ContextVar("softmesh_implicit_communication", default="allow")


class ImplicitCommunication(SoftmeshWarning):
    """A unified op inserts a collective."""


class ImplicitCommunicationError(MeshError):
    """A unified op would insert a collective, and that is forbidden."""


def checked_policy(given: str | None) -> str:
    """What is given, or what holds here."""
    if given is None:
        return _CURRENT.get()
    if given not in POLICIES:
        raise ArgumentValueError(
            f"implicit={given!r} is not one of {', '.join(map(repr, POLICIES))}.{did_you_mean(str(given), POLICIES)}"
        )
    return given


@contextmanager
def implicit(policy: str) -> Iterator[None]:
    """Within the block, unified ops may insert this much."""
    token = _CURRENT.set(checked_policy(policy))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def apply(policy: str, said: str) -> None:
    """`said` tells what is about to be inserted, and how the program could say it itself."""
    if policy == "forbid":
        raise ImplicitCommunicationError(said)
    if policy == "warn":
        warn_or_raise(said, ImplicitCommunication, ImplicitCommunicationError)
