"""The loop of a benchmark's worker: it says {"ready": version}, and answers each line of input, an order in JSON.

    {"prepare": ..., ...}    makes the call that follows, and leaves what it gives in the folder
    {"repeat": n}            answers {"seconds": ...} for one call
    {"release": true}        lets go of what was prepared

Found beside the scripts, by interpreters that need not have softmesh.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Call = Callable[[], object]
Order = dict[str, Any]


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def seconds_of(call: Call, repetitions: int) -> float:
    start = time.perf_counter()
    for _ in range(repetitions):
        call()
    return (time.perf_counter() - start) / repetitions


def orders_from_input(version: str) -> Iterable[Order]:
    say(ready=version)
    return map(json.loads, sys.stdin)


def serve(
    orders: Iterable[Order],
    prepare: Callable[[Path, Order], Call],
    seconds_of: Callable[[Call, int], float] = seconds_of,
    say: Callable[..., None] = say,
) -> None:
    folder = Path(sys.argv[1])
    call: Call = list
    for order in orders:
        if "prepare" in order:
            call = list  # what it held goes before something new comes
            call = prepare(folder, order)
            say(prepared=True)
        elif "release" in order:
            call = list
            say(released=True)
        else:
            say(seconds=seconds_of(call, order["repeat"]))
