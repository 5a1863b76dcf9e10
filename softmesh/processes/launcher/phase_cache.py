"""The cache of auto allocation: a folder for each question, named after a digest of all that the answer hangs on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

KEY_FILE = ".phase1_cache_key"
_NAME_LENGTH = 16
_LONGEST_KEY = 200  # characters worth reading of a key file


def question_key(
    descriptor: bytes,
    hosts: Sequence[str],
    mocks: Mapping[int, bytes],
    factory_descriptor: bytes | None = None,
    system: bytes = b"",
) -> str:
    """SHA-256 over the descriptor, the hosts or mock descriptors, and what else the answer depends on."""
    digest = hashlib.sha256(descriptor + b"\0")
    if mocks:
        for rank in sorted(mocks):
            digest.update(str(rank).encode() + b"\0" + hashlib.sha256(mocks[rank]).digest())
    else:
        digest.update(json.dumps(sorted(hosts), separators=(",", ":")).encode())
    if factory_descriptor is not None:
        digest.update(b"\0fsd\0" + factory_descriptor)
    if system:
        digest.update(b"\0system\0" + system)
    return digest.hexdigest()


def mapping_bytes(mapping: bytes, descriptors: Mapping[int, bytes]) -> bytes:
    """What stands for the descriptor where a mapping names several; the key adds the last zero byte."""
    parts = [mapping + b"\0"]
    parts += [str(id).encode() + b"\0" + descriptors[id] for id in sorted(descriptors)]
    return b"".join(parts)


def folder_for(key: str, launch_directory: Path) -> Path:
    """By the first digits of the key, unless another question has that folder."""
    root = launch_directory / "generated" / "ttrun"
    short = root / key[:_NAME_LENGTH]
    return short if key_in(short) in (None, key) else root / key


def key_in(folder: Path) -> str | None:
    try:
        with (folder / KEY_FILE).open(errors="replace") as file:
            return file.read(_LONGEST_KEY).strip()
    except OSError:
        return None


def is_answered(folder: Path, key: str, outputs: Iterable[str]) -> bool:
    return key_in(folder) == key and all((folder / name).is_file() for name in outputs)


def write_answer(folder: Path, key: str, files: Mapping[str, str]) -> None:
    """The key comes last: a folder with a key is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / KEY_FILE).unlink(missing_ok=True)
    for name, text in {**files, KEY_FILE: key + "\n"}.items():
        unfinished = folder / f"{name}.part"
        unfinished.write_text(text)
        unfinished.replace(folder / name)
