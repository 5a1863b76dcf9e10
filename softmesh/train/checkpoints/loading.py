"""Reading a checkpoint: onto another mesh, with other placements, in other processes.

First everything is checked and read, then the model is changed. Files are opened when something of them is needed,
and only the bytes are read that this process needs: what was saved is cut along what is stored here.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.runtime.grad_mode import without_gradients
from softmesh.tensor.checksums import checksum
from softmesh.tensor.dtype import facts
from softmesh.terminal_text import readable
from softmesh.train.checkpoints import folders, index, random_state
from softmesh.train.checkpoints.index import Index, Piece
from softmesh.train.checkpoints.model_state import (
    OPTIMIZER,
    Model,
    OptimizerLike,
    OptimizerState,
    Stateful,
    difference,
    parameter_key,
    slot_key,
)
from softmesh.train.checkpoints.shard_regions import StoredBlock, cuts
from softmesh.train.module import Parameters, tell_ranks


class ShardFiles:
    """Files are opened when something of them is needed; their headers are checked then."""

    def __init__(self, folder: Path, step: int) -> None:
        self.folder, self.step = folder, step
        self.bytes_read = 0
        self._files: dict[str, Any] = {}
        self._checked: set[tuple[str, str]] = set()
        self._has_remarked = False

    def assembled(self, key: str, index: Index, target: StoredBlock, dtype: torch.dtype) -> torch.Tensor:
        """What this process stores of a value, put together from the pieces that overlap it."""
        entry = index.tensors[key]
        if entry.shape != target.whole:
            raise MeshError(
                f"{self.folder}: {key!r} has the shape {list(entry.shape)} in its index, and {list(target.whole)} in "
                f"the model. {self._remedy()}"
            )
        out = torch.zeros(target.stored, dtype=dtype)
        filled = 0
        for piece in entry.pieces:
            found = cuts(piece.held, target)
            if not found:
                continue
            stored = self._stored(piece, key)
            if not index.is_checked:
                self._remark_that_nothing_is_checked()
            self._check_sum(piece, key)
            for cut in found:
                values = stored[cut.source]
                self._check_dtype(piece, key, values.dtype, dtype)
                out[cut.target] = values
                filled += cut.volume
                self.bytes_read += values.nbytes
        wanted = sum(box.volume() for _, box in target.boxes())
        if filled != wanted:
            raise MeshError(
                f"{self.folder}: the pieces of {key!r} make up {filled} of the {wanted} values that are needed: its "
                f"index is damaged. {self._remedy()}"
            )
        return out

    def _stored(self, piece: Piece, key: str) -> Any:
        from safetensors import SafetensorError

        path = self.folder / piece.file
        try:
            stored = self._opened(path).get_slice(key)
            shape = tuple(stored.get_shape())
        except SafetensorError as error:
            raise MeshError(f"{path} has no {key!r} ({error}), which its index names. {self._remedy()}") from error
        if shape != piece.held.stored:
            raise MeshError(
                f"{path}: {key!r} has the shape {list(shape)}, its index says {list(piece.held.stored)}. "
                f"{self._remedy()}"
            )
        return stored

    def _check_sum(self, piece: Piece, key: str) -> None:
        """Of all that the file has of it, once."""
        if not piece.checksum:
            self._remark_that_nothing_is_checked()
        elif (piece.file, key) not in self._checked:
            self._checked.add((piece.file, key))
            found = checksum(self._opened(self.folder / piece.file).get_tensor(key))
            if found != piece.checksum:
                raise MeshError(
                    f"{self.folder / piece.file}: {key!r} is damaged: its checksum is {found}, and was "
                    f"{readable(piece.checksum)} when it was saved. {self._remedy()}"
                )

    def _remark_that_nothing_is_checked(self) -> None:
        if not self._has_remarked:
            self._has_remarked = True
            warnings.warn(
                f"{self.folder} has no checksums, because an older softmesh saved it: damage in it would go unnoticed. "
                "Save it again to have them.",
                SoftmeshWarning,
                stacklevel=2,
            )

    def _check_dtype(self, piece: Piece, key: str, found: torch.dtype, wanted: torch.dtype) -> None:
        if found is not wanted:
            raise MeshError(
                f"{self.folder / piece.file}: {key!r} is {found}, its index says {wanted}. {self._remedy()}"
            )

    def _opened(self, path: Path) -> Any:
        if path.name not in self._files:
            self._files[path.name] = self._open(path)
        return self._files[path.name]

    def _open(self, path: Path) -> Any:
        from safetensors import SafetensorError, safe_open

        if not os.path.isfile(path):  # to open a pipe would wait for its writer
            raise MeshError(f"{path} is {'no plain file' if os.path.exists(path) else 'missing'}. {self._remedy()}")
        try:
            file = safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise MeshError(
                f"{path} is truncated, or no safetensors file ({error}; it has {path.stat().st_size} bytes). "
                f"{self._remedy()}"
            ) from error
        tagged = (file.metadata() or {}).get("step")
        if tagged != str(self.step):
            raise MeshError(
                f"{path} is tagged with step {tagged}, its index with step {self.step}: files of two checkpoints were "
                f"mixed. {self._remedy()}"
            )
        return file

    def _remedy(self) -> str:
        return f"Nothing was changed; restore the file, or load an earlier step of {self.folder.parent}."


_FLOATS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class Loaded:
    """`mesh` and `axes` are those it was saved under; `bytes_read` counts what this process took of the tensors."""

    step: int
    path: Path
    mesh: tuple[int, ...]
    axes: tuple[str, ...] | None
    extra: Mapping[str, Any]
    bytes_read: int


def load(
    path: str | os.PathLike[str],
    model: Parameters,
    optimizer: OptimizerLike | None = None,
    *,
    step: int | None = None,
    scheduler: Stateful | None = None,
    restore_random: bool = False,
    stage: bool = False,
) -> Loaded:
    """Fill a model, and what else is given, from a checkpoint, or from a run's folder: the last one, or that of `step`.

    The model may lie on any mesh, under any placement; each process reads only what it stores. `restore_random`
    lets random numbers go on as they did. `stage` says that the model is a part of the one that was saved.
    """
    folder = folders.chosen(Path(path), step)
    found = index.read(folder)
    _check_tag(folder, found.step, step)
    own = Model.of(model)
    _check_model(folder, found, own, stage)
    tell_ranks(_told(found, optimizer, scheduler, restore_random), own.tensors)
    random = _random_of(folder, found, own) if restore_random else None
    parts = ShardFiles(folder, found.step)
    values = {
        name: parts.assembled(parameter_key(name), found, own.held[name], facts(tensor.dtype).storage)
        for name, tensor in own.tensors.items()
    }
    state = None if optimizer is None else _state(folder, found, own, optimizer, parts)
    schedule = None if scheduler is None else _schedule(folder, found, scheduler)
    if optimizer is not None and state is not None:
        optimizer.load_state_dict(state)
    if scheduler is not None and schedule is not None:
        scheduler.load_state_dict(schedule)
    without_gradients(partial(_fill, own, values))
    if random is not None:
        random_state.restore(random)
    return Loaded(found.step, folder, found.mesh, found.axes, found.extra, parts.bytes_read)


def _told(found: Index, *others: object) -> str:
    """To processes that hold the model together: they fill it and its companions from one checkpoint."""
    content = zlib.crc32(repr(found.tensors).encode())
    named = ("the optimizer", "the scheduler", "random numbers")
    filled = ["the model", *(name for name, given in zip(named, others, strict=True) if given not in (None, False))]
    return f"checkpoints.load(step={found.step}, content {content:08x}, into {', '.join(filled)})"


def _check_tag(folder: Path, tagged: int, asked: int | None) -> None:
    name = folders.tag_of(folder)
    named = tagged if name is None else name.step
    for said, what in ((named, "its name says"), (tagged if asked is None else asked, "you ask for")):
        if said != tagged:
            raise MeshError(
                f"{folder} is of step {tagged}, and {what} step {said}: files of two checkpoints were mixed, or a "
                "folder was renamed. Restore it, or load another step."
            )


def _check_model(folder: Path, found: Index, model: Model, stage: bool) -> None:
    prefix = parameter_key("")
    saved = {
        key.removeprefix(prefix): (entry.shape, entry.dtype)
        for key, entry in found.tensors.items()
        if key.startswith(prefix)
    }
    own = {name: (model.held[name].whole, tensor.dtype.name) for name, tensor in model.tensors.items()}
    different = difference(saved, own, may_have_more=stage)
    if different is not None:
        raise MeshError(
            f"{folder} is a checkpoint of another model: {different} Build the model that was saved, or load its own "
            "checkpoint."
        )


def _state(folder: Path, found: Index, model: Model, optimizer: OptimizerLike, parts: ShardFiles) -> dict[str, Any]:
    """The optimizer's state dict, with tensors as they are stored here."""
    kind = type(optimizer).__name__
    told = None if found.optimizer is None else found.optimizer.get("kind")
    if found.optimizer is None or told != kind:
        there = "no optimizer's state" if found.optimizer is None else f"the state of {told}"
        raise MeshError(
            f"{folder} has {there}, and is loaded for {kind}. Load the model alone (optimizer=None), or use the "
            "optimizer that was saved."
        )
    values = _like(folder, found.optimizer.get("values"), OptimizerState.of(optimizer, model).values, kind)
    slots, where = _slots(folder, found), model.device.torch_device
    state = {
        given: {
            slot: parts.assembled(slot_key(slot, name), found, model.held[name], dtype).to(where)
            for slot, dtype in slots[name].items()
        }
        for given, name in model.names_in(optimizer).items()
        if name in slots
    }
    return {**values, "state": state}


