"""Global circular buffers for prefetchers: memory in the L1 of the receiving cores, which DRAM banks fill."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softmesh.arguments import checked, checked_all, checked_int, described, refused, reject_unknown_keywords
from softmesh.cores import CoreCoord, CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.hardware.enums import BufferType
from softmesh.hardware.program_configs import MatmulMultiCoreReuseMultiCast1DProgramConfig
from softmesh.runtime.buffers.global_buffers import GlobalCircularBuffer, check_cores, check_l1, page_per_core
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.tensor.tensor import Tensor

A_TENSOR = "a ttnn.Tensor: make one with ttnn.from_torch(..., device=mesh_device)"
_CONFIG_BYTES = 64
_A_PAIR = "a pair (number of a DRAM bank, ttnn.CoreRangeSet of its receivers)"


class BankCircularBuffer(GlobalCircularBuffer):
    """A global circular buffer whose senders are DRAM banks: bank b stands as core (b, 0) in the mapping."""

    __slots__ = ("splits_shards",)

    def __init__(
        self,
        where: str,
        mesh: MeshDevice,
        bank_to_receivers: object,
        size: object,
        buffer_type: BufferType,
        splits_shards: bool,
    ) -> None:
        self._mapping = _checked_banks(where, mesh, bank_to_receivers)
        self._size = checked_int(where, "size", size)
        if self._size <= 0:
            raise refused(where, f"size counts bytes and must be positive, got {self._size}")
        self.splits_shards = bool(checked(where, "support_multi_receiver_shards", splits_shards, bool, "True or False"))
        kind = check_l1(where, buffer_type)
        self.buffer = page_per_core(mesh, self.receiver_cores(), self._size, kind)
        self._config = page_per_core(mesh, self.receiver_cores(), _CONFIG_BYTES, kind)

    def all_cores(self) -> CoreRangeSet:
        return self.receiver_cores()


def _checked_banks(where: str, mesh: MeshDevice, given: object) -> tuple[tuple[CoreCoord, CoreRangeSet], ...]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise refused(where, f"bank_to_receivers must be a list, each {_A_PAIR}, got {described(given)}")
    banks = mesh.dram_grid_size().x
    pairs: list[tuple[CoreCoord, CoreRangeSet]] = []
    for i, pair in enumerate(given):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise refused(where, f"bank_to_receivers[{i}] must be {_A_PAIR}, got {described(pair)}")
        bank = checked_int(where, f"bank_to_receivers[{i}]", pair[0])
        if not 0 <= bank < banks:
            raise MeshError(f"{where}: bank {bank} is none of the {banks} DRAM banks of this chip (0 to {banks - 1}).")
        pairs.append((CoreCoord(bank, 0), check_cores(where, f"receivers of bank {bank}", pair[1])))
    if not pairs:
        raise MeshError(f"{where}: bank_to_receivers names no bank. Give {_A_PAIR} for each.")
    _check_once(where, [bank for bank, _ in pairs], "bank")
    _check_once(where, [core for _, cores in pairs for core in corerange_to_cores(cores)], "receiver")
    return tuple(pairs)


def _check_once(where: str, cores: Sequence[CoreCoord], what: str) -> None:
    twice = next((core for core in cores if cores.count(core) > 1), None)
    if twice is not None:
        raise MeshError(f"{where}: {what} {twice} stands in bank_to_receivers twice.")


@reject_unknown_keywords
def create_global_circular_buffer_for_tensor_prefetcher(
    mesh_device: MeshDevice,
    bank_to_receivers: Sequence[tuple[int, CoreRangeSet]],
    size: int,
    buffer_type: BufferType = BufferType.L1,
    support_multi_receiver_shards: bool = True,
) -> BankCircularBuffer:
    """`size` bytes in the L1 of every receiver, filled by the DRAM banks that the tensor prefetcher reads."""
    where = "create_global_circular_buffer_for_tensor_prefetcher"
    mesh = checked_open(where, "mesh_device", mesh_device)
    return BankCircularBuffer(where, mesh, bank_to_receivers, size, buffer_type, support_multi_receiver_shards)


@reject_unknown_keywords
def create_global_circular_buffer_for_matmul_1d(
    mesh_device: MeshDevice,
    program_configs: Sequence[MatmulMultiCoreReuseMultiCast1DProgramConfig],
    weights: Sequence[Tensor],
    bank_to_receivers: Sequence[tuple[int, CoreRangeSet]],
    size: int,
    buffer_type: BufferType = BufferType.L1,
    support_multi_receiver_shards: bool | None = None,
) -> BankCircularBuffer:
    """The same for the weights of matmuls with these program configs: it must hold a block of each of them."""
    where = "create_global_circular_buffer_for_matmul_1d"
    mesh = checked_open(where, "mesh_device", mesh_device)
    wanted = "ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig"
    kinds = (MatmulMultiCoreReuseMultiCast1DProgramConfig,)
    configs = checked_all(where, "program_configs", program_configs, kinds, wanted)
    tensors = checked_all(where, "weights", weights, (Tensor,), "ttnn.Tensor")
    if len(configs) != len(tensors) or not configs:
        raise MeshError(f"{where}: {len(configs)} program configs and {len(tensors)} weights: give one for each.")
    for i, (config, weight) in enumerate(zip(configs, tensors, strict=True)):
        needs = _block_bytes(where, config, weight)
        if needs > size:
            raise MeshError(
                f"{where}: a block of weights[{i}] takes {needs} bytes on a core ({config.in0_block_w} x "
                f"{config.per_core_N} tiles), and size={size}: give at least that."
            )
    splits = True if support_multi_receiver_shards is None else support_multi_receiver_shards
    return BankCircularBuffer(where, mesh, bank_to_receivers, size, buffer_type, splits)


def _block_bytes(where: str, config: MatmulMultiCoreReuseMultiCast1DProgramConfig, weight: Tensor) -> int:
    _blocks(where, config, weight)
    return config.in0_block_w * config.per_core_N * weight.spec.tile.get_tile_size(weight.dtype)


def _blocks(where: str, config: MatmulMultiCoreReuseMultiCast1DProgramConfig, weight: Tensor) -> int:
    height = weight.spec.padded_shape[-2] // weight.spec.tile.tile_shape[0]
    if config.in0_block_w < 1 or height % config.in0_block_w:
        raise MeshError(
            f"{where}: the weight {list(weight.shape)} is {height} tiles high, which blocks of in0_block_w="
            f"{config.in0_block_w} do not divide."
        )
    return height // config.in0_block_w


@reject_unknown_keywords
def tensor_prefetcher_block_count_for_matmul_1d(
    program_config: MatmulMultiCoreReuseMultiCast1DProgramConfig,
    weight: Tensor,
    global_cb: GlobalCircularBuffer | None = None,
    *,
    prefetcher_pipes: Sequence[object] = (),
) -> int:
    """In how many blocks a matmul with this program config reads the weight: its tiles along K over in0_block_w.

    TT-NN does not document what else it counts.
    """
    where = "tensor_prefetcher_block_count_for_matmul_1d"
    kind = MatmulMultiCoreReuseMultiCast1DProgramConfig
    config = checked(where, "program_config", program_config, kind, f"a ttnn.{kind.__name__}")
    if global_cb is None and not prefetcher_pipes:
        raise refused(where, "global_cb is missing: ttnn.experimental.create_global_circular_buffer_for_matmul_1d")
    return _blocks(where, config, checked(where, "weight", weight, Tensor, A_TENSOR))
