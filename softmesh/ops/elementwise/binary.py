"""Binary element-wise ops with broadcasting (add, eq, div, where, prelu, outer); either operand may be a number."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from softmesh.diagnosis.undefined_memory import selected
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.dispatch.program_keys import elementwise_program
from softmesh.dispatch.signature import BoundCall
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.hardware import BcastOpDim, BcastOpMath, GeluVariant
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.native.gpu_kernels import gpu_gated
from softmesh.ops import gradients
from softmesh.ops.elementwise.activations import Activation, activations
from softmesh.ops.elementwise.dtype_policy import cast_beside_float, check_dtypes
from softmesh.ops.elementwise.unary import gelu_function
from softmesh.ops.golden import golden_composite as golden
from softmesh.ops.golden import golden_elementwise
from softmesh.ops.golden.golden_functions import InOrder, rounds_once, with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.dtype import DataType, facts
from softmesh.tensor.result_shards import over_most_cores
from softmesh.tensor.tensor import Tensor

BinaryFunction = Callable[[Any, Any], torch.Tensor]
_CONTROLS = "memory_config dtype output_tensor queue_id"
_WITHOUT_DTYPE = "memory_config output_tensor queue_id"
_CORES = "sub_core_grids sub_device_id"
_WITHOUT_CORES = "fast_and_approximate_mode use_legacy"
_TUNING = f"fast_and_approximate_mode {_CORES} use_legacy"


class Binary(NamedTuple):
    function: BinaryFunction
    rule: rules.Rule = rules.elementwise
    steps: int = 1
    aliases: tuple[str, ...] = ()
    integer: bool = False  # of whole numbers only, as `dtype_policy` has it
    other: str | None = None  # what TT-NN calls the second where it is a number
    controls: str = _CONTROLS
    tuning: str = _TUNING
    is_plain: bool = False  # takes no activations
    kind: Kind = Kind.ELEMENTWISE
    reference: BinaryFunction | None = None  # None: torch's function of the same name
    gradient: gradients.Rule | None = None
    mirrored: str = ""  # of a number and a tensor


def _tensor(value: Any, like: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(value, dtype=like.dtype if like.is_floating_point() else None, device=like.device)


def _tensors(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> BinaryFunction:
    """For torch functions that take no number: make the number a tensor first."""
    return lambda a, b: function(_tensor(a, b), _tensor(b, a))


def _wide(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> BinaryFunction:
    """For what takes several torch calls: widen first, round once at the end."""
    return _tensors(lambda a, b: function(a.float(), b.float()))


def _right_shift_logical(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    bits = a.element_size() * 8
    return torch.bitwise_right_shift(a.long() & (2**bits - 1), b.long()).to(a.dtype)


def _right_shift(a: torch.Tensor, b: Any) -> torch.Tensor:
    """The chip shifts the bits of uint32 as those of int32: with copies of the first one from the left."""
    return (a.int() if a.dtype is torch.int64 else a) >> b


def _squared_difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Whole numbers stay whole: a float does not have all of them."""
    if not (a.is_floating_point() or b.is_floating_point()):
        return (a.long() - b.long()).square()
    return (a.float() - b.float()).square()


