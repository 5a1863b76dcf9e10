"""What happens when a memory is full: SOFTMESH_MEMORY."""

from __future__ import annotations

import os
from enum import Enum

from softmesh.errors import ArgumentValueError, did_you_mean

VARIABLE = "SOFTMESH_MEMORY"


class MemoryPolicy(Enum):
    OFF = "off"  # nothing is counted; addresses are numbers without a meaning
    TRACK = "track"  # a full memory is told once, and programs go on
    ENFORCE = "enforce"  # a full memory is the error it is on a card


def chosen_policy() -> MemoryPolicy:
    """What the environment says; read whenever a mesh is opened."""
    choice = os.environ.get(VARIABLE) or MemoryPolicy.ENFORCE.value
    known = [policy.value for policy in MemoryPolicy]
    if choice not in known:
        raise ArgumentValueError(
            f"{VARIABLE}={choice[:20]} is not one of {', '.join(known)}.{did_you_mean(choice[:20], known)}"
        )
    return MemoryPolicy(choice)
