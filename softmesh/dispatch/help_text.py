"""The text of `help(ttnn.relu)`: what an op computes, its arguments, where its result lies, one example.

Put together when it is asked for, from the definition and what is known of calls.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import torch

from softmesh.arguments import kind_of
from softmesh.dispatch.call_form import Argument, CallForm
from softmesh.placement.placements import sentence_of

if TYPE_CHECKING:
    from softmesh.dispatch.definition import Definition
    from softmesh.dispatch.entry_point import EntryPoint

_WIDTH = 100
_ROUTE = {"num_links", "topology"}
_MEANINGS = {
    "memory_config": "where the result lies on a chip; None: as the first operand, or the tensor it is written into",
    "dtype": "of the result; None: that of the first operand",
    "queue_id": "the command queue; None: the current one",
    **dict.fromkeys(
        ("output_tensor", "optional_output_tensor", "optional_tensor", "output", "preallocated_output"),
        "a tensor to write the result into",
    ),
    "output_tensors": "tensors to write the results into",
    "cluster_axis": "the mesh axis along which devices work together; None: all of the mesh",
}


_SURROUNDINGS = "on 1 x 4 devices; split(8, 64, dim=1) has 8 x 16 of its elements on each, whole(8, 64) all of them"
_BY_OPERANDS = "As the splits of its operands allow; softmesh.placements(result) tells."


def help_text(op: EntryPoint, definition: Definition | None = None, placement: str | None = None) -> str:
    """`definition` is that of a planned op, `placement` where its results lie if that is not up to its rule."""
    forms = op.call_forms()
    parts = [
        op.description() or f"{op.python_fully_qualified_name}.",
        "\n".join(_call(op.python_fully_qualified_name, form) for form in forms),
        _arguments(forms, definition),
        _result(op, placement or (sentence_of(op) if definition is None else definition.placement or _BY_OPERANDS)),
        _example(op.example()),
    ]
    return "\n\n".join(filter(None, parts))


def _call(name: str, form: CallForm) -> str:
    words = [_word(argument) for argument in form.positional]
    stars = ["*"] if form.named and not form.named[0].name.startswith("*") else []
    line = f"{name}({', '.join((*words, *stars, *map(_word, form.named)))})"
    return textwrap.fill(line, _WIDTH, initial_indent="    ", subsequent_indent="        ", break_long_words=False)


def _word(argument: Argument) -> str:
    return argument.name if argument.is_required else f"{argument.name}={_shown(argument.default)}"


def _shown(default: Any) -> str:
    return f"{default}" if hasattr(type(default), "__members__") else repr(default)


def _arguments(forms: list[CallForm], definition: Definition | None) -> str:
    arguments = {argument.name: argument for form in forms for argument in form.arguments}
    if not arguments:
        return ""
    tuning: set[str] = set()
    if definition is not None:
        signature = definition.signature
        tuning = {signature.names[at] for at in signature.tuning_at} - _ROUTE
    wide = max(map(len, arguments))
    told = [_argument(one, wide, one.name in tuning) for one in arguments.values()]
    return "Arguments:\n" + "\n".join(told)


def _argument(argument: Argument, wide: int, is_tuning: bool) -> str:
    if is_tuning:
        said = "steers hardware only; no effect on values"
    else:
        kind = _kind(argument.type)
        default = "" if argument.is_required or kind.endswith(" or None") else f"default {_shown(argument.default)}"
        said = "; ".join(filter(None, (kind, _MEANINGS.get(argument.name, default)))) or "anything"
    indent = " " * (wide + 6)
    return textwrap.fill(said, 110, initial_indent=f"    {argument.name:{wide}}  ", subsequent_indent=indent)


def _kind(hint: Any) -> str:
    if hint in (object, Any):
        return ""
    if hint is torch.Tensor or hint == torch.Tensor | None:
        return "a torch.Tensor" if hint is torch.Tensor else "a torch.Tensor or None"
    return kind_of(hint).wanted


def _result(op: EntryPoint, placement: str | None) -> str:
    kind = op.result_type()
    returned = kind.__name__ if type(kind) is type else str(kind)
    for hidden in ("softmesh.tensor.tensor.", "typing.", " | Any"):
        returned = returned.replace(hidden, "")
    lines = [] if kind in (None, type(None), Any) else [f"Returns {returned}."]
    lines += [] if placement is None else [f"Placement: {placement}"]
    return "\n".join(textwrap.fill(line, 110, subsequent_indent="    ") for line in lines)


def _example(code: str) -> str:
    return code and f"Example, {_SURROUNDINGS}:\n{textwrap.indent(code, '    ')}"
