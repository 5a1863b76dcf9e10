"""Writing of a host tensor as a tensor file of TT-NN."""

from __future__ import annotations

import os
import secrets
import stat
import struct
from contextlib import suppress
from errno import EINVAL
from pathlib import Path
from typing import NamedTuple

import torch

from softmesh.errors import MeshError
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import Coordinates, Distribution, Extents
from softmesh.placement.pieces import stored_index
from softmesh.tensor.checksums import Checksum
from softmesh.tensor.page_bytes import to_pages
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tensorbin.distribution_note import checksum_note, find_checksum, note_of
from softmesh.tensor.tensorbin.header_tables import spec_to_fields, topology_to_fields
from softmesh.tensor.tensorbin.schema import Fields, encode
from softmesh.terminal_text import printable

_ALIGNMENT = 64  # of the data section in the file, and of each payload in it
_SIZE_OF_SIZE = 8


class Pieces(NamedTuple):
    """What follows a header: the bytes of the distinct pieces of a tensor."""

    values: list[torch.Tensor]
    spec: TensorSpec
    dist: Distribution


def write(path: Path, host: Tensor, mesh: Extents, coords: Coordinates) -> None:
    """`coords` are those of the pieces in `mesh`, in the order of the flattened grid. The file is whole or absent."""
    fields, pieces = tensor_to_fields(host, mesh, coords)
    write_file(path, encode("Tensor", fields), pieces)


def tensor_to_fields(host: Tensor, mesh: Extents, coords: Coordinates) -> tuple[Fields, Pieces]:
    """The table of a tensor in a header, and what it points to."""
    spec = _plain(host.spec)
    spec_fields = spec_to_fields(spec)
    size = spec.bytes()
    if not size or not coords:
        raise MeshError(
            f"Unexpected empty buffer during tensor serialization: a tensor of {spec.shape} holds no values, and a "
            "tensor file cannot tell that."
        )
    dist, data = host.view_distribution(), host.view_data()
    pieces: dict[tuple[int, ...], int] = {}  # where each distinct piece is stored, by its index in the data
    shards = []
    for position, coord in enumerate(coords):
        offset = pieces.setdefault(stored_index(dist, position), len(pieces) * _aligned(size))
        buffer = {"offset": offset, "size": size}
        shards.append({"buffer": (1, buffer), "mesh_coordinate": {"values": list(coord)}})
    fields = {
        "tensor_spec": spec_fields,
        "mesh_shape": {"dimensions": list(MeshShape(mesh))},
        "shards": shards,
        "tensor_topology": topology_to_fields(host.tensor_topology()),
    }
    return fields, Pieces([data[index] for index in pieces], spec, dist)


def write_file(path: Path, header: bytes, pieces: Pieces) -> None:
    if os.path.exists(path) and not path.is_file():
        raise MeshError(f'Tensor file "{path}" could not be written: it is a folder, a pipe or a device. Name a file.')
    header += checksum_note() + note_of(pieces.dist)
    header += bytes(-(len(header) + _SIZE_OF_SIZE) % _ALIGNMENT)
    # Of this thread alone: several may fill one cache at once, and the last one's file stays.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        _write_all(unfinished, header, pieces)
        if path.exists():
            unfinished.chmod(stat.S_IMODE(path.stat().st_mode))
        os.replace(unfinished, path)
    except OSError as error:
        raise MeshError(
            f'Tensor file "{path}" could not be written: {error.strerror or error}. A file that was there before is '
            "untouched; make room, or choose another folder."
        ) from error
    finally:
        with suppress(OSError, ValueError):
            unfinished.unlink(missing_ok=True)


def _write_all(path: Path, header: bytes, pieces: Pieces) -> None:
    try:
        file = path.open("wb")
    except (OSError, ValueError) as error:
        named = printable(str(path.parent / path.name[1 : path.name.rindex(".")]))
        number, reason = getattr(error, "errno", EINVAL), getattr(error, "strerror", error)
        raise MeshError(
            f'Cannot create a temporary file next to "{named}": errno={number} "{reason}". The folder must exist '
            "and be writable."
        ) from error
    with file:
        file.write(struct.pack("<Q", len(header)))
        file.write(header)
        written = Checksum()
        written.add(torch.frombuffer(bytearray(header), dtype=torch.uint8))
        for number, piece in enumerate(pieces.values):
            pages = to_pages(piece, pieces.spec).contiguous()
            written.add(pages)
            file.seek(_SIZE_OF_SIZE + len(header) + number * _aligned(pieces.spec.bytes()))
            file.write(pages.numpy().data)
        place = find_checksum(header)
        assert place is not None
        file.seek(_SIZE_OF_SIZE + place[0])
        file.write(written.digits().encode())


def _plain(spec: TensorSpec) -> TensorSpec:
    """The spec with the room around its values that a reader expects, and the values of that room kept."""
    made = make_spec(tuple(spec.shape), spec.dtype, spec.layout, spec.memory_config, spec.tile)
    return made.padded_to(made.padded_shape, spec.pad_value) if spec.pad_value else made


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
