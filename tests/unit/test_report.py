"""Pictures of meshes and tensors: terminal boxes as whole texts, SVG by its elements."""

from __future__ import annotations

import io
import math
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType

import softmesh
import softmesh.report.notebook
from softmesh.collectives import on_system
from softmesh.errors import ArgumentError, MeshError, ranges_text
from softmesh.fabric.system import current_system
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.placement.tensor_topology import PlacementReplicate, PlacementShard
from softmesh.report.drawing import INK, hue_wheel, shaded_tints, text_width, tints
from softmesh.report.mesh_svg import mesh_svg, tensor_svg
from softmesh.report.shard_layout import cut, placed
from softmesh.report.tensor_panel import drawn_dims
from softmesh.report.terminal import (
    contents_of,
    mesh_grid,
    system_grid,
    tensor_grid,
    tensor_picture,
    visualize_mesh_device,
    visualize_system_mesh,
    visualize_tensor,
)
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.device_shards import get_device_tensors
from softmesh.tensor.dtype import Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.mappers import (
    MeshMapperConfig,
    ReplicateTensorToMesh,
    ShardTensor2dMesh,
    ShardTensorToMesh,
    create_mesh_mapper,
)
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import copy_host_to_device_tensor

T3K_IDS = [4, 0, 2, 6, 5, 1, 3, 7]


def mesh(*shape: int, ids: list[int] | None = None) -> MeshDevice:
    """A mesh that takes no chips from the machine, so that ids may be chosen freely."""
    return MeshDevice(MeshShape(shape), ids or list(range(math.prod(shape))), current_system())


def on(device: MeshDevice, shape: tuple[int, ...], *dims: int | None, host: bool = False) -> Tensor:
    """Zeros of this whole shape with one dim (or None) split over each axis of the mesh."""
    placements = [PlacementReplicate() if dim is None else PlacementShard(dim) for dim in dims]
    mapper = create_mesh_mapper(device, MeshMapperConfig(placements))
    tensor = from_torch(torch.zeros(shape), layout=Layout.TILE, device=None if host else device, mesh_mapper=mapper)
    assert tensor is not None
    return tensor


def placed_as(device: MeshDevice, words: tuple[Placement, ...], local: tuple[int, ...]) -> Tensor:
    """A tensor that an op might have left with these placements."""
    dist = distribution(tuple(device.shape), tuple(device.shape), words)
    spec = make_spec(local, softmesh.float32, Layout.ROW_MAJOR, DRAM_MEMORY_CONFIG)
    return Tensor.make(Storage(torch.zeros(*dist.extents, *local), dist, device), spec)


def text_of(picture: RenderableType, width: int) -> str:
    file = io.StringIO()
    Console(width=width, file=file, color_system=None).print(picture, markup=False, highlight=False)
    return without_trailing_spaces(file.getvalue())


def without_trailing_spaces(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip("\n").split("\n"))


# -- which slice is where ------------------------------------------------------------------------


def slices(words: tuple[Placement, ...], grid: tuple[int, ...], local: tuple[int, ...]) -> list[str]:
    cutting = cut(distribution(grid, grid, words), local)
    return [cutting.slice_text(piece) for piece in cutting.pieces]


def test_rows_and_columns_cut_a_dim_each():
    assert slices((Shard(0), Shard(1)), (2, 2), (2, 2)) == [
        "[0:2, 0:2]",
        "[0:2, 2:4]",
        "[2:4, 0:2]",
        "[2:4, 2:4]",
    ]


def test_two_axes_that_cut_one_dim_count_row_major():
    assert slices((Shard(0), Shard(0)), (2, 2), (3,)) == ["[0:3]", "[3:6]", "[6:9]", "[9:12]"]


def test_the_last_pieces_of_an_uneven_split_are_clipped_to_the_true_extent():
    assert slices((REPLICATE, Shard(0, size=5)), (1, 4), (2,)) == ["[0:2]", "[2:4]", "[4:5]", "[5:5]"]


def test_local_pieces_are_of_a_group_each_and_partial_ones_share_theirs():
    words: tuple[Placement, ...] = (LOCAL, Partial("sum"))
    assert list(cut(distribution((2, 2), (2, 2), words), (4,)).groups().values()) == [0, 0, 1, 1]


