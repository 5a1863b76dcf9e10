"""The active fabric settings of this process, set by `set_fabric_config`.

`serial` is a version number that caches of plans compare; a change also invalidates every cached call (see `epoch`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from softmesh import epoch
from softmesh.hardware import (
    FabricConfig,
    FabricManagerMode,
    FabricReliabilityMode,
    FabricTensixConfig,
    FabricUDMMode,
)


@dataclass(frozen=True)
class FabricSettings:
    config: FabricConfig = FabricConfig.DISABLED
    reliability: FabricReliabilityMode = FabricReliabilityMode.STRICT_INIT
    num_planes: int | None = None  # None: all there are
    tensix: FabricTensixConfig = FabricTensixConfig.DISABLED
    udm: FabricUDMMode = FabricUDMMode.DISABLED
    manager: FabricManagerMode = FabricManagerMode.DEFAULT
    max_payload: int | None = None  # bytes of a packet; None: the default

    @property
    def is_on(self) -> bool:
        return self.config is not FabricConfig.DISABLED


_ACTIVE = FabricSettings()
# Another number after each change: what was planned under one setting is not asked for under the next.
serial = 0


@dataclass(frozen=True)
class WhatIf:
    """Asked from outside of a program that sets a fabric: another one in its place, or to do without broken links."""

    config: FabricConfig | None = None
    is_relaxed: bool = False

    def instead_of(self, asked: FabricSettings) -> FabricSettings:
        if not asked.is_on:
            return asked
        relaxed = FabricReliabilityMode.RELAXED_INIT
        return replace(
            asked,
            config=self.config or asked.config,
            reliability=relaxed if self.is_relaxed else asked.reliability,
        )


what_if = WhatIf()


def active() -> FabricSettings:
    return _ACTIVE


def needed_line() -> str:
    """For a message that advises a collective: the line that it needs first, where no fabric is configured."""
    if _ACTIVE.is_on:
        return ""
    return " It needs ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D), before the mesh is opened."


def activate(settings: FabricSettings) -> None:
    global _ACTIVE, serial
    if settings != _ACTIVE:
        _ACTIVE, serial = settings, serial + 1
        epoch.invalidate()


ONE_DIMENSIONAL = frozenset(
    {FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE, FabricConfig.FABRIC_1D, FabricConfig.FABRIC_1D_RING}
)


def is_two_dimensional(config: FabricConfig) -> bool:
    """Whether packets may turn, and with it whether they may leave their mesh."""
    return config not in ONE_DIMENSIONAL and config is not FabricConfig.DISABLED
