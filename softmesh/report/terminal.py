"""Meshes and their shards as boxes in the terminal.

`mesh_grid`, `tensor_grid` and `system_grid` build what is shown; the `visualize_*` functions print it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from softmesh.errors import ArgumentError, MeshError
from softmesh.fabric.system import current_system
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Extents, mesh_coordinates
from softmesh.report.drawing import hue_wheel
from softmesh.report.shard_layout import PlacedTensor, Plane, coordinate_text, grid_text, placed, planes
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.machine_queries import SystemMeshDescriptor
from softmesh.tensor.tensor import Tensor
from softmesh.terminal_text import console

_WIDTH = 30  # of a cell, where the console has room
_PANEL_TITLE = "Placement Configuration"


@dataclass(frozen=True)
class Cell:
    """`kept` leading lines are never broken; the others wrap at spaces in a narrow cell."""

    lines: tuple[str, ...] = ()
    colour: str | None = None
    kept: int = 2

    def narrowest(self) -> int:
        words = [word for line in self.lines[self.kept :] for word in line.split()]
        return max(map(len, [*self.lines[: self.kept], *words]), default=0)

    def wrapped(self, width: int) -> list[str]:
        return [part for line in self.lines for part in textwrap.wrap(line, width) or [""]]


@dataclass(frozen=True)
class MeshGrid:
    """A box for each device of a mesh.

    One table; or several where the mesh has more than two axes, or more columns than the console can
    show side by side.
    """

    title: str
    shape: Extents
    cells: Sequence[Cell]  # row-major

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        tables = [table for plane in planes(self.shape) for table in self._bands(plane, options.max_width)]
        if len(tables) == 1:
            tables[0].title = self.title
            yield tables[0]
        else:
            yield Text(self.title, style="table.title")
            yield Columns(tables, padding=(0, 2))

    def _bands(self, plane: Plane, room: int) -> Iterator[Table]:
        """The plane, cut between columns where it is too wide."""
        narrowest = max(cell.narrowest() for cell in self.cells)
        fitting = max(1, (room - 1) // (narrowest + 1))
        count = -(-plane.columns // fitting)
        each = -(-plane.columns // count)
        width = min(self._preferred_width(count), max(narrowest, (room - 1) // each - 1))
        for start in range(0, plane.columns, each):
            columns = range(start, min(start + each, plane.columns))
            span = f"columns {columns[0]} to {columns[-1]}" if count > 1 else ""
            yield self._table(plane, columns, width, " ".join(filter(None, [plane.label, span])))

    def _preferred_width(self, bands: int) -> int:
        if bands == 1 and len(self.shape) <= 2:
            return _WIDTH
        return min(_WIDTH, 2 + max((len(line) for cell in self.cells for line in cell.lines), default=0))

    def _table(self, plane: Plane, columns: range, width: int, title: str) -> Table:
        table = Table(title=title or None, box=box.SQUARE, show_header=False, show_lines=True, padding=(0, 0))
        for _ in columns:
            table.add_column(justify="center", vertical="middle", width=width)
        for row in range(plane.rows):
            first = plane.first + row * plane.columns
            table.add_row(*_cell_texts([self.cells[first + column] for column in columns], width))
        return table


def _cell_texts(cells: Sequence[Cell], width: int) -> list[Text]:
    """All cells of a row at one height, so that a colour fills its box."""
    wrapped = [cell.wrapped(width) for cell in cells]
    height = max(map(len, wrapped))
    return [
        Text(
            "\n".join(lines + [""] * (height - len(lines))),
            style=f"black on {cell.colour}" if cell.colour else "",
            justify="center",
        )
        for cell, lines in zip(cells, wrapped, strict=True)
    ]


Contents = Mapping[int, tuple[str, str]]  # device id -> text, colour


def mesh_grid(
    shape: Extents,
    ids: Sequence[int],
    contents: Contents | None = None,
    own: Collection[int] | None = None,
) -> MeshGrid:
    """The devices of a mesh, coloured where `contents` says that they hold something.

    Where several processes hold it, `own` are the devices of this one.
    """
    cells = []
    for coordinate, device_id in zip(mesh_coordinates(shape), ids, strict=True):
        text, colour = (contents or {}).get(device_id, ("", None))
        head = (_id_text(device_id),) if own is None else _whose(device_id, device_id in own)
        lines = (*head, coordinate_text(tuple(coordinate)), text)
        cells.append(Cell(lines, colour, kept=len(head) + 1))
    return MeshGrid(_mesh_title(shape), shape, cells)


def _whose(device_id: int, is_own: bool) -> tuple[str, str]:
    return ("Local", _id_text(device_id)) if is_own else ("Remote", "Unknown ID")


def _mesh_title(shape: Extents) -> str:
    return f"MeshDevice(rows={shape[0]}, cols={shape[1]})" if len(shape) == 2 else f"MeshDevice({grid_text(shape)})"


def _id_text(device_id: int) -> str:
    return f"Dev. ID: {device_id}"


def contents_of(tensor: PlacedTensor, mesh_device: MeshDevice) -> Contents:
    """The shapes of the pieces by device id, so that a tensor on a submesh shows where it lies in the whole mesh."""
    ids = tensor.device_ids
    if not ids:
        if tensor.dist.mesh != tuple(mesh_device.shape):
            raise MeshError(
                f"visualize_mesh_device: the tensor is distributed over a {grid_text(tensor.dist.mesh)} mesh and "
                f"this is {mesh_device!r}. Move it there with ttnn.to_device(tensor, mesh_device), or map it "
                "for this mesh."
            )
        ids = dict(zip(mesh_coordinates(tensor.dist.mesh), mesh_device.all_device_ids, strict=True))
    text = f"ttnn.Shape({list(tensor.local_shape)})"
    colours = _colours(tensor)
    return {ids[coordinate]: (text, colours[coordinate]) for coordinate in tensor.held}


def _colours(tensor: PlacedTensor) -> dict[MeshCoordinate, str]:
    groups = tensor.cutting.groups()
    wheel = hue_wheel(len(set(groups.values())))
    return {coordinate: wheel[group] for coordinate, group in groups.items()}


def tensor_grid(tensor: PlacedTensor) -> MeshGrid:
    """A box for each device with the slice it holds; equal slices have one colour."""
    cells = {coordinate: Cell() for coordinate in mesh_coordinates(tensor.dist.mesh)}
    colours = _colours(tensor)
    for piece in tensor.cutting.pieces:
        if piece.coordinate in tensor.held:
            lines = _piece_lines(tensor, piece.coordinate, tensor.cutting.slice_text(piece))
            kept = 2 if tensor.device_ids else 1
            cells[piece.coordinate] = Cell(lines, colours[piece.coordinate], kept)
    return MeshGrid(f"Tensor(storage: {tensor.storage})", tensor.dist.mesh, list(cells.values()))


def _piece_lines(tensor: PlacedTensor, coordinate: MeshCoordinate, slice_text: str) -> tuple[str, ...]:
    device_id = tensor.device_ids.get(coordinate)
    return (
        *([] if device_id is None else [_id_text(device_id)]),
        coordinate_text(tuple(coordinate)),
        slice_text,
        *tensor.unnamed_placements(),
        f"Shape: {list(tensor.local_shape)}",
        f"Dtype: {tensor.dtype.name}",
        f"Layout: {tensor.layout.name}",
    )


def tensor_picture(tensor: PlacedTensor) -> RenderableType:
    """The placements in a panel, the shards below it."""
    lines = [str(list(tensor.tt_placements))]
    if tensor.unnamed_placements():
        words = zip(tensor.axis_names(), tensor.dist.placements, strict=True)
        lines.append(", ".join(f"{name}: {word}" for name, word in words))
    return Group(Panel("\n".join(lines), title=_PANEL_TITLE, expand=False), tensor_grid(tensor))


def system_grid() -> MeshGrid:
    system = current_system()
    shape = tuple(system.shape)
    cells = [
        Cell((_id_text(device_id), coordinate_text(tuple(coordinate))))
        for coordinate, device_id in zip(mesh_coordinates(shape), system_ids(system.shape), strict=True)
    ]
    local = tuple(SystemMeshDescriptor().local_shape())
    return MeshGrid(f"SystemMesh Global Shape: {shape} | Local Shape: {local}", shape, cells)


def system_ids(shape: MeshShape) -> list[int]:
    """The ids a mesh of this shape gets on an idle machine."""
    return current_system().choose_devices(shape, None, ())


def visualize_mesh_device(mesh_device: MeshDevice, tensor: Tensor | None = None) -> None:
    """Print the devices of a mesh; with `tensor`, the shape of the piece each holds."""
    if not isinstance(mesh_device, MeshDevice):
        raise ArgumentError(
            "visualize_mesh_device(): incompatible function arguments: expected a MeshDevice, "
            f"got {type(mesh_device).__name__}"
        )
    contents = None if tensor is None else contents_of(placed(tensor), mesh_device)
    ids, own = mesh_device.all_device_ids, mesh_device.get_device_ids()
    print_pictures(mesh_grid(tuple(mesh_device.shape), ids, contents, None if own == ids else own))


def visualize_tensor(tensor: Tensor) -> None:
    """Print which slice of the whole tensor each device holds."""
    print_pictures(tensor_picture(placed(tensor)))


def visualize_system_mesh() -> None:
    """Print the machine's own mesh."""
    mesh = SystemMeshDescriptor()
    print_pictures(
        f"SystemMesh Global Shape: {mesh.shape()}",
        f"SystemMesh Local Shape: {mesh.local_shape()}",
        system_grid(),
    )


def print_pictures(*renderables: RenderableType) -> None:
    terminal = console()
    for renderable in renderables:
        terminal.print(renderable, markup=False, highlight=False)