def test_scalars_said_to_be_sharded_are_values_of_their_own():
    assert list(cut(distribution((1, 2), (2,), (Shard(0),), None), ()).groups().values()) == [0, 1]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_each_device_holds_the_slice_that_is_written_on_it(data: st.DataObject):
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    device = mesh(*shape)
    rank = 3
    dims = data.draw(st.permutations([0, 1, 2, None, None, None]))[: len(shape)]
    local = data.draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    whole = list(local)
    for axis, dim in enumerate(dims):
        if dim is not None:
            whole[dim] *= shape[axis]
    source = torch.arange(math.prod(whole)).reshape(whole).float()
    placements = [PlacementReplicate() if dim is None else PlacementShard(dim) for dim in dims]
    mapper = create_mesh_mapper(device, MeshMapperConfig(placements))
    tensor = from_torch(source, device=device, mesh_mapper=mapper)
    assert tensor is not None
    cutting = placed(tensor).cutting
    assert cutting.shape == tuple(whole)
    for piece, values in zip(cutting.pieces, tensor.pieces(), strict=True):
        assert torch.equal(source[tuple(slice(*span) for span in piece.spans)], values)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(1, 9))
def test_an_uneven_split_is_written_with_the_values_each_device_really_holds(n: int, devices: int):
    device = mesh(1, devices)
    source = torch.arange(n).float()
    with softmesh.lenient():
        tensor = from_torch(source, device=device, mesh_mapper=ShardTensorToMesh(device, 0))
    assert tensor is not None
    cutting = placed(tensor).cutting
    assert cutting.shape == (n,)
    for piece, values in zip(cutting.pieces, tensor.pieces(), strict=True):
        ((start, stop),) = piece.spans
        assert torch.equal(source[start:stop], values[: stop - start])


# -- boxes in the terminal -----------------------------------------------------------------------


def test_a_mesh_is_drawn_as_the_tutorial_draws_it():
    assert (
        text_of(mesh_grid((1, 2), [0, 1]), width=33)
        == """\
   MeshDevice(rows=1, cols=2)
┌───────────────┬───────────────┐
│  Dev. ID: 0   │  Dev. ID: 1   │
│    (0, 0)     │    (0, 1)     │
│               │               │
└───────────────┴───────────────┘"""
    )


def test_a_sharded_tensor_on_a_mesh_is_drawn_as_the_tutorial_draws_it():
    device = mesh(1, 2, ids=[11, 10])
    tensor = placed(on(device, (1, 1, 32, 64), None, 3))
    assert (
        text_of(mesh_grid((1, 2), [11, 10], contents_of(tensor, device)), width=100)
        == """\
                  MeshDevice(rows=1, cols=2)
┌──────────────────────────────┬──────────────────────────────┐
│         Dev. ID: 11          │         Dev. ID: 10          │
│            (0, 0)            │            (0, 1)            │
│  ttnn.Shape([1, 1, 32, 32])  │  ttnn.Shape([1, 1, 32, 32])  │
└──────────────────────────────┴──────────────────────────────┘"""
    )