def _slots(folder: Path, found: Index) -> dict[str, dict[str, torch.dtype]]:
    """What was kept of each parameter, and in which dtype."""
    slots: dict[str, dict[str, torch.dtype]] = {}
    for key, entry in found.tensors.items():
        kind, *rest = key.split("/", 2)
        if kind == OPTIMIZER and len(rest) == 2:
            if entry.dtype not in _FLOATS:
                raise MeshError(f"{folder / index.INDEX}: {key!r} is of an unknown dtype {entry.dtype!r}.")
            slots.setdefault(rest[1], {})[rest[0]] = _FLOATS[entry.dtype]
    return slots


def _schedule(folder: Path, found: Index, scheduler: Stateful) -> dict[str, Any]:
    if found.scheduler is None:
        raise MeshError(f"{folder} was saved without a scheduler. Load it with scheduler=None, and set its step.")
    return _like(folder, found.scheduler, scheduler.state_dict(), type(scheduler).__name__)


def _like(folder: Path, given: object, own: dict[str, Any], kind: str) -> dict[str, Any]:
    """Plain state, refused where it is not what the object would save itself."""
    if not isinstance(given, Mapping) or {key: _sort(value) for key, value in given.items()} != {
        key: _sort(value) for key, value in own.items()
    }:
        raise MeshError(
            f"{folder / index.INDEX}: the state of {kind} should be like {own}, and is {given!r}. Load without it, or "
            "use what was saved."
        )
    return dict(given)


def _sort(value: object) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _random_of(folder: Path, found: Index, model: Model) -> Mapping[str, Any]:
    ranks = model.device.ranks
    rank, size = (0, 1) if ranks is None else (ranks.context.rank, ranks.context.size)
    try:
        state = found.random[rank if size == len(found.random) else 0]
        random_state.check(state)
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        raise MeshError(
            f"{folder / index.INDEX}: its random numbers cannot be restored ({error}). Load with restore_random=False."
        ) from error
    return state


def _fill(model: Model, values: dict[str, torch.Tensor]) -> None:
    """In place: a leaf stays the leaf that the graph and the optimizer know."""
    for name, tensor in model.tensors.items():
        data = tensor.storage.data
        assert data is not None
        data.copy_(values.pop(name))
