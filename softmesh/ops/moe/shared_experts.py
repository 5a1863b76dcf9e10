"""Experts that every token visits: which device's copy it goes to, and their weights beside the routed ones'."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from softmesh.arguments import checked, knows_its_names
from softmesh.errors import MeshError

Homes = Mapping[int, Sequence[int]]  # of each shared expert: the devices that have its weights


@knows_its_names
def cluster_distance(d0: int, d1: int, mesh_shape: Sequence[int], cluster_axis: int) -> float:
    """Hops from device d0 to d1 around the ring along `cluster_axis`; infinite where they lie on different rings.

    Devices count row-major. Whether TT-NN counts the wrap-around is not documented; here it does.
    """
    rows, columns = mesh_shape
    _check_places("cluster_distance", (d0, d1), rows * columns, cluster_axis)
    first, second = divmod(d0, columns), divmod(d1, columns)
    if first[1 - cluster_axis] != second[1 - cluster_axis]:
        return math.inf
    apart = abs(first[cluster_axis] - second[cluster_axis])
    return min(apart, (rows, columns)[cluster_axis] - apart)


def _check_places(where: str, devices: Sequence[int], count: int, axis: int) -> None:
    wrong = [device for device in devices if not 0 <= device < count]
    if wrong:
        raise MeshError(f"{where}: device {wrong[0]} is none of the mesh's {count} (0 to {count - 1}).")
    if axis not in (0, 1):
        raise MeshError(f"{where}: cluster_axis must be 0 or 1, got {axis}.")


@knows_its_names
def map_shared_experts(
    expert_mapping_tensor: torch.Tensor,
    shared_expert_ids_to_devices: Homes,
    mesh_shape: Sequence[int],
    cluster_axis: int,
) -> torch.Tensor:
    """The mapping (devices, experts) with a column for each shared expert: for each device the nearest copy."""
    where = "map_shared_experts"
    mapping = checked(where, "expert_mapping_tensor", expert_mapping_tensor, torch.Tensor, "a torch tensor")
    devices = math.prod(mesh_shape)
    if mapping.dim() != 2 or mapping.shape[0] != devices:
        raise MeshError(
            f"{where}: expert_mapping_tensor must be ({devices} devices, experts), got {tuple(mapping.shape)}."
        )
    width = max([mapping.shape[1], *(expert + 1 for expert in shared_expert_ids_to_devices)])
    found = torch.zeros(devices, width, dtype=mapping.dtype)
    found[:, : mapping.shape[1]] = mapping
    for expert, homes in shared_expert_ids_to_devices.items():
        for device in range(devices):
            found[device, expert] = _nearest(expert, device, homes, mesh_shape, cluster_axis)
    return found


def _nearest(expert: int, device: int, homes: Sequence[int], shape: Sequence[int], axis: int) -> int:
    near = min(homes, key=lambda home: cluster_distance(device, home, shape, axis), default=None)
    if near is None or math.isinf(cluster_distance(device, near, shape, axis)):
        raise MeshError(
            f"map_shared_experts: shared expert {expert} has its weights on {list(homes)}, none of which device "
            f"{device} reaches along axis {axis} of {tuple(shape)}: put a copy on each group."
        )
    return near


@knows_its_names
def get_shared_experts_per_device(shared_expert_ids_to_devices: Homes, devices: int) -> list[list[int]]:
    """For each device the shared experts whose weights it has, lowest number first."""
    for homes in shared_expert_ids_to_devices.values():
        _check_places("get_shared_experts_per_device", homes, devices, 0)
    return [
        sorted(expert for expert, homes in shared_expert_ids_to_devices.items() if device in homes)
        for device in range(devices)
    ]


Weights = Mapping[int, torch.Tensor]


@knows_its_names
def add_shared_expert_weights(
    routed_w0: torch.Tensor,
    routed_w1: torch.Tensor,
    routed_w2: torch.Tensor,
    shared_w0: Weights,
    shared_w1: Weights,
    shared_w2: Weights,
    shared_expert_ids_to_device: Homes,
    num_devices: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(L, experts, height, width) of all devices: each one's routed experts, and behind them its shared ones."""
    lists = get_shared_experts_per_device(shared_expert_ids_to_device, num_devices)
    if len({len(experts) for experts in lists}) != 1:
        raise MeshError(
            f"add_shared_expert_weights: the devices have {[len(experts) for experts in lists]} shared experts: "
            "give each device equally many."
        )
    pairs = ((routed_w0, shared_w0), (routed_w1, shared_w1), (routed_w2, shared_w2))
    first, second, third = (_interleaved(routed, shared, lists) for routed, shared in pairs)
    return first, second, third


def _interleaved(routed: torch.Tensor, shared: Weights, lists: Sequence[Sequence[int]]) -> torch.Tensor:
    if routed.dim() != 4 or routed.shape[1] % len(lists):
        raise MeshError(
            f"add_shared_expert_weights: routed weights {tuple(routed.shape)} must be (layers, experts, height, "
            f"width) with equally many experts for each of {len(lists)} devices."
        )
    missing = sorted({expert for experts in lists for expert in experts} - shared.keys())
    if missing:
        raise MeshError(f"add_shared_expert_weights: there are no weights for shared expert {missing[0]}.")
    layers, _, height, width = routed.shape
    parts = []
    for own, experts in zip(routed.chunk(len(lists), 1), lists, strict=True):
        parts += [own, *(shared[expert].reshape(layers, 1, height, width) for expert in experts)]
    return torch.cat(parts, 1)
