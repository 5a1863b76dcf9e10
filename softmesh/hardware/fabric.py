"""The choices a program has for the fabric that joins the chips."""

from __future__ import annotations

from softmesh.native_enum import NativeEnum


class Topology(NativeEnum):
    """The paths a collective may take. Results never depend on it."""

    Linear = 1
    Ring = 2
    Mesh = 3
    Torus = 4


class FabricConfig(NativeEnum):
    """Which routes exist: none, along one axis at a time, or in both; with wrap-around links or without."""

    DISABLED = 0
    FABRIC_1D_NEIGHBOR_EXCHANGE = 1
    FABRIC_1D = 2
    FABRIC_1D_RING = 3
    FABRIC_2D = 4
    FABRIC_2D_TORUS_X = 5
    FABRIC_2D_TORUS_Y = 6
    FABRIC_2D_TORUS_XY = 7
    CUSTOM = 8


class FabricTensixConfig(NativeEnum):
    """Whether worker cores help the ethernet cores with the fabric's traffic."""

    DISABLED = 0
    MUX = 1


class FabricReliabilityMode(NativeEnum):
    """What a missing link means when the fabric comes up: an error, or fewer links."""

    STRICT_INIT = 0
    RELAXED_INIT = 1
    DYNAMIC_RECONFIG = 2
