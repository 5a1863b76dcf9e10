"""Numbers that their dtype cannot hold, and NaN that an op made"""

import math

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
OTHER_ROWS = "Rows next to the right ones are looked up, without a word."
WHOLE = "Keep places and counts in int32 or uint32, which hold each of them."
WRAPS = "The result is small where it should be large, and nobody says so."
WIDER = "Use int32 or uint32 for what may grow so large."
NAN = "NaN spreads through all that follows, and the first op that made one is hard to find."


def put(mesh, values, dtype=ttnn.bfloat16, layout=TILES):
    return ttnn.from_torch(torch.as_tensor(values), dtype=dtype, layout=layout, device=mesh)


def row(*values):
    return torch.tensor([values], dtype=torch.float32)


def read(tensor):
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


# -- whole numbers in floats of few bits -------------------------------------------------------------


@mistake(Told.STRICT, "made 300 of 301", "bfloat16 does not hold", symptom=OTHER_ROWS, mend=WHOLE)
def token_ids_pass_through_bfloat16(mesh):
    ttnn.typecast(put(mesh, row(301.0, 999.0)), ttnn.int32)


@mistake(Told.STRICT, "typecast", "made 4992 of 5001", symptom=OTHER_ROWS, mend=WHOLE)
def integers_are_cast_to_bfloat16_and_back(mesh):
    ids = put(mesh, torch.tensor([[5001, 7]], dtype=torch.int32), ttnn.uint32)
    ttnn.typecast(ttnn.reshape(ttnn.typecast(ids, ttnn.bfloat16), (2, 1)), ttnn.uint32)


@mistake(Told.STRICT, "become integers were rounded before: add", "of 257", symptom=OTHER_ROWS, mend=WHOLE)
def places_are_counted_in_bfloat16(mesh):
    ttnn.typecast(ttnn.add(put(mesh, row(255.0, 256.0)), 1.0), ttnn.int32)


@mistake(Told.STRICT, "become integers were rounded before: sum", symptom=OTHER_ROWS, mend=WHOLE)
def a_count_is_summed_in_bfloat16(mesh):
    ttnn.typecast(ttnn.sum(put(mesh, torch.ones(1, 1001)), dim=1), ttnn.uint32)


@mistake(Told.STRICT, "become integers were rounded before: cumsum", symptom=OTHER_ROWS, mend=WHOLE)
def offsets_are_running_sums_in_bfloat16(mesh):
    ttnn.typecast(ttnn.cumsum(put(mesh, torch.ones(1, 1, 32, 320)), dim=-1), ttnn.int32)


@mistake(Told.STRICT, "become integers were rounded before: multiply", symptom=OTHER_ROWS, mend=WHOLE)
def an_index_of_row_and_column_is_computed_in_bfloat16(mesh):
    ttnn.typecast(ttnn.multiply(put(mesh, row(5.0, 9.0)), 257.0), ttnn.uint32)


@mistake(Told.STRICT, "choose rows were rounded before: from_torch", symptom=OTHER_ROWS, mend=WHOLE)
def an_embedding_takes_large_ids_in_bfloat16(mesh):
    ids = put(mesh, torch.tensor([[301, 7]]), ttnn.bfloat16, ROWS)
    ttnn.embedding(ids, put(mesh, torch.randn(512, 32), layout=ROWS))


@mistake(Told.STRICT, "become integers were rounded before: arange", symptom=OTHER_ROWS, mend=WHOLE)
def a_long_range_is_made_in_bfloat16(mesh):
    ttnn.typecast(ttnn.arange(0, 400, device=mesh, layout=TILES), ttnn.int32)


@right
def whole_numbers_that_bfloat16_holds(mesh):
    ids = put(mesh, row(0.0, 1.0, 200.0, 256.0, 1024.0))
    ttnn.typecast(ids, ttnn.int32)
    ttnn.typecast(ttnn.add(put(mesh, row(3.0, 200.0)), 1.0), ttnn.uint32)
    ttnn.typecast(ttnn.sum(put(mesh, torch.ones(1, 64)), dim=1), ttnn.uint32)
    ttnn.embedding(
        put(mesh, torch.tensor([[3, 255]]), ttnn.bfloat16, ROWS), put(mesh, torch.randn(512, 32), layout=ROWS)
    )


