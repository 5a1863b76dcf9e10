"""The data sheet of a chip, as far as programs and the cost model can ask.

GB is 10^9 bytes. Rates are those of the data sheet, for one chip and one direction; what of them programs reach is
the cost model's business.
"""

from __future__ import annotations

from typing import NamedTuple

from softmesh.hardware import Arch, DispatchCoreAxis, DispatchCoreConfig, DispatchCoreType

_GIB = 2**30
_KERNEL_CONFIG_BYTES = 69 * 1024
_FLITS_OF_A_PACKET = 256


class Chip(NamedTuple):
    kind: str
    arch: Arch
    arch_name: str
    tensix_grid: tuple[int, int]  # columns, rows of Tensix cores that survived harvesting
    worker_grid: tuple[int, int]  # what programs may use of them while Ethernet cores dispatch
    default_dispatch: DispatchCoreType
    dispatch_axis: DispatchCoreAxis  # dispatch from worker cores takes the last row, or the last column
    first_worker: tuple[int, int]  # virtual coordinate of logical worker core 0-0
    clock_ghz: float
    noc_grid: tuple[int, int]  # columns, rows of all cores: Tensix, DRAM, Ethernet, PCIe
    noc_flit_bytes: int
    l1_bytes: int  # of each Tensix core
    firmware_bytes: int  # at the bottom of L1: firmware and mailboxes
    kernel_config_bytes: int  # above them: the ring of kernel configurations, unless a mesh asks for another
    l1_alignment: int
    dram_banks: int
    dram_bank_bytes: int
    dram_reserved_bytes: int  # at the bottom of each bank
    dram_alignment: int
    write_alignment: int  # of writes over the NoC and PCIe, to any memory; reads follow the memory's alignment
    dram_gb_per_s: float
    ethernet_ports: int
    ethernet_l1_bytes: int  # of each Ethernet core
    link_gb_per_s: float  # one link, one direction, as signalled
    largest_packet_bytes: int  # payload
    routing_planes: int
    sfpu_eps: float = 1.19209e-07
    sfpu_nan: float = 7.004e19
    sfpu_inf: float = 1.7014e38

    @property
    def l1_base(self) -> int:
        """Where circular buffers and tensors begin to share L1."""
        return self.firmware_bytes + self.kernel_config_bytes

    @property
    def allocation_alignment(self) -> int:
        """Of the addresses and sizes of buffers, in DRAM and in L1."""
        return self.dram_alignment

    @property
    def noc_packet_bytes(self) -> int:
        """The most that one NoC packet carries."""
        return _FLITS_OF_A_PACKET * self.noc_flit_bytes

    @property
    def dram_grid(self) -> tuple[int, int]:
        return self.dram_banks, 1

    def grid(self, config: DispatchCoreConfig | None = None) -> tuple[int, int]:
        """The cores programs may use, as `compute_with_storage_grid_size` answers: columns, rows.

        >>> N300.grid(), N300.grid(DispatchCoreConfig(DispatchCoreType.WORKER))
        ((8, 8), (8, 7))
        """
        dispatch: DispatchCoreType | None = self.default_dispatch
        axis: DispatchCoreAxis | None = self.dispatch_axis
        if config is not None:
            chosen = config.resolved(self.default_dispatch, self.dispatch_axis)
            dispatch, axis = chosen.type, chosen.axis
        if dispatch is DispatchCoreType.ETH:
            return self.worker_grid
        columns, rows = self.tensix_grid
        return (columns - 1, rows) if axis is DispatchCoreAxis.COL else (columns, rows - 1)


N300 = Chip(
    kind="n300",
    arch=Arch.WORMHOLE_B0,
    arch_name="wormhole_b0",
    tensix_grid=(8, 8),  # two of ten rows harvested
    worker_grid=(8, 8),
    default_dispatch=DispatchCoreType.ETH,
    dispatch_axis=DispatchCoreAxis.ROW,
    first_worker=(18, 18),
    clock_ghz=1.0,
    noc_grid=(10, 12),
    noc_flit_bytes=32,
    l1_bytes=1464 * 1024,
    firmware_bytes=35_008,
    kernel_config_bytes=_KERNEL_CONFIG_BYTES,
    l1_alignment=16,
    dram_banks=12,
    dram_bank_bytes=_GIB,
    dram_reserved_bytes=1_048_640,
    dram_alignment=32,
    write_alignment=16,
    dram_gb_per_s=288.0,
    ethernet_ports=16,
    ethernet_l1_bytes=256 * 1024,
    link_gb_per_s=12.5,
    largest_packet_bytes=7616,
    routing_planes=4,
)
# Ethernet dispatch frees no row on an n150: with nine rows, programs get eight either way.
N150 = N300._replace(kind="n150", tensix_grid=(8, 9), default_dispatch=DispatchCoreType.WORKER)
WH_GALAXY = N300._replace(
    kind="wh_galaxy", tensix_grid=(8, 10), worker_grid=(8, 10), default_dispatch=DispatchCoreType.WORKER
)

P150 = Chip(
    kind="p150",
    arch=Arch.BLACKHOLE,
    arch_name="blackhole",
    tensix_grid=(13, 10),  # one of fourteen columns harvested
    worker_grid=(13, 10),
    default_dispatch=DispatchCoreType.WORKER,
    dispatch_axis=DispatchCoreAxis.COL,
    first_worker=(1, 2),
    clock_ghz=1.35,
    noc_grid=(17, 12),
    noc_flit_bytes=64,
    l1_bytes=1536 * 1024,
    firmware_bytes=40_960,
    kernel_config_bytes=_KERNEL_CONFIG_BYTES,
    l1_alignment=16,
    dram_banks=8,
    dram_bank_bytes=4_278_190_080,
    dram_reserved_bytes=1_048_704,
    dram_alignment=64,
    write_alignment=16,
    dram_gb_per_s=512.0,
    ethernet_ports=12,
    ethernet_l1_bytes=512 * 1024,
    link_gb_per_s=50.0,
    largest_packet_bytes=15_232,
    routing_planes=2,
)
P100 = P150._replace(
    kind="p100",
    tensix_grid=(12, 10),
    worker_grid=(12, 10),
    dram_banks=7,
    dram_gb_per_s=448.0,
    ethernet_ports=0,
)
P300 = P150._replace(kind="p300", tensix_grid=(12, 10), worker_grid=(12, 10))
BH_GALAXY = P150._replace(kind="bh_galaxy")

CHIPS = {chip.kind: chip for chip in (N150, N300, WH_GALAXY, P100, P150, P300, BH_GALAXY)}

WORMHOLE = N300  # of systems that are no product: the elastic one, generated ones
BLACKHOLE = P150