def test_a_tensor_is_drawn_with_its_placements_and_the_slice_of_each_device():
    tensor = on(mesh(2, 4, ids=T3K_IDS), (1, 1, 64, 128), 2, 3)
    assert (
        text_of(tensor_picture(placed(tensor)), width=100)
        == """\
╭─────── Placement Configuration ────────╮
│ [PlacementShard(2), PlacementShard(3)] │
╰────────────────────────────────────────╯
                               Tensor(storage: StorageType.DEVICE)
┌───────────────────────┬───────────────────────┬───────────────────────┬───────────────────────┐
│      Dev. ID: 4       │      Dev. ID: 0       │      Dev. ID: 2       │      Dev. ID: 6       │
│        (0, 0)         │        (0, 1)         │        (0, 2)         │        (0, 3)         │
│  [:, :, 0:32, 0:32]   │  [:, :, 0:32, 32:64]  │  [:, :, 0:32, 64:96]  │ [:, :, 0:32, 96:128]  │
│ Shape: [1, 1, 32, 32] │ Shape: [1, 1, 32, 32] │ Shape: [1, 1, 32, 32] │ Shape: [1, 1, 32, 32] │
│    Dtype: FLOAT32     │    Dtype: FLOAT32     │    Dtype: FLOAT32     │    Dtype: FLOAT32     │
│     Layout: TILE      │     Layout: TILE      │     Layout: TILE      │     Layout: TILE      │
├───────────────────────┼───────────────────────┼───────────────────────┼───────────────────────┤
│      Dev. ID: 5       │      Dev. ID: 1       │      Dev. ID: 3       │      Dev. ID: 7       │
│        (1, 0)         │        (1, 1)         │        (1, 2)         │        (1, 3)         │
│  [:, :, 32:64, 0:32]  │ [:, :, 32:64, 32:64]  │ [:, :, 32:64, 64:96]  │ [:, :, 32:64, 96:128] │
│ Shape: [1, 1, 32, 32] │ Shape: [1, 1, 32, 32] │ Shape: [1, 1, 32, 32] │ Shape: [1, 1, 32, 32] │
│    Dtype: FLOAT32     │    Dtype: FLOAT32     │    Dtype: FLOAT32     │    Dtype: FLOAT32     │
│     Layout: TILE      │     Layout: TILE      │     Layout: TILE      │     Layout: TILE      │
└───────────────────────┴───────────────────────┴───────────────────────┴───────────────────────┘"""
    )


def test_a_partial_sum_is_told_in_the_panel_and_in_every_box():
    tensor = placed_as(mesh(1, 2), (REPLICATE, Partial("sum")), (2, 3))
    assert (
        text_of(tensor_picture(placed(tensor)), width=80)
        == """\
╭────────── Placement Configuration ───────────╮
│ [PlacementReplicate(), PlacementReplicate()] │
│ rows: Replicate, columns: Partial(sum)       │
╰──────────────────────────────────────────────╯
              Tensor(storage: StorageType.DEVICE)
┌──────────────────────────────┬──────────────────────────────┐
│          Dev. ID: 0          │          Dev. ID: 1          │
│            (0, 0)            │            (0, 1)            │
│            [:, :]            │            [:, :]            │
│         Partial(sum)         │         Partial(sum)         │
│        Shape: [2, 3]         │        Shape: [2, 3]         │
│        Dtype: FLOAT32        │        Dtype: FLOAT32        │
│      Layout: ROW_MAJOR       │      Layout: ROW_MAJOR       │
└──────────────────────────────┴──────────────────────────────┘"""
    )


def test_local_values_are_told_too():
    text = text_of(tensor_picture(placed(placed_as(mesh(1, 2), (REPLICATE, LOCAL), (2, 3)))), width=80)
    assert "rows: Replicate, columns: Local" in text
    assert text.count("│            Local             │") == 1  # two boxes on one line share a border
    assert text.count("Local") == 3


def test_a_host_tensor_has_coordinates_and_no_device_ids():
    tensor = on(mesh(1, 2), (2, 4), None, 1, host=True)
    assert (
        text_of(tensor_grid(placed(tensor)), width=80)
        == """\
               Tensor(storage: StorageType.HOST)
┌──────────────────────────────┬──────────────────────────────┐
│            (0, 0)            │            (0, 1)            │
│           [:, 0:2]           │           [:, 2:4]           │
│        Shape: [2, 2]         │        Shape: [2, 2]         │
│        Dtype: FLOAT32        │        Dtype: FLOAT32        │
│         Layout: TILE         │         Layout: TILE         │
└──────────────────────────────┴──────────────────────────────┘"""
    )


def test_a_long_line_wraps_in_a_narrow_box_and_an_id_does_not():
    device = mesh(1, 2)
    contents = contents_of(placed(on(device, (1, 1, 32, 64), None, 3)), device)
    assert (
        text_of(mesh_grid((1, 2), [0, 1], contents), width=41)
        == """\
       MeshDevice(rows=1, cols=2)
┌───────────────────┬───────────────────┐
│    Dev. ID: 0     │    Dev. ID: 1     │
│      (0, 0)       │      (0, 1)       │
│ ttnn.Shape([1, 1, │ ttnn.Shape([1, 1, │
│     32, 32])      │     32, 32])      │
└───────────────────┴───────────────────┘"""
    )


