"""Sizes and numbers that cannot be."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
KILLED = "The host runs out of memory, and the kernel kills the process."
CUT = "Enormous numbers are cut to those of the dtype without a word, or a raw OverflowError is raised."
SMALLER = "Split the tensor over the mesh, or make it piece by piece."


@mistake(
    Told.ERROR,
    "arange: the host's memory would run out: 18626.5 GiB for [10000000000000] is needed",
    symptom=KILLED,
    mend=SMALLER,
)
def a_range_that_the_host_cannot_hold():
    ttnn.arange(10**13)


@right
def a_range():
    ttnn.arange(10**5)


@mistake(Told.ERROR, "rand: the host's memory would run out", symptom=KILLED, mend=SMALLER)
def random_numbers_that_the_host_cannot_hold():
    ttnn.rand((10**7, 10**6))


@right
def random_numbers():
    ttnn.rand((100, 100))


def column_and_row(mesh, rows, columns):
    column = ttnn.ones((rows, 1), ttnn.bfloat16, TILES, mesh)
    return column, ttnn.ones((1, columns), ttnn.bfloat16, TILES, mesh)


@mistake(
    Told.ERROR,
    "add: the host's memory would run out: 1676.4 GiB for [1, 1, 300000, 3000000] is needed",
    symptom=KILLED,
    mend=SMALLER,
)
def a_long_column_plus_a_long_row(mesh):
    column, row = column_and_row(mesh, 3 * 10**5, 3 * 10**6)
    column + row


@right
def a_column_plus_a_row(mesh):
    column, row = column_and_row(mesh, 100, 100)
    column + row


@mistake(Told.ERROR, "repeat: the host's memory would run out", symptom=KILLED, mend=SMALLER)
def a_tensor_repeated_too_often(mesh):
    ttnn.repeat(ttnn.ones((32, 32), ttnn.bfloat16, TILES, mesh), (10**5, 10**5))


@right
def a_tensor_repeated(mesh):
    ttnn.repeat(ttnn.ones((32, 32), ttnn.bfloat16, TILES, mesh), (2, 3))


CALLS = {
    "ttnn.add": lambda x, n: ttnn.add(x, n),
    "a product with *": lambda x, n: x * n,
    "ttnn.gt": lambda x, n: ttnn.gt(x, n),
    "ttnn.clamp": lambda x, n: ttnn.clamp(x, -1, n),
    "ttnn.full_like": lambda x, n: ttnn.full_like(x, n),
}
for name, call in CALLS.items():

    @mistake(Told.ERROR, "larger than any dtype can hold", symptom=CUT, mend="A number that the dtype holds.")
    def program(mesh, call=call):
        call(ttnn.ones((32, 32), ttnn.float32, TILES, mesh), 10**400)

    program.__doc__ = f"A number that no dtype holds, in {name}"

    @right
    def program(mesh, call=call):
        call(ttnn.ones((32, 32), ttnn.float32, TILES, mesh), 2)

    program.__doc__ = f"A number that the dtype holds, in {name}"


@mistake(
    Told.ERROR,
    "full: fill_value is a number of 1329 bits; no dtype has more than 64",
    symptom=CUT,
    mend="A number that the dtype holds.",
)
def a_fill_value_that_no_dtype_holds():
    ttnn.full((2, 2), 10**400)


@right
def a_fill_value_that_the_dtype_holds():
    ttnn.full((2, 2), 10**4)


for extent in (0, 1, 5):

    @right
    def program(extent=extent):
        print(ttnn.from_torch(torch.zeros(extent, 0, 3)))

    program.__doc__ = f"A tensor without elements, {extent} rows, is printed"


for name, value, dtype in (
    ("a large number in int32", 2**40, ttnn.int32),
    ("70,000 in uint16", 70_000, ttnn.uint16),
    ("infinity in uint32", float("inf"), ttnn.uint32),
    ("NaN in int32", float("nan"), ttnn.int32),
):

    @mistake(
        Told.WARNING,
        "does not fit into",
        "use a number that the dtype holds, or a wider dtype",
        symptom="Each element is another number, as it wraps around.",
        mend="A number that the dtype holds, or a wider dtype.",
    )
    def program(value=value, dtype=dtype):
        ttnn.full((2, 2), value, dtype)

    program.__doc__ = f"A tensor filled with {name}"

for name, value, dtype in (
    ("the largest uint16", 65_535, ttnn.uint16),
    ("-1 as all ones", -1, ttnn.uint16),
    ("the smallest int32", -(2**31), ttnn.int32),
    ("infinity in bfloat16", float("inf"), ttnn.bfloat16),
):

    @right
    def program(value=value, dtype=dtype):
        ttnn.full((2, 2), value, dtype)

    program.__doc__ = f"A tensor filled with {name}"


@mistake(
    Told.ERROR,
    "has more elements than any memory holds",
    symptom="A size that overflows becomes a small one: memory behind the tensor is written over.",
    mend="Look where the sizes come from.",
)
def a_shape_that_cannot_be_counted():
    ttnn.zeros((2**62, 4))


@mistake(Told.ERROR, "shape must not be negative, got [-1, 32]", symptom="A crash.", mend="Sizes of 0 and more.")
def a_negative_size():
    ttnn.zeros((-1, 32))


@right
def a_size_of_zero(mesh):
    ttnn.add(ttnn.zeros((0, 32), ttnn.bfloat16, TILES, mesh), 1.0)


@mistake(
    Told.ERROR,
    "sum: dim=9 is out of range for input_tensor of shape [32, 32]: use -2 to 1",
    symptom="Another dim is reduced, or the runtime stops.",
    mend="A dim of the tensor.",
)
def a_dim_that_the_tensor_does_not_have(mesh):
    ttnn.sum(ttnn.ones((32, 32), ttnn.bfloat16, TILES, mesh), dim=9)


@right
def a_dim_counted_from_the_end(mesh):
    ttnn.sum(ttnn.ones((32, 32), ttnn.bfloat16, TILES, mesh), dim=-2)


@mistake(
    Told.ERROR,
    "The width of the first tensor must be equal to the height of the second tensor",
    symptom="The runtime stops.",
    mend="Transpose one of them; on a mesh the sizes on each device count.",
)
def a_product_of_shapes_that_do_not_fit(mesh):
    x = ttnn.ones((32, 64), ttnn.bfloat16, TILES, mesh)
    ttnn.matmul(x, x)


@right
def a_product_of_shapes_that_fit(mesh):
    x = ttnn.ones((32, 64), ttnn.bfloat16, TILES, mesh)
    ttnn.matmul(x, x, transpose_b=True)


@mistake(
    Told.ERROR,
    "it has no argument 'dims'. Did you mean 'dim'?",
    symptom="The runtime stops with a list of signatures.",
    mend="The name that the message proposes.",
)
def an_argument_that_is_misspelt(mesh):
    ttnn.softmax(ttnn.ones((32, 32), ttnn.bfloat16, TILES, mesh), dims=-1)


for dtype in (ttnn.bfloat16, ttnn.float32, ttnn.bfloat8_b, ttnn.int32, ttnn.uint32, ttnn.uint16):

    @right
    def program(mesh, dtype=dtype):
        x = ttnn.full((32, 32), 3, dtype, TILES, mesh)
        ttnn.to_torch(ttnn.get_device_tensors(x)[0])

    program.__doc__ = f"Threes in {dtype.name.lower()}"
