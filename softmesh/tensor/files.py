"""Tensor files (`.tensorbin`), and `as_tensor` with its file cache.

Files are those of TT-NN (see `tensor.tensorbin`): a cache of a real machine serves here, and one written here serves
there. Files of softmesh from before are still read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from softmesh.arguments import checked, described, refused, reject_unknown_keywords
from softmesh.errors import MeshError
from softmesh.hardware import DumpTensorMode
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import HOST, Distribution, whole
from softmesh.placement.placements import Shard, placed
from softmesh.strictness import doubt, is_strict, warn_or_raise
from softmesh.tensor.device_shards import distribute_tensor
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.mappers import Mapper, ReplicateTensorToMeshWrapper, TensorToMesh
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tensorbin.older_files import is_older_file, read_older_file
from softmesh.tensor.tensorbin.reading import read
from softmesh.tensor.tensorbin.writing import write
from softmesh.tensor.transfer import check_readable, from_device, own_part_on_host, tell_host_use, to_device
from softmesh.terminal_text import readable

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


# The check of `as_tensor`'s cache: whether a cached tensor has the dtype, layout and distribution that are asked for.


def check_cached(
    path: Path, cached: Tensor, dtype: DataType | None, layout: Layout | None, mapper: TensorToMesh | None
) -> None:
    """Refuse a cache that was written for something else, and name both. A dtype or layout of None takes any."""
    held = cached.view_distribution()
    wanted_dtype, wanted_layout = dtype or cached.dtype, layout or cached.layout
    wanted = _wanted(cached, held, mapper)
    is_same = _same(held, wanted) and (cached.dtype, cached.layout) == (wanted_dtype, wanted_layout)
    if not is_same:
        raise MeshError(
            f"as_tensor: the cache {path} holds {_described(cached.dtype, cached.layout, held)}, and "
            f"{_described(wanted_dtype, wanted_layout, wanted)} is asked for. Let cache_file_name tell them apart (the "
            "mesh and the mapper belong in it), or remove the file."
        )


def _check_values(
    path: Path, cached: Tensor, given: torch.Tensor | None, build: Callable[[], Tensor], is_changed: bool
) -> None:
    """Warn where the cache answers with another tensor than the given one; one value or none stands for any tensor.

    Shapes are compared always, unless the tensor is `is_changed` before it is cached. Values are compared in strict
    mode only, because that takes the work which the cache is there to save.
    """
    if not isinstance(given, torch.Tensor) or given.numel() <= 1 or given.is_meta:
        return
    held = cached.view_distribution()
    whole_shape = _whole_shape(tuple(cached.shape), held)
    remedy = (
        "TT-NN takes the file, and ignores the tensor. Give each tensor a cache_file_name of its own, remove the file "
        "when the tensor or its preprocessing changes, or give None where the file is meant."
    )
    if not is_changed and held.spread is None and list(given.shape) != whole_shape:
        warn_or_raise(
            f"as_tensor: the cache {path} holds a tensor {whole_shape}, and {list(given.shape)} is given. {remedy}",
        )
    elif is_strict():
        made = build()
        if made.view_distribution() is held and _differ(made, cached):
            doubt(
                f"as_tensor: the cache {path} holds {list(cached.shape)} with other values than the tensor that is "
                f"given. {remedy}",
            )


def _differ(made: Tensor, cached: Tensor) -> bool:
    if made.spec.shape != cached.spec.shape:
        return True
    new, old = made.view_data(), cached.view_data()
    return not torch.equal(new, old) and not torch.equal(new.nan_to_num(), old.nan_to_num())


def _wanted(cached: Tensor, held: Distribution, mapper: TensorToMesh | None) -> Distribution | str:
    """How the mapper spreads the whole of what is cached; its own words where it cannot."""
    if mapper is None:
        return HOST
    everything = torch.empty(_whole_shape(tuple(cached.shape), held), device="meta")
    try:
        return mapper.split(everything)[1]
    except MeshError:
        return f"{mapper.config()} over {mapper.mesh_shape}"


def _whole_shape(local: tuple[int, ...], held: Distribution) -> list[int]:
    extents = list(local)
    for dim in range(len(local)):
        along = [
            (word, n)
            for word, n in zip(held.placements, held.grid, strict=True)
            if isinstance(word, Shard) and word.dim == dim
        ]
        uneven = next((word.size for word, _ in along if word.size is not None), None)
        extents[dim] = uneven if uneven is not None else local[dim] * math.prod(n for _, n in along)
    return extents


def _same(held: Distribution, wanted: Distribution | str) -> bool:
    if isinstance(wanted, str):
        return False
    if held.is_replicated and wanted.is_replicated and HOST.mesh in (held.mesh, wanted.mesh):
        return True  # one copy for all, or one on every device
    if held.spread is not None:  # one process's part, of which the file does not hold the whole
        return held.mesh == wanted.mesh
    return (held.mesh, held.grid, held.placements, held.coordinates()) == (
        wanted.mesh,
        wanted.grid,
        wanted.placements,
        wanted.coordinates(),
    )


def _described(dtype: DataType, layout: Layout, dist: Distribution | str) -> str:
    what = f"{dtype.name} {layout.name}"
    if isinstance(dist, str):
        return f"{what}, {dist}"
    if dist is HOST or dist.mesh == HOST.mesh:
        return f"{what}, not spread over a mesh"
    words = ", ".join(f"{word!r} over {n}" for word, n in zip(dist.placements, dist.grid, strict=True))
    return f"{what}, ({words}) on {MeshShape(dist.mesh)}"


_SUFFIX = ".tensorbin"


@reject_unknown_keywords
def dump_tensor(
    file_name: str | Path, tensor: Tensor, *, mode: DumpTensorMode = DumpTensorMode.DISTRIBUTED_GATHER
) -> None:
    """Write a tensor, distributed or not. The file appears whole or not at all.

    Where several processes hold it, the first of them writes all of it, and the others wait; LOCAL lets each
    write its own part into a file of its own.
    """
    path = _checked(file_name, "dump_tensor")
    checked("dump_tensor", "mode", mode, DumpTensorMode, "a ttnn.DumpTensorMode")
    check_readable(tensor, "dump_tensor")
    tell_host_use(tensor, "dump_tensor")
    if mode is DumpTensorMode.LOCAL:
        host = own_part_on_host(tensor, "dump_tensor")
        write(path, host, whole(tensor.view_distribution()).mesh, tensor.own_coordinates())
        return
    host, device = from_device(tensor), tensor.storage.device
    ranks = None if device is None else device.ranks
    if ranks is None or ranks.context.rank == 0:
        dist = host.view_distribution()
        write(path, host, dist.mesh, dist.coordinates())
    if ranks is not None:
        ranks.barrier("dump_tensor")


@reject_unknown_keywords
def load_tensor(file_name: str | Path, *, device: MeshDevice | None = None) -> Tensor:
    """Read a tensor back as it was written; onto `device` where one is given."""
    path = _checked(file_name, "load_tensor")
    try:
        if not os.path.isfile(path):
            cause = "is not a file" if os.path.exists(path) else "does not exist"
            raise MeshError(f"Unable to load the tensor from {readable(str(path))}.  The file {cause}.")
        tensor = read_older_file(path) if is_older_file(path) else read(path)
    except OSError as error:
        raise MeshError(f"Unable to load the tensor from {readable(str(path))}: {error.strerror}.") from error
    return tensor if device is None else to_device(tensor, device)


def _checked(file_name: str | Path, where: str) -> Path:
    if not isinstance(file_name, str | Path):
        raise refused(where, f"file_name must be a path, got {described(file_name)}")
    path = Path(file_name)
    if path.suffix != _SUFFIX:
        raise MeshError(f"File {readable(str(path))} must have .tensorbin extension")
    return path


@reject_unknown_keywords
@placed("As `mesh_mapper` splits it; without one, the same on all devices.")
def as_tensor(
    tensor: torch.Tensor,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = Layout.ROW_MAJOR,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    cache_file_name: str | Path | None = None,
    preprocess: Callable[[torch.Tensor], torch.Tensor] | None = None,
    mesh_mapper: Mapper | None = None,
    cache_dump_mode: DumpTensorMode = DumpTensorMode.DISTRIBUTED_GATHER,
) -> Tensor:
    """`from_torch`, remembered in a file: what is there is loaded and the torch tensor ignored.

    A replicated tensor is cached once, unsharded. A file that holds another dtype or layout, or a tensor spread
    otherwise, is refused.

    >>> y = ttnn.as_tensor(
    ...     torch.ones(8, 64), dtype=ttnn.bfloat16, device=mesh, memory_config=ttnn.DRAM_MEMORY_CONFIG
    ... )
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 64]), (Replicate, Replicate))
    """
    if device is not None and memory_config is None:
        raise MeshError("memory_config must be specified when device is specified")
    if preprocess is not None and not callable(preprocess):
        raise refused("as_tensor", f"preprocess must be a function, got {described(preprocess)}")
    mapper = None if isinstance(mesh_mapper, ReplicateTensorToMeshWrapper) else mesh_mapper

    def build() -> Tensor:
        source = preprocess(tensor) if preprocess else tensor
        made = from_torch(source, dtype, layout=layout, memory_config=memory_config, mesh_mapper=mapper)
        return checked("as_tensor", "tensor", made, Tensor, "a torch.Tensor")

    if cache_file_name is None:
        host = build()
    else:
        path = _cache_path(cache_file_name, dtype, layout)
        if _is_there(path):
            host = load_tensor(path)
            check_cached(path, host, dtype, layout, mapper)
            _check_values(path, host, tensor, build, preprocess is not None)
        else:
            host = build()
            _make_folder(path.parent)
            dump_tensor(path, host, mode=cache_dump_mode)
    if device is not None:
        return to_device(host, device, memory_config)
    if isinstance(mesh_mapper, ReplicateTensorToMeshWrapper):
        return distribute_tensor(host, mesh_mapper.unwrap())
    return host


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise MeshError(f"as_tensor: the cache cannot be looked for at {str(path)!r}: {error.strerror}.") from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MeshError(f"as_tensor: the folder {str(folder)!r} of the cache cannot be made: {reason}.") from error


def _cache_path(name: str | Path, dtype: DataType | None, layout: Layout | None) -> Path:
    """`{name}_dtype_BFLOAT16_layout_TILE.tensorbin`."""
    if not isinstance(name, str | Path):
        raise refused("as_tensor", f"cache_file_name must be a path, got {described(name)}")
    kind, lay = (getattr(choice, "name", choice) for choice in (dtype, layout))
    return Path(f"{name}_dtype_{kind}_layout_{lay}{_SUFFIX}")
