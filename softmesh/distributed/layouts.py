"""A layout: one placement word for each mesh axis, what follows from it for a value's shape, and that of a tensor.

Along several axes that split one dim the first is the outermost, so only the last of them can be gathered
by itself, and a split is added behind the others. Words of a `Layout` that is planned with never carry the size of an
uneven split: it follows from the shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from softmesh.collectives.device_groups import group_of
from softmesh.errors import MeshError
from softmesh.hardware.enums import Layout as TensorLayout
from softmesh.placement.distribution import Distribution, distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import TILE_SIZE, DataType, tile_size
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

Layout = tuple[Placement, ...]
Extents = tuple[int, ...]
SUM = Partial("sum")
_HALF_TILE = 16


@dataclass(frozen=True)
class Value:
    """What the devices hold together: what redistributing it costs depends on this only.

    `uneven` has the splits (axis, dim) that do not divide and are to be kept: they are there already, or asked
    for. None is invented.
    """

    shape: Extents
    bits: int  # of one element
    mesh: Extents
    uneven: frozenset[tuple[int, int]] = frozenset()
    form: TensorLayout | None = None  # where the steps are ops of TT-NN, which cut tiles between them only
    l1_limit: int = 0  # a piece of no more bytes stays in L1; 0: none does

    def pieces(self, layout: Layout, dim: int) -> int:
        return math.prod(n for n, word in zip(self.mesh, layout, strict=True) if is_split(word, dim))

    def local_shape(self, layout: Layout) -> Extents:
        """Of the fullest device; uneven splits round up."""
        extents = list(self.shape)
        for n, word in zip(self.mesh, layout, strict=True):
            if isinstance(word, Shard):
                extents[word.dim] = -(-extents[word.dim] // n)
        return tuple(extents)

    def bytes_on_each(self, layout: Layout) -> int:
        return -(-math.prod(self.local_shape(layout)) * self.bits // 8)

    def held_on_each(self, layout: Layout) -> int:
        """Bytes of memory, in whole tiles where it is tiled."""
        local = self.local_shape(layout)
        if self.form is TensorLayout.TILE and local:
            rows = (1, *local)[-2:]
            local = (*local[:-2], *(-(-n // TILE_SIZE) * TILE_SIZE for n in rows))
        return -(-math.prod(local) * self.bits // 8)

    def is_in_l1(self, layout: Layout) -> bool:
        return self.l1_limit > 0 and self.held_on_each(layout) <= self.l1_limit

    def cuts_tiles(self, layout: Layout, dim: int) -> bool:
        """Whether the split of `dim` that led here goes through the midst of tiles."""
        shape = self.local_shape(layout)
        return self.form is TensorLayout.TILE and dim >= len(shape) - 2 and shape[dim] % TILE_SIZE > 0

    def can_exchange(self, before: Layout, after: Layout) -> bool:
        """Whether one op exchanges the pieces; TT-NN's takes whole tiles, or their upper and lower halves."""
        if self.form is None:
            return True
        shapes = [self.local_shape(layout) for layout in (before, after)]
        return self.form is TensorLayout.TILE and all(
            len(shape) > 1 and shape[-1] % TILE_SIZE == 0 and shape[-2] % _HALF_TILE == 0 for shape in shapes
        )

    def may_split(self, layout: Layout, axis: int, dim: int) -> bool:
        """Whether `dim` can be split along `axis` too, inside the splits that are there."""
        others = [at for at, word in enumerate(layout) if at != axis and is_split(word, dim)]
        if others and others[-1] > axis:
            return False
        return self.divides(layout, axis, dim) or (not others and (axis, dim) in self.uneven)

    def divides(self, layout: Layout, axis: int, dim: int) -> bool:
        """Whether `dim` does over the devices along `axis` and those of the other axes that split it."""
        pieces = self.mesh[axis]
        for at, word in enumerate(layout):
            if at != axis and is_split(word, dim):
                pieces *= self.mesh[at]
        return self.shape[dim] % pieces == 0

    def can_be(self, layout: Layout) -> bool:
        """Whether every split divides, or is one to be kept and stands alone."""
        for axis, word in enumerate(layout):
            if isinstance(word, Shard) and not self.divides(layout, axis, word.dim):
                alone = sum(is_split(other, word.dim) for other in layout) == 1
                if not alone or (axis, word.dim) not in self.uneven:
                    return False
        return True

    def keeping(self, uneven: frozenset[tuple[int, int]]) -> Value:
        return replace(self, uneven=uneven) if uneven else self


def is_split(word: Placement, dim: int) -> bool:
    return isinstance(word, Shard) and word.dim == dim


def with_word(layout: Layout, axis: int, word: Placement) -> Layout:
    return (*layout[:axis], word, *layout[axis + 1 :])


def unsized(layout: Sequence[Placement]) -> Layout:
    """Without the sizes that uneven splits remember."""
    return tuple(Shard(word.dim) if isinstance(word, Shard) else word for word in layout)


def is_whole(layout: Layout) -> bool:
    """Whether nothing is waiting to be combined."""
    return not any(isinstance(word, Partial) for word in layout)


def split_axes(layout: Layout, dim: int) -> tuple[int, ...]:
    return tuple(axis for axis, word in enumerate(layout) if is_split(word, dim))


