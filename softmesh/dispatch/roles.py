"""The role of each argument of an op: whether a call reads what the tensor holds, and what it writes there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class Role(Enum):
    """What a call does with the values of an argument. An op states those that are not READS."""

    READS = "reads"
    WRITES = "writes"  # all of it, whatever it held
    PATCHES = "patches"  # writes some of it; the rest stays as it was
    UPDATES = "updates"  # computes what it writes there from what it held
    RECEIVES = "receives"  # other devices write it as soon as they get there; it serves call after call
    SCRATCH = "scratch"  # neither what it held nor what it holds afterwards means anything
    UNREAD = "unread"  # only its spec counts


READ = frozenset((Role.READS, Role.UPDATES))
WRITTEN = frozenset((Role.WRITES, Role.PATCHES, Role.UPDATES))
WRITTEN_REMOTELY = frozenset((Role.RECEIVES, Role.SCRATCH))  # of an op whose devices exchange values


def take_roles(options: dict[str, Any]) -> dict[str, Role]:
    """Take `reads="stats"`, `updates="cache"` and the like out of the options: the role of each name in them."""
    stated: dict[str, Role] = {}
    for role in Role:
        for name in options.pop(role.value, "").split():
            if name in stated:
                raise AssertionError(f"{name} has two roles: {stated[name].value} and {role.value}")
            stated[name] = role
    return stated


def with_role(roles: Mapping[str, Role], name: str | None, role: Role) -> Mapping[str, Role]:
    """The roles, with this one for `name` unless it has one."""
    return roles if name is None or name in roles else {**roles, name: role}
