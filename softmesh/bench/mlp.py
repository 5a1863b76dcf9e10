"""An MLP parallelised over 8 devices, in three forms, against the same global work in plain torch and in JAX.

    softmesh bench mlp [--quick] [--json] [--jax-python PATH]

y = gelu(x w1 + b1) w2 + b2, once with few rows and once with many. The forms:

    data           rows of x split over the devices, weights on each
    all_gather     tensor-parallel: columns of w1 and w2 split, the hidden layer gathered in between
    all_reduce     tensor-parallel: columns of w1 and rows of w2 split, the contributions added up

The peers:

    torch          one device: F.linear and F.gelu in the dtype at hand
    torch, fp32    bfloat16 only: widened to fp32, each result rounded once, as the chip does
    JAX            the same form over 8 virtual CPU devices, jitted, in a process of its own

All take turns in one run, and each result is checked against float64.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F

import softmesh as ttnn
from softmesh.bench.harness import (
    DTYPES,
    HIGHER,
    Peer,
    connected_mesh,
    interleave,
    machine,
    options,
    put,
    show,
    show_json,
    table,
    timed,
)
from softmesh.bench.peer_process import PeerProcess, interpreted, jax_worker, peer_or_note
from softmesh.progress import tracked

# The workload. TT-NN has it in three forms, which differ in what is split over the devices and in what travels
# between them.


@dataclass(frozen=True)
class Operands:
    """Operands in torch, w1 and w2 as (in, out)."""

    x: torch.Tensor
    w1: torch.Tensor
    b1: torch.Tensor
    w2: torch.Tensor
    b2: torch.Tensor

    @classmethod
    def random(cls, rows: int, width: int, inner: int) -> Operands:
        draw = torch.Generator().manual_seed(0)

        def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
            return torch.randn(*shape, generator=draw) * scale

        return cls(
            x=normal(rows, width),
            w1=normal(width, inner, scale=width**-0.5),
            b1=normal(inner),
            w2=normal(inner, width, scale=inner**-0.5),
            b2=normal(width),
        )

    def to(self, dtype: torch.dtype) -> Operands:
        return Operands(*(value.to(dtype) for value in vars(self).values()))

    def in_torchs_order(self) -> Operands:
        """w1 and w2 as (out, in), which is how torch.nn.Linear keeps them."""
        return replace(self, w1=self.w1.T.contiguous(), w2=self.w2.T.contiguous())


def torch_mlp(o: Operands) -> torch.Tensor:
    return F.linear(F.gelu(F.linear(o.x, o.w1, o.b1)), o.w2, o.b2)


def torch_mlp_in_fp32(o: Operands) -> torch.Tensor:
    hidden = F.gelu(F.linear(o.x.float(), o.w1.float(), o.b1.float())).to(o.x.dtype)
    return F.linear(hidden.float(), o.w2.float(), o.b2.float()).to(o.x.dtype)


Tensors = Mapping[str, ttnn.Tensor]


@dataclass(frozen=True)
class Form:
    """Along which dim an operand is split (each device has all of the others), and what a device does then."""

    splits: Mapping[str, int]
    second_half: Callable[[ttnn.Tensor, Tensors], ttnn.Tensor]


def _alone(hidden: ttnn.Tensor, o: Tensors) -> ttnn.Tensor:
    return ttnn.linear(hidden, o["w2"], bias=o["b2"])


def _gathering(hidden: ttnn.Tensor, o: Tensors) -> ttnn.Tensor:
    return ttnn.linear(ttnn.all_gather(hidden, dim=-1), o["w2"], bias=o["b2"])


def _reducing(hidden: ttnn.Tensor, o: Tensors) -> ttnn.Tensor:
    return ttnn.add(ttnn.all_reduce(ttnn.linear(hidden, o["w2"])), o["b2"])


FORMS = {
    "data": Form({"x": 0}, _alone),
    "all_gather": Form({"w1": 1, "b1": 0, "w2": 1, "b2": 0}, _gathering),
    "all_reduce": Form({"w1": 1, "b1": 0, "w2": 0}, _reducing),
}


class MeshMlp:
    """The MLP as a TT-NN program has it."""

    def __init__(self, mesh: ttnn.MeshDevice, operands: Operands, dtype: str, form: str) -> None:
        self._form = FORMS[form]
        on_all = ttnn.ReplicateTensorToMesh(mesh)
        split = {name: ttnn.ShardTensorToMesh(mesh, dim=dim) for name, dim in self._form.splits.items()}
        self._operands = {
            name: put(value, dtype, mesh, split.get(name, on_all)) for name, value in vars(operands).items()
        }

    def __call__(self) -> ttnn.Tensor:
        o = self._operands
        hidden = ttnn.linear(o["x"], o["w1"], bias=o["b1"], activation="gelu")
        return self._form.second_half(hidden, o)

    def result(self) -> torch.Tensor:
        return ttnn.compose(self())


def torch_peers(dtype: str, operands: Operands) -> dict[str, Callable[[], torch.Tensor]]:
    kept = operands.in_torchs_order()
    peers: dict[str, Callable[[], torch.Tensor]] = {"torch": lambda: torch_mlp(kept)}
    if dtype == "bfloat16":
        peers["torch, fp32"] = lambda: torch_mlp_in_fp32(kept)
    return peers


class MlpPeer(PeerProcess):
    """A worker that runs the MLP in the form it is told."""

    def prepare(self, form: str, dtype: str, operands: Operands) -> torch.Tensor:
        """Give it the operands, and see what it makes of them."""
        arrays = {name: value.float().numpy() for name, value in vars(operands).items()}
        np.savez(self.folder / "operands.npz", **arrays)
        self.ask(prepare=form, dtype=dtype)
        return torch.from_numpy(np.load(self.folder / "result.npy"))


MESH = (1, 8)
TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2}  # of the error's norm, relative to the result's
OURS = "softmesh"
JAX = "JAX, 8 devices"


@dataclass(frozen=True)
class Sizes:
    rows: tuple[int, ...] = (256, 2048)  # over all devices
    width: int = 1024
    inner: int = 4096
    rounds: int = 11

    def flops(self, rows: int) -> int:
        return 2 * 2 * rows * self.width * self.inner


QUICK = Sizes(rows=(256,), width=32, inner=64, rounds=2)


@dataclass(frozen=True)
class Row:
    form: str
    rows: int
    dtype: str
    peer: str
    milliseconds: float
    gflops_per_second: float
    time_over_softmesh: float
    error: float  # norm of the difference from float64, relative to the norm of the result

    @property
    def agrees(self) -> bool:
        return self.error <= TOLERANCES[self.dtype]


def measure(
    form: str, dtype: str, operands: Operands, sizes: Sizes, mesh: ttnn.MeshDevice, jax: MlpPeer | None
) -> list[Row]:
    ours = MeshMlp(mesh, operands, dtype, form)
    calls = torch_peers(dtype, operands)
    results = {OURS: ours.result(), **{name: call() for name, call in calls.items()}}
    peers: dict[str, Peer] = {OURS: timed(ours), **{name: timed(call) for name, call in calls.items()}}
    if jax is not None:
        results[JAX] = jax.prepare(form, dtype, operands)
        peers[JAX] = lambda: jax.run(1)
    errors = relative_errors(results, operands)
    seen = interleave(peers, sizes.rounds)
    rows = len(operands.x)
    return [
        Row(
            form,
            rows,
            dtype,
            name,
            timing.median * 1e3,
            sizes.flops(rows) / timing.median / 1e9,
            timing.relative_to(seen[OURS]),
            errors[name],
        )
        for name, timing in seen.items()
    ]


def relative_errors(results: Mapping[str, torch.Tensor], operands: Operands) -> dict[str, float]:
    exact = torch_mlp(operands.in_torchs_order().to(torch.float64))
    return {name: float((got.double() - exact).norm() / exact.norm()) for name, got in results.items()}


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            r.form,
            str(r.rows),
            r.dtype,
            r.peer,
            f"{r.milliseconds:.1f}",
            f"{r.gflops_per_second:.0f}",
            f"{r.time_over_softmesh:.2f}",
            f"{r.error:.1e}{'' if r.agrees else ' (!)'}",
        ]
        for r in rows
    ]


def main(argv: Sequence[str] | None = None) -> int:
    given = options("mlp", __doc__, "a tiny MLP and two rounds", {"jax": "JAX"}).parse_args(argv)
    sizes = QUICK if given.quick else Sizes()
    rows: list[Row] = []
    of_jax = interpreted("JAX", given.jax_python, "'softmesh[bench]'")
    with (
        connected_mesh(*MESH) as mesh,
        peer_or_note("JAX", lambda: MlpPeer(*jax_worker(given.jax_python, "jax_mlp.py")), **of_jax) as (
            jax,
            note,
        ),
    ):
        cases = list(product(sizes.rows, FORMS, DTYPES.items()))
        drawn = {count: Operands.random(count, sizes.width, sizes.inner) for count in sizes.rows}
        for count, form, (dtype, (_, torch_dtype)) in tracked(cases, "MLPs"):
            rows += measure(form, dtype, drawn[count].to(torch_dtype), sizes, mesh, jax)
    fell = present(rows, sizes, note, given)
    return fell if all(r.agrees for r in rows) else 1


def present(rows: Sequence[Row], sizes: Sizes, note: str, given: argparse.Namespace) -> int:
    if given.json:
        show_json(note=note, sizes=asdict(sizes), rows=[asdict(r) for r in rows])
        return 0
    title = f"MLP {sizes.width} -> {sizes.inner} -> {sizes.width}, on 8 devices"
    columns = ["form", "rows", "dtype", "peer", "ms", "GFLOP/s", "time / softmesh", "error"]
    remarks = ["(!) is further from float64 than this dtype allows."] if not all(r.agrees for r in rows) else []
    return show(
        machine(),
        note,
        table(title, columns, table_rows(rows), words=4, ratios={"time / softmesh": HIGHER}),
        *remarks,
        against=given.against,
    )


if __name__ == "__main__":
    sys.exit(main())