def described(layout: Sequence[Placement], names: Sequence[str] | None = None) -> str:
    """
    >>> described((Shard(0), REPLICATE)), described((Shard(0), REPLICATE), ("dp", "tp"))
    ('Shard(0), Replicate', 'dp: Shard(0), tp: Replicate')
    """
    if names is None:
        return ", ".join(map(repr, layout))
    return ", ".join(f"{name}: {word!r}" for name, word in zip(names, layout, strict=True))


def all_layouts(value: Value) -> Iterator[Layout]:
    """Every layout the value can have; contributions are to a sum."""

    def extended(start: Layout) -> Iterator[Layout]:
        axis = len(start)
        if axis == len(value.mesh):
            yield start
            return
        rest = (REPLICATE,) * (len(value.mesh) - axis)
        words: list[Placement] = [REPLICATE]
        if value.mesh[axis] > 1:
            dims = range(len(value.shape))
            words += [Shard(dim) for dim in dims if value.may_split((*start, *rest), axis, dim)]
            words.append(SUM)
        for word in words:
            yield from extended((*start, word))

    return extended(())


# The layouts of tensors: what the planner needs to know of a tensor and its mesh.


_TILE = 1024


def mesh_of(op: str, tensors: Sequence[Tensor]) -> MeshDevice:
    """The one open mesh on which all of them live."""
    device = tensors[0].storage.device
    for tensor in tensors:
        storage = tensor.storage
        if storage.data is None:
            tensor.check_allocated(f"distributed.{op}")
        if storage.device is not device:
            raise _on_several(op, tensors)
    if device is None:
        raise _on_several(op, tensors)
    if device.closed:
        device.check_open(f"distributed.{op}")
    return device


def _on_several(op: str, tensors: Sequence[Tensor]) -> MeshError:
    where = " and ".join(_place(tensor) for tensor in tensors)
    return MeshError(
        f"distributed.{op}: its operands are on {where}, and it works on one mesh. Bring them to one: "
        "ttnn.to_device(ttnn.from_device(tensor), mesh_device)."
    )


def _place(tensor: Tensor) -> str:
    device = tensor.storage.device
    return "the host" if device is None else f"{device} (mesh id {device.id()})"


def layout_of(op: str, tensor: Tensor) -> Layout:
    """One word for each axis of the mesh, sizes of uneven splits included."""
    device = tensor.device()
    assert device is not None
    dist = tensor.view_distribution()
    spelled = layout_along(dist, tuple(device.shape))
    if spelled is None or LOCAL in spelled:
        raise MeshError(
            f"distributed.{op}: an operand of shape {list(tensor.shape)} on each device is {dist}, which stands for no "
            f"one value along the axes of {device}. Distribute it along whole axes "
            "(softmesh.distributed.mesh_mapper(mesh, placements)), or work on its pieces with plain ops."
        )
    return spelled


@lru_cache(maxsize=1024)
def layout_along(dist: Distribution, mesh: Extents) -> Layout | None:
    """The words of a distribution along the axes of the mesh, or None where it does not follow them."""
    if dist.coords is not None:
        return None
    if dist.spread is not None:  # several processes hold the mesh, this one a block of it
        return dist.placements if len(dist.placements) == len(mesh) else None
    if dist.mesh != mesh:
        return None
    if dist.grid == mesh:
        return dist.placements
    words: list[Placement] = []
    for axis in range(len(mesh)):
        group = group_of(dist, axis)
        found = {group.dist.placements[at] for at in group.axes if group.dist.grid[at] > 1} or {REPLICATE}
        if len(found) > 1:
            return None
        words.append(found.pop())
    return tuple(words)


def has_other_grid(tensor: Tensor) -> bool:
    """Whether its leading dims are other than the axes of the mesh."""
    dist = tensor.view_distribution()
    return dist.spread is None and dist.grid != dist.mesh


def along_the_mesh(tensor: Tensor) -> Tensor:
    """The same pieces in the same memory, under leading dims that are the axes of the mesh."""
    dist, data = tensor.view_distribution(), tensor.view_data()
    words = layout_along(dist, dist.mesh)
    assert words is not None
    plain = distribution(dist.mesh, dist.mesh, words, None, dist.label)
    storage = Storage(data.reshape(*plain.extents, *data.shape[dist.lead :]), plain, tensor.storage.device)
    storage.use_memory_of(tensor.storage, tensor.spec)
    return Tensor.make(storage, tensor.spec)


def whole_shape(tensor: Tensor, layout: Layout, mesh: Sequence[int]) -> Extents:
    """The shape of the value that the devices hold together."""
    shape = list(tensor.shape)
    for n, word in zip(mesh, layout, strict=True):
        if isinstance(word, Shard):
            shape[word.dim] = shape[word.dim] * n if word.size is None else word.size
    return tuple(shape)


def value_of(tensor: Tensor, layout: Layout, mesh: Extents) -> Value:
    return Value(whole_shape(tensor, layout, mesh), bits(tensor.dtype), mesh)


def nested_unevenly(layout: Layout, value: Value) -> dict[int, tuple[int, ...]]:
    """Dims that several axes split and do not divide, with those axes: no step takes one of them away alone."""
    plain = unsized(layout)
    found = {}
    for dim, extent in enumerate(value.shape):
        axes = tuple(axis for axis, word in enumerate(plain) if isinstance(word, Shard) and word.dim == dim)
        if len(axes) > 1 and extent % value.pieces(plain, dim):
            found[dim] = axes
    return found


@lru_cache(maxsize=64)
def bits(dtype: DataType) -> int:
    """Of one element in memory; block floats share exponents."""
    return tile_size(dtype) * 8 // _TILE
