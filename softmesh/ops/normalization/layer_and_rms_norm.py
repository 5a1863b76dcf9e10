"""layer_norm and rms_norm over the last dim of each device's shard, with the distributed and DiT forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.call_cache import Call
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware import LayerNormShardedMultiCoreProgramConfig, UnaryWithParam
from softmesh.kinds import Kind
from softmesh.native.gpu_kernels import gpu_rms_norm
from softmesh.ops import gradients
from softmesh.ops.elementwise.activations import activation_function
from softmesh.ops.elementwise.in_place import written_over
from softmesh.ops.golden import golden_reduction as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.dtype import FACTS, TILE_SIZE, DataType
from softmesh.tensor.tensor import Tensor

_TUNING = "compute_kernel_config program_config"


Affine = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor | None], torch.Tensor]


def _affine(op: str, x: Operand, weight: Operand | None, bias: Operand | None) -> Affine:
    """What weight and bias, rows in one of TT-NN's forms (1, 1, 1, W), (W,), (1, 1, W/32, 32), do to a norm of x.

    They may be padded to whole tiles.
    """
    if not x.rank:
        raise MeshError(f"{op}: input_tensor must have at least one dim.")
    width, rank = x.shape[-1], x.rank
    for operand in (weight, bias):
        if operand is not None and operand.spec.logical_volume() not in (width, -(-width // TILE_SIZE) * TILE_SIZE):
            raise MeshError(
                f"{op}: {operand.name} {list(operand.shape)} must hold {width} values, one for each element of the "
                "normalised dim."
            )
    ranks = [0 if operand is None else operand.rank for operand in (weight, bias)]
    plain = (*(1,) * (rank - 1), width)

    def row(values: torch.Tensor, own_rank: int) -> torch.Tensor:
        if own_rank == rank and values.shape[-rank:] == plain:
            return values
        return values.reshape(*values.shape[: values.dim() - own_rank], *plain[:-1], -1)[..., :width]

    def apply(normed: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        scaled = normed if w is None else normed * row(w, ranks[0])
        return scaled if b is None else scaled + row(b, ranks[1])

    return apply


def _row_word(at: rules.Situation, residual: int) -> rules.Placement:
    """The word of a norm of x + residual over its last dim, weights aside."""
    indices = [0] if at.words[residual] is None else [0, residual]
    for index in indices:
        if isinstance(at.words[index], rules.Partial):
            raise rules.UsesPartial(index)
    total = rules.Situation(tuple(at.words[i] for i in indices), tuple(at.shapes[i] for i in indices), (at.shape,))
    word = rules.elementwise(total)
    is_last = isinstance(word, rules.Shard) and word.dim == len(at.shape) - 1
    return rules.LOCAL if is_last else word


def _norm_labels(shapes: dim_labels.Shapes, results: Sequence[dim_labels.Extents]) -> dim_labels.DimLabels:
    """Label all dims but the last one, of the input and of a residual."""
    x, *weights = shapes[:3]
    found = dim_labels.aligned(without=(-1,))((x, *(None for _ in weights), *shapes[3:]), results)
    own = (None if shape is None else (None,) * len(shape) for shape in weights)
    return found._replace(operands=(found.operands[0], *own, *found.operands[3:]))


@placed("Split as the operand is; split along the last dim, or with a weight that is split, Local.")
@rules.labelled(_norm_labels)
def _norm_rule(at: rules.Situation) -> rules.Placement:
    """Over a split last dim nothing global is left; a weight must be replicated."""
    rules.refuse_partial(at)
    own = [word for word in at.words[1:3] if word is not None and word is not rules.REPLICATE]
    return rules.LOCAL if own else _row_word(at, 3)


def _normalized(x: torch.Tensor, epsilon: float, centred: bool) -> torch.Tensor:
    norm = torch.nn.functional.layer_norm if centred else torch.nn.functional.rms_norm
    return norm(x, (x.shape[-1],), eps=epsilon)


def _one_kernel(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, epsilon: float, centred: bool
) -> Callable[..., torch.Tensor] | None:
    """On a GPU torch's kernel takes bfloat16, computes in fp32 and rounds once; for one row of weights."""
    width = x.shape[-1]
    fit = all(row is None or (row.numel() == width and row.dtype is x.dtype) for row in (w, b)) and not (
        w is None and b is not None
    )
    if not x.is_cuda or x.dtype is not torch.bfloat16 or not fit or (b is not None and not centred):
        return None
    if centred:
        norm = torch.nn.functional.layer_norm
        rows = (
            (lambda w, b: (w, b))
            if w is None
            else (lambda w, b: (w.reshape(width), None if b is None else b.reshape(width)))
        )
        return lambda x, w=None, b=None, r=None: norm(x, (width,), *rows(w, b), epsilon)

    def rms_norm(x: torch.Tensor, w: torch.Tensor | None = None, *_: Any) -> torch.Tensor:
        row = None if w is None else w.reshape(width)
        found = gpu_rms_norm(x, row, epsilon)
        return torch.rms_norm(x, (width,), row, epsilon) if found is None else found

    return rms_norm