@right
def places_are_counted_in_integers_and_in_float32(mesh):
    ids = put(mesh, torch.tensor([[5001, 70000]], dtype=torch.int32), ttnn.int32)
    ttnn.typecast(ttnn.add(ttnn.typecast(ids, ttnn.float32), 1.0), ttnn.uint32)
    ttnn.plus_one(put(mesh, torch.tensor([4096, 5], dtype=torch.int32), ttnn.int32, ROWS))


@right
def fractions_are_rounded_and_made_integers(mesh):
    scores = put(mesh, torch.rand(32, 32) * 1000)
    ttnn.typecast(ttnn.floor(ttnn.multiply(scores, 1.7)), ttnn.int32)


# -- counters that stand still -----------------------------------------------------------------------

STILL = "A counter stops at 256, and a loop that waits for it never ends."


@mistake(Told.STRICT, "add: nothing changes: 256 should become 257", symptom=STILL, mend=WHOLE)
def a_counter_in_bfloat16_stops_at_256(mesh):
    ttnn.add(ttnn.full((32, 32), 256.0, ttnn.bfloat16, TILES, mesh), 1.0)


@mistake(Told.STRICT, "add_: nothing changes: 1024 should become 1026", symptom=STILL, mend=WHOLE)
def a_counter_that_is_updated_in_place_stops(mesh):
    ttnn.add_(ttnn.full((32, 32), 1024.0, ttnn.bfloat16, TILES, mesh), 2.0)


@mistake(Told.STRICT, "subtract: nothing changes: 1024 should become 1023", symptom=STILL, mend=WHOLE)
def a_count_down_in_bfloat16_stands_still(mesh):
    n = ttnn.full((32, 32), 1024.0, ttnn.bfloat16, TILES, mesh)
    ttnn.subtract(n, ttnn.ones((32, 32), ttnn.bfloat16, TILES, mesh))


@mistake(Told.STRICT, "add: nothing changes: 1.67772e+07 should become 1.67772e+07", symptom=STILL, mend=WHOLE)
def a_counter_in_float32_stops_at_2_to_24(mesh):
    ttnn.add(ttnn.full((32, 32), 2.0**24, ttnn.float32, TILES, mesh), 1.0)


@right
def small_terms_that_keep_a_divisor_away_from_zero(mesh):
    x = put(mesh, torch.full((32, 32), 4.0))
    ttnn.rsqrt(ttnn.add(x, 1e-6))
    ttnn.add(put(mesh, torch.full((32, 32), -1e9)), x)
    ttnn.add(x, 0.0)
    ttnn.multiply(x, 1.0)


# -- integers that wrap ------------------------------------------------------------------------------


@mistake(Told.STRICT, "add: 131070 does not fit into uint16, and becomes 65534", symptom=WRAPS, mend=WIDER)
def a_sum_of_uint16_wraps(mesh):
    u = put(mesh, torch.full((32, 32), 65535), ttnn.uint16)
    ttnn.add(u, u)


@mistake(
    Told.STRICT,
    "subtract: -3 does not fit into uint16",
    symptom=WRAPS,
    mend="Use int32 where a difference may be negative.",
)
def a_difference_of_unsigned_numbers_is_negative(mesh):
    ttnn.subtract(put(mesh, torch.full((32, 32), 2), ttnn.uint16), put(mesh, torch.full((32, 32), 5), ttnn.uint16))


@mistake(Told.STRICT, "multiply: 90000000000 does not fit into int32", symptom=WRAPS, mend=WIDER)
def a_product_of_int32_wraps(mesh):
    n = put(mesh, torch.full((32, 32), 300000, dtype=torch.int32), ttnn.int32)
    ttnn.multiply(n, n)


