"""slice, slice_write, padded_slice and pad; the bounds of a slice are numbers or tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.arguments import refused
from softmesh.dispatch import part_work
from softmesh.dispatch.call_cache import Call
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Arguments, Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import BoundCall, Signature
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops import gradients
from softmesh.ops.golden import golden_data_movement as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import Layout
from softmesh.tensor.result_shards import cut_anew
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import from_device

_SPELLINGS = {"starts": "slice_start", "ends": "slice_end", "steps": "slice_step"}
_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data"}
_TUNING = "pad_value sub_core_grids"
_ABOUT_THE_SLICE = {"input_tensor", "memory_config", *_SPELLINGS.values()}


class Slice(Operation):
    """Bounds may be tensors: the same on all devices, or each device's own along `slice_dim`."""

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        named = {_SPELLINGS.get(name, name): value for name, value in kwargs.items()}
        given = {**dict(zip(self.definition.signature.names, args, strict=False)), **named}
        bounds = {name: given.get(name) for name in ("slice_start", "slice_end")}
        if not any(isinstance(bound, Tensor) for bound in bounds.values()):
            return given["input_tensor"].handed_on() if _takes_all(given) else super().invoke(args, kwargs, call)
        for name, bound in bounds.items():
            _check_bounds(name, bound)
        if given.get("slice_dim") is None and given.get("num_devices") is None:
            return super().invoke((), given | {name: _agreed(name, given[name]) for name in bounds}, None)
        steps = given.pop("slice_step", None)
        part = _slice_by_device.invoke((), given, None)
        if steps is None or all(step == 1 for step in steps):
            return part
        return self(part, [0] * len(part.shape), list(part.shape), steps)


def _takes_all(given: dict[str, Any]) -> bool:
    """Whether the slice is the tensor itself, where it is: TT-NN hands that back then."""
    whole, others = given.get("input_tensor"), given.keys() - _ABOUT_THE_SLICE
    if not isinstance(whole, Tensor) or others or given.get("memory_config") not in (None, whole.memory_config()):
        return False
    rank = len(whole.shape)
    bounds = [given.get(name) for name in ("slice_start", "slice_end", "slice_step")]
    found = [None if one is None else list(one) for one in bounds if one is None or isinstance(one, list | tuple)]
    if found not in ([[0] * rank, list(whole.shape), steps] for steps in (None, [1] * rank)):
        return False
    whole.check_allocated("slice")
    return True


def _check_bounds(name: str, bounds: object) -> None:
    if not isinstance(bounds, Tensor):
        raise refused("slice", f"{name} must be a ttnn.Tensor, as the other bound is")
    if len(bounds.shape) != 1:
        raise MeshError(
            f"slice: {name} must be a tensor of one dim, an entry for each dim of the input, got {list(bounds.shape)}."
        )


def _agreed(name: str, bounds: Tensor) -> list[int]:
    """What all devices say, read by the host."""
    pieces = (from_device(bounds) if bounds.device() else bounds).pieces()
    if bool((pieces != pieces[:1]).any()):
        raise MeshError(
            f"slice: {name} differs from device to device. Say along which dim each is to cut its own part "
            "(slice_dim=..., num_devices=...), or use ttnn.mesh_partition."
        )
    return [int(bound) for bound in pieces[0].tolist()]


