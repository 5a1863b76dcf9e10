"""Operands that belong together, part by part, and are not split alike: targets, caches, masks."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh import train

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
attend = ttnn.transformer.scaled_dot_product_attention


def split(mesh, dim=None, shape=(128, 64), rows=None, dtype=ttnn.float32):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(rows, dim))
    return ttnn.from_torch(torch.rand(*shape), dtype, layout=TILES, device=mesh, mesh_mapper=mapper)


def numbers(mesh, dim=None, shape=(8, 32)):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, dim))
    zeros = torch.zeros(*shape, dtype=torch.int32)
    return ttnn.from_torch(zeros, ttnn.uint32, layout=ROWS, device=mesh, mesh_mapper=mapper)


# -- losses --------------------------------------------------------------------------------------------

OF_OTHERS = "The loss does not fall: most samples are compared with the targets of others."
ALIKE = "Split inputs and targets with the same mapper."


@mistake(
    Told.STRICT,
    "mse_loss: over mesh axis 1 dim 0 of the predictions [32, 64] is split, and no dim of the targets",
    symptom=OF_OTHERS,
    mend=ALIKE,
)
def targets_are_not_split_as_the_batch_is(mesh):
    train.mse_loss(split(mesh, 0), split(mesh, shape=(32, 64)))


@mistake(
    Told.STRICT,
    "cross_entropy: over mesh axis 1 dim 0 of the predictions [2, 1, 32, 64] is split, and no dim of the targets",
    symptom=OF_OTHERS,
    mend=ALIKE,
)
def numbers_of_tokens_are_not_split_as_the_batch_is(mesh):
    train.cross_entropy(split(mesh, 0, (8, 1, 32, 64)), numbers(mesh, shape=(2, 32)))


@mistake(
    Told.STRICT,
    "mse_loss: over mesh axis 0 no dim of the predictions [32, 64] is split, and dim 0 of the targets [32, 64]",
    symptom=OF_OTHERS,
    mend=ALIKE,
)
def targets_are_split_over_the_other_axis(mesh):
    ttnn.mse_loss(split(mesh, 0), split(mesh, None, (64, 64), rows=0))


@right
def targets_are_split_as_the_batch_is(mesh):
    train.mse_loss(split(mesh, 0), split(mesh, 0))
    ttnn.mse_loss(split(mesh, 0), split(mesh, 0))
    train.cross_entropy(split(mesh, 0, (8, 1, 32, 64)), numbers(mesh, 0))
    train.mse_loss(split(mesh), split(mesh))


# -- caches --------------------------------------------------------------------------------------------


def cache(mesh, dim):
    return split(mesh, dim, (4, 8, 128, 32), dtype=ttnn.bfloat16)


def token(mesh, dim, heads=8):
    """One row for each of four users."""
    return split(mesh, dim, (1, heads, 4, 32), dtype=ttnn.bfloat16)


@mistake(
    Told.STRICT,
    "update_cache: dim 2, the sequence, of the cache is split over mesh axis 1",
    "writes to the same place of its own part",
    symptom="Each token is in the cache once for each device, and most places stay empty.",
    mend="Split the cache by heads or users.",
)
def a_token_is_written_to_every_part_of_a_sequence(mesh):
    ttnn.update_cache(cache(mesh, 2), token(mesh, None), 5)


@mistake(
    Told.STRICT,
    "update_cache: dim 1, the heads, of the cache is split over mesh axis 1",
    "is the same on all devices",
    symptom="All devices attend to the keys of the first heads.",
    mend="Split the weights of keys and values by heads.",
)
def the_same_heads_are_written_to_all_parts_of_a_cache(mesh):
    ttnn.update_cache(cache(mesh, 1), token(mesh, None, heads=2), 5)


@mistake(
    Told.STRICT,
    "fill_cache: over mesh axis 1 dim 1 of the cache [4, 2, 128, 32] is split, and dim 2 of what is written",
    symptom="Heads and places of the sequence are mixed up.",
    mend="Split both by heads, or both by users.",
)
def a_prompt_in_parts_is_written_to_a_cache_by_heads(mesh):
    ttnn.fill_cache(cache(mesh, 1), split(mesh, 2, (1, 2, 512, 32), dtype=ttnn.bfloat16), 0)


@right
def a_cache_is_split_as_what_is_written_to_it(mesh):
    ttnn.update_cache(cache(mesh, 1), token(mesh, 1), 5)
    ttnn.update_cache(cache(mesh, None), token(mesh, None), 5)
    ttnn.fill_cache(cache(mesh, 1), split(mesh, 1, (1, 8, 128, 32), dtype=ttnn.bfloat16), 0)
    ttnn.fill_cache(cache(mesh, 2), split(mesh, 2, (1, 8, 128, 32), dtype=ttnn.bfloat16), 0)


# -- masks ---------------------------------------------------------------------------------------------


def masked(mesh, dim, rows):
    keys = split(mesh, shape=(1, 8, 128, 32))
    mask = split(mesh, dim, (1, 1, rows, 128))
    attend(split(mesh, 2, (1, 8, 128, 32)), keys, keys, is_causal=False, attn_mask=mask)


@mistake(
    Told.STRICT,
    "scaled_dot_product_attention: dim 2 of the queries is split over mesh axis 1, and the mask [1, 1, 32, 128]",
    symptom="Later parts of the sequence see what the first one may see.",
    mend="Split the mask along the queries.",
)
def a_mask_of_the_first_queries_in_attention(mesh):
    masked(mesh, None, 32)


@right
def a_mask_that_is_split_as_the_queries_are(mesh):
    masked(mesh, 2, 128)
    heads = split(mesh, 1, (1, 8, 128, 32))
    attend(heads, heads, heads, is_causal=False, attn_mask=split(mesh, shape=(1, 1, 128, 128)))


# -- heads ---------------------------------------------------------------------------------------------


@mistake(
    Told.STRICT,
    "scaled_dot_product_attention: dim 1, the heads, of the queries [1, 2, 128, 32] is split over mesh axis 1",
    "begins at the first heads of the keys",
    symptom="All queries attend to the first heads of the keys.",
    mend="Split keys and values by heads, as the queries; repeat their heads first where there are fewer than devices.",
)
def queries_are_split_by_heads_and_keys_are_not(mesh):
    keys = split(mesh, shape=(1, 2, 128, 32))
    attend(split(mesh, 1, (1, 8, 128, 32)), keys, keys, is_causal=True)


@right
def one_head_of_keys_serves_all_queries(mesh):
    keys = split(mesh, shape=(1, 1, 128, 32))
    attend(split(mesh, 1, (1, 8, 128, 32)), keys, keys, is_causal=True)
    keys = split(mesh, 1, (1, 4, 128, 32))
    attend(split(mesh, 1, (1, 8, 128, 32)), keys, keys, is_causal=True)
