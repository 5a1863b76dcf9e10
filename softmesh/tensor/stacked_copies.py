"""Watches copies of one value that were put side by side on the host, in strict mode: are they told apart again?

Right programs read what all devices share with a composer, too, and take the first rows or compare the copies. So the
result is a tensor that notes how it is used. If it is dropped, and nobody has cut it, the program takes the copies for
one larger tensor: most often the batch was never split.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import SoftmeshWarning
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
            "unbind",
        ),
        *("index_select", "take", "gather", "masked_select", "hsplit", "vsplit", "unfold"),
        *("mean", "max", "min", "amax", "amin", "aminmax", "median", "all", "any", "unique"),  # copies change nothing
        *("equal", "allclose", "isclose", "eq", "__eq__"),
        *("numpy", "tolist", "__array__", "__reduce_ex__", "__deepcopy__"),  # out of sight
    )
)
_SHAPES = ("view", "reshape", "unflatten")
_SHOWS = ("__repr__", "__str__", "__format__")
_JOINS = ("cat", "concat", "concatenate", "hstack", "vstack", "row_stack", "column_stack")
Piece = tuple[object, tuple[int, ...]]  # a token of the memory, and the place of a piece in it
_TOKENS: weakref.WeakKeyDictionary[Storage, object] = weakref.WeakKeyDictionary()
_AGGREGATES: weakref.WeakKeyDictionary[Storage, tuple[int, int]] = weakref.WeakKeyDictionary()  # how often, and the dim


class _Use:
    """The uses of copies along a dim of this `extent`."""

    def __init__(self, extent: int, text: str, is_told_unused: bool) -> None:
        self.extent = extent
        self._seen = {"used": is_told_unused, "cut": False}
        weakref.finalize(self, _tell, self._seen, text, user_call_site())

    def note(self, is_cut: bool) -> None:
        self._seen["used"] = True
        self._seen["cut"] |= is_cut


def _tell(seen: dict[str, bool], text: str, site: CallSite) -> None:
    if seen["used"] and not seen["cut"]:
        doubt(text, SoftmeshWarning, site)


class WatchedTensor(torch.Tensor):
    """A tensor on the host that holds several copies (`use`), or one device's copy of what others hold (`piece`)."""

    use: _Use | None = None
    piece: Piece | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return copy.deepcopy(self._out_of_sight(), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:  # what is saved is a plain tensor
        return self._out_of_sight().__reduce_ex__(protocol)

    def _out_of_sight(self) -> torch.Tensor:
        if self.use is not None:
            self.use.note(is_cut=True)
        return plain(self)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.__name__
        given = list(_tensors([*args, *(kwargs or {}).values()]))
        watched = [one for one in given if isinstance(one, cls)]
        with torch._C.DisableTorchFunctionSubclass():
            if name in _SHOWS:
                args = [plain(one) for one in args]
            result = func(*args, **(kwargs or {}))
            if name in _JOINS:
                return _joined(result, watched, len(given))
            for one in watched:
                _note(name, one, given, result)
            return _like(watched[0], result) if len(watched) == 1 and isinstance(result, torch.Tensor) else result


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _note(name: str, one: WatchedTensor, given: Sequence[torch.Tensor], result: Any) -> None:
    use = one.use
    if use is None:
        return
    is_compared = any(not isinstance(other, WatchedTensor) and use.extent in other.shape for other in given)
    is_parted = name in _SHAPES and list(result.shape).count(use.extent) < list(one.shape).count(use.extent)
    use.note(name in _CUTS or is_compared or is_parted)


def _like(one: WatchedTensor, result: torch.Tensor) -> torch.Tensor:
    """The result, watched too where it has all rows."""
    if one.use is not None and one.use.extent in result.shape:
        return _watched(result, one.use)
    return _watched(result, piece=one.piece) if one.piece is not None and result.shape == one.shape else result


def _watched(tensor: torch.Tensor, use: _Use | None = None, piece: Piece | None = None) -> WatchedTensor:
    made = plain(tensor).as_subclass(WatchedTensor)
    made.use, made.piece = use, piece
    return made


def _joined(result: torch.Tensor, watched: Sequence[WatchedTensor], count: int) -> torch.Tensor:
    """Pieces of several devices, put side by side: some may be copies of others."""
    pieces = [one.piece for one in watched if one.piece is not None]
    if len(pieces) < count or len(set(pieces)) == len(pieces):
        return result
    extents = [(n, own) for n, own in zip(result.shape, watched[0].shape, strict=False) if n != own]
    if len(extents) != 1 or extents[0][1] == 1:
        return result  # of extent 1 they are stacked
    return stacked(result, extents[0][0], len(pieces) // len(set(pieces)), "torch.cat")


def stacked(result: torch.Tensor, extent: int, copies: int, doing: str, is_told_unused: bool = True) -> torch.Tensor:
    """The result, watched: it holds everything so many times along a dim of this extent."""
    text = (
        f"{doing}: {copies} devices hold the same, and the result {list(result.shape)} has it {copies} times side by "
        "side; nobody has cut it. Was the mapper forgotten, as in ttnn.from_torch(..., mesh_mapper="
        "ttnn.ShardTensorToMesh(mesh_device, dim))? Of copies read one: ttnn.to_torch(ttnn.get_device_tensors(t)[0])."
    )
    return _watched(result, _Use(extent, text, is_told_unused))


def piece_of(result: torch.Tensor, shard: Tensor) -> torch.Tensor:
    """The result, which is what `shard` holds, watched if other devices have copies of it."""
    dist, positions = shard.storage.dist, shard.shard_positions
    if positions is None or not any(own == 1 < n for own, n in zip(dist.extents, dist.grid, strict=True)):
        return result
    token = _TOKENS.setdefault(shard.storage, object())
    return _watched(result, piece=(token, stored_index(dist, positions[0])))


def note_aggregate(whole: Tensor, copied: tuple[int, int] | None) -> None:
    """Note that a host tensor holds everything so many times along a dim."""
    if copied is not None:
        _AGGREGATES[whole.storage] = copied


def of_aggregate(result: torch.Tensor, whole: Tensor) -> torch.Tensor:
    """The result, which is what an aggregate holds, watched if copies lie side by side there."""
    copied = _AGGREGATES.get(whole.storage)
    return result if copied is None else stacked(result, result.shape[copied[1]], copied[0], "aggregate_tensor")


def plain(tensor: Any) -> Any:
    """The value itself, of a watched tensor as torch has it."""
    if not isinstance(tensor, WatchedTensor):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def taken_in(tensor: Any) -> Any:
    """As `plain`, of a tensor that goes back to a mesh: by what mapper it is split again is not followed."""
    if isinstance(tensor, WatchedTensor) and tensor.use is not None:
        tensor.use.note(is_cut=True)
    return plain(tensor)
