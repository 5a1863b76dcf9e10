"""Two files about a machine that stand beside a report: its chips and cables, and where each chip is in the mesh."""

from __future__ import annotations

from collections.abc import Mapping

from softmesh.systems.cluster_descriptor import descriptor_text
from softmesh.systems.machine import Machine
from softmesh.systems.machine_builders import generated

CLUSTER_FILE = "cluster_descriptor"
MAPPING_FILE = "physical_chip_mesh_coordinate_mapping"
CONFIG_FILE = "config"

Places = Mapping[int, tuple[int, ...]]  # by chip: its coordinate in the mesh
_NO_CHIPS = "chips: {}\n"


def file_name(stem: str, suffix: str, rank: int, ranks: int) -> str:
    """`config.json`; of a job of several ranks `config_2_of_4.json`."""
    return f"{stem}{suffix}" if ranks == 1 else f"{stem}_{rank + 1}_of_{ranks}{suffix}"


def cluster_text(machine: Machine | None, places: Places) -> str:
    """The cluster descriptor of the host that these chips hang on; of the elastic machine, of a grid in their shape."""
    found = machine if machine is not None and set(places) <= set(machine.asics) else _grid(places)
    host = next((found.asics[chip].host for chip in places), found.hosts[0])
    text = descriptor_text(found, host)
    local = {chip: place if len(found.hosts) > 1 else chip for place, chip in enumerate(found.chips_of(host))}
    rows = [f"  {local[chip]}: [{', '.join(map(str, _four(at)))}]\n" for chip, at in places.items() if chip in local]
    return text.replace(_NO_CHIPS, "chips:\n" + "".join(rows), 1) if rows else text


def mapping_text(places: Places) -> str:
    return "chips:\n" + "".join(f"  {chip}: [{', '.join(map(str, at))}]\n" for chip, at in places.items())


def _four(place: tuple[int, ...]) -> tuple[int, int, int, int]:
    """x, y, rack, shelf."""
    y, x = (0, *place)[-2:]
    return x, y, 0, 0


def _grid(places: Places) -> Machine:
    """A grid of the mesh's shape where the chips fill it row by row, else all of them in a row."""
    rows, columns = (1 + max((_four(at)[side] for at in places.values()), default=0) for side in (1, 0))
    row_by_row = {row * columns + column: (row, column) for row in range(rows) for column in range(columns)}
    is_filled = {chip: _four(at)[1::-1] for chip, at in places.items()} == row_by_row
    return generated(f"mesh:{rows}x{columns}" if is_filled else f"mesh:1x{max(places, default=0) + 1}")
