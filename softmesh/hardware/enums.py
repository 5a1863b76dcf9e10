"""TT-NN's enums: the base class with the look they share, and those that belong to no configuration."""

from __future__ import annotations

from enum import Enum, EnumMeta


class _NativeEnumMeta(EnumMeta):
    """Gives an enum the table of its members that bindings keep: `{name: (member, doc)}`."""


# Named so in the native bindings; written inside a class, Python would mangle it.
setattr(
    _NativeEnumMeta,
    "__entries",
    property(lambda kind: {name: (member, None) for name, member in kind.__members__.items()}),
)


class NativeEnum(Enum, metaclass=_NativeEnumMeta):
    """An enum that prints as `Topology.Ring` both ways and hashes by identity.

    Members are singletons, so identity is enough, and it skips the Python-level `Enum.__hash__`.
    """

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__

    @property
    def cpp_name(self) -> str:
        """As C++ writes it, and with it the texts that TT-NN's native layer prints: `Topology::Ring`."""
        return f"{type(self).__name__}::{self.name}"


# What a tensor's memory holds: what an element is, and how elements follow each other.


class DataType(NativeEnum):
    """What one element of a tensor is on the chip."""

    BFLOAT16 = 0
    FLOAT32 = 1
    UINT32 = 2
    BFLOAT8_B = 3
    BFLOAT4_B = 4
    UINT8 = 5
    UINT16 = 6
    INT32 = 7
    FP8_E4M3 = 8
    INT8 = 9
    INVALID = 10


class Layout(NativeEnum):
    """How elements follow each other in memory: row after row, or tile after tile."""

    ROW_MAJOR = 0
    TILE = 1
    INVALID = 2


# Chips, and who moves data on them: architectures, networks on chip, baby RISC-V processors.


class Arch(NativeEnum):
    WORMHOLE_B0 = 2
    BLACKHOLE = 3
    QUASAR = 4


class NOC(NativeEnum):
    """The two networks on chip, by the processor that uses each by default."""

    RISCV_0_default = 0
    RISCV_1_default = 1
    NOC_0 = 0
    NOC_1 = 1


class DataMovementProcessor(NativeEnum):
    """The processors of a core that run reader and writer kernels."""

    RISCV_0 = 0
    RISCV_1 = 1
    RISCV_2 = 2
    RISCV_3 = 3
    RISCV_4 = 4
    RISCV_5 = 5
    RISCV_6 = 6
    RISCV_7 = 7


class ShardShapeAlignment(NativeEnum):
    """How the shape of a shard is rounded up: not at all, to what a layout needs, or to what is read fastest."""

    NONE = 0
    REQUIRED = 1
    RECOMMENDED = 2


class TileReshapeMapMode(NativeEnum):
    """Whether a tiled reshape keeps its map of moved elements for the next call."""

    CACHE = 0
    RECREATE = 1


class DumpTensorMode(NativeEnum):
    """Whether a tensor file gathers the shards of every rank, or holds those of this rank only."""

    DISTRIBUTED_GATHER = 0
    LOCAL = 1


class BufferType(NativeEnum):
    """The memory a buffer is in."""

    DRAM = 0
    L1 = 1
    L1_SMALL = 3
    TRACE = 4


# The machines TT-NN knows by name.


class ClusterType(NativeEnum):
    INVALID = 0
    N150 = 1
    N300 = 2
    T3K = 3
    GALAXY = 4
    TG = 5
    P100 = 6
    P150 = 7
    P150_X2 = 8
    P150_X4 = 9
    P150_X8 = 13
    SIMULATOR_WORMHOLE_B0 = 10
    SIMULATOR_BLACKHOLE = 11
    N300_2x2 = 12
    P300 = 14
    SIMULATOR_QUASAR = 15
    BLACKHOLE_GALAXY = 16
    P300_X2 = 17
    CUSTOM = 18

    @property
    def is_galaxy(self) -> bool:
        return self in (ClusterType.GALAXY, ClusterType.BLACKHOLE_GALAXY)


class LossReductionMode(NativeEnum):
    """What becomes of the losses of all elements."""

    NONE = 0
    MEAN = 1
    SUM = 2


class MorehSoftmaxOpParallelizationStrategy(NativeEnum):
    """How moreh's soft maxima are shared out to cores; NONE leaves it to the op."""

    NONE = 0
    SMALL_W = 1
    SMALL_H = 2
    LARGE_W = 3
    LARGE_H = 4
    LARGE_C = 5


class MorehSoftmaxBackwardOp(NativeEnum):
    """Of which soft maximum a gradient is."""

    SOFTMAX = 0
    SOFTMIN = 1
    LOGSOFTMAX = 2


class MorehSoftmaxBackwardOpParallelizationStrategy(NativeEnum):
    """How gradients of moreh's soft maxima are shared out to cores."""

    NONE = 0
    SMALL_W = 1
    SMALL_H = 2
    LARGE_W = 3
    LARGE_H = 4
    LARGE_C = 5


class RGBRange(NativeEnum):
    """Between which numbers colours lie."""

    MinusOneToOne = 0
    ZeroToOne = 1


class YUVFormat(NativeEnum):
    """Three planes, those of the colours with half the rows and columns."""

    YUV420Planar = 0


class YUVColorSpace(NativeEnum):
    BT601 = 0
    BT709 = 1
    BT2020 = 2


class YUVRange(NativeEnum):
    """All of 0 to 255, or what broadcasts leave of it."""

    Full = 0
    Limited = 1


# Arguments of the older broadcasting op: what it computes, and along which dims its second operand has extent 1.


class BcastOpMath(NativeEnum):
    ADD = 0
    SUB = 1
    MUL = 2


class BcastOpDim(NativeEnum):
    H = 0
    W = 1
    HW = 2


# Modes of single ops: how tokens travel to experts, who signals that a block is done, where values are unpacked to.


class DispatchAlgorithm(NativeEnum):
    """The way of a token to the devices of its experts."""

    BROADCAST = 0
    SPARSE_UNICAST = 1
    SPARSE_MCAST_LINEAR = 2
    SPARSE_MCAST_SHORTEST_PATH = 3
    SPARSE_MCAST_SPLIT_BW = 4


class WorkerMode(NativeEnum):
    """Whether workers hold links themselves, or share them through a mux that splits tokens or payloads."""

    DIRECT = 0
    MUX_TOKEN_SPLIT = 1
    MUX_PAYLOAD_SPLIT = 2


class MMSignalAggregatorMode(NativeEnum):
    """Whether one core gathers the signals that blocks of a product are done."""

    Auto = 0
    On = 1
    Off = 2


class UnpackToDestMode(NativeEnum):
    """Whether unpacked values go straight to the destination registers, in fp32."""

    UnpackToDestFp32 = 0
    Default = 1
