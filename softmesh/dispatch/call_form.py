"""CallForm, one way to call an op as data: its arguments, with their types and defaults.

Type stubs and help texts read it. A form as text names its arguments: those before the bar may be given by position,
a `?` marks those that have a default, and `other:padding` has the type of `padding`.

    "input_tensor output_padded_shape:padding input_tensor_start:value value? | use_multicore?"
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, get_type_hints

from softmesh.cores import CoreCoord, CoreGrid, CoreRange, CoreRangeSet
from softmesh.hardware import SubDeviceId, Topology, WormholeComputeKernelConfig
from softmesh.hardware.config_base import HardwareConfig
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.queue_id import QueueId
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor

if TYPE_CHECKING:
    from softmesh.dispatch.definition import Definition

MISSING = inspect.Parameter.empty
Types = Mapping[str, Any]

# Types of arguments that the registry answers to, or that only steer hardware: the same name means the same everywhere.
_NAMES: dict[Any, str] = {
    DataType | None: "dtype output_dtype",
    MemoryConfig | None: "memory_config output_memory_config intermediate_memory_config",
    int | QueueId | None: "queue_id cq_id",
    Tensor | None: "output_tensor output optional_tensor optional_output_tensor preallocated_output out input_grad "
    "other_grad input_a_grad input_b_grad recip_tensor persistent_output_buffer",
    Sequence[Tensor] | None: "output_tensors",
    bool | None: "fast_and_approximate_mode use_legacy use_multicore numeric_stable use_2d_core_grid deallocate_input",
    CoreRangeSet | CoreRange | None: "sub_core_grids sub_core_grid",
    CoreGrid | CoreCoord | None: "core_grid",
    WormholeComputeKernelConfig | None: "compute_kernel_config compute_config",
    HardwareConfig | None: "program_config",
    SubDeviceId | None: "sub_device_id subdevice_id",
    Topology | None: "topology",
    int | None: "num_links num_workers_per_link num_buffers_per_channel chunks_per_sync",
    MeshDevice | None: "device mesh_device",
    Sequence[bool] | None: "are_required_outputs",
}
COMMON_TYPES: Types = {name: kind for kind, names in _NAMES.items() for name in names.split()}
# What a caller gives for arguments that a definition sees as tensors.
_GIVEN_TYPES: Types = {"mesh_coords": Collection[MeshCoordinate] | None}


class Argument(NamedTuple):
    name: str
    type: Any  # as annotations have it
    default: Any = MISSING

    @property
    def is_required(self) -> bool:
        return self.default is MISSING


class CallForm(NamedTuple):
    positional: tuple[Argument, ...]
    named: tuple[Argument, ...]  # by keyword only

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (*self.positional, *self.named)

    def renamed(self, names: Mapping[str, str]) -> CallForm:
        """The same with other names for some arguments."""
        first, others = (
            tuple(argument._replace(name=names.get(argument.name, argument.name)) for argument in part) for part in self
        )
        return CallForm(first, others)

    def without(self, names: Iterable[str]) -> CallForm:
        left_out = set(names)
        first, others = (tuple(argument for argument in part if argument.name not in left_out) for part in self)
        return CallForm(first, others)

    def in_python(self) -> list[CallForm]:
        """Forms that Python can express: there, no required argument comes after one with a default.

        Either all up to the last required one are given by position, or what has a default by keyword.
        """
        required = [at for at, argument in enumerate(self.positional) if argument.is_required]
        defaults = [at for at, argument in enumerate(self.positional) if not argument.is_required]
        if not required or not defaults or defaults[0] > required[-1]:
            return [self]
        end = required[-1] + 1
        all_given = tuple(argument._replace(default=MISSING) for argument in self.positional[:end])
        return [
            CallForm((*all_given, *self.positional[end:]), self.named),
            CallForm(self.positional[: defaults[0]], (*self.positional[defaults[0] :], *self.named)),
        ]


@cache
def types_of(define: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function, evaluated."""
    try:
        return get_type_hints(define)
    except NameError:  # its module imports the type for checkers only
        public = vars(sys.modules[__name__.partition(".")[0]])
        return get_type_hints(define, {**public, **define.__globals__})


def form_of_text(text: str, types: Types, own: CallForm | None = None) -> CallForm:
    """The form that a text describes; arguments of `own` that have a default are taken by keyword, too."""
    first, _, rest = text.partition("|")
    positional = tuple(_argument(word, types) for word in first.split())
    named = tuple(_argument(word, types) for word in rest.split())
    taken = {argument.name for argument in (*positional, *named)}
    more = () if own is None else own.arguments
    others = tuple(one for one in more if one.name not in taken and not one.is_required)
    return CallForm(positional, (*named, *others))


def _argument(word: str, types: Types) -> Argument:
    name, _, meant = word.rstrip("?").partition(":")
    kind = types.get(meant or name, object)
    if not word.endswith("?"):
        return Argument(name, kind)
    return Argument(name, kind if kind in (object, Any) else Optional[kind], None)  # noqa: UP045  (kind is a value)


def forms_of(op: Definition) -> list[CallForm]:
    """All ways to call a planned op."""
    types = {**COMMON_TYPES, **types_of(op.define), **_GIVEN_TYPES}
    output = op.signature.output_name
    if result_of(op) != "Tensor" and output is not None and output not in types_of(op.define):
        types[output] = Sequence[Tensor] | None
    own = [form.without(op.provided) for form in op.signature.call_forms(types)]
    return [*own, *(form_of_text(text, types, own[0]) for text in op.forms)]


def result_of(op: Definition) -> str:
    """The type of what a call returns."""
    return f"tuple[{', '.join(['Tensor'] * len(op.writes))}]" if len(op.writes) > 1 else op.results


def form_of_function(function: Callable[..., Any]) -> CallForm:
    types = types_of(inspect.unwrap(function))
    positional: list[Argument] = []
    named: list[Argument] = []
    stars: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for name, parameter in inspect.signature(function).parameters.items():
        argument = Argument(stars.get(parameter.kind, "") + name, types.get(name, object), parameter.default)
        is_first = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        (positional if is_first else named).append(argument)
    return CallForm(tuple(positional), tuple(named))
