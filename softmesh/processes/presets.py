"""The usual ways to split a Galaxy, tray by tray, as its own tools generate them."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.errors import MeshError
from softmesh.hardware import Arch, ClusterType
from softmesh.processes.splitting import Piece, Split, split_as_told
from softmesh.systems.machine import Machine

TRAY_FILE = "tray_to_pcie_device_mapping.yaml"
GALAXIES = (ClusterType.GALAXY, ClusterType.BLACKHOLE_GALAXY)
_TRAYS = 4


@dataclass(frozen=True)
class Preset:
    """`trays` of each rank, in rank order; the ranks of a mesh follow each other."""

    name: str
    trays: tuple[tuple[int, ...], ...]
    pieces: tuple[Piece, ...]
    in_z: bool = False  # meshes are joined by the ports of the third dimension

    def places(self) -> list[tuple[int, int]]:
        """(mesh id, host rank) of each rank."""
        return [
            (mesh, host_rank)
            for mesh, piece in enumerate(self.pieces)
            for host_rank in range(piece.hosts[0] * piece.hosts[1])
        ]


_TALL, _FLAT, _SQUARE, _LONG = Piece((4, 2)), Piece((2, 4)), Piece((4, 4)), Piece((2, 8))
_SHARED_SQUARE = Piece((4, 4), hosts=(1, 2))

PRESETS = {
    Arch.WORMHOLE_B0: (
        Preset("4x4_multi_mesh", ((1, 2), (3, 4)), (_SQUARE, _SQUARE)),
        Preset("4x4_multi_big_mesh", ((1,), (2,), (3,), (4,)), (_SHARED_SQUARE, _SHARED_SQUARE)),
        Preset("4x2_multi_mesh", ((1,), (2,), (3,), (4,)), (_TALL,) * 4),
        Preset("2x4_multi_mesh_cyclic", ((1,), (3,), (4,), (2,)), (_FLAT,) * 4),
        Preset("4x4_2x4_3_mesh", ((1, 2), (3,), (4,)), (_SQUARE, _FLAT, _FLAT)),
        Preset("2x8_2x4_3_mesh", ((1,), (3,), (2, 4)), (_FLAT, _FLAT, _LONG)),
    ),
    Arch.BLACKHOLE: (
        Preset("bh_4x4_multi_mesh", ((1, 3), (2, 4)), (_SQUARE, _SQUARE)),
        Preset("bh_4x4_z", ((1, 3), (2, 4)), (_SQUARE, _SQUARE), in_z=True),
        Preset("bh_4x2_multi_mesh", ((1,), (3,), (4,), (2,)), (_TALL,) * 4),
        Preset("bh_galaxy_split_4x2", ((1,), (3,), (4,), (2,)), (_TALL,) * 4),
    ),
}


def devices_of_trays(machine: Machine) -> dict[int, list[int]]:
    """The chips of each tray of a Galaxy; an error for any other machine."""
    trays = {
        tray: sorted(a.id for a in machine.asics.values() if a.tray == tray) for tray in range(1, _TRAYS + 1)
    }
    is_one_galaxy = machine.cluster_type in GALAXIES and len(machine.hosts) == 1
    if not is_one_galaxy or len(machine.asics) != 32 or any(len(chips) != 8 for chips in trays.values()):
        raise MeshError(
            f"The presets are for a single Galaxy with 32 devices; {machine.name} has {len(machine.asics)} on "
            f"{len(machine.hosts)} host{'' if len(machine.hosts) == 1 else 's'}. "
            "Any machine can be split with --split, for example --split 2x2,2x2."
        )
    return trays


def preset_split(preset: Preset, machine: Machine) -> Split:
    trays = devices_of_trays(machine)
    chips = {
        place: [chip for tray in of_rank for chip in trays[tray]]
        for place, of_rank in zip(preset.places(), preset.trays, strict=True)
    }
    return split_as_told(machine, preset.pieces, chips, preset.name, in_z=preset.in_z)


def tray_text(machine: Machine) -> str:
    lines = [f"arch: {machine.chip.arch_name}", "device_mapping:"]
    lines += [f"  {tray}: {chips}" for tray, chips in devices_of_trays(machine).items()]
    return "\n".join(lines) + "\n"
