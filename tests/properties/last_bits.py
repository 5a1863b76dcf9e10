"""docs/last-bits.md, made of what torch computes for each op: `python tests/properties/last_bits.py` writes it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from op_examples import ALIGNED, example, names_with_examples
from strategies import quietly
from torch.utils._python_dispatch import TorchDispatchMode

import softmesh as ttnn
from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.operation import OPERATIONS

PAGE = Path(__file__).parents[2] / "docs" / "last-bits.md"

# torch's functions whose last bit may depend on how many values lie beside one, by what they do.
KINDS = {
    "Products of matrices": (
        *("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "convolution", "linear", "einsum", "matmul"),
        *("mkldnn_linear", "_linear_pointwise", "_scaled_dot_product_flash_attention_for_cpu", "grid_sampler_2d"),
    ),
    "Sums, and what is made of them": (
        *("sum", "mean", "var", "var_mean", "std", "std_mean", "cumsum", "prod", "cumprod", "norm", "logsumexp"),
        *("linalg_vector_norm", "_softmax", "_log_softmax", "avg_pool2d", "_adaptive_avg_pool2d", "native_layer_norm"),
        *("native_group_norm", "_embedding_bag", "index_add", "nll_loss", "mse_loss", "upsample_bilinear2d"),
    ),
    "Functions that are computed by a series": (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "polygamma"),
        *("atan2", "hypot", "pow", "gelu", "silu", "sigmoid", "softplus", "mish", "elu", "celu", "selu", "logit"),
        *("logaddexp", "logaddexp2", "xlogy", "i0", "special_i1", "special_i0e", "rsqrt", "mvlgamma", "glu"),
        *("gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward", "elu_backward", "mish_backward"),
        *("softplus_backward", "_softmax_backward_data", "log_sigmoid_forward", "binary_cross_entropy"),
    ),
}
_INTRODUCTION = """# Where the last bit may differ

One process or several ranks give the same tensors, bit for bit: all collectives, all ops that move, choose or compare
values, integers, and arithmetic that is exact in its last bit. The ops below may differ in the last bits of float32,
and now and then in a rounded bfloat16. torch takes other kernels for other sizes, and adds up in another order. One
process hands it the values of all devices at once, and a rank those of its own.

The same program on the same number of ranks, and on processors of one kind, gives the same bits. On another number it
gives values that agree within the rounding of float32. Differences come where a rank has one device, or where the
elements of a device are no multiple of what a processor takes at once. Compare such results with a tolerance, or in one
process.

What is made of these ops shares this with them: fused collectives such as `experimental.all_gather_matmul_async`,
composite losses, an `activation` of another op, and all backward passes.

A test calls every op, and looks at what torch computes for it. Another compares the block of a rank with the whole, and
holds all other ops to their bits. `python tests/properties/last_bits.py` writes this page.
"""


class _Called(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [value for value in args if isinstance(value, torch.Tensor)]
        is_square = func is torch.ops.aten.pow.Tensor_Scalar and args[1] == 2  # a product, which is exact
        is_check = func is torch.ops.aten.sum.default  # of all devices: it looks for NaN
        if any(value.is_floating_point() and value.dim() for value in given) and not (is_square or is_check):
            self.names.add(func.overloadpacket.__name__.removesuffix("_"))
        return func(*args, **(kwargs or {}))


def kinds() -> dict[str, str]:
    """The kind of each op whose last bit may differ."""
    found = {}
    for name in names_with_examples():
        called = _calls_of(name)
        kind = next((kind for kind, functions in KINDS.items() if called.intersection(functions)), None)
        if kind is not None and not (is_collective(OPERATIONS[name]) and kind.startswith("Sums")):
            found[name] = kind
    by_definition = {id(OPERATIONS[name].definition): kind for name, kind in found.items()}
    second = {name: by_definition.get(id(op.definition)) for name, op in OPERATIONS.items()}  # names of the same ops
    return {name: kind for name, kind in second.items() if kind is not None}


def _calls_of(name: str) -> set[str]:
    one = example(name, ALIGNED)
    with ttnn.lenient(), quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operands = one.placed(dtype=ttnn.float32) if not is_collective(OPERATIONS[name]) else one.placed()
        with _Called() as called:
            try:
                OPERATIONS[name](**operands, **one.options)
            except ttnn.MeshError:  # not of float32
                OPERATIONS[name](**one.placed(), **one.options)
    return called.names


def page(found: dict[str, str]) -> str:
    by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, kind in found.items():
        by_kind[kind].append(name)
    parts = [_INTRODUCTION]
    for kind, names in by_kind.items():
        parts += [f"## {kind}\n", ", ".join(f"`{name}`" for name in sorted(names)) + ".\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(kinds()))
