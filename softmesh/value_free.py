"""Runs programs without values: while `without_values` is on, large torch tensors are shapes only, and hold zeros.

A large tensor is one number that is repeated without end (all strides are 0), so it takes no memory and can still be
read, printed and compared. What would compute one, or compute with one, is asked for its shape and nothing more; small
tensors (indices, positions, page tables) are computed as ever. It holds for the whole process: for our ops, and for
what a program does in plain torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

LARGE = 1 << 14  # elements
_FEW = 1 << 6  # elements: what has no more makes nothing large, unless it is told a size
_SIZED = ("repeat", "new_", "_like", "arange", "linspace", "tile", "one_hot", "eye", "tril_indices", "triu_indices")
_MOST_FORMS = 1 << 14  # that are remembered
_META = torch.device("meta")
_RANDOM = (torch.ops.aten.randn.default, torch.ops.aten.rand.default)

is_on = False


@contextmanager
def without_values() -> Iterator[None]:
    """Nothing large is computed in the block."""
    global is_on
    before, is_on = is_on, True
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what is small gains nothing from more, and waits for them where cores are busy
    try:
        with _ShapesOnly():
            yield
    finally:
        is_on = before
        torch.set_num_threads(threads)


def is_value_free(data: torch.Tensor) -> bool:
    """Whether nobody computes the values of a tensor of this size."""
    return is_on and data.numel() >= LARGE


def computed_once(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, for runs that repeat it without values.

    Where all that it makes is large, it is made once. Where all is small, nobody looks for what is large within.
    """
    known: list[Any] = []
    is_small = False

    def again(*given: Any) -> Any:
        nonlocal is_small
        if not is_on:
            return call(*given)
        if known:
            return known[0]
        if is_small and _most(given) < LARGE:
            with _disable_current_modes():
                return call(*given)
        made = call(*given)
        sizes = [one.numel() if isinstance(one, torch.Tensor) else -1 for one in _results(made)]
        if min(sizes, default=-1) >= LARGE:
            known.append(made)
        is_small = min(sizes, default=-1) >= 0 and max(sizes) < LARGE
        return made

    return again


def _results(made: Any) -> tuple[Any, ...]:
    return tuple(made) if isinstance(made, tuple | list) else (made,)


class _Facts(NamedTuple):
    """Of one of torch's functions."""

    writes: bool
    is_view: bool
    is_sized: bool  # told how large its result is
    of_zeros: Callable[..., Any] | None  # what it finds in zeros, where it looks at values


def _of_small_values(func: Any, args: tuple[Any, ...], named: dict[str, Any], writes: bool) -> Any:
    try:
        return func(*args, **named)
    except RuntimeError:
        if not (writes and any(map(_is_one_number, _tensors((args, tuple(named.values())))))):
            raise
        return _left_as_it_is(func._schema, args, named)  # to a small part of something large


