"""TT-Metalium's host API: buffers, queues and workloads of a mesh, and the five functions over single cards."""

from softmesh.kernels.host import *  # noqa: F403  (its __all__ is a table of names)
from softmesh.metal.cards.failure import CardsError, CardsTimeout  # noqa: F401
from softmesh.metal.cards.mesh import CardMesh, Timeouts  # noqa: F401
from softmesh.metal.host_api import *  # noqa: F403  (its __all__ is a table of names)
from softmesh.metal.integration import (  # noqa: F401
    all_gather,
    all_reduce,
    create_mesh_buffer,
    enqueue_mesh_workload,
    open_mesh_device,
)
from softmesh.runtime.traces.mesh_forms import (  # noqa: F401
    begin_mesh_trace,
    end_mesh_trace,
    get_mesh_trace,
    get_trace_buffers_size,
    release_mesh_trace,
    replay_mesh_trace,
)
from softmesh.runtime.traces.trace_id import MeshTraceId  # noqa: F401
