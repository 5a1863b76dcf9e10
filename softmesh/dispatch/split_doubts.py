"""Doubts of ops that work along a dim which is split over devices: each takes its own part for the whole.

All of them are told under SOFTMESH_STRICT=1 only: a device may be meant to work on its part alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from softmesh.fabric import settings
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Shard

_NORMALIZING = frozenset(
    (
        *("softmax", "softmax_in_place", "scale_mask_softmax", "scale_mask_softmax_in_place"),
        *("scale_causal_mask_hw_dims_softmax_in_place", "transformer.attention_softmax"),
        *("transformer.attention_softmax_", "moreh_softmax", "moreh_softmin", "moreh_logsoftmax"),
        *("layer_norm", "rms_norm", "group_norm", "moreh_layer_norm", "moreh_group_norm", "moreh_norm"),
        *("normalize_hw", "normalize_global", "prim.batch_statistics", "experimental.dit_rms_norm_unary_fused"),
    )
)
_CHOOSING = frozenset(("argmax", "topk", "sort", "sampling", "nonzero", "experimental.topk_large_indices"))
_HALO = frozenset(
    (
        *("conv2d", "conv_transpose2d", "experimental.conv3d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"),
        *("adaptive_max_pool2d", "upsample", "grid_sample", "rotate"),
    )
)
_OWN_PLACES = "counts places from the start of its own part"
_ATTENDING = "attends to its own part only"
_PIECES = "cuts its own part into pieces, which are not in order those of the whole"
_REPEATED = "repeats its own part, so that the repetitions of one part stand before the next part"
_ALONG = {  # what each device does with its part
    **dict.fromkeys(
        ("cumsum", "cumprod", "moreh_cumsum", "ema", "experimental.prefix_scan", "experimental.intimg"),
        "begins anew at the start of its own part",
    ),
    **dict.fromkeys(("std", "var", "std_hw", "var_hw"), "takes the mean and the deviation of its own part"),
    "roll": "moves what leaves its own part to the other end of it, and not to its neighbour",
    **dict.fromkeys(("gather", "scatter", "scatter_add", "index_fill", "index_fill_new", "indexed_fill"), _OWN_PLACES),
    **dict.fromkeys(("tosa_gather", "tosa_scatter", "moreh_getitem", "tril", "triu"), _OWN_PLACES),
    **dict.fromkeys(
        (
            *("scaled_dot_product_attention", "scaled_dot_product_attention_decode", "flash_mla_prefill"),
            *("paged_scaled_dot_product_attention_decode", "chunked_scaled_dot_product_attention"),
            *("joint_scaled_dot_product_attention", "flash_multi_latent_attention_decode"),
            *("paged_flash_multi_latent_attention_decode", "chunked_flash_mla_prefill", "sparse_sdpa"),
        ),
        _ATTENDING,
    ),
    "chunk_gated_delta_rule": "begins anew at the start of its own part",
    "embedding": "looks up numbers that count from the first row of the whole table in its own rows",
    **dict.fromkeys(
        ("slice", "narrow", "experimental.padded_slice"), "cuts these places out of its own part, not out of the whole"
    ),
    **dict.fromkeys(("split", "chunk", "glu", "reglu", "geglu", "swiglu", "situ_glu"), _PIECES),
    **dict.fromkeys(
        ("concat", "stack"), "joins its own parts, so that the tensors lie part by part between each other"
    ),
    **dict.fromkeys(("repeat", "expand", "experimental.broadcast_to"), _REPEATED),
    **dict.fromkeys(("pad", "tilize_with_val_padding"), "pads its own part, so that padding stands between the parts"),
    **dict.fromkeys(
        ("reshape", "view", "experimental.view"), "reshapes its own part, and the parts are no longer split along a dim"
    ),
    **dict.fromkeys(
        ("experimental.rotary_embedding", "experimental.rotary_embedding_llama", "experimental.rotary_embedding_hf"),
        "turns its own part of a head, and the pairs that belong together lie on two devices",
    ),
    **dict.fromkeys(
        ("mse_loss", "l1_loss", "moreh_nll_loss"),
        "takes the loss of its own part, with classes that count from its start",
    ),
}
_PREFIXES = ("experimental.quasar.", "transformer.")
_DISTRIBUTED = {"layer_norm": "layer_norm_pre_all_gather", "rms_norm": "rms_norm_pre_all_gather"}
_COLUMNS = {"rms_norm_post_all_gather": 32, "layer_norm_post_all_gather": 64}  # of each device's statistics
_WITH_ANGLES = (
    "experimental.rotary_embedding",
    "experimental.rotary_embedding_llama",
    "experimental.rotary_embedding_hf",
)


def of_split_dims(
    op: str, operands: Sequence[tuple[Sequence[int], Distribution]], made: Distribution, is_opaque: bool = False
) -> Iterator[str]:
    """An op whose result is no part of a whole, though each of its operands is.

    `is_opaque`: its rule does not tell along which dim it works, which is most often the last.
    """
    last = len(operands[0][0]) - 1
    for axis, result in enumerate(made.placements):
        words = [given.placements[axis] for _, given in operands if axis < given.lead]
        word = next((one for one in words if isinstance(one, Shard)), None)
        if word is None or result != LOCAL or LOCAL in words or made.devices[axis] == 1:
            continue
        if word.dim != last and (is_opaque or op in _WITH_ANGLES):
            continue
        what, remedy = _words_on(op, f"ttnn.all_gather(x, {word.dim}, cluster_axis={axis})", word.dim == last)
        if what:
            yield (
                f"{op}: dim {word.dim} is split over mesh axis {axis}: each of {made.devices[axis]} devices {what}. "
                f"{remedy}.{settings.needed_line()}"
            )


def _words_on(op: str, gather: str, is_last: bool) -> tuple[str, str]:
    """What each device does, and what to do instead."""
    name, remedy = op, f"Gather it first with {gather}"
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    if op in _NORMALIZING or name in _NORMALIZING:
        way = _DISTRIBUTED.get(name)
        instead = f", or take ttnn.{way} and its post_all_gather" if way else ""
        return "normalises its own part, as if there were no others", remedy + instead
    if name in _CHOOSING:
        return (
            "looks at its own part, and its indices count from the start of that part",
            f"Gather the results and choose among them, or gather the tensor first with {gather}",
        )
    if name in _HALO and is_last:
        return (
            "has some of the channels only, and takes them for all",
            f"Split the weight's input channels as these are, and all_reduce the result, or gather them with {gather}",
        )
    if name in _HALO:
        return (
            "sees its own rows and none of its neighbours', with a border of its own around each part",
            f"Bring the neighbours' rows with ttnn.experimental.neighbor_pad_async, or gather it first with {gather}",
        )
    return _ALONG.get(name, ""), remedy


def of_angles(op: str, operands: Sequence[tuple[Sequence[int], Distribution]], made: Distribution) -> Iterator[str]:
    """A rotary embedding whose table of angles all devices share, though each has positions of its own."""
    if op not in _WITH_ANGLES or len(operands) < 2:
        return
    (shape, turned), (table, angles) = operands[:2]
    for axis, result in enumerate(made.placements):
        word = turned.placements[axis] if axis < turned.lead else None
        is_shared = axis < angles.lead and angles.placements[axis] is REPLICATE and angles.devices[axis] > 1
        if not (is_shared and isinstance(word, Shard) and result in (word, LOCAL)):
            continue
        if word.dim == len(shape) - 2 and 1 < shape[-2] <= table[-2]:
            yield (
                f"{op}: dim {word.dim}, the sequence, is split over mesh axis {axis}, and all {made.devices[axis]} "
                "devices turn their own part by the angles of the first positions: the table of angles is the same on "
                f"all of them. Split it along dim {len(table) - 2} as the sequence is."
            )
        elif word.dim == len(shape) - 1 and result == word:
            yield (
                f"{op}: dim {word.dim}, the width of a head, is split over mesh axis {axis}, and all "
                f"{made.devices[axis]} devices turn their own part by the same angles. Split the table of angles along "
                f"dim {len(table) - 1} as the heads are, or split the heads along their own dim."
            )


def of_statistics(op: str, operands: Sequence[tuple[Sequence[int], Distribution]]) -> Iterator[str]:
    """A norm of rows that are split over more devices than its statistics are of: they were not gathered, or summed."""
    columns = _COLUMNS.get(op)
    if columns is None:
        return
    (shape, rows), (held, _) = operands[:2]
    last = len(shape) - 1
    axes = [at for at, word in enumerate(rows.placements) if isinstance(word, Shard) and word.dim == last]
    devices, given = math.prod(rows.devices[axis] for axis in axes), held[-1] // columns
    if given != devices and devices > 1:
        each = ", ".join(f"ttnn.all_gather(stats, {last}, cluster_axis={axis})" for axis in axes)
        yield (
            f"{op}: dim {last} is split over {devices} devices, and the statistics {list(held)} are those of {given}: "
            f"the row is not normalised as a whole. Put those of all devices side by side first: {each}."
            f"{settings.needed_line()}"
        )
    for axis in axes:
        shared = [of for of, given in operands[2:] if axis < given.lead and given.placements[axis] is REPLICATE]
        if shared and rows.devices[axis] > 1:
            yield (
                f"{op}: dim {last} is split over mesh axis {axis}, and the weight or bias {list(shared[0])} is the "
                f"same on all {rows.devices[axis]} devices: every part is scaled by the weights of one. Split it over "
                "this axis as the rows are."
            )
