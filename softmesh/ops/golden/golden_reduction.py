"""Golden functions of reductions, softmax and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Tensor = torch.Tensor
Dims = int | Sequence[int] | None


def _dims(x: Tensor, dim: Dims) -> tuple[int, ...]:
    if dim is None:
        return tuple(range(x.dim()))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def reduction(function: Callable[[Tensor, tuple[int, ...], bool], Tensor]) -> Callable[..., Tensor]:
    def golden(input_tensor: Tensor, dim: Dims = None, keepdim: bool = False, scalar: float = 1.0) -> Tensor:
        return function(input_tensor * scalar, _dims(input_tensor, dim), keepdim)

    return golden


def spread(finish: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def golden(
        input_tensor: Tensor,
        dim: Dims = None,
        keepdim: bool = False,
        scalar: float = 1.0,
        correction: bool | None = None,
    ) -> Tensor:
        one = 1 if correction is None else int(correction)
        found = torch.var(input_tensor * scalar, _dims(input_tensor, dim), correction=one, keepdim=keepdim)
        return finish(found)

    return golden


def prod(input_tensor: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    if dim is None:
        return torch.prod(input_tensor).reshape([1] * input_tensor.dim() if keepdim else [])
    return torch.prod(input_tensor, dim, keepdim)


def argmax(input_tensor: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return torch.argmax(input_tensor, dim, keepdim)


def topk(input_tensor: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sequence[Tensor]:
    return tuple(torch.topk(input_tensor, k, dim, largest, sorted))


def cumsum(input: Tensor, dim: int, reverse_order: bool = False) -> Tensor:
    if reverse_order:
        return torch.cumsum(input.flip(dim), dim).flip(dim)
    return torch.cumsum(input, dim)


def fast_reduce_nc(input: Tensor, dims: Sequence[int]) -> Tensor:
    return torch.sum(input, tuple(dims), keepdim=True)


def softmax(input_tensor: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(input_tensor, dim)


def scale_mask_softmax(input_tensor: Tensor, scale: float | None = None, mask: Tensor | None = None) -> Tensor:
    scores = input_tensor if scale is None else input_tensor * scale
    return torch.softmax(scores if mask is None else scores + mask, -1)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Weight and bias are rows, in any shape that has as many elements as a row."""
    if weight is not None:
        x = x * weight.reshape(-1)
    return x if bias is None else x + bias.reshape(-1)


def _first_columns(*values: Tensor) -> Tensor:
    """Each value in the first of the 32 columns of a tile of its own."""
    tiles = [torch.nn.functional.pad(value, (0, 31)) for value in values]
    return torch.cat(tiles, -1)


def _gathered(stats: Tensor, each: int, width: int) -> Sequence[Tensor]:
    """The statistics of whole rows: tiles of all devices side by side, `each` of them from one device."""
    columns = stats[..., ::32].unflatten(-1, (-1, each))
    return (columns.sum(-2) / (width * columns.shape[-2])).split(1, -1)


def norms(centred: bool) -> tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., Tensor]]:
    """Make the reference of a norm, and those of its two halves around an all_gather of the statistics."""

    def norm(
        input_tensor: Tensor,
        epsilon: float = 1e-12,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        residual_input_tensor: Tensor | None = None,
    ) -> Tensor:
        x = input_tensor if residual_input_tensor is None else input_tensor + residual_input_tensor
        x = x - x.mean(-1, keepdim=True) if centred else x
        return _affine(x / torch.sqrt(x.square().mean(-1, keepdim=True) + epsilon), weight, bias)

    def weight_first(
        input_tensor: Tensor,
        weight: Tensor | None = None,
        epsilon: float = 1e-12,
        bias: Tensor | None = None,
        residual_input_tensor: Tensor | None = None,
    ) -> Tensor:
        return norm(input_tensor, epsilon, weight, bias, residual_input_tensor)

    def statistics(input_tensor: Tensor, residual_input_tensor: Tensor | None = None) -> Tensor:
        x = input_tensor if residual_input_tensor is None else input_tensor + residual_input_tensor
        sums = [x.sum(-1, keepdim=True)] if centred else []
        return _first_columns(x.square().sum(-1, keepdim=True), *sums)

    def from_statistics(
        input_tensor: Tensor,
        stats: Tensor,
        epsilon: float = 1e-12,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        square, *means = _gathered(stats, 2 if centred else 1, input_tensor.shape[-1])
        mean = means[0] if centred else torch.zeros_like(square)
        return _affine((input_tensor - mean) / torch.sqrt(square - mean.square() + epsilon), weight, bias)

    # TT-NN's own goldens differ in the order
    return norm if centred else weight_first, statistics, from_statistics
