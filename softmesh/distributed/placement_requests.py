"""Placements as a user requests them: one for each mesh axis in order, or placements that name their axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from softmesh.distributed.layouts import SUM, Layout, described, is_split
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError, did_you_mean
from softmesh.placement.distribution import common_refinement, split_axes
from softmesh.placement.placements import REPLICATE, Local, Partial, Placement, Replicate, Shard
from softmesh.placement.tensor_topology import PlacementReplicate, PlacementShard, TensorTopology
from softmesh.runtime.device import MeshDevice
from softmesh.strictness import is_lenient
from softmesh.tensor.mappers import MeshMapperConfig, ShardTensorToMesh, TensorToMesh, create_mesh_mapper


def axis_names(device: MeshDevice) -> tuple[str, ...] | None:
    """What the program calls the axes (`mesh.axis_names = ...`); a submesh has those of its parent."""
    names = getattr(device, "axis_names", None)
    if names is None:
        parent = device.get_parent_mesh()
        return None if parent is None or parent.shape.dims() != device.shape.dims() else axis_names(parent)
    given = tuple(names) if isinstance(names, Sequence) and not isinstance(names, str) else ()
    are_names = all(isinstance(name, str) and name for name in given)
    if not given or not are_names or len(set(given)) != len(given) or len(given) != device.shape.dims():
        raise ArgumentValueError(
            f"mesh.axis_names = {names!r}: give one name for each of the {device.shape.dims()} axes of {device.shape}, "
            f"all different, such as {('dp', 'tp', 'pp', 'ep')[: device.shape.dims()]}."
        )
    return given


def wanted_layout(where: str, request: object, rank: int, device: MeshDevice) -> Layout | None:
    """The layout that a user asks for; None leaves it to the planner. An axis of one device is Replicate."""
    if request is None:
        return None
    words = _words(where, request, device)
    layout = tuple(_plain(where, word, rank) for word in words)
    return tuple(REPLICATE if n == 1 else word for n, word in zip(device.shape, layout, strict=True))


def request_key(request: object, device: MeshDevice) -> tuple[object, ...]:
    """What a cached plan is found by: TT-NN's own placements have no value equality."""
    names = device.__dict__.get("axis_names")
    if request.__class__ is list or request.__class__ is tuple:
        for word in request:
            if not isinstance(word, Placement):
                break
        else:
            return (names, *request)
    words = request.placements() if isinstance(request, TensorTopology) else request
    return names, repr(words), repr(getattr(request, "distribution_shape", tuple)())


def _words(where: str, request: object, device: MeshDevice) -> Sequence[object]:
    if isinstance(request, TensorTopology):
        return _of_topology(where, request, device)
    if isinstance(request, Placement | PlacementShard | PlacementReplicate):
        request = [request]
    if not isinstance(request, Sequence) or isinstance(request, str):
        raise ArgumentError(f"{where}: placements must be a list, got {request!r}. {_example(device)}")
    named = [word for word in request if getattr(word, "axis", None) is not None]
    if named or (not request and device.shape.dims()):
        return _by_name(where, request, named, device)
    if len(request) != device.shape.dims():
        raise ArgumentValueError(
            f"{where}: {len(request)} placements for the {device.shape.dims()} axes of {device.shape}: give one for "
            f"each, or name their axes. {_example(device)}"
        )
    return request


def _example(device: MeshDevice) -> str:
    names = axis_names(device)
    words = ["Replicate()"] * (device.shape.dims() - 1) + ["Shard(-1)"]
    if names is not None:
        words = [f"Shard(-1, axis={names[-1]!r})"]
    return f"Such as [{', '.join(words)}]."


def _by_name(where: str, request: Sequence[object], named: Sequence[object], device: MeshDevice) -> list[Placement]:
    """Words in the order of the axes; those that none names are Replicate."""
    names = axis_names(device)
    if len(named) != len(request):
        raise ArgumentValueError(
            f"{where}: {list(request)}: either every placement names its axis, or none does and they stand in the "
            f"order of the axes of {device.shape}."
        )
    if names is None and named:
        raise ArgumentValueError(
            f"{where}: {named[0]!r} names a mesh axis, and the axes of {device} have no names: set "
            f"mesh.axis_names = {('dp', 'tp', 'pp', 'ep')[: device.shape.dims()]}."
        )
    found: dict[str, Placement] = {}
    for word in named:
        assert isinstance(word, Shard | Partial)
        assert word.axis is not None
        assert names is not None
        if word.axis not in names:
            raise ArgumentValueError(
                f"{where}: {word!r}: the axes of {device} are {', '.join(map(repr, names))}."
                f"{did_you_mean(word.axis, names, cutoff=0.4)}"
            )
        if found.setdefault(word.axis, word) is not word:
            raise ArgumentValueError(
                f"{where}: {found[word.axis]!r} and {word!r} contradict each other: along one axis a tensor has one "
                "placement. Drop one of them, or name another axis."
            )
    return [found.get(name, REPLICATE) for name in names or [""] * device.shape.dims()]


