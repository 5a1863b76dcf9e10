"""The law that prices each op: by the family of its definition, and by its name where a family is mixed."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from softmesh.dispatch.operation import OPERATIONS


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

_OF_PACKAGE = {
    "collectives": Family.EXCHANGE,
    "ops/attention": Family.ATTENTION,
    "ops/conv": Family.CONVOLUTION,
    "ops/creation": Family.MOVEMENT,
    "ops/data_movement": Family.MOVEMENT,
    "ops/elementwise": Family.ELEMENTS,
    "ops/embedding": Family.MOVEMENT,
    "ops/kv_cache": Family.MOVEMENT,
    "ops/matmul": Family.PRODUCT,
    "ops/moe": Family.ELEMENTS,
    "ops/moreh": Family.ELEMENTS,
    "ops/normalization": Family.ELEMENTS,
    "ops/pool": Family.ELEMENTS,
    "ops/prefetcher": Family.MOVEMENT,
    "ops/random": Family.ELEMENTS,
    "ops/reduction": Family.ELEMENTS,
}
_OF_MODULE = {
    "collectives/moe/routing_weights": Family.ELEMENTS,
    "collectives/moe/moe_compute": Family.ELEMENTS,
    "collectives/halo_buffers": Family.MOVEMENT,
    "ops/attention/model_qkv_heads": Family.MOVEMENT,
    "ops/attention/qkv_heads": Family.MOVEMENT,
    "ops/conv/conv_weights": Family.MOVEMENT,
    "ops/embedding/rotary_embedding": Family.ELEMENTS,
    "ops/moe/routed_experts": Family.MOVEMENT,
    "ops/moreh/products": Family.PRODUCT,
    "ops/moreh/movement": Family.MOVEMENT,
}
_OF_NAME = {
    "mesh_partition": Family.MOVEMENT,
    "typecast": Family.ELEMENTS,
    "experimental.typecast": Family.ELEMENTS,
    "experimental.quasar.typecast": Family.ELEMENTS,
    "experimental.prepare_conv3d_weights": Family.MOVEMENT,
    "experimental.topk_large_indices": Family.ELEMENTS,
    "experimental.prefix_scan": Family.ELEMENTS,
    "experimental.hc_sum_reduce": Family.ELEMENTS,
    "experimental.repeat_and_interleave_eltwise_mul": Family.ELEMENTS,
    "addmm": Family.PRODUCT,
    "experimental.quasar.addmm": Family.PRODUCT,
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
    if name in _OF_NAME:
        return _OF_NAME[name]
    place = operation.definition.define.__module__.removeprefix("softmesh.").replace(".", "/")
    while place:
        found = _OF_MODULE.get(place) or _OF_PACKAGE.get(place)
        if found is not None:
            return found
        place = place.rpartition("/")[0]
    return Family.MOVEMENT


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