class _Norm:
    """x normalised over its last dim, with what weight and bias do to it, and a residual added before."""

    def __init__(self, affine: Affine, epsilon: float, centred: bool, rounds_to_blocks: bool) -> None:
        self._affine, self._epsilon, self._centred, self._is_narrow = affine, epsilon, centred, rounds_to_blocks
        self._direct: Callable[..., torch.Tensor] | None = None

    def __call__(
        self,
        x: torch.Tensor,
        w: torch.Tensor | None,
        b: torch.Tensor | None,
        r: torch.Tensor | None,
    ) -> torch.Tensor:
        fused = None
        if r is None and not self._is_narrow and all(row is None or row.is_contiguous() for row in (w, b)):
            fused = _one_kernel(x, w, b, self._epsilon, self._centred)
        self._direct = fused or self._in_fp32
        return self._direct(x, w, b, r)

    def _in_fp32(
        self, x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, r: torch.Tensor | None
    ) -> torch.Tensor:
        x = x.float() if r is None else x.float() + r.float()
        normed = _normalized(x, self._epsilon, self._centred)
        return self._affine(normed, None if w is None else w.float(), None if b is None else b.float())

    @property
    def direct(self) -> Callable[..., torch.Tensor]:
        """The same for more operands like the last."""
        return self._direct or self


def _norm(
    op: str,
    input_tensor: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    epsilon: float,
    centred: bool,
) -> Local:
    affine = _affine(op, input_tensor, weight, bias)
    if residual is not None and residual.shape != input_tensor.shape:
        raise MeshError(
            f"{op}: residual_input_tensor {list(residual.shape)} must be like the input {list(input_tensor.shape)}."
        )

    narrow = FACTS[input_tensor.dtype].is_block  # rounded to blocks, not to bfloat16
    return Local(_Norm(affine, epsilon, centred, narrow))


_REFERENCES = {centred: golden.norms(centred) for centred in (False, True)}


def _register(name: str, formula: str, centred: bool, steps: int, tuning: str = _TUNING) -> Operation:
    def define(
        input_tensor: Operand,
        *,
        epsilon: float = 1e-12,
        weight: Operand | None = None,
        bias: Operand | None = None,
        residual_input_tensor: Operand | None = None,
    ) -> Local:
        return _norm(name, input_tensor, weight, bias, residual_input_tensor, epsilon, centred)

    with_reference(_REFERENCES[centred][0])(define)
    define.__doc__ = (
        f"{formula} * weight + bias over the last dim; a residual is added to x first. With a program_config that says "
        f"""inplace, a sharded x is written over.

>>> y = ttnn.{name}(split(32, 64, dim=0), weight=whole(1, 64))
>>> y.shape, ttnn.placements(y)
(Shape([8, 64]), (Replicate, Shard(0)))
"""
    )
    halves = f"{part_work.NORMALIZES.remedy}, or take ttnn.{name}_pre_all_gather and its post_all_gather"
    return operation(
        name,
        kind=Kind.NORM,
        rule=_norm_rule,
        part_work=part_work.NORMALIZES._replace(remedy=halves),
        cost=flops_per_element(steps),
        precision="data",
        controls="memory_config",
        floats_only=True,
        tuning=tuning,
        native="LayerNormDeviceOperation",
        gradient=gradients.of_norm,
        operation_class=_InPlaceNorm,
    )(define)


class _InPlaceNorm(Operation):
    """A norm whose program config may say that a sharded operand is written over, and returned."""

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        config, given = kwargs.get("program_config"), args[0] if args else kwargs.get("input_tensor")
        is_asked = isinstance(config, LayerNormShardedMultiCoreProgramConfig) and config.inplace
        if not is_asked or not isinstance(given, Tensor) or not given.memory_config().is_sharded():
            return super().invoke(args, kwargs, call)
        others = {name: value for name, value in kwargs.items() if name != "memory_config"}
        return written_over(self).invoke(args, others, None)


layer_norm = _register("layer_norm", "(x - mean) / sqrt(var + epsilon)", True, 8, f"{_TUNING} recip_tensor")
rms_norm = _register("rms_norm", "x / sqrt(mean(x^2) + epsilon)", False, 6)


@placed("Split by rows where the operand is; of a split last dim, Local: gather it, or sum it, for the whole row.")
@rules.labelled(dim_labels.unlabelled)
def _share_rule(at: rules.Situation) -> rules.Placement:
    """Each device has the statistics of its part of a row."""
    return _row_word(at, 1)


