"""Writing a checkpoint: each process its own file, the first one the index, and the name at last."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from softmesh.distributed.placement_requests import axis_names
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.processes.context import DistributedContext, SingleProcess
from softmesh.processes.waits import timeout
from softmesh.tensor.checksums import checksum
from softmesh.train.checkpoints import folders, index, random_state
from softmesh.train.checkpoints.index import Entry, Index, Piece
from softmesh.train.checkpoints.model_state import (
    Model,
    OptimizerLike,
    OptimizerState,
    Stateful,
    parameter_key,
    slot_key,
)
from softmesh.train.module import Parameters, is_first_holder, tell_ranks


def save(
    folder: str | os.PathLike[str],
    model: Parameters,
    optimizer: OptimizerLike | None = None,
    *,
    step: int,
    scheduler: Stateful | None = None,
    extra: Mapping[str, Any] | None = None,
    keep: int | None = None,
    ranks: DistributedContext | None = None,
) -> Path:
    """Write `folder/step-...`, and keep only the last `keep` steps of the run; returns its path.

    Every process that holds some of the mesh calls it. `ranks` are the processes that save together where each has
    a mesh and a stage of the model of its own. `extra` comes back from `load`: whatever JSON can hold.
    """
    _check_step(step)
    folders.check_keep(keep)
    found = Model.of(model)
    kept = None if optimizer is None else OptimizerState.of(optimizer, found)
    schedule = None if scheduler is None else scheduler.state_dict()
    for what, value in (("extra", extra or {}), ("the scheduler's state", schedule or {})):
        index.check_plain(what, value)
    tell_ranks(f"checkpoints.save({step=}, {keep=})", found.tensors)
    together = ranks or _holders(found)
    name = f"part-{together.rank:05d}-of-{together.size:05d}.safetensors"
    entries, tensors = _own_part(found, kept, name)
    finished = None
    with folders.held(Path(folder), _longest_wait(together)) if together.rank == 0 else nullcontext():
        unfinished = _begun(Path(folder), step, together)
        _write_part(unfinished / name, tensors, step)
        parts = _gathered(entries, together)
        merged = index.merged([text for text, _ in parts])  # by all of them: all refuse what cannot be merged
        if together.rank == 0:
            whole = Index(
                step,
                tuple(found.device.shape),
                axis_names(found.device),
                merged,
                None if kept is None else {"kind": kept.kind, "values": kept.values},
                schedule,
                tuple(random for _, random in parts),
                extra or {},
            )
            folders.flush(index.write(unfinished, whole))
            finished = folders.finish(unfinished, step, keep)
    together.barrier(op="save a checkpoint")
    return finished or folders.chosen(Path(folder), step)


def _longest_wait(together: DistributedContext) -> float:
    """For another run: the processes that stand in the first barrier meanwhile take no wait for a hang."""
    longest = folders.SECONDS_FOR_OTHERS
    return longest if together.size == 1 else min(longest, timeout() / 2)


def _check_step(step: int) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ArgumentValueError(f"save: step must be a number of steps, got {step!r}.")


def _holders(model: Model) -> DistributedContext:
    """The processes that hold the mesh of the model together."""
    ranks = model.device.ranks
    return SingleProcess() if ranks is None else ranks.context


def _own_part(model: Model, kept: OptimizerState | None, name: str) -> tuple[dict[str, Entry], dict[str, torch.Tensor]]:
    """What this process saves: nothing that an earlier one stores too."""
    entries: dict[str, Entry] = {}
    tensors: dict[str, torch.Tensor] = {}
    own = {parameter: tensor for parameter, tensor in model.tensors.items() if is_first_holder(tensor)}

    def add(key: str, parameter: str, values: torch.Tensor, dtype: str) -> None:
        held = model.held[parameter]
        tensors[key] = values.detach().cpu().contiguous()
        entries[key] = Entry(held.whole, dtype, (Piece(name, held, checksum(tensors[key])),))

    for parameter, tensor in own.items():
        add(parameter_key(parameter), parameter, tensor.view_data(), tensor.dtype.name)
    for (slot, parameter), values in (kept.tensors if kept else {}).items():
        if parameter in own:
            add(slot_key(slot, parameter), parameter, values, str(values.dtype).removeprefix("torch."))
    return entries, tensors


def _begun(folder: Path, step: int, together: DistributedContext) -> Path:
    unfinished = folders.begin(folder, step) if together.rank == 0 else folders.unfinished_name(folder, step)
    together.barrier(op="begin a checkpoint")
    return unfinished


def _write_part(path: Path, tensors: dict[str, torch.Tensor], step: int) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata={"softmesh": index.FORMAT, "step": str(step)})
        folders.flush(path)
    except (OSError, SafetensorError) as error:
        path.unlink(missing_ok=True)
        raise MeshError(
            f"Checkpoint: {path} could not be written ({error}). Checkpoints that were there are untouched; make room "
            "or choose another folder."
        ) from error


def _gathered(entries: dict[str, Entry], together: DistributedContext) -> list[tuple[str, dict[str, Any]]]:
    """Of each process its entries and its random numbers; all have written their files then."""
    mine = json.dumps([index.part_text(entries), random_state.current()]).encode()
    found = together.allgather_bytes(mine, op="save a checkpoint")
    return [(text, random) for text, random in (json.loads(bytes(one)) for one in found)]
