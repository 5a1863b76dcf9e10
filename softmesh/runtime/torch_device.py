"""Where the values of virtual devices live: on the CPU, or on a GPU that SOFTMESH_DEVICE names."""

from __future__ import annotations

import os

import torch

from softmesh.errors import MeshError

VARIABLE = "SOFTMESH_DEVICE"


def chosen_torch_device() -> torch.device:
    chosen = os.environ.get(VARIABLE) or "cpu"
    kind, _, number = chosen.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise MeshError(f"{VARIABLE}={chosen}: choose cpu or cuda.")
    device = torch.device(chosen)
    if kind == "cuda":
        _check_gpu(device)
    return device


def _check_gpu(device: torch.device) -> None:
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not there:
        raise MeshError(
            f"{VARIABLE}={device}: torch {torch.__version__} finds no GPU. Install a build of torch for CUDA, or "
            f"unset {VARIABLE} to run on the CPU."
        )
    if (device.index or 0) >= there:
        raise MeshError(
            f"{VARIABLE}={device}: torch finds {there} of them; choose cuda:0 to cuda:{there - 1}."
        )
