"""Ops that work along a dim of which each device has a part, and take their part for the whole."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
GATHER = "Gather the dim first, or keep it whole and split another."
SHUFFLED = "The shape is plausible; the values come from all over the tensor, in another order."


def split(mesh, dim=None, shape=(128, 128), layout=TILES, dtype=ttnn.float32, values=None):
    """Over the columns of the mesh; with no dim the same on all."""
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, dim))
    given = torch.ones(*shape) if values is None else values
    return ttnn.from_torch(given, dtype, layout=layout, device=mesh, mesh_mapper=mapper)


def places(mesh, dim=None, shape=(128, 32)):
    return split(mesh, dim, layout=TILES, dtype=ttnn.uint32, values=torch.zeros(*shape, dtype=torch.int32))


def both(says, wrong, neighbours, symptom=SHUFFLED, mend=GATHER, of="parts"):
    """A mistake by the words that are said of it, and what may be done; of what it is one."""

    @mistake(Told.STRICT, *([says] if isinstance(says, str) else says), symptom=symptom, mend=mend)
    def program(mesh):
        wrong(mesh)

    op = program_of(says)
    program.__doc__ = f"{op} of {of}"

    @right
    def program(mesh):
        neighbours(mesh)

    program.__doc__ = f"{op} of {of}: along whole dims"


def program_of(says):
    first = says if isinstance(says, str) else says[0]
    return first.partition(":")[0].rpartition(".")[2].replace("_", " ")


# -- places that are cut out, joined, repeated, padded -------------------------------------------------

both(
    ("slice: dim 1 is split over mesh axis 1", "cuts these places out of its own part"),
    lambda mesh: ttnn.slice(split(mesh, 1), [0, 0], [128, 16]),
    lambda mesh: ttnn.slice(split(mesh, 1), [0, 0], [32, 32]),
    symptom="As many times too wide as there are devices: the first columns of each part, not of the tensor.",
)
both(
    "narrow: dim 0 is split over mesh axis 1",
    lambda mesh: ttnn.narrow(split(mesh, 0), 0, 0, 16),
    lambda mesh: ttnn.narrow(split(mesh, 0), 1, 0, 64),
)
both(
    ("split: dim 1 is split over mesh axis 1", "cuts its own part into pieces"),
    lambda mesh: ttnn.split(split(mesh, 1, (128, 256)), 32, dim=1),
    lambda mesh: ttnn.split(split(mesh, 1, (128, 256)), 32, dim=0),
    symptom="Queries, keys and values of a fused product each hold some of all three.",
    mend="Lay the weight out device by device before it is split, or split three weights.",
)
both(
    "chunk: dim 1 is split over mesh axis 1",
    lambda mesh: ttnn.chunk(split(mesh, 1, (128, 256)), 2, 1),
    lambda mesh: ttnn.chunk(split(mesh, 1, (128, 256)), 2, 0),
)
both(
    "swiglu: dim 3 is split over mesh axis 1",
    lambda mesh: ttnn.swiglu(split(mesh, 3, (1, 1, 64, 256)), -1),
    lambda mesh: ttnn.swiglu(split(mesh, 2, (1, 1, 128, 128)), -1),
    symptom="Gates meet values of other columns.",
    mend="Lay gate and value of each device next to each other before the weight is split.",
)
both(
    ("concat: dim 1 is split over mesh axis 1", "part by part between each other"),
    lambda mesh: ttnn.concat([split(mesh, 1), split(mesh, 1)], 1),
    lambda mesh: ttnn.concat([split(mesh, 1), split(mesh, 1)], 0),
)
both(
    "concat: dim 2 is split over mesh axis 1",
    lambda mesh: ttnn.concat([split(mesh, 2, (1, 8, 128, 32))] * 2, 2),
    lambda mesh: ttnn.concat([split(mesh, 1, (1, 8, 32, 32))] * 2, 2),
    symptom="A new token stands behind each part of the sequence.",
    mend="Append to the device that holds the end of the sequence, or split by heads.",
    of="a sequence that is split",
)
both(
    ("repeat: dim 1 is split over mesh axis 1", "repeats its own part"),
    lambda mesh: ttnn.repeat(split(mesh, 1), (1, 2)),
    lambda mesh: (ttnn.repeat(split(mesh, 1), (2, 1)), ttnn.repeat_interleave(split(mesh, 1), 2, 1)),
)
both(
    ("pad: dim 1 is split over mesh axis 1", "padding stands between the parts"),
    lambda mesh: ttnn.pad(split(mesh, 1), [(0, 0), (0, 32)], 0.0),
    lambda mesh: ttnn.pad(split(mesh, 1), [(0, 32), (0, 0)], 0.0),
    mend="Pad the tensor before it is split.",
)
both(
    ("reshape: dim 1 is split over mesh axis 1", "no longer split along a dim"),
    lambda mesh: ttnn.reshape(split(mesh, 1), (1, 128 * 32)),
    lambda mesh: (
        ttnn.reshape(split(mesh, 0), (1, 32, 128)),
        ttnn.reshape(split(mesh, 0), (32 * 128,)),
        ttnn.reshape(split(mesh, 1, (32, 512)), (1, 32, 4, 32)),
        ttnn.reshape(split(mesh, 2, (1, 1, 128, 64)), (1, 32, 64)),
    ),
    mend="Gather first, or split a dim that the new shape begins at the same element.",
)
both(
    "cumprod: dim 1 is split over mesh axis 1",
    lambda mesh: ttnn.cumprod(split(mesh, 1), 1),
    lambda mesh: ttnn.cumprod(split(mesh, 1), 0),
    symptom="The running product begins anew at the border of each device.",
)
both(
    "roll: dim 2 is split over mesh axis 1",
    lambda mesh: ttnn.roll(split(mesh, 2, (1, 1, 128, 32)), 1, 2),
    lambda mesh: ttnn.roll(split(mesh, 2, (1, 1, 128, 32)), 1, 3),
    symptom="Windows of attention wrap around within a device.",
    of="a sequence that is split",
)

# -- places that are named by numbers ------------------------------------------------------------------

OTHER_PLACES = "Each device looks at these places of its own part."

both(
    ("gather: dim 1 is split over mesh axis 1", "counts places from the start of its own part"),
    lambda mesh: ttnn.gather(split(mesh, 1), 1, places(mesh)),
    lambda mesh: ttnn.gather(split(mesh, 0), 1, places(mesh, 0)),
    symptom=OTHER_PLACES,
)
both(
    "scatter: dim 1 is split over mesh axis 1",
    lambda mesh: ttnn.scatter(
        split(mesh, 1, layout=ROWS), 1, ttnn.to_layout(places(mesh), ROWS), split(mesh, shape=(128, 32), layout=ROWS)
    ),
    lambda mesh: ttnn.scatter(
        split(mesh, 0, layout=ROWS), 1, ttnn.to_layout(places(mesh, 0), ROWS), split(mesh, 0, (128, 32), ROWS)
    ),
    symptom=OTHER_PLACES,
)
both(
    "index_fill: dim 1 is split over mesh axis 1",
    lambda mesh: ttnn.index_fill(split(mesh, 1, layout=ROWS), 1, ttnn.to_layout(places(mesh, shape=(8,)), ROWS), 0.0),
    lambda mesh: ttnn.index_fill(split(mesh, 0, layout=ROWS), 1, ttnn.to_layout(places(mesh, shape=(8,)), ROWS), 0.0),
    symptom=OTHER_PLACES,
)
both(
    ("tril: dim 0 is split over mesh axis 1", "counts places from the start of its own part"),
    lambda mesh: ttnn.tril(split(mesh, 0)),
    lambda mesh: ttnn.tril(split(mesh, 1, (1, 4, 128, 128))),
    symptom="The mask has a diagonal for each device: tokens see what comes behind them.",
    mend="Make the mask on the host, and split it as the scores are.",
)
both(
    ("sort: dim 1 is split over mesh axis 1", "looks at its own part"),
    lambda mesh: ttnn.sort(split(mesh, 1, (64, 512)), dim=-1),
    lambda mesh: ttnn.sort(split(mesh, 0, (128, 64)), dim=-1),
    symptom="Each part is in order, the whole is not.",
)
both(
    "embedding: dim 0 is split over mesh axis 1",
    lambda mesh: ttnn.embedding(places(mesh, shape=(1, 32)), split(mesh, 0, layout=ROWS)),
    lambda mesh: (
        ttnn.embedding(places(mesh, 0, (4, 32)), split(mesh, layout=ROWS)),
        ttnn.embedding(places(mesh, shape=(1, 32)), split(mesh, 1, layout=ROWS)),
    ),
    symptom="Every device looks up the same rows of another part of the table.",
    mend="Split the table's columns; or take away each device's first row, mask the other numbers, and sum.",
)

# -- statistics and losses -----------------------------------------------------------------------------


def normed(mesh, bring_together, norm="rms_norm"):
    x = split(mesh, 3, (1, 1, 32, 256))
    stats = bring_together(getattr(ttnn, f"{norm}_pre_all_gather")(x))
    getattr(ttnn, f"{norm}_post_all_gather")(x, stats)


PER_DEVICE = "Statistics of one device's part stand for those of the whole."

both(
    (
        "rms_norm_post_all_gather: dim 3 is split over 4 devices",
        "are those of 1",
        "all_gather(stats, 3, cluster_axis=1)",
    ),
    lambda mesh: normed(mesh, lambda stats: stats),
    lambda mesh: normed(mesh, lambda stats: ttnn.all_gather(stats, 3, cluster_axis=1)),
    symptom=PER_DEVICE,
    mend="Gather what rms_norm_pre_all_gather made, along the last dim.",
)
both(
    ("layer_norm_post_all_gather: dim 3 is split over 4 devices", "are those of 1"),
    lambda mesh: normed(mesh, lambda stats: ttnn.all_reduce(stats, cluster_axis=1), "layer_norm"),
    lambda mesh: normed(mesh, lambda stats: ttnn.all_gather(stats, 3, cluster_axis=1), "layer_norm"),
    symptom="Mean and deviation are too large by the number of devices.",
    mend="Gather the statistics; layer_norm_post_all_gather adds them up.",
)
both(
    "std_hw: dim 3 is split over mesh axis 1",
    lambda mesh: ttnn.std_hw(split(mesh, 3, (1, 4, 32, 128))),
    lambda mesh: ttnn.std_hw(split(mesh, 1, (1, 4, 32, 128))),
    symptom=PER_DEVICE,
)
both(
    "normalize_hw: dim 3 is split over mesh axis 1",
    lambda mesh: ttnn.normalize_hw(split(mesh, 3, (1, 4, 32, 128))),
    lambda mesh: ttnn.normalize_hw(split(mesh, 1, (1, 4, 32, 128))),
    symptom=PER_DEVICE,
)
both(
    ("group_norm: dim 2 is split over mesh axis 1", "normalises its own part"),
    lambda mesh: ttnn.group_norm(split(mesh, 2, (1, 1, 256, 64)), num_groups=2, inplace=False),
    lambda mesh: (
        ttnn.group_norm(split(mesh, 0, (4, 1, 64, 64)), num_groups=2, inplace=False),
        ttnn.group_norm(split(mesh, 3, (1, 1, 64, 256)), num_groups=2, inplace=False),
    ),
    symptom=PER_DEVICE,
    mend="Split by images or by groups of channels.",
)
both(
    "moreh_softmax: dim 3 is split over mesh axis 1",
    lambda mesh: ttnn.operations.moreh.softmax(split(mesh, 3, (1, 1, 32, 128)), dim=3),
    lambda mesh: ttnn.operations.moreh.softmax(split(mesh, 3, (1, 1, 32, 128)), dim=2),
    symptom="Each device's part adds up to one; the whole does not.",
)
both(
    ("moreh_nll_loss: dim 1 is split over mesh axis 1", "classes that count from its start"),
    lambda mesh: ttnn.operations.moreh.nll_loss(
        split(mesh, 1, (32, 128)), ttnn.to_layout(places(mesh, shape=(32,)), TILES), "sum"
    ),
    lambda mesh: ttnn.operations.moreh.nll_loss(
        split(mesh, 0, (128, 32)), ttnn.to_layout(places(mesh, 0, shape=(128,)), TILES), "sum"
    ),
    symptom="The loss is that of other classes.",
    mend="Gather the logits; or split by samples.",
)

# -- attention -----------------------------------------------------------------------------------------

UNSEEN = "Tokens do not see what lies on other devices."
attend = ttnn.transformer.scaled_dot_product_attention
attend_one = ttnn.transformer.scaled_dot_product_attention_decode


def heads(mesh, dim=None, sequence=128):
    return split(mesh, dim, (1, 8, sequence, 64))


def decoded(mesh, query, cache):
    return attend_one(split(mesh, query, (1, 4, 8, 64)), *[split(mesh, cache, (4, 8, 128, 64))] * 2, cur_pos=[3] * 4)


both(
    ("scaled_dot_product_attention: dim 2 is split over mesh axis 1", "attends to its own part only"),
    lambda mesh: attend(*[heads(mesh, 2)] * 3, is_causal=True),
    lambda mesh: (
        attend(*[heads(mesh, 1)] * 3, is_causal=True),
        attend(heads(mesh, 2), heads(mesh), heads(mesh), is_causal=False),
        attend(*[split(mesh, 0, (4, 2, 64, 64))] * 3, is_causal=True),
    ),
    symptom=UNSEEN,
    mend="Split by heads; or take ttnn.transformer.ring_joint_scaled_dot_product_attention.",
)
both(
    ("scaled_dot_product_attention_decode: dim 2 is split over mesh axis 1", "attends to its own part only"),
    lambda mesh: attend_one(split(mesh, None, (1, 4, 8, 64)), *[split(mesh, 2, (4, 8, 128, 64))] * 2, cur_pos=[3] * 4),
    lambda mesh: attend_one(split(mesh, 2, (1, 4, 8, 64)), *[split(mesh, 1, (4, 8, 128, 64))] * 2, cur_pos=[3] * 4),
    symptom=UNSEEN,
    mend="Split the cache by users or by heads, as the queries are.",
)


@right
def one_head_of_keys_on_each_device_attends(mesh):
    """Heads of keys are cut out of a product by a reshape, one for each device"""
    keys = ttnn.reshape(split(mesh, 3, (1, 1, 4, 4 * 64)), (1, 4, 1, 64))
    queries = ttnn.reshape(split(mesh, 3, (1, 1, 4, 8 * 64)), (1, 4, 2, 64))
    cache = ttnn.zeros((4, 1, 64, 64), ttnn.float32, TILES, mesh)
    ttnn.experimental.paged_update_cache(cache, keys, update_idxs=[0] * 4)
    attend_one(queries, cache, cache, cur_pos=[0] * 4)


# -- rotary embeddings ---------------------------------------------------------------------------------

turned = ttnn.experimental.rotary_embedding
turned_llama = ttnn.experimental.rotary_embedding_llama


def angles(mesh, dim=None, rows=128, width=64):
    return [split(mesh, dim, (1, 1, rows, width))] * 2


def matrix(mesh):
    return split(mesh, shape=(1, 1, 32, 32))


both(
    ("rotary_embedding: dim 3 is split over mesh axis 1", "the pairs that belong together lie on two devices"),
    lambda mesh: turned(split(mesh, 3, (1, 8, 32, 256)), *angles(mesh, 3, 32, 256)),
    lambda mesh: turned(heads(mesh, 1), *angles(mesh)),
    symptom="Attention mixes dims that do not belong together: quietly worse text.",
    mend="Split by heads, or keep heads whole.",
)


@right
def positions_of_users_in_parts_are_turned(mesh):
    x = split(mesh, 1, (1, 128, 8, 64))
    cos, sin = (split(mesh, 1, (1, 128, 1, 64)) for _ in range(2))
    ttnn.experimental.rotary_embedding_hf(x, cos, sin, is_decode_mode=True)


both(
    ("rotary_embedding_llama: dim 2, the sequence", "by the angles of the first positions"),
    lambda mesh: turned_llama(heads(mesh, 2), *angles(mesh, rows=32), matrix(mesh), is_decode_mode=False),
    lambda mesh: turned_llama(heads(mesh, 2), *angles(mesh, 2), matrix(mesh), is_decode_mode=False),
    symptom="All parts of the sequence count their positions from 0.",
    mend="Split the tables of angles as the sequence is.",
    of="a sequence that is split",
)
both(
    ("rotary_embedding: dim 2, the sequence", "by the angles of the first positions"),
    lambda mesh: turned(heads(mesh, 2), *angles(mesh, rows=128)),
    lambda mesh: turned(heads(mesh, 2), *angles(mesh, 2)),
    symptom="All parts of the sequence count their positions from 0.",
    mend="Split the tables of angles as the sequence is.",
    of="a sequence that is split",
)
both(
    ("rotary_embedding_llama: dim 3, the width of a head", "by the same angles"),
    lambda mesh: turned_llama(
        split(mesh, 3, (1, 8, 32, 256)), *angles(mesh, rows=32), matrix(mesh), is_decode_mode=False
    ),
    lambda mesh: turned_llama(
        split(mesh, 3, (1, 8, 32, 256)), *angles(mesh, 3, 32, 256), matrix(mesh), is_decode_mode=False
    ),
    symptom="All parts of a head are turned by the angles of the first.",
    mend="Split the tables of angles as the heads are, or split by heads.",
    of="a width that is split",
)


# -- images --------------------------------------------------------------------------------------------

NO_HALO = "Seams in the image at the border of each device."
HALO = "Bring the neighbours' rows first (ttnn.experimental.neighbor_pad_async), or split by images or channels."


def images(mesh, dim):
    return split(mesh, dim, (4, 8, 8, 32), ROWS)


def convolved(mesh, dim, images_each, rows, kernel=3):
    return ttnn.conv2d(
        input_tensor=images(mesh, dim),
        weight_tensor=ttnn.from_torch(torch.ones(32, 32, kernel, kernel)),
        device=mesh,
        batch_size=images_each,
        input_height=rows,
        input_width=8,
        in_channels=32,
        out_channels=32,
        kernel_size=(kernel, kernel),
        padding=(kernel // 2, kernel // 2),
    )


def channels(mesh, dim):
    """Of the images each device has some, and of the weight those or, not split, as many."""
    return ttnn.conv2d(
        input_tensor=split(mesh, 3, (1, 8, 8, 128), ROWS),
        weight_tensor=split(mesh, dim, (32, 32 if dim is None else 128, 3, 3), ROWS),
        device=mesh,
        batch_size=1,
        input_height=8,
        input_width=8,
        in_channels=32,
        out_channels=32,
        kernel_size=(3, 3),
        padding=(1, 1),
    )


def pooled(mesh, dim, images_each, rows, kernel=3, stride=1, padding=1):
    window = {"kernel_size": [kernel] * 2, "stride": [stride] * 2, "padding": [padding] * 2, "dilation": [1, 1]}
    return ttnn.max_pool2d(images(mesh, dim), images_each, rows, 8, 32, **window)


both(
    ("conv2d: dim 1 is split over mesh axis 1", "none of its neighbours'", "neighbor_pad_async"),
    lambda mesh: convolved(mesh, 1, 4, 2),
    lambda mesh: (convolved(mesh, 0, 1, 8), convolved(mesh, 1, 4, 2, kernel=1)),
    symptom=NO_HALO,
    mend=HALO,
)
both(
    ("conv2d: dim 3 is split over mesh axis 1", "has some of the channels only"),
    lambda mesh: channels(mesh, None),
    lambda mesh: ttnn.all_reduce(channels(mesh, 1), cluster_axis=1),
    symptom="Every device convolves channels of its own with the weights of the first ones.",
    mend="Split the weight's input channels as the images are, and sum.",
    of="some channels",
)
both(
    ("max_pool2d: dim 1 is split over mesh axis 1", "none of its neighbours'"),
    lambda mesh: pooled(mesh, 1, 4, 2),
    lambda mesh: (pooled(mesh, 0, 1, 8), pooled(mesh, 1, 4, 2, kernel=2, stride=2, padding=0)),
    symptom=NO_HALO,
    mend=HALO,
)
both(
    ("upsample: dim 1 is split over mesh axis 1", "none of its neighbours'"),
    lambda mesh: ttnn.upsample(images(mesh, 1), 2, mode="bilinear"),
    lambda mesh: (ttnn.upsample(images(mesh, 1), 2), ttnn.upsample(images(mesh, 0), 2, mode="bilinear")),
    symptom=NO_HALO,
    mend=HALO,
)
