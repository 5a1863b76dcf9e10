"""A note in TT-NN's files on what they have no words for: partial sums, local values, uneven shards, several ranks.

Kept as JSON behind the FlatBuffer of a header, where TT-NN does not look. Tensors that TT-NN can describe have none.
Before it stands the checksum of the file.
"""

from __future__ import annotations

import json
from typing import Any

from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import HOST, Distribution, distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard

_MARK = b"\x00softmesh:"


_CHECKSUM_MARK = b"\x00softsum:"
_DIGITS = 16
NO_CHECKSUM = b"-" * _DIGITS  # in its place while the data are written, and in the sum itself


def checksum_note(digits: bytes = NO_CHECKSUM) -> bytes:
    return _CHECKSUM_MARK + digits


def find_checksum(header: bytes) -> tuple[int, str] | None:
    """Where its digits stand in the header, and what they are; None in files of TT-NN."""
    at = header.rfind(_CHECKSUM_MARK)
    begin = at + len(_CHECKSUM_MARK)
    digits = header[begin : begin + _DIGITS]
    return (begin, digits.decode(errors="replace")) if at >= 0 and len(digits) == _DIGITS else None


def has_checksum(content: bytes) -> bool:
    return _CHECKSUM_MARK in content


def note_of(dist: Distribution) -> bytes:
    """Empty where TT-NN's words tell all."""
    is_plain = all(word is REPLICATE or (isinstance(word, Shard) and word.size is None) for word in dist.placements)
    if is_plain and dist.spread is None:
        return b""
    return _MARK + json.dumps(distribution_to_json(dist)).encode()


def find_note(header: bytes) -> Distribution | None:
    at = header.rfind(_MARK)
    if at < 0:
        return None
    return distribution_from_json(json.loads(header[at + len(_MARK) :].rstrip(b"\x00")))


def distribution_to_json(dist: Distribution) -> dict[str, Any]:
    return {
        "mesh": dist.mesh,
        "grid": dist.grid,
        "placements": [_word_to_json(word) for word in dist.placements],
        "coords": None if dist.coords is None else [list(coord) for coord in dist.coords],
        "label": dist.label,
        "spread": dist.spread,
    }


def distribution_from_json(header: dict[str, Any]) -> Distribution:
    mesh, grid, label = (MeshShape(header[name]) for name in ("mesh", "grid", "label"))
    if tuple(mesh) == HOST.mesh:
        return HOST
    words = tuple(_word_from_json(word) for word in header["placements"])
    coords = None if header["coords"] is None else tuple(MeshCoordinate(coord) for coord in header["coords"])
    if (mesh.mesh_size() if coords is None else len(coords)) != grid.mesh_size():
        raise ValueError(f"its pieces do not fill its grid {grid}")
    if any(not mesh.contains(coord) for coord in coords or ()):
        raise ValueError(f"it has pieces outside its mesh {mesh}")
    spread = header.get("spread")
    if spread is not None and (len(spread) != grid.dims() or grid != mesh):
        raise ValueError(f"it is the part of one of {spread} processes, and not along the axes of its mesh")
    blocks = None if spread is None else tuple(MeshShape(spread))
    return distribution(tuple(mesh), tuple(grid), words, coords, tuple(label), blocks)


def _word_to_json(word: Placement) -> list[Any]:
    if isinstance(word, Shard):
        return ["shard", word.dim, word.size]
    if isinstance(word, Partial):
        return ["partial", word.op]
    return ["replicate" if word is REPLICATE else "local"]


def _word_from_json(parts: list[Any]) -> Placement:
    kind, *values = parts
    if kind == "shard":
        return Shard(*values)
    if kind == "partial":
        return Partial(*values)
    return REPLICATE if kind == "replicate" else LOCAL