def _statistics(input_tensor: Operand, dtype: DataType, centred: bool) -> Local:
    """One tile column of statistics for each row: sum(x^2), and sum(x) for the centred form.

    The remaining columns of each tile are 0. Gathered along the last dim they make up the statistics
    of the whole row, which the post step divides by the number of elements. The kernels that read shards
    make means of the sums, and have that of x before that of x^2.
    """
    are_means = input_tensor.spec.memory_config.is_sharded()

    def compute(x: torch.Tensor, r: torch.Tensor | None) -> torch.Tensor:
        x = x if r is None else x + r
        parts = [x.square().sum(-1, keepdim=True)] + ([x.sum(-1, keepdim=True)] if centred else [])
        if are_means:
            parts = [part / x.shape[-1] for part in reversed(parts)]
        tiles = [torch.nn.functional.pad(part, (0, TILE_SIZE - 1)) for part in parts]
        return torch.cat(tiles, -1)

    return Local(compute, dtypes=(dtype,))


def _apply_statistics(
    op: str,
    input_tensor: Operand,
    stats: Operand,
    weight: Operand | None,
    bias: Operand | None,
    epsilon: float,
    centred: bool,
) -> Local:
    affine = _affine(op, input_tensor, weight, bias)
    columns = TILE_SIZE * (2 if centred else 1)
    if stats.rank != input_tensor.rank or stats.shape[-1] % columns:
        raise MeshError(
            f"{op}: stats {list(stats.shape)} must hold {columns} columns for each device that took part, as "
            f"{op.replace('post', 'pre')} makes them and an all_gather along the last dim joins them."
        )
    devices = stats.shape[-1] // columns
    are_means = input_tensor.spec.memory_config.is_sharded()
    total = devices if are_means else input_tensor.shape[-1] * devices

    def compute(x: torch.Tensor, s: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        tiles = s.reshape(*s.shape[:-1], devices, -1, TILE_SIZE)[..., 0].sum(-2) / total
        tiles = tiles.flip(-1) if are_means else tiles
        squares = tiles[..., :1]
        mean = tiles[..., 1:2] if centred else torch.zeros_like(squares)
        return affine((x - mean) * torch.rsqrt(squares - mean.square() + epsilon), w, b)

    return Local(compute)


@placed("Split as the operand is.")
@rules.labelled(dim_labels.unlabelled)
def _statistics_rule(at: rules.Situation) -> rules.Placement:
    """The statistics are whole, so a split last dim stays split; weights split alike."""
    rules.refuse_partial(at)
    last = len(at.out_shape) - 1
    if isinstance(at.words[1], rules.Shard) and at.words[1].dim == last:
        return rules.LOCAL  # not gathered: each device would use its own
    width = at.out_shape[-1]
    weights = (_row_slice(word, shape, last, width) for word, shape in zip(at.words[2:], at.shapes[2:], strict=True))
    words = (*at.words[:2], *weights)
    if rules.LOCAL in words:
        return rules.LOCAL
    shapes = (at.out_shape, *(None if word is None else at.out_shape for word in words[1:]))
    return rules.elementwise(rules.Situation(words, shapes, at.out_shapes))


def _row_slice(
    word: rules.Placement | None, shape: tuple[int, ...] | None, last: int, width: int
) -> rules.Placement | None:
    """The word of a weight or bias, whatever its form, as that of a row along dim `last`; padded it is no slice."""
    if not isinstance(word, rules.Shard) or shape is None:
        return word
    if math.prod(shape) != width:
        return rules.LOCAL
    counts_elements = word.size is None or math.prod(shape[word.dim + 1 :]) == 1
    slices_the_row = math.prod(shape[: word.dim]) == 1 and counts_elements
    return word.at(last) if slices_the_row else rules.LOCAL


@cache
def _added_by_the_norm() -> Operation:
    """add_, as a part of another program."""
    return Operation(replace(OPERATIONS["add_"].definition, is_part=True))


class _Statistics(Operation):
    """The kernels that read shards write input and residual, added, over the input."""

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        given, residual = args[0] if args else kwargs.get("input_tensor"), kwargs.get("residual_input_tensor")
        if isinstance(given, Tensor) and isinstance(residual, Tensor) and given.memory_config().is_sharded():
            _added_by_the_norm()(given, residual)
            kwargs = {name: value for name, value in kwargs.items() if name != "residual_input_tensor"}
            call = None
        return super().invoke(args, kwargs, call)


def _register_distributed(norm: str, centred: bool) -> None:
    """The two halves of a norm over a split row: statistics before an all_gather, the norm after it."""

    _, of_before, of_after = _REFERENCES[centred]

    @with_reference(of_before)
    def before(
        input_tensor: Operand,
        *,
        dtype: DataType = DataType.BFLOAT16,
        residual_input_tensor: Operand | None = None,
    ) -> Local:
        return _statistics(input_tensor, dtype, centred)

    @with_reference(of_after)
    def after(
        input_tensor: Operand,
        stats: Operand,
        *,
        epsilon: float = 1e-12,
        weight: Operand | None = None,
        bias: Operand | None = None,
    ) -> Local:
        name = f"{norm}_post_all_gather"
        return _apply_statistics(name, input_tensor, stats, weight, bias, epsilon, centred)

    sums = "sum(x^2) and sum(x), each in column 0 of a tile" if centred else "sum(x^2) in column 0 of a tile"
    before.__doc__ = (
        f"This device's share of the statistics of {norm}: {sums}; of a sharded tensor means, that of x first. A "
        "residual is added to a sharded tensor in place."
    )
    after.__doc__ = f"{norm} of a row that is split over devices, from the gathered statistics."
    tuning = f"{_TUNING} use_2d_core_grid recip_tensor fast_and_approximate_mode"
    operation(
        f"{norm}_pre_all_gather",
        kind=Kind.STATISTICS,
        rule=_share_rule,
        native="LayerNormPreAllGatherDeviceOperation",
        cost=flops_per_element(2),
        controls="memory_config",
        tuning=tuning,
        operation_class=_Statistics,
    )(before)
    operation(
        f"{norm}_post_all_gather",
        same_as=norm,
        native="LayerNormPostAllGatherDeviceOperation",
        kind=Kind.NORM,
        rule=_statistics_rule,
        part_work=part_work.UNNOTICED,
        statistics=TILE_SIZE * (2 if centred else 1),
        cost=flops_per_element(4),
        controls="memory_config dtype",
        tuning=tuning,
        reads="stats",
    )(after)


_register_distributed("rms_norm", centred=False)
_register_distributed("layer_norm", centred=True)


# -- norms as diffusion transformers (DiT) call them: the values are those of rms_norm and layer_norm


_FUSED = "experimental.dit_rms_norm_unary_fused"
_BEFORE = "experimental.dit_layernorm_pre_allgather"
_AFTER = "experimental.dit_layernorm_post_allgather"


def _definition(name: str) -> Callable[..., Local]:
    return OPERATIONS[name].definition.define


@operation(
    _FUSED,
    kind=Kind.NORM,
    rule=_norm_rule,
    cost=flops_per_element(8),
    controls="memory_config",
    floats_only=True,
    tuning="program_config compute_kernel_config",
)
def dit_rms_norm_unary_fused(
    input_tensor: Operand,
    epsilon: float = 1e-5,
    weight: Operand | None = None,
    bias: Operand | None = None,
    residual_input_tensor: Operand | None = None,
    *,
    activation: UnaryWithParam | str | None = None,
) -> Local:
    """rms_norm, then an activation of the result."""
    local = rms_norm.definition.define(
        input_tensor,
        epsilon=epsilon,
        weight=weight,
        bias=bias,
        residual_input_tensor=residual_input_tensor,
    )
    if activation is None:
        return local
    function = activation_function(activation, _FUSED)
    return replace(local, compute=lambda *operands: function(local.compute(*operands).float()))


@operation(
    _BEFORE,
    kind=Kind.STATISTICS,
    cost=flops_per_element(2),
    controls="memory_config",
    tuning="compute_kernel_config",
)
def dit_layernorm_pre_allgather(
    input_tensor: Operand, recip_tensor: Operand, *, dtype: DataType = DataType.BFLOAT16
) -> Local:
    """This device's share of the statistics of a layer norm, as layer_norm_pre_all_gather has them.

    `recip_tensor` only helps the chip to add them up; what TT-NN's two columns hold is not known.
    """
    local = _definition("layer_norm_pre_all_gather")(input_tensor, dtype=dtype)

    def compute(x: torch.Tensor, recip: torch.Tensor) -> Any:
        return local.compute(x, None)

    @rules.labelled(dim_labels.unlabelled)
    def rule(at: rules.Situation) -> rules.Placement:
        alone = at._replace(words=(at.word, None), shapes=(at.shape, None))
        return at.word if at.word is rules.REPLICATE else _share_rule(alone)

    return replace(local, compute=compute, rule=rule)


@operation(
    _AFTER,
    kind=Kind.NORM,
    rule=_statistics_rule,
    part_work=part_work.UNNOTICED,
    cost=flops_per_element(4),
    controls="memory_config dtype",
    tuning="compute_kernel_config",
    reads="stats",
)
def dit_layernorm_post_allgather(
    input_tensor: Operand,
    stats: Operand,
    *,
    epsilon: float = 1e-5,
    weight: Operand | None = None,
    bias: Operand | None = None,
) -> Local:
    """layer_norm of a row that is split over devices, from the gathered statistics."""
    define = _definition("layer_norm_post_all_gather")
    return define(input_tensor, stats, epsilon=epsilon, weight=weight, bias=bias)
