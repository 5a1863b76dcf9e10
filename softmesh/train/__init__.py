"""Training on a mesh: gradients per device, explicit collectives, and the parallel forms of a model.

mesh.axis_names = ("dp", "tp")
loss = cross_entropy(model(ids), targets)
loss.backward()
sync_gradients(model, axes=["dp"])
optimizer.step()
"""

from __future__ import annotations

from torch import enable_grad, no_grad

from softmesh.autograd.function import Function, recomputed
from softmesh.train import checkpoints, schedules
from softmesh.train.axes import axis_number, axis_size, mapper, on_mesh
from softmesh.train.check import CheckFailed, Finding, Report, check
from softmesh.train.collectives import (
    all_gather,
    all_reduce,
    broadcast,
    reduce_scatter,
    ring_shift,
    scatter,
)
from softmesh.train.context_parallel import (
    ContextParallelAttention,
    ContextParallelBlock,
    PositionalEmbedding,
    positions,
    ring_attention,
)
from softmesh.train.finite_checks import NotFiniteGradient, NotFiniteLoss
from softmesh.train.fsdp import fully_shard
from softmesh.train.gradients import clip_grad_norm, sync_gradients
from softmesh.train.layers import (
    MLP,
    ColumnParallelLinear,
    Embedding,
    Initial,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    RMSNorm,
    RowParallelLinear,
    TransformerBlock,
    VocabParallelEmbedding,
)
from softmesh.train.losses import cross_entropy, loss_value, mse_loss, vocab_parallel_cross_entropy
from softmesh.train.module import Module, Sequential, parameter, zero_gradients
from softmesh.train.optimizers import SGD, AdamW, Optimizer
from softmesh.train.pipeline import Pipeline, Stage
from softmesh.train.schedules import Scheduler
from softmesh.train.trainer import Trainer, TrainerCallback

__all__ = [
    "check",
    "Report",
    "Finding",
    "CheckFailed",
    "Trainer",
    "Stage",
    "Pipeline",
    "NotFiniteLoss",
    "NotFiniteGradient",
    "TrainerCallback",
    "checkpoints",
    "MLP",
    "SGD",
    "AdamW",
    "ColumnParallelLinear",
    "ContextParallelAttention",
    "ContextParallelBlock",
    "Embedding",
    "Function",
    "Initial",
    "LayerNorm",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "Optimizer",
    "PositionalEmbedding",
    "RMSNorm",
    "RowParallelLinear",
    "Scheduler",
    "Sequential",
    "TransformerBlock",
    "VocabParallelEmbedding",
    "all_gather",
    "all_reduce",
    "axis_number",
    "axis_size",
    "broadcast",
    "clip_grad_norm",
    "cross_entropy",
    "enable_grad",
    "fully_shard",
    "loss_value",
    "mapper",
    "mse_loss",
    "no_grad",
    "on_mesh",
    "parameter",
    "positions",
    "recomputed",
    "reduce_scatter",
    "ring_attention",
    "ring_shift",
    "scatter",
    "schedules",
    "sync_gradients",
    "vocab_parallel_cross_entropy",
    "zero_gradients",
]
