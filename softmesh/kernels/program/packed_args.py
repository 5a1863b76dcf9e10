"""Kernel arguments that the host packs into words: where a tensor's pages lie, and which fabric link to connect to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from softmesh.arguments import checked, checked_int, refused
from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.fabric.machine_system import MachineSystem
from softmesh.fabric.mesh_graph import Node
from softmesh.fabric.routing.network import Network
from softmesh.fabric.system import current_system
from softmesh.hardware.fabric_config import FabricNodeId
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.program.kernel import checked_words
from softmesh.kernels.program.l1_allocation import MOST_SEMAPHORES
from softmesh.kernels.program.program import Program
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.runtime.buffers.paged_memory import Sharded
from softmesh.tensor.tensor import Tensor

if TYPE_CHECKING:
    from softmesh.kernels.program.program_descriptor import ProgramDescriptor

ACCESSOR_WORDS = 2
_SHARDED, _DRAM = 1, 2


class AccessorWords(NamedTuple):
    is_sharded: bool
    is_dram: bool
    page_size: int

    @classmethod
    def of(cls, words: Sequence[int]) -> AccessorWords:
        flags, page_size = words
        if flags & ~(_SHARDED | _DRAM):
            raise MeshError(f"{list(words)} are no words of TensorAccessorArgs: is the offset of its first word right?")
        return cls(bool(flags & _SHARDED), bool(flags & _DRAM), page_size)

    def words(self) -> list[int]:
        return [_SHARDED * self.is_sharded | _DRAM * self.is_dram, self.page_size]


class TensorAccessorArgs:
    """Of a tensor on a mesh, or of a MeshBuffer: append them to the compile-time arguments of a kernel."""

    def __init__(self, tensor: Tensor | MeshBuffer) -> None:
        if isinstance(tensor, MeshBuffer):
            layout = tensor.memory.layout
            is_sharded, kind, size = (
                isinstance(layout.page_map, Sharded),
                layout.buffer_type,
                layout.page_size,
            )
        else:
            spec = checked("TensorAccessorArgs", "tensor", tensor, Tensor, "a tensor or a MeshBuffer").spec
            config = spec.memory_config
            is_sharded, kind, size = config.is_sharded(), config.buffer_type, spec.page_size()
        self._words = AccessorWords(is_sharded, kind is BufferType.DRAM, size)

    def __repr__(self) -> str:
        return f"TensorAccessorArgs({self._words!r})"

    def get_compile_time_args(self) -> list[int]:
        return self._words.words()

    def get_common_runtime_args(self) -> list[int]:
        """Everything is known when the kernel is compiled: there are none."""
        return []

    def append_to(self, compile_time_args: list[int]) -> None:
        compile_time_args += self._words.words()


CONNECTION_WORDS = 5
_A_NODE = "a ttnn.FabricNodeId, as mesh.get_fabric_node_id(coordinate) gives"


class ConnectionWords(NamedTuple):
    """From one chip towards another, over one of the links in parallel."""

    src_mesh: int
    src_chip: int
    dst_mesh: int
    dst_chip: int
    link: int


def append_fabric_connection_rt_args(
    src_fabric_node_id: FabricNodeId,
    dst_fabric_node_id: FabricNodeId,
    link_idx: int,
    worker_program: Program,
    worker_core: CoreCoord,
    worker_args: list[int],
) -> None:
    """Append to a kernel's runtime arguments what `WorkerToFabricEdmSender.build_from_args` reads."""
    where = "append_fabric_connection_rt_args"
    checked(where, "worker_program", worker_program, Program, "a program of CreateProgram()")
    worker_args += _words(where, src_fabric_node_id, dst_fabric_node_id, link_idx)
    worker_program.runs_per_device = True


def setup_fabric_connection(
    src_fabric_node_id: FabricNodeId,
    dst_fabric_node_id: FabricNodeId,
    link_idx: int,
    program_descriptor: ProgramDescriptor,
    worker_core: CoreCoord,
    core_type: object = None,
) -> list[int]:
    """The same for a ProgramDescriptor: the words to append to the kernel's runtime arguments."""
    words = _words("setup_fabric_connection", src_fabric_node_id, dst_fabric_node_id, link_idx)
    program_descriptor.uses_fabric = True
    return words


