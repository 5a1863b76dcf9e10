"""A mesh on a GPU against plain torch on the same card, and against the card's own rates.

    softmesh bench gpu [--quick] [--json] [--example PATH] [--without-8b]

    products      the MLP of `bench mlp` over 8 devices, and causal attention; torch: F.linear and F.gelu, F.sdpa
    small ops     20 x (linear, silu, rms_norm, add): eager, and as a trace; torch: eager, and as a CUDA graph
    bandwidth     collectives and element-wise ops on 8 devices, in percent of the rate of a large copy
    Llama         the model of examples/llama over 8 devices: a step of decoding, replayed; torch: the same model as
                  one would write it there, a step as a CUDA graph. Random weights
    8B            a prompt, and a step for one user, of a Llama of 8 billion parameters: also in percent of the time
                  that reading its weights once would take

All take turns in one run; times include what the host does, as long as the card waits for it. Rows named "device time"
add up what runs on the card.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import softmesh as ttnn
from softmesh.bench.harness import (
    DTYPES,
    HIGHER,
    connected_mesh,
    interleave,
    machine,
    options,
    put,
    show,
    show_json,
    table,
)
from softmesh.bench.llama import EXAMPLE, load_example
from softmesh.bench.mlp import MeshMlp, Operands, torch_mlp
from softmesh.bench.torch_llama import PlainLlama
from softmesh.runtime.torch_device import chosen_torch_device

OURS, TORCH, GRAPH, JAX = "softmesh", "torch", "torch, CUDA graph", "JAX"
Call = Callable[[], object]
_ALL = 8  # devices


@dataclass(frozen=True)
class Effort:
    rounds: int = 7
    seconds: float = 0.05  # of one peer's turn
    rows: int = 4096
    inner: int = 16384
    sequence: int = 4096
    pieces: tuple[int, ...] = (16, 128)  # MiB of each device
    layers: int = 8
    context: int = 128
    prompt: int = 2048


QUICK = Effort(rounds=2, seconds=0.005, rows=256, inner=512, sequence=256, pieces=(1,), layers=1, context=32, prompt=64)


@dataclass(frozen=True)
class Row:
    work: str
    peer: str
    us: float
    rate: float  # in `unit`
    unit: str
    of_reference: float  # the reference's time over this one's, or the share of a copy's rate
    reference: str


def on_card(call: Call, seconds: float) -> Callable[[], float]:
    """A peer whose turn ends when the card has done its work."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(1, min(1000, round(seconds / max(time.perf_counter() - start, 1e-7))))

    def peer() -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / count

    return peer


def compared(
    work: str, calls: Mapping[str, Call], amount: float, unit: str, effort: Effort, references: Mapping[str, str]
) -> list[Row]:
    """`amount` of work in a call, whose rate is told; each peer's reference is another peer."""
    seen = interleave({name: on_card(call, effort.seconds) for name, call in calls.items()}, effort.rounds)
    rows = []
    for name, timing in seen.items():
        reference = references.get(name, name)
        share = 1 / timing.relative_to(seen[reference])
        rows.append(Row(work, name, timing.median * 1e6, amount / timing.median, unit, share, reference))
    return rows


def _random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


# -- the card ---------------------------------------------------------------------------------------


def card_rates(effort: Effort) -> list[Row]:
    data = torch.empty(1 << (26 if effort is QUICK else 31), device="cuda", dtype=torch.uint8).random_()
    side = 1024 if effort is QUICK else 8192
    a, b = _random(side, side), _random(side, side)
    wide = a.float()
    copied, flops = 2 * data.nbytes / 1e9, 2 * side**3 / 1e12
    return [
        *compared(f"copy, {data.nbytes >> 20} MiB", {TORCH: data.clone}, copied, "GB/s", effort, {}),
        *compared(f"bfloat16 GEMM, {side} cubed", {TORCH: lambda: a @ b}, flops, "TFLOP/s", effort, {}),
        *compared(f"float32 GEMM, {side} cubed", {TORCH: lambda: wide @ wide}, flops, "TFLOP/s", effort, {}),
    ]


# -- products ---------------------------------------------------------------------------------------


