"""Output tensors of sparse_matmul: with a place for every pair of blocks, or packed, one for each that is computed."""

from __future__ import annotations

from typing import Any, cast

import torch

from softmesh.dispatch.definition import Arguments, Definition
from softmesh.dispatch.signature import BoundCall, Signature
from softmesh.errors import MeshError
from softmesh.tensor.tensor import Tensor

_OUTPUT = "optional_output_tensor"


def _whole_shape(a: Tensor, b: Tensor, experts: int, a_is_sparse: bool) -> tuple[int, ...]:
    """With a place for every pair of blocks."""
    between = (experts,) if a_is_sparse else (a.shape[1], 1, experts)
    return (a.shape[0], *between, a.shape[2], b.shape[3])


def _packed_shape(a: Tensor, b: Tensor, nnz: int) -> tuple[int, ...]:
    return (1, nnz, a.shape[2], b.shape[3])


def find_packing(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Whether the output tensor has a place for each computed block alone, which shows in its shape."""
    given = dict(zip(("input_tensor_a", "input_tensor_b"), args, strict=False)) | kwargs
    tensors = [given.get(name) for name in ("input_tensor_a", "input_tensor_b", _OUTPUT)]
    if not all(isinstance(one, Tensor) and len(one.shape) >= 4 for one in tensors):
        return args, kwargs
    a, b, target = (cast(Tensor, one) for one in tensors)
    nnz = kwargs.get("nnz")
    if not isinstance(nnz, int) or kwargs.get("indices") is not None:
        return args, kwargs
    whole = _whole_shape(a, b, b.shape[1], bool(kwargs.get("is_input_a_sparse", False)))
    shape = tuple(target.shape)
    return args, kwargs | {"is_packed": shape != whole and shape == _packed_shape(a, b, nnz)}


def check_output(definition: Definition, call: BoundCall) -> None:
    named = call.named
    a, b, target, indices, nnz = (
        named[name] for name in ("input_tensor_a", "input_tensor_b", _OUTPUT, "indices", "nnz")
    )
    if not isinstance(target, Tensor) or len(a.shape) != 4 or len(b.shape) != 4:
        return
    given, wanted = target.tile.tile_shape[0], a.tile.tile_shape[0]
    if given != wanted:
        raise MeshError(
            f"{definition.name}: the override output tile height ({given}) must equal to the in0 tile height "
            f"({wanted})."
        )
    experts = b.shape[1] if indices is None else indices.shape[-1]
    whole, shape = _whole_shape(a, b, experts, bool(named["is_input_a_sparse"])), tuple(target.shape)
    if shape == whole or named["is_packed"]:
        return
    if indices is not None:
        fitting = f"the indexed output shape {list(whole)}: one place for each of the {experts} experts of indices"
    elif nnz is None:
        fitting = f"{list(whole)} when nnz is not provided: only with it can blocks be packed"
    else:
        fitting = f"{list(whole)}, or {list(_packed_shape(a, b, nnz))} for the computed blocks alone"
    raise MeshError(f"Optional output tensor shape {list(shape)} must match {fitting}. {definition.name} writes it.")


def packed(products: torch.Tensor, is_marked: torch.Tensor, lead: int, count: int) -> torch.Tensor:
    """(*mesh, *batch, M, N) with marks (*mesh, *batch) as (*mesh, 1, count, M, N): the marked ones, in their order."""
    batch, matrix = products.shape[:-2], products.shape[-2:]
    chosen = products[is_marked.expand(batch)]
    return chosen.reshape(*batch[:lead], 1, count, *matrix)