def _own_part(
    input_tensor: Operand, slice_start: Operand, slice_end: Operand, *, slice_dim: int, num_devices: int
) -> Local:
    """Each device's part of `slice_dim`, one of `num_devices` equal ones, from the start that lies on it."""
    d = input_tensor.dim(slice_dim, "slice_dim")
    n, rank = input_tensor.shape[d], input_tensor.rank
    if num_devices < 1 or n % num_devices:
        raise MeshError(f"slice: {num_devices} devices cannot share the {n} elements of dim {slice_dim} evenly.")
    if slice_start.shape != (rank,) or slice_end.shape != (rank,):
        raise MeshError(
            f"slice: bounds {list(slice_start.shape)} and {list(slice_end.shape)} must have an entry for each of "
            f"the {rank} dims of {list(input_tensor.shape)}."
        )
    part = n // num_devices

    def compute(x: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        first, lead = starts[..., d].long(), x.dim() - rank
        if bool(((first < 0) | (ends[..., d].long() - first != part) | (first + part > n)).any()):
            raise MeshError(
                f"slice: from {first.flatten().tolist()} to {ends[..., d].flatten().tolist()} in dim {slice_dim} are "
                f"not parts of {part}, as {num_devices} devices that share {n} elements have."
            )
        at = first.unsqueeze(-1) + torch.arange(part, device=x.device)
        at = at.reshape(*at.shape[:lead], *(1,) * d, part, *(1,) * (rank - d - 1))
        return torch.take_along_dim(x, at, d - rank)

    @rules.labelled(dim_labels.moved(lambda dim: None if dim == d else dim))
    def rule(at: rules.Situation) -> rules.Placement:
        if at.words[1] is not rules.REPLICATE or at.words[2] is not rules.REPLICATE:
            rules.refuse_partial(at)
            return rules.LOCAL
        return rules.resizing([d])(rules.Situation(at.words[:1], at.shapes[:1], at.out_shapes))

    return Local(compute, rule)


_slice_by_device = Operation(
    Definition(
        "slice",
        Kind.MOVEMENT,
        _own_part,
        Signature("slice", _own_part, ["memory_config", "output_tensor", "queue_id"], _TUNING.split()),
        **_OPTIONS,
    )
)


@operation(
    "slice",
    kind=Kind.MOVEMENT,
    rule=rules.resizing,
    gradient=gradients.of_slice,
    part_work=part_work.CUTS_PLACES,
    **_OPTIONS,
    controls="memory_config output_tensor queue_id",
    tuning=_TUNING,
    on_host=True,
    cuts_columns=True,
    operation_class=Slice,
    argument_aliases=_SPELLINGS,
    forms=("input_tensor slice_start:input_tensor slice_end:input_tensor",),
)
@with_reference(golden.slice_)
def slice_(
    input_tensor: Operand,
    slice_start: Sequence[int],
    slice_end: Sequence[int],
    slice_step: Sequence[int] | None = None,
    *,
    slice_dim: int | None = None,
    num_devices: int | None = None,
) -> Local:
    """From `slice_start` up to, not including, `slice_end` in each dim; negative bounds count from the end.

    Bounds may be tensors of one dim. With `slice_dim` and `num_devices` each device cuts the part of that dim that
    starts where its own bounds say.

    >>> y = ttnn.slice(split(8, 64, dim=1), (0, 0), (4, 16))
    >>> y.shape, ttnn.placements(y)
    (Shape([4, 16]), (Replicate, Shard(1)))
    """
    if slice_dim is not None or num_devices is not None:
        raise refused("slice", "slice_dim and num_devices go with bounds that are tensors")
    rank = input_tensor.rank
    steps = [1] * rank if slice_step is None else list(slice_step)
    if not len(slice_start) == len(slice_end) == len(steps) == rank:
        raise MeshError(
            f"slice: start {list(slice_start)}, end {list(slice_end)} and step {steps} must each have one entry "
            f"for each of the {rank} dims of {list(input_tensor.shape)}."
        )
    cuts: list[slice] = []
    touched: list[int] = []
    for d, (n, start, end, step) in enumerate(zip(input_tensor.shape, slice_start, slice_end, steps, strict=True)):
        if step < 1:
            raise MeshError(f"slice: step {step} in dim {d} must be positive.")
        low, high, _ = slice(start, end, step).indices(n)
        if high < low or (end > n and start >= 0):
            raise MeshError(f"slice: [{start}:{end}] in dim {d} does not lie within its {n} elements.")
        cuts.append(slice(low, high, step))
        if (low, high, step) != (0, n, 1):
            touched.append(d)
    index = (..., *cuts)
    shape = [len(range(*cut.indices(n))) for cut, n in zip(cuts, input_tensor.shape, strict=True)]
    place = cut_anew(input_tensor.spec, shape, input_tensor.layout) if touched else None
    return Local(lambda x: x[index], rules.resizing(touched), memory_config=place)


# -- windows by bounds in each dim: cut out into a memory config, or written to ----------------------


def _window(op: str, shape: Sequence[int], *bounds: Sequence[int]) -> tuple[slice, ...]:
    starts, ends, steps = bounds
    if not len(starts) == len(ends) == len(steps) == len(shape):
        raise MeshError(f"{op}: start, end and step must each have one entry for each dim of {list(shape)}.")
    for n, start, end, step in zip(shape, starts, ends, steps, strict=True):
        if not 0 <= start <= end <= n or step < 1:
            raise MeshError(f"{op}: [{start}:{end}:{step}] does not lie within {n} elements.")
    return tuple(slice(*bound) for bound in zip(starts, ends, steps, strict=True))


@operation(
    "experimental.slice_write",
    kind=Kind.MOVEMENT,
    cost=moves_bytes,
    precision="data",
    controls="",
    patches="output_tensor",
    places="start",
)
def slice_write(
    input_tensor: Operand,
    output_tensor: Operand,
    start: Sequence[int],
    end: Sequence[int],
    step: Sequence[int],
) -> Local:
    """Write input into output[start:end:step]; returns the output."""
    window = _window("experimental.slice_write", output_tensor.shape, start, end, step)
    sizes = tuple(len(range(cut.start, cut.stop, cut.step)) for cut in window)
    if input_tensor.shape != sizes:
        raise MeshError(
            f"experimental.slice_write: input_tensor {list(input_tensor.shape)} must be {list(sizes)}, the size of the "
            f"slice of output_tensor {list(output_tensor.shape)}."
        )
    dtype = output_tensor.dtype
    touched = [d for d, (size, n) in enumerate(zip(sizes, output_tensor.shape, strict=True)) if size != n]

    inside: tuple[Any, ...] = (..., *window)

    def compute(values: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        target[inside] = round_to(values, dtype)
        return target

    @rules.labelled(
        dim_labels.table({dim: [(0, dim), (1, dim)] for dim in range(output_tensor.rank) if dim not in touched})
    )
    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        words = {word for word in at.words if word is not rules.REPLICATE}
        word = words.pop()
        return word if not words and isinstance(word, rules.Shard) and word.dim not in touched else rules.LOCAL

    return Local(compute, rule)


@operation(
    "experimental.padded_slice",
    kind=Kind.MOVEMENT,
    rule=rules.resizing,
    part_work=part_work.CUTS_PLACES,
    cost=moves_bytes,
    precision="data",
    controls="memory_config output_tensor",
    tuning="pad_value",
)
def padded_slice(
    input_tensor: Operand,
    padded_slice_start: Sequence[int],
    padded_slice_end: Sequence[int],
    padded_slice_step: Sequence[int] | None = None,
) -> Local:
    """input[start:end:step]; the padding up to whole shards of its memory config is not part of the values."""
    steps = [1] * input_tensor.rank if padded_slice_step is None else padded_slice_step
    shape = input_tensor.shape
    window = _window("experimental.padded_slice", shape, padded_slice_start, padded_slice_end, steps)
    whole = [slice(0, n, 1) for n in shape]
    touched = [d for d, (cut, all_of_it) in enumerate(zip(window, whole, strict=True)) if cut != all_of_it]
    inside = (..., *window)
    return Local(lambda x: x[inside], rules.resizing(touched))


# -- pad: by widths in each dim, or by the padded shape ----------------------------------------------


_PAD_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data", "on_host": True}


def _both_forms(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """(padding, value), and (output_padded_shape, input_tensor_start, value)."""
    starts = args[2] if len(args) > 2 else kwargs.get("input_tensor_start")
    if "output_padded_shape" in kwargs or isinstance(starts, Sequence):
        names = {"output_padded_shape": "padding", "input_tensor_start": "value", "value": "fill"}
        kwargs = {names.get(name, name): value for name, value in kwargs.items()}
    return args, kwargs


def _check_pad_cores(definition: Definition, call: BoundCall) -> None:
    named = call.named
    if named["sub_core_grids"] is None:
        return
    if named["use_multicore"] is False:
        raise MeshError("ttnn.pad: sub_core_grids goes with use_multicore=True: one core needs no choice of cores.")
    if call.tensors[0].memory_config().is_sharded():
        raise MeshError("ttnn.pad: sub_core_grids goes with interleaved inputs: shards are padded on their own cores.")


@operation(
    kind=Kind.MOVEMENT,
    part_work=part_work.PADS,
    **_PAD_OPTIONS,
    controls="memory_config",
    tuning="use_multicore sub_core_grids",
    check=_check_pad_cores,
    rearrange=_both_forms,
    forms=("input_tensor output_padded_shape:padding input_tensor_start:padding value:fill?",),
)
@placed("Splits of dims that it leaves alone stay; split along a padded dim, it is Local.")
@with_reference(golden.pad)
def pad(
    input_tensor: Operand,
    padding: Sequence[Sequence[int]] | Sequence[int],
    value: float | Sequence[int] = 0.0,
    fill: float | None = None,
) -> Local:
    """`padding` is (before, after) for each dim; or: output shape, start and value as TT-NN's other form.

    >>> y = ttnn.pad(split(8, 64, dim=1), ((0, 24), (0, 0)), 0.0)
    >>> y.shape, ttnn.placements(y)
    (Shape([32, 16]), (Replicate, Shard(1)))
    """
    filler = (fill or 0.0) if isinstance(value, Sequence) else value
    pairs = _pad_widths(input_tensor.shape, padding, value if isinstance(value, Sequence) else None)
    if input_tensor.layout is Layout.TILE and not input_tensor.on_host and any(before for before, _ in pairs):
        raise MeshError(
            "ttnn.pad: on device tile padding does not support front padding. Pad in ROW_MAJOR layout, or behind the "
            f"values: got padding={list(padding)} for {list(input_tensor.shape)}."
        )
    reverse = [n for pair in reversed(pairs) for n in pair]
    touched = [d for d, pair in enumerate(pairs) if pair != (0, 0)]

    @rules.labelled(
        dim_labels.moved(lambda dim: None if dim in touched else dim, passes="" if filler else dim_labels.FIRST)
    )
    def rule(at: rules.Situation) -> rules.Placement:
        if isinstance(at.word, rules.Partial) and filler:
            raise rules.UsesPartial(0)
        return rules.resizing(touched)(at)

    return Local(lambda x: F.pad(x, reverse, value=filler), rule)


def _pad_widths(
    shape: tuple[int, ...], padding: Sequence[Sequence[int]] | Sequence[int], starts: Sequence[int] | None
) -> list[tuple[int, ...]]:
    """(before, after) for each dim: given so, or by the padded shape and where the tensor starts in it."""
    pairs = [tuple(entry) for entry in padding if not isinstance(entry, int)]
    wanted = [entry for entry in padding if isinstance(entry, int)]
    if starts is not None and len(starts) == len(wanted) == len(shape):
        pairs = [(start, n - start - m) for start, n, m in zip(starts, wanted, shape, strict=True)]
    elif wanted or starts is not None:
        pairs = []
    widths = [(0, 0)] * (len(shape) - len(pairs)) + pairs
    if len(widths) != len(shape) or any(len(pair) != 2 or min(pair) < 0 for pair in widths) or (padding and not pairs):
        raise MeshError(
            f"pad: padding={list(padding)} does not fit a tensor of shape {list(shape)}: give (before, after) for "
            "each of its last dims, or the padded shape and the start of the tensor in it."
        )
    return widths
