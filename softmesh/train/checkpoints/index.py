"""The index of a checkpoint: which tensors there are, how each file holds its part of them, and all else to resume.

Plain JSON. What is read is checked field by field, for it may come from anywhere.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softmesh.arguments import described
from softmesh.errors import ArgumentError, MeshError
from softmesh.input_files.sealed_json import is_sealed, sealed
from softmesh.terminal_text import readable
from softmesh.train.checkpoints.folders import INDEX
from softmesh.train.checkpoints.shard_regions import StoredBlock

FORMAT = "softmesh checkpoint 1"
_MOST_BYTES = 256 * 2**20
_MOST_DIMS = 16
_MOST_DEVICES = 2**16


@dataclass(frozen=True)
class Piece:
    """One tensor of one file, under the key of the whole."""

    file: str
    held: StoredBlock
    checksum: str = ""  # of its values; older checkpoints have none


@dataclass(frozen=True)
class Entry:
    """A whole value: `dtype` is a DataType's name for parameters, torch's for what an optimizer keeps."""

    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Index:
    step: int
    mesh: tuple[int, ...]
    axes: tuple[str, ...] | None
    tensors: Mapping[str, Entry]
    optimizer: Mapping[str, Any] | None = None
    scheduler: Mapping[str, Any] | None = None
    random: tuple[Mapping[str, Any], ...] = ()  # of each process
    extra: Mapping[str, Any] = field(default_factory=dict)
    is_checked: bool = True  # against a checksum, which older checkpoints do not have


def part_text(part: Mapping[str, Entry]) -> str:
    """The entries of one process, for the one that writes the index."""
    return _text({key: _entry_json(entry) for key, entry in part.items()}, "its tensors")


def merged(parts: list[str]) -> dict[str, Entry]:
    """The entries of all processes: the pieces of what they hold together come together."""
    found: dict[str, Entry] = {}
    for text in parts:
        for key, value in json.loads(text).items():
            entry, before = _entry(key, value), found.get(key)
            if before is not None:
                _check_same(key, before, entry)
                entry = Entry(entry.shape, entry.dtype, (*before.pieces, *entry.pieces))
            found[key] = entry
    return found


def _check_same(key: str, one: Entry, other: Entry) -> None:
    places = {(piece.held.first, piece.held.splits) for piece in one.pieces}
    if (one.shape, one.dtype) != (other.shape, other.dtype) or any(
        (piece.held.first, piece.held.splits) in places for piece in other.pieces
    ):
        raise MeshError(
            f"Checkpoint: {one.pieces[0].file} and {other.pieces[0].file} both have {key!r}: two processes save "
            "different things under one name. Give the stages of a model names of their own."
        )


def write(folder: Path, index: Index) -> Path:
    fields = {name: value for name, value in vars(index).items() if name != "is_checked"}
    whole = {
        "format": FORMAT,
        **fields,
        "extra": dict(index.extra),
        "tensors": {key: _entry_json(entry) for key, entry in index.tensors.items()},
    }
    path = folder / INDEX
    text = sealed(_text(whole, "optimizer, scheduler and extra"))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MeshError(
            f"Checkpoint: {path} could not be written ({error.strerror or error}). Checkpoints that were there are "
            "untouched; make room or choose another folder."
        ) from error
    return path


def _text(value: object, what: str) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"Checkpoint: {what} must be numbers, text, lists and dictionaries: {error}. Tensors belong into the model."
        ) from error


def check_plain(what: str, value: object) -> None:
    """Refuse, before anything is written, what JSON does not bring back as it was."""
    _text(value, what)
    if not _has_text_as_keys(value):
        raise ArgumentError(f"Checkpoint: {what} must have text as keys, got {value!r}.")


def _has_text_as_keys(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _has_text_as_keys(item) for key, item in value.items())
    return not isinstance(value, list | tuple) or all(map(_has_text_as_keys, value))


def read(folder: Path) -> Index:
    path = folder / INDEX
    try:
        if not os.path.isfile(path):
            raise ValueError("it is not a plain file" if os.path.exists(path) else "there is no such file")
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES // 2**20} MiB")
        text = path.read_text(encoding="utf-8")
        is_checked = is_sealed(text)
        return _index(json.loads(text), is_checked)
    except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise MeshError(
            f"{path} is not the index of a checkpoint ({readable(str(error))}). Restore the file, "
            f"or load an earlier step of {folder.parent}."
        ) from error


def _index(given: Any, is_checked: bool) -> Index:
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    axes = given["axes"]
    return Index(
        _count(given["step"]),
        _extents(given["mesh"]),
        None if axes is None else tuple(map(str, axes)),
        {str(key): _entry(key, value) for key, value in _mapping(given["tensors"]).items()},
        None if given["optimizer"] is None else _mapping(given["optimizer"]),
        None if given["scheduler"] is None else _mapping(given["scheduler"]),
        tuple(map(_mapping, given["random"])),
        _mapping(given["extra"]),
        is_checked,
    )


def _entry_json(entry: Entry) -> dict[str, Any]:
    pieces = [{**piece.held._asdict(), "file": piece.file, "checksum": piece.checksum} for piece in entry.pieces]
    for piece in pieces:
        del piece["whole"]  # the shape of the entry
    return {"shape": entry.shape, "dtype": entry.dtype, "pieces": pieces}


def _entry(key: str, given: Mapping[str, Any]) -> Entry:
    shape = _extents(given["shape"])
    return Entry(shape, str(given["dtype"]), tuple(_piece(key, shape, one) for one in given["pieces"]))


def _piece(key: str, shape: tuple[int, ...], given: Mapping[str, Any]) -> Piece:
    devices, first, grid = (_extents(given[name]) for name in ("devices", "first", "grid"))
    splits = tuple(None if dim is None else _count(dim) for dim in given["splits"])
    if not len(devices) == len(splits) == len(first) == len(grid):
        raise ValueError(f"{key}: its mesh has {len(devices)} axes, its placement {len(splits)}")
    if any(dim is not None and dim >= len(shape) for dim in splits):
        raise ValueError(f"{key}: its placement splits a dim that {shape} does not have")
    if any(n < 1 or a + n > m for a, n, m in zip(first, grid, devices, strict=True)):
        raise ValueError(f"{key}: it has pieces outside its mesh {devices}")
    if math.prod(grid) > _MOST_DEVICES:
        raise ValueError(f"{key}: it has pieces on {math.prod(grid)} devices")
    name = str(given["file"])
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"{key}: {name!r} is no file of this folder")
    return Piece(name, StoredBlock(shape, devices, splits, first, grid), str(given.get("checksum", "")))


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a dictionary, got {type(value).__name__}")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise ValueError(f"expected a whole number, got {described(value)}")
    return value


def _extents(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MOST_DIMS:
        raise ValueError(f"expected a shape, got {described(value)}")
    return tuple(map(_count, value))
