"""The look that TT-NN's enums share."""

from __future__ import annotations

from enum import Enum, EnumMeta


class _NativeEnumMeta(EnumMeta):
    """Gives an enum the table of its members that bindings keep: `{name: (member, doc)}`."""


# Named so in the native bindings; written inside a class, Python would mangle it.
setattr(
    _NativeEnumMeta,
    "__entries",
    property(lambda kind: {name: (member, None) for name, member in kind.__members__.items()}),
)


class NativeEnum(Enum, metaclass=_NativeEnumMeta):
    """An enum that prints as `Topology.Ring` both ways and hashes by identity.

    Members are singletons, so identity is enough, and it skips the Python-level `Enum.__hash__`.
    """

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__

    @property
    def cpp_name(self) -> str:
        """As C++ writes it, and with it the texts that TT-NN's native layer prints: `Topology::Ring`."""
        return f"{type(self).__name__}::{self.name}"
