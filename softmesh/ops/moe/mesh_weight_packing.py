"""Packs experts' weights on a mesh, as `weight_packing` does on the host: each device those of its own experts.

How many cores share them is the mesh's to say, so these are functions around operations of their names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from softmesh.arguments import checked, reject_unknown_keywords
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.kinds import Kind
from softmesh.ops.data_movement.layout_conversion import typecast
from softmesh.ops.moe import weight_placement
from softmesh.ops.moe.weight_packing import (
    TILE,
    check_matrices,
    shared_tiles,
    w0_w1_packed,
    w2_packed,
    whole_tiles,
)
from softmesh.placement import rules
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.broadcasting import concat_on_mesh
from softmesh.tensor.dtype import DataType, facts
from softmesh.tensor.tensor import Tensor

_A_TENSOR = "a ttnn.Tensor: make one with ttnn.from_torch(..., device=mesh_device)"


def _inner(name: str, define: Callable[..., Local]) -> Operation:
    signature = Signature(name, define, [], [])
    return Operation(Definition(name, Kind.MOVEMENT, define, signature, moves_bytes, "data"))


# (L, E, height, width) -> (cores, L, E, blocks, rows, 128): layers and experts stay what they are.
_PACKING_RULE = rules.along({1: [(i, 0) for i in range(4)], 2: [(i, 1) for i in range(4)]})


def _local(compute: Callable[..., torch.Tensor]) -> Local:
    return Local(compute, _PACKING_RULE, memory_config=DRAM_MEMORY_CONFIG)


def _w0_w1(w0: Operand, w1: Operand, b0: Operand | None = None, b1: Operand | None = None, *, cores: int) -> Local:
    shares = shared_tiles(w0.shape[-1] // TILE, cores)

    def compute(x: torch.Tensor, y: torch.Tensor, *biases: torch.Tensor | None) -> torch.Tensor:
        first, second = (w if b is None else _biased(w, b) for w, b in zip((x, y), biases or (None, None), strict=True))
        return w0_w1_packed(first, second, shares)

    return _local(compute)


def _w2(w2: Operand, b2: Operand | None = None, *, cores: int, inner: int) -> Local:
    shares = shared_tiles(inner, cores)
    return _local(lambda x, b=None: w2_packed(x if b is None else _biased(x, b), shares))


def _biased(matrix: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The mesh dims of the two may have been stored once; layers and experts are two dims, and the row is the last."""
    row = bias.reshape(*bias.shape[: matrix.dim() - 4], *matrix.shape[-4:-2], matrix.shape[-1])
    return concat_on_mesh((matrix, row.unsqueeze(-2)), -2)


_PACKING = {
    name: _inner(f"experimental.{name}", define)
    for define, names in (
        (_w0_w1, ("prepare_w0_w1_tensor_for_moe_compute", "prepare_w0_w1_tensor_with_bias")),
        (_w2, ("prepare_w2_tensor_for_moe_compute", "prepare_w2_tensor_with_bias")),
    )
    for name in names
}


def _cores(where: str, tensor: object) -> int:
    mesh = checked(where, "the weight", tensor, Tensor, _A_TENSOR).device()
    if mesh is None:
        raise MeshError(
            f"{where}: the weights are on the host: move them with ttnn.to_device(tensor, mesh_device), or pack them "
            "with the function of this name in ttnn.experimental.moe_compute_utils."
        )
    return weight_placement.effective_matmul_ring_size(mesh)


def _packed(
    where: str, weights: dict[str, Tensor], biases: dict[str, Tensor], shape: tuple[int, ...], **sizes: int
) -> Tensor:
    """What the operation of this name makes of weights of `shape`, (L, E, height, width), and biases (L, E, width)."""
    for name, tensor in weights.items():
        checked(where, name, tensor, Tensor, _A_TENSOR)
    check_matrices(where, {name: list(w.shape) for name, w in weights.items()}, shape)
    for extent in shape[2:]:
        whole_tiles(where, "K and N", extent)
    layers, experts, _, width = shape
    for name, bias in biases.items():
        given = list(checked(where, name, bias, Tensor, _A_TENSOR).shape)
        if given not in ([layers, experts, width], [layers, experts, 1, width]):
            raise MeshError(f"{where}: {name} must be [{layers}, {experts}, {width}], got {given}.")
    operands = (*weights.values(), *biases.values())
    return _tensor(_PACKING[where](*operands, cores=_cores(where, operands[0]), **sizes))