def test_a_mesh_wider_than_the_console_is_cut_between_columns():
    assert (
        text_of(mesh_grid((1, 8), list(range(8))), width=60)
        == """\
MeshDevice(rows=1, cols=8)
                   columns 0 to 3
┌────────────┬────────────┬────────────┬────────────┐
│ Dev. ID: 0 │ Dev. ID: 1 │ Dev. ID: 2 │ Dev. ID: 3 │
│   (0, 0)   │   (0, 1)   │   (0, 2)   │   (0, 3)   │
│            │            │            │            │
└────────────┴────────────┴────────────┴────────────┘
                   columns 4 to 7
┌────────────┬────────────┬────────────┬────────────┐
│ Dev. ID: 4 │ Dev. ID: 5 │ Dev. ID: 6 │ Dev. ID: 7 │
│   (0, 4)   │   (0, 5)   │   (0, 6)   │   (0, 7)   │
│            │            │            │            │
└────────────┴────────────┴────────────┴────────────┘"""
    )


def test_a_mesh_of_three_axes_is_a_row_of_tables():
    assert (
        text_of(mesh_grid((2, 1, 2), list(range(4))), width=80)
        == """\
MeshDevice(2x1x2)
         [0, :, :]                    [1, :, :]
┌────────────┬────────────┐  ┌────────────┬────────────┐
│ Dev. ID: 0 │ Dev. ID: 1 │  │ Dev. ID: 2 │ Dev. ID: 3 │
│ (0, 0, 0)  │ (0, 0, 1)  │  │ (1, 0, 0)  │ (1, 0, 1)  │
│            │            │  │            │            │
└────────────┴────────────┘  └────────────┴────────────┘"""
    )


def test_a_mesh_of_one_axis_is_a_row():
    assert (
        text_of(mesh_grid((2,), [0, 1]), width=33)
        == """\
          MeshDevice(2)
┌───────────────┬───────────────┐
│  Dev. ID: 0   │  Dev. ID: 1   │
│      (0)      │      (1)      │
│               │               │
└───────────────┴───────────────┘"""
    )


def test_the_system_mesh_is_drawn_with_its_two_shapes():
    assert (
        text_of(system_grid(), width=60)
        == """\
  SystemMesh Global Shape: (2, 4) | Local Shape: (2, 4)
┌─────────────┬─────────────┬─────────────┬─────────────┐
│ Dev. ID: 0  │ Dev. ID: 1  │ Dev. ID: 2  │ Dev. ID: 3  │
│   (0, 0)    │   (0, 1)    │   (0, 2)    │   (0, 3)    │
├─────────────┼─────────────┼─────────────┼─────────────┤
│ Dev. ID: 4  │ Dev. ID: 5  │ Dev. ID: 6  │ Dev. ID: 7  │
│   (1, 0)    │   (1, 1)    │   (1, 2)    │   (1, 3)    │
└─────────────┴─────────────┴─────────────┴─────────────┘"""
    )


def test_the_public_functions_print_what_is_built(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "70")
    device = mesh(1, 2, ids=[11, 10])
    tensor = on(device, (1, 1, 32, 64), None, 3)
    visualize_mesh_device(device)
    assert without_trailing_spaces(capsys.readouterr().out) == text_of(mesh_grid((1, 2), [11, 10]), 70)
    visualize_mesh_device(device, tensor=tensor)
    assert "ttnn.Shape([1, 1, 32, 32])" in capsys.readouterr().out
    visualize_tensor(tensor)
    assert without_trailing_spaces(capsys.readouterr().out) == text_of(tensor_picture(placed(tensor)), 70)
    visualize_system_mesh()
    printed = without_trailing_spaces(capsys.readouterr().out)
    assert printed == "\n".join(
        [
            "SystemMesh Global Shape: MeshShape([2, 4])",
            "SystemMesh Local Shape: MeshShape([2, 4])",
            text_of(system_grid(), 70),
        ]
    )


