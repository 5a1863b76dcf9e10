"""`softmesh show`: draw a machine, a mesh graph or rank bindings; or a mesh, and how a tensor would lie on it.

Text in, a plan out, one picture printed or written. Nothing is opened and no tensor is made: a plan
for 4096 devices costs no memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import click

from softmesh.errors import MeshError, did_you_mean
from softmesh.fabric.system import current_system
from softmesh.hardware import FabricConfig
from softmesh.mesh import MeshShape
from softmesh.placement.tensor_topology import PlacementReplicate, PlacementShard
from softmesh.report.command_options import is_page, output_option, when_given, write_picture
from softmesh.report.drawing import scrolling
from softmesh.report.mesh_svg import mesh_svg, placed_svg
from softmesh.report.shard_layout import PlacedTensor, grid_text, planned
from softmesh.report.terminal import mesh_grid, print_pictures, system_ids, tensor_picture
from softmesh.report.wiring.show_target import Request, UnknownTarget, UnusableTarget, wiring_of
from softmesh.report.wiring.wiring_page import wiring_page
from softmesh.report.wiring.wiring_svg import wiring_svg
from softmesh.report.wiring.wiring_text import WiringPicture
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout
from softmesh.tensor.mappers import MeshMapperConfig, create_mesh_mapper

_MOST_DEVICES = 4096
_MOST_ELEMENTS = 2**40
_MOST_AXES = 8
_MOST_DIGITS = 15
_RANK = 4

Splits = tuple[int | None, ...]  # a tensor dim for each mesh axis, or one for all devices; None replicates


def _is_extent(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) > 0


def _is_dim(text: str) -> bool:
    return text == "none" or (text.removeprefix("-").isdecimal() and len(text) <= _MOST_DIGITS)


def _parse_mesh(text: str) -> MeshShape:
    extents = text.lower().split("x")
    if not all(map(_is_extent, extents)):
        raise click.BadParameter(f"{text!r} is not a mesh; write its extents as in 2x4, each at least 1.")
    if len(extents) > _MOST_AXES:
        raise click.BadParameter(f"{text} has {len(extents)} axes; at most {_MOST_AXES} can be drawn.")
    shape = MeshShape(map(int, extents))
    if shape.mesh_size() > _MOST_DEVICES:
        raise click.BadParameter(f"{text} has {shape.mesh_size()} devices; at most {_MOST_DEVICES} can be drawn.")
    return shape


def _parse_shape(text: str) -> list[int]:
    extents = [extent.strip() for extent in text.split(",")]
    if not all(map(_is_extent, extents)):
        raise click.BadParameter(f"{text!r} is not a shape; write its extents as in 1,1,64,256, each at least 1.")
    if len(extents) > _MOST_AXES:
        raise click.BadParameter(f"{text} has {len(extents)} dims; at most {_MOST_AXES} can be drawn.")
    shape = list(map(int, extents))
    if math.prod(shape) > _MOST_ELEMENTS:
        raise click.BadParameter(f"{text} has {math.prod(shape)} elements; at most 2**40 make sense here.")
    return shape


def _parse_splits(text: str) -> Splits:
    entries = [entry.strip().lower() for entry in text.split(",")]
    if not all(map(_is_dim, entries)):
        raise click.BadParameter(f"{text!r} names no dims; write 3, or one for each mesh axis such as 0,3 or none,3.")
    return tuple(None if entry == "none" else int(entry) for entry in entries)


def _parse_fabric(text: str) -> FabricConfig:
    try:
        return FabricConfig[text.upper()]
    except KeyError:
        names = [config.name for config in FabricConfig]
        raise click.BadParameter(
            f"{text[:60]!r} is no fabric.{did_you_mean(text.upper(), names)} There are {', '.join(names)}."
        ) from None


_EXAMPLES = """\b
Examples:
  softmesh show Galaxy --down link:3-7
  softmesh show my_meshes.textproto --system T3000 -o meshes.svg
  softmesh show rank_bindings.yaml -o ranks.html
  softmesh show --mesh 2x4 --shard none,3
  softmesh show --mesh 8x4 --shard 2,3 -o shards.svg
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.argument("target", required=False)
@click.option("--system", metavar="NAME", help="Draw TARGET, a descriptor or bindings, onto this machine.")
@click.option("--down", multiple=True, metavar="SPEC", help="What is broken: chip:5, link:3-7, link:3/8. Repeatable.")
@click.option(
    "--fabric",
    callback=when_given(_parse_fabric),
    metavar="CONFIG",
    help="Draw the links this fabric uses: FABRIC_2D ...",
)
@click.option(
    "--mesh",
    callback=when_given(_parse_mesh),
    metavar="2x4",
    help="Shape of the mesh; default: the machine's own.",
)
@click.option(
    "--shape",
    callback=when_given(_parse_shape),
    metavar="1,1,64,256",
    help="Shape of the whole tensor; default: one 32x32 tile per device.",
)
@click.option(
    "--shard",
    "splits",
    callback=when_given(_parse_splits),
    metavar="D|D,D",
    help="Tensor dim to split over all devices, or one for each mesh axis; none replicates.",
)
@output_option("Write the picture here (.svg, .png or .html) instead of printing it.")
def show(
    target: str | None,
    system: str | None,
    down: tuple[str, ...],
    fabric: FabricConfig | None,
    mesh: MeshShape | None,
    shape: list[int] | None,
    splits: Splits | None,
    output: Path | None,
) -> None:
    """Draw TARGET: a machine (T3000, torus:8x8), a mesh graph descriptor or rank bindings.

    Without TARGET: draw a mesh, and with --shard how a tensor lies on it.
    """
    if target is not None or system is not None or down or fabric is not None:
        if mesh is not None or shape is not None or splits is not None:
            raise click.UsageError(_TWO_PICTURES)
        _show_wiring(_request(target, system, down, fabric), output)
    else:
        _show_mesh(mesh, shape, splits, output)


