"""JSON objects that end in a checksum of their own text, so that a flipped bit in a file is noticed.

    {"step": 100, "checksum": "0f1e2d3c4b5a6978"}

Whoever knows nothing of it reads the object with one key more.
"""

from __future__ import annotations

import hashlib
import re

_SEAL = re.compile(r', "checksum": "([0-9a-f]{16})"\}\s*\Z')
_SEAL_LENGTH = 64  # with some room for spaces at the end


def sealed(text: str) -> str:
    """The text of an object that is not empty, with its checksum as the last key.

    >>> sealed('{"step": 1}')
    '{"step": 1, "checksum": "345e8505b47623e3"}'
    """
    return f'{text[:-1]}, "checksum": "{digest(text.encode())}"}}'


def is_sealed(text: str) -> bool:
    """Whether it has a checksum; a ValueError where that is not the one of the text."""
    found = _SEAL.search(text, max(len(text) - _SEAL_LENGTH, 0))
    if found is None:
        return False
    is_now = digest(f"{text[: found.start()]}}}".encode())
    if is_now != found[1]:
        raise ValueError(f"it is damaged: its checksum is {is_now}, and was {found[1]} when it was written")
    return True


def digest(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
