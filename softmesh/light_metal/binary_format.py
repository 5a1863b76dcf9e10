"""The bytes of a recorded program: a table of its calls in JSON, and behind it the values that came from the host."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softmesh.arguments import checked
from softmesh.errors import ArgumentError, MeshError
from softmesh.input_files.sealed_json import digest, is_sealed, sealed
from softmesh.terminal_text import readable

_MAGIC = b"softmesh light metal 1\n"
_LENGTH = 8  # bytes of the number that tells how long the table is
_MOST_BYTES = 1 << 34


class LightMetalBinary:
    """What `ttnn.light_metal_end_capture` returns; keep it with `save_to_file`."""

    def __init__(self, arg: Sequence[int] | bytes = b"") -> None:
        self._data = _as_bytes(arg)

    def get_data(self) -> list[int]:
        return list(self._data)

    def set_data(self, arg: Sequence[int] | bytes) -> None:
        self._data = _as_bytes(arg)

    def size(self) -> int:
        return len(self._data)

    def is_empty(self) -> bool:
        return not self._data

    def save_to_file(self, arg: str) -> None:
        try:
            Path(arg).write_bytes(self._data)
        except OSError as error:
            raise MeshError(f"LightMetalBinary.save_to_file: cannot write {arg}: {error.strerror}.") from None

    @staticmethod
    def load_from_file(arg: str) -> LightMetalBinary:
        try:
            if os.path.exists(arg) and not os.path.isfile(arg):
                raise MeshError(f"LightMetalBinary.load_from_file: {arg} is not a plain file.")
            if Path(arg).stat().st_size > _MOST_BYTES:
                raise MeshError(f"LightMetalBinary.load_from_file: {arg} has more than {_MOST_BYTES} bytes.")
            return LightMetalBinary(Path(arg).read_bytes())
        except OSError as error:
            raise MeshError(f"LightMetalBinary.load_from_file: cannot read {arg}: {error.strerror}.") from None


def _as_bytes(data: Sequence[int] | bytes) -> bytes:
    try:
        return bytes(data)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"LightMetalBinary: takes bytes, or numbers of 0 to 255: {error}.") from None


def packed(table: dict[str, Any], blobs: Sequence[bytes]) -> LightMetalBinary:
    sizes, digests = [len(blob) for blob in blobs], list(map(digest, blobs))
    text = sealed(json.dumps({**table, "sizes": sizes, "digests": digests})).encode()
    return LightMetalBinary(b"".join([_MAGIC, len(text).to_bytes(_LENGTH, "little"), text, *blobs]))


def unpacked(binary: LightMetalBinary) -> tuple[dict[str, Any], list[memoryview]]:
    """The table and the blobs behind it; a MeshError where the bytes are no recorded program, or not all of one."""
    checked("LightMetalReplay", "binary", binary, LightMetalBinary, "what ttnn.light_metal_end_capture returned")
    data = memoryview(binary._data)
    start = len(_MAGIC) + _LENGTH
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise MeshError("LightMetalReplay: these bytes are no program that ttnn.light_metal_end_capture returned.")
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    try:
        text = bytes(data[start:end]).decode()
        is_sealed(text)
        table = json.loads(text)
        sizes = [int(size) for size in table["sizes"]]
        _check_form(table)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise MeshError(f"LightMetalReplay: the table of calls cannot be read: {readable(str(error))}.") from None
    if any(size < 0 for size in sizes) or end + sum(sizes) != len(data):
        raise MeshError(f"LightMetalReplay: {len(data)} bytes, where {end + sum(sizes)} were recorded.")
    blobs = []
    for size in sizes:
        blobs.append(data[end : end + size])
        end += size
    if "digests" in table and list(map(digest, blobs)) != table["digests"]:
        raise MeshError("LightMetalReplay: the recorded values are damaged: their checksums differ.")
    return table, blobs


def _check_form(table: dict[str, Any]) -> None:
    """Raise where the table is not of a mesh and a list of calls, each with the numbers of what it made.

    What a call says beside that is looked at when it is made.
    """
    opened = table.setdefault("mesh", None)
    if opened is not None and not _is_whole(*opened["shape"]):
        raise ValueError(f"a mesh of shape {opened['shape']!r}")
    for call in table["calls"]:
        if not any(isinstance(call.get(key), kind) for key, kind in _CALLS.items()) or not _is_whole(*call["made"]):
            raise ValueError(f"{reprlib.repr(call)} is no call")
        if "trace" in call and not _is_whole(call["number"], call["queue"]):
            raise ValueError(f"{reprlib.repr(call)} names no trace and no queue")


def _is_whole(*numbers: object) -> bool:
    return all(type(number) is int for number in numbers)


_CALLS = {"name": str, "trace": str, "kept": int}  # the three kinds of calls, by the key that only one of them has
