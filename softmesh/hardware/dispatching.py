"""How tokens travel to experts, and who tells whom that they have come: choices that only steer hardware."""

from __future__ import annotations

from softmesh.native_enum import NativeEnum


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
