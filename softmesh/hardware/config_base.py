"""The base class of configuration values: keyword fields, value equality, TT-NN's conversions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, cast

from softmesh.arguments import described
from softmesh.cores import CoreCoord
from softmesh.errors import ArgumentError, did_you_mean
from softmesh.hardware.activation import UnaryWithParam
from softmesh.hardware.enums import NativeEnum

Self = TypeVar("Self", bound="HardwareConfig")


class HardwareConfig:
    """The base of dataclasses that steer hardware; softmesh takes them and computes the same without.

    Fields are given by keyword and stay writable. Each is converted by its declared type, at any time:
    a pair becomes a CoreCoord, a UnaryOpType a UnaryWithParam. The hash is that of the values, so that
    a config can be a cache key: alter it before it is one, not after.
    """

    __slots__ = ()

    def __new__(cls: type[Self], *args: object, **given: object) -> Self:
        if not is_dataclass(cls):
            raise ArgumentError(f"__init__(): {cls.__name__} is the base of several kinds; make one of these")
        known = cls._converters()
        if args:
            raise ArgumentError(
                f"__init__(): incompatible function arguments. {cls.__name__} takes keywords only: {', '.join(known)}"
            )
        for name in given:
            if name not in known:
                raise ArgumentError(
                    "__init__(): incompatible function arguments. "
                    f"{cls.__name__} has no field {name!r}.{did_you_mean(name, known)}"
                )
        return super().__new__(cls)

    def __setattr__(self, name: str, value: object) -> None:
        convert = self._converters().get(name)
        if convert is not None:
            try:
                value = convert(value)
            except TypeError as error:
                raise ArgumentError(
                    "__init__(): incompatible function arguments. "
                    f"{type(self).__name__}.{name} cannot be {described(value)}: {error}"
                ) from None
        super().__setattr__(name, value)

    def native_text(self, separator: str = ",", words: tuple[str, str] = ("0", "1")) -> str:
        """As TT-NN's native layer writes it; `words` are those for False and True."""
        shown = [field.name for field in fields(cast(Any, self)) if field.repr]
        values = [f"{name}={_native(getattr(self, name), words)}" for name in shown]
        return f"{type(self).__name__}({separator.join(values)})"

    @classmethod
    @cache
    def _converters(cls) -> dict[str, Callable[[Any], object] | None]:
        """Field name -> conversion, or None where a field takes its value as it is."""
        return {field.name: _CONVERSIONS.get(str(field.type)) for field in fields(cast("type[Any]", cls))}


def _native(value: object, words: tuple[str, str]) -> str:
    if value is None:
        return "std::nullopt"
    if isinstance(value, bool):
        return words[value]
    return value.cpp_name if isinstance(value, NativeEnum) else str(value)


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("it is True or False")
    return value


def _int(value: object) -> int:
    if isinstance(value, float):
        raise TypeError("it is a whole number; divide with //")
    return operator.index(value)  # type: ignore[arg-type]


def _optional(convert: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda value: None if value is None else convert(value)


_CONVERSIONS: dict[str, Callable[[Any], object]] = {
    "bool": _bool,
    "bool | None": _optional(_bool),
    "int": _int,
    "int | None": _optional(_int),
    "tuple[int, ...]": lambda values: tuple(map(_int, values)),
    "CoreCoord": CoreCoord.of,
    "UnaryWithParam | None": _optional(UnaryWithParam.of),
}
