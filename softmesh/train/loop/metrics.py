"""Numbers of a run: what a step took, what its collectives moved, one line of JSON for each step."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import MeshError
from softmesh.runtime.commands import Command
from softmesh.tensor.dtype import facts
from softmesh.tensor.tensor import Tensor


class Traffic:
    """Counts collectives as they run: calls, and the bytes that each device puts into them."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def on_command(self, command: Command) -> None:
        op = OPERATIONS.get(command.name)
        if op is not None and op.reads_other_devices:
            self.calls[command.name] += 1
            self.bytes[command.name] += sum(map(_bytes, command.inputs))

    def told(self) -> dict[str, Any]:
        by_name = {name: {"calls": n, "bytes": self.bytes[name]} for name, n in sorted(self.calls.items())}
        return {"calls": self.calls.total(), "bytes": self.bytes.total(), "by_name": by_name}


def _bytes(tensor: Tensor) -> int:
    return tensor.logical_volume() * facts(tensor.dtype).bits // 8


@dataclass
class Measured:
    """One step: `rows` of all its batches, `tokens` where they have any."""

    step: int
    loss: float
    lr: float
    seconds: float
    rows: int
    tokens: int | None
    grad_norm: float | None = None
    traffic: Traffic | None = field(default=None, repr=False)

    def told(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "step": self.step,
            "loss": self.loss,
            "lr": self.lr,
            "grad_norm": self.grad_norm,
            "time_ms": round(1e3 * self.seconds, 3),
            "samples_per_s": round(self.rows / self.seconds, 3),
            "tokens_per_s": None if self.tokens is None else round(self.tokens / self.seconds, 3),
        }
        return values if self.traffic is None else values | {"collectives": self.traffic.told()}


class JsonLines:
    """A file that grows by a line for each step; a run that goes back to a checkpoint takes back what came after."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        except OSError as error:
            raise MeshError(f"Trainer: metrics cannot be written to {self.path}: {error}.") from error

    def write(self, values: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def go_back_to(self, step: int) -> None:
        """Drop the lines of later steps, and one that a crash cut off."""
        rest = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with (
            self.path.open(encoding="utf-8", errors="replace") as old,
            rest.open("w", encoding="utf-8") as new,
        ):
            new.writelines(line for line in old if _is_up_to(line, step))
        os.replace(rest, self.path)


def _is_up_to(line: str, step: int) -> bool:
    try:
        found = json.loads(line)["step"] if line.endswith("\n") else None
    except (ValueError, LookupError, TypeError):
        return False
    return isinstance(found, int) and found <= step
