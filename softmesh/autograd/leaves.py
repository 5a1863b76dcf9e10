"""Leaf tensors: `requires_grad_`, `grad` and `backward`, and how each device's gradient is distributed on the mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import ref

import torch

from softmesh.autograd.gradient_wrapper import unwrap_gradient, wrap_gradient
from softmesh.autograd.process_gradients import told_apart
from softmesh.errors import MeshError
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import REPLICATE, Partial, Placement, Shard
from softmesh.runtime.grad_mode import GRADIENTS, run_backward
from softmesh.tensor.dtype import facts
from softmesh.tensor.gradient_sums import GradientSums, from_loss, note_added, note_loss, note_summed, summed_over
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor, tensor_method


def gradient_distribution(dist: Distribution, gradient: torch.Tensor) -> Distribution:
    """The words for a gradient of a value that lies as `dist` says.

    Devices that share a value and get gradients of their own hold contributions: the gradient of the shared
    value is their sum.
    """
    return dist.with_placements(tuple(map(_gradient_word, dist.placements, dist.grid, gradient.shape[: dist.lead])))


def _gradient_word(word: Placement, devices: int, extent: int) -> Placement:
    if extent == 1 and not (devices == 1 and isinstance(word, Shard)):  # the one piece that this process has
        return REPLICATE
    return word if isinstance(word, Shard) else Partial("sum")


def fitted(dist: Distribution, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient with the extents that its words imply: a split value's is kept for each piece."""
    extents = [
        n if isinstance(word, Shard) and n > 1 else extent
        for word, n, extent in zip(dist.placements, dist.grid, gradient.shape, strict=False)
    ]
    return gradient.expand(*extents, *gradient.shape[dist.lead :])


def gradient_tensor(storage: Storage, like: Tensor, gradient: torch.Tensor) -> Tensor:
    values = fitted(storage.dist, gradient)
    dist = gradient_distribution(storage.dist, values)
    return Tensor.make(Storage(values, dist, storage.device), like.spec)


@tensor_method("requires_grad_")
def requires_grad_(tensor: Tensor, requires_grad: bool = True) -> Tensor:
    """Collect gradients in `grad` from now on (or no longer)."""
    tensor.check_writable("requires_grad_")
    storage = tensor.storage
    assert storage.data is not None
    if not facts(tensor.dtype).is_float:
        raise MeshError(
            f"requires_grad_: only floating-point tensors have gradients, got {tensor.dtype}. "
            "Use ttnn.typecast(tensor, ttnn.float32)."
        )
    if tensor.shard_positions is not None:
        raise MeshError("requires_grad_: a shard shares the tensor it was taken from; ask for all of it.")
    if storage.data.requires_grad == requires_grad:
        return tensor
    if storage.data.grad_fn is not None:
        raise MeshError("requires_grad_: the tensor was computed from others that require gradients: detach() it.")
    data = storage.data.detach()
    if requires_grad:
        GRADIENTS.in_use = True
        data.requires_grad_()
        owner = ref(storage)
        data.register_post_accumulate_grad_hook(lambda leaf: _collect(leaf, owner()))
    storage.data = data
    return tensor


def _collect(leaf: torch.Tensor, storage: Storage | None) -> None:
    """Take what the engine has left at a leaf."""
    gradient, leaf.grad = leaf.grad, None
    if storage is None or gradient is None:
        return
    values, before = unwrap_gradient(gradient), storage.gradient
    storage.gradient = values if before is None else before + values
    note_loss(storage)
    if before is not None:
        note_added(storage, before)


def _requires_grad(tensor: Tensor) -> bool:
    data = tensor.storage.data
    return data is not None and data.requires_grad


def _grad(tensor: Tensor) -> Tensor | None:
    """What backward passes have brought, one for each device; None if there was none.

    Processes that have one device each along an axis compare what they hold: all of them must ask.
    """
    gradient = tensor.storage.gradient
    if gradient is None:
        return None
    made = told_apart(gradient_tensor(tensor.storage, tensor, gradient), "grad")
    made.storage.notes = GradientSums(summed_over(tensor.storage))
    return made