def mlps(mesh: ttnn.MeshDevice, effort: Effort) -> list[Row]:
    operands = Operands.random(effort.rows, effort.rows, effort.inner).to(torch.bfloat16)
    kept = Operands(*(value.cuda() for value in vars(operands.in_torchs_order()).values()))
    flops = 4 * effort.rows**2 * effort.inner / 1e12
    rows = []
    for form, name in (("data", "data-parallel"), ("all_reduce", "tensor-parallel")):
        calls: dict[str, Call] = {OURS: MeshMlp(mesh, operands, "bfloat16", form), TORCH: lambda: torch_mlp(kept)}
        if form == "data" and (in_jax := _jax_mlp(operands)) is not None:
            calls[JAX] = in_jax
        work = f"MLP {effort.rows} x {effort.rows} x {effort.inner}, {name}"
        rows += compared(work, calls, flops, "TFLOP/s", effort, dict.fromkeys(calls, TORCH))
    return rows


def _jax_mlp(o: Operands) -> Call | None:
    """The same, jitted, on the same card; None where there is no JAX that sees it."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
        import jax.numpy as jnp

        if jax.default_backend() != "gpu":
            return None
        x, w1, b1, w2, b2 = (jnp.asarray(v.float().numpy(), dtype=jnp.bfloat16) for v in vars(o).values())
    except Exception:  # whatever ails it, the others are measured
        return None
    run = jax.jit(lambda x, w1, b1, w2, b2: jax.nn.gelu(x @ w1 + b1, approximate=False) @ w2 + b2)
    return lambda: run(x, w1, b1, w2, b2).block_until_ready()


def attention(mesh: ttnn.MeshDevice, effort: Effort) -> list[Row]:
    heads, width, length = 32, 128, effort.sequence
    values = [torch.randn(1, heads, length, width).bfloat16() for _ in range(3)]
    q, k, v = (put(value, "bfloat16", mesh, ttnn.ShardTensorToMesh(mesh, dim=1)) for value in values)
    q_t, k_t, v_t = (value.cuda() for value in values)
    calls: dict[str, Call] = {
        OURS: lambda: ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True),
        TORCH: lambda: F.scaled_dot_product_attention(q_t, k_t, v_t, is_causal=True),
    }
    flops = 2 * heads * length**2 * width / 1e12
    work = f"causal attention, {heads} heads, {length} tokens"
    return compared(work, calls, flops, "TFLOP/s", effort, dict.fromkeys(calls, TORCH))


# -- small ops --------------------------------------------------------------------------------------


def small_ops(mesh: ttnn.MeshDevice, effort: Effort) -> list[Row]:
    values = torch.randn(1, 1, 32, 256), torch.randn(256, 256) / 16, torch.ones(1, 1, 1, 256)
    x, w, g = (put(value.bfloat16(), "bfloat16", mesh, ttnn.ReplicateTensorToMesh(mesh)) for value in values)
    x_t, w_t, g_t = (value.bfloat16().cuda() for value in values)

    def on_mesh() -> ttnn.Tensor:
        y = x
        for _ in range(20):
            y = ttnn.add(y, ttnn.rms_norm(ttnn.silu(ttnn.linear(y, w)), weight=g, epsilon=1e-5))
        return y

    def in_torch() -> torch.Tensor:
        y = x_t
        for _ in range(20):
            y = y + F.rms_norm(F.silu(y @ w_t), (256,), g_t.view(256), 1e-5)
        return y

    eager: dict[str, Call] = {f"{OURS}, eager": on_mesh, TORCH: in_torch}
    rows = compared("80 small ops", eager, 80.0, "ops/s", effort, {f"{OURS}, eager": TORCH})
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        in_torch()
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    held = on_mesh()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)

    def replay() -> None:
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)

    replay()
    replayed: dict[str, Call] = {f"{OURS}, trace": replay, GRAPH: graph.replay}
    rows += compared("80 small ops", replayed, 80.0, "ops/s", effort, {f"{OURS}, trace": GRAPH})
    ttnn.release_trace(mesh, trace)
    assert held.is_allocated()
    return rows


# -- bandwidth --------------------------------------------------------------------------------------


def bandwidths(mesh: ttnn.MeshDevice, effort: Effort, copied: float) -> list[Row]:
    """`copied`: bytes per second, read and written, of a large copy."""
    rows: list[Row] = []
    for mib in effort.pieces:
        for dtype, (_, torch_dtype) in DTYPES.items():
            columns = 4096
            height = (mib << 20) // torch_dtype.itemsize // columns
            values = torch.randn(_ALL * height, columns).to(torch_dtype)
            a, b = (put(values, dtype, mesh, ttnn.ShardTensorToMesh(mesh, dim=0)) for _ in range(2))
            for name, (call, moved) in _moving(a, b, mib << 20).items():
                timing = interleave({OURS: on_card(call, effort.seconds)}, effort.rounds)[OURS]
                rate = moved / timing.median
                work = f"{name}, {dtype}, {_ALL} x {mib} MiB"
                rows.append(Row(work, OURS, timing.median * 1e6, rate / 1e9, "GB/s", rate / copied, "copy"))
    return rows


def _moving(a: ttnn.Tensor, b: ttnn.Tensor, piece: int) -> dict[str, tuple[Call, int]]:
    """Ops on pieces of so many bytes, with the bytes that they must read and write."""
    return {
        "all_reduce": (lambda: ttnn.all_reduce(a), (_ALL + 1) * piece),
        "reduce_scatter": (lambda: ttnn.reduce_scatter(a, dim=0), (_ALL + 1) * piece),
        "gelu": (lambda: ttnn.gelu(a), 2 * _ALL * piece),
        "add": (lambda: ttnn.add(a, b), 3 * _ALL * piece),
    }


# -- Llama ------------------------------------------------------------------------------------------


def _weights(example: dict[str, Any], sizes: Any) -> dict[str, torch.Tensor]:
    """On the card, drawn there."""
    shapes = example["shapes"](sizes)
    return {
        name: torch.ones(shape, device="cuda", dtype=torch.bfloat16)
        if len(shape) == 1
        else torch.randn(shape, device="cuda", dtype=torch.bfloat16).mul_(shape[-1] ** -0.5)
        for name, shape in shapes
    }


def llama(
    mesh: ttnn.MeshDevice, example: dict[str, Any], sizes: Any, users: int, context: int, effort: Effort, name: str
) -> list[Row]:
    """A step of users that have `context` tokens behind them; of one user, a prompt first."""
    length = context + _ROOM
    weights = _weights(example, sizes)
    plain = PlainLlama(sizes, weights, users, length)
    parallel = example["TensorParallel"](mesh, ttnn.bfloat16)
    model = example["Transformer"](parallel, sizes, weights, max(length, effort.prompt))
    rows: list[Row] = []
    if users == 1:
        one = example["Generator"](model, 1, effort.prompt, use_trace=False)
        rows = prefill(one, PlainLlama(sizes, weights, 1, effort.prompt), effort.prompt, effort, name)
    generator = example["Generator"](model, users, length, use_trace=True)
    generator.go_on([1] * users, [context] * users)
    plain.tokens.fill_(1)
    plain.positions.fill_(context)
    for _ in range(3):
        generator.step()
    replay = plain.graphed()

    def ours() -> None:
        ttnn.execute_trace(mesh, generator._trace, cq_id=0, blocking=False)

    work = f"{name}: a step of {users} user{'s' * (users > 1)}"
    steady = _held_back(generator, plain, users, context, {OURS: ours, GRAPH: replay})
    rows += compared(work, steady, users, "tokens/s", effort, {OURS: GRAPH})
    generator.release()
    return rows


def prefill(generator: Any, plain: PlainLlama, length: int, effort: Effort, name: str) -> list[Row]:
    prompt = torch.randint(plain.sizes.vocab_size, (length,)).tolist()
    on_gpu = torch.tensor(prompt, device="cuda")
    calls: dict[str, Call] = {
        OURS: lambda: generator._prefill_one(0, [prompt]),  # without a bar of progress
        TORCH: lambda: plain.prefill(on_gpu).cpu(),
    }
    work = f"{name}: a prompt of {length} tokens"
    rows = compared(work, calls, length, "tokens/s", effort, dict.fromkeys(calls, TORCH))
    busy = {peer: _device_seconds(call) for peer, call in calls.items()}
    return rows + [
        Row(f"{work}: device time", peer, taken * 1e6, length / taken, "tokens/s", busy[TORCH] / taken, TORCH)
        for peer, taken in busy.items()
    ]


def _device_seconds(call: Call) -> float:
    """Return how long the card works on one call: the sum over its kernels and copies, without the host's gaps."""
    call()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    return float(sum(event.self_device_time_total for event in seen.key_averages())) / 1e6


