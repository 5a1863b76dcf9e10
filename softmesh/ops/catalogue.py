"""Imports every module that defines an op, which registers them all: one import for each family."""

from __future__ import annotations

from softmesh.ops import tensor_operators  # noqa: F401
from softmesh.ops.attention import (
    chunked_prefill,  # noqa: F401
    decode,  # noqa: F401
    linear_recurrences,  # noqa: F401
    model_qkv_heads,  # noqa: F401
    paged_decode,  # noqa: F401
    prefill,  # noqa: F401
    qkv_heads,  # noqa: F401
    sequence_parallel,  # noqa: F401
    sparse_attention,  # noqa: F401
)
from softmesh.ops.conv import (
    conv2d,  # noqa: F401
    conv3d,  # noqa: F401
    conv_weights,  # noqa: F401
)
from softmesh.ops.creation import creation  # noqa: F401
from softmesh.ops.data_movement import (
    image_layout,  # noqa: F401
    layout_conversion,  # noqa: F401
    resharding,  # noqa: F401
    scatter,  # noqa: F401
    shape_ops,  # noqa: F401
    slice_and_pad,  # noqa: F401
)
from softmesh.ops.elementwise import (
    activations,  # noqa: F401
    binary,  # noqa: F401
    binary_backward,  # noqa: F401
    fp8_quantization,  # noqa: F401
    in_place,  # noqa: F401
    ternary,  # noqa: F401
    unary,  # noqa: F401
    unary_backward,  # noqa: F401
)
from softmesh.ops.embedding import (
    embedding,  # noqa: F401
    rotary_embedding,  # noqa: F401
)
from softmesh.ops.kv_cache import (
    kv_cache,  # noqa: F401
    padded_kv_cache,  # noqa: F401
    paged_kv_cache,  # noqa: F401
)
from softmesh.ops.matmul import (
    matmul,  # noqa: F401
    sparse_matmul,  # noqa: F401
)
from softmesh.ops.moe import (
    gates,  # noqa: F401
    routed_experts,  # noqa: F401
)
from softmesh.ops.normalization import (
    attention_softmax,  # noqa: F401
    batch_norm,  # noqa: F401
    group_norm,  # noqa: F401
    layer_and_rms_norm,  # noqa: F401
)
from softmesh.ops.pool import (
    image_sampling,  # noqa: F401
    pooling,  # noqa: F401
)
from softmesh.ops.public_names import register_quasar_names
from softmesh.ops.random import dropout_and_sampling  # noqa: F401
from softmesh.ops.reduction import reduction  # noqa: F401

register_quasar_names()