def test_a_tensor_on_a_submesh_shows_where_it_lies_in_the_whole_mesh():
    device = mesh(2, 4, ids=T3K_IDS)
    submesh = device.create_submesh(MeshShape(1, 2), MeshCoordinate(1, 2))
    contents = contents_of(placed(on(submesh, (32, 64), None, 1)), device)
    assert {device_id: text for device_id, (text, _) in contents.items()} == {
        3: "ttnn.Shape([32, 32])",
        7: "ttnn.Shape([32, 32])",
    }


def test_a_host_tensor_mapped_for_another_mesh_is_refused():
    with pytest.raises(MeshError, match=r"distributed over a 1x2 mesh and this is MeshDevice\(2x4 grid"):
        visualize_mesh_device(mesh(2, 4), on(mesh(1, 2), (2, 4), None, 1, host=True))


def test_what_is_neither_mesh_nor_tensor_is_refused_by_name():
    with pytest.raises(ArgumentError, match="expected a MeshDevice, got str"):
        visualize_mesh_device("mesh")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"expected a ttnn\.Tensor, got torch\.Tensor"):
        visualize_tensor(torch.zeros(2))  # type: ignore[arg-type]


def test_one_shard_of_many_is_drawn_at_its_place():
    tensor = on(mesh(2, 4), (1, 1, 64, 128), 2, 3)
    grid = tensor_grid(placed(get_device_tensors(tensor)[5]))
    assert [index for index, cell in enumerate(grid.cells) if cell.lines] == [5]
    assert "[:, :, 32:64, 32:64]" in grid.cells[5].lines
    assert grid.cells[5].colour == tensor_grid(placed(tensor)).cells[5].colour


def test_devices_without_a_piece_are_empty_boxes():
    device = mesh(2, 4)
    six = from_torch(torch.zeros(12, 32), device=device, mesh_mapper=ShardTensorToMesh(device, 0))
    assert six is not None
    cells = tensor_grid(placed(six)).cells
    assert [bool(cell.lines) for cell in cells] == [True] * 6 + [False] * 2
    assert [cell.colour is not None for cell in cells] == [True] * 6 + [False] * 2


def test_a_deallocated_tensor_still_shows_its_placement():
    tensor = on(mesh(1, 2), (1, 1, 32, 64), None, 3)
    tensor.deallocate(force=True)
    assert "[:, :, :, 32:64]" in text_of(tensor_grid(placed(tensor)), width=80)


def test_a_tensor_made_before_its_mesh_was_reshaped_keeps_its_own_rows_and_columns():
    device = mesh(2, 4)
    tensor = on(device, (1, 1, 64, 128), 2, 3)
    device.reshape(MeshShape(1, 8))
    text = text_of(tensor_grid(placed(tensor)), width=130)
    assert "(1, 3)" in text
    assert "Dev. ID" not in text


# -- colours -------------------------------------------------------------------------------------


def test_boxes_with_the_same_slice_share_a_colour_of_the_hue_wheel():
    cells = tensor_grid(placed(on(mesh(2, 4), (1, 1, 64, 128), None, 3))).cells
    colours = [cell.colour for cell in cells]
    assert colours == hue_wheel(4) * 2
    assert hue_wheel(4) == ["#cc6a6a", "#9bcc6a", "#6acccc", "#9b6acc"]


def test_boxes_of_a_replicated_tensor_have_one_colour():
    device = mesh(2, 4)
    tensor = from_torch(torch.zeros(4, 4), device=device, mesh_mapper=ReplicateTensorToMesh(device))
    assert tensor is not None
    assert {cell.colour for cell in tensor_grid(placed(tensor)).cells} == {hue_wheel(1)[0]}


def test_the_colour_fills_the_box_of_a_colour_terminal():
    file = io.StringIO()
    console = Console(width=70, file=file, color_system="truecolor", force_terminal=True)
    console.print(tensor_grid(placed(on(mesh(1, 2), (32, 64), None, 1))))
    filled = "\x1b[30;48;2;204;106;106m            (0, 0)            \x1b[0m"
    assert filled in file.getvalue()


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 32, 200])
def test_text_reads_on_every_colour(count: int):
    assert min(contrast("#000000", colour) for colour in hue_wheel(count)) >= 4.5
    assert min(contrast(INK, colour) for colour in tints(count)) >= 4.5
    assert min(contrast(INK, colour) for shades in shaded_tints(count, 8) for colour in shades) >= 4.5


