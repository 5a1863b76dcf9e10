"""Distribution: where the pieces of one tensor sit on a mesh, and how its leading dims spell that out.

A mesh tensor is one torch tensor `(*extents, *local_shape)`. Its `Distribution` names the leading
dims: `grid` are their full extents, `placements` the word for each. An axis that is `Replicate` has
extent 1 in the data whatever its grid extent: what the devices agree on is stored once.

    on a 2x4 mesh                            grid       placements               data
    replicated                               (2, 4)     Replicate  Replicate     (1, 1, *local)
    rows split dim 0, columns dim 1          (2, 4)     Shard(0)   Shard(1)      (2, 4, *local)
    dim 3 over all eight                     (2, 4)     Shard(3)   Shard(3)      (2, 4, *local)
    a 4x2 distribution, row-major            (2, 2, 2)  Shard(0)   Shard(0) Shard(1)
    six chunks on the first six devices      (6,)       Shard(3), coords=(0,0) ... (1,1)

`coords` is None where the grid, flattened row-major, is the whole mesh, flattened row-major. Where several
processes hold one mesh, everything here is about the block of this one, and `spread` counts the blocks along
each axis: an axis of one device is still a split one if other processes hold its other pieces. Knows nothing
of dtypes, layouts or devices; distributions are interned, so they compare by identity.
"""

from __future__ import annotations

import math
import operator
from functools import cache, lru_cache
from itertools import accumulate

from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.placements import LOCAL, REPLICATE, Placement, Shard

Extents = tuple[int, ...]
Coordinates = tuple[MeshCoordinate, ...]


class Distribution:
    """Interned: build with `distribution(...)`."""

    __slots__ = (
        "__weakref__",
        "coords",
        "devices",
        "grid",
        "is_replicated",
        "label",
        "lead",
        "mesh",
        "placements",
        "spread",
    )

    def __init__(
        self,
        mesh: Extents,
        grid: Extents,
        placements: tuple[Placement, ...],
        coords: Coordinates | None,
        label: Extents,
        spread: Extents | None,
    ) -> None:
        self.mesh = mesh
        self.grid = grid
        self.placements = placements
        self.coords = coords
        self.label = label  # the shape TT-NN prints as distribution_shape
        self.spread = spread  # None: this process holds it all
        self.devices = _in_all(grid, spread)  # along each axis, in all processes
        self.lead = len(grid)
        self.is_replicated = all(word is REPLICATE for word in placements)

    @property
    def extents(self) -> Extents:
        """The leading extents of the data."""
        return tuple(1 if word is REPLICATE else n for word, n in zip(self.placements, self.grid, strict=True))

    def with_placements(self, placements: tuple[Placement, ...]) -> Distribution:
        return distribution(self.mesh, self.grid, placements, self.coords, self.label, self.spread)

    def with_label(self, label: Extents) -> Distribution:
        return distribution(self.mesh, self.grid, self.placements, self.coords, label, self.spread)

    def written_to(self, target: Distribution) -> Distribution:
        """What a tensor of `target` is once these values are written to it.

        Slices stay slices: values of which each device has its own are what they are slices of from then on.
        """
        if LOCAL not in self.placements or self.grid != target.grid:
            return self
        pairs = zip(self.placements, target.placements, strict=True)
        fits = all(new is old or (new is LOCAL and _is_even_slice(old)) for new, old in pairs)
        return self.with_placements(target.placements) if fits else self

    def coordinates(self) -> Coordinates:
        """The occupied coordinates, in the order of the flattened grid."""
        return mesh_coordinates(self.mesh) if self.coords is None else self.coords

    def __repr__(self) -> str:
        where = "" if self.coords is None else f", on {len(self.coords)} of {math.prod(self.mesh)} devices"
        return f"Distribution(grid={self.grid}, {', '.join(map(repr, self.placements))}{where})"


def _is_even_slice(word: Placement) -> bool:
    return isinstance(word, Shard) and word.size is None


def _in_all(grid: Extents, spread: Extents | None) -> Extents:
    return grid if spread is None else tuple(map(operator.mul, grid, spread))


_interned = cache(Distribution)


