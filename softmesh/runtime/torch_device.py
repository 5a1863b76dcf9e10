"""The torch device on which the values of virtual devices live: the CPU, or the GPU that SOFTMESH_DEVICE names."""

from __future__ import annotations

import os
import re

import torch

from softmesh.errors import MeshError

_VARIABLE = "SOFTMESH_DEVICE"
_NAMES = re.compile("cpu|cuda(?::(0|[1-9][0-9]*))?")


def chosen_torch_device() -> torch.device:
    chosen = os.environ.get(_VARIABLE) or "cpu"
    named = _NAMES.fullmatch(chosen)
    if named is None:
        raise MeshError(f"{_VARIABLE}={chosen}: choose cpu, cuda, or cuda:1 for the second GPU.")
    if chosen == "cpu":
        return torch.device(chosen)
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not there:
        raise MeshError(
            f"{_VARIABLE}={chosen}: torch {torch.__version__} finds no GPU. Install a build of torch for CUDA, or "
            f"unset {_VARIABLE} to run on the CPU."
        )
    if int(named[1] or 0) >= there:
        raise MeshError(f"{_VARIABLE}={chosen}: torch finds {there} of them; choose cuda:0 to cuda:{there - 1}.")
    return torch.device(chosen)
