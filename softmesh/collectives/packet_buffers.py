"""The buffer through which point_to_point receives: packets of the fabric, as many as the tensor's pages take."""

from __future__ import annotations

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.hardware import Topology
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.fabric_api import get_tt_fabric_max_payload_size_bytes, get_tt_fabric_packet_header_size_bytes
from softmesh.tensor.dtype import DataType, element_size, facts
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.tensor import Tensor

_WHERE = "p2p_compute_intermediate_tensor_spec"
_ALIGNMENT = 16  # bytes


def p2p_compute_intermediate_tensor_spec(
    input_tensor: Tensor, sender_coord: MeshCoordinate, receiver_coord: MeshCoordinate, topology: Topology
) -> TensorSpec:
    """[packets, elements of a packet], in the dtype, layout and memory of the tensor; of a device to itself, [1, 1]."""
    spec = checked(_WHERE, "input_tensor", input_tensor, Tensor, "a ttnn.Tensor").spec
    for name, coord in (("sender_coord", sender_coord), ("receiver_coord", receiver_coord)):
        checked(_WHERE, name, coord, MeshCoordinate, "a ttnn.MeshCoordinate")
    checked(_WHERE, "topology", topology, Topology, "a ttnn.Topology")
    if spec.memory_config.is_sharded():
        raise MeshError(
            "Point to point does not yet support sharded configs: use ttnn.sharded_to_interleaved(tensor) first."
        )
    shape = (1, 1) if sender_coord == receiver_coord else _packets(spec)
    return make_spec(shape, spec.dtype, spec.layout, spec.memory_config, spec.tile)


def _packets(spec: TensorSpec) -> tuple[int, int]:
    """How many, of how many elements: whole pages in a packet, or a page in several."""
    page = -(-spec.page_size() // _ALIGNMENT) * _ALIGNMENT
    pages = max(1, spec.num_pages())
    limit = get_tt_fabric_max_payload_size_bytes() + get_tt_fabric_packet_header_size_bytes()
    if spec.dtype is DataType.BFLOAT16:
        limit = 1 << (limit.bit_length() - 1)  # a power of two
    element = 1 if facts(spec.dtype).is_block else element_size(spec.dtype)
    in_a_packet = min(limit // page, pages)
    if in_a_packet:
        return -(-pages // in_a_packet), in_a_packet * page // element
    return pages * -(-page // limit), limit // element