@pytest.mark.parametrize("count", [1, 2, 8, 9, 32])
def test_every_group_has_a_colour_of_its_own(count: int):
    assert len(set(hue_wheel(count))) == len(set(tints(count))) == count
    assert len({colour for shades in shaded_tints(count, 8) for colour in shades}) == 8 * count


# -- SVG -----------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def rectangles(svg: str, kind: str) -> list[ElementTree.Element]:
    return [r for r in ElementTree.fromstring(svg).iter(f"{SVG}rect") if r.get("class") == kind]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 4), (1, 8), (8, 1), (8, 4), (8,), (2, 2, 2), (32, 32)])
def test_a_mesh_picture_has_a_cell_for_each_device(shape: tuple[int, ...]):
    count = math.prod(shape)
    svg = mesh_svg(shape, list(range(count)))
    assert len(rectangles(svg, "device")) == count
    assert f"Mesh of {'x'.join(map(str, shape))}" in texts(svg)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 4), (8, 4)])
def test_cells_up_to_a_galaxy_name_their_device_and_coordinate(shape: tuple[int, int]):
    written = texts(mesh_svg(shape, [100 + i for i in range(math.prod(shape))]))
    for index, coordinate in enumerate(MeshShape(shape).coordinates()):
        assert f"Dev. ID: {100 + index}" in written
        assert f"({coordinate[0]}, {coordinate[1]})" in written


def test_tiny_cells_have_no_text_but_tell_all_on_hovering():
    svg = mesh_svg((32, 32), list(range(1024)))
    assert len(texts(svg)) == 2 + 32 + 32  # headings, column and row numbers
    tips = [cell.findtext(f"{SVG}title") for cell in rectangles(svg, "device")]
    assert tips[33] == "Dev. ID: 33\n(1, 1)"


def test_texts_are_escaped():
    svg = mesh_svg((1, 1), [0], title='<script>alert("&")</script>')
    assert "<script" not in svg
    assert '<script>alert("&")</script>' in texts(svg)


def test_a_mesh_picture_refuses_a_wrong_number_of_ids():
    with pytest.raises(MeshError, match=r"3 ids for a mesh of 4 devices \(2x2\)"):
        mesh_svg((2, 2), [0, 1, 2])


def test_a_tensor_picture_shows_devices_pieces_slices_and_words():
    svg = tensor_svg(on(mesh(2, 4, ids=T3K_IDS), (1, 1, 64, 256), 2, 3))
    assert len(rectangles(svg, "device")) == len(rectangles(svg, "piece")) == 8
    written = texts(svg)
    for text in (
        "Tensor [1, 1, 64, 256] on a mesh of 2x4",
        "each of the 8 devices holds [1, 1, 32, 64] (float32, TILE, on device)",
        "the whole tensor: dim 2 down, dim 3 across",
        "[:, :, 32:64, 192:256]",
        "dev 4",
        "rows (2)",
        "Shard(2)",
        "each holds its part of dim 2",
        "columns (4)",
        "Shard(3)",
    ):
        assert text in written
    assert {"0", "64", "128", "192", "256", "32"} <= set(written)


@pytest.mark.parametrize(
    ("shape", "dims", "distinct"),
    [
        ((2, 4), (2, 3), 8),
        ((2, 4), (None, 3), 4),
        ((2, 4), (None, None), 1),
        ((8, 4), (2, 3), 32),
        ((8, 4), (None, 3), 4),
        ((16, 16), (2, 3), 256),
    ],
)
def test_devices_and_pieces_of_one_slice_have_one_colour(
    shape: tuple[int, int], dims: tuple[int | None, int | None], distinct: int
):
    svg = tensor_svg(on(mesh(*shape), (1, 1, 32 * shape[0], 32 * shape[1]), *dims))
    of_slice: dict[str, set[str]] = {}
    for cell in rectangles(svg, "device"):
        slice_text = (cell.findtext(f"{SVG}title") or "").splitlines()[2]
        of_slice.setdefault(slice_text, set()).add(cell.get("fill") or "")
    assert len(of_slice) == distinct
    assert all(len(colours) == 1 for colours in of_slice.values())
    pieces = [piece.get("fill") for piece in rectangles(svg, "piece")]
    assert len(set(pieces)) == len(pieces) == distinct
    assert set(pieces) == set.union(*of_slice.values())


