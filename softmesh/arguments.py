"""Argument checks at the API's edge: errors name the function, the argument and what it got."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cache
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from weakref import ref

from softmesh.errors import ArgumentError, ArgumentValueError, did_you_mean

_LONGEST_REPR = 60
_LIBRARIES = {"torch": "torch", "numpy": "numpy", "softmesh": "ttnn"}
# Told by their shapes, not by their values; an op's definition sees operands in place of tensors.
_ARRAYS = {"Tensor": "Tensor", "Parameter": "Parameter", "ndarray": "ndarray", "Operand": "Tensor"}
_Kind = TypeVar("_Kind")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def described(value: object) -> str:
    """A value as an error shows it: itself where that is short, else what it is.

    >>> described("2x4"), described(list(range(100)))
    ("'2x4'", 'a list')
    """
    library = _LIBRARIES.get(type(value).__module__.partition(".")[0])
    array = _ARRAYS.get(type(value).__name__)
    if library is not None and array is not None:
        return f"a {library}.{array} {list(getattr(value, 'shape', ()))}"
    if isinstance(value, list | tuple) and any(type(item).__name__ == "Operand" for item in value):
        return "a list with tensors in it"
    try:
        text = repr(value)
    except Exception:  # an error of the value's own would hide ours
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_REPR and "\n" not in text else f"a {type(value).__name__}"


def refused(where: str, cause: str) -> ArgumentError:
    return ArgumentError(f"{where}(): incompatible function arguments: {cause}.")


def checked(where: str, name: str, value: object, kind: type[_Kind], wanted: str) -> _Kind:
    """`value`, known to be of this kind; `wanted` says in words what that is and how to get one."""
    if not isinstance(value, kind):
        raise refused(where, f"{name} must be {wanted}, got {described(value)}")
    return value


def checked_int(where: str, name: str, value: object) -> int:
    """`value` as an int; anything that counts as one will do, but neither bool nor float does."""
    try:
        if not isinstance(value, bool):
            return operator.index(cast(int, value))
    except TypeError:
        pass
    raise refused(where, f"{name} must be an int, got {described(value)}")


def checked_number(where: str, name: str, value: object) -> float:
    """`value`, known to be one number."""
    if not isinstance(value, Real):
        raise refused(where, f"{name} must be a number, got {described(value)}")
    return cast(float, value)


def checked_list(where: str, name: str, values: object, wanted: str) -> list[Any]:
    """`values` as a list of its own; a text is none, and neither is an array without dims."""
    try:
        if isinstance(values, Iterable) and not isinstance(values, str | bytes):
            return list(values)
    except TypeError:  # an array without dims
        pass
    raise refused(where, f"{name} must be a list of {wanted}, got {described(values)}")


def checked_ints(where: str, name: str, values: object) -> list[int]:
    listed = checked_list(where, name, values, "ints")
    return [checked_int(where, f"{name}[{i}]", value) for i, value in enumerate(listed)]


_MOST_ELEMENTS = 1 << 62


def checked_shape(where: str, shape: object) -> list[int]:
    """Sizes of a tensor that can be: none negative, and no more elements than can be counted."""
    sizes = checked_ints(where, "shape", shape)
    if any(n < 0 for n in sizes):
        raise refused(where, f"shape must not be negative, got {sizes}")
    if math.prod(sizes) > _MOST_ELEMENTS:
        raise ArgumentValueError(
            f"{where}: shape {sizes} has more elements than any memory holds. Are its sizes what was meant?"
        )
    return sizes


def checked_all(where: str, name: str, values: object, kinds: tuple[type[_Kind], ...], wanted: str) -> list[_Kind]:
    """`values` as a list, every one of them of one of the kinds."""
    found = checked_list(where, name, values, wanted)
    for i, value in enumerate(found):
        if not isinstance(value, kinds):
            raise refused(where, f"{name}[{i}] must be one of the {wanted}, got {described(value)}")
    return found


KEPT_WEAKLY: set[type] = set()  # kinds of arguments that hold memory of chips: no cache's key may keep it from going


def exact_key(value: object) -> object:
    """The value as part of a cache's key: 1, 1.0 and True, or 0.0 and -0.0, are equal and not the same argument.

    Lists become tuples, with the kinds of their elements, however deep.
    """
    if isinstance(value, list | tuple):
        return type(value), tuple(map(exact_key, value))
    if type(value) in KEPT_WEAKLY:
        return ref(value)
    return type(value), repr(value) if type(value) is float else value


class Kind(NamedTuple):
    """What an argument must be. `each` is the kind of the elements, where a list may be given."""

    fits: Callable[[Any], bool]
    wanted: str
    each: Kind | None = None
    several: str = ""  # in the plural, of a list's elements

    def misfit(self, name: str, value: object) -> str:
        """Why the value does not fit, in words."""
        if self.each is not None and isinstance(value, list | tuple):
            for i, item in enumerate(value):
                if not self.each.fits(item):
                    return self.each.misfit(f"{name}[{i}]", item)
        return f"{name} must be {self.wanted}, got {described(value)}"


def instance_of(kind: type, wanted: str, several: str = "") -> Kind:
    return Kind(lambda value: isinstance(value, kind), wanted, several=several)


def is_whole_number(value: object) -> bool:
    """An int or what counts as one, such as numpy's; a bool does not."""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


