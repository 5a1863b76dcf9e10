"""Mixtures of experts: where tokens were sent, and where answers are looked for."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

ROWS = ttnn.ROW_MAJOR_LAYOUT
EXPERTS = 8


def put(mesh, values, dtype, mapper=None):
    return ttnn.from_torch(values, dtype=dtype, layout=ROWS, device=mesh, mesh_mapper=mapper)


def mapping(mesh, step=1):
    """Expert e lives on device e * step mod 8."""
    homes = torch.zeros(1, 1, EXPERTS, 8, dtype=torch.int32)
    for expert in range(EXPERTS):
        homes[0, 0, expert, expert * step % 8] = 1
    return put(mesh, homes, ttnn.uint16, ttnn.ReplicateTensorToMesh(mesh))


def dispatched(mesh, homes, highest=EXPERTS):
    """Tokens at their experts, and the metadata."""
    split = ttnn.ShardTensorToMesh(mesh, dim=0)
    tokens = put(mesh, torch.randn(8, 1, 2, 32), ttnn.bfloat16, split)
    chosen = put(mesh, torch.arange(32, dtype=torch.int32).reshape(8, 1, 2, 2) % highest, ttnn.uint16, split)
    return ttnn.all_to_all_dispatch(tokens, chosen, homes, cluster_axis=1)


@mistake(
    Told.WARNING,
    "all_to_all_combine: the tokens were dispatched at",
    "has another expert_mapping_tensor: expert 1 lives on another device there",
    symptom="Tokens get the answers of other experts, or rows that nobody wrote.",
    mend="Give the dispatch and the combine of a layer one mapping.",
)
def answers_are_combined_by_another_mapping(mesh):
    answers, metadata = dispatched(mesh, mapping(mesh))
    ttnn.all_to_all_combine(answers, metadata, mapping(mesh, 3), cluster_axis=1)


@mistake(
    Told.WARNING,
    "all_to_all_combine: the tokens were dispatched at",
    "goes along mesh axis 0, and the tokens went along axis 1",
    symptom="Tokens get the answers to others.",
    mend="Combine along the axis of the dispatch.",
)
def answers_are_combined_along_the_other_axis(mesh):
    homes = mapping(mesh)
    answers, metadata = dispatched(mesh, homes)
    ttnn.all_to_all_combine(answers, metadata, homes, cluster_axis=0)


def remapped(mesh, metadata, homes):
    weights = put(mesh, torch.rand(1, *list(metadata.shape)[1:3], EXPERTS), ttnn.bfloat16)
    ttnn.moe_expert_token_remap(weights, homes, metadata)


@mistake(
    Told.WARNING,
    "moe_expert_token_remap: the tokens were dispatched at",
    "has another expert_mapping_tensor: expert 1 lives on another device there",
    symptom="Answers are scaled by the weights of other experts.",
    mend="Give all calls of a layer one mapping.",
)
def weights_of_experts_are_laid_out_by_another_mapping(mesh):
    remapped(mesh, dispatched(mesh, mapping(mesh))[1], mapping(mesh, 3))


@right
def weights_of_experts_are_laid_out_as_the_tokens_were_dispatched(mesh):
    remapped(mesh, dispatched(mesh, mapping(mesh))[1], mapping(mesh))


@right
def answers_are_combined_as_the_tokens_were_dispatched(mesh):
    """By a mapping of the same values, or one that differs in experts that no token has chosen."""
    answers, metadata = dispatched(mesh, mapping(mesh))
    ttnn.all_to_all_combine(answers, metadata, mapping(mesh), cluster_axis=1)
    answers, metadata = dispatched(mesh, mapping(mesh), highest=1)
    ttnn.all_to_all_combine(answers, metadata, mapping(mesh, 3), cluster_axis=1)