def _of_topology(where: str, topology: TensorTopology, device: MeshDevice) -> Sequence[object]:
    """Also a topology of another shape over the same devices: that of a 1-D split, say."""
    shape, mesh = tuple(topology.distribution_shape()), tuple(device.shape)
    if common_refinement(shape, mesh) != mesh:
        raise MeshError(
            f"{where}: a topology over {topology.distribution_shape()} does not follow the axes of {device.shape}: "
            f"give a placement for each axis. {_example(device)}"
        )
    words: list[object] = [REPLICATE] * len(mesh)
    for axes, word in zip(split_axes(shape, mesh), topology.placements(), strict=True):
        for axis in axes:
            words[axis] = word
    return words


def _plain(where: str, word: object, rank: int) -> Placement:
    if isinstance(word, PlacementReplicate | Replicate):
        return REPLICATE
    if isinstance(word, PlacementShard | Shard):
        if not -rank <= word.dim < rank:
            has = f"take {-rank} to {rank - 1}" if rank else "it has none to split"
            raise ArgumentValueError(f"{where}: {word!r} of a tensor with {rank} dims: {has}.")
        return Shard(word.dim % rank)
    if isinstance(word, Partial):
        if word.op != "sum":
            raise ArgumentValueError(f"{where}: a result can be left as {SUM!r}, not as {word!r}.")
        return SUM
    meaning = "means no one value" if isinstance(word, Local) else "is no placement"
    raise ArgumentError(f"{where}: {word!r} {meaning}: use Replicate(), Shard(dim) or Partial().")


def oversplit_dims(layout: Layout, shape: Sequence[int], device: MeshDevice) -> list[tuple[int, int]]:
    """Dims that are split over more devices than they have elements, and how many devices."""
    found = []
    for dim, extent in enumerate(shape):
        pieces = math.prod(n for n, word in zip(device.shape, layout, strict=True) if is_split(word, dim))
        if pieces > extent:
            found.append((dim, pieces))
    return found


def check_possible(where: str, layout: Layout, shape: Sequence[int], device: MeshDevice) -> None:
    """Refuse more devices than elements, which only lenient mode fills up."""
    for dim, pieces in oversplit_dims(layout, shape, device):
        if not is_lenient():
            raise MeshError(
                f"{where}: ({described(layout)}) over {device.shape} splits dim {dim} of {list(shape)} over {pieces} "
                f"devices, and it has {shape[dim]} elements. {_nearest(layout, dim, shape, device)} Or pad it to "
                f"{pieces}, or let devices go without under softmesh.lenient()."
            )


def _nearest(layout: Layout, dim: int, shape: Sequence[int], device: MeshDevice) -> str:
    """The request with the fewest splits of `dim` left out, and another dim that would do."""
    words = list(layout)
    left = math.prod(device.shape[axis] for axis, word in enumerate(layout) if is_split(word, dim))
    for axis, word in reversed(list(enumerate(layout))):
        if is_split(word, dim) and left > shape[dim]:
            words[axis] = REPLICATE
            left //= device.shape[axis]
    return f"({described(words)}) would work."


def mesh_mapper(mesh_device: MeshDevice, placements: Sequence[object] | object) -> TensorToMesh:
    """A mapper for `from_torch` by the same words that unified ops take.

    >>> mesh_mapper(mesh, [Shard(-1, axis="tp")])  # doctest: +SKIP
    """
    where = "distributed.mesh_mapper"
    if not isinstance(mesh_device, MeshDevice):
        raise ArgumentError(f"{where}: mesh_device must be a MeshDevice, got {mesh_device!r}.")
    words = [
        REPLICATE if n == 1 else word
        for n, word in zip(mesh_device.shape, _words(where, placements, mesh_device), strict=True)
    ]
    dims = [_mapped_dim(where, word) for word in words]
    split = [dim for dim in dims if dim is not None]
    if len(split) > 1 and len(set(split)) == 1 and len(split) == sum(n > 1 for n in mesh_device.shape):
        return ShardTensorToMesh(mesh_device, split[0])
    if len(set(split)) != len(split):
        raise MeshError(
            f"{where}: {words} splits dim {split[0]} along some of the axes of {mesh_device.shape}, which TT-NN's "
            "mappers do along one axis or along all. Place it along one, then change that: "
            "softmesh.distributed.redistribute(tensor, placements)."
        )
    return create_mesh_mapper(
        mesh_device,
        MeshMapperConfig([PlacementReplicate() if dim is None else PlacementShard(dim) for dim in dims]),
    )


def _mapped_dim(where: str, word: object) -> int | None:
    if isinstance(word, Replicate | PlacementReplicate):
        return None
    if isinstance(word, Shard | PlacementShard):
        return word.dim
    raise ArgumentError(f"{where}: values can be put on a mesh as Replicate() or Shard(dim), not as {word!r}.")