def distribution(
    mesh: Extents,
    grid: Extents,
    placements: tuple[Placement, ...],
    coords: Coordinates | None = None,
    label: Extents | None = None,
    spread: Extents | None = None,
) -> Distribution:
    """The one Distribution of these parts; an axis of one device is Replicate."""
    words = tuple(REPLICATE if n == 1 else word for word, n in zip(placements, _in_all(grid, spread), strict=True))
    if coords is not None and coords == mesh_coordinates(mesh) and common_refinement(grid, mesh) == grid:
        coords = None
    return _interned(mesh, grid, words, coords, grid if label is None else label, spread)


@lru_cache(maxsize=256)
def mesh_coordinates(mesh: Extents) -> Coordinates:
    return tuple(MeshShape(mesh).coordinates())


@lru_cache(maxsize=256)
def replicated(mesh: Extents) -> Distribution:
    """What `device=mesh` without a mapper gives: one copy for all, labelled as TT-NN labels it."""
    return distribution(mesh, mesh, (REPLICATE,) * len(mesh), None, (math.prod(mesh),))


HOST = replicated((1, 1)).with_label((1,))


def common_refinement(a: Extents, b: Extents) -> Extents | None:
    """The coarsest extents that split both `a` and `b`, row-major; None where they do not nest.

    >>> common_refinement((8,), (2, 4)), common_refinement((4, 2), (2, 4)), common_refinement((2, 3), (3, 2))
    ((2, 4), (2, 2, 2), None)
    """
    if a == b:
        return a
    if math.prod(a) != math.prod(b):
        return None
    cuts_a, cuts_b = (set(accumulate(extents, operator.mul)) - {1} for extents in (a, b))
    if cuts_a <= cuts_b:
        return b
    if cuts_b <= cuts_a:
        return a
    cuts = sorted(cuts_a | cuts_b)
    pairs = list(zip([1, *cuts], cuts, strict=False))
    if any(after % before for before, after in pairs):
        return None
    return tuple(after // before for before, after in pairs)


def split_axes(coarse: Extents, fine: Extents) -> list[list[int]]:
    """Which axes of `fine` make up each axis of `coarse`: (8,) over (2, 4) -> [[0, 1]]."""
    groups: list[list[int]] = []
    at = 0
    for n in coarse:
        group: list[int] = []
        product = 1
        while product < n:
            group.append(at)
            product *= fine[at]
            at += 1
        groups.append(group)
    return groups


def refine(dist: Distribution, fine: Extents) -> Distribution:
    """The same pieces under finer leading dims."""
    if dist.grid == fine:
        return dist
    words: list[Placement] = [REPLICATE] * len(fine)
    for axes, word in zip(split_axes(dist.grid, fine), dist.placements, strict=True):
        for axis in axes:
            words[axis] = word
    return distribution(dist.mesh, fine, tuple(words), dist.coords, dist.label)


def flatten(dist: Distribution, coords: Coordinates) -> Distribution:
    """The pieces at `coords`, as one leading dim: a word survives where every axis says it."""
    words = {word for word, n in zip(dist.placements, dist.grid, strict=True) if n > 1 or word is not REPLICATE}
    whole = coords == dist.coordinates()
    word = words.pop() if len(words) == 1 else (LOCAL if words else REPLICATE)
    if word is not REPLICATE and not whole:
        word = LOCAL
    return distribution(dist.mesh, (len(coords),), (word,), coords, (len(coords),))


def whole(dist: Distribution) -> Distribution:
    """All blocks of a mesh that several processes hold, as one."""
    if dist.spread is None:
        return dist
    label = dist.devices if dist.label == dist.mesh else dist.label
    return distribution(dist.devices, dist.devices, dist.placements, None, label)


def common_coordinates(dists: list[Distribution]) -> Coordinates:
    """Where all of them hold something, in mesh order: an op runs where its operands are."""
    shared = set(dists[0].coordinates())
    for dist in dists[1:]:
        shared &= set(dist.coordinates())
    if not shared:
        occupied = " and ".join(f"{list(d.coordinates())[:4]}" for d in dists)
        raise MeshError(
            f"Operands share no device: they occupy {occupied}. "
            "Distribute them over the same coordinates, or move one with from_device/to_device."
        )
    return tuple(c for c in mesh_coordinates(dists[0].mesh) if c in shared)
