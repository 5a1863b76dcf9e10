"""The torch device on which the values of virtual devices live: the CPU, or the GPU that SOFTMESH_DEVICE names."""

from __future__ import annotations

import os
import re
import warnings
from functools import cache

import torch

from softmesh.errors import GpuRemark, MeshError

_VARIABLE = "SOFTMESH_DEVICE"
_NAMES = re.compile("cpu|cuda(?::(0|[1-9][0-9]*))?")


_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


def chosen_torch_device() -> torch.device:
    """The one that SOFTMESH_DEVICE names; of several GPUs, for `cuda`, that of the rank's number on its host."""
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
        choice = "cuda:0" if there == 1 else f"cuda:0 to cuda:{there - 1}"
        raise MeshError(f"{_VARIABLE}={chosen}: torch finds {there} of them; choose {choice}.")
    _keep_sums_wide()
    if named[1] is not None:
        return torch.device(chosen)
    return torch.device("cuda", _card_of_rank(there))


def _card_of_rank(cards: int) -> int:
    found = next((value for name in _LOCAL_RANKS if (value := os.environ.get(name, "")).isdecimal()), None)
    rank, ranks = int(found or 0), int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or 1)
    if ranks > cards and rank < cards:
        _tell_of_sharing(ranks, cards)
    return rank % cards


@cache
def _tell_of_sharing(ranks: int, cards: int) -> None:
    """Once, by the first rank of each card."""
    warnings.warn(
        f"{ranks} ranks share the {cards} GPU{'s' * (cards > 1)} of this host: each takes a part of its memory, and "
        "they take turns in computing.",
        GpuRemark,
        stacklevel=2,
    )


@cache
def _keep_sums_wide() -> None:
    """For the process: unless torch is told not to, cuBLAS may add up parts of a bfloat16 product in bfloat16."""
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
