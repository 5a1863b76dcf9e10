"""Models as trees of modules with named parameters."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from softmesh.arguments import checked, checked_function, checked_list
from softmesh.autograd.leaves import requires_grad_
from softmesh.errors import MeshError
from softmesh.placement.placements import Replicate
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, on_mesh


def parameter(
    values: torch.Tensor,
    mesh: MeshDevice,
    splits: dict[Axis, int] | None = None,
    dtype: DataType = DataType.FLOAT32,
) -> Tensor:
    """A tensor that is trained: the whole of it given, split along mesh axes (axis: dim) or the same everywhere."""
    return requires_grad_(on_mesh(values, mesh, splits, dtype, Layout.TILE))


class Phase(enum.Enum):
    """What happens to all parameters at once, between one forward pass and the next."""

    SYNC = "sync_gradients"
    CLIP = "clip_grad_norm"
    BEFORE_STEP = "gradients of the step"
    STEP = "step"


PHASE_WATCHERS: list[Callable[[Phase, str, Mapping[str, Tensor]], None]] = []  # told of each phase when it is over


def tell_phase(phase: Phase, who: str, params: Mapping[str, Tensor]) -> None:
    for watcher in PHASE_WATCHERS:
        watcher(phase, who, params)


WATCHERS: list[Callable[[Module, tuple[Any, ...], dict[str, Any]], Any]] = []  # the last one makes the calls


_LAYERS = [f"{__package__}.{name}" for name in ("layers", "context_parallel")]


class Module:
    """Attributes that are tensors with gradients are its parameters; those that are modules, its parts.

    It remembers what it was made with, so that the same model can be made on another mesh.
    """

    is_training = True
    made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __init_subclass__(cls, **options: Any) -> None:
        """The layers of softmesh say which of their arguments is wrong."""
        super().__init_subclass__(**options)
        if cls.__module__ in _LAYERS and "__init__" in vars(cls):
            cls.__init__ = checked_function(cls.__init__, cls.__name__)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Module:
        made = super().__new__(cls)
        made.made_with = (args, kwargs)
        return made

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return WATCHERS[-1](self, args, kwargs) if WATCHERS else self.forward(*args, **kwargs)

    def __repr__(self) -> str:
        """Its class with the shapes that one device holds of its parameters, and its parts, as torch writes modules."""
        held = ((name, value) for name, value in vars(self).items() if isinstance(value, Tensor))
        own = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in held if tensor.requires_grad)
        parts = [f"  ({name}): {part!r}".replace("\n", "\n  ") for name, part in self.children()]
        start = f"{type(self).__name__}({own}"
        return "\n".join([start, *parts, ")"]) if parts else f"{start})"

    def children(self) -> Iterator[tuple[str, Module]]:
        """The modules right below, each under the name of its attribute (`blocks.0` for a list's)."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, list | tuple):
                yield from ((f"{name}.{i}", item) for i, item in enumerate(value) if isinstance(item, Module))

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, child in self.children():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Each once, by the path of attributes that leads to it first."""
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor) and value.requires_grad and id(value.storage) not in seen:
                    seen.add(id(value.storage))
                    yield f"{path}.{name}" if path else name, value

    def parameters(self) -> list[Tensor]:
        return [tensor for _, tensor in self.named_parameters()]

    def zero_grad(self) -> None:
        zero_gradients(self.parameters())

    def train(self, mode: bool = True) -> Module:
        for _, module in self.named_modules():
            module.is_training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)


class Sequential(Module):
    def __init__(self, *parts: Module) -> None:
        self.parts = list(parts)

    def forward(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x


def zero_gradients(parameters: Iterable[Tensor]) -> None:
    """Forget what backward passes have brought."""
    for tensor in checked_list("zero_gradients", "parameters", parameters, "tensors"):
        checked("zero_gradients", "each parameter", tensor, Tensor, "a ttnn.Tensor").storage.gradient = None


Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Module


def named(parameters: Parameters) -> dict[str, Tensor]:
    """Parameters by name, from a module, from pairs, or numbered where they come without names."""
    if isinstance(parameters, Module):
        return dict(parameters.named_parameters())
    found: dict[str, Tensor] = {}
    for i, item in enumerate(
        checked_list("parameters", "what is given", parameters, "tensors, or of names and tensors")
    ):
        name, tensor = item if isinstance(item, tuple) and len(item) == 2 else (f"parameter {i}", item)
        if not isinstance(tensor, Tensor):
            raise MeshError(f"{name}: a parameter is a ttnn.Tensor, got {type(tensor).__name__}.")
        if found.setdefault(name, tensor).storage is not tensor.storage:
            raise MeshError(f"{name}: two parameters have this name, and one would be left out. Give it a prefix.")
    return found


def tell_ranks(call: str, params: Mapping[str, Tensor]) -> None:
    """Of a call that all processes make alike which hold these parameters together."""
    addresses: dict[MeshDevice, list[int]] = {}
    for tensor in params.values():
        if (mesh := tensor.storage.device) is not None and mesh.ranks is not None:
            addresses.setdefault(mesh, []).append(tensor.storage.address)
    for mesh, places in addresses.items():
        mesh.tell_ranks(f"{call} of {len(places)} parameter{'s' * (len(places) > 1)}", tuple(places))


def is_first_holder(tensor: Tensor) -> bool:
    """Whether no process before this one stores the same: what several share is saved, and counts, once."""
    storage = tensor.storage
    block = None if storage.device is None else storage.device.block
    if storage.dist.spread is None or block is None:
        return True
    return all(
        at == 0 for at, word in zip(block.at, storage.dist.placements, strict=True) if isinstance(word, Replicate)
    )
