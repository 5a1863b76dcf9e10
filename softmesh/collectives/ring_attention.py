"""Ring attention of TT-NN: the sequence is split over devices, keys and values are gathered, queries stay.

On hardware the gathering runs in a ring while the attention of what has come goes on.
"""

from __future__ import annotations

from typing import Any, cast

from softmesh.collectives.overload_signatures import composite
from softmesh.collectives.ttnn_collectives import all_gather, route_of
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.ops.attention.prefill import check_strategy
from softmesh.ops.attention.sequence_parallel import (
    DISTRIBUTED,
    JOINT,
    LATENT,
    ring_distributed_attention,
    ring_joint_attention,
    ring_latent_attention,
)
from softmesh.ops.attention.sparse_attention import indexer_score_dsa
from softmesh.ops.data_movement.slice_and_pad import pad, slice_, slice_write
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import Layout
from softmesh.tensor.implicit_operands import device_index_along
from softmesh.tensor.tensor import Tensor

_EXPERIMENTAL = "transformer.exp_ring_joint_scaled_dot_product_attention"
_INDEXER = "experimental.ring_indexer_score_dsa"
_NOT_INDEXED = (
    "key_compression_ratio? seq_subshard_axis? block_cyclic_sp_axis? block_cyclic_chunk_local? "
    "block_cyclic_cache_tp_sharded? chunk_start_idx_tensor? valid_end_tensor? cache_batch_idx_tensor? "
    "index_cache_num_layers? index_cache_layer_idx?"
)
_DEFAULTS = {"key_compression_ratio": 1, "index_cache_num_layers": 1}
_THREE = "input_tensor_q:tensor input_tensor_k:tensor input_tensor_v:tensor"
_JOINT_THREE = "joint_tensor_q:tensor? joint_tensor_k:tensor? joint_tensor_v:tensor?"
_RING = (
    "dim multi_device_global_semaphore num_links cluster_axis mesh_device topology subdevice_id? "
    "scale? compute_kernel_config? program_config"
)
_NOT_CACHED = "kv_actual_isl? kv_actual_isl_tensor? kv_valid_end_tensor?"
_CACHED = f"slot_id:tensor? kv_cache_num_layers:int? kv_cache_layer_idx:int? {_NOT_CACHED}"


def _gathered(part: Tensor, buffer: Tensor | None, given: dict[str, Any]) -> Tensor:
    """All pieces along dim 2, in the buffer. One that is longer keeps what it held behind them.

    Of caches of several sequences, with `kv_cache_batch_idx` or `slot_id`, those of one.
    """
    route = route_of(given)
    part = _of_slot(part, given) if given.get("slot_id") is not None else _sequence_of(part, given)
    at, axis, mesh = given["dim"], given["cluster_axis"], part.device()
    pieces = 1 if mesh is None else mesh.shape[axis]
    is_longer = buffer is not None and buffer.shape[at] > part.shape[at] * pieces
    if buffer is None or not is_longer:
        return cast(Tensor, all_gather(part, at, cluster_axis=axis, output_tensor=buffer, **route))
    whole = cast(Tensor, all_gather(part, at, cluster_axis=axis, **route))
    slice_write(whole, buffer, [0] * 4, list(whole.shape), [1] * 4)
    return whole


def _sequence_of(caches: Tensor, given: dict[str, Any]) -> Tensor:
    batch = given.get("kv_cache_batch_idx")
    if given.get("kv_cache_num_layers") not in (None, 1) or given.get("kv_cache_layer_idx"):
        raise ArgumentError("kv_cache_num_layers and kv_cache_layer_idx go with slot_id: pass it, or leave them out.")
    if batch is None:
        return caches
    if not 0 <= batch < caches.shape[0]:
        raise MeshError(
            f"kv_cache_batch_idx={batch} must lie within 0 to {caches.shape[0] - 1}: the caches are {caches.shape}."
        )
    return cast(Tensor, slice_(caches, [batch, 0, 0, 0], [batch + 1, *list(caches.shape)[1:]]))


def _of_slot(caches: Tensor, given: dict[str, Any]) -> Tensor:
    """Row slot * layers + layer of the caches, as update_padded_kv_cache fills it; the slot is read on the devices."""
    layers, layer = given.get("kv_cache_num_layers") or 1, given.get("kv_cache_layer_idx") or 0
    slot = cast(Tensor, given["slot_id"])
    if given.get("kv_cache_batch_idx") is not None:
        raise ArgumentError("give kv_cache_batch_idx, a number, or slot_id, a tensor; not both.")
    if slot.logical_volume() != 1 or slot.layout is not Layout.ROW_MAJOR or slot.device() is None:
        raise MeshError(
            f"slot_id must be a ROW_MAJOR tensor of one integer on the devices, got {list(slot.shape)}, {slot.layout}."
        )
    if not 0 <= layer < layers or caches.shape[0] % layers:
        raise MeshError(
            f"kv_cache_layer_idx={layer} must lie within kv_cache_num_layers={layers}, and the layers divide the "
            f"{caches.shape[0]} rows of the caches {caches.shape}."
        )
    add, multiply, reshape = (OPERATIONS[name] for name in ("add", "multiply", "reshape"))
    first = add(multiply(reshape(slot, [1]), layers), layer)
    ends = [pad(one, [(0, 3)], 0) for one in (first, add(first, 1))]
    return cast(Tensor, slice_(caches, *ends, slice_dim=0, num_devices=caches.shape[0]))


