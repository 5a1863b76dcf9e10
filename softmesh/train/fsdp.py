"""Fully sharded data parallelism (FSDP): parameters stored in shards along a mesh axis, gathered while they are used.

for block in model.blocks:
    fully_shard(block)
fully_shard(model)
optimizer = AdamW(model)

Each call makes a unit of the parameters that no unit inside has. A unit gathers its parameters before its
forward pass and lets them go behind it; the backward pass gathers them again when it comes to the unit, and
leaves on each device the mean gradient of its piece. `unshard()` and `reshard()` of the module gather them
once for several passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from softmesh.autograd.activation_offload import saving_offloaded_values
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_size
from softmesh.train.module import Module
from softmesh.train.sharded_parameters import (
    GatheredParameter,
    GatherScope,
    Parameter,
    Piece,
    ShardDim,
    memories,
    split,
)

AnyModule = TypeVar("AnyModule", bound=Module)
_UNIT = "fsdp_unit"  # the attribute of a module that is one


def fully_shard(
    module: AnyModule, axis: Axis = "fsdp", shard_dim: ShardDim = "auto", reshard_after_forward: bool = True
) -> AnyModule:
    """Split the parameters of the module along the axis: call it on the blocks of a model, then on the model.

    "auto" takes the longest dim that divides and that no other axis splits; a number, that dim or none. A parameter
    that cannot be split stays whole on every device: sync_gradients(model, [axis]) combines its gradients. With
    `reshard_after_forward=False`, what was gathered stays until the backward pass is through.
    """
    _check(module, shard_dim)
    parameters = _parameters(module)
    pieces = [piece for piece in (split(each, axis, shard_dim) for each in parameters) if piece is not None]
    if parameters and shard_dim != "auto" and not pieces:
        _refuse_dim(parameters[0], axis, shard_dim)
    unit = Unit(module, pieces, reshard_after_forward)
    vars(module).update({_UNIT: unit, "forward": unit.run, "unshard": unit.unshard, "reshard": unit.reshard})
    return module


def _check(module: Any, shard_dim: Any) -> None:
    if not isinstance(module, Module):
        raise ArgumentValueError(f"fully_shard: takes a softmesh.train.Module, got {type(module).__name__}.")
    if _UNIT in vars(module):
        raise MeshError(f"fully_shard: this {type(module).__name__} is a unit already.")
    if shard_dim != "auto" and (isinstance(shard_dim, bool) or not isinstance(shard_dim, int)):
        raise ArgumentValueError(f'fully_shard: shard_dim must be "auto" or a dim, got {shard_dim!r}.')


def _refuse_dim(first: Parameter, axis: Axis, shard_dim: ShardDim) -> None:
    devices = axis_size(first.mesh(), axis)
    if devices > 1:
        raise MeshError(
            f"fully_shard: no parameter can be split along dim {shard_dim} over the {devices} devices along mesh axis "
            f'{axis!r} (the first is {first.name}, {first.tensor.shape}). Use shard_dim="auto".'
        )


def _parameters(module: Module) -> list[Parameter]:
    """Those below the module that no unit has yet."""
    taken = {
        id(piece.tensor): path
        for path, part in module.named_modules()
        for piece in (vars(part)[_UNIT].pieces if _UNIT in vars(part) else ())
    }
    found: dict[int, Parameter] = {}
    for path, part in _outside_units(module):
        for attribute, value in vars(part).items():
            if isinstance(value, Tensor) and value.requires_grad:
                name = f"{path}.{attribute}" if path else attribute
                if id(value) in taken:
                    raise MeshError(
                        f"fully_shard: {name} is also a parameter of the unit {taken[id(value)]!r}, which gathers it "
                        "for itself only. Leave that unit out, so that one unit has all uses of it."
                    )
                found.setdefault(id(value), Parameter(name, value, [])).owners.append((part, attribute))
    return list(found.values())


def _outside_units(module: Module, path: str = "") -> Iterator[tuple[str, Module]]:
    yield path, module
    for name, child in module.children():
        if _UNIT not in vars(child):
            yield from _outside_units(child, f"{path}.{name}" if path else name)


class Unit:
    """What a call of fully_shard has made of a module."""

    def __init__(self, module: Module, pieces: list[Piece], reshards: bool) -> None:
        self.module, self.pieces = module, pieces
        self._reshards = reshards
        self._kept: list[GatheredParameter] = []
        self._is_pinned = False
        self._is_running = False

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward pass, with whole parameters."""
        forward = type(self.module).forward
        if self._is_running:  # the module calls itself
            return forward(self.module, *args, **kwargs)
        scope = self._gathered()
        with self._in_place(scope.parameters()), saving_offloaded_values():
            made = forward(self.module, *args, **kwargs)
        scope.end_forward(memories(made) | memories([vars(part) for _, part in _outside_units(self.module)]))
        return made

    def unshard(self) -> None:
        """Gather now, and keep it until reshard(): passes in between gather only what has changed."""
        self._is_pinned = True
        self._kept = self._fresh()

    def reshard(self) -> None:
        """Let go of what was gathered."""
        self._is_pinned = False
        self._kept = []

    def _gathered(self) -> GatherScope:
        if self._reshards and not self._is_pinned:
            return GatherScope([GatheredParameter(piece) for piece in self.pieces], True, lambda: None)
        self._kept = self._fresh()
        return GatherScope(self._kept, False, self._end_backward)

    def _end_backward(self) -> None:
        if not self._is_pinned:
            self._kept = []

    def _fresh(self) -> list[GatheredParameter]:
        """What is kept of the pieces as they are now, and the rest gathered."""
        kept: Sequence[GatheredParameter | None] = self._kept or [None] * len(self.pieces)
        return [
            whole if whole is not None and whole.is_current() else GatheredParameter(piece)
            for whole, piece in zip(kept, self.pieces, strict=True)
        ]

    @contextmanager
    def _in_place(self, wholes: Sequence[Tensor]) -> Iterator[None]:
        """The module finds these tensors in the places of its parameters."""
        self._is_running = True
        self._put(wholes)
        try:
            yield
        finally:
            self._put([piece.tensor for piece in self.pieces])
            self._is_running = False

    def _put(self, tensors: Sequence[Tensor]) -> None:
        for piece, tensor in zip(self.pieces, tensors, strict=True):
            for owner, attribute in piece.owners:
                setattr(owner, attribute, tensor)
