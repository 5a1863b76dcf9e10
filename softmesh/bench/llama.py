"""A Llama over 1, 8 and 32 devices against the same model in plain torch on one.

    softmesh bench llama [--quick] [--json] [--example PATH] [--device cpu|cuda]

The model is that of examples/llama, with random weights. It prefills the prompts of some users, and decodes one token
of many users; decoding also as a trace. All devices together have the same to do, however many they are. On 32 each
row of the mesh has users of its own; in the rows named 2-D, the four of a column share the hidden dim instead.

torch has a plain cache in place of pages. In bfloat16 it computes in float32 and rounds after each step, as the chips
do. All take turns in one run, and logits are compared with torch's. With `--device cuda` the mesh lies on a GPU, and
torch still on the CPU: `softmesh bench gpu` has a Llama in torch on the card.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.bench.harness import (
    DTYPES,
    LOWER,
    Timing,
    interleave,
    machine,
    options,
    show,
    show_json,
    table,
    timed,
    under_fabric,
)
from softmesh.progress import tracked
from softmesh.runtime.torch_device import chosen_torch_device
from softmesh.tensor.pearson_correlation import pearson_correlation_coefficient

# The workload. The example is no part of the installed package: it is found in the checkout, or where the user says.


EXAMPLE = Path(ttnn.__file__).parent.parent / "examples" / "llama"
Work = Callable[[], object]
_ROOM = 32  # positions beyond the context, for tokens that follow


@dataclass(frozen=True)
class Load:
    """How much there is to do, over all devices together."""

    hidden: int = 1024
    inner: int = 2816
    layers: int = 8
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 64
    vocabulary: int = 32_000
    users: int = 32  # that decode at a time
    context: int = 128  # tokens that each of them has behind it
    prompts: int = 4  # users that are prefilled
    prompt: int = 128  # tokens of each of them

    @property
    def longest(self) -> int:
        return max(self.prompt, self.context + _ROOM)


class Layout(NamedTuple):
    """A mesh, and what its rows share."""

    rows: int
    columns: int
    shares_users: bool = True

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}{'' if self.shares_users else ', 2-D'}"


def load_example(folder: Path) -> dict[str, Any]:
    """The names of the example that the benchmark uses."""
    sys.path.insert(0, str(folder))
    try:
        with aliased():
            wanted = {
                "ModelArgs": "model_args",
                "random_weights": "checkpoint",
                "shapes": "checkpoint",
                "TensorParallel": "tensor_parallel",
                "Transformer": "model",
                "Generator": "generator",
                "TorchLlama": "reference",
            }
            return {
                name: getattr(importlib.import_module(f"tt_llama.{module}"), name) for name, module in wanted.items()
            }
    finally:
        sys.path.remove(str(folder))


class LlamaWork:
    """One model in one dtype: prompts of some users prefilled, one token of many users decoded."""

    def __init__(self, example: dict[str, Any], load: Load, dtype: str) -> None:
        self._example, self.load = example, load
        self._ttnn_dtype, torch_dtype = DTYPES[dtype]
        self._args = example["ModelArgs"](
            hidden_size=load.hidden,
            intermediate_size=load.inner,
            num_hidden_layers=load.layers,
            num_attention_heads=load.heads,
            num_key_value_heads=load.kv_heads,
            head_dim=load.head_dim,
            vocab_size=load.vocabulary,
        )
        self._weights = example["random_weights"](self._args, dtype=torch_dtype)
        self._prefilling, self._decoding = (
            example["TorchLlama"](self._args, self._weights, users, length, torch_dtype)
            for users, length in ((load.prompts, load.prompt), (load.users, load.context + _ROOM))
        )
        draw = torch.Generator().manual_seed(0)
        sizes = load.prompts, load.prompt
        self.prompts: list[list[int]] = torch.randint(load.vocabulary, sizes, generator=draw).tolist()
        self.tokens: list[int] = torch.randint(load.vocabulary, (load.users,), generator=draw).tolist()
        self.positions = [load.context] * load.users

    def torch_prefill(self) -> torch.Tensor:
        """The logits that follow the prompts."""
        return torch.stack([self._prefilling.prefill(user, prompt) for user, prompt in enumerate(self.prompts)])

    def torch_decode(self) -> torch.Tensor:
        """As the mesh does, it ends with the next tokens on the host."""
        logits: torch.Tensor = self._decoding.decode(self.tokens, self.positions)
        logits.argmax(-1).tolist()
        return logits

    @contextmanager
    def on_mesh(self, layout: Layout) -> Iterator[MeshLlama]:
        make, load = self._example["Generator"], self.load
        with ttnn.create_mesh_device(ttnn.MeshShape(layout[:2])) as mesh:
            parallel = self._example["TensorParallel"](mesh, self._ttnn_dtype, shares_users=layout.shares_users)
            model = self._example["Transformer"](parallel, self._args, self._weights, load.longest)
            prefilling = make(model, load.prompts, load.prompt)
            plain, traced = (
                make(model, load.users, load.context + _ROOM, use_trace=traced) for traced in (False, True)
            )
            try:
                yield MeshLlama(self, prefilling, plain, traced)
            finally:
                traced.release()


@dataclass(frozen=True)
class MeshLlama:
    """Generators of the example, one for each way of working."""

    work: LlamaWork
    prefilling: Any
    plain: Any
    traced: Any

    def prefill(self) -> torch.Tensor:
        logits: torch.Tensor = self.prefilling.logits_after(self.work.prompts)
        return logits

    def decode(self) -> list[int]:
        return self._step(self.plain)

    def replay(self) -> list[int]:
        return self._step(self.traced)

    def _step(self, generator: Any) -> list[int]:
        generator.go_on(self.work.tokens, self.work.positions)
        tokens: list[int] = generator.step()
        return tokens

    def logits(self, *, traced: bool) -> torch.Tensor:
        """Of the latest step, (users, vocabulary)."""
        generator = self.traced if traced else self.plain
        logits: torch.Tensor = generator.model.tp.read(generator.logits, users=2)
        return logits.flatten(0, 2)


TORCH = "torch"
ALONE = Layout(1, 1)
_LEAST_CORRELATION = 0.999


@dataclass(frozen=True)
class Effort:
    load: Load = field(default_factory=Load)
    meshes: tuple[Layout, ...] = (Layout(1, 1), Layout(1, 8), Layout(4, 8), Layout(4, 8, shares_users=False))
    rounds: int = 9


QUICK = Effort(
    Load(
        hidden=256,
        inner=512,
        layers=1,
        heads=8,
        head_dim=32,
        vocabulary=512,
        users=2,
        context=32,
        prompts=2,
        prompt=32,
    ),
    meshes=(Layout(1, 1), Layout(1, 2), Layout(2, 4), Layout(2, 4, shares_users=False)),
    rounds=2,
)


@dataclass(frozen=True)
class Row:
    phase: str
    dtype: str
    peer: str
    milliseconds: float
    tokens_per_second: float
    time_over_torch: float
    time_over_one_device: float | None  # run the same way
    correlation: float  # of logits with torch's

    @property
    def agrees(self) -> bool:
        return self.correlation > _LEAST_CORRELATION


def measure(example: dict[str, Any], effort: Effort, dtype: str) -> list[Row]:
    work = LlamaWork(example, effort.load, dtype)
    with ExitStack() as stack:
        meshes = {layout: stack.enter_context(work.on_mesh(layout)) for layout in effort.meshes}
        return [*_prefills(work, meshes, effort, dtype), *_decodes(work, meshes, effort, dtype)]


def _prefills(work: LlamaWork, meshes: dict[Layout, MeshLlama], effort: Effort, dtype: str) -> list[Row]:
    expected = work.torch_prefill()
    logits = {str(layout): mesh.prefill() for layout, mesh in meshes.items()}
    calls: dict[str, Work] = {TORCH: work.torch_prefill}
    calls |= {str(layout): mesh.prefill for layout, mesh in meshes.items()}
    seen = interleave({name: timed(call) for name, call in calls.items()}, effort.rounds)
    found = {name: _correlation(expected, values) for name, values in logits.items()}
    return _rows(
        "prefill",
        dtype,
        seen,
        found,
        dict.fromkeys(logits, _named(ALONE)),
        effort.load.prompts * effort.load.prompt,
    )


def _decodes(work: LlamaWork, meshes: dict[Layout, MeshLlama], effort: Effort, dtype: str) -> list[Row]:
    expected = work.torch_decode()
    calls: dict[str, Work] = {TORCH: work.torch_decode}
    found: dict[str, float] = {}
    alone: dict[str, str] = {}
    for layout, mesh in meshes.items():
        for traced, call in ((False, mesh.decode), (True, mesh.replay)):
            name = _named(layout, traced)
            calls[name] = call
            call()
            found[name] = _correlation(expected, mesh.logits(traced=traced))
            alone[name] = _named(ALONE, traced)
    seen = interleave({name: timed(call) for name, call in calls.items()}, effort.rounds)
    return _rows("decode", dtype, seen, found, alone, effort.load.users)


def _named(layout: Layout, traced: bool = False) -> str:
    return f"{layout}{', trace' if traced else ''}"


def _correlation(expected: torch.Tensor, found: torch.Tensor) -> float:
    return pearson_correlation_coefficient(expected.float(), found.float())


def _rows(
    phase: str,
    dtype: str,
    seen: dict[str, Timing],
    found: dict[str, float],
    alone: dict[str, str],
    tokens: int,
) -> list[Row]:
    """`alone` names for each peer the one device that it is compared with."""
    return [
        Row(
            phase,
            dtype,
            name,
            timing.median * 1e3,
            tokens / timing.median,
            timing.relative_to(seen[TORCH]),
            timing.relative_to(seen[alone[name]]) if name in alone else None,
            found.get(name, 1.0),
        )
        for name, timing in seen.items()
    ]


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            r.phase,
            r.dtype,
            r.peer,
            f"{r.milliseconds:.1f}",
            f"{r.tokens_per_second:,.0f}",
            f"{r.time_over_torch:.2f}",
            "" if r.time_over_one_device is None else f"{r.time_over_one_device:.2f}",
            f"{r.correlation:.5f}{'' if r.agrees else ' (!)'}",
        ]
        for r in rows
    ]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options("llama", __doc__, "a tiny model and two rounds")
    parser.add_argument(
        "--example",
        type=Path,
        default=EXAMPLE,
        metavar="PATH",
        help="the folder examples/llama of a checkout",
    )
    parser.add_argument("--device", metavar="NAME", help="where the mesh lies, as SOFTMESH_DEVICE says it: cpu, cuda")
    given = parser.parse_args(argv)
    if not (given.example / "tt_llama").is_dir():
        parser.error(
            f"{given.example} does not hold the model: the examples are no part of the installed package. "
            "Name the folder examples/llama of a checkout: --example PATH."
        )
    return given


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(argv)
    if given.device is not None:
        os.environ["SOFTMESH_DEVICE"] = given.device
    try:
        chosen_torch_device()
    except ttnn.MeshError as error:
        print(f"softmesh bench llama: {error}", file=sys.stderr)
        return 2
    effort = QUICK if given.quick else Effort()
    example = load_example(given.example)
    with under_fabric():
        rows = [row for dtype in tracked(list(DTYPES), "a Llama") for row in measure(example, effort, dtype)]
    fell = present(rows, effort.load, given)
    return fell if all(row.agrees for row in rows) else 1


def present(rows: Sequence[Row], load: Load, given: argparse.Namespace) -> int:
    if given.json:
        show_json(load=asdict(load), rows=[asdict(row) for row in rows])
        return 0
    title = (
        f"Llama of {load.layers} layers of {load.hidden}: prefill of {load.prompts} x {load.prompt} tokens, "
        f"decode for {load.users} users with {load.context} behind them"
    )
    columns = ["phase", "dtype", "mesh", "ms", "tokens/s", "time / torch", "time / 1 device", "correlation"]
    remarks = (
        [f"(!) correlates with torch's logits by less than {_LEAST_CORRELATION}."]
        if not all(row.agrees for row in rows)
        else []
    )
    return show(
        machine(),
        table(title, columns, table_rows(rows), words=3, ratios={"time / torch": LOWER}),
        *remarks,
        against=given.against,
    )


if __name__ == "__main__":
    sys.exit(main())
