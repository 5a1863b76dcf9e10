"""The kind of an op by its name: `LayerNormDeviceOperation`, `ttnn.rms_norm` and `ds_rms_norm` are norms.

Measurement tables name ops as profilers, programs and models do; the words in a name are what they have in common.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache


class OpKind(Enum):
    EXPERTS = "experts"
    COLLECTIVE = "collective"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    PRODUCT = "product"
    SELECTION = "selection"
    NORM = "norm"
    REDUCTION = "reduction"
    MOVEMENT = "movement"
    ELEMENTS = "elements"


_WORDS = (  # the first kind of which a name has a word counts
    (OpKind.EXPERTS, "expert moe combine dispatch routing"),
    (OpKind.ATTENTION, "scaleddotproduct sdpa flash mla attention"),
    (OpKind.NORM, "norm softmax"),
    (OpKind.ELEMENTS, "rotary rope"),
    (
        OpKind.COLLECTIVE,
        "allgather reducescatter allreduce alltoall broadcast pointtopoint neighborpad ccl reducetoroot",
    ),
    (
        OpKind.MOVEMENT,
        "heads createqkv splitqueryandkey meshpartition embedding cache halo im2col interleavedto shardedto toshard "
        "reshard tilize tolayout tomemoryconfig upsample prefetch",
    ),
    (OpKind.CONVOLUTION, "conv"),
    (OpKind.PRODUCT, "matmul linear gemm bmm addmm ff1 ff2 ff3 ffn mlp lmhead qkv mm"),
    (OpKind.SELECTION, "topk argmax argmin sampling sort multinomial"),
    (
        OpKind.MOVEMENT,
        "move copy clone assign transpose permute reshape view slice split chunk concat stack pad repeat expand fold "
        "gather scatter fill full zeros ones arange indexed squeeze narrow roll",
    ),
    (
        OpKind.ELEMENTS,
        "binary unary ternary typecast eltwise elementwise plusone where dropout exp gelu silu relu tanh "
        "sigmoid sqrt recip log pow sin cos erf abs neg sign square add mul sub div maximum minimum clamp clip compare "
        "equal greater less bitwise rand softplus swish glu mish lerp quant bcast",
    ),
    (OpKind.REDUCTION, "reduce mean sum prod var std pool cumsum accumulation max min"),
)
_LAYOUT = ("deviceoperation", "operation", "async", "device")  # of a profiler, not of the op


@lru_cache(maxsize=4096)
def plain_name(op: str) -> str:
    """Without namespaces, signs and what all device operations are called.

    >>> plain_name("ttnn::operations::ccl::AllGatherAsyncDeviceOperation"), plain_name("ttnn.rms_norm (fused)")
    ('allgather', 'rmsnorm')
    """
    plain = re.sub(r"\(.*?\)", "", op).strip().lower()
    plain = re.split(r"::|\.(?=[a-z])", plain)[-1]
    plain = re.sub(r"[^a-z0-9]", "", plain)
    for word in _LAYOUT:
        plain = plain.replace(word, "")
    return plain


@lru_cache(maxsize=4096)
def kind_of(plain: str) -> OpKind | None:
    """Of a plain name; None where no word is known.

    >>> [kind_of(name).value for name in ("layernormpreallgather", "reducescattercreateheads", "binaryng", "dsff2")]
    ['norm', 'collective', 'elements', 'product']
    """
    for kind, words in _WORDS:
        if any(word in plain for word in words.split()):
            return kind
    return None
