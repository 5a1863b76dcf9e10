"""The shared library of the kernels: a plain one, without Python in it, which runs on the threads of torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

# Of the OpenMP that torch has loaded: they run a function on several threads.
_ENTRY_POINTS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_WORTH_A_THREAD = 1 << 16  # bytes


@cache
def kernel(name: str, form: type[ctypes.Structure]) -> Callable[..., None] | None:
    """(form, from, to, threads): what the library calls `name`; None where there is none that takes this form."""
    library = _library()
    if library is None:
        return None
    try:
        found, size = getattr(library, name), ctypes.c_int64.in_dll(library, f"{name}_form").value
    except (AttributeError, ValueError):  # it was compiled from other sources
        return None
    if size != ctypes.sizeof(form):
        return None
    found.argtypes = [ctypes.POINTER(form), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    found.restype = None
    return found


def is_compiled() -> bool:
    return _library() is not None


def is_plain(data: torch.Tensor) -> bool:
    """Whether its values are what lies in the memory of this process, and nobody asks how they came about."""
    is_memory = type(data) is torch.Tensor and data.is_cpu and not data.is_neg() and not data.is_conj()
    return is_memory and not data.requires_grad


def threads_for(count: int) -> int:
    """As many of torch's threads as so many bytes are worth."""
    return min(torch.get_num_threads(), count // _WORTH_A_THREAD + 1)


@cache
def _library() -> ctypes.CDLL | None:
    try:
        process = ctypes.CDLL(None)  # all that it has loaded
        entry_points = [ctypes.cast(process[name], ctypes.c_void_p) for name in _ENTRY_POINTS]
        library = ctypes.CDLL(str(_compiled()))
        library.softmesh_team(*entry_points)
    except (OSError, AttributeError, TypeError):
        return None
    return library


def _compiled() -> Path:
    here = Path(__file__)
    beside = [here.with_name(f"_kernels{suffix}") for suffix in EXTENSION_SUFFIXES]
    return next((path for path in beside if path.exists()), beside[0])
