"""Reading of a tensor file of TT-NN. The file is mapped: row-major values stay in it until somebody writes to them.

Nothing in a file is trusted: its tables are checked while they are read, every payload must lie in the file, and its
size must be that of its tensor before memory is taken for it.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from softmesh.errors import MeshError, SoftmeshError
from softmesh.mesh import MOST_DEVICES, MeshCoordinate, MeshShape
from softmesh.placement.distribution import (
    HOST,
    Coordinates,
    Distribution,
    Extents,
    common_refinement,
    distribution,
    mesh_coordinates,
    refine,
)
from softmesh.placement.pieces import stored_index
from softmesh.placement.placements import LOCAL, REPLICATE, Placement, Shard
from softmesh.placement.tensor_topology import PlacementReplicate, PlacementShard, TensorTopology
from softmesh.tensor.checksums import Checksum
from softmesh.tensor.dtype import FACTS, Layout
from softmesh.tensor.page_bytes import from_pages
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tensorbin.distribution_note import NO_CHECKSUM, find_checksum, find_note, has_checksum
from softmesh.tensor.tensorbin.header_tables import spec_from_fields, topology_from_fields
from softmesh.tensor.tensorbin.schema import BrokenHeader, Fields, decode

_SIZE_OF_SIZE = 8
_Made = TypeVar("_Made")
_LONGEST_NOTE = 1 << 16
_LARGEST_HEADER = 1 << 31  # of any FlatBuffer


class _Shard(NamedTuple):
    offset: int
    size: int
    coord: MeshCoordinate


def read(path: Path) -> Tensor:
    """The tensor in a file, on the host."""
    return read_file(path, "Tensor", tensor_from_fields)


def read_file(path: Path, table: str, make: Callable[[Fields, bytes, mmap.mmap], _Made]) -> _Made:
    """What `make` makes of the root table of a file, its header and all its bytes."""
    with path.open("rb") as file:
        file_size = file.seek(0, 2)
        if file_size < _SIZE_OF_SIZE:
            raise MeshError(f'Tensor file "{path}" is too small to be valid: it has {file_size} bytes.')
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    header = _header(path, content)
    try:
        return make(decode(table, memoryview(header)), header, content)
    except SoftmeshError:
        raise
    except (BrokenHeader, ValueError, LookupError, TypeError, OverflowError, RuntimeError) as error:
        raise MeshError(
            f'Cannot validate tensor data; this most likely indicates data corruption. Tensor file "{path}": {error}.'
        ) from error


def _header(path: Path, content: mmap.mmap) -> bytes:
    size = struct.unpack_from("<Q", content)[0]
    if size > _LARGEST_HEADER:
        raise MeshError(
            "Tensor header size is too large; this most likely indicates data corruption. "
            f'Tensor file "{path}" says that {size} bytes of header follow.'
        )
    if _SIZE_OF_SIZE + size > len(content):
        raise MeshError(f'Tensor file "{path}" is truncated or corrupt (header_size={size}, file_size={len(content)})')
    return content[_SIZE_OF_SIZE : _SIZE_OF_SIZE + size]


def tensor_from_fields(root: Fields, header: bytes, content: mmap.mmap) -> Tensor:
    data_start = _SIZE_OF_SIZE + len(header)
    if root["tensor_spec"] is None or root["mesh_shape"] is None:
        raise BrokenHeader("it has no tensor_spec or no mesh_shape")
    if data_start % 8:
        raise MeshError(f"Tensor data pointer must be 8-byte aligned! The data of the file start at byte {data_start}.")
    spec = spec_from_fields(root["tensor_spec"])
    mesh = _mesh(root["mesh_shape"])
    shards = _shards(root["shards"] or [], mesh, len(content) - data_start)
    _check_sizes(shards, spec)
    topology = None if root["tensor_topology"] is None else topology_from_fields(root["tensor_topology"])
    dist = find_note(header) or _distribution(mesh, shards, topology, len(spec.shape))
    if len(dist.coordinates()) != len(shards):
        raise BrokenHeader(f"it has {len(shards)} shards for {len(dist.coordinates())} devices")
    section = torch.frombuffer(content, dtype=torch.uint8)[data_start:]
    _check_checksum(header, shards, section)
    data = _data(dist, shards, spec, section)
    label = topology if _is_true(topology, dist, shards) else None
    return Tensor.make(Storage(data, dist, None), spec, label)


def _check_checksum(header: bytes, shards: list[_Shard], section: torch.Tensor) -> None:
    """Of a file that has one: those of TT-NN have none."""
    found = find_checksum(header)
    if found is None and has_checksum(header[-_LONGEST_NOTE:] + section[:_LONGEST_NOTE].numpy().tobytes()):
        raise BrokenHeader("its header ends before its checksum")
    if found is None:
        return
    at, digits = found
    plain = bytearray(header)
    plain[at : at + len(NO_CHECKSUM)] = NO_CHECKSUM
    made = Checksum()
    made.add(torch.frombuffer(plain, dtype=torch.uint8))
    for offset, size in sorted({(shard.offset, shard.size) for shard in shards}):
        made.add(section[offset : offset + size])
    if made.digits() != digits:
        raise BrokenHeader(f"its checksum is {digits!r}, that of its content {made.digits()}: something in it changed")


def _mesh(fields: Fields) -> MeshShape:
    extents = fields["dimensions"] or []
    if math.prod(extents) > MOST_DEVICES:
        raise BrokenHeader(f"its mesh {extents} has more devices than there are")
    return MeshShape(extents)


def _shards(tables: list[Fields], mesh: MeshShape, section: int) -> list[_Shard]:
    if not tables:
        raise BrokenHeader("it has no shards")
    shards: list[_Shard] = []
    for number, table in enumerate(tables):
        tag, storage = table["buffer"]
        if tag != 1 or storage is None:
            raise MeshError(
                "Only InlineFileStorage is supported in flatbuffer deserialization: shard "
                f"{number} has a buffer of kind {tag}."
            )
        begin, end = storage["offset"], storage["offset"] + storage["size"]
        if end > section:
            raise MeshError(
                f"Tensor shard {number} spans bytes [{begin}, {end}) of a {section}-byte data section: the file is "
                "truncated or corrupt"
            )
        if table["mesh_coordinate"] is None:
            raise BrokenHeader(f"shard {number} has no mesh_coordinate")
        coord = MeshCoordinate(table["mesh_coordinate"]["values"] or [])
        if coord.dims() != mesh.dims():
            raise MeshError(
                f"Cannot compare coordinates with different dimensions: {coord.dims()} != {mesh.dims()}: shard "
                f"{number} is at {coord} of {mesh}."
            )
        if not mesh.contains(coord):
            raise MeshError(f"Coordinate {coord} is out of bounds for shape {mesh}")
        shards.append(_Shard(begin, storage["size"], coord))
    if len({shard.coord for shard in shards}) < len(shards):
        raise BrokenHeader("it has two shards for one device")
    return shards


def _check_sizes(shards: list[_Shard], spec: TensorSpec) -> None:
    for number, shard in enumerate(shards):
        if shard.size != spec.bytes():
            physical = (math.prod(tuple(spec.padded_shape)[:-1]), spec.padded_shape[-1])
            element = 1 if FACTS[spec.dtype].is_block else FACTS[spec.dtype].bits // 8
            raise MeshError(
                f"Physical data size {shard.size // element} should be same as volume indicated by physical shape "
                f"{physical}: shard {number} of {spec.shape} {spec.dtype.name} takes {spec.bytes()} bytes, and the "
                f"file has {shard.size}."
            )


# Where the pieces lie, from the topology that the file tells; what it says of placements is checked against which
# devices share a payload.


def _distribution(mesh: MeshShape, shards: list[_Shard], topology: TensorTopology | None, rank: int) -> Distribution:
    extents, coords = tuple(mesh), tuple(shard.coord for shard in shards)
    if extents == HOST.mesh:
        return HOST
    if topology is not None and _fits(topology, coords):
        grid = tuple(topology.distribution_shape())
        words = tuple(_word(topology, axis, grid, shards, rank) for axis in range(len(grid)))
    else:
        grid = (len(coords),)
        words = (REPLICATE if _payloads(shards) == 1 else LOCAL,)
    return _over_the_mesh(distribution(extents, grid, words, coords, grid))


def _over_the_mesh(dist: Distribution) -> Distribution:
    """Under the leading dims that ops expect, where the pieces fill the mesh in its order."""
    if dist.coordinates() != mesh_coordinates(dist.mesh):
        return dist
    fine = common_refinement(dist.grid, dist.mesh)
    if fine is None:
        return dist
    return distribution(dist.mesh, fine, refine(dist, fine).placements, None, dist.label)


def _fits(topology: TensorTopology, coords: Coordinates) -> bool:
    shape = topology.distribution_shape()
    return (
        len(topology.placements()) == shape.dims()
        and shape.mesh_size() == len(coords)
        and tuple(topology.mesh_coords()) == coords
    )


def _word(topology: TensorTopology, axis: int, grid: Extents, shards: list[_Shard], rank: int) -> Placement:
    placement = topology.placements()[axis]
    if isinstance(placement, PlacementShard) and -rank <= placement.dim < rank:
        return Shard(placement.dim % rank)
    stride = math.prod(grid[axis + 1 :])
    is_shared = all(
        shard.offset == shards[position - position // stride % grid[axis] * stride].offset
        for position, shard in enumerate(shards)
    )
    return REPLICATE if is_shared else LOCAL


def _payloads(shards: list[_Shard]) -> int:
    return len({shard.offset for shard in shards})


def _is_true(topology: TensorTopology | None, dist: Distribution, shards: list[_Shard]) -> bool:
    """Whether the file's own topology can be shown as it is."""
    if topology is None or not _fits(topology, tuple(shard.coord for shard in shards)):
        return False
    return dist.spread is None and not any(
        isinstance(placement, PlacementReplicate) and word is LOCAL
        for placement, word in zip(topology.placements(), dist.placements, strict=False)
    )


def _data(dist: Distribution, shards: list[_Shard], spec: TensorSpec, section: torch.Tensor) -> torch.Tensor:
    local = tuple(spec.shape)
    stored: dict[tuple[int, ...], _Shard] = {}
    for position, shard in enumerate(shards):
        stored.setdefault(stored_index(dist, position), shard)
    if len(stored) == 1:
        return _values(shards[0], spec, section).reshape(*dist.extents, *local)
    made = torch.empty(*dist.extents, *local, dtype=FACTS[spec.dtype].storage)
    for index, shard in stored.items():
        made[index] = _values(shard, spec, section)
    return made


def _values(shard: _Shard, spec: TensorSpec, section: torch.Tensor) -> torch.Tensor:
    payload = section[shard.offset : shard.offset + shard.size]
    is_block = FACTS[spec.dtype].is_block
    if not is_block and payload.storage_offset() % (FACTS[spec.dtype].bits // 8):
        payload = payload.clone()
    values = from_pages(payload.view(spec.num_pages(), spec.page_size()), spec)
    return values if spec.layout is not Layout.TILE else values.contiguous()