_ARITHMETIC = (rules.additive, rules.multiplicative)  # sums and products, which a wider dtype holds
BINARY: dict[str, Binary] = {
    "add": Binary(operator.add, rules.additive, gradient=gradients.of_sum, mirrored="add"),
    "subtract": Binary(
        operator.sub, rules.additive, aliases=("sub",), gradient=gradients.of_difference, mirrored="rsub"
    ),
    "multiply": Binary(
        operator.mul,
        rules.multiplicative,
        aliases=("mul",),
        gradient=gradients.of_elementwise_product,
        mirrored="multiply",
    ),
    "rsub": Binary(
        lambda a, b: b - a,
        rules.additive,
        reference=lambda a, b: b - a,
        other="input_b",
        tuning=_WITHOUT_CORES,
        gradient=gradients.of_reverse_difference,
        mirrored="subtract",
    ),
    "eq": Binary(_tensors(torch.eq), kind=Kind.COMPARISON, mirrored="eq"),
    "ne": Binary(_tensors(torch.ne), kind=Kind.COMPARISON, mirrored="ne"),
    "gt": Binary(_tensors(torch.gt), kind=Kind.COMPARISON, mirrored="lt"),
    "ge": Binary(_tensors(torch.ge), kind=Kind.COMPARISON, mirrored="le"),
    "lt": Binary(_tensors(torch.lt), kind=Kind.COMPARISON, mirrored="gt"),
    "le": Binary(_tensors(torch.le), kind=Kind.COMPARISON, mirrored="ge"),
    "logical_and": Binary(_tensors(torch.logical_and), kind=Kind.COMPARISON),
    "logical_or": Binary(_tensors(torch.logical_or), kind=Kind.COMPARISON),
    "logical_xor": Binary(_tensors(torch.logical_xor), kind=Kind.COMPARISON),
    "maximum": Binary(_tensors(torch.maximum), other="input_b", tuning=_WITHOUT_CORES, mirrored="maximum"),
    "minimum": Binary(_tensors(torch.minimum), other="input_b", tuning=_WITHOUT_CORES, mirrored="minimum"),
    "squared_difference": Binary(_tensors(_squared_difference), steps=2, reference=lambda a, b: (a - b) ** 2),
    "remainder": Binary(_tensors(torch.remainder), steps=4),
    "fmod": Binary(
        _tensors(torch.fmod), steps=4, other="scalar", controls="memory_config", tuning=_CORES, is_plain=True
    ),
    "atan2": Binary(_tensors(torch.atan2), steps=16, controls="memory_config", tuning="", is_plain=True),
    "hypot": Binary(_tensors(torch.hypot), steps=6, controls="memory_config", tuning="", is_plain=True),
    "logaddexp": Binary(
        _wide(torch.logaddexp), steps=20, reference=lambda a, b: torch.log(torch.exp(a) + torch.exp(b))
    ),
    "logaddexp2": Binary(
        _wide(torch.logaddexp2), steps=20, reference=lambda a, b: torch.log2(torch.exp2(a) + torch.exp2(b))
    ),
    "xlogy": Binary(_wide(torch.xlogy), steps=10),
    "ldexp": Binary(_wide(lambda a, b: a * torch.exp2(b)), steps=9, reference=lambda a, b: a * 2.0**b),
    "gcd": Binary(_tensors(torch.gcd), steps=32, integer=True, tuning=_WITHOUT_CORES),
    "lcm": Binary(_tensors(torch.lcm), steps=32, integer=True, tuning=_WITHOUT_CORES),
    "bitwise_and": Binary(operator.and_, integer=True, other="input_b", controls=_WITHOUT_DTYPE),
    "bitwise_or": Binary(operator.or_, integer=True, other="input_b", controls=_WITHOUT_DTYPE),
    "bitwise_xor": Binary(operator.xor, integer=True, other="input_b", controls=_WITHOUT_DTYPE),
    "bitwise_left_shift": Binary(operator.lshift, integer=True, other="input_b", controls=_WITHOUT_DTYPE),
    "bitwise_right_shift": Binary(_right_shift, integer=True, other="input_b", controls=_WITHOUT_DTYPE),
    "logical_left_shift": Binary(
        operator.lshift, integer=True, other="input_b", controls=_WITHOUT_DTYPE, reference=torch.bitwise_left_shift
    ),
    "logical_right_shift": Binary(
        _tensors(_right_shift_logical),
        integer=True,
        reference=lambda a, b: ((a.long() & 0xFFFFFFFF) >> b.long()).to(a.dtype),
    ),
}


def _widened(value: Any) -> Any:
    """Floats, and what is true or false, in fp32; whole numbers as they are, since a float does not have them all."""
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.dtype is torch.bool):
        return value
    return value.float()


def broadcast_rank(op: str, *values: object) -> int:
    return len(check_broadcast(op, [(v.name, v.shape) for v in values if isinstance(v, Operand)]))