def test_pieces_name_all_devices_that_hold_them():
    written = texts(tensor_svg(on(mesh(2, 4), (1, 1, 64, 256), 2, None)))
    assert "dev 0-3" in written
    assert "dev 4-7" in written


def test_pieces_name_their_devices_in_the_same_wording():
    written = texts(tensor_svg(on(mesh(4, 8), (1, 1, 128, 512), 2, 3)))
    in_pieces = written[written.index("the whole tensor: dim 2 down, dim 3 across") :]
    assert [str(device) for device in range(32)] == in_pieces[1:33]


def test_pieces_of_a_host_tensor_name_coordinates_or_count_devices():
    device = mesh(2, 2)
    assert "(1, 0)" in texts(tensor_svg(on(device, (64, 64), 0, 1, host=True)))
    assert "2 devices" in texts(tensor_svg(on(device, (64, 64), 0, None, host=True)))


def test_a_partial_sum_is_drawn_as_the_sum_of_its_devices():
    written = texts(tensor_svg(placed_as(mesh(2, 4), (Shard(0), Partial("sum")), (32, 64))))
    assert "sum of dev 0-3" in written
    assert written.count("Partial(sum)") == 8 + 1
    assert any("all_reduce or reduce_scatter is to come" in text for text in written)


def test_local_values_are_not_drawn_as_one_tensor():
    device = mesh(1, 2)
    tensor = from_torch(torch.zeros(4, 4), device=device)
    assert tensor is not None
    own = from_torch(torch.ones(4, 4))
    assert own is not None
    copy_host_to_device_tensor(own, get_device_tensors(tensor)[1])
    svg = tensor_svg(tensor)
    assert not rectangles(svg, "piece")
    assert len({cell.get("fill") for cell in rectangles(svg, "device")}) == 2
    assert "values of their own (Local)" in texts(svg)


def test_devices_without_a_piece_are_drawn_dashed():
    device = mesh(2, 4)
    six = from_torch(torch.zeros(12, 32), device=device, mesh_mapper=ShardTensorToMesh(device, 0))
    assert six is not None
    svg = tensor_svg(six)
    dashed = [cell.get("stroke-dasharray") is not None for cell in rectangles(svg, "device")]
    assert dashed == [False] * 6 + [True] * 2
    assert "6 of 8 devices hold [2, 32] (float32, ROW_MAJOR, on device)" in texts(svg)


def test_pieces_apart_along_a_third_dim_are_sheets_of_their_own():
    svg = tensor_svg(on(mesh(2, 2, 2), (4, 1, 64, 64), 0, 2, 3))
    assert {"dim 0 = 0:2", "dim 0 = 2:4", "[0, :, :]", "[1, :, :]"} <= set(texts(svg))
    assert len(rectangles(svg, "piece")) == 8


def test_more_sheets_than_are_legible_are_counted_instead():
    svg = tensor_svg(on(mesh(16, 2, 2), (16, 1, 64, 64), 0, 2, 3))
    assert len(rectangles(svg, "piece")) == 12 * 4
    assert "and 4 more like these" in texts(svg)


@pytest.mark.parametrize("shape", [(), (5,), (0, 4), (3, 4), (1, 1, 64, 256), (7, 6, 5, 4, 3)])
def test_a_replicated_tensor_of_any_rank_has_a_picture(shape: tuple[int, ...]):
    device = mesh(2, 4)
    tensor = from_torch(torch.zeros(shape), device=device)
    assert tensor is not None
    svg = tensor_svg(tensor)
    assert f"Tensor {list(shape)} on a mesh of 2x4" in texts(svg)
    assert len(rectangles(svg, "piece")) == (0 if 0 in shape else 1)