_TWO_PICTURES = (
    "--mesh, --shape and --shard draw a tensor on a mesh; they do not go with TARGET, --system, --down or --fabric."
)


def _request(target: str | None, system: str | None, down: tuple[str, ...], fabric: FabricConfig | None) -> Request:
    """The machine may be given by itself, as `show T3000` or as `show --system T3000`."""
    if target is not None:
        return Request(target, system, down, fabric)
    if system is None:
        raise click.UsageError("--down and --fabric need something to draw: name a system or a descriptor.")
    return Request(system, None, down, fabric)


def _show_wiring(request: Request, output: Path | None) -> None:
    try:
        wiring = wiring_of(request)
    except UnknownTarget as error:
        raise click.UsageError(str(error)) from None
    except UnusableTarget as error:
        raise click.ClickException(str(error)) from None
    if output is None:
        print_pictures(WiringPicture(wiring))
    else:
        write_picture(output, wiring_page(wiring) if is_page(output) else wiring_svg(wiring))


def _show_mesh(mesh: MeshShape | None, shape: list[int] | None, splits: Splits | None, output: Path | None) -> None:
    mesh = _own_shape() if mesh is None else mesh
    ids = _device_ids(mesh)
    tensor = None if shape is None and splits is None else _plan(mesh, ids, shape, splits or (None,))
    if output is not None:
        picture = mesh_svg(tuple(mesh), ids) if tensor is None else placed_svg(tensor)
        title = f"Mesh of {grid_text(tuple(mesh))}" if tensor is None else tensor.title()
        write_picture(output, _html(title, picture) if is_page(output) else picture)
    elif tensor is None:
        print_pictures(mesh_grid(tuple(mesh), ids))
    else:
        print_pictures(tensor.title(), tensor.summary(), tensor_picture(tensor))


def _own_shape() -> MeshShape:
    try:
        return current_system().shape
    except MeshError as error:  # the environment names a machine that cannot be
        raise click.UsageError(str(error)) from None


def _device_ids(mesh: MeshShape) -> list[int]:
    try:
        return system_ids(mesh)
    except MeshError as error:  # the machine has no such mesh
        raise click.UsageError(str(error)) from None


def _plan(mesh: MeshShape, ids: list[int], shape: list[int] | None, splits: Splits) -> PlacedTensor:
    grid = tuple(mesh) if len(splits) > 1 else (mesh.mesh_size(),)
    if len(splits) != len(grid):
        raise click.UsageError(
            f"--shard names {len(splits)} dims and the mesh {grid_text(tuple(mesh))} has {mesh.dims()} axes; "
            "give one dim for each axis, or a single one for all devices."
        )
    dims = _dims_of(splits, _RANK if shape is None else len(shape))
    whole = _tile_each(dims, grid) if shape is None else shape
    placements = [PlacementReplicate() if dim is None else PlacementShard(dim) for dim in dims]
    mapper = create_mesh_mapper(mesh, MeshMapperConfig(placements, MeshShape(grid)))
    try:
        return planned(whole, mapper, ids, DataType.BFLOAT16, Layout.TILE)
    except MeshError:
        raise click.UsageError(_why_uneven(whole, dims, grid)) from None


def _dims_of(splits: Splits, rank: int) -> Splits:
    """Counted from the front, and checked."""
    for dim in splits:
        if dim is not None and not -rank <= dim < rank:
            raise click.UsageError(f"--shard: dim {dim} is outside a tensor of rank {rank} ({-rank} to {rank - 1}).")
    dims = tuple(None if dim is None else dim % rank for dim in splits)
    split = [dim for dim in dims if dim is not None]
    if len(set(split)) < len(split):
        raise click.UsageError("--shard names one dim twice; to split it over all devices, name it once, alone.")
    return dims


def _tile_each(dims: Splits, grid: Sequence[int]) -> list[int]:
    """The smallest shape of which every device gets a whole tile."""
    shape = [1] * (_RANK - 2) + [TILE_SIZE] * 2
    for dim, devices in zip(dims, grid, strict=True):
        if dim is not None:
            shape[dim] *= devices
    return shape


def _why_uneven(shape: Sequence[int], dims: Splits, grid: Sequence[int]) -> str:
    dim, devices = next((d, n) for d, n in zip(dims, grid, strict=True) if d is not None and shape[d] % n)
    return (
        f"dim {dim} of {list(shape)} has {shape[dim]} elements, which {devices} devices cannot share evenly; "
        f"{-(-shape[dim] // devices) * devices} would do."
    )


def _html(title: str, picture: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>:root {{ color-scheme: light dark; }}</style></head>\n"
        f"<body>\n{scrolling(picture)}\n</body>\n</html>\n"
    )