def _ring(op: str, q: Tensor, given: dict[str, Any]) -> tuple[int, Tensor]:
    """How many devices take part, and the place of each."""
    axis, mesh = given["cluster_axis"], cast(MeshDevice, given["mesh_device"])
    if given["dim"] != 2:
        raise MeshError(f"{op}: the sequence is dim 2 of its operands, got dim={given['dim']}.")
    if q.device() is None:
        raise MeshError(f"{op}: input_tensor_q must be on a device; use ttnn.to_device(tensor, mesh_device).")
    place = device_index_along(mesh, [axis], op)
    return tuple(mesh.shape)[axis], place


def _refuse(op: str, given: dict[str, Any], names: str) -> None:
    """What is asked for and not modelled; a default that is written out asks for nothing."""
    for name in names.replace("?", "").split():
        value = given.get(name)
        if not (value is None or (isinstance(value, int) and value in (0, _DEFAULTS.get(name)))):
            raise NotModelled(
                f"{op}: {name} is not modelled: keys and values come from the tensors that are given, in the order of "
                "devices. Leave it out; gather a cache that lies otherwise with ttnn.all_gather, cut and order it with "
                "ttnn.slice and ttnn.concat, and attend with ttnn.transformer.scaled_dot_product_attention."
            )


def _joint_attention(op: str, given: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    q = given["input_tensor_q"]
    check_strategy(op, given["joint_strategy"])
    if isinstance(given["logical_n"], int) and given["logical_n"] < 1:
        raise MeshError(f"{op}: logical_n={given['logical_n']} must be at least 1: the length of the sequence.")
    devices, place = _ring(op, q, given)
    k = _gathered(given["input_tensor_k"], given["persistent_output_buffer_k"], given)
    v = _gathered(given["input_tensor_v"], given["persistent_output_buffer_v"], given)
    joint = _joint_tensors(op, given)
    options = {name: given[name] for name in ("scale", "is_causal", "is_balanced") if given.get(name) is not None}
    return cast(
        tuple[Tensor, Tensor, Tensor],
        ring_joint_attention(
            q,
            k,
            v,
            place,
            *joint,
            given["logical_n"],
            given.get("attention_sink"),
            devices=devices,
            window=given.get("sliding_window_size"),
            logical_l=given.get("logical_l") or None,
            **options,
        ),
    )


def _joint_tensors(op: str, given: dict[str, Any]) -> list[Tensor | None]:
    """q, k and v of the joint sequence; with `logical_l` its keys and values are split too, and gathered."""
    joint = [given.get(f"joint_tensor_{part}") for part in "qkv"]
    if any(tensor is None for tensor in joint) and any(tensor is not None for tensor in joint):
        raise ArgumentError(f"{op}: give joint_tensor_q, joint_tensor_k and joint_tensor_v, or none of them.")
    q, k, v = joint
    if not given.get("logical_l") or k is None or v is None:
        return joint
    buffers = [given.get(f"persistent_output_buffer_joint_{part}") for part in "kv"]
    return [q, _gathered(k, buffers[0], given), _gathered(v, buffers[1], given)]


@composite(
    JOINT,
    f"{_THREE} {_JOINT_THREE} | persistent_output_buffer_k:tensor persistent_output_buffer_v:tensor joint_strategy "
    f"logical_n logical_l? {_RING} ccl_core_grid_offset use_column_major_ccl? is_causal? is_balanced? is_cross? "
    f"attention_sink? sliding_window_size? circular_kv_cache? persistent_output_buffer_joint_k? "
    f"persistent_output_buffer_joint_v? kv_cache_batch_idx:int? {_CACHED}",
    receives="persistent_output_buffer_k persistent_output_buffer_v persistent_output_buffer_joint_k "
    "persistent_output_buffer_joint_v",
)
def ring_joint_scaled_dot_product_attention(**given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """(the result of the device's own queries, that of the joint ones, their largest scores and then their sums).

    Keys and values are gathered along dim 2 into the persistent buffers; positions from `logical_n` on are padding.
    With `logical_l` the joint sequence is split over the devices too, and padding from there on. With `is_cross`
    there may be more keys than queries.
    """
    _refuse(JOINT, given, f"{_NOT_CACHED} circular_kv_cache")
    return _joint_attention(JOINT, given)


@composite(
    _EXPERIMENTAL,
    f"{_THREE} {_JOINT_THREE} | persistent_output_buffer_k:tensor persistent_output_buffer_v:tensor joint_strategy "
    f"logical_n {_RING} num_workers_per_link? num_buffers_per_channel?",
    receives="persistent_output_buffer_k persistent_output_buffer_v",
)
def exp_ring_joint_scaled_dot_product_attention(**given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """ring_joint_scaled_dot_product_attention, by other kernels."""
    return _joint_attention(_EXPERIMENTAL, given)


@composite(
    LATENT,
    "input_tensor_q:tensor input_tensor_kv:tensor | persistent_output_buffer_kv:tensor head_dim_v:int logical_n:int "
    f"{_RING} ccl_core_grid_offset use_column_major_ccl? is_balanced? kv_cache_batch_idx:int? {_CACHED}",
    receives="persistent_output_buffer_kv",
)
def ring_mla(**given: Any) -> tuple[Tensor, Tensor]:
    """(causal latent attention of the device's own queries, the logarithms of its sums)"""
    _refuse(LATENT, given, _NOT_CACHED)
    q = given["input_tensor_q"]
    devices, place = _ring(LATENT, q, given)
    kv = _gathered(given["input_tensor_kv"], given["persistent_output_buffer_kv"], given)
    return cast(
        tuple[Tensor, Tensor],
        ring_latent_attention(
            q,
            kv,
            place,
            head_dim_v=given["head_dim_v"],
            logical_n=given["logical_n"],
            devices=devices,
            scale=given.get("scale"),
            is_balanced=bool(given.get("is_balanced")),
        ),
    )


@composite(
    DISTRIBUTED,
    f"{_THREE} ring_size:int ring_id:int? | scale? memory_config? program_config? compute_kernel_config? "
    "page_table:tensor? chunk_start_idx:int?",
)
def ring_distributed_scaled_dot_product_attention(**given: Any) -> Tensor:
    """Causal attention of chunks i and 2n - 1 - i of 2n, on device i of a ring of n; all hold all of q, k and v.

    Without `ring_id`, i is the device's index along the mesh axis of `ring_size` devices. With `page_table` k and v
    are blocks of a cache, and q is a part of the sequence that starts at `chunk_start_idx`.
    """
    table, start = given.get("page_table"), given.get("chunk_start_idx")
    if (table is None) != (start is None):
        raise ArgumentError(f"{DISTRIBUTED}: pass page_table and chunk_start_idx, or none of them.")
    q, size, place = given["input_tensor_q"], given["ring_size"], given.get("ring_id")
    if place is None:
        place = _place_in_ring(q, size)
    elif not 0 <= place < size:
        raise MeshError(f"{DISTRIBUTED}: ring_id={place} must lie within 0 to {size - 1}.")
    return cast(
        Tensor,
        ring_distributed_attention(
            q,
            given["input_tensor_k"],
            given["input_tensor_v"],
            place,
            table,
            start or 0,
            devices=size,
            scale=given.get("scale"),
            memory_config=given.get("memory_config"),
        ),
    )


def _place_in_ring(q: Tensor, size: int) -> Tensor:
    device = q.device()
    if device is None:
        raise MeshError(f"{DISTRIBUTED}: input_tensor_q must be on a device; use ttnn.to_device.")
    axes = [axis for axis, n in enumerate(device.shape) if n == size]
    if len(axes) != 1:
        raise MeshError(
            f"{DISTRIBUTED}: ring_size={size} fits {len(axes)} axes of the mesh {device.shape}: pass ring_id."
        )
    return device_index_along(device, axes, DISTRIBUTED)


@composite(
    _INDEXER,
    "q:tensor k:tensor weights:tensor k_local:tensor ag_multi_device_global_semaphore:semaphores | cluster_axis "
    "topology num_links? ag_sub_device_id? chunk_start_idx:int? program_config? compute_kernel_config? "
    f"cache_batch_idx:int? kv_len:int? {_NOT_INDEXED}",
    receives="k",
)
def ring_indexer_score_dsa(**given: Any) -> Tensor:
    """indexer_score_dsa over keys that are gathered into `k` along their positions, for queries split alike."""
    _refuse(_INDEXER, given, _NOT_INDEXED)
    whole = _gathered(given["k_local"], given["k"], {**given, "dim": 2})
    names = ("chunk_start_idx", "kv_len", "cache_batch_idx")
    options = {name: given[name] for name in names if given.get(name) is not None}
    return cast(
        Tensor,
        indexer_score_dsa(given["q"], whole, given["weights"], seq_shard_axes=[given["cluster_axis"]], **options),
    )
