"""Whether the blocks of a program config fit a product, as TT-NN checks before it runs one."""

from __future__ import annotations

from softmesh.errors import MeshError
from softmesh.hardware.program_configs import (
    MatmulMultiCoreReuseMultiCast1DProgramConfig,
    MatmulMultiCoreReuseMultiCastProgramConfig,
    MatmulMultiCoreReuseProgramConfig,
    MatmulProgramConfig,
)

_Mcast = MatmulMultiCoreReuseMultiCastProgramConfig | MatmulMultiCoreReuseMultiCast1DProgramConfig


def check_blocks(op: str, inner_tiles: int, config: MatmulProgramConfig | None) -> None:
    """`inner_tiles`: of the dim that is summed over."""
    if not isinstance(config, _Mcast | MatmulMultiCoreReuseProgramConfig):
        return
    _check_divides(op, "out_subblock_w", config.out_subblock_w, "out_subblock_h", config.out_subblock_h)
    if isinstance(config, _Mcast):
        width, height = config.out_block_w or 0, config.out_block_h or 0
        _check_divides(op, "out_block_w", width, "out_block_h", height)
        for what, whole, part, of in (
            ("per_core_M", config.per_core_M, height, "out_block_h"),
            ("per_core_N", config.per_core_N, width, "out_block_w"),
            ("out_block_h", height, config.out_subblock_h, "out_subblock_h"),
            ("out_block_w", width, config.out_subblock_w, "out_subblock_w"),
        ):
            if whole % part:
                raise MeshError(f"{op}: {what} ({whole}) must be divisible by {of} ({part}).")
    is_ring = isinstance(config, MatmulMultiCoreReuseMultiCast1DProgramConfig) and config.gather_in0
    if not is_ring and (not config.in0_block_w or inner_tiles % config.in0_block_w):
        raise MeshError(
            f"Kt ({inner_tiles}) must be divisible by in0_block_w ({config.in0_block_w}): {op} sums over {inner_tiles} "
            "tiles, block by block."
        )


def _check_divides(op: str, wide: str, width: int, high: str, height: int) -> None:
    if not width or not height:
        raise MeshError(f"{op}: {wide} and {high} must be non-zero, got {width} and {height}.")
