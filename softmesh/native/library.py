"""The shared library of the kernels: a plain one, without Python in it, which runs on the threads of torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

_THREADS = (
    "GOMP_parallel",
    "omp_get_thread_num",
    "omp_get_num_threads",
)  # of the OpenMP that torch has loaded
_WORTH_A_THREAD = 1 << 16  # bytes


def kernel(name: str, form: type[ctypes.Structure]) -> Callable[..., None] | None:
    """(form, from, to, threads): what the library calls `name`; None where there is no library."""
    found = getattr(_library(), name, None)
    if found is None:
        return None
    found.argtypes = [ctypes.POINTER(form), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    found.restype = None
    return found


def threads_for(count: int) -> int:
    """As many of torch's threads as so many bytes are worth."""
    return min(torch.get_num_threads(), count // _WORTH_A_THREAD + 1)


@cache
def _library() -> ctypes.CDLL | None:
    try:
        threads = ctypes.CDLL(
            None
        )  # all that this process has loaded; other systems than Unix have no such thing
        entries = [ctypes.cast(threads[name], ctypes.c_void_p) for name in _THREADS]
        library = ctypes.CDLL(str(_compiled()))
    except (OSError, AttributeError, TypeError):
        return None
    library.softmesh_team(*entries)
    return library


def is_compiled() -> bool:
    return _library() is not None


def _compiled() -> Path:
    here = Path(__file__)
    beside = [here.with_name(f"_kernels{suffix}") for suffix in EXTENSION_SUFFIXES]
    return next((path for path in beside if path.exists()), beside[0])
