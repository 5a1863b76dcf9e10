"""The fabric as a user configures and queries it: `set_fabric_config`, packet sizes, mesh ids, forwarding links."""

from __future__ import annotations

from dataclasses import replace

from softmesh.arguments import checked, checked_int, refused, reject_unknown_keywords
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.fabric.mesh_graph import Node
from softmesh.fabric.routing.packets import header_bytes, payload_bytes
from softmesh.fabric.routing.tables import ETH_DIRECTION
from softmesh.fabric.settings import FabricSettings, is_two_dimensional
from softmesh.fabric.system import current_system, machine_system
from softmesh.hardware import (
    FabricConfig,
    FabricManagerMode,
    FabricReliabilityMode,
    FabricRouterConfig,
    FabricTensixConfig,
    FabricType,
    FabricUDMMode,
)
from softmesh.hardware.fabric_config import FabricNodeId, MeshId
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.device_lifecycle import open_meshes

_WHERE = "set_fabric_config"


@reject_unknown_keywords
def set_fabric_config(
    config: FabricConfig,
    reliability_mode: FabricReliabilityMode = FabricReliabilityMode.STRICT_INIT,
    num_planes: int | None = None,
    fabric_tensix_config: FabricTensixConfig = FabricTensixConfig.DISABLED,
    fabric_udm_mode: FabricUDMMode = FabricUDMMode.DISABLED,
    fabric_manager_mode: FabricManagerMode = FabricManagerMode.DEFAULT,
    router_config: FabricRouterConfig | None = None,
) -> None:
    """Choose the fabric for the meshes that are opened next; DISABLED ends it.

    The links of the machine are checked when a mesh is opened: there STRICT_INIT refuses a missing one,
    and RELAXED_INIT goes on with fewer routing planes and says so.
    """
    wanted = FabricSettings(
        checked(_WHERE, "config", config, FabricConfig, "a ttnn.FabricConfig"),
        _checked_reliability(reliability_mode),
        _checked_planes(num_planes),
        checked(_WHERE, "fabric_tensix_config", fabric_tensix_config, FabricTensixConfig, "a FabricTensixConfig"),
        checked(_WHERE, "fabric_udm_mode", fabric_udm_mode, FabricUDMMode, "a FabricUDMMode"),
        checked(_WHERE, "fabric_manager_mode", fabric_manager_mode, FabricManagerMode, "a FabricManagerMode"),
        _checked_payload(router_config),
    )
    if not wanted.is_on:
        settings.activate(FabricSettings())
        return
    wanted = settings.what_if.instead_of(wanted)
    _check_that_nothing_is_open(wanted.config)
    active = settings.active()
    if active.is_on and active.config is not wanted.config:
        raise MeshError(
            f"Tried to override previous value of fabric config: {active.config.cpp_name}, with: {config.cpp_name}. "
            "Set ttnn.FabricConfig.DISABLED in between."
        )
    settings.activate(_with_planes_kept(wanted, active))


def configure_while_open(config: FabricConfig, mesh: MeshDevice) -> None:
    """Bring a fabric up under a mesh that was opened without one; no name of TT-NN's does that."""
    settings.activate(FabricSettings(config))
    mesh.system.use_active_fabric()


def _checked_reliability(mode: FabricReliabilityMode) -> FabricReliabilityMode:
    checked(_WHERE, "reliability_mode", mode, FabricReliabilityMode, "a ttnn.FabricReliabilityMode")
    if mode is FabricReliabilityMode.DYNAMIC_RECONFIG:
        raise MeshError(
            "set_fabric_config: DYNAMIC_RECONFIG is a placeholder that TT-Metal does not support. "
            "Use STRICT_INIT, or RELAXED_INIT to go on without the links that are down."
        )
    return mode


def _checked_planes(num_planes: int | None) -> int | None:
    if num_planes is None:
        return None
    count = checked_int(_WHERE, "num_planes", num_planes)
    if count < 1:
        raise refused(_WHERE, f"num_planes counts routing planes: 1 or more, or None for all; got {count}")
    return count


def _checked_payload(router: FabricRouterConfig | None) -> int | None:
    if router is None:
        return None
    checked(_WHERE, "router_config", router, FabricRouterConfig, "a ttnn.FabricRouterConfig")
    size = router.max_packet_payload_size_bytes
    if size is None:
        return None
    return checked_int(_WHERE, "router_config.max_packet_payload_size_bytes", size)


def _check_that_nothing_is_open(config: FabricConfig) -> None:
    opened = open_meshes()
    if opened:
        raise MeshError(
            f"SetFabricConfig({config.name}) is not allowed while devices are still open: {opened[0]!r} is. "
            "Configure the fabric first, then open the mesh; or close it with ttnn.close_mesh_device(...)."
        )


def _with_planes_kept(wanted: FabricSettings, active: FabricSettings) -> FabricSettings:
    """A second call never lowers the number of planes; one without a number wants all of them."""
    if active.is_on and wanted.num_planes is not None:
        most = None if active.num_planes is None else max(active.num_planes, wanted.num_planes)
        return replace(wanted, num_planes=most)
    return wanted


def get_fabric_config() -> FabricConfig:
    return settings.active().config


def get_tt_fabric_max_payload_size_bytes() -> int:
    wanted = _checked_active("payload of a packet").max_payload
    return payload_bytes(wanted, current_system().chip.largest_packet_bytes)


def get_tt_fabric_packet_header_size_bytes() -> int:
    config = _checked_active("header of a packet").config
    rows, columns = current_system().shape
    if is_two_dimensional(config):
        return header_bytes(rows + columns - 2, two_dimensional=True)
    return header_bytes(max(rows, columns) - 1, two_dimensional=False)


def _checked_active(what: str) -> FabricSettings:
    active = settings.active()
    if not active.is_on:
        raise MeshError(
            f"Trying to get un-initialized fabric context: the {what} depends on the fabric. Call "
            "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) or another first."
        )
    return active


def get_physical_mesh_shapes() -> dict[int, list[int]]:
    """The meshes of this process: {mesh id: [rows, columns]}. Needs no open device."""
    return {mesh.id: list(mesh.shape) for mesh in current_system().own_meshes}


def get_all_fabric_mesh_ids() -> list[MeshId]:
    return [MeshId(mesh.id) for mesh in current_system().meshes if not mesh.is_switch]


def get_all_mgd_fabric_types() -> list[FabricType]:
    """As declared, whatever the active configuration makes of it."""
    return [mesh.fabric_type for mesh in current_system().meshes if not mesh.is_switch]


def get_eth_forwarding_direction(src_fabric_node_id: FabricNodeId, dst_fabric_node_id: FabricNodeId) -> int | None:
    """The device's number for the direction of the first hop; None where no links lead there."""
    network = machine_system("get_eth_forwarding_direction").network
    direction = network.reported_direction(_node(src_fabric_node_id), _node(dst_fabric_node_id))
    return None if direction is None else ETH_DIRECTION.get(direction)


def get_forwarding_link_indices(src_fabric_node_id: FabricNodeId, dst_fabric_node_id: FabricNodeId) -> list[int]:
    network = machine_system("get_forwarding_link_indices").network
    return network.reported_links(_node(src_fabric_node_id), _node(dst_fabric_node_id))


def _node(given: FabricNodeId) -> Node:
    wanted = "a ttnn.FabricNodeId(mesh_id, chip_id)"
    node = checked("fabric node", "id", given, FabricNodeId, wanted)
    return Node(int(node.mesh_id), node.chip_id)
