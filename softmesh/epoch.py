"""The epoch of compiled calls: a counter that moves on when something changes which all of them take for granted.

A compiled call (see dispatch.call_cache) asks nothing of the world but whether its operands are like those it was
compiled for. That the mesh is open and has these memory pools, that no trace is captured, which programs are loaded,
which fabric and options are set, whether strict mode is on: whoever changes one of these calls `invalidate`, and every
cache of compiled calls starts over at its next use.
"""

from __future__ import annotations

from itertools import count

_numbers = count(1)  # next() is atomic, so that two threads which change something never share a number
current = 0


def invalidate() -> None:
    """What was compiled so far is no longer used."""
    global current
    current = next(_numbers)
