"""A plan: how one op runs on operands of given specs and distributions. Built once, run many times.

Building checks arguments, brings the operands' mesh dims together, asks the op's definition for the
local computation and its rule for the placements, and learns from the first run what the result looks
like. A later call with the same specs is a dictionary look-up and the torch calls themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.hardware.memory_config import MemoryConfig, ShardSpec
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import (
    Distribution,
    common_coordinates,
    common_refinement,
    distribution,
    flatten,
    refine,
)
from softmesh.placement.pieces import flattened, regrid
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.placement.rules import STATED, Rule, Situation, UsesPartial
from softmesh.placement.tensor_topology import TensorTopology
from softmesh.runtime.commands import Cost
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import FACTS, DataType, Layout
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import alias

Adapt = Callable[[torch.Tensor], torch.Tensor] | None
Shards = Callable[[CoreCoord], Sequence[ShardSpec | None]]  # on a chip with such a grid of cores
CostRule = Callable[[Sequence[TensorSpec], Sequence[TensorSpec]], Cost]


@dataclass(frozen=True)
class Output:
    spec: TensorSpec
    dist: Distribution
    topology: TensorTopology | None = None  # where TT-NN labels the result otherwise than it is placed


@dataclass(frozen=True)
class Local:
    """What an op's definition returns for one call: the local computation, and what comes out of it.

    `dtypes` and `layouts` are given where an output differs from the first tensor operand.
    """

    compute: Callable[..., Any]
    rule: Rule = STATED  # by the op's definition
    dtypes: tuple[DataType, ...] | None = None
    layouts: tuple[Layout, ...] | None = None
    memory_config: MemoryConfig | None = None
    memory_on: Callable[[CoreCoord], MemoryConfig] | None = None  # where it depends on the chip's grid of cores
    inherits: tuple[TensorSpec, ...] | None = None  # whose memory each result takes, where not the first operand's
    shards: Shards | None = None  # how TT-NN cuts each result whose memory config asks for shards of no shape
    fills_target: bool = False  # an output tensor keeps its own shape, and is filled in order
    broadcast_rank: int = 0  # operands of lower rank get 1s in front of their local shape
    cost: CostRule | None = None  # where it depends on this call's arguments
    keeps_memory: bool = False  # TT-NN hands the operand's memory on, where its pages can stay as they are
    pad_value: float = 0.0  # what the result's padding holds
    padded_shape: tuple[int, ...] | None = None  # where the padding is more than what whole tiles take
    computed_as: Callable[[DataType], Callable[..., Any]] | None = None  # where it depends on the result's dtype
    is_seamless: bool = False  # a device's part gives its part of the whole: nothing is made of what lies on two
    # for operands that number places, such as page tables, those in which these are
    places_of: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    # The results before a dtype cuts them, of operands in float64 or int64; for sums, products and casts.
    exact: Callable[..., torch.Tensor] | None = None


class Derivation(Protocol):
    """How gradients pass an op that reads devices of other processes."""

    def gradients(
        self, adapts: Sequence[Adapt], data: Sequence[Any], gradients: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Of each operand that is a tensor, on the devices of this process."""
        ...


class ValueDoubt(NamedTuple):
    """A doubt that holds for calls with such values only; `holds` is given the call's data."""

    text: str
    holds: Callable[[Sequence[Any]], bool]


