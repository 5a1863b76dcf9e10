"""Imports every module that defines an op, which registers them all: one import for each family."""

from __future__ import annotations

from softmesh.ops import python_protocols, tensor_methods, tensor_operators
from softmesh.ops.attention import (
    chunked_prefill,
    decode,
    linear_recurrences,
    model_qkv_heads,
    paged_decode,
    prefill,
    qkv_heads,
    sequence_parallel,
    sparse_attention,
)
from softmesh.ops.conv import conv2d, conv3d, conv_weights
from softmesh.ops.creation import creation
from softmesh.ops.data_movement import (
    image_layout,
    layout_conversion,
    movement_backward,
    reshaping,
    resharding,
    scatter,
    shape_ops,
    slice_and_pad,
)
from softmesh.ops.elementwise import (
    activations,
    binary,
    binary_backward,
    complex_tensors,
    fp8_quantization,
    in_place,
    quantization,
    ternary,
    unary,
    unary_backward,
)
from softmesh.ops.embedding import embedding, rotary_embedding
from softmesh.ops.golden import golden_functions as golden
from softmesh.ops.kv_cache import kv_cache, padded_kv_cache, paged_kv_cache
from softmesh.ops.matmul import matmul, sparse_matmul
from softmesh.ops.moe import gates, routed_experts
from softmesh.ops.moreh import losses as moreh_losses
from softmesh.ops.moreh import movement as moreh_movement
from softmesh.ops.moreh import norms as moreh_norms
from softmesh.ops.moreh import optimizers as moreh_optimizers
from softmesh.ops.moreh import products as moreh_products
from softmesh.ops.moreh import reductions as moreh_reductions
from softmesh.ops.normalization import batch_norm, group_norm, layer_and_rms_norm, softmax
from softmesh.ops.pool import image_sampling, pooling
from softmesh.ops.public_names import register_quasar_names
from softmesh.ops.random import dropout_and_sampling
from softmesh.ops.reduction import losses, reduction

register_quasar_names()
