"""Tunes glibc's malloc for large results (`SOFTMESH_MALLOC`): freed memory is kept, or mapped in huge pages.

A fresh block page-faults through all of its memory, which costs more than filling it. glibc maps every
block above 32 MiB afresh, and gives the free end of its heap back after a few smaller ones. What
`SOFTMESH_MALLOC` chooses (medians for one float32 result, 2-core Xeon at 2.8 GHz, glibc 2.36):

                 16 MiB     64 MiB    128 MiB    256 MiB
    default      1.3 ms      17 ms      38 ms      65 ms    glibc and torch as they are
    huge         1.2 ms      11 ms      22 ms      42 ms    what happens unless something else is chosen
    keep         1.4 ms     6.9 ms      13 ms      26 ms

`huge` keeps up to 128 MiB of free heap, and has torch ask for huge pages, of which a block needs 512
times fewer. It asks through an environment variable that torch reads at its first allocation; set
later than that, only the first half takes effect.

`keep` gives back nothing up to 1 GiB. It is not the rule because of what else it keeps: glibc cannot
place an aligned block into a gap of its own size, so a loop that holds on to one small tensor a step can
leave a gap a step. Three results of 64 MiB and a small one held, 200 times: 12.6 GiB resident instead of
0.3. (Blocks up to 32 MiB do the same under plain glibc: with 30 MiB, 400 times, 11.7 GiB, under `huge`
4.1.) Good for a benchmark or a server whose steps are alike; not for whatever imports this package.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

from softmesh.errors import ArgumentValueError, did_you_mean

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4

_MIB = 1 << 20
_LARGEST_INT = (1 << 31) - 1

SetOption = Callable[[int, int], int]


def keep_freed_memory() -> bool:
    """Do as `SOFTMESH_MALLOC` says; False where the allocator stays as it is."""
    choice = os.environ.get("SOFTMESH_MALLOC", "huge")
    if choice not in _CHOICES:
        raise ArgumentValueError(
            f"SOFTMESH_MALLOC={choice} is not one of {', '.join(_CHOICES)}.{did_you_mean(choice, _CHOICES)}"
        )
    mallopt = _glibc_mallopt()
    return mallopt is not None and _CHOICES[choice](mallopt)


def _glibc_mallopt() -> SetOption | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none


def _leave(mallopt: SetOption) -> bool:
    return False


def _huge(mallopt: SetOption) -> bool:
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    return bool(mallopt(_M_MMAP_THRESHOLD, 32 * _MIB) and mallopt(_M_TRIM_THRESHOLD, 128 * _MIB))


def _keep(mallopt: SetOption) -> bool:
    # glibc before 2.35 refuses thresholds above 32 MiB; there, nothing is mapped at all.
    keeps_blocks = mallopt(_M_MMAP_THRESHOLD, 1024 * _MIB) or mallopt(_M_MMAP_MAX, 0)
    return bool(keeps_blocks and mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT))


_CHOICES: dict[str, Callable[[SetOption], bool]] = {"default": _leave, "huge": _huge, "keep": _keep}