# By what an annotation says; packages add their own classes with `name_kind`.
_NAMED_KINDS: dict[object, Kind] = {
    int: Kind(is_whole_number, "an int", several="ints"),
    float: Kind(lambda value: isinstance(value, Real), "a number", several="numbers"),
    bool: instance_of(int, "True or False"),
    str: instance_of(str, "a string"),
    type(None): instance_of(type(None), "None"),
}


def name_kind(kind: type, wanted: str, several: str = "") -> None:
    """How errors speak of an argument that is annotated with this class."""
    _NAMED_KINDS[kind] = instance_of(kind, wanted, several)


def kind_of(hint: Any) -> Kind:
    """The kind that an annotation stands for."""
    if hint in _NAMED_KINDS:
        return _NAMED_KINDS[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = {part: kind_of(part) for part in parts}
        told = [kind.wanted for part, kind in kinds.items() if not (part is int and float in parts)]
        return Kind(lambda value: any(kind.fits(value) for kind in kinds.values()), " or ".join(told))
    if origin in (Sequence, list):
        each = kind_of(parts[0])
        return Kind(
            lambda value: (
                isinstance(value, Sequence)
                and not isinstance(value, str | bytes)
                and all(each.fits(item) for item in value)
            ),
            f"a sequence of {each.several or each.wanted}",
        )
    wanted = f"a ttnn.{getattr(hint, '__name__', hint)}"
    return instance_of(hint, wanted) if isinstance(hint, type) else Kind(lambda value: True, wanted)


@cache
def argument_kind(function: Callable[..., Any], name: str) -> Kind:
    """The kind of one argument. Its annotation is not read before a call gives it: most calls give few."""
    alone = types.SimpleNamespace(__annotations__={name: function.__annotations__[name]}, __wrapped__=function)
    return kind_of(get_type_hints(alone)[name])


def check_kinds(where: str, function: Callable[..., Any], arguments: Mapping[str, object]) -> None:
    """Whether these are what the annotations of the function say."""
    for name, value in arguments.items():
        kind = argument_kind(function, name)
        if not kind.fits(value):
            raise refused(where, f"{name} must be {kind.wanted}, got {described(value)}")


class ArgumentNames:
    """The names of one way to call something: the first ones by position too, some of them required.

    `places` has the place of each name; an alias has that of the name it stands for.
    """

    def __init__(self, names: Sequence[str], positional: int, required: Iterable[str]) -> None:
        self.names = list(names)
        self.positional = positional
        self.required = list(required)
        self.places = {name: at for at, name in enumerate(names)}

    def with_aliases(self, aliases: Mapping[str, str]) -> ArgumentNames:
        """The same, with other names beside its own: `aliases` has for each the one that is meant."""
        other = copy(self)
        other.places = self.places | {name: self.places[meant] for name, meant in aliases.items()}
        return other

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int, Any] | str:
        """The values by place; or, in words, why the call cannot be meant."""
        if len(args) > self.positional:
            known = ", ".join(self.names[: self.positional])
            return f"takes {self.positional} positional arguments ({known}), got {len(args)}; name the others"
        values = dict(enumerate(args))
        for name, value in kwargs.items():
            at = self.places.get(name)
            if at is None:
                return self.unknown(name)
            if at in values:
                is_alias = at >= len(args)
                return (
                    f"one argument is given under two names among {', '.join(kwargs)}"
                    if is_alias
                    else f"argument {name!r} is given twice"
                )
            values[at] = value
        for name in self.required:
            if self.places[name] not in values:
                return f"argument {name!r} is missing"
        return values

    def unknown(self, name: str) -> str:
        return f"it has no argument {name!r}.{did_you_mean(name, self.places)} It takes {', '.join(self.names)}"


def reject_unknown_keywords(function: _Function) -> _Function:
    """An unknown keyword argument is answered with the nearest right spelling."""
    parameters = inspect.signature(function).parameters
    names = ArgumentNames(list(parameters), len(parameters), ())

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.keys() <= parameters.keys():
            wrong = next(name for name in kwargs if name not in parameters)
            raise refused(function.__name__, names.unknown(wrong))
        return function(*args, **kwargs)

    return cast(_Function, call)


def publicly_named(function: _Function) -> _Function:
    """Has its public name where ops have theirs: whoever writes calls down for later asks there."""
    vars(function)["python_fully_qualified_name"] = f"ttnn.{function.__name__}"
    return function


def checked_function(function: _Function, name: str = "") -> _Function:
    """Checked as ops are: names by the signature, kinds by its annotations. Of `name`, if it has another for users."""
    signature, where = inspect.signature(function), name or function.__name__
    parameters = signature.parameters.items()
    others = ["self", *(name for name, p in parameters if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL))]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            known = [name for name in signature.parameters if name != "self"]
            wrong = next((name for name in kwargs if name not in known), "")
            hint = did_you_mean(wrong, known) if wrong else ""
            raise refused(where, f"{error}.{hint} It takes {', '.join(known)}") from None
        check_kinds(where, function, {name: value for name, value in given.items() if name not in others})
        return function(*args, **kwargs)

    return cast(_Function, call)


class ShowsFields:
    """A repr of the public fields, for classes whose constructors are not those of a dataclass."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({fields})"
