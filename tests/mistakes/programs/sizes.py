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