def setup_routing_plane_connection(
    src_fabric_node_id: FabricNodeId,
    dst_nodes: Sequence[FabricNodeId],
    connection_link_indices: Sequence[int],
    program_descriptor: ProgramDescriptor,
    kernel_idx: int,
    worker_core: CoreCoord,
) -> list[int]:
    """Connections to several chips, one after the other."""
    where = "setup_routing_plane_connection"
    words = _all_words(where, src_fabric_node_id, dst_nodes, connection_link_indices)
    program_descriptor.uses_fabric = True
    return words


fabric_connection_rt_args = setup_routing_plane_connection


def compute_fabric_connection_rt_args(
    src_fabric_node_id: FabricNodeId,
    dst_nodes: Sequence[FabricNodeId],
    connection_link_indices: Sequence[int],
    teardown_sem_args: Sequence[int],
    buffer_index_sem_args: Sequence[int],
    sem_args_are_l1_addresses: bool = False,
) -> list[int]:
    """The same words without a program to change: the caller has made two semaphores for each connection.

    A chip keeps a connection's state in them. Here the link itself does; their ids or addresses are only checked.
    """
    where = "compute_fabric_connection_rt_args"
    for name, given in (
        ("teardown_sem_args", teardown_sem_args),
        ("buffer_index_sem_args", buffer_index_sem_args),
    ):
        _check_semaphores(where, name, checked_words(where, name, given), len(dst_nodes), sem_args_are_l1_addresses)
    return _all_words(where, src_fabric_node_id, dst_nodes, connection_link_indices)


def _check_semaphores(where: str, name: str, given: list[int], wanted: int, are_addresses: bool) -> None:
    if len(given) != wanted:
        raise refused(where, f"{name} must have one semaphore for each of {wanted} dst_nodes, got {len(given)}")
    beyond = [id for id in given if id >= MOST_SEMAPHORES]
    if beyond and not are_addresses:
        raise refused(
            where,
            f"{name} are ids of semaphores, 0 to {MOST_SEMAPHORES - 1}, got {beyond[0]}; for addresses in L1 give "
            "sem_args_are_l1_addresses=True",
        )


def fabric_connection_rt_args_size(num_connections: int) -> int:
    """How many words so many connections take."""
    return CONNECTION_WORDS * checked_int("fabric_connection_rt_args_size", "num_connections", num_connections)


def get_fabric_kernel_defines(api_type: str = "Linear") -> list[tuple[str, str]]:
    """What C++ kernels are compiled with; Python kernels need nothing of it."""
    if api_type not in ("Linear", "Mesh"):
        raise refused("get_fabric_kernel_defines", f"api_type must be 'Linear' or 'Mesh', got {api_type!r}")
    return [(f"API_TYPE_{api_type}", "1")]


def _all_words(
    where: str, src: FabricNodeId, dst_nodes: Sequence[FabricNodeId], connection_link_indices: Sequence[int]
) -> list[int]:
    links = list(connection_link_indices)
    if len(links) == 1:
        links *= len(dst_nodes)
    if len(links) != len(dst_nodes):
        raise refused(where, f"{len(dst_nodes)} dst_nodes need as many link indices, or one for all; got {len(links)}")
    pairs = zip(dst_nodes, links, strict=True)
    return [word for node, link in pairs for word in _words(where, src, node, link)]


def _words(where: str, src: FabricNodeId, dst: FabricNodeId, link: int) -> list[int]:
    ends = [checked(where, "fabric_node_id", node, FabricNodeId, _A_NODE) for node in (src, dst)]
    number = checked_int(where, "link_idx", link)
    if not settings.active().is_on:
        raise MeshError(
            "Trying to get un-initialized fabric context: a connection needs a fabric. Call "
            "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) or another before opening the mesh."
        )
    near, far = ends
    words = ConnectionWords(int(near.mesh_id), near.chip_id, int(far.mesh_id), far.chip_id, number)
    system = current_system()
    if isinstance(system, MachineSystem):  # of the elastic machine the mesh decides: the kernel checks them later
        check_link(system.network, Node(*words[:2]), Node(*words[2:4]), number)
    return list(words)


def check_link(network: Network, src: Node, dst: Node, link: int) -> None:
    links = network.forwarding_links(src, dst)
    if link not in links:
        raise MeshError(
            f"Requested link index {link} is out of bounds. {len(links)} ethernet channels available to forward b/w "
            f"src {src} and dst {dst}: take one of {links}."
        )
