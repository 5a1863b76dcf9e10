"""Gathers of ring attention: each device gets the pieces of the others, into a buffer that may be longer than all."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.collectives.argument_checks import check_buffer, check_output
from softmesh.collectives.collective_operation import collective_definition, group_along
from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation, check_fabric
from softmesh.collectives.device_groups import Group
from softmesh.collectives.overload_signatures import (
    OverloadSet,
    OverloadSignature,
    composite,
    definition_of,
)
from softmesh.collectives.torch_expressions import gathered
from softmesh.collectives.ttnn_collectives import all_gather
from softmesh.collectives.undefined_results import leaving_some_everywhere
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.placement.placements import LOCAL
from softmesh.tensor.dtype import Layout
from softmesh.tensor.spec import make_spec
from softmesh.tensor.tensor import Tensor

_NAME = "experimental.ring_attention_all_gather_async"


def _gather_of_others(
    input_tensor: Operand, dim: int, *, cluster_axis: int, output_tensor: Operand | None = None
) -> CollectiveSpec:
    """Into `output_tensor`, which keeps what it held in the device's own range and behind the last piece."""
    plain = definition_of(all_gather)(input_tensor, dim, cluster_axis=cluster_axis)
    assert output_tensor is not None  # None is what stands for it where only shapes are asked
    at, rows, shape = dim % input_tensor.rank, input_tensor.shape[dim], output_tensor.shape

    def move(group: Group) -> GroupComputation:
        plain.move(group)
        dist = group.dist
        place = torch.arange(group.size).reshape([n if axis in group.axes else 1 for axis, n in enumerate(dist.grid)])

        def compute(data: torch.Tensor, kept: torch.Tensor | None = None) -> torch.Tensor:
            if kept is None:
                return data.new_zeros(*dist.grid, *shape)
            whole = gathered(data, group, at)
            result = kept.expand(*dist.grid, *shape).clone()
            filled = result.narrow(group.lead + at, 0, whole.shape[group.lead + at])
            owner = torch.arange(filled.shape[group.lead + at]) // rows
            is_own = (place.unsqueeze(-1) == owner).reshape(*place.shape, *(1,) * at, -1, *(1,) * (len(shape) - at - 1))
            filled.copy_(torch.where(is_own.to(data.device), filled, whole))
            return result

        return GroupComputation(compute, (dist.with_placements((LOCAL,) * dist.lead),))

    return CollectiveSpec(cluster_axis, move)


_others_gathered = Operation(
    collective_definition(
        _NAME,
        Kind.ALL_GATHER,
        _gather_of_others,
        OverloadSignature(
            OverloadSet(_NAME, ["input_tensor dim output_tensor | cluster_axis topology? num_links?"]),
            _gather_of_others,
            [],
            "output_tensor",
        ),
        patches="output_tensor",
        **leaving_some_everywhere(),
    )
)


@composite(
    _NAME,
    "input_tensor:tensors persistent_output_buffer:tensors dim | multi_device_global_semaphore num_links? cluster_axis "
    "mesh_device memory_config? topology subdevice_id?",
    receives="persistent_output_buffer",
)
def ring_attention_all_gather_async(
    input_tensor: list[Tensor],
    persistent_output_buffer: list[Tensor],
    dim: int,
    cluster_axis: int,
    **tuning: Any,
) -> list[Tensor]:
    """Several tensors gathered together, each into its buffer, which a device's own piece is not written to."""
    if len(input_tensor) != len(persistent_output_buffer):
        raise MeshError(
            f"ring_attention_all_gather_async: {len(input_tensor)} tensors and {len(persistent_output_buffer)} "
            "persistent output buffers: give one buffer for each tensor."
        )
    route = {name: tuning.get(name) for name in ("topology", "num_links")}
    for i, (tensor, buffer) in enumerate(zip(input_tensor, persistent_output_buffer, strict=True)):
        _check_pair(i, tensor, buffer, dim, cluster_axis, tuning.get("memory_config"))
    for tensor, buffer in zip(input_tensor, persistent_output_buffer, strict=True):
        _others_gathered(tensor, dim, buffer, cluster_axis=cluster_axis, **route)
    return list(persistent_output_buffer)


def _check_pair(i: int, tensor: Tensor, buffer: Tensor, dim: int, axis: int, config: MemoryConfig | None) -> None:
    """What is gathered fits its buffer: asked of all pairs before the first buffer is written."""
    mesh = buffer.device()
    assert mesh is not None  # as the form has checked
    name = f"input_tensor[{i}]"
    check_buffer(_NAME, name, tensor, mesh)
    spec = tensor.spec
    if spec.layout is not Layout.TILE or spec.memory_config.is_sharded():
        raise MeshError(
            f"{_NAME}: {name} must be in TILE layout and interleaved, got {spec.layout}, "
            f"{spec.memory_config.memory_layout}: use ttnn.to_layout and ttnn.sharded_to_interleaved."
        )
    gathering = definition_of(all_gather)(Operand(_NAME, name, spec), dim, cluster_axis=axis)
    check_fabric(_NAME, mesh, gathering)
    group = group_along(_NAME, tensor, axis)
    gathering.move(group)
    shape = list(tensor.shape)
    shape[dim] *= group.size
    if len(buffer.shape) == len(shape):
        shape[dim] = max(shape[dim], buffer.shape[dim])
    wanted = make_spec(tuple(shape), spec.dtype, spec.layout, config or spec.memory_config, spec.tile)
    check_output(_NAME, f"persistent_output_buffer[{i}]", buffer.spec, wanted, spec, config)
