"""The mistakes that a finder must name, with op, chips and cause, and right programs of which it must say nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from types import ModuleType

import seeded_gpt
import seeded_llama

import softmesh as ttnn
from softmesh.diff import Cause

Coords = tuple[tuple[int, ...], ...]
AnyForm = seeded_llama.Form | seeded_gpt.Form
ROW_OF_8, TWO_ROWS, GALAXY = (1, 8), (2, 4), (4, 8)


@dataclass(frozen=True)
class Case:
    """A program with its mistake: one of these ops is to be named, on these chips, for one of these causes."""

    form: AnyForm
    ops: tuple[str, ...]
    causes: tuple[Cause, ...]
    columns: tuple[int, ...] = ()  # none: all
    rows: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        rows, columns = self.form.mesh
        return f"{self.form.mistake} on {rows}x{columns}"

    @property
    def program(self) -> ModuleType:
        return program_of(self.form)

    @property
    def coords(self) -> Coords:
        rows, columns = self.form.mesh
        return tuple(product(self.rows or range(rows), self.columns or range(columns)))

    @property
    def lines(self) -> set[int]:
        assert self.form.mistake is not None
        return marked_lines(self.program)[self.form.mistake]


def program_of(form: AnyForm) -> ModuleType:
    return seeded_llama if isinstance(form, seeded_llama.Form) else seeded_gpt


def runs(form: AnyForm) -> tuple[Callable[[], object], Callable[[], object]]:
    """The program on its mesh, and the same on one device, without a mistake."""
    program = program_of(form)
    return partial(program.run, form), partial(program.run, form.on_one_device())


@cache
def marked_lines(program: ModuleType) -> dict[str, set[int]]:
    """By mistake, the lines whose comments name it; a comment on its own speaks of the line below."""
    found: dict[str, set[int]] = {}
    for number, line in enumerate(inspect.getsource(program).splitlines(), 1):
        code, sign, comment = line.partition("# ")
        for name in comment.split(", ") if sign else ():
            found.setdefault(name.strip(), set()).add(number + (not code.strip()))
    return found


def llama(mistake: str, ops: str, *causes: Cause, mesh: tuple[int, int] = ROW_OF_8, **more: tuple[int, ...]) -> Case:
    return Case(seeded_llama.Form(mesh=mesh, mistake=mistake), tuple(ops.split("|")), causes, **more)


def gpt(mistake: str, ops: str, *causes: Cause, mesh: tuple[int, int] = TWO_ROWS, **more: tuple[int, ...]) -> Case:
    steps = 2 if mistake == "gradients kept" else 1
    return Case(seeded_gpt.Form(mesh=mesh, steps=steps, mistake=mistake), tuple(ops.split("|")), causes, **more)


_PREFILL, _DECODE = (
    "transformer.scaled_dot_product_attention",
    "transformer.paged_scaled_dot_product_attention_decode",
)

MISTAKES = (
    llama("gathered along the wrong dim", "all_gather", Cause.WRONG_DIM),
    llama("gathered along the wrong dim", "all_gather", Cause.WRONG_DIM, mesh=TWO_ROWS),
    llama("scattered and gathered along other dims", "all_gather", Cause.WRONG_DIM),
    llama("attention not reduced", "add", Cause.PARTIAL_SUM),
    llama("mlp not reduced", "add", Cause.PARTIAL_SUM, mesh=GALAXY),
    llama("gate not reduced", "mul|multiply", Cause.PARTIAL_SUM, mesh=TWO_ROWS),
    llama("reduce along the wrong axis", "all_reduce", Cause.WRONG_AXIS, mesh=TWO_ROWS),
    llama("reduced twice", "all_reduce", Cause.DOUBLE_REDUCE),
    llama("statistics not gathered", "rms_norm_post_all_gather", Cause.SHARD_ONLY, mesh=GALAXY),
    llama("softmax over a shard", "softmax", Cause.SHARD_ONLY),
    llama("bias on every shard", "linear", Cause.DOUBLE_REDUCE),
    llama("heads swapped", "from_torch", Cause.REORDERED, columns=(1, 2)),
    llama("out shards swapped", "from_torch", Cause.REORDERED, mesh=TWO_ROWS, columns=(0, 3)),
    llama("shard on the wrong device", "from_torch", Cause.REORDERED, mesh=GALAXY, columns=(1, 2)),
    llama("norm shards swapped", "from_torch", Cause.REORDERED, mesh=GALAXY, rows=(0, 1)),
    llama("norm weight reversed", "from_torch", Cause.REORDERED),
    llama("shards transposed", "from_torch", Cause.TRANSPOSED),
    llama("stale shard", "from_torch", Cause.OTHER_VALUES, columns=(3,)),
    llama("bfp4 for bf16", "from_torch", Cause.LOST_PRECISION),
    llama("norm epsilon", "rms_norm", Cause.OTHER_ARGUMENT),
    llama("wrong scale", _PREFILL, Cause.OTHER_ARGUMENT, mesh=TWO_ROWS),
    llama("mask forgotten", _PREFILL, Cause.OTHER_ARGUMENT),
    llama("other user's pages", "experimental.paged_fill_cache", Cause.OTHER_ARGUMENT, Cause.STALE_CACHE),
    llama("keys stored as values", "experimental.paged_update_cache", Cause.OTHER_INPUT, mesh=TWO_ROWS),
    llama("stale page", _DECODE, Cause.STALE_CACHE),
    llama("wrong page", _DECODE, Cause.STALE_CACHE, Cause.OTHER_INPUT, mesh=TWO_ROWS),
    llama("token off by one", "from_torch", Cause.OFFSET),
    llama("rope off by one", "from_torch", Cause.OFFSET, mesh=GALAXY),
    llama("decode rope off by one", "from_torch", Cause.OTHER_VALUES, Cause.OFFSET),
    llama("residual after the norm", "add", Cause.OTHER_INPUT),
    gpt("forward not reduced", "add", Cause.PARTIAL_SUM),
    gpt("bias of every device", "linear", Cause.DOUBLE_REDUCE),
    gpt("attention's scale", _PREFILL, Cause.OTHER_ARGUMENT, mesh=GALAXY),
    gpt("future seen", _PREFILL, Cause.OTHER_ARGUMENT),
    gpt("keys and values swapped", _PREFILL, Cause.OTHER_INPUT),
    gpt("residual of the norm", "add", Cause.OTHER_INPUT, mesh=GALAXY),
    gpt("places off by one", "from_torch", Cause.OFFSET),
    gpt("targets off by one", "from_torch", Cause.OFFSET),
    gpt("batch out of order", "from_torch", Cause.REORDERED, Cause.OFFSET),
    gpt("attention's gradient not reduced", "gradient of add", Cause.PARTIAL_SUM),
    gpt("mlp's gradient not reduced", "gradient of add", Cause.PARTIAL_SUM, mesh=GALAXY),
    gpt("gradient reduced twice", "gradient of linear", Cause.DOUBLE_REDUCE, mesh=ROW_OF_8),
    gpt("gradients not synchronised", "gradient of SGD.step", Cause.PARTIAL_SUM),
    gpt("gradients not averaged", "sync_gradients", Cause.WRONG_SCALE, mesh=GALAXY),
    gpt("gradients kept", "sync_gradients", Cause.OTHER_VALUES),
    gpt("learning rate", "SGD.step", Cause.OTHER_ARGUMENT),
)

_Llama, _GPT = seeded_llama.Form, seeded_gpt.Form
_BFP8, _FP32, _BF16 = ttnn.bfloat8_b, ttnn.float32, ttnn.bfloat16

RIGHT: dict[str, AnyForm] = {
    "llama on 1x8": _Llama(),
    "llama on 2x4": _Llama(TWO_ROWS),
    "llama on 4x8": _Llama(GALAXY),
    "llama on 1x2": _Llama((1, 2)),
    "llama on 1x4": _Llama((1, 4)),
    "llama on 2x1": _Llama((2, 1)),
    "llama on 4x2": _Llama((4, 2)),
    "two layers": _Llama(TWO_ROWS, layers=2),
    "three decode steps": _Llama(steps=3),
    "weights in bfp8": _Llama(weights_dtype=_BFP8),
    "weights in bfp8 on 4x8": _Llama(GALAXY, weights_dtype=_BFP8),
    "float32": _Llama(dtype=_FP32),
    "float32 on 2x4": _Llama(TWO_ROWS, dtype=_FP32),
    "reduce_scatter and all_gather": _Llama(scatters=True),
    "reduce_scatter and all_gather on 4x8": _Llama(GALAXY, scatters=True),
    "unified ops": _Llama(unified=True),
    "unified ops on 2x4": _Llama(TWO_ROWS, unified=True),
    "a trace": _Llama(traced=True),
    "a trace on 2x4": _Llama(TWO_ROWS, traced=True),
    "up before gate": _Llama(TWO_ROWS, up_first=True),
    "silu apart": _Llama(silu_apart=True),
    "scale first": _Llama(GALAXY, scale_first=True),
    "gpt on 2x4": _GPT(),
    "gpt on 1x8": _GPT(ROW_OF_8),
    "gpt on 4x8": _GPT(GALAXY),
    "gpt, data parallel": _GPT((8, 1)),
    "gpt of two blocks": _GPT(blocks=2),
    "gpt in bf16": _GPT(dtype=_BF16),
    "gpt, logits gathered": _GPT(gathers=True),
    "gpt, reduce_scatter and all_gather": _GPT(scatters=True),
    "gpt, gradients synchronised by the host": _GPT(sync="host"),
    "gpt, clipped": _GPT(GALAXY, clips=True),
    "gpt with AdamW": _GPT(optimizer="adamw"),
}

# Right as well, though the program on the mesh is written in another way than that on one device.
WRITTEN_OTHERWISE: dict[str, tuple[AnyForm, AnyForm]] = {
    "other pages": (_Llama(pages=(0, 1, 2, 3)), _Llama((1, 1))),
    "up before gate": (_Llama(up_first=True), _Llama((1, 1))),
    "silu apart": (_Llama(TWO_ROWS, silu_apart=True), _Llama((1, 1))),
    "scale first": (_Llama(scale_first=True), _Llama((1, 1))),
    "unified ops": (_Llama(TWO_ROWS, unified=True), _Llama((1, 1))),
    "a trace": (_Llama(traced=True), _Llama((1, 1))),
    "weights in bfp8": (_Llama(weights_dtype=_BFP8), _Llama((1, 1))),
    "logits gathered": (_GPT(gathers=True), _GPT((1, 1))),
}