@reject_unknown_keywords
def prepare_w0_w1_tensor_for_moe_compute(tt_w0: Tensor, tt_w1: Tensor, *, L: int, E: int, K: int, N: int) -> Tensor:
    """(L, E, K, N) twice -> (cores, L, E, blocks, rows, 128), as `moe_compute` reads them."""
    weights = {"tt_w0": tt_w0, "tt_w1": tt_w1}
    return _packed("prepare_w0_w1_tensor_for_moe_compute", weights, {}, (L, E, K, N))


@reject_unknown_keywords
def prepare_w0_w1_tensor_with_bias(
    tt_w0: Tensor, tt_w1: Tensor, tt_b0: Tensor, tt_b1: Tensor, *, L: int, E: int, K: int, N: int
) -> Tensor:
    """As without a bias; b0 and b1 (L, E, N) are one more row of w0 and w1."""
    weights, biases = {"tt_w0": tt_w0, "tt_w1": tt_w1}, {"tt_b0": tt_b0, "tt_b1": tt_b1}
    return _packed("prepare_w0_w1_tensor_with_bias", weights, biases, (L, E, K, N))


@reject_unknown_keywords
def prepare_w2_tensor_for_moe_compute(tt_w2: Tensor, *, L: int, E: int, N: int, K: int) -> Tensor:
    """(L, E, N, K) -> (cores, L, E, blocks, rows, 128), as `moe_compute` reads it."""
    where = "prepare_w2_tensor_for_moe_compute"
    return _packed(where, {"tt_w2": tt_w2}, {}, (L, E, N, K), inner=N // TILE)


@reject_unknown_keywords
def prepare_w2_tensor_with_bias(tt_w2: Tensor, tt_b2: Tensor, *, L: int, E: int, N: int, K: int) -> Tensor:
    """As without a bias; b2 (L, E, K) is one more row of w2."""
    where = "prepare_w2_tensor_with_bias"
    return _packed(where, {"tt_w2": tt_w2}, {"tt_b2": tt_b2}, (L, E, N, K), inner=N // TILE)


def _tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value


@reject_unknown_keywords
def add_shared_expert_weights(
    routed_w0: Tensor,
    routed_w1: Tensor,
    routed_w2: Tensor,
    shared_w0: Tensor,
    shared_w1: Tensor,
    shared_w2: Tensor,
    cluster_axis: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """On each device its shared experts behind its routed ones: (L, experts, height, width) joined along dim 1.

    What TT-NN does with `cluster_axis` is not documented; each device joins what it holds.
    """
    where = "add_shared_expert_weights"
    if cluster_axis not in (0, 1):
        raise MeshError(f"{where}: cluster_axis must be 0 or 1, got {cluster_axis}.")
    pairs = ((routed_w0, shared_w0), (routed_w1, shared_w1), (routed_w2, shared_w2))
    for i, (routed, shared) in enumerate(pairs):
        for name, tensor in ((f"routed_w{i}", routed), (f"shared_w{i}", shared)):
            checked(where, name, tensor, Tensor, _A_TENSOR)
            if len(tensor.shape) != 4:
                raise MeshError(f"{where}: {name} must be [L, experts, height, width], got {list(tensor.shape)}.")
    join = partial(OPERATIONS["concat"], dim=1)
    first, second, third = (_tensor(join([routed, shared])) for routed, shared in pairs)
    return first, second, third


@reject_unknown_keywords
def quantize_weights_via_host(device_tensor: Tensor, *, dtype: DataType, memory_config: MemoryConfig | None) -> Tensor:
    """The tensor in another dtype, laid out anew. TT-NN takes it through the host, which changes nothing here."""
    where = "quantize_weights_via_host"
    tensor = checked(where, "device_tensor", device_tensor, Tensor, _A_TENSOR)
    checked(where, "dtype", dtype, DataType, "a ttnn dtype such as ttnn.bfloat4_b")
    if tensor.device() is None:
        raise MeshError(f"{where}: device_tensor is on the host: move it with ttnn.to_device(tensor, mesh_device).")
    if not facts(dtype).is_float:
        raise MeshError(f"{where}: weights are floats, and {dtype} is none: take ttnn.bfloat8_b, for example.")
    return _tensor(typecast(tensor, dtype, memory_config=memory_config or tensor.memory_config()))


@reject_unknown_keywords
def get_weight_mem_configs(
    mesh_device: MeshDevice,
    *,
    num_layers: int,
    experts_per_device: int,
    hidden_size: int,
    intermediate_size: int,
    has_bias: bool = False,
) -> weight_placement.WeightMemoryConfigs:
    """Where packed weights lie: in DRAM, the part of each core in a bank of its own."""
    maps = weight_placement.get_weight_core_shard_maps(mesh_device, hidden_size, intermediate_size)
    return weight_placement.get_weight_mem_configs(
        num_layers, experts_per_device, hidden_size, intermediate_size, *maps, has_bias=has_bias
    )