_ROOM = 32  # for tokens that follow


def _held_back(generator: Any, plain: PlainLlama, users: int, start: int, calls: Mapping[str, Call]) -> dict[str, Call]:
    """Positions move on with each step; they are put back before the room ends."""
    left = dict.fromkeys(calls, 0)
    room = generator.length - start - 4

    def bounded(name: str, call: Call) -> Call:
        def step() -> None:
            if left[name] <= 0:
                left[name] = room
                if name == OURS:
                    generator.go_on([1] * users, [start] * users)
                else:
                    plain.positions.fill_(start)
            left[name] -= 1
            call()

        return step

    return {name: bounded(name, call) for name, call in calls.items()}


EIGHT_BILLION = "Llama 8B"


def eight_billion(mesh: ttnn.MeshDevice, example: dict[str, Any], effort: Effort, copied: float) -> list[Row]:
    sizes = example["ModelArgs"](
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=128_256,
        rope_theta=500_000.0,
    )
    rows = llama(mesh, example, sizes, 1, effort.context, effort, EIGHT_BILLION)
    read = sum(torch.Size(shape).numel() * 2 for name, shape in example["shapes"](sizes) if "embed" not in name)
    least = read / copied  # seconds: a copy's rate counts what it writes, too
    shares = [
        Row(f"{row.work}: weights", row.peer, row.us, read / row.us / 1e3, "GB/s", least / row.us * 1e6, "copy")
        for row in rows
        if "step" in row.work
    ]
    return rows + shares


