"""The distributed context under the short names of `ttnn._ttnn.multi_device`."""

from softmesh.processes.context_api import distributed_context_allgather_int as allgather_int
from softmesh.processes.context_api import distributed_context_barrier as barrier
from softmesh.processes.context_api import distributed_context_get_rank as get_rank
from softmesh.processes.context_api import distributed_context_get_size as get_size
from softmesh.processes.context_api import distributed_context_is_initialized as is_initialized
from softmesh.processes.context_api import distributed_context_local_to_world_rank as local_to_world_rank
from softmesh.processes.context_api import distributed_context_recv_bytes as recv_bytes
from softmesh.processes.context_api import distributed_context_send_bytes as send_bytes
from softmesh.processes.context_api import distributed_context_subcontext_count as subcontext_count
from softmesh.processes.context_api import distributed_context_subcontext_id as subcontext_id
from softmesh.processes.context_api import distributed_context_subcontext_size as subcontext_size
from softmesh.processes.context_api import distributed_context_subcontext_sizes as subcontext_sizes
from softmesh.processes.context_api import distributed_context_world_rank as world_rank
from softmesh.processes.context_api import distributed_context_world_size as world_size
from softmesh.runtime.mesh_view import MeshDeviceView

__all__ = [
    "MeshDeviceView",
    "allgather_int",
    "barrier",
    "get_rank",
    "get_size",
    "is_initialized",
    "local_to_world_rank",
    "recv_bytes",
    "send_bytes",
    "subcontext_count",
    "subcontext_id",
    "subcontext_size",
    "subcontext_sizes",
    "world_rank",
    "world_size",
]
