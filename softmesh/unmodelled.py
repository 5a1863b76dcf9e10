"""Stand-ins for names that TT-NN has and softmesh does not: they can be imported and named, and raise when used.

So a program or a whole tree of tests is not lost for one name that it imports and never reaches. Which names those are
stands in `ttnn_names.txt`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, NoReturn

from softmesh.errors import NotModelled

_USES = (
    "__bool__ __call__ __contains__ __delitem__ __enter__ __float__ __getitem__ __index__ __int__ __iter__ __len__ "
    "__next__ __setitem__ __sub__ __add__ __mul__ __and__ __lt__ __le__ __gt__ __ge__"
)


class Name(NamedTuple):
    """`kind` is that of TT-NN's object: module, class, enum, function, op, const, alias; `of` what an alias names."""

    kind: str
    of: str = ""


@cache
def ttnn_names() -> dict[str, Name]:
    """Every name below `ttnn`, dotted."""
    text = files("softmesh").joinpath("ttnn_names.txt").read_text(encoding="utf-8")
    entries = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {name: Name(*rest) for name, *rest in entries}


class StandIn(type):
    """The class of stand-ins. They are classes, so that annotations, `isinstance` and subclasses can name them."""

    ttnn_name: str
    reason: str

    def __getattr__(cls, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(f"{cls.ttnn_name!r} has no attribute {name!r}")
        return stand_in(f"{cls.ttnn_name}.{name}", cls.reason)

    def __repr__(cls) -> str:
        return f"<{cls.ttnn_name}, which softmesh does not model>"

    def refuse(cls) -> NoReturn:
        raise NotModelled(f"softmesh has no {cls.ttnn_name!r}: {cls.reason}.")


def _refusing(name: str) -> Any:
    def use(cls: StandIn, *args: Any, **kwargs: Any) -> Any:
        cls.refuse()

    use.__name__ = name
    return use


for _name in _USES.split():
    setattr(StandIn, _name, _refusing(_name))


@cache
def stand_in(name: str, reason: str) -> StandIn:
    """The one for `ttnn.x.y`, given as `x.y`."""
    short = name.rpartition(".")[2]
    return StandIn(short, (), {"ttnn_name": name, "reason": reason, "__module__": "ttnn"})
