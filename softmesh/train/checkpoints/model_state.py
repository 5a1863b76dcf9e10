"""State dicts for checkpoints: each tensor of a model and its optimizer under a key, with its sharding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch

from softmesh.errors import MeshError, did_you_mean
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor
from softmesh.train.checkpoints.shard_regions import StoredBlock, stored_block
from softmesh.train.module import Parameters, named

OPTIMIZER = "optimizer"  # the first part of the keys of what one keeps


class Stateful(Protocol):
    """Optimizers and schedulers, as far as checkpoints know them."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class OptimizerLike(Stateful, Protocol):
    params: dict[str, Tensor]


class Model(NamedTuple):
    """Parameters by name, how each is held, and the mesh that they, or the first of them, are on."""

    tensors: dict[str, Tensor]
    held: dict[str, StoredBlock]
    device: MeshDevice

    @classmethod
    def of(cls, parameters: Parameters) -> Model:
        tensors = named(parameters)
        if not tensors:
            raise MeshError("Checkpoint: the model has no parameters: mark tensors with requires_grad_().")
        devices = [tensor.device() for tensor in tensors.values()]
        device = devices[0]
        if device is None or any(other is None or other.ranks is not device.ranks for other in devices):
            raise MeshError(
                "Checkpoint: the parameters of a model are on meshes that the same processes hold; these are not, or "
                "are on the host."
            )
        return cls(tensors, {name: stored_block(name, tensor) for name, tensor in tensors.items()}, device)

    def names_in(self, optimizer: OptimizerLike) -> dict[str, str]:
        """For each name that the optimizer has for a parameter, the model's."""
        own = {id(tensor.storage): name for name, tensor in self.tensors.items()}
        found = {}
        for name, tensor in optimizer.params.items():
            if id(tensor.storage) not in own:
                raise MeshError(f"Checkpoint: the optimizer has a parameter {name!r} that is not one of the model.")
            found[name] = own[id(tensor.storage)]
        return found


def parameter_key(name: str) -> str:
    return f"model/{name}"


def slot_key(slot: str, name: str) -> str:
    return f"{OPTIMIZER}/{slot}/{name}"


class OptimizerState(NamedTuple):
    """An optimizer's state: tensors of the shape of their parameter, by (slot, parameter), and plain values."""

    kind: str
    values: dict[str, Any]
    tensors: dict[tuple[str, str], torch.Tensor]

    @classmethod
    def of(cls, optimizer: OptimizerLike, model: Model) -> OptimizerState:
        state = optimizer.state_dict()
        names = model.names_in(optimizer)
        tensors = {}
        for given, slots in state.get("state", {}).items():
            name = names[given]
            for slot, values in slots.items():
                if tuple(values.shape) != model.held[name].stored:
                    raise MeshError(
                        f"Checkpoint: {type(optimizer).__name__} keeps {slot!r} of {name} as {list(values.shape)}, "
                        f"and the parameter is stored as {list(model.held[name].stored)}: only state that is split as "
                        "its parameter is can be put on another mesh."
                    )
                tensors[slot, name] = values
        values = {key: value for key, value in state.items() if key != "state"}
        return cls(type(optimizer).__name__, values, tensors)


Form = tuple[tuple[int, ...], str]  # the whole shape of a parameter, and its dtype


def difference(saved: Mapping[str, Form], own: Mapping[str, Form], may_have_more: bool) -> str | None:
    """What first tells a saved model from this one, in words; None where they are alike."""
    for name, (shape, dtype) in own.items():
        if name not in saved:
            return f"it has no parameter {name!r}, which the model has.{did_you_mean(name, saved)}"
        if saved[name] != (shape, dtype):
            theirs = f"{list(saved[name][0])} {saved[name][1]}"
            return f"its {name!r} is {theirs}, that of the model {list(shape)} {dtype}."
    more = [name for name in saved if name not in own]
    if more and not may_have_more:
        return f"it has a parameter {more[0]!r}, which the model has not.{did_you_mean(more[0], own)}"
    return None
