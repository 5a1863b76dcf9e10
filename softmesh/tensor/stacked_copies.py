"""Watches copies of one value that were put side by side on the host, in strict mode: are they told apart again?

Right programs read what all devices share with a composer, too, and take the first rows or compare the copies. So the
result notes how it is used, as a torch tensor, as a numpy array and as a list. If it is dropped, and nobody has cut it,
the program takes the copies for one larger tensor: most often the batch was never split.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np
import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.placement.pieces import stored_index
from softmesh.strictness import doubt
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_CUTS = frozenset(
    (
        *(
            "__getitem__",
            "__iter__",
            "narrow",
            "select",
            "chunk",
            "split",
            "split_with_sizes",
            "tensor_split",
            "array_split",
            "unbind",
        ),
        *("index_select", "take", "gather", "masked_select", "hsplit", "vsplit", "unfold"),
        *("mean", "max", "min", "amax", "amin", "aminmax", "median", "all", "any", "unique"),  # copies change nothing
        *("maximum", "minimum", "logical_and", "logical_or"),  # their reductions are what numpy makes of the same
        *("__reduce_ex__", "__deepcopy__", "__array__"),  # out of sight
    )
)
_COMPARES = ("equal", "allclose", "isclose", "eq", "__eq__", "array_equal")
_SHAPES = ("view", "reshape", "unflatten")
_MERGES = (*_SHAPES, "flatten", "ravel")
_PRODUCTS = ("matmul", "__matmul__", "mm", "bmm", "linear", "dot")  # whose other factor is a weight, most often
_SHOWS = ("__repr__", "__str__", "__format__")
_JOINS = ("cat", "concat", "concatenate", "hstack", "vstack", "row_stack", "column_stack")
_DIVIDES = ("div", "div_", "true_divide", "__floordiv__", "floor_divide", "divide")
_ARRAY_METHODS = ("argmax", "argmin", "argsort", "mean", "max", "min", "all", "any", "sum", "std", "var", "dot", "take")
Piece = tuple[object, tuple[int, ...]]  # a token of the memory, and the place of a piece in it
_MADE_WHOLE: weakref.WeakSet[Storage] = weakref.WeakSet()
_HOST_PIECES: weakref.WeakKeyDictionary[Storage, Piece] = weakref.WeakKeyDictionary()
_TOKENS: weakref.WeakKeyDictionary[Storage, object] = weakref.WeakKeyDictionary()


class _Use:
    """The uses of so many copies along a dim of this `extent`."""

    def __init__(self, extent: int, copies: int, text: str, is_told_unused: bool = True) -> None:
        self.extent, self.copies = extent, copies
        self._seen = {"cut": False, "away": not is_told_unused}
        weakref.finalize(self, _tell, self._seen, text, user_call_site())

    def cut(self) -> None:
        self._seen["cut"] = True

    def leave(self) -> None:
        """Note that they are where not every use is seen."""
        self._seen["away"] = True

    def take_whole(self) -> None:
        self._seen["away"] = False

    def is_mean(self, divisor: object) -> bool:
        """True if a sum over the copies is divided by their number, or by that of all rows."""
        return isinstance(divisor, int | float) and divisor >= self.copies and divisor % self.copies == 0


_AGGREGATES: weakref.WeakKeyDictionary[Storage, _Use] = weakref.WeakKeyDictionary()


def _tell(seen: dict[str, bool], text: str, site: CallSite) -> None:
    if not (seen["cut"] or seen["away"]):
        doubt(text, at=site)


class WatchedTensor(torch.Tensor):
    """A tensor on the host that holds several copies (`use`), or one device's copy of what others hold (`piece`).

    `is_reduced`: it was made of all copies, and they no longer lie side by side in it.
    """

    use: _Use | None = None
    piece: Piece | None = None
    is_reduced = False

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return copy.deepcopy(taken_in(self), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:  # what is saved is a plain tensor
        return taken_in(self).__reduce_ex__(protocol)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func.__name__ in _SHOWS:
                for one in args:
                    _whole(one)
                return func(*map(plain, args), **(kwargs or {}))
            return _watch_call(func.__name__, args, kwargs or {}, func(*args, **(kwargs or {})))


class WatchedArray(np.ndarray):
    """A watched tensor's numpy array; uses in C are not seen."""

    use: _Use | None = None
    piece: Piece | None = None
    is_reduced = False

    def __array_finalize__(self, source: Any) -> None:
        self.use, self.piece = getattr(source, "use", None), getattr(source, "piece", None)
        self.is_reduced = getattr(source, "is_reduced", False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        called = getattr(ufunc, method)(*map(plain, inputs), **{key: plain(value) for key, value in kwargs.items()})
        return _watch_call(ufunc.__name__, inputs, kwargs, called)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        called = func(*map(plain, args), **{key: plain(value) for key, value in kwargs.items()})
        return _watch_call(func.__name__, args, kwargs, called)

    def __getitem__(self, key: Any) -> Any:
        return _watch_call("__getitem__", (self,), {}, plain(self)[key])

    def __iter__(self) -> Any:
        return iter(taken_in(self))

    def __len__(self) -> int:
        return len(_whole(self))

    def __reduce__(self) -> Any:
        return taken_in(self).__reduce__()

    def reshape(self, *shape: Any, **order: Any) -> Any:
        return _watch_call("reshape", (self,), {}, plain(self).reshape(*shape, **order))

    def tolist(self) -> Any:
        return _watch_call("tolist", (self,), {}, plain(self).tolist())

    @property  # type: ignore[misc]
    def shape(self) -> Any:
        return _whole(self).shape


def _array_method(name: str) -> Callable[..., Any]:
    def method(self: WatchedArray, *args: Any, **kwargs: Any) -> Any:
        return _watch_call(name, (self, *args), kwargs, getattr(plain(self), name)(*args, **kwargs))

    return method


for _name in _ARRAY_METHODS:
    setattr(WatchedArray, _name, _array_method(_name))


class _WatchedList(list[Any]):
    """A watched tensor's rows. Who goes through them one by one may compare them."""

    use: _Use

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        self.use.cut()
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[Any]:
        self.use.cut()
        return super().__iter__()

    def __eq__(self, other: object) -> bool:
        self.use.cut()
        return super().__eq__(other)

    def __len__(self) -> int:
        self.use.take_whole()
        return super().__len__()

    def __repr__(self) -> str:
        self.use.take_whole()
        return repr(list(super().__iter__()))

    def __reduce__(self) -> Any:
        self.use.cut()
        return list, (list(super().__iter__()),)


class _WatchedNumber(float):
    """A number that was made of all copies."""

    use: _Use

    def __truediv__(self, divisor: float) -> float:
        if self.use.is_mean(divisor):
            self.use.cut()
        return super().__truediv__(divisor)


_Watched = WatchedTensor | WatchedArray


def _watch_call(name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Any:
    """Note what a call does to the copies among its arguments; its result, watched where it is made of them."""
    given = list(_values([*args, *kwargs.values()]))
    watched = [one for one in given if isinstance(one, _Watched)]
    if name in _JOINS:
        return _joined(result, watched, len(given))
    for one in watched:
        _note(name, one, given, args, result)
    if not watched:
        return result
    for other in watched[1:]:  # their copies lie where those of the first do
        if other.use is not None:
            other.use.cut()
    return _like(name, watched[0], result)


def _values(given: Sequence[Any]) -> Iterator[Any]:
    for value in given:
        if isinstance(value, torch.Tensor | np.ndarray):
            yield value
        elif isinstance(value, list | tuple):
            yield from _values(list.__iter__(value) if isinstance(value, list) else value)  # type: ignore[arg-type]


def _note(name: str, one: _Watched, given: Sequence[Any], args: Sequence[Any], result: Any) -> None:
    use, shape = one.use, plain(one).shape
    if use is None:
        return
    if one.is_reduced:
        is_cut = name in _DIVIDES and len(args) > 1 and use.is_mean(args[1])
    elif name in (*_CUTS, *_COMPARES):
        is_cut = True
    elif name in _SHAPES:
        made = result.shape
        is_cut = list(made).count(use.extent) < list(shape).count(use.extent)
        is_cut = is_cut and (len(made) > len(shape) or use.copies in made)
    else:
        others = [plain(other).shape for other in given if not isinstance(other, _Watched)]
        is_cut = name not in _PRODUCTS and any(use.extent in other or (other and other == shape) for other in others)
    if is_cut:
        use.cut()
    use.take_whole()


def _like(name: str, one: _Watched, result: Any) -> Any:
    """The result, watched too where it has all rows or is made of them."""
    if isinstance(result, tuple) and not isinstance(result, torch.Size):
        return type(result)([_like(name, one, item) for item in result])
    if name in ("item", "tolist") and isinstance(result, float | list) and one.use is not None:
        return _out_of_torch(result, one.use)
    if not isinstance(result, torch.Tensor | np.ndarray):
        return result
    if name == "numpy" and one.use is not None:
        one.use.leave()
    if one.use is not None:
        is_reduced = one.is_reduced or not (one.use.extent in result.shape or name in _MERGES)
        return _watched(result, one.use, is_reduced=is_reduced)
    return _watched(result, piece=one.piece) if one.piece is not None and result.shape == plain(one).shape else result


def _out_of_torch(value: float | list[Any], use: _Use) -> float | list[Any]:
    made: Any = _WatchedNumber(value) if isinstance(value, float) else _WatchedList(value)
    made.use = use
    if isinstance(value, list):
        use.leave()
    return made


def _watched(values: Any, use: _Use | None = None, piece: Piece | None = None, is_reduced: bool = False) -> Any:
    is_tensor = isinstance(values, torch.Tensor)
    made = plain(values).as_subclass(WatchedTensor) if is_tensor else plain(values).view(WatchedArray)
    made.use, made.piece, made.is_reduced = use, piece, is_reduced
    return made


def _joined(result: Any, watched: Sequence[_Watched], count: int) -> Any:
    """Pieces of several devices, put side by side: some may be copies of others."""
    pieces = [one.piece for one in watched if one.piece is not None]
    if len(pieces) < count or len(set(pieces)) == len(pieces):
        return result
    extents = [(n, own) for n, own in zip(result.shape, plain(watched[0]).shape, strict=False) if n != own]
    if len(extents) != 1 or extents[0][1] == 1:
        return result  # of extent 1 they are stacked
    kind = "torch.cat" if isinstance(result, torch.Tensor) else "numpy.concatenate"
    return stacked(result, extents[0][0], len(pieces) // len(set(pieces)), kind)


def _use_of(shape: Sequence[int], extent: int, copies: int, doing: str, is_told_unused: bool = True) -> _Use:
    text = (
        f"{doing}: {copies} devices hold the same, and the result {list(shape)} has it {copies} times side by "
        "side; nobody has cut it. Was the mapper forgotten, as in ttnn.from_torch(..., mesh_mapper="
        "ttnn.ShardTensorToMesh(mesh_device, dim))? Of copies read one: ttnn.to_torch(ttnn.get_device_tensors(t)[0])."
    )
    return _Use(extent, copies, text, is_told_unused)


def stacked(result: Any, extent: int, copies: int, doing: str, is_told_unused: bool = True) -> Any:
    """The result, watched: it holds everything so many times along a dim of this extent."""
    return _watched(result, _use_of(result.shape, extent, copies, doing, is_told_unused))


def note_made_whole(operands: Sequence[Tensor], made: Sequence[Tensor], is_collective: bool) -> None:
    """Note results that are the same on several devices because a collective made them so."""
    if is_collective or any(one.storage in _MADE_WHOLE for one in operands):
        _MADE_WHOLE.update(one.storage for one in made)


def is_made_whole(tensor: Tensor) -> bool:
    return tensor.storage in _MADE_WHOLE


def piece_of(result: torch.Tensor, shard: Tensor) -> torch.Tensor:
    """The result, which is what `shard` holds, watched if other devices have copies of it."""
    dist, positions = shard.storage.dist, shard.shard_positions
    if shard.storage in _HOST_PIECES:
        return _watched(result, piece=_HOST_PIECES[shard.storage])
    if positions is None or not any(own == 1 < n for own, n in zip(dist.extents, dist.grid, strict=True)):
        return result
    token = _TOKENS.setdefault(shard.storage, object())
    return _watched(result, piece=(token, stored_index(dist, positions[0])))


def note_host_pieces(whole: Tensor, pieces: Sequence[Tensor]) -> None:
    """Note what the pieces of a host tensor are copies of."""
    dist, token = whole.storage.dist, object()
    if any(own == 1 < n for own, n in zip(dist.extents, dist.grid, strict=True)):
        _HOST_PIECES.update((one.storage, (token, stored_index(dist, at))) for at, one in enumerate(pieces))


def note_aggregate(whole: Tensor, copied: tuple[int, int] | None) -> None:
    """Note that a host tensor holds everything so many times along a dim."""
    if copied is not None:
        times, dim = copied
        _AGGREGATES[whole.storage] = _use_of(whole.shape, whole.shape[dim], times, "aggregate_tensor")


def of_aggregate(result: torch.Tensor, whole: Tensor) -> torch.Tensor:
    """The result, which is what an aggregate holds, watched if copies lie side by side there."""
    use = _AGGREGATES.get(whole.storage)
    return result if use is None else _watched(result, use)


def plain(value: Any) -> Any:
    """The value itself, of a watched one as torch or numpy has it, also in lists."""
    if isinstance(value, WatchedTensor):
        with torch._C.DisableTorchFunctionSubclass():
            return value.as_subclass(torch.Tensor)
    if isinstance(value, WatchedArray):
        return value.view(np.ndarray)
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def _whole(value: Any) -> Any:
    """As `plain`, of what is looked at as a whole."""
    if isinstance(value, _Watched) and value.use is not None:
        value.use.take_whole()
    return plain(value)


def taken_in(value: Any) -> Any:
    """As `plain`, of what goes out of sight, or back to a mesh: by what mapper it is split again is not followed."""
    if isinstance(value, _Watched) and value.use is not None:
        value.use.cut()
    return plain(value)


def aggregate_taken_in(whole: Tensor) -> None:
    """Note that a host tensor goes back to a mesh."""
    use = _AGGREGATES.get(whole.storage)
    if use is not None:
        use.cut()