def test_an_uneven_split_draws_only_what_is_there():
    device = mesh(2, 4)
    with softmesh.lenient():
        tensor = from_torch(torch.zeros(4, 5), device=device, mesh_mapper=ShardTensor2dMesh(device, (2, 4), (0, 1)))
    assert tensor is not None
    svg = tensor_svg(tensor)
    assert len(rectangles(svg, "device")) == 8
    assert len(rectangles(svg, "piece")) == 6
    assert "Tensor [4, 5] on a mesh of 2x4" in texts(svg)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 4), (1, 8), (1, 32), (8, 1), (8, 4), (8, 8), (32, 32)])
def test_everything_lies_on_the_page_and_texts_fit_their_cells(shape: tuple[int, int]):
    svg = tensor_svg(on(mesh(*shape), (1, 1, 32 * shape[0], 64 * shape[1]), 2, 3))
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    assert width < 1150

    def check(element: ElementTree.Element, x: float, y: float) -> None:
        move = element.get("transform")
        if move is not None:
            across, down = move.removeprefix("translate(").removesuffix(")").split()
            x, y = x + float(across), y + float(down)
        if element.tag == f"{SVG}rect":
            right = x + float(element.get("x", 0)) + float(element.get("width", 0))
            bottom = y + float(element.get("y", 0)) + float(element.get("height", 0))
            assert right <= width + 0.01
            assert bottom <= height + 0.01
        for child in element:
            check(child, x, y)

    check(root, 0, 0)
    cell_width = float(rectangles(svg, "device")[0].get("width", 0))
    in_cells = [text for text in texts(svg) if text.startswith(("Dev. ID", "("))]
    assert all(text_width(text, 10.5) <= cell_width for text in in_cells)


def test_a_picture_has_no_scripts():
    svg = tensor_svg(on(mesh(2, 4), (1, 1, 64, 256), 2, 3))
    assert {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(svg).iter()} == {
        "svg",
        "g",
        "rect",
        "text",
        "style",
        "title",
    }


@pytest.mark.parametrize(
    ("split", "drawn"),
    [((), (2, 3)), ((3,), (2, 3)), ((2, 3), (2, 3)), ((0,), (0, 3)), ((0, 2), (0, 2)), ((0, 2, 3), (2, 3))],
)
def test_the_dims_that_are_split_are_the_ones_drawn(split: tuple[int, ...], drawn: tuple[int, int]):
    dims = drawn_dims((2, 2, 2, 2), split)
    assert (dims.down, dims.across) == drawn


def test_device_numbers_are_written_as_runs():
    assert ranges_text([4, 0, 1, 2, 6]) == "4, 0-2, 6"


# -- notebooks -----------------------------------------------------------------------------------


def html(thing: object) -> str:
    text = thing._repr_html_()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_a_notebook_shows_the_chips_of_an_assignment():
    shown = texts(html(on_system("T3000", (8,))))
    assert "8 devices on T3000" in shown
    assert {f"M0D{device}" for device in range(8)} <= set(shown)


def test_a_notebook_shows_a_mesh_as_its_picture():
    device = mesh(2, 4)
    assert "MeshDevice(2x4 grid, 8 devices)" in texts(html(device))
    device.close()
    assert "MeshDevice(2x4 grid, 8 devices), closed" in texts(html(device))


def test_a_notebook_shows_a_distributed_tensor_as_its_picture():
    tensor = on(mesh(2, 4), (1, 1, 64, 256), 2, 3)
    assert html(tensor) == tensor_svg(tensor)


def test_a_notebook_shows_the_values_of_a_tensor_in_one_piece():
    tensor = from_torch(torch.ones(2))
    assert tensor is not None
    page = html(tensor)
    assert page.startswith("<svg")
    assert page.endswith(f"<pre>{tensor!r}</pre>")


def test_a_notebook_shows_a_deallocated_tensor_as_text():
    tensor = on(mesh(1, 2), (1, 1, 32, 64), None, 3)
    tensor.deallocate(force=True)
    assert html(tensor).startswith("<pre>ttnn.Tensor(&lt;buffer is not allocated&gt;, shape=Shape([1, 1, 32, 32])")
