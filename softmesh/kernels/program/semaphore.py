"""Semaphores of a program, as the host asks for them."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.cores import CoreRangeSet

MOST_SEMAPHORES = 16  # of one core


@dataclass(frozen=True)
class Semaphore:
    id: int
    cores: CoreRangeSet
    initial_value: int
