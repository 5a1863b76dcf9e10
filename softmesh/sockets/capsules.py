"""Memory that a caller hands over as a bare pointer in a capsule, as TT-NN's bindings take it."""

from __future__ import annotations

import ctypes
from typing import Any

from softmesh.arguments import refused

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_DLPACK = (b"dltensor", b"dltensor_versioned")


def memory_of(where: str, capsule: Any, nbytes: int) -> memoryview:
    """`nbytes` bytes from where the capsule points; the caller vouches for their number."""
    if type(capsule).__name__ != "PyCapsule":
        raise refused(where, f"data must be a capsule with a pointer to the bytes, got {capsule!r}")
    if _name(capsule) in _DLPACK:
        raise refused(where, "data is a DLPack capsule, which points to a description and not to the bytes")
    address = _pointer(capsule, _name(capsule))
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")
