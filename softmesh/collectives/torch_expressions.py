"""The fast path of collectives: each is one torch expression, a reduction, transpose or reshape of leading dims.

Nothing here loops over devices. `dim` counts dims of the piece on each device, from the front; the data
has the leading dims of `group.dist`, of extent 1 where the devices agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from softmesh.collectives.device_groups import Group
from softmesh.collectives.sum_kernels import adder
from softmesh.native.c_kernels import is_plain, native_copy
from softmesh.runtime.cpu_block_cache import BIG, LARGE, CachedCopy, reshape_into_cache

Move = Callable[[torch.Tensor], torch.Tensor]


class AllGather:
    """Every member's piece side by side along `dim`: the group's axes fold into it."""

    def __init__(self, group: Group, dim: int, *, backwards: bool = False) -> None:
        self.group, self.dim, self.backwards = group, dim, backwards
        self._seen: torch.Size | None = None
        self._dtype = torch.float32
        self._whole: list[int] = []
        self._shape: list[int] = []
        self.order: list[int] = []
        self._copied = 0  # bytes

    def __call__(self, data: torch.Tensor) -> torch.Tensor:
        if data.shape != self._seen:
            self._prepare(data.shape)
        spread = data.expand(self._whole)
        turned = spread.flip(self.group.axes) if self.backwards else spread
        found = reshape_into_cache(turned.permute(self.order), self._shape)
        is_copy = data.is_cpu and found.data_ptr() != data.data_ptr()
        self._copied, self._dtype = found.nbytes if is_copy else 0, data.dtype
        return found

    @property
    def direct(self) -> Move:
        """The same for more data like the last."""
        order, shape, seen = self.order, self._shape, self._seen
        if self.backwards or seen is None or list(seen) != self._whole or self._copied > BIG:
            return self
        if self._copied >= LARGE:
            return CachedCopy(order, shape)
        if self._copied:
            return copying(seen, self._dtype, order, shape)
        return lambda data: data.permute(order).reshape(shape)

    def _prepare(self, seen: torch.Size) -> None:
        group, at = self.group, self.group.lead + self.dim
        self._seen, self._whole, self._shape = seen, list(seen), list(seen)
        for axis in group.axes:
            self._whole[axis], self._shape[axis] = group.dist.grid[axis], 1
        self._shape[at] *= group.size
        self.order = before(group, at, len(seen))


def copying(seen: torch.Size, dtype: torch.dtype, order: list[int], shape: list[int]) -> Move:
    """`data.permute(order).reshape(shape)`, a copy, made quickly for contiguous data of this kind."""
    copy = native_copy(torch.empty(seen, dtype=dtype, device="meta").permute(order))

    def move(data: torch.Tensor) -> torch.Tensor:
        is_alike = data.shape == seen and data.dtype is dtype and data.is_contiguous()
        if copy is None or not is_alike or not is_plain(data):
            return data.permute(order).reshape(shape)
        found = data.new_empty(shape)
        copy(data, found)
        return found

    return move


def gathered(data: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
    return AllGather(group, dim)(data)


def before(group: Group, place: int, rank: int) -> list[int]:
    """The order of dims that puts the group's axes right before the dim at `place`."""
    others = [axis for axis in range(rank) if axis not in group.axes]
    at = others.index(place)
    return [*others[:at], *group.axes, *others[at:]]


