# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh._ttnn import bfp_utils as bfp_utils
from softmesh._ttnn import core as core
from softmesh._ttnn import device as device
from softmesh._ttnn import events as events
from softmesh._ttnn import fabric as fabric
from softmesh._ttnn import global_semaphore as global_semaphore
from softmesh._ttnn import hd_socket as hd_socket
from softmesh._ttnn import mesh_socket as mesh_socket
from softmesh._ttnn import multi_device as multi_device
from softmesh._ttnn import operations as operations
from softmesh._ttnn import reports as reports
from softmesh._ttnn import tensor as tensor
from softmesh._ttnn import types as types
from softmesh import *
from softmesh.runtime.queues.operation_ids import *