@mistake(Told.STRICT, "typecast: 70000 does not fit into uint16", symptom=WRAPS, mend=WIDER)
def token_ids_are_cast_to_uint16(mesh):
    ttnn.typecast(put(mesh, torch.tensor([[70000, 5]], dtype=torch.int32), ttnn.int32), ttnn.uint16)


@mistake(
    Told.STRICT, "typecast: -5 does not fit into uint32", symptom=WRAPS, mend="Use int32 for what may be negative."
)
def negative_floats_are_cast_to_unsigned_numbers(mesh):
    ttnn.typecast(put(mesh, row(-5.0, 3.0), ttnn.float32), ttnn.uint32)


@mistake(Told.STRICT, "from_torch: 70000 does not fit into uint16", symptom=WRAPS, mend=WIDER)
def a_large_vocabulary_is_written_as_uint16(mesh):
    put(mesh, torch.tensor([[70000, 5]], dtype=torch.int32), ttnn.uint16)


@right
def integers_stay_within_their_dtype(mesh):
    u = put(mesh, torch.full((32, 32), 30000), ttnn.uint16)
    ttnn.add(u, u)
    ttnn.subtract(u, u)
    ttnn.typecast(u, ttnn.int32)
    ttnn.typecast(put(mesh, row(3.7, 250.2), ttnn.float32), ttnn.uint16)
    put(mesh, torch.full((32, 32), -1), ttnn.int32)


@right
def bits_are_set_and_turned_over(mesh):
    u = put(mesh, torch.full((32, 32), 65535), ttnn.uint16)
    ttnn.bitwise_not(u)
    ttnn.bitwise_left_shift(put(mesh, torch.full((32, 32), 1 << 30, dtype=torch.int32), ttnn.int32), 2)
    put(mesh, torch.full((32, 32), -1, dtype=torch.int32), ttnn.uint32)


# -- NaN ---------------------------------------------------------------------------------------------

MASKED = "Leave each row one place that is not masked, or mask with a large negative number instead of -inf."


@mistake(Told.STRICT, "to_torch: 1024 of 1024 values are NaN", "is ttnn.softmax (", symptom=NAN, mend=MASKED)
def rows_that_are_masked_everywhere_are_normalised(mesh):
    read(ttnn.softmax(put(mesh, torch.full((32, 32), -math.inf), ttnn.float32), dim=1))


@mistake(Told.STRICT, "is ttnn.sqrt (", symptom=NAN, mend="Clamp what may be a little below 0 by rounding.")
def the_root_of_a_negative_variance_is_found_behind_other_ops(mesh):
    x = ttnn.sqrt(put(mesh, torch.full((32, 32), -0.25)))
    read(ttnn.matmul(ttnn.add(ttnn.reshape(x, (1, 32, 32)), 1.0), put(mesh, torch.ones(32, 32))))


@mistake(Told.STRICT, "is ttnn.div (", symptom=NAN, mend="Add a small number to a divisor that may be 0.")
def zero_is_divided_by_zero(mesh):
    x = put(mesh, torch.zeros(32, 32))
    ttnn.from_device(ttnn.div(x, x))


@mistake(Told.STRICT, "is ttnn.subtract (", symptom=NAN, mend="Subtract the largest before exp.")
def infinities_are_subtracted(mesh):
    x = ttnn.exp(put(mesh, torch.full((32, 32), 1000.0)))
    read(ttnn.subtract(x, x))


@right
def nan_of_the_program_itself_and_nan_that_is_replaced(mesh):
    read(ttnn.relu(put(mesh, torch.full((32, 32), math.nan))))
    x = ttnn.log(put(mesh, torch.full((32, 32), -1.0)))
    read(ttnn.where(ttnn.isnan(x), 0.0, x))
    read(ttnn.isnan(x))


@right
def rows_that_are_masked_in_part(mesh):
    scores = torch.zeros(32, 32).masked_fill(torch.ones(32, 32).triu(1).bool(), -math.inf)
    read(ttnn.softmax(put(mesh, scores, ttnn.float32), dim=1))