class AllReduce:
    """The sum over the group, stored once. Members that hold the same count as often as they are."""

    def __init__(self, group: Group) -> None:
        extents = group.dist.extents
        self.group = group
        self.distinct = [axis for axis in group.axes if extents[axis] > 1]
        self.alike = group.size // math.prod(extents[axis] for axis in self.distinct)
        self.counts_exactly = self.alike & (self.alike - 1) == 0  # a power of 2 rounds nothing
        self._add: Move | None = None

    def __call__(self, data: torch.Tensor) -> torch.Tensor:
        add = self._add
        if add is None:
            add = self._add = self._adder(data.shape, data.dtype)
        return add(data)

    @property
    def direct(self) -> Move:
        """The same for more data like the last."""
        return self._add or self

    def _adder(self, shape: torch.Size, dtype: torch.dtype) -> Move:
        distinct, alike = self.distinct, self.alike
        if not distinct:
            return lambda same: same if alike == 1 else same * alike
        if alike == 1:
            return adder(shape, dtype, distinct)
        if dtype.is_floating_point and not self.counts_exactly:
            add_wide = adder(shape, torch.float32, distinct)
            return lambda data: (add_wide(data.float()) * alike).to(dtype)
        add = adder(shape, dtype, distinct)
        return lambda data: add(data).mul_(alike)


class ReduceScatter:
    """To member g chunk g, along `dim`, of the sum over the group."""

    def __init__(self, group: Group, dim: int) -> None:
        self.group, self.dim = group, dim
        self.total, self._deal = AllReduce(group), scatter_view(group, dim)
        self._form: tuple[torch.Size, tuple[int, ...]] | None = None  # of results, where the data is contiguous

    def __call__(self, data: torch.Tensor) -> torch.Tensor:
        total = self.total(data)
        found = self._deal(total)
        is_view = data.is_contiguous() and total.is_contiguous() and found.data_ptr() == total.data_ptr()
        self._form = (found.shape, found.stride()) if is_view else None
        return found

    @property
    def direct(self) -> Move:
        """The same for more data like the last: what is dealt out is a view of the sum."""
        total, form = self.total.direct, self._form
        if form is None:
            return self
        shape, strides = form
        return lambda data: total(data).as_strided(shape, strides) if data.is_contiguous() else self(data)


def scatter_view(group: Group, dim: int) -> Move:
    """What all members hold, dealt out: member g keeps chunk g along `dim`. A view."""
    at = group.lead + dim
    seen: torch.Size | None = None
    cut: list[int] = []
    shape: list[int] = []

    def deal(data: torch.Tensor) -> torch.Tensor:
        nonlocal seen, cut, shape
        if data.shape != seen:
            seen = data.shape
            cut = [*seen[:at], *group.extents, seen[at] // group.size, *seen[at + 1 :]]
            shape = list(seen)
            for axis, n in zip(group.axes, group.extents, strict=True):
                shape[axis] = n
            shape[at] //= group.size
        pieces = data.reshape(cut)
        for i, axis in enumerate(group.axes):
            pieces = pieces.transpose(axis, at + i)
        return pieces.reshape(shape)

    return deal


def dealt(data: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
    return scatter_view(group, dim)(data)


def partitioned(data: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
    """Member g keeps chunk g of its own piece along `dim`. A view."""
    if all(data.shape[axis] == 1 for axis in group.axes):
        return dealt(data, group, dim)
    lead = group.lead
    at = lead + dim
    whole = group.full(data)
    cut = whole.reshape(*whole.shape[:at], *group.extents, whole.shape[at] // group.size, *whole.shape[at + 1 :])
    for i, axis in reversed(list(enumerate(group.axes))):
        cut = cut.diagonal(dim1=axis, dim2=at + i).movedim(-1, axis)
    return cut


def picked(data: torch.Tensor, group: Group, index: Sequence[int]) -> torch.Tensor:
    """The piece of one member of each group (`index` along the group's axes), for all members. A view."""
    for axis, at in zip(group.axes, index, strict=True):
        if data.shape[axis] > 1:
            data = data.narrow(axis, at, 1)
    return data


def exchanged(data: torch.Tensor, group: Group, in_dim: int, out_dim: int) -> torch.Tensor:
    """Each member cuts its piece along `out_dim`, sends chunk i to member i, and joins what comes along `in_dim`."""
    return partitioned(gathered(data, group, in_dim), group, out_dim)
