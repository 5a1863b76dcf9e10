"""The core collectives: values, shapes, placements, labels and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh import FabricConfig, MeshShape, Partial, Replicate, Shard

pytestmark = pytest.mark.usefixtures("idle_machine")


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(MeshShape(2, 4)) as opened:
        yield opened


def put(values: torch.Tensor, mapper: object, mesh: ttnn.MeshDevice, **options: object) -> ttnn.Tensor:
    settings = {"dtype": ttnn.float32, "layout": ttnn.TILE_LAYOUT} | options
    return ttnn.from_torch(values, device=mesh, mesh_mapper=mapper, **settings)


def columns(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    """[1, 1, 32, 32] on each of eight, from dim 3."""
    return put(torch.arange(32 * 256.0).reshape(1, 1, 32, 256), ttnn.ShardTensorToMesh(mesh, 3), mesh)


def grid(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    """[1, 1, 32, 64] on each: rows of the mesh split dim 2, columns dim 3."""
    mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(2, 3))
    return put(torch.arange(64 * 256.0).reshape(1, 1, 64, 256), mapper, mesh)


def same(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    return put(torch.arange(64 * 512.0).reshape(1, 1, 64, 512), ttnn.ReplicateTensorToMesh(mesh), mesh)


def pieces(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


def label(tensor: ttnn.Tensor) -> tuple[list[int], list[str]]:
    topology = tensor.tensor_topology()
    return list(topology.distribution_shape()), [repr(p).removeprefix("Placement") for p in topology.placements()]


def row(i: int) -> list[int]:
    return list(range(i // 4 * 4, i // 4 * 4 + 4))


def column(i: int) -> list[int]:
    return [i % 4, i % 4 + 4]


def test_all_gather_along_a_row_joins_its_pieces_in_order(mesh):
    x = columns(mesh)
    before, after = pieces(x), pieces(ttnn.all_gather(x, 3, cluster_axis=1))
    for i in range(8):
        assert torch.equal(after[i], torch.cat([before[j] for j in row(i)], 3))


def test_all_gather_down_a_column_joins_its_pieces_in_order(mesh):
    x = columns(mesh)
    before, after = pieces(x), pieces(ttnn.all_gather(x, -1, cluster_axis=0))
    for i in range(8):
        assert torch.equal(after[i], torch.cat([before[j] for j in column(i)], 3))


def test_all_reduce_adds_and_is_stored_once(mesh):
    y = grid(mesh)
    result = ttnn.all_reduce(y, cluster_axis=1)
    before, after = pieces(y), pieces(result)
    for i in range(8):
        assert torch.equal(after[i], sum(before[j] for j in row(i)))
    assert result.view_data().numel() == 2 * 32 * 64


def test_all_reduce_of_what_all_hold_counts_every_device(mesh):
    r = same(mesh)
    assert torch.equal(pieces(ttnn.all_reduce(r, cluster_axis=0))[3], 2 * pieces(r)[3])


@pytest.mark.parametrize("layout", [ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT])
@pytest.mark.parametrize("shape", [(), (50,)])
def test_all_reduce_adds_numbers_and_vectors_as_rows(mesh, shape, layout):
    ones = ttnn.from_torch(torch.ones(shape), ttnn.bfloat16, layout=layout, device=mesh)
    assert torch.equal(pieces(ttnn.all_reduce(ones, cluster_axis=1))[3], torch.full(shape, 4.0, dtype=torch.bfloat16))


def test_reduce_scatter_deals_the_sum(mesh):
    r = same(mesh)
    whole = 4 * pieces(r)[0]
    after = pieces(ttnn.reduce_scatter(r, 3, cluster_axis=1))
    for i in range(8):
        assert torch.equal(after[i], whole[..., i % 4 * 128 : (i % 4 + 1) * 128])


def test_without_an_axis_a_line_fabric_goes_along_one_axis_after_the_other(mesh):
    x, r = columns(mesh), same(mesh)
    assert torch.equal(pieces(ttnn.all_reduce(x))[5], sum(pieces(x)))
    for i, piece in enumerate(pieces(ttnn.reduce_scatter(r, 3))):
        assert torch.equal(piece, 8 * pieces(r)[0][..., i * 64 : (i + 1) * 64])


@pytest.mark.parametrize(
    ("width", "layout"), [(32, ttnn.ROW_MAJOR_LAYOUT), (40, ttnn.ROW_MAJOR_LAYOUT), (40, ttnn.TILE_LAYOUT)]
)
def test_without_an_axis_what_is_not_whole_tiles_is_gathered_row_by_row(mesh, width, layout):
    values = torch.arange(32.0 * 8 * width).reshape(1, 1, 32, 8 * width)
    x = put(values, ttnn.ShardTensorToMesh(mesh, 3), mesh, layout=layout)
    assert all(torch.equal(piece, values) for piece in pieces(ttnn.all_gather(x, 3)))


def test_mesh_partition_keeps_a_chunk_of_what_each_device_has(mesh):
    y = ttnn.to_layout(grid(mesh), ttnn.ROW_MAJOR_LAYOUT)
    before, after = pieces(y), pieces(ttnn.mesh_partition(y, 3, 1))
    for i in range(8):
        assert torch.equal(after[i], before[i][..., i % 4 * 16 : (i % 4 + 1) * 16])


def test_mesh_partition_undoes_all_gather(mesh):
    x = ttnn.to_layout(columns(mesh), ttnn.ROW_MAJOR_LAYOUT)
    back = ttnn.mesh_partition(ttnn.all_gather(x, 3, cluster_axis=1), 3, 1)
    assert all(torch.equal(a, b) for a, b in zip(pieces(x), pieces(back), strict=True))
    assert ttnn.placements(back) == (Shard(3), Shard(3))


# call, shape of each piece, TT-NN's label, the true placements
Case = tuple[Callable[[ttnn.MeshDevice], ttnn.Tensor], list[int], tuple[list[int], list[str]]]
WORKED: dict[str, Case] = {
    "gather the outer axis of a 1-D split": (
        lambda m: ttnn.all_gather(columns(m), 3, cluster_axis=0),
        [1, 1, 32, 64],
        ([8], ["Shard(3)"]),
    ),
    "gather the inner axis of a 1-D split": (
        lambda m: ttnn.all_gather(columns(m), 3, cluster_axis=1),
        [1, 1, 32, 128],
        ([2, 4], ["Shard(3)", "Replicate()"]),
    ),
    "gather rows": (
        lambda m: ttnn.all_gather(grid(m), 2, cluster_axis=0),
        [1, 1, 64, 64],
        ([2, 4], ["Replicate()", "Shard(3)"]),
    ),
    "reduce": (
        lambda m: ttnn.all_reduce(grid(m), cluster_axis=1),
        [1, 1, 32, 64],
        ([2, 4], ["Shard(2)", "Replicate()"]),
    ),
    "scatter": (
        lambda m: ttnn.reduce_scatter(same(m), 3, cluster_axis=1),
        [1, 1, 64, 128],
        ([2, 4], ["Replicate()", "Shard(3)"]),
    ),
    "gather what another axis splits": (
        lambda m: ttnn.all_gather(grid(m), 3, cluster_axis=0),
        [1, 1, 32, 128],
        ([2, 4], ["Replicate()", "Shard(3)"]),
    ),
    "scatter what another axis splits": (
        lambda m: ttnn.reduce_scatter(grid(m), 3, cluster_axis=0),
        [1, 1, 32, 32],
        ([2, 4], ["Shard(3)", "Shard(3)"]),
    ),
    "partition what is split already": (
        lambda m: ttnn.mesh_partition(ttnn.to_layout(grid(m), ttnn.ROW_MAJOR_LAYOUT), 2, 1),
        [1, 1, 8, 64],
        ([2, 4], ["Shard(2)", "Shard(3)"]),
    ),
    "partition": (
        lambda m: ttnn.mesh_partition(same(m), 3, 1),
        [1, 1, 64, 128],
        ([2, 4], ["Replicate()", "Shard(3)"]),
    ),
}


@pytest.mark.parametrize("case", WORKED.values(), ids=WORKED.keys())
def test_shapes_and_labels_are_those_of_ttnn(mesh, case):
    call, shape, expected = case
    result = call(mesh)
    assert list(result.shape) == shape
    assert label(result) == expected


@pytest.mark.parametrize(
    ("call", "shape", "expected"),
    [
        (lambda m: ttnn.all_gather(columns(m), 3), [1, 1, 32, 256], ([8], ["Replicate()"])),
        (lambda m: ttnn.all_reduce(columns(m)), [1, 1, 32, 32], ([2, 4], ["Replicate()", "Replicate()"])),
        (lambda m: ttnn.reduce_scatter(same(m), 3), [1, 1, 64, 64], ([8], ["Shard(3)"])),
        (lambda m: ttnn.mesh_partition(same(m), 3), [1, 1, 64, 64], ([8], ["Shard(3)"])),
    ],
    ids=["gather", "reduce", "scatter", "partition"],
)
def test_without_an_axis_the_whole_mesh_is_the_group(call, shape, expected):
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D)
    with ttnn.create_mesh_device(MeshShape(2, 4)) as opened:
        result = call(opened)
        assert list(result.shape) == shape
        assert label(result) == expected


def test_a_partial_sum_becomes_the_value(mesh):
    x = put(torch.randn(32, 256), ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(None, 1)), mesh)
    w = put(torch.randn(256, 64), ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(None, 0)), mesh)
    y = ttnn.matmul(x, w)
    assert ttnn.placements(y) == (Replicate(), Partial("sum"))
    assert ttnn.placements(ttnn.all_reduce(y, cluster_axis=1)) == (Replicate(), Replicate())
    assert ttnn.placements(ttnn.reduce_scatter(y, 1, cluster_axis=1)) == (Replicate(), Shard(1))
    ttnn.gelu(ttnn.all_reduce(y, cluster_axis=1))  # no warning: nothing is missing any more


def test_contributions_that_are_no_addends_are_not_added_silently(mesh):
    x = put(torch.randn(32, 256), ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(None, 1)), mesh)
    highest = ttnn.max(x, 1)
    assert ttnn.placements(highest) == (Replicate(), Partial("max"))
    with pytest.warns(ttnn.PartialWarning, match=r"Partial\(max\)"):
        ttnn.all_reduce(ttnn.reshape(highest, (1, 32)), cluster_axis=1)


def test_an_output_tensor_is_the_one_written(mesh):
    y = grid(mesh)
    target = put(torch.zeros(1, 1, 32, 256), ttnn.ReplicateTensorToMesh(mesh), mesh)
    result = ttnn.all_gather(y, 3, cluster_axis=1, output_tensor=target)
    assert result is target
    assert torch.equal(pieces(target)[5], pieces(ttnn.all_gather(y, 3, cluster_axis=1))[5])


@pytest.mark.parametrize(
    ("options", "width", "said"),
    [
        ({}, 128, r"Output tensor shape must be Shape\(\[1, 1, 32, 256\]\), got Shape\(\[1, 1, 32, 128\]\)"),
        ({"dtype": ttnn.bfloat16}, 256, "Output tensor dtype .* should be same as input tensor dtype"),
        (
            {"layout": ttnn.ROW_MAJOR_LAYOUT},
            256,
            "Output tensor layout .* should be same as input tensor layout",
        ),
    ],
)
def test_an_output_tensor_that_does_not_fit_is_refused(mesh, options, width, said):
    target = put(torch.zeros(1, 1, 32, width), ttnn.ReplicateTensorToMesh(mesh), mesh, **options)
    with pytest.raises(RuntimeError, match=said):
        ttnn.all_gather(grid(mesh), 3, cluster_axis=1, output_tensor=target)
    with pytest.raises(RuntimeError, match="does not match computed output spec"):
        ttnn.reduce_scatter(same(mesh), 3, cluster_axis=1, output_tensor=target)


def test_a_collective_on_a_submesh_stays_there(mesh):
    half = mesh.create_submesh(MeshShape(2, 2), ttnn.MeshCoordinate(0, 2))
    x = put(torch.arange(4 * 32 * 32.0).reshape(4 * 32, 32), ttnn.ShardTensorToMesh(half, 0), half)
    after = pieces(ttnn.all_reduce(x, cluster_axis=0))
    assert torch.equal(after[1], pieces(x)[1] + pieces(x)[3])


def test_tile_padding_never_gets_between_pieces(mesh):
    x = put(torch.arange(32 * 160.0).reshape(1, 1, 32, 160), ttnn.ShardTensor2dMesh(mesh, (2, 4), (None, 3)), mesh)
    assert list(x.shape) == [1, 1, 32, 40]
    assert torch.equal(
        pieces(ttnn.all_gather(x, 3, cluster_axis=1))[0], torch.arange(32 * 160.0).reshape(1, 1, 32, 160)
    )


def test_a_bfloat16_sum_is_rounded_once(mesh):
    values = torch.tensor([256.0, 1, 1, 1, 1, 1, 1, 1]).reshape(8, 1).expand(8, 32).contiguous()
    ttnn.close_mesh_device(mesh)
    with ttnn.create_mesh_device(MeshShape(1, 8)) as line:
        x = put(values, ttnn.ShardTensorToMesh(line, 0), line, dtype=ttnn.bfloat16)
        assert pieces(ttnn.all_reduce(x))[0][0, 0].item() == 264


REFUSED = [
    (lambda m: ttnn.all_gather(columns(m), 4, cluster_axis=1), "Invalid gather dim 4 for 4D input tensor"),
    (
        lambda m: ttnn.all_gather(columns(m), 3),
        "1D fabric on a 2D mesh_device requires cluster_axis to be set",
    ),
    (
        lambda m: ttnn.all_gather(columns(m), 3, cluster_axis=2),
        "cluster axis 2 is out of range for mesh shape rank 2",
    ),
    (
        lambda m: ttnn.reduce_scatter(same(m), 9, cluster_axis=1),
        "Index is out of bounds for the rank, should be between 0 and 3 however is 9",
    ),
    (lambda m: ttnn.reduce_scatter(same(m), 1, cluster_axis=1), "Dimension 1 must be divisible by ring_size"),
    (lambda m: ttnn.mesh_partition(same(m), 4, 1), "dim must be less than the rank of the input tensor"),
    (lambda m: ttnn.mesh_partition(same(m), 1, 1), "must be divisible by cluster axis size 4"),
    (
        lambda m: ttnn.mesh_partition(grid(m), 3, 1),
        "Can only slice tilized tensor with width begin index aligned to tiles",
    ),
    (lambda m: ttnn.mesh_partition(same(m), 3, 2), "Only support cluster axis of None, 0 or 1"),
    (
        lambda m: ttnn.all_reduce(ttnn.from_torch(torch.zeros(4, 4)), cluster_axis=1),
        "Mesh device is required for all_reduce",
    ),
]


@pytest.mark.parametrize(("call", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_cannot_be_is_refused_in_the_words_of_ttnn(mesh, call, said):
    with pytest.raises(RuntimeError, match=said):
        call(mesh)


def test_a_negative_axis_is_a_type_error(mesh):
    for call in (ttnn.all_gather, ttnn.reduce_scatter, ttnn.mesh_partition):
        with pytest.raises(TypeError, match="cluster_axis"):
            call(columns(mesh), 3, cluster_axis=-1)


def test_what_some_devices_share_is_reduced_over_those(mesh):
    few = ttnn.MeshMapperConfig([ttnn.PlacementReplicate()], MeshShape([2]))
    x = put(torch.ones(32, 32), ttnn.create_mesh_mapper(mesh, few), mesh)
    result = ttnn.all_reduce(x, cluster_axis=1)
    assert [piece[0, 0].item() for piece in pieces(result)] == [2, 2]


def test_without_a_fabric_nothing_can_be_sent():
    with ttnn.create_mesh_device(MeshShape(1, 4)) as opened:
        x = put(torch.ones(32, 128), ttnn.ShardTensorToMesh(opened, 1), opened)
        with pytest.raises(RuntimeError, match="Trying to get un-initialized fabric context"):
            ttnn.all_reduce(x)
        ttnn.mesh_partition(same(opened), 3, 1)  # nothing is sent
        with ttnn.lenient():
            assert pieces(ttnn.all_reduce(x))[2][0, 0].item() == 4


def test_one_device_alone_gathers_nothing():
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(MeshShape(1, 1)) as alone:
        x = put(torch.ones(32, 32), None, alone)
        with pytest.raises(RuntimeError, match="will only work for num_devices > 1, got 1"):
            ttnn.all_gather(x, 1)


@pytest.mark.parametrize(
    ("call", "programs"),
    [
        (lambda x: ttnn.all_gather(x, 3, cluster_axis=1), 1),
        (lambda x: ttnn.all_gather(ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT), 3, cluster_axis=1), 3),
        (lambda x: ttnn.all_reduce(x, cluster_axis=1), 2),
        (lambda x: ttnn.all_reduce(x), 4),
        (lambda x: ttnn.all_reduce(ttnn.typecast(x, ttnn.float32)[:, :, :, :40], cluster_axis=1), 6),
    ],
)
def test_a_collective_of_several_programs_counts_them_all(mesh, call, programs):
    """A reduce_scatter and an all_gather; or all pieces to all, joined and added. A typecast and a slice are others."""
    x = put(torch.ones(1, 1, 32, 128), None, mesh)
    mesh.clear_program_cache()
    for _ in range(2):
        call(x)
        assert mesh.num_program_cache_entries() == programs


def test_programs_are_counted_once_for_each_configuration(mesh):
    x = columns(mesh)
    count = mesh.num_program_cache_entries
    ttnn.all_gather(x, 3, cluster_axis=1)
    first = count()
    ttnn.all_gather(x, 3, cluster_axis=1)
    assert count() == first
    ttnn.all_gather(x, 3, cluster_axis=0)
    assert count() == first + 1
