"""Mistakes in small programs that are written op by op, and right ways to write these."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from types import ModuleType
from typing import Any

import seeded_attention
import seeded_diffusion
import seeded_experts
import seeded_loops
import seeded_vision
import torch
from seeded_cases import marked_lines
from seeded_mesh import Desk, Form, opened

import softmesh as ttnn
from softmesh.diff import Cause, Comparison
from softmesh.diff.comparing import compared
from softmesh.diff.recording import Recording, recorded

PROGRAMS: dict[str, Callable[[Desk], torch.Tensor]] = {
    "attention": seeded_attention.run,
    "experts": seeded_experts.run,
    "vision": seeded_vision.run,
    "perceptron": seeded_loops.perceptron,
    "cached": seeded_loops.cached,
    "replayed": seeded_loops.replayed,
    "diffusion": seeded_diffusion.run,
}
ROW_OF_8, TWO_ROWS, GALAXY, SQUARE = (1, 8), (2, 4), (4, 8), (4, 4)


def run(form: Form) -> torch.Tensor:
    with opened(form) as desk:
        return PROGRAMS[form.program](desk)


@cache
def reference(form: Form) -> Recording:
    """The same program on one device, without a mistake: run once for all who are compared with it."""
    return recorded(partial(run, form.on_one_device()), is_reference=True)


def outcome(form: Form, other: Form | None = None) -> Comparison:
    theirs = reference(other or form)
    return compared(recorded(partial(run, form), twin=theirs), theirs)


@dataclass(frozen=True)
class Case:
    form: Form
    ops: tuple[str, ...]
    causes: tuple[Cause, ...]
    columns: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    apart_from: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        rows, columns = self.form.mesh
        return f"{self.form.program}: {self.form.mistake} on {rows}x{columns}"

    @property
    def module(self) -> ModuleType:
        module = inspect.getmodule(PROGRAMS[self.form.program])
        assert module is not None
        return module

    @property
    def lines(self) -> set[int]:
        assert self.form.mistake is not None
        return marked_lines(self.module)[self.form.mistake]

    @property
    def coords(self) -> tuple[tuple[int, ...], ...]:
        rows, columns = self.form.mesh
        found = product(self.rows or range(rows), self.columns or range(columns))
        return tuple(one for one in found if one not in self.apart_from)


def case(program: str, mistake: str, ops: str, *causes: Cause, mesh: tuple[int, int] = TWO_ROWS, **more: Any) -> Case:
    return Case(Form(program, mesh, mistake=mistake), tuple(ops.split("|")), causes, **more)


A, E, V = (partial(case, name) for name in ("attention", "experts", "vision"))
P, K, T, D = (partial(case, name) for name in ("perceptron", "cached", "replayed", "diffusion"))
C = Cause
MISTAKES = (
    A("heads taken for tokens", "reshape|permute", C.OTHER_PROGRAM, C.REORDERED, C.OTHER_ARGUMENT, C.UNKNOWN),
    A("base of the angles", "from_torch", C.OTHER_VALUES, mesh=ROW_OF_8),
    A("angles by pairs", "from_torch", C.OTHER_VALUES, C.REORDERED),
    A("mask off by one", "from_torch", C.OFFSET, C.OTHER_VALUES, mesh=GALAXY),
    A("mask transposed", "from_torch", C.TRANSPOSED),
    A("slice too short", "slice", C.OTHER_ARGUMENT, C.OFFSET),
    A("sign of the turn", "concat", C.OTHER_PROGRAM, C.OTHER_INPUT),
    A("sine and cosine swapped", "multiply|add", C.OTHER_INPUT, mesh=SQUARE),
    A("heads repeated in turn", "repeat_interleave|repeat", C.OTHER_PROGRAM, C.REORDERED, C.UNKNOWN),
    A("softmax down the queries", "softmax", C.OTHER_ARGUMENT),
    A("keys not turned", "repeat_interleave", C.OTHER_INPUT),
    A("queries and keys swapped", "transpose|matmul", C.OTHER_INPUT),
    A("scale forgotten", "add", C.OTHER_PROGRAM, C.OTHER_INPUT, mesh=ROW_OF_8),
    A("scale without its root", "multiply", C.OTHER_ARGUMENT, C.WRONG_SCALE),
    A("mask forgotten", "softmax", C.OTHER_PROGRAM, C.OTHER_INPUT, mesh=SQUARE),
    A("heads joined without order", "reshape", C.OTHER_PROGRAM, C.REORDERED, C.OTHER_INPUT),
    A("bias before the sum", "add|all_reduce", C.DOUBLE_REDUCE, mesh=GALAXY),
    A("sum along both axes", "all_reduce", C.WRONG_AXIS, C.UNKNOWN, mesh=SQUARE),
    A("shards in the order of another mesh", "from_torch", C.REORDERED, mesh=GALAXY),
    A("weights of an earlier step on one row of chips", "from_torch", C.WRONG_SCALE),
    A("another activation", "silu|gelu", C.OTHER_PROGRAM),
    A("activation in bfp4", "typecast|linear", C.LOST_PRECISION),
    A("dropout left on", "experimental.dropout|linear", C.OTHER_PROGRAM, C.OTHER_INPUT),
    A("scattered along another dim", "reduce_scatter|all_gather", C.WRONG_DIM, mesh=ROW_OF_8),
    A("weight of the other norm", "rms_norm", C.OTHER_INPUT),
    A("another norm", "layer_norm|rms_norm", C.OTHER_PROGRAM, mesh=SQUARE),
    A("weight of the norm forgotten", "rms_norm", C.OTHER_PROGRAM, C.OTHER_INPUT, C.OTHER_ARGUMENT),
    A("slice of the places", "slice", C.OTHER_ARGUMENT, C.OFFSET),
    A("residual in bfp8", "typecast|add", C.LOST_PRECISION),
    A("residual forgotten", "rms_norm", C.OTHER_PROGRAM, C.OTHER_INPUT),
    A("residual of the block before", "add", C.OTHER_INPUT, mesh=GALAXY),
    A("residual subtracted", "subtract|add", C.OTHER_PROGRAM),
    E("experts out of order", "from_torch", C.REORDERED, mesh=ROW_OF_8),
    E("one chip's experts swapped", "from_torch", C.REORDERED, columns=(0,)),
    E("offset forgotten", "softmax", C.OTHER_PROGRAM, C.OTHER_INPUT),
    E("sigmoid for softmax", "sigmoid|softmax", C.OTHER_PROGRAM),
    E("one expert too few", "min|topk", C.OTHER_INPUT, C.OTHER_PROGRAM, C.OTHER_ARGUMENT),
    E("shares not normalised", "permute", C.OTHER_PROGRAM, C.OTHER_INPUT),
    E(
        "shares of the wrong experts",
        "mesh_partition|multiply",
        C.WRONG_AXIS,
        C.WRONG_DIM,
        mesh=SQUARE,
        apart_from=tuple((n, n) for n in range(4)),
    ),
    E("gate and up swapped", "silu|multiply", C.OTHER_INPUT),
    E("mean of the experts", "mean|sum", C.OTHER_PROGRAM, C.WRONG_SCALE),
    E("experts not added up", "add", C.PARTIAL_SUM, mesh=GALAXY),
    E("experts added up down the mesh", "all_reduce|add", C.WRONG_AXIS, C.PARTIAL_SUM, mesh=SQUARE),
    V("places without the class token", "from_torch", C.REORDERED, C.OFFSET),
    V("fused weight not dealt out", "experimental.nlp_create_qkv_heads", C.REORDERED),
    V("patches by columns", "from_torch", C.REORDERED, mesh=GALAXY),
    V("channels last", "from_torch", C.REORDERED),
    V("causal where it should not be", "transformer.scaled_dot_product_attention", C.OTHER_ARGUMENT),
    V("heads not added up", "add", C.PARTIAL_SUM, mesh=ROW_OF_8),
    V("weight and bias swapped", "layer_norm", C.OTHER_INPUT),
    V("class token last", "concat|add", C.OTHER_INPUT, C.REORDERED, C.OFFSET),
    V("last patch for the class token", "slice", C.OTHER_ARGUMENT),
    V(
        "tied weight not transposed",
        "linear|slice",
        C.OTHER_PROGRAM,
        C.OTHER_ARGUMENT,
        C.OTHER_INPUT,
        C.TRANSPOSED,
        mesh=SQUARE,
    ),
    V("classes of a column only", "softmax", C.SHARD_ONLY),
    V("gathered down the mesh", "all_gather", C.WRONG_AXIS, mesh=SQUARE),
    P("rate of another run", "SGD.step", C.OTHER_ARGUMENT),
    Case(
        Form("perceptron", but=frozenset(["clipped"]), mistake="clipped at another norm"),
        ("clip_grad_norm",),
        (C.WRONG_SCALE, C.OTHER_ARGUMENT),
    ),
    P("same batch on every row", "from_torch", C.OTHER_VALUES, rows=(1,)),
    P("loss scaled", "multiply", C.WRONG_SCALE, C.OTHER_PROGRAM),
    P("residual forgotten in training", "train.mean_square", C.OTHER_PROGRAM, C.OTHER_INPUT),
    K("row of another user", "fill_cache", C.OTHER_ARGUMENT, C.STALE_CACHE),
    K("position one too far", "update_cache", C.OTHER_ARGUMENT, C.STALE_CACHE, C.OFFSET),
    K("values not stored", "slice|update_cache", C.STALE_CACHE),
    K("values stored over keys", "update_cache", C.OTHER_INPUT, C.STALE_CACHE),
    K("newest token not seen", "slice", C.OTHER_ARGUMENT),
    T("activation of the trace", "relu", C.OTHER_PROGRAM),
    T(
        "input of the replay before",
        "to_torch|execute_trace",
        C.OTHER_PROGRAM,
        C.OTHER_INPUT,
        C.STALE_CACHE,
        C.OTHER_VALUES,
    ),
    D("order of the chunks", "add", C.OTHER_INPUT),
    D("order of the chunks", "add", C.OTHER_INPUT, mesh=SQUARE),
)
SPELLINGS = (  # other ways to write the same attention
    (TWO_ROWS, "weights in bfp8"),
    (ROW_OF_8, "transpose for permute"),
    (TWO_ROWS, "softmax by hand"),
    (GALAXY, "joined by an op"),
    (SQUARE, "scattered and gathered"),
    (TWO_ROWS, "activation within"),
    (TWO_ROWS, "sum in the other order"),
)
RIGHT = (
    {
        f"{program} on {rows}x{columns}": Form(program, (rows, columns))
        for program in PROGRAMS
        for rows, columns in ((1, 8), (2, 4), (4, 8), (4, 4), (2, 1))
    }
    | {f"attention, {way}": Form("attention", mesh, but=frozenset([way])) for mesh, way in SPELLINGS}
    | {
        "attention in float32": Form("attention", TWO_ROWS, ttnn.float32),
        "experts in float32": Form("experts", GALAXY, ttnn.float32),
        "vision in bfp8": Form("vision", TWO_ROWS, ttnn.bfloat8_b),
        "perceptron, adamw": Form("perceptron", but=frozenset(["adamw"])),
        "perceptron, clipped": Form("perceptron", GALAXY, but=frozenset(["clipped"])),
        "perceptron, in two halves": Form("perceptron", but=frozenset(["in two halves"])),
    }
)
OTHERWISE = {way: (Form("attention", mesh, but=frozenset([way])), Form("attention", (1, 1))) for mesh, way in SPELLINGS}
