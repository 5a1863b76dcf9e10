"""The law that prices each op, by its kind; of other commands by their name."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from softmesh.dispatch.operation import OPERATIONS
from softmesh.kinds import Kind


class Family(Enum):
    """What a command is to the cost model."""

    EXCHANGE = "collectives"
    PRODUCT = "matrix products"
    CONVOLUTION = "convolutions"
    ATTENTION = "attention"
    ELEMENTS = "element-wise, reductions and norms"
    MOVEMENT = "data movement"
    HOST_WRITE = "host writes"
    HOST_READ = "host reads"
    LAUNCH = "programs and trace replays"
    MESSAGE = "messages between meshes"
    FREE = "what costs a device nothing"


_WRITES = ("from_torch", "to_device", "copy_host_to_device_tensor", "enqueue_write", "as_tensor", "load_tensor")
_READS = ("to_torch", "from_device", "copy_device_to_host_tensor", "enqueue_read", "dump_tensor")
_LAUNCHES = ("execute_trace", "enqueue_mesh_workload", "generic_op", "enqueue_program")
_MESSAGES = ("send", "recv")
_FREE = ("deallocate", "signpost", "begin_trace", "end_trace", "finish", "enqueue_record", "enqueue_wait", "release")

_FAMILIES = {
    Kind.ATTENTION: Family.ATTENTION,
    Kind.CONVOLUTION: Family.CONVOLUTION,
    Kind.PRODUCT: Family.PRODUCT,
}


@lru_cache(maxsize=4096)
def family_of(name: str) -> Family:
    """Of a command by its name.

    >>> family_of("execute_trace"), family_of("deallocate")
    (<Family.LAUNCH: 'programs and trace replays'>, <Family.FREE: 'what costs a device nothing'>)
    """
    operation = OPERATIONS.get(name)
    if operation is None:
        return _of_other_commands(name)
    kind = operation.definition.kind
    if kind.is_exchange:
        return Family.EXCHANGE
    return Family.MOVEMENT if kind.is_movement else _FAMILIES.get(kind, Family.ELEMENTS)


def _of_other_commands(name: str) -> Family:
    if name.startswith(_WRITES):
        return Family.HOST_WRITE
    if name.startswith(_READS):
        return Family.HOST_READ
    if name.startswith(_LAUNCHES):
        return Family.LAUNCH
    if name.rpartition(".")[2].startswith(_MESSAGES):
        return Family.MESSAGE
    return Family.FREE if name.startswith(_FREE) else Family.MOVEMENT
