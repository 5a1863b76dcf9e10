"""fp8 quantization: a scale for each 128 values of a row (`per_token_cast_to_fp8`), and packed fp8 KV-cache rows."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element, moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError, NotModelled
from softmesh.kinds import Kind
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.broadcasting import concat_on_mesh
from softmesh.tensor.dtype import DataType, Layout

GROUP = 128  # columns that share a scale
_LARGEST = 448.0  # of fp8 e4m3
_LATENT, _SCALES, _ROPE = 512, 4, 64  # columns of a packed row: fp8, float32, bfloat16
PACKED = _LATENT + 4 * _SCALES + 2 * _ROPE  # bytes
_CAST = "experimental.deepseek_prefill.per_token_cast_to_fp8"
_BACK = "experimental.deepseek_prefill.per_token_cast_back"
_PACK = "experimental.deepseek_prefill.pack_scaled_fp8_kv_cache"
_OPTIONS: dict[str, Any] = {"cost": flops_per_element(3), "positional": "memory_config"}


@operation(_CAST, kind=Kind.ELEMENTWISE, **_OPTIONS, controls="memory_config", results="tuple[Tensor, Tensor]")
def per_token_cast_to_fp8(input_tensor: Operand, *, round_scale_to_power_of_two: bool = False) -> Local:
    """(x / scale in fp8, the scales in float32): a scale for each 128 columns takes their largest to 448."""
    width = input_tensor.shape[-1] if input_tensor.rank else 0
    if not width or width % GROUP:
        raise MeshError(
            f"{_CAST}: the last dim of {list(input_tensor.shape)} must be a multiple of {GROUP}, which share a scale."
        )

    def compute(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        groups = x.unflatten(-1, (-1, GROUP))
        scales = groups.abs().amax(-1) / _LARGEST
        scales = torch.where(scales == 0, 1.0, scales)
        if round_scale_to_power_of_two:
            scales = torch.exp2(torch.ceil(torch.log2(scales)))
        return (groups / scales.unsqueeze(-1)).flatten(-2), scales

    return Local(
        compute,
        _by_groups,
        dtypes=(DataType.FP8_E4M3, DataType.FLOAT32),
        layouts=(Layout.ROW_MAJOR, Layout.ROW_MAJOR),
    )


@rules.labelled(dim_labels.moved(lambda dim: dim, passes=""))
def _by_groups(at: rules.Situation) -> rules.Placement:
    """A split of the columns splits their scales too, unless it is uneven."""
    word = rules.elementwise(at._replace(out_shapes=(at.shape,), shapes=at.shapes[:1], words=at.words[:1]))
    uneven = isinstance(word, rules.Shard) and word.dim == len(at.shape) - 1 and word.size is not None
    return rules.LOCAL if uneven else word


@operation(
    _BACK,
    kind=Kind.ELEMENTWISE,
    cost=flops_per_element(1),
    controls="memory_config output_dtype",
    positional="output_dtype memory_config narrow_scales_to_bf16",
)
@placed("Split as the operands are, where they are split alike; otherwise Local.")
def per_token_cast_back(
    input_e4m3: Operand,
    input_scale: Operand | None = None,
    *,
    narrow_scales_to_bf16: bool = False,
    token_count_aware: bool = False,
    expert_region_offsets: Operand | None = None,
    expert_token_counts: Operand | None = None,
    global_expert_idx_table: Operand | None = None,
    experts_per_chip: int = 0,
    metadata: Operand | None = None,
) -> Local:
    """x * scale for each 128 columns, in bfloat16 unless another dtype is asked for; without scales x itself."""
    if token_count_aware or metadata is not None:
        raise NotModelled(f"{_BACK}: token_count_aware is not modelled: all rows are cast, those of no token too.")
    if input_scale is not None:
        wanted = (*input_e4m3.shape[:-1], input_e4m3.shape[-1] // GROUP)
        if input_scale.shape != wanted or input_e4m3.shape[-1] % GROUP:
            raise MeshError(
                f"{_BACK}: input_scale {list(input_scale.shape)} must be {list(wanted)}: one for each {GROUP} columns."
            )

    def compute(x: torch.Tensor, scales: torch.Tensor | None, *unused: object) -> torch.Tensor:
        if scales is None:
            return x
        used = scales.bfloat16().float() if narrow_scales_to_bf16 else scales
        return (x.unflatten(-1, (-1, GROUP)) * used.unsqueeze(-1)).flatten(-2)

    @rules.labelled(dim_labels.moved(lambda dim: dim, passes="", of_all=True))
    def rule(at: rules.Situation) -> rules.Placement:
        words = at.words[: 1 if at.words[1] is None else 2]
        whole = (at.shape,) * len(words)
        word = rules.elementwise(at._replace(words=words, shapes=whole))
        uneven = isinstance(word, rules.Shard) and word.dim == len(at.shape) - 1 and word.size is not None
        return rules.LOCAL if uneven else word

    return Local(compute, rule, dtypes=(DataType.BFLOAT16,), layouts=(input_e4m3.layout,))


@operation(_PACK, kind=Kind.ELEMENTWISE, cost=moves_bytes, precision="data", controls="memory_config")
@placed("Split by rows where the operands are; split along their last dim, Local.")
def pack_scaled_fp8_kv_cache(latent: Operand, scales: Operand, rope: Operand) -> Local:
    """Rows of 656 bytes: 512 fp8 values, their 4 float32 scales, 64 bfloat16 values; as uint8, [..., 656].

    That TT-NN packs them in this order is not known.
    """
    for operand, width in ((latent, _LATENT), (scales, _SCALES), (rope, _ROPE)):
        if operand.shape != (*latent.shape[:-1], width):
            raise MeshError(
                f"{_PACK}: {operand.name} {list(operand.shape)} must be {[*latent.shape[:-1], width]}: rows of "
                f"{_LATENT} latent values, {_SCALES} scales and {_ROPE} values with a position."
            )

    def compute(latent: torch.Tensor, scales: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
        parts = (latent.to(torch.float8_e4m3fn), scales.float(), rope.bfloat16())
        return concat_on_mesh([part.contiguous().view(torch.uint8) for part in parts], -1)

    @rules.labelled(dim_labels.moved(lambda dim: None if dim == latent.rank - 1 else dim, passes="", of_all=True))
    def rule(at: rules.Situation) -> rules.Placement:
        word = rules.elementwise(at._replace(shapes=(at.out_shape,) * 3))
        return rules.LOCAL if isinstance(word, rules.Shard) and word.dim == len(at.out_shape) - 1 else word

    return Local(compute, rule, dtypes=(DataType.UINT8,), layouts=(Layout.ROW_MAJOR,))


def unpack_fp8_rows(rows: torch.Tensor) -> torch.Tensor:
    """(..., 656) bytes as (..., 576) values: the latent ones scaled back, then those with a position."""
    held = rows.to(torch.uint8)
    latent = held[..., :_LATENT].contiguous().view(torch.float8_e4m3fn).float()
    scales = held[..., _LATENT : _LATENT + 4 * _SCALES].contiguous().view(torch.float32)
    rope = held[..., _LATENT + 4 * _SCALES :].contiguous().view(torch.bfloat16).float()
    return torch.cat([(latent.unflatten(-1, (-1, GROUP)) * scales.unsqueeze(-1)).flatten(-2), rope], -1)
