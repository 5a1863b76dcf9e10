"""The unified form of an op that has no description of its own, and of the namespaces ops stand in."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from softmesh import distributed
from softmesh.collectives.collective import is_collective
from softmesh.dispatch.operation import Operation
from softmesh.distributed.derived import describe
from softmesh.distributed.elementwise import shape_of
from softmesh.distributed.unified import Unified
from softmesh.errors import NotModelled


class Names:
    """`softmesh.distributed.experimental`: the ops of `ttnn.experimental`, each in its unified form."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> object:
        found = unified(getattr(self._module, name))
        setattr(self, name, found)
        return found


@cache
def _unified(plain: str) -> Unified:
    """The one unified form of a plain op, under whatever name it is asked for."""
    short = plain.rpartition(".")[2]
    own = getattr(distributed, short) if short in distributed.DESCRIBED else None
    is_it = isinstance(own, Unified) and own.plain.name == plain
    return own if is_it else Unified(plain, describe, shape_of)  # type: ignore[return-value]


def unified(found: object) -> object:
    """What `softmesh.distributed.X` is for `ttnn.X`: a plain op plans its communication, anything else is itself."""
    if isinstance(found, Operation) and is_collective(found):
        raise NotModelled(
            f"softmesh.distributed has no {found.name!r}: unified ops insert the collectives they need. "
            f"ttnn.{found.name} is the collective itself; softmesh.distributed.redistribute(x, placements) changes a "
            "placement."
        )
    if isinstance(found, Operation):
        return _unified(found.name)
    if isinstance(found, ModuleType) and any(isinstance(held, Operation) for held in vars(found).values()):
        return Names(found)
    return found
