"""Memory of the host: what is left of it, and the error before it runs out.

Linux hands out more than there is and kills the process that writes to it. So whatever is large asks here first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from softmesh import value_free
from softmesh.errors import OutOfHostMemory

WORTH_ASKING = 1 << 26  # bytes; what is smaller is not asked for
_KEPT_FREE = 1 << 27
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB", re.MULTILINE)
_CGROUP = Path("/sys/fs/cgroup")
_TORCH_SAYS = re.compile(r"tried to allocate (\d+) bytes|can't allocate memory|not enough memory|out of memory", re.I)


def available() -> float:
    """Bytes that this process can still have; infinite where the system does not tell."""
    return min(_of_the_machine(), _of_the_container())


def _of_the_machine() -> float:
    found = _AVAILABLE.search(_read(Path("/proc/meminfo")))
    return int(found[1]) * 1024 if found else math.inf


def _of_the_container() -> float:
    most, used = (_read(_CGROUP / name).strip() for name in ("memory.max", "memory.current"))
    return int(most) - int(used) if most.isdecimal() and used.isdecimal() else math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def check_host_room(where: str, nbytes: int, shapes: Sequence[Sequence[int]] = ()) -> None:
    """Refuse what the host has no room for."""
    if nbytes < WORTH_ASKING or value_free.is_on:
        return
    left = available()
    if nbytes > left - _KEPT_FREE:
        raise OutOfHostMemory(_shortage(where, nbytes, left, shapes))


def shortage_of(where: str, error: BaseException) -> OutOfHostMemory | None:
    """The same for an allocation that torch was refused; None for any other error."""
    told = str(error)
    found = _TORCH_SAYS.search(told)
    if not isinstance(error, MemoryError) and (found is None or "CUDA" in told):
        return None
    nbytes = int(found[1]) if found is not None and found[1] else 0
    return OutOfHostMemory(_shortage(where, nbytes, available(), ()))


def _shortage(where: str, nbytes: int, left: float, shapes: Sequence[Sequence[int]]) -> str:
    what = f" for {', '.join(str(list(shape)) for shape in shapes[:4])}" if shapes else ""
    asked = f"{_size(nbytes)}{what}" if nbytes else "more"
    has = "" if math.isinf(left) else f", and {_size(max(0, int(left)))} are left"
    return (
        f"{where}: the host's memory would run out: {asked} is needed{has}. The chips' memory is simulated in that of "
        "the host. Deallocate what is no longer used, use a smaller shape or dtype, shard instead of replicating, or "
        "run on a machine with more memory."
    )


def _size(nbytes: int) -> str:
    """
    >>> _size(3 << 30), _size(5 << 20)
    ('3.0 GiB', '5.0 MiB')
    """
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 1 << 30 else f"{nbytes / 2**20:.1f} MiB"
