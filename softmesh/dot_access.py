"""`ttnn.dot_access`: dictionaries whose entries are attributes too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softmesh.errors import did_you_mean


class DotAccessDict(dict[Any, Any]):
    """`d["a"]["b"]` is `d.a.b`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{self._no_such(name)}.{did_you_mean(name, map(str, self))}") from None

    def _no_such(self, name: str) -> str:
        return f"there is no entry {name!r}"

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]


def make_dot_access_dict(
    dictionary: Mapping[Any, Any], *, ignore_types: tuple[type, ...] | None = None
) -> DotAccessDict:
    """A nest of dictionaries made accessible by dots, all the way down; values of `ignore_types` stay as they are."""
    kept = ignore_types or ()

    def made(value: Any) -> Any:
        if isinstance(value, Mapping) and not isinstance(value, kept):
            return make_dot_access_dict(value, ignore_types=ignore_types)
        return value

    return DotAccessDict({key: made(value) for key, value in dictionary.items()})
