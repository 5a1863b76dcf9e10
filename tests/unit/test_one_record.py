"""Every fact about an op is stated where it is defined, and not in tables of names elsewhere."""

import pytest
from op_name_tables import names_of_ops, tables, tables_in

from softmesh.dispatch.operation import operation

# Names that other packages, or measurements of other programs, give to their own things.
OTHERS_NAMES = (
    "cost/data/",  # rows of measurements
    "cost/op_words.py",  # how profilers and models name what they measured
    "cost/row_",  # readers of such rows
    "kernels/calls/",  # TT-Metalium's functions for kernels
    "planner/torch_ops.py",  # torch's ops
    "tensor/stacked_copies.py",  # methods of torch's and numpy's tensors
    "ttnn_names.txt",  # TT-NN's public names
)
MOST_ALLOWED = 30  # and this may only shrink
ALLOWED = {
    "bench/collectives_workload.py: COLLECTIVES": "what the bench measures",
    "bench/collectives_workload.py: _calls": "what the bench measures",
    "bench/collectives_workload.py: expressions": "what the bench measures",
    "bench/gpu.py: _moving": "what the bench measures",
    "bench/ops.py: small_cases": "what the bench measures",
    "bench/workers/jax_collectives.py: COLLECTIVES": "what the bench measures",
    "bench/workers/mpi_collectives.py: COLLECTIVES": "what the bench measures",
    "diagnosis/pairing_doubts.py: _CACHES": "where heads are in what is written to a cache",
    "native/gpu_kernels.py: _KINDS": "the activations that the GPU kernels have code for",
    "placement/placements.py: COMBINING": "the words of Partial, which are no ops",
    "planner/program/plain_ops.py: _RENAMED": "public functions whose arguments are not those of their op",
    "train/__init__.py: __all__": "public names of softmesh.train",
}


def test_an_op_without_a_kind_cannot_be_registered():
    with pytest.raises(TypeError, match="kind"):
        operation("kindless")  # type: ignore[call-arg]


def test_no_module_beside_the_ops_has_a_table_of_ops_that_is_not_accounted_for():
    found = tables(OTHERS_NAMES)
    assert found - set(ALLOWED) == set(), "state the fact at the definition of each op instead"
    assert set(ALLOWED) - found == set(), "these are gone: take them off the list"
    assert len(ALLOWED) <= MOST_ALLOWED


@pytest.mark.parametrize(
    "table",
    [
        'T = ("matmul", "linear", "conv2d")',
        'T = {"matmul": 1, "experimental.all_gather_async": 2, "add_": 3}',
        'T = frozenset("matmul linear conv2d".split())',
        'T = {**dict.fromkeys(("matmul", "linear"), 1), "sub": 2}',
        'T = [*("matmul", "linear"), *("ttnn.add",)]',
        'T = {1: ("matmul", "linear"), 2: ("softmax",)}',
    ],
)
def test_tables_of_any_form_are_found(table: str):
    assert tables_in(table, names_of_ops()) == {"T"}


@pytest.mark.parametrize(
    "code",
    [
        'T = ("matmul", "linear")',
        'x = op("add")(op("matmul")(a, b), op("softmax")(c))',
        'T = ("a row", "a column", "the sum of a row")',
        'raise ValueError("linear takes no add, and matmul takes one of those that softmax gives")',
    ],
)
def test_calls_and_prose_are_no_tables(code: str):
    assert tables_in(code, names_of_ops()) == set()