class _ShapesOnly(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self._forms: dict[tuple[Any, ...], Any] = {}
        self._facts: dict[Any, _Facts] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and torch's compiler takes seconds to load

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        facts = self._facts.get(func) or self._learn(func)
        most = _most(args)
        if named:
            most = max(most, _most(tuple(named.values())))
        if most < LARGE and (facts.writes or (0 <= most <= _FEW and not facts.is_sized)):
            return _of_small_values(func, args, named, facts.writes)
        if facts.is_view:
            try:
                return func(*args, **named)
            except RuntimeError:  # of other bytes: their strides do not allow it
                return tree_map(_emptied, _form_of(func, args, named))
        if facts.writes:
            return _left_as_it_is(func._schema, args, named)
        if most >= LARGE and facts.of_zeros is not None:
            return facts.of_zeros(*args, **named)
        form = self._form(func, args, named)
        made = func(*args, **named) if form is None else form  # what depends on values has no form
        if most < LARGE and all(one.numel() < LARGE for one in _tensors((made,))):
            return func(*args, **named) if form is not None else made
        return _emptied(made) if isinstance(made, torch.Tensor) else tree_map(_emptied, made)

    def _learn(self, func: Any) -> _Facts:
        schema = func._schema
        is_sized = any(word in schema.name for word in _SIZED)
        known = self._facts[func] = _Facts(schema.is_mutable, _is_view(schema), is_sized, _OF_ZEROS.get(schema.name))
        return known

    def _form(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """As `_form_of`; a program asks for the same ones again and again."""
        key = (func, _key(args), tuple(named), _key(tuple(named.values())))
        try:
            known = self._forms.get(key)
        except TypeError:  # an argument cannot be hashed
            return _form_of(func, args, named)
        if known is None:
            known = _form_of(func, args, named)
            if len(self._forms) < _MOST_FORMS:
                self._forms[key] = known
        return known


def _most(values: tuple[Any, ...] | list[Any]) -> int:
    """The elements of the largest tensor among them; -1 without any."""
    most = -1
    for value in values:
        if isinstance(value, torch.Tensor):
            most = max(most, value.numel())
        elif value.__class__ is list or value.__class__ is tuple:
            most = max(most, _most(value))
    return most


def _tensors(values: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(tuple(value))


def _is_one_number(tensor: torch.Tensor) -> bool:
    """Whether it has several elements in one place of memory, as a part of a large tensor does."""
    return any(n > 1 and stride == 0 for n, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """By which calls are known to give the same form: 1, 1.0 and True are equal, and not the same argument."""
    return tuple(
        (value.shape, value.stride(), value.dtype)
        if isinstance(value, torch.Tensor)
        else _key(tuple(value))
        if isinstance(value, tuple | list)
        else (type(value), value)
        for value in values
    )


def _is_view(schema: Any) -> bool:
    """Whether all results lie in the memory of an argument, and nothing is written."""
    returns = schema.returns
    return bool(returns) and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)


def _left_as_it_is(schema: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A write: what it returns of its arguments. A small one that something large is written to becomes zeros."""
    written = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.append(args[place] if place < len(args) else named.get(argument.name))
    for one in _tensors(tuple(written)):
        if one.numel() < LARGE and not _is_one_number(one):
            one.zero_()
    if not schema.returns:
        return None
    return written[0] if len(schema.returns) == 1 else tuple(written)


def _form_of(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The results on torch's device without memory; None where they depend on values."""
    if func in _RANDOM:  # as torch makes them there, they need its compiler, which takes seconds to load
        return torch.empty(args[0], dtype=named.get("dtype"), device=_META)
    moved_args, moved = tree_map(_nowhere, (args, named))
    if "device" in moved or not any(True for _ in _tensors((args, tuple(named.values())))):
        moved["device"] = _META
    moved.pop("pin_memory", None)
    try:
        return func(*moved_args, **moved)
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def _nowhere(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, _strides(value), dtype=value.dtype, device=_META)
    if isinstance(value, torch.device):
        return _META
    return None if isinstance(value, torch.Generator) else value


def _strides(value: torch.Tensor) -> tuple[int, ...]:
    """As a tensor with values has them: ours have none, and a kernel may ask for a layout that it can take."""
    if value.numel() >= LARGE and not any(value.stride()):
        return torch.empty(value.shape, device=_META).stride()
    return value.stride()


def _emptied(result: Any) -> Any:
    if not isinstance(result, torch.Tensor):
        return result
    if result.numel() < LARGE:
        return torch.zeros(result.shape, dtype=result.dtype)
    return torch.zeros((), dtype=result.dtype).expand(result.shape)


# What looks at values, and what it finds in zeros without reading them one by one.
_OF_ZEROS: dict[str, Callable[..., Any]] = {
    "aten::nonzero": lambda data: torch.zeros(0, data.dim(), dtype=torch.int64),
    "aten::masked_select": lambda data, mask: torch.zeros(0, dtype=data.dtype),
    "aten::allclose": lambda one, other, *_, **__: True,
    "aten::equal": lambda one, other: one.shape == other.shape,
}
