"""Checks a program config's blocks against a product, as TT-NN does before it runs one."""

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


def check_distribution(op: str, rows: int, columns: int, config: MatmulProgramConfig | None) -> None:
    """Whether a result of so many tiles can be dealt out where in1 is sent to all: M among cores, N on each of them."""
    if not isinstance(config, MatmulMultiCoreReuseMultiCast1DProgramConfig) or config.mcast_in0 or config.gather_in0:
        return
    width, height = config.out_block_w or config.per_core_N, config.out_block_h or config.per_core_M
    if columns > config.per_core_N:
        raise MeshError(
            f"{op}: mcast_in1 requires N ({columns} tiles) to fit in a single per_core_N block ({config.per_core_N}): "
            "every core has all columns of its rows."
        )
    if -(-columns // width) != config.per_core_N // width:
        raise MeshError(
            f"{op}: mcast_in1 requires the logical N tail to be in the final internal W block: N is {columns} tiles, "
            f"per_core_N {config.per_core_N} in blocks of {width}."
        )
    blocks = config.per_core_M // height
    if rows >= config.per_core_M:
        return
    if -(-rows // height) != blocks:
        raise MeshError(
            f"{op}: a single-Y mcast_in1 sender requires the logical M tail to be in the final internal H block: M is "
            f"{rows} tiles, per_core_M {config.per_core_M} in blocks of {height}."
        )
    if blocks > 1:
        raise MeshError(
            f"{op}: a single-Y mcast_in1 sender takes a partial final H block only when per_core_M contains one "
            f"internal H block: M is {rows} tiles, per_core_M {config.per_core_M} in blocks of {height}."
        )


def check_bias_height(op: str, rows: int, bias_rows: int, config: MatmulProgramConfig | None) -> None:
    """Padded rows of the result and of the bias, of which this program reads a tile for each tile of the result."""
    if isinstance(config, MatmulMultiCoreReuseProgramConfig) and bias_rows != rows:
        raise MeshError(
            f"{op}: padded second last dimension of bias, {bias_rows}, not equal to expected bias height, {rows}: with "
            "MatmulMultiCoreReuseProgramConfig it is a whole block; add it with ttnn.add."
        )


def _check_divides(op: str, wide: str, width: int, high: str, height: int) -> None:
    if not width or not height:
        raise MeshError(f"{op}: {wide} and {high} must be non-zero, got {width} and {height}.")