@dataclass(eq=False)
class Plan:
    """`adapts[i]` prepares operand i (None: as it is); `finishes` round the results."""

    compute: Callable[..., Any]
    adapts: tuple[Adapt, ...]
    outputs: tuple[Output, ...] = ()
    finishes: tuple[Adapt, ...] = ()
    container: type | None = None  # list or tuple, for ops of several results
    problem: str | None = None  # of a value that is only a part of what it is taken for
    remarks: tuple[str, ...] = ()  # whatever else whoever calls it is to be told
    doubts: tuple[str, ...] = ()  # and what under SOFTMESH_STRICT=1 only
    open_doubts: tuple[str, ...] = ()  # and only if the result is not added up next
    doubts_of_values: tuple[ValueDoubt, ...] = ()  # and only if the values of a call are such
    unexamined: tuple[Local, list[Distribution]] | None = None  # while nobody has looked for doubts
    is_share: bool = False  # the problem is none where each device adds its share
    is_bias: bool = False  # and what it adds looks like a bias
    cost: CostRule | None = None
    exact: Callable[..., torch.Tensor] | None = None  # see Local
    is_view: bool = False  # the result lies in the first operand's memory
    program: object = None  # what the chips would compile: the same for operands that are placed otherwise
    derivation: Derivation | None = None  # None: this process has all that it reads
    operand_dists: tuple[Distribution | None, ...] = ()
    wide_adapts: tuple[Adapt, ...] | None = None  # for operands that have a piece of their own on each device

    def __post_init__(self) -> None:
        self.derived_natively: dict[tuple[bool, ...], bool] = {}  # by which operands ask for a gradient
        self.needs_adapting = any(adapt is not None for adapt in self.adapts)

    def compute_only(self, values: Sequence[Any]) -> Any:
        if self.needs_adapting:
            values = [v if f is None else f(v) for f, v in zip(self.adapts, values, strict=True)]
        return self.compute(*values)

    def finish(self, results: Any) -> tuple[torch.Tensor, ...]:
        if isinstance(results, torch.Tensor):
            rounding = self.finishes[0]
            return (results if rounding is None else rounding(results),)
        return tuple(r if f is None else f(r) for f, r in zip(self.finishes, results, strict=True))

    def run(self, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        return self.finish(self.compute_only(values))

    def direct(self) -> Callable[..., torch.Tensor] | None:
        """All of it in one function of the operands, where one result comes of it."""
        if self.container is not None or len(self.finishes) != 1:
            return None
        found: Callable[..., torch.Tensor] = getattr(self.compute, "direct", self.compute)
        if self.needs_adapting:
            found = _after(self.adapts, found)
        (rounding,) = self.finishes
        return found if rounding is None else lambda *values: rounding(found(*values))


def _after(adapts: tuple[Adapt, ...], compute: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Compose the adapters and the computation; the forms that most calls have do without a loop."""
    first, *rest = adapts
    if first is not None and not any(rest):
        return lambda value, *others: compute(first(value), *others)
    if first is None and rest and (second := rest[0]) is not None and not any(rest[1:]):
        return lambda value, other, *others: compute(value, second(other), *others)
    return lambda *values: compute(
        *(value if adapt is None else adapt(value) for adapt, value in zip(adapts, values, strict=True))
    )


def bring_together(dists: Sequence[Distribution]) -> tuple[list[Distribution], list[Adapt]]:
    """The operands' distributions over one common grid, and how to put each one's data there."""
    first = dists[0]
    if all(d.grid == first.grid and d.coords == first.coords and d.mesh == first.mesh for d in dists):
        return list(dists), [None] * len(dists)
    _check_one_mesh(dists)
    if all(d.coordinates() == first.coordinates() for d in dists):
        fine: tuple[int, ...] | None = first.grid
        for dist in dists[1:]:
            fine = common_refinement(fine, dist.grid) if fine is not None else None
        if fine is not None:
            return [refine(d, fine) for d in dists], [_regridder(d, fine) for d in dists]
    coords = common_coordinates(list(dists))
    together = [flatten(d, coords) for d in dists]
    return together, [_picker(d, t) for d, t in zip(dists, together, strict=True)]


def _check_one_mesh(dists: Sequence[Distribution]) -> None:
    shapes = [MeshShape(mesh) for mesh in dict.fromkeys(d.mesh for d in dists)]
    if len(shapes) > 1:
        raise MeshError(
            f"Operands were made under different shapes of their mesh: {' and '.join(map(repr, shapes))}. "
            "Reshape a mesh before making tensors on it, or make the older ones again under its present shape."
        )


def _regridder(dist: Distribution, fine: tuple[int, ...]) -> Adapt:
    return None if dist.grid == fine else lambda data: regrid(data, dist, fine)


def _picker(dist: Distribution, flat: Distribution) -> Adapt:
    coords = flat.coordinates()
    return lambda data: flattened(data, dist, coords)


def chain(*steps: Adapt) -> Adapt:
    """The steps one after the other; None where there is nothing to do."""
    real = [step for step in steps if step is not None]
    if not real:
        return None
    if len(real) == 1:
        return real[0]

    def run(data: torch.Tensor) -> torch.Tensor:
        for step in real:
            data = step(data)
        return data

    return run


def lift_to_float32(data: torch.Tensor) -> torch.Tensor:
    return data.float()


def round_to_bfloat16(data: torch.Tensor) -> torch.Tensor:
    return data.bfloat16()  # `to` takes some microseconds more


def lifts(dtypes: Sequence[DataType], precision: str) -> list[Adapt]:
    """How the values of each operand are widened before computing.

    `native` ops are single torch kernels that compute bfloat16 in fp32 inside; all others get fp32, and so do block
    floats: they are held in bfloat16, and results are to be rounded to blocks alone.
    """
    storages = [FACTS[dtype].storage for dtype in dtypes]
    is_one = len(set(storages)) == 1 and not any(FACTS[dtype].is_block for dtype in dtypes)
    if precision == "data" or (precision == "native" and is_one):
        return [None] * len(storages)
    if any(dtype.is_floating_point for dtype in storages):
        return [None if dtype is torch.float32 else lift_to_float32 for dtype in storages]
    widest = max(storages, key=lambda dtype: dtype.itemsize)
    return [None if dtype is widest else (lambda data: data.to(widest)) for dtype in storages]


def rank_padder(lead: int, missing: int) -> Adapt:
    """Insert the 1s that broadcasting would put in front of a local shape, behind the mesh dims."""
    if not missing:
        return None
    ones = (1,) * missing
    return lambda data: data.reshape(*data.shape[:lead], *ones, *data.shape[lead:])


def finisher(result: torch.Tensor, spec: TensorSpec, inputs: Sequence[Any]) -> Adapt:
    """Rounding to the output's dtype; None where the result already is of it."""
    dtype = spec.dtype
    if result.dtype is FACTS[dtype].storage and FACTS[dtype].exact_storage:
        return alias if any(result is value for value in inputs) else None
    if dtype is DataType.BFLOAT16:
        return round_to_bfloat16
    if not len(spec.shape):  # a block of one: keep it apart from the mesh dims in front
        return lambda data: round_to(data.unsqueeze(-1), dtype).squeeze(-1)
    return lambda data: round_to(data, dtype)


def stored_as_told(result: torch.Tensor, dist: Distribution) -> Adapt:
    """One copy along axes on which a rule knows all devices to agree; one for each device where it says otherwise.

    Of several results each may be made of some of the operands only, and the rule speaks of all.
    """
    extents = dist.extents
    axes = [axis for axis, n in enumerate(extents) if n == 1 and result.shape[axis] > 1]
    is_spread = any(n > result.shape[axis] for axis, n in enumerate(extents))
    if not axes and not is_spread:
        return None

    def store(data: torch.Tensor) -> torch.Tensor:
        for axis in axes:
            data = data.narrow(axis, 0, 1)
        return data.expand(*extents, *data.shape[len(extents) :]).contiguous() if is_spread else data

    return store


class Misuse(NamedTuple):
    """Of a Partial: which operand it is, and along which axis of the mesh. The rest as in UsesPartial."""

    operand: int
    axis: int
    word: Placement
    is_share: bool = False
    is_bias: bool = False


def result_distributions(
    rule: Rule,
    dists: Sequence[Distribution | None],
    shapes: Sequence[tuple[int, ...] | None],
    out_shapes: Sequence[tuple[int, ...]],
) -> tuple[list[Distribution], list[Misuse]]:
    """The distribution of each output, and each Partial misused on the way."""
    real = [d for d in dists if d is not None]
    grid = real[0].grid
    words: list[list[Placement]] = [[] for _ in out_shapes]
    misused: list[Misuse] = []
    for axis in range(len(grid)):
        at = tuple(None if d is None else d.placements[axis] for d in dists)
        try:
            answer = _axis_words(rule, Situation(at, tuple(shapes), tuple(out_shapes)))
        except UsesPartial as use:
            word = Partial("sum") if use.index == UsesPartial.OWN_PRODUCT else at[use.index]
            assert word is not None
            misused.append(Misuse(use.index, axis, word, use.is_share, use.is_bias))
            answer = [word if use.is_bias else LOCAL] * len(out_shapes)
        for output, word in zip(words, answer, strict=True):
            output.append(word)
    label = _label(real)
    placed = [_untangled(output, real) for output in words]
    first = real[0]
    found = [distribution(first.mesh, grid, output, first.coords, label, first.spread) for output in placed]
    return found, misused


def _axis_words(rule: Rule, at: Situation) -> list[Placement]:
    present = {word for word in at.words if word is not None}
    if LOCAL in present:
        return [LOCAL] * len(at.out_shapes)
    if present == {REPLICATE}:
        return [REPLICATE] * len(at.out_shapes)
    answer = rule(at)
    return [answer] * len(at.out_shapes) if isinstance(answer, Placement) else list(answer)


def _untangled(words: list[Placement], operands: Sequence[Distribution]) -> tuple[Placement, ...]:
    """The words of a result, Local on axes that split one dim in ways that do not nest."""
    tangled: set[int] = set()
    for dim in {word.dim for word in words if isinstance(word, Shard)}:
        axes = [axis for axis, word in enumerate(words) if isinstance(word, Shard) and word.dim == dim]
        if len(axes) > 1 and not (len({words[axis] for axis in axes}) == 1 and _nest(axes, operands)):
            tangled.update(axes)
    return tuple(LOCAL if axis in tangled else word for axis, word in enumerate(words))


def _nest(axes: Sequence[int], operands: Sequence[Distribution]) -> bool:
    """Whether the pieces along `axes`, first axis outermost, are in order slices of one dim.

    Two dims of an operand merge into one only where the outer dim is split along the earlier axis, and
    evenly. Operands split along different axes are different slices: a + b, with a split down the rows
    of the mesh and b across its columns, is a sum on no device but those on the diagonal.
    """
    split: list[set[int]] = []
    for operand in operands:
        shards = [(axis, word) for axis in axes if isinstance(word := operand.placements[axis], Shard)]
        dims = [word.dim for _, word in shards]
        is_merge = len(set(dims)) > 1
        if dims != sorted(dims) or (is_merge and any(word.size is not None for _, word in shards)):
            return False
        split.append({axis for axis, _ in shards})
    split = sorted(filter(None, split), key=len)
    return all(fewer <= more for fewer, more in pairwise(split))


def _label(dists: Sequence[Distribution]) -> tuple[int, ...]:
    """TT-NN's distribution shape of a result: the sharded inputs of the highest rank decide."""
    sharded = [d for d in dists if any(isinstance(word, Shard) for word in d.placements)]
    if not sharded:
        return dists[0].label
    rank = max(len(d.label) for d in sharded)
    labels = [d.label for d in sharded if len(d.label) == rank]
    return tuple(max(extents) for extents in zip(*labels, strict=True))


def describe_partial(
    op: str, argument: str | None, word: Placement, axis: int, devices: int, is_share: bool = False
) -> str:
    """`argument` is None where the op's own result, before its last step, is the partial sum."""
    held = f"still {word} over mesh axis {axis}: {devices} devices hold contributions that nobody has combined"
    if argument is None and is_share:
        return (
            f"{op}: the plain result is {held}, and each of them adds the whole bias: their sum has it {devices} "
            f"times, unless it was divided by {devices} before. Add it after ttnn.all_reduce(result, "
            f"cluster_axis={axis}).{settings.needed_line()}"
        )
    if argument is None:
        return (
            f"{op}: the plain result is {held}, and a bias, an activation or an integer dtype on each of them is "
            f"not one on the whole. Compute it plain, then ttnn.all_reduce(result, cluster_axis={axis}), then go on."
            f"{settings.needed_line()}"
        )
    share = f", unless what each of them adds was divided by {devices} before" if is_share else ""
    kind = word.op if isinstance(word, Partial) else "sum"
    also = f" or ttnn.reduce_scatter({argument}, dim, cluster_axis={axis})" if kind == "sum" else ""
    return (
        f"{op}: {argument} is {held}, and {op} of each is not a contribution to {op} of the whole{share}. "
        f"Missing before this: ttnn.all_reduce({argument}, cluster_axis={axis}){also}.{settings.needed_line()}"
    )


def check_broadcast(op: str, named_shapes: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    """The broadcast shape, or an error naming both operands and the dim."""
    rank = max(len(shape) for _, shape in named_shapes)
    out: list[int] = []
    for back in range(rank, 0, -1):
        sizes = [(name, shape[-back]) for name, shape in named_shapes if len(shape) >= back]
        extent = next((size for _, size in sizes if size != 1), 1)
        if any(size not in (1, extent) for _, size in sizes):
            each = ", ".join(f"{name} {list(shape)}" for name, shape in named_shapes)
            raise MeshError(
                f"{op}: Invalid subtile broadcast type: shapes do not broadcast: {each} differ at dim -{back} "
                f"({' against '.join(str(size) for _, size in sizes)}). These are the shapes on each device; "
                "reshape, repeat or shard one of them to fit."
            )
        out.append(extent)
    return tuple(out)
