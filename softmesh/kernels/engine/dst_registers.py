"""DST, the tile registers of a core, and who owns them: math fills them, then the packer empties them.

Holds float32 values (int64 for integer formats), whatever the chip's mode rounds to: only the number of
tiles depends on the mode. The three compute threads run as one here, so acquiring registers twice is an error, not
a wait. Ownership goes NOBODY -> MATH -> BETWEEN -> PACK -> NOBODY, or NOBODY -> BOTH -> NOBODY by acquire_dst.
"""

from __future__ import annotations

from enum import Enum

import torch

from softmesh.errors import MeshError
from softmesh.kernels.engine.engine_setup import EngineSetup
from softmesh.tensor.tile import DEFAULT_TILE, Tile


class RegisterOwner(Enum):
    NOBODY = "nobody holds them: call tile_regs_acquire() before math, and after tile_regs_release()"
    MATH = "math holds them: call tile_regs_commit() when it is done, then tile_regs_wait() before packing"
    BETWEEN = "math has committed them: call tile_regs_wait() before packing"
    PACK = "the packer holds them: call tile_regs_release() before the next tile_regs_acquire()"
    BOTH = "acquire_dst() gave them to math and packer alike: call release_dst()"


_MATH = (RegisterOwner.MATH, RegisterOwner.BOTH)
_PACK = (RegisterOwner.PACK, RegisterOwner.BOTH)


def capacity_of(*, is_fp32: bool, is_full_sync: bool) -> int:
    """How many 32x32 tiles fit: half of them while math and packer work on different halves.

    >>> capacity_of(is_fp32=False, is_full_sync=False)
    8
    """
    return 16 // (1 + is_fp32) // (2 - is_full_sync)


class Registers:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.adds_in_l1 = False  # the packer adds to what is in memory
        self.setup = EngineSetup()
        self._owner = RegisterOwner.NOBODY
        self._values: list[torch.Tensor | None] = [None] * capacity
        self._tiles: list[Tile] = [DEFAULT_TILE] * capacity

    def hand_over(self, call: str, expected: RegisterOwner, then: RegisterOwner) -> None:
        """One of the calls by which the registers change hands."""
        if self._owner is not expected:
            raise MeshError(f"{call}() comes out of turn: of the tile registers {self._owner.value}.")
        self._owner = then
        if then is RegisterOwner.NOBODY:
            self._values = [None] * self.capacity  # the packer leaves them zero

    def why_held(self) -> str | None:
        """Who has them, and what to call so that they are free."""
        return None if self._owner is RegisterOwner.NOBODY else self._owner.value

    def check_math(self, call: str) -> None:
        if self._owner not in _MATH:
            raise MeshError(f"{call}() writes tile registers, and {self._owner.value}.")

    def get(self, call: str, index: int) -> torch.Tensor | None:
        """The values of a register, None where nothing was put there; for math to go on with."""
        self.check_math(call)
        return self._values[self._checked(call, index)]

    def put(self, call: str, index: int, values: torch.Tensor, tile: Tile = DEFAULT_TILE) -> None:
        self.check_math(call)
        self._values[self._checked(call, index)] = values
        self._tiles[index] = tile

    def tile(self, index: int) -> Tile:
        return self._tiles[index]

    def to_pack(self, call: str, index: int) -> torch.Tensor | None:
        if self._owner not in _PACK:
            raise MeshError(f"{call}() packs tile registers, and {self._owner.value}.")
        return self._values[self._checked(call, index)]

    def _checked(self, call: str, index: int) -> int:
        if not 0 <= index < self.capacity:
            raise MeshError(
                f"{call}(): there is no tile register {index}: DST holds {self.capacity} tiles. With "
                "fp32_dest_acc_en it is half as many as without, with dst_full_sync_en twice as many."
            )
        return index
