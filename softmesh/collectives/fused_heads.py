"""Collectives that TT-NN runs together with the splitting or joining of attention heads: one after the other here."""

from __future__ import annotations

from typing import Any

from softmesh.collectives.core import all_gather, all_reduce, reduce_scatter
from softmesh.collectives.spelling import composite
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.ops.heads import nlp_concat_heads_decode, nlp_create_qkv_heads_decode
from softmesh.ops.layout import typecast
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor


def _route(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given.get(name) for name in ("topology", "num_links")}


@composite(
    "experimental.all_gather_concat",
    "input_tensor:tensor buffer_tensor dim cluster_axis mesh_device multi_device_global_semaphore num_heads:int "
    "memory_config | use_noc1_only? num_links? topology? subdevice_id?",
)
def all_gather_concat(
    input_tensor: Tensor,
    dim: int,
    cluster_axis: int,
    num_heads: int,
    memory_config: MemoryConfig,
    **given: Any,
) -> Tensor:
    """[1, users, heads, width] gathered along `dim`, then each user's heads side by side: [1, 1, users, features].

    `buffer_tensor` is scratch.
    """
    whole = all_gather(input_tensor, dim, cluster_axis=cluster_axis, **_route(given))
    joined = nlp_concat_heads_decode(whole, num_heads=num_heads, memory_config=memory_config)
    assert isinstance(joined, Tensor)
    return joined


_REDUCE = "experimental.all_reduce_create_qkv_heads"


@composite(
    _REDUCE,
    "input_tensor:tensor buffer_tensor batch_offset:tensor cluster_axis mesh_device multi_device_global_semaphore "
    "num_heads:int | memory_config? topology? num_links? subdevice_id? num_kv_heads:int? slice_size:int? "
    "final_memory_config? dtype? use_noc1_only?",
)
def all_reduce_create_qkv_heads(
    input_tensor: Tensor,
    batch_offset: Tensor,
    cluster_axis: int,
    num_heads: int,
    memory_config: MemoryConfig | None = None,
    num_kv_heads: int | None = None,
    slice_size: int | None = None,
    final_memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    **given: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(the sum over the group, its queries, its keys, its values), in the form of nlp_create_qkv_heads_decode.

    With `slice_size` the heads are those of that many users, from `batch_offset` on. `buffer_tensor` is scratch.
    """
    total = all_reduce(input_tensor, cluster_axis=cluster_axis, memory_config=memory_config, **_route(given))
    if dtype is not None and total.dtype is not dtype:
        total = typecast(total, dtype)
    users = {} if slice_size is None else {"batch_offset": batch_offset, "slice_size": slice_size}
    q, k, v = nlp_create_qkv_heads_decode(
        total, num_heads=num_heads, num_kv_heads=num_kv_heads, memory_config=final_memory_config, **users
    )
    return total, q, k, v


@composite(
    "experimental.llama_rs_create_heads",
    "input_tensor:tensor intermediate_packet_buffer dim cross_device_semaphore subdevice_id cluster_axis mesh_device "
    "topology | num_links? num_heads:int num_kv_heads:int memory_config? qkv_memory_config? use_noc1_only? "
    "use_optimal_ccl_for_llama?",
)
def llama_rs_create_heads(
    input_tensor: Tensor,
    dim: int,
    cluster_axis: int,
    num_heads: int,
    num_kv_heads: int,
    memory_config: MemoryConfig | None = None,
    qkv_memory_config: MemoryConfig | None = None,
    **given: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """(queries, keys, values) of the sum over the group, dealt out along dim 3: each device's own heads."""
    if dim != 3:
        raise MeshError(f"llama_rs_create_heads: runs along dim 3 only, got dim={dim}.")
    own = reduce_scatter(
        input_tensor, dim, cluster_axis=cluster_axis, memory_config=memory_config, **_route(given)
    )
    q, k, v = nlp_create_qkv_heads_decode(
        own, num_heads=num_heads, num_kv_heads=num_kv_heads, memory_config=qkv_memory_config
    )
    return q, k, v