def _set_grad(tensor: Tensor, gradient: Tensor | None) -> None:
    if gradient is None:
        tensor.storage.gradient = None
        return
    own = tensor.storage
    if not isinstance(gradient, Tensor) or gradient.storage.device is not own.device:
        raise MeshError("grad: must be a tensor on the same mesh, or None.")
    gradient.check_allocated("grad")
    given = gradient.storage
    assert given.data is not None
    if tuple(gradient.shape) != tuple(tensor.shape) or given.dist.grid != own.dist.grid:
        raise MeshError(
            f"grad: has shape {gradient.shape} over {given.dist.grid}, the tensor {tensor.shape} over {own.dist.grid}."
        )
    own.gradient = given.data.detach()
    if isinstance(given.notes, GradientSums):
        note_summed(own, given.notes.axes, is_sum=True)


Tensor.requires_grad = property(_requires_grad)  # type: ignore[assignment]
Tensor.grad = property(_grad, _set_grad)  # type: ignore[assignment]


@tensor_method("detach")
def detach(tensor: Tensor) -> Tensor:
    """The same values, from which no gradient goes back."""
    storage = tensor.storage
    tensor.check_writable("detach")
    made = Storage(tensor.view_data().detach(), tensor.view_distribution(), storage.device)
    if storage.device is not None:
        made.use_memory_of(storage, tensor.spec)
    return Tensor.make(made, tensor.spec)


@tensor_method("backward")
def backward(tensor: Tensor, gradient: Tensor | None = None, retain_graph: bool = False) -> None:
    """Send gradients back from this tensor: on each device `gradient`, or 1 for a single value.

    Each device differentiates its own value: what devices share collects one gradient from each.
    """
    backward_all([tensor], [gradient], retain_graph)


BACKWARD_WATCHERS: list[Callable[[Sequence[Tensor]], None]] = []  # told from where gradients are about to be sent back
BACKWARD_TAKERS: list[Callable[[list[Tensor], list[Tensor | None]], None]] = []  # the last one does it


def backward_all(tensors: list[Tensor], gradients: list[Tensor | None], retain_graph: bool = False) -> None:
    """Gradients from several tensors in one pass."""
    values = [_checked_start(tensor) for tensor in tensors]
    seeds = [_seed(*pair) for pair in zip(tensors, gradients, strict=True)]
    for watcher in BACKWARD_WATCHERS:
        watcher(tensors)
    if BACKWARD_TAKERS:
        BACKWARD_TAKERS[-1](tensors, gradients)
        return
    is_loss = len(tensors) == 1 and gradients[0] is None
    with from_loss(tensors[0].view_distribution().placements if is_loss else ()):
        run_backward(values, seeds, retain_graph)


def _checked_start(tensor: Tensor) -> torch.Tensor:
    tensor.check_writable("backward")
    data = tensor.view_data()
    if not data.requires_grad:
        raise MeshError(
            f"backward: nothing that {tensor.shape} was computed from requires a gradient. "
            "Mark the parameters with requires_grad_() before the forward pass, and leave no_grad()."
        )
    return data


def _seed(tensor: Tensor, gradient: Tensor | None) -> torch.Tensor:
    data, dist = tensor.view_data(), tensor.view_distribution()
    if gradient is None:
        if tensor.logical_volume() != 1:
            raise MeshError(
                f"backward: gradient is implied for a single value only, and the tensor has shape {tensor.shape} on "
                "each device. Reduce it (ttnn.mean), or give the gradient."
            )
        ones = torch.ones((1,) * dist.lead + tuple(data.shape[dist.lead :]), dtype=data.dtype)
        return wrap_gradient(ones.to(data.device), data.shape)
    other = gradient.view_distribution()
    if tuple(gradient.shape) != tuple(tensor.shape) or other.grid != dist.grid:
        raise MeshError(
            f"backward: the gradient has shape {gradient.shape} over {other.grid}, the tensor {tensor.shape} over "
            f"{dist.grid}."
        )
    return wrap_gradient(gradient.view_data().detach().to(data.dtype), data.shape)
