"""`softmesh show`, as a user types it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from softmesh.report.drawing import scrolling
from softmesh.report.show import show


def run(*arguments: str, columns: int = 100) -> Result:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(show, list(arguments), prog_name="softmesh show")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def lines_of(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.output.splitlines()]


def test_a_mesh_is_drawn_in_the_terminal():
    assert lines_of(run("--mesh", "1x2")) == [
        "                  MeshDevice(rows=1, cols=2)",
        "┌──────────────────────────────┬──────────────────────────────┐",
        "│          Dev. ID: 0          │          Dev. ID: 1          │",
        "│            (0, 0)            │            (0, 1)            │",
        "│                              │                              │",
        "└──────────────────────────────┴──────────────────────────────┘",
    ]


def test_without_a_mesh_the_machine_is_drawn():
    assert "MeshDevice(rows=2, cols=4)" in run().output


def test_rows_and_columns_are_split_by_a_dim_each():
    assert lines_of(run("--mesh", "2x2", "--shape", "1,1,64,128", "--shard", "2,3")) == [
        "Tensor [1, 1, 64, 128] on a mesh of 2x2",
        "each of the 4 devices holds [1, 1, 32, 64] (bfloat16, TILE, on device)",
        "╭─────── Placement Configuration ────────╮",
        "│ [PlacementShard(2), PlacementShard(3)] │",
        "╰────────────────────────────────────────╯",
        "              Tensor(storage: StorageType.DEVICE)",
        "┌──────────────────────────────┬──────────────────────────────┐",
        "│          Dev. ID: 0          │          Dev. ID: 1          │",
        "│            (0, 0)            │            (0, 1)            │",
        "│      [:, :, 0:32, 0:64]      │     [:, :, 0:32, 64:128]     │",
        "│    Shape: [1, 1, 32, 64]     │    Shape: [1, 1, 32, 64]     │",
        "│       Dtype: BFLOAT16        │       Dtype: BFLOAT16        │",
        "│         Layout: TILE         │         Layout: TILE         │",
        "├──────────────────────────────┼──────────────────────────────┤",
        "│          Dev. ID: 2          │          Dev. ID: 3          │",
        "│            (1, 0)            │            (1, 1)            │",
        "│     [:, :, 32:64, 0:64]      │    [:, :, 32:64, 64:128]     │",
        "│    Shape: [1, 1, 32, 64]     │    Shape: [1, 1, 32, 64]     │",
        "│       Dtype: BFLOAT16        │       Dtype: BFLOAT16        │",
        "│         Layout: TILE         │         Layout: TILE         │",
        "└──────────────────────────────┴──────────────────────────────┘",
    ]


@pytest.mark.parametrize(
    ("arguments", "whole", "local"),
    [
        (("--shard", "3"), [1, 1, 32, 256], [1, 1, 32, 32]),
        (("--shard", "-1"), [1, 1, 32, 256], [1, 1, 32, 32]),
        (("--shard", "0"), [8, 1, 32, 32], [1, 1, 32, 32]),
        (("--shard", "0,3"), [2, 1, 32, 128], [1, 1, 32, 32]),
        (("--shard", "none,3"), [1, 1, 32, 128], [1, 1, 32, 32]),
        (("--shard", "2,NONE"), [1, 1, 64, 32], [1, 1, 32, 32]),
        (("--shard", "none"), [1, 1, 32, 32], [1, 1, 32, 32]),
        (("--shape", "6, 7"), [6, 7], [6, 7]),
        (("--shape", "8192,28672", "--shard", "0,1"), [8192, 28672], [4096, 7168]),
    ],
)
def test_each_device_gets_a_tile_unless_a_shape_says_otherwise(
    arguments: tuple[str, ...], whole: list[int], local: list[int]
):
    first, second, *_ = lines_of(run("--mesh", "2x4", *arguments))
    assert first == f"Tensor {whole} on a mesh of 2x4"
    assert second.startswith(f"each of the 8 devices holds {local}")


def test_one_dim_over_fewer_chunks_than_devices_leaves_devices_empty():
    lines = lines_of(run("--mesh", "2x4", "--shard", "0", "--shape", "12,32"))
    assert lines[1] == "6 of 8 devices hold [2, 32] (bfloat16, TILE, on device)"


def test_a_mesh_of_three_axes_takes_a_dim_for_each():
    lines = lines_of(run("--mesh", "2x2x2", "--shard", "0,none,3"))
    assert lines[0] == "Tensor [2, 1, 32, 64] on a mesh of 2x2x2"


def test_an_svg_file_is_written_instead_of_printing(tmp_path: Path):
    path = tmp_path / "shards.svg"
    assert lines_of(run("--mesh", "8x4", "--shard", "2,3", "-o", str(path))) == [f"Wrote {path}"]
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert sum(element.get("class") == "device" for element in root.iter()) == 32


def test_a_mesh_alone_is_written_too(tmp_path: Path):
    path = tmp_path / "mesh.SVG"
    assert run("--mesh", "2x4", "-o", str(path)).exit_code == 0
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert sum(element.get("class") == "device" for element in root.iter()) == 8


def test_an_html_file_is_a_page_around_the_picture(tmp_path: Path):
    svg, page = tmp_path / "a<b.svg", tmp_path / "a<b.html"
    run("--mesh", "2x4", "--shard", "3", "-o", str(svg))
    assert run("--mesh", "2x4", "--shard", "3", "-o", str(page)).exit_code == 0
    html = page.read_text(encoding="utf-8")
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">')
    assert "<title>Tensor [1, 1, 32, 256] on a mesh of 2x4</title>" in html
    assert scrolling(svg.read_text(encoding="utf-8")) in html


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--mesh", "2x"), "'2x' is not a mesh; write its extents as in 2x4, each at least 1."),
        (("--mesh", "0x4"), "'0x4' is not a mesh; write its extents as in 2x4, each at least 1."),
        (("--mesh", "-2x4"), "'-2x4' is not a mesh; write its extents as in 2x4, each at least 1."),
        (("--mesh", "two"), "'two' is not a mesh; write its extents as in 2x4, each at least 1."),
        (("--mesh", "9" * 5000), "is not a mesh; write its extents as in 2x4, each at least 1."),
        (("--mesh", "64x65"), "64x65 has 4160 devices; at most 4096 can be drawn."),
        (("--mesh", "x".join("1" * 9)), "has 9 axes; at most 8 can be drawn."),
        (("--shape", "1,,2"), "'1,,2' is not a shape; write its extents as in 1,1,64,256, each at least 1."),
        (("--shape", "64,0"), "'64,0' is not a shape; write its extents as in 1,1,64,256, each at least 1."),
        (("--shape", ",".join("1" * 9)), "has 9 dims; at most 8 can be drawn."),
        (
            ("--shape", "1099511627777"),
            "1099511627777 has 1099511627777 elements; at most 2**40 make sense here.",
        ),
        (
            ("--shard", "rows"),
            "'rows' names no dims; write 3, or one for each mesh axis such as 0,3 or none,3.",
        ),
        (("--shard", ""), "'' names no dims; write 3, or one for each mesh axis such as 0,3 or none,3."),
        (("--shard", "4"), "--shard: dim 4 is outside a tensor of rank 4 (-4 to 3)."),
        (("--shard", "2", "--shape", "8,8"), "--shard: dim 2 is outside a tensor of rank 2 (-2 to 1)."),
        (
            ("--shard", "3,-1"),
            "--shard names one dim twice; to split it over all devices, name it once, alone.",
        ),
        (
            ("--shard", "0,1,2"),
            "--shard names 3 dims and the mesh 2x4 has 2 axes; give one dim for each axis, or a single one for "
            "all devices.",
        ),
        (
            ("--shard", "1", "--shape", "32,100"),
            "dim 1 of [32, 100] has 100 elements, which 8 devices cannot share evenly; 104 would do.",
        ),
        (
            ("--shard", "0,1", "--shape", "4,6"),
            "dim 1 of [4, 6] has 6 elements, which 4 devices cannot share evenly; 8 would do.",
        ),
        (("-o", "picture.jpg"), "'picture.jpg' does not end in .svg, .png or .html."),
        (("-o", "picture"), "'picture' does not end in .svg, .png or .html."),
        (("-o", "/nowhere/at/all.svg"), "There is no folder /nowhere/at to write all.svg into."),
        (("--frobnicate",), "No such option"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(arguments: tuple[str, ...], sentence: str):
    arguments = arguments if "--mesh" in arguments else ("--mesh", "2x4", *arguments)
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert len(result.output.split("Error: ")[1].splitlines()) == 1


def test_a_bad_command_writes_nothing(tmp_path: Path):
    path = tmp_path / "shards.svg"
    assert run("--mesh", "2x4", "--shard", "9", "-o", str(path)).exit_code == 2
    assert not path.exists()


def test_help_shows_a_command_to_copy():
    assert "softmesh show --mesh 2x4 --shard none,3" in run("--help").output
