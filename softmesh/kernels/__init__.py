"""The API of kernels in Python: `from softmesh.kernels import *` at the top of a file with kernels.

A kernel is a plain Python function of no arguments. It runs on every core of its range, once for each
device or once for all of them, and blocks where a kernel on the chip would: in a wait, at a barrier.
"""

from types import ModuleType as _ModuleType

from softmesh.kernels.calls.circular_buffers import (
    align_local_cbs_to_remote_cb,
    cb_pages_available_at_front,
    cb_pages_reservable_at_back,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    get_dataformat,
    get_read_ptr,
    get_remote_receiver_cb_interface,
    get_remote_sender_cb_interface,
    get_tile_size,
    get_write_ptr,
    remote_cb_pop_front,
    remote_cb_push_back_and_write_pages,
    remote_cb_reserve_back,
    remote_cb_wait_front,
    resize_remote_receiver_cb_interface,
    resize_remote_sender_cb_interface,
)
from softmesh.kernels.calls.engine_init import *  # noqa: F403  (its __all__ is a table of names)
from softmesh.kernels.calls.fabric_sender import (
    WorkerToFabricEdmSender,
    fabric_multicast_noc_fused_unicast_with_atomic_inc,
    fabric_multicast_noc_unicast_atomic_inc,
    fabric_multicast_noc_unicast_write,
    fabric_set_mcast_route,
    fabric_set_unicast_route,
    fabric_unicast_noc_fused_unicast_with_atomic_inc,
    fabric_unicast_noc_scatter_write,
    fabric_unicast_noc_unicast_atomic_inc,
    fabric_unicast_noc_unicast_inline_write,
    fabric_unicast_noc_unicast_write,
)
from softmesh.kernels.calls.kernel_arguments import (
    float32,
    float_bits,
    get_absolute_logical_x,
    get_absolute_logical_y,
    get_arg_val,
    get_common_arg_val,
    get_compile_time_arg_val,
    get_define,
    get_named_compile_time_arg_val,
    get_relative_logical_x,
    get_relative_logical_y,
    int32_t,
    my_x,
    my_y,
    uint32_t,
)
from softmesh.kernels.calls.l1_pointer import (
    L1Pointer,
    uint8_t,
    uint16_t,
)
from softmesh.kernels.calls.matrix_engine import (
    BroadcastType,
    EltwiseBinaryReuseDestType,
    EltwiseBinaryType,
    PoolType,
    ReduceDim,
    add_reuse_dest_tiles,
    add_tiles,
    add_tiles_bcast,
    add_tiles_bcast_cols,
    add_tiles_bcast_rows,
    add_tiles_bcast_scalar,
    generate_reduce_scaler,
    matmul_block,
    matmul_tiles,
    mul_reuse_dest_tiles,
    mul_tiles,
    mul_tiles_bcast,
    mul_tiles_bcast_cols,
    mul_tiles_bcast_rows,
    mul_tiles_bcast_scalar,
    reduce_tile,
    sub_reuse_dest_tiles,
    sub_tiles,
    sub_tiles_bcast,
    sub_tiles_bcast_cols,
    sub_tiles_bcast_rows,
    sub_tiles_bcast_scalar,
)
from softmesh.kernels.calls.noc import (
    get_noc_addr,
    get_noc_addr_from_bank_id,
    get_noc_multicast_addr,
    noc_async_atomic_barrier,
    noc_async_full_barrier,
    noc_async_read,
    noc_async_read_barrier,
    noc_async_read_barrier_with_trid,
    noc_async_read_one_packet,
    noc_async_read_one_packet_set_state,
    noc_async_read_one_packet_with_state,
    noc_async_read_page,
    noc_async_read_set_state,
    noc_async_read_set_trid,
    noc_async_read_shard,
    noc_async_read_tile,
    noc_async_read_with_state,
    noc_async_write,
    noc_async_write_barrier,
    noc_async_write_barrier_with_trid,
    noc_async_write_multicast,
    noc_async_write_multicast_loopback_src,
    noc_async_write_one_packet,
    noc_async_write_one_packet_set_state,
    noc_async_write_one_packet_with_state,
    noc_async_write_one_packet_with_trid,
    noc_async_write_page,
    noc_async_write_shard,
    noc_async_write_tile,
    noc_async_writes_flushed,
    noc_inline_dw_write,
)
from softmesh.kernels.calls.object_api import (
    CircularBuffer,
    MulticastEndpoint,
    Noc,
    Semaphore,
    UnicastEndpoint,
)
from softmesh.kernels.calls.semaphores import (
    INVALID,
    VALID,
    get_semaphore,
    noc_semaphore_inc,
    noc_semaphore_inc_multicast,
    noc_semaphore_set,
    noc_semaphore_set_multicast,
    noc_semaphore_set_multicast_loopback_src,
    noc_semaphore_set_remote,
    noc_semaphore_wait,
    noc_semaphore_wait_min,
)
from softmesh.kernels.calls.tensor_accessor import InterleavedAddrGen, TensorAccessor, TensorAccessorArgs
from softmesh.kernels.calls.tile_layout import (
    copy_block,
    copy_block_matmul_partials,
    copy_tile,
    pack_untilize_block,
    pack_untilize_dest,
    tilize_block,
    transpose_tile,
    transpose_wh_tile,
    untilize_block,
)
from softmesh.kernels.calls.tile_registers import (
    acquire_dst,
    pack_reconfig_l1_acc,
    pack_tile,
    pack_tile_block,
    release_dst,
    tile_regs_acquire,
    tile_regs_commit,
    tile_regs_release,
    tile_regs_wait,
)
from softmesh.kernels.calls.vector_unit import *  # noqa: F403  (its __all__ is a table of names)
from softmesh.kernels.data_formats import CBIndex, DataFormat
from softmesh.kernels.engine.fabric_packets import (
    MulticastRoutingCommandHeader,
    NocUnicastAtomicIncCommandHeader,
    NocUnicastAtomicIncFusedCommandHeader,
    NocUnicastCommandHeader,
    NocUnicastInlineWriteCommandHeader,
    NocUnicastScatterCommandHeader,
    PacketHeader,
    PacketHeaderPool,
)

__all__ = [
    _name
    for _name, _value in list(globals().items())
    if not _name.startswith("_") and not isinstance(_value, _ModuleType)
]