def llamas(mesh: ttnn.MeshDevice, folder: Path, effort: Effort, copied: float, with_8b: bool) -> list[Row]:
    example = load_example(folder)
    sizes = example["ModelArgs"](
        hidden_size=1024 if effort is not QUICK else 256,
        intermediate_size=2816 if effort is not QUICK else 512,
        num_hidden_layers=effort.layers,
        num_attention_heads=16 if effort is not QUICK else 8,
        num_key_value_heads=8,
        head_dim=64 if effort is not QUICK else 32,
        vocab_size=32_000 if effort is not QUICK else 512,
    )
    rows = llama(mesh, example, sizes, 32, effort.context, effort, f"Llama of {effort.layers} layers")
    return rows + (eight_billion(mesh, example, effort, copied) if with_8b else [])


# -- the command ------------------------------------------------------------------------------------


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options("gpu", __doc__, "tiny operands and two rounds")
    parser.add_argument("--example", type=Path, default=EXAMPLE, metavar="PATH", help="the folder examples/llama")
    parser.add_argument("--without-8b", action="store_true", help="leave out the model of 8 billion parameters")
    return parser.parse_args(argv)


@contextmanager
def _on_gpu() -> Iterator[None]:
    """SOFTMESH_DEVICE says which; cuda, where it says nothing."""
    before = os.environ.get("SOFTMESH_DEVICE")
    os.environ.setdefault("SOFTMESH_DEVICE", "cuda")
    try:
        yield
    finally:
        if before is None:
            del os.environ["SOFTMESH_DEVICE"]


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(argv)
    effort = QUICK if given.quick else Effort()
    with _on_gpu():
        try:
            device = chosen_torch_device()
        except ttnn.MeshError as error:
            device, why = torch.device("cpu"), str(error)
        else:
            why = "SOFTMESH_DEVICE=cpu keeps it from the GPU. Unset it."
        if device.type != "cuda":
            print(f"softmesh bench gpu: {why}", file=sys.stderr)
            return 2
        parts: dict[str, list[Row]] = {}
        with torch.no_grad(), torch.cuda.device(device):
            parts["The card"] = card_rates(effort)
            copied = parts["The card"][0].rate * 1e9
            with connected_mesh(1, _ALL) as mesh:
                parts["Products"] = mlps(mesh, effort) + attention(mesh, effort)
                parts["Small ops"] = small_ops(mesh, effort)
                parts["Bandwidth"] = bandwidths(mesh, effort, copied)
                parts["Llama"] = llamas(mesh, given.example, effort, copied, not (given.quick or given.without_8b))
    card, today = torch.cuda.get_device_name(device), datetime.now(timezone.utc).date().isoformat()
    if given.json:
        show_json(card=card, date=today, parts={name: [asdict(row) for row in rows] for name, rows in parts.items()})
        return 0
    columns = ["work", "peer", "time", "rate", "of the reference", "reference"]
    ratios = {"of the reference": HIGHER}
    tables = [table(name, columns, [*map(_cells, rows)], words=2, ratios=ratios) for name, rows in parts.items()]
    return show(f"{card}, CUDA {torch.version.cuda}; {machine()}; {today}", *tables, against=given.against)


def _cells(row: Row) -> list[str]:
    us = f"{row.us:,.0f} us" if row.us < 10_000 else f"{row.us / 1e3:,.1f} ms"
    share = "" if row.reference == row.peer else f"{row.of_reference * 100:.0f} %"
    return [row.work, row.peer, us, f"{row.rate:,.0f} {row.unit}", share, row.reference if share else ""]


if __name__ == "__main__":
    sys.exit(main())