def binary_local(
    op: str,
    entry: Binary,
    a: Value,
    b: Value,
    before_a: Sequence[Activation] = (),
    before_b: Sequence[Activation] = (),
    after: Sequence[Activation] = (),
) -> Local:
    check_dtypes(op, a, b)
    cast = cast_beside_float(op, a, b)
    dtypes = None if cast is None else (cast,)
    rank = broadcast_rank(op, a, b)
    if not (before_a or before_b or after):
        exact = entry.function if entry.rule in _ARITHMETIC else None
        return Local(entry.function, entry.rule, dtypes=dtypes, broadcast_rank=rank, exact=exact)
    first, second, last = (activations(several, op) for several in (before_a, before_b, after))

    is_gate = first is torch.nn.functional.silu and entry.function is operator.mul and second is None and last is None

    def compute(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if is_gate and isinstance(y, torch.Tensor) and x.is_cuda:
            found = gpu_gated(x, y)
            if found is not None:
                return found
        x = _widened(x) if first is None else first(x)
        result = entry.function(x, y if second is None else second(y))
        return result if last is None else last(_widened(result))

    rule = rules.elementwise
    if entry.rule is rules.multiplicative and last is None and None in (first, second):
        rule = rules.dividing if first is None else rules.scaling
    return Local(compute, rule, dtypes=dtypes, broadcast_rank=rank)


_EXAMPLE = """
>>> y = ttnn.{}(split(8, 64, dim=1), whole(8, 1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
"""


def _register(name: str, entry: Binary) -> None:
    def define(
        input_tensor_a: Value,
        input_tensor_b: Value,
        *,
        activations: Sequence[Activation] = (),
        input_tensor_a_activations: Sequence[Activation] = (),
        input_tensor_b_activations: Sequence[Activation] = (),
    ) -> Local:
        return binary_local(
            name,
            entry,
            input_tensor_a,
            input_tensor_b,
            input_tensor_a_activations,
            input_tensor_b_activations,
            activations,
        )

    def plain(input_tensor_a: Value, input_tensor_b: Value) -> Local:
        return binary_local(name, entry, input_tensor_a, input_tensor_b)

    chosen = plain if entry.is_plain else define
    with_reference(golden_elementwise.golden_pair(entry.reference or getattr(torch, name)))(chosen)
    chosen.__doc__ = (
        f"{name}, element by element, with broadcasting.\n\n{'' if entry.integer else _EXAMPLE.format(name)}"
    )
    operation(
        name,
        kind=entry.kind,
        rule=entry.rule,
        native="BinaryNgDeviceOperation",
        gradient=entry.gradient,
        torch=name if entry.mirrored and hasattr(torch, name) else "",
        mirrored=entry.mirrored,
        cost=flops_per_element(entry.steps),
        aliases=entry.aliases,
        precision="native",
        controls=entry.controls,
        tuning=entry.tuning,
        argument_aliases=None if entry.other is None else {entry.other: "input_tensor_b"},
        program_key=elementwise_program,
    )(chosen)


for _name, _entry in BINARY.items():
    _register(_name, _entry)

_ROUNDING = (None, "trunc", "floor")


def check_rounding(op: str, mode: str | None) -> None:
    if mode not in _ROUNDING:
        raise ArgumentValueError(f"{op}: rounding_mode must be one of {_ROUNDING}, got {mode!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Operand | Tensor) and not facts(value.dtype).is_float


def _check_quotient(definition: Definition, call: BoundCall) -> None:
    """The quotient of whole numbers has a fraction, unless it is rounded."""
    named = call.named
    asked, a, b = named["dtype"], named["input_tensor_a"], named["input_tensor_b"]
    is_whole = any(map(_is_whole, (a, b))) and not any(isinstance(x, Tensor) and not _is_whole(x) for x in (a, b))
    if is_whole and named["rounding_mode"] is None and asked not in (None, DataType.FLOAT32):
        raise MeshError(
            f"For integer division, supported output dtype is FLOAT32: {definition.name} was asked for {asked}. Round "
            'with rounding_mode="floor" or "trunc", or typecast the result.'
        )


def _quotient(rounding_mode: str | None, *values: Value) -> Callable[[Any, Any], torch.Tensor]:
    """a / b. Where bfloat16 values are rounded to whole ones, a chip packs nan as inf."""

    def quotient(a: Any, b: Any) -> torch.Tensor:
        return torch.div(_tensor(a, b), b, rounding_mode=rounding_mode)

    dtypes = {value.dtype for value in values if isinstance(value, Operand)}
    if rounding_mode is None or dtypes != {DataType.BFLOAT16}:
        return quotient
    return lambda a, b: quotient(a, b).nan_to_num(math.inf, math.inf, -math.inf)


@operation(
    kind=Kind.ELEMENTWISE,
    rule=rules.dividing,
    mirrored="rdiv",
    gradient=gradients.of_quotient,
    native="BinaryNgDeviceOperation",
    cost=flops_per_element(2),
    aliases=("divide",),
    precision="native",
    tuning=_TUNING,
    argument_aliases={"value": "input_tensor_b"},
    check=_check_quotient,
    program_key=elementwise_program,
)
@with_reference(golden_elementwise.golden_div)
def div(
    input_tensor_a: Value,
    input_tensor_b: Value,
    *,
    rounding_mode: str | None = None,
    activations: Sequence[Activation] = (),
    input_tensor_a_activations: Sequence[Activation] = (),
    input_tensor_b_activations: Sequence[Activation] = (),
) -> Local:
    """a / b; `rounding_mode` "trunc" or "floor" rounds the quotient.

    Of whole numbers it is float32, and whole numbers where it is rounded.

    >>> y = ttnn.div(split(8, 64, dim=1), 2.0)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 16]), (Replicate, Shard(1)))
    """
    check_rounding("div", rounding_mode)
    rule = rules.dividing if rounding_mode is None else rules.elementwise
    entry = Binary(_quotient(rounding_mode, input_tensor_a, input_tensor_b), rule)
    before = input_tensor_a_activations, input_tensor_b_activations
    local = binary_local("div", entry, input_tensor_a, input_tensor_b, *before, activations)
    tensors = [value for value in (input_tensor_a, input_tensor_b) if isinstance(value, Operand)]
    has_fractions = rounding_mode is None and all(map(_is_whole, tensors))
    return replace(local, dtypes=(DataType.FLOAT32,)) if has_fractions else local


@operation(
    kind=Kind.ELEMENTWISE,
    native="BinaryNgDeviceOperation",
    cost=flops_per_element(2),
    precision="native",
    controls=_WITHOUT_DTYPE,
    tuning=_TUNING,
)
@with_reference(golden_elementwise.golden_rdiv)
def rdiv(input_tensor: Operand, value: Value, *, rounding_mode: str | None = None) -> Local:
    """value / input."""
    check_rounding("rdiv", rounding_mode)
    quotient = _quotient(rounding_mode, input_tensor, value)
    entry = Binary(lambda a, b: quotient(b, a))
    return binary_local("rdiv", entry, input_tensor, value)


@operation(
    "pow",
    kind=Kind.ELEMENTWISE,
    gradient=gradients.of_power,
    native="BinaryNgDeviceOperation",
    cost=flops_per_element(40),
    precision="native",
    tuning=_WITHOUT_CORES,
)
@with_reference(golden_elementwise.golden_pow)
def power(
    input_tensor: Value,
    exponent: Value,
    *,
    activations: Sequence[Activation] = (),
    input_tensor_a_activations: Sequence[Activation] = (),
    input_tensor_b_activations: Sequence[Activation] = (),
) -> Local:
    """
    >>> y = ttnn.pow(split(8, 64, dim=1), 2)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 16]), (Replicate, Shard(1)))
    """
    before = input_tensor_a_activations, input_tensor_b_activations
    return binary_local("pow", Binary(torch.pow), input_tensor, exponent, *before, activations)


def place_of_three(op: str, *values: object) -> MemoryConfig | None:
    """Of operands in shards, three or two beside a number, the one on the most cores says where the result lies."""
    operands = [value for value in values if isinstance(value, Operand)]
    shape = check_broadcast(op, [(operand.name, operand.shape) for operand in operands])
    return over_most_cores([operand.spec for operand in operands], shape)


@operation(
    kind=Kind.ELEMENTWISE,
    native="TernaryDeviceOperation",
    precision="data",
    controls=_WITHOUT_DTYPE,
    tuning="sub_core_grids",
    program_key=elementwise_program,
    undefined=selected,
)
@with_reference(golden_elementwise.golden_where)
def where(predicate: Operand, true_value: Value, false_value: Value) -> Local:
    """true_value where the predicate is not 0, else false_value; in the dtype of those, where one is a tensor.

    >>> y = ttnn.where(split(8, 64, dim=1), 1.0, split(8, 64, dim=1))
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 16]), (Replicate, Shard(1)))
    """
    rank = broadcast_rank("where", predicate, true_value, false_value)
    values = (true_value, false_value)
    chosen = [value.dtype for value in values if isinstance(value, Operand)]
    if not chosen and not predicate.is_float and any(isinstance(value, float) for value in values):
        chosen = [DataType.FLOAT32]
    place = place_of_three("where", predicate, true_value, false_value)
    dtypes = tuple(chosen[:1]) or None
    return Local(_where, dtypes=dtypes, memory_config=place, broadcast_rank=rank)


def _where(predicate: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    return torch.where(predicate != 0, a, b)


# -- two tensors and numbers beside them: what the table above has no column for --------------------


_PLAIN: dict[str, Any] = {"controls": "memory_config"}
_INTO: dict[str, Any] = {
    "kind": Kind.ELEMENTWISE,
    "controls": "memory_config output_tensor",
    "cost": flops_per_element(2),
}
_OR_VALUE = {"value": "input_tensor_b"}


def gelu_of_sum(a: torch.Tensor, b: Any) -> torch.Tensor:
    """In fp32 from the start, so that only the result is rounded."""
    return gelu_function(GeluVariant.Accurate)(a.float() + b)


@operation(
    kind=Kind.ELEMENTWISE,
    cost=flops_per_element(14),
    controls="dtype memory_config output_tensor",
    tuning="fast_and_approximate_mode sub_core_grids sub_device_id",
)
@with_reference(golden.bias_gelu)
def bias_gelu(
    input_tensor_a: Operand,
    input_tensor_b: Value,
    *,
    activations: Sequence[Activation] = (),
    input_tensor_a_activations: Sequence[Activation] = (),
    input_tensor_b_activations: Sequence[Activation] = (),
) -> Local:
    """gelu(a + b)."""
    before = input_tensor_a_activations, input_tensor_b_activations
    return binary_local("bias_gelu", Binary(gelu_of_sum), input_tensor_a, input_tensor_b, *before, activations)


@operation(**_INTO, rule=rules.additive)
@with_reference(golden.addalpha)
def addalpha(input_tensor_a: Operand, input_tensor_b: Operand, alpha: float) -> Local:
    """a + alpha * b."""
    entry = Binary(lambda a, b: a + alpha * b, rules.additive)
    return binary_local("addalpha", entry, input_tensor_a, input_tensor_b)


@operation(**_INTO, rule=rules.additive)
@with_reference(golden.subalpha)
def subalpha(input_tensor_a: Operand, input_tensor_b: Operand, alpha: float) -> Local:
    """a - alpha * b."""
    entry = Binary(lambda a, b: a - alpha * b, rules.additive)
    return binary_local("subalpha", entry, input_tensor_a, input_tensor_b)


@operation(kind=Kind.COMPARISON, **_PLAIN, cost=flops_per_element(4))
@with_reference(golden.isclose)
def isclose(
    input_tensor_a: Operand,
    input_tensor_b: Operand,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Local:
    """1 where |a - b| <= atol + rtol * |b|."""

    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.isclose(a.float(), b.float(), rtol=rtol, atol=atol, equal_nan=bool(equal_nan))

    return binary_local("isclose", Binary(compute), input_tensor_a, input_tensor_b)


@operation(kind=Kind.ELEMENTWISE, **_PLAIN, precision="native", floats_only=True)
@with_reference(golden_elementwise.golden_pair(torch.nextafter))
def nextafter(input_tensor_a: Operand, input_tensor_b: Operand) -> Local:
    """The next number of the dtype from a towards b. TT-NN goes by a fixed step, which may be another."""
    return binary_local("nextafter", Binary(torch.nextafter), input_tensor_a, input_tensor_b)


@operation(
    kind=Kind.ELEMENTWISE,
    rule=rules.dividing,
    **_PLAIN,
    cost=flops_per_element(3),
    floats_only=True,
    argument_aliases=_OR_VALUE,
)
@with_reference(golden.div_no_nan)
def div_no_nan(input_tensor_a: Operand, input_tensor_b: Value) -> Local:
    """a / b, and 0 where b is 0."""

    def compute(a: torch.Tensor, b: Any) -> torch.Tensor:
        by = torch.as_tensor(b, device=a.device)
        return torch.where(by == 0, 0.0, a / by)

    return binary_local("div_no_nan", Binary(compute, rules.dividing), input_tensor_a, input_tensor_b)


@operation(kind=Kind.ELEMENTWISE, **_PLAIN, cost=flops_per_element(3), argument_aliases=_OR_VALUE)
@with_reference(InOrder(rounds_once(lambda a, b: torch.floor(torch.true_divide(*golden_elementwise.as_tensors(a, b))))))
def floor_div(input_tensor_a: Operand, input_tensor_b: Value) -> Local:
    """a / b, rounded down."""
    entry = Binary(lambda a, b: torch.div(a, b, rounding_mode="floor"))
    return binary_local("floor_div", entry, input_tensor_a, input_tensor_b)


@operation(kind=Kind.ELEMENTWISE, rule=rules.multiplicative, **_PLAIN, cost=flops_per_element(2))
@with_reference(golden.outer)
def outer(input_tensor_a: Operand, input_tensor_b: Operand) -> Local:
    """[..., n, m]: every value of a's last dim times every one of b's; the dims before them broadcast."""
    a, b = input_tensor_a, input_tensor_b
    if not a.rank or not b.rank or a.dtype is not b.dtype:
        raise MeshError(
            f"outer: input_tensor_a {list(a.shape)} {a.dtype} and input_tensor_b {list(b.shape)} {b.dtype} must have a "
            "dim at least, and one dtype."
        )
    rank = max(a.rank, b.rank)

    def labels(shapes: dim_labels.Shapes, results: Sequence[dim_labels.Extents]) -> dim_labels.DimLabels:
        spread = (*a.shape, 1), (*b.shape[:-1], 1, b.shape[-1])
        found = dim_labels.aligned(passes=dim_labels.EITHER)(spread, results)
        rows, columns = (own or () for own in found.operands)
        return found._replace(operands=(rows[:-1], (*columns[:-2], *columns[-1:])))

    check_broadcast("outer", [(a.name, a.shape[:-1] or (1,)), (b.name, b.shape[:-1] or (1,))])

    @rules.labelled(labels)
    def rule(at: rules.Situation) -> rules.Placement:
        words = list(at.words)
        if isinstance(words[1], rules.Shard) and words[1].dim == b.rank - 1:
            words[1] = words[1].at(b.rank)
        shapes = (*a.shape, 1), (*b.shape[:-1], 1, b.shape[-1])
        return rules.multiplicative(rules.Situation(tuple(words), shapes, at.out_shapes))

    return Local(lambda x, y: x.unsqueeze(-1) * y.unsqueeze(-2), rule, broadcast_rank=rank)


@operation(kind=Kind.ELEMENTWISE, **_PLAIN, cost=flops_per_element(2), floats_only=True)
@with_reference(golden.prelu)
def prelu(input_tensor_a: Operand, weight: Value | Sequence[float]) -> Local:
    """x above 0, weight * x below; a weight tensor has one value for each channel (dim 1), or one for all."""
    if isinstance(weight, Operand):
        return _prelu_of_channels(input_tensor_a, weight)
    if isinstance(weight, Sequence) and len(weight) != 1:
        raise MeshError(f"prelu: a list of weights must hold one number, got {list(weight)}: give a tensor of them.")
    return Local(lambda x, w: torch.where(x > 0, x, w * x))


def _prelu_of_channels(x: Operand, weight: Operand) -> Local:
    count, rank = math.prod(weight.shape), x.rank
    channels = x.shape[1] if rank > 1 else 1
    if count not in (1, channels):
        raise MeshError(
            f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {count} and channel "
            f"size = {channels}. prelu takes one weight for each channel (dim 1), or one for all."
        )
    own_rank = weight.rank
    sizes = (1,) * rank if count == 1 or rank < 2 else (1, count, *(1,) * (rank - 2))

    def compute(values: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        slope = w.reshape(*w.shape[: w.dim() - own_rank], *sizes)
        return torch.where(values > 0, values, slope * values)

    @rules.labelled(dim_labels.moved(lambda dim: None if dim == 1 else dim, passes=""))
    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        word = at.words[1]
        if isinstance(word, rules.Shard):
            is_channels = count > 1 and weight.shape[word.dim] == count
            word = word.at(1) if is_channels else rules.LOCAL
        if word is rules.LOCAL:
            return rules.LOCAL
        return rules.elementwise(rules.Situation((at.words[0], word), (at.shapes[0], sizes), at.out_shapes))

    return Local(compute, rule)


_BCAST = {BcastOpMath.ADD: "add", BcastOpMath.SUB: "subtract", BcastOpMath.MUL: "multiply"}
_ONE_ALONG = {BcastOpDim.H: (-2,), BcastOpDim.W: (-1,), BcastOpDim.HW: (-2, -1)}


@operation(kind=Kind.ELEMENTWISE, controls="memory_config output_tensor")
@placed("Split as the operands are, where their splits line up; a partial sum as in add, subtract and multiply.")
@with_reference(golden.bcast)
def bcast(input_a: Operand, input_b: Operand, math_op: BcastOpMath, dim: BcastOpDim) -> Local:
    """a + b, a - b or a * b; b has one row (H), one column (W) or one value (HW) for each matrix of a."""
    wrong = [d for d in _ONE_ALONG[dim] if input_b.rank < -d or input_b.shape[d] != 1]
    if wrong or input_a.rank < 2:
        raise MeshError(
            f"bcast: input_b {list(input_b.shape)} must have extent 1 along {dim.name}, and input_a "
            f"{list(input_a.shape)} two dims or more."
        )
    return binary_local("bcast", BINARY[_BCAST[math_op]], input_a, input_b)
