"""NaN and infinity checks: a loss or gradient that is not finite raises before it reaches the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from softmesh.errors import MeshError
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import from_device
from softmesh.tensor.undefined import note_leaving

_MOST_NAMED = 4


class NotFinite(MeshError):
    """What ended a run: in step `step`, after the checkpoint `checkpoint`. The parameters are as they were."""

    def __init__(self, what: str, step: int, checkpoint: Path | None) -> None:
        self.step, self.checkpoint = step, checkpoint
        super().__init__(f"{what}. The parameters are as they were before this step. {_way_on(checkpoint)}")

    def as_record(self) -> dict[str, Any]:
        """As a line among the metrics."""
        return {"step": self.step, "event": type(self).__name__}


class NotFiniteLoss(NotFinite):
    """`devices` are the coordinates whose loss it was."""

    def __init__(self, step: int, devices: list[tuple[int, ...]], value: float, checkpoint: Path | None) -> None:
        self.devices, self.value = devices, value
        more = f" and {len(devices) - _MOST_NAMED} more" if len(devices) > _MOST_NAMED else ""
        named = ", ".join(map(str, devices[:_MOST_NAMED]))
        where = "device" if len(devices) == 1 else f"{len(devices)} devices:"
        super().__init__(f"The loss of step {step} is {value} on {where} {named}{more}", step, checkpoint)

    def as_record(self) -> dict[str, Any]:
        return super().as_record() | {"devices": self.devices, "loss": str(self.value)}


class NotFiniteGradient(NotFinite):
    """The loss was finite, its gradient with respect to `parameter` is not."""

    def __init__(self, step: int, parameter: str, norm: float, checkpoint: Path | None) -> None:
        self.parameter = parameter
        super().__init__(
            f"The norm of the gradients of step {step} is {norm}: that of {parameter} is not finite",
            step,
            checkpoint,
        )

    def as_record(self) -> dict[str, Any]:
        return super().as_record() | {"parameter": self.parameter}


def _way_on(checkpoint: Path | None) -> str:
    remedy = "Lower the learning rate, clip gradients (max_grad_norm=1.0), or look at the batch"
    if checkpoint is None:
        return f"{remedy}; no checkpoint was saved (checkpoint_dir=..., save_every=...)."
    return f"{remedy}; the last checkpoint is {checkpoint}."


def checked_loss(loss: Tensor, step: int, checkpoint: Path | None) -> float:
    """The mean of what the devices have as loss."""
    note_leaving(loss)
    device = loss.device()
    whole = loss if device is None or device.ranks is None else from_device(loss)
    values = whole.pieces().detach().double().reshape(len(whole.view_distribution().coordinates()), -1).mean(1)
    wrong = (~values.isfinite()).nonzero().flatten().tolist()
    if wrong:
        places = whole.view_distribution().coordinates()
        raise NotFiniteLoss(step, [tuple(places[i]) for i in wrong], float(values[wrong[0]]), checkpoint)
    return float(values.mean())


def check_norm(norm: float, params: Mapping[str, Tensor], step: int, checkpoint: Path | None) -> None:
    if torch.tensor(norm).isfinite():
        return
    wrong = [
        name
        for name, tensor in params.items()
        if tensor.storage.gradient is not None and not bool(tensor.storage.gradient.isfinite().all())
    ]
    raise NotFiniteGradient(step, wrong[0] if wrong else "all parameters together", norm, checkpoint)
