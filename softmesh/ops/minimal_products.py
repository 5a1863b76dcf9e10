"""TT-NN's lean matmul with something behind it: cut into pieces, or gated and added to another tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.arguments import checked, knows_its_names
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.ops.activation import Activation
from softmesh.ops.matmul import minimal_matmul
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor

_SPLIT = "experimental.minimal_matmul_split"


def piece_sizes(op: str, width: int, chunks: int, sizes: Sequence[int] = ()) -> list[int]:
    """The widths of the pieces a product is cut into: as many of one width, or as they are listed."""
    if sizes:
        if sum(sizes) != width or min(sizes) < 1 or chunks not in (1, len(sizes)):
            raise MeshError(
                f"{op}: chunk_sizes={list(sizes)} must be positive and add up to the width {width}."
            )
        return list(sizes)
    if chunks < 1 or width % chunks:
        raise MeshError(f"{op}: a width of {width} cannot be cut into chunks={chunks} of one size.")
    return [width // chunks] * chunks


@operation(
    _SPLIT,
    controls="memory_config dtype",
    tuning="compute_kernel_config config",
    needs_tile=True,
    precision="data",
)
def minimal_matmul_split(
    input_tensor: Operand,
    weight_tensor: Operand,
    *,
    bias_tensor: Operand | None = None,
    chunks: int = 3,
    dim: int = -1,
    fused_activation: Activation | None = None,
    fuse_swiglu: bool = False,
) -> Local:
    """The product, cut along its last dim into `chunks` pieces."""
    if dim not in (-1, input_tensor.rank - 1):
        raise MeshError(f"{_SPLIT}: cuts along the last dim only, got dim={dim}.")
    whole: Local = minimal_matmul.definition.define(
        input_tensor,
        weight_tensor,
        bias_tensor=bias_tensor,
        fused_activation=fused_activation,
        fuse_swiglu=fuse_swiglu,
    )
    width = weight_tensor.shape[-1] // (2 if fuse_swiglu else 1)
    sizes = piece_sizes(_SPLIT, width, chunks)

    def compute(*data: torch.Tensor) -> list[torch.Tensor]:
        return list(whole.compute(*data).split(sizes, -1))

    def rule(at: rules.Situation) -> list[rules.Placement]:
        joined = (*at.out_shape[:-1], width)
        word = whole.rule(at._replace(out_shapes=(joined,)))
        assert isinstance(word, rules.Placement)
        is_cut = isinstance(word, rules.Shard) and word.dim == len(joined) - 1 and chunks > 1
        return [rules.LOCAL if is_cut else word] * chunks

    return Local(
        compute,
        rule,
        memory_config=whole.memory_config,
        broadcast_rank=whole.broadcast_rank,
        cost=whole.cost,
    )


def added_to(
    product: Tensor,
    scalar: float,
    addend: Tensor,
    factor: Tensor,
    dtype: DataType,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """addend + scalar * product * factor; `product` comes in float32, and only the result is rounded."""
    scaled = OPERATIONS["multiply"](product, factor, dtype=DataType.FLOAT32)
    if scalar != 1.0:
        scaled = OPERATIONS["multiply"](scaled, scalar)
    made = OPERATIONS["add"](addend, scaled, dtype=dtype, memory_config=memory_config)
    assert isinstance(made, Tensor)
    return made


@knows_its_names
def dit_minimal_matmul_addcmul_fused(
    matmul_input_tensor: Tensor,
    matmul_weight_tensor: Tensor,
    scalar: float,
    addcmul_input_tensor1: Tensor,
    addcmul_input_tensor2: Tensor,
    bias_tensor: Tensor | None = None,
    *,
    config: Any = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: Any = None,
) -> Tensor:
    """tensor1 + scalar * (input @ weight + bias) * tensor2."""
    where = "experimental.dit_minimal_matmul_addcmul_fused"
    given = {
        "matmul_input_tensor": matmul_input_tensor,
        "matmul_weight_tensor": matmul_weight_tensor,
        "addcmul_input_tensor1": addcmul_input_tensor1,
        "addcmul_input_tensor2": addcmul_input_tensor2,
    }
    for name, tensor in given.items():
        checked(where, name, tensor, Tensor, "a ttnn.Tensor: make one with ttnn.from_torch(...)")
    product = minimal_matmul(
        matmul_input_tensor, matmul_weight_tensor, bias_tensor=bias_tensor, dtype=DataType.FLOAT32
    )
    kind = matmul_input_tensor.dtype if dtype is None else dtype
    return added_to(product, float(scalar), addcmul_input_tensor1, addcmul_input_tensor2, kind, memory_config)
