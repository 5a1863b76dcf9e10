"""TT-Metalium's host API: buffers, queues, programs and workloads of a mesh, and a mesh API over single cards."""

from softmesh.kernels.program.program_api import *  # noqa: F403  (its __all__ is a table of names)
from softmesh.metal.card_api import (
    all_gather,  # noqa: F401
    all_reduce,  # noqa: F401
    create_mesh_buffer,  # noqa: F401
    enqueue_mesh_workload,  # noqa: F401
    open_mesh_device,  # noqa: F401
)
from softmesh.metal.card_mesh import CardMesh, CardsError, CardsTimeout, Timeouts  # noqa: F401  # noqa: F401
from softmesh.metal.host_api import *  # noqa: F403  (its __all__ is a table of names)
from softmesh.runtime.traces.recording import MeshTraceId  # noqa: F401
from softmesh.runtime.traces.trace_api import (
    begin_mesh_trace,  # noqa: F401
    end_mesh_trace,  # noqa: F401
    get_mesh_trace,  # noqa: F401
    get_trace_buffers_size,  # noqa: F401
    release_mesh_trace,  # noqa: F401
    replay_mesh_trace,  # noqa: F401
)
