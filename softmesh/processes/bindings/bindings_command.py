"""The command `softmesh bindings`: writes rank bindings and their mesh graph descriptors for preset or other splits."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from softmesh.errors import SoftmeshError
from softmesh.processes.bindings.bindings_writer import bindings_text, graph_text
from softmesh.processes.bindings.galaxy_splits import (
    FABRIC_CONFIGS,
    PRESETS,
    SLICE_CONFIGS,
    TRAY_FILE,
    preset_split,
    split_in_z,
    tray_text,
)
from softmesh.processes.bindings.machine_split import Piece, Split, split_anywhere, split_elastic_machine
from softmesh.systems.machine import Machine
from softmesh.systems.named_systems import load
from softmesh.systems.system_choice import ELASTIC
from softmesh.terminal_text import echo

_SHAPE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})", re.ASCII)
_MOST_MESHES = 4096


class _Refusal(click.ClickException):
    """What was asked for is clear, but this machine or folder cannot take it; nothing was written."""

    exit_code = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--system", default="Galaxy", show_default=True, metavar="S", help="The machine to split.")
@click.option("--split", metavar="RxC,...", help="The meshes to cut out; without it, the presets of a Galaxy.")
@click.option(
    "--hosts-per-mesh",
    metavar="RxC,...",
    help="How ranks share a mesh: one grid for all meshes, or one for each. [default: 1x1]",
)
@click.option(
    "--slice-config",
    type=click.Choice(list(SLICE_CONFIGS)),
    help="4x4 meshes of slices of Blackhole Galaxies, joined in the third dimension.",
)
@click.option(
    "--fabric-config",
    type=click.Choice(list(FABRIC_CONFIGS)),
    help="Whole Blackhole Galaxies, joined in the third dimension.",
)
@click.option("--hosts", metavar="A,B,...", help="Hosts of the machine, in ring order, for the two above.")
@click.option("-o", "--output", "--work-dir", default=".", metavar="DIR", help="Folder to write into. [default: here]")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@click.option("--print-rank-table", is_flag=True, help="Also print FABRIC_RANK:<mesh>;<host rank>;<host>;<devices>.")
@click.option("--print-devices", is_flag=True, help="Also print FABRIC_VISIBLE_DEVICES:<devices> of each rank.")
def bindings(
    system: str,
    split: str | None,
    hosts_per_mesh: str | None,
    slice_config: str | None,
    fabric_config: str | None,
    hosts: str | None,
    output: str,
    force: bool,
    print_rank_table: bool,
    print_devices: bool,
) -> None:
    """Write rank bindings for tt-run, and the mesh graph descriptor of each.

    \b
    Examples:
      softmesh bindings -o galaxy
      softmesh bindings --system T3000 --split 2x2,2x2 -o halves
      softmesh bindings --system Galaxy --split 8x4 --hosts-per-mesh 2x1 -o shared
      softmesh bindings --system elastic --split 2x4,4x4 -o any
      softmesh bindings --system BH-Galaxy-XYZ --slice-config 2x4x4z -o slices
    """
    folder = Path(os.path.abspath(output))
    asked = {"--split": split, "--slice-config": slice_config, "--fabric-config": fabric_config}
    _check_one_way(asked, hosts_per_mesh, hosts)
    try:
        machine, splits, more = _cut(system, asked, hosts_per_mesh, hosts)
        files = _files(machine, splits, folder) | more
    except SoftmeshError as error:
        raise _Refusal(str(error)) from None
    _write(folder, files, force)
    for name in files:
        echo(os.path.relpath(folder / name))
    for found in splits.values():
        _print_ranks(found, print_rank_table, print_devices)
    binding = os.path.relpath(folder / _binding_name(next(iter(splits))))
    echo(f"\nRun: {shlex.join(['tt-run', '--system', system, '--rank-binding', binding, 'python', 'model.py'])}")


def _check_one_way(asked: Mapping[str, str | None], shared_by: str | None, hosts: str | None) -> None:
    given = [option for option, value in asked.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} are different ways to cut a machine: give one of them.")
    if shared_by is not None and given != ["--split"]:
        raise click.UsageError("--hosts-per-mesh says how meshes of --split are shared; presets have their own.")
    if hosts is not None and given not in (["--slice-config"], ["--fabric-config"]):
        raise click.UsageError(
            "--hosts says where the meshes of --slice-config or --fabric-config lie; give one of them."
        )


def _cut(
    system: str, asked: Mapping[str, str | None], shared_by: str | None, hosts: str | None
) -> tuple[str, dict[str, Split], dict[str, str]]:
    """The name of the machine, its splits, and files beside those of the splits."""
    if system.strip().lower() == ELASTIC:
        if asked["--split"] is None:
            raise click.UsageError("The elastic machine has any shape: say what you need of it, as in --split 2x4,2x4.")
        return ELASTIC, _split_of(None, asked["--split"], shared_by), {}
    try:
        machine = load(system)
    except SoftmeshError as error:
        raise click.UsageError(str(error)) from None
    splits = _splits(machine, asked, shared_by, hosts)
    return machine.name, splits, {} if any(asked.values()) else {TRAY_FILE: tray_text(machine)}


def _splits(
    machine: Machine, asked: Mapping[str, str | None], shared_by: str | None, hosts: str | None
) -> dict[str, Split]:
    if asked["--split"] is not None:
        return _split_of(machine, asked["--split"], shared_by)
    arrangements = SLICE_CONFIGS | FABRIC_CONFIGS
    wanted = next((value for value in asked.values() if value is not None), None)
    if wanted is not None:
        named = None if hosts is None else [host.strip() for host in hosts.split(",") if host.strip()]
        return {wanted: split_in_z(machine, arrangements[wanted], named)}
    return {preset.name: preset_split(preset, machine) for preset in PRESETS.get(machine.chip.arch, ())}


def _split_of(machine: Machine | None, split: str, shared_by: str | None) -> dict[str, Split]:
    """Without a machine, of the elastic one."""
    pieces = pieces_of(split, shared_by)
    found = split_elastic_machine(pieces, split) if machine is None else split_anywhere(machine, pieces, split)
    return {_name(pieces): found}


def pieces_of(split: str, hosts: str | None) -> list[Piece]:
    shapes = _shapes("--split", split)
    grids = _shapes("--hosts-per-mesh", hosts) if hosts is not None else [(1, 1)]
    if len(grids) == 1:
        grids *= len(shapes)
    if len(grids) != len(shapes):
        raise click.UsageError(
            f"--hosts-per-mesh has {len(grids)} grids for {len(shapes)} meshes: give one, or one for each."
        )
    for shape, grid in zip(shapes, grids, strict=True):
        if shape[0] % grid[0] or shape[1] % grid[1]:
            raise click.UsageError(
                f"a {_text(shape)} mesh cannot be shared by {_text(grid)} ranks: each must get the same block."
            )
    return [Piece(shape, grid) for shape, grid in zip(shapes, grids, strict=True)]


def _shapes(option: str, text: str) -> list[tuple[int, int]]:
    parts = [part.strip().lower() for part in text.split(",")]
    if len(parts) > _MOST_MESHES:
        raise click.UsageError(f"{option}: {len(parts)} meshes; at most {_MOST_MESHES} are taken.")
    found = [(part, _SHAPE.fullmatch(part)) for part in parts]
    for part, shape in found:
        if shape is None:
            raise click.UsageError(f"{option}: {part[:40]!r} is not a shape; write rows x columns, as in 2x4.")
    return [(int(shape[1]), int(shape[2])) for _, shape in found if shape is not None]


def _text(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]}"


def _name(pieces: Iterable[Piece]) -> str:
    """`2_of_2x2`; ranks that share a mesh show as `4x4_by_1x2`."""
    kinds = Counter(
        _text(piece.shape) + (f"_by_{_text(piece.hosts)}" if piece.hosts != (1, 1) else "") for piece in pieces
    )
    return "_".join(f"{times}_of_{kind}" if times > 1 else kind for kind, times in kinds.items())


def _binding_name(name: str) -> str:
    return f"{name}_rank_binding.yaml"


def _files(machine: str, splits: Mapping[str, Split], folder: Path) -> dict[str, str]:
    files = {}
    for name, split in splits.items():
        descriptor = f"{name}.textproto"
        about = f"{machine} as {_meshes(split)}."
        files[_binding_name(name)] = bindings_text(split.bindings, str(folder / descriptor), _ranks(about, split))
        files[descriptor] = graph_text(split.graph, about)
    return files


def _meshes(split: Split) -> str:
    shapes = Counter(_text(mesh.shape) for mesh in split.graph.meshes)
    return " and ".join(f"{times} mesh{'' if times == 1 else 'es'} of {shape}" for shape, times in shapes.items())


def _ranks(about: str, split: Split) -> str:
    """With the hosts, where there are several to start ranks on."""
    hosts = dict.fromkeys(group.host for group in split.groups)
    if len(hosts) == 1:
        return about
    places = [f"rank {rank} on {group.host}" for rank, group in enumerate(split.groups)]
    return "\n".join([about, *places])


def _write(folder: Path, files: Mapping[str, str], force: bool) -> None:
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise _Refusal(f"{folder / there[0]}{more} is there already: choose another -o, or --force to overwrite.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise _Refusal(f"{error.filename or folder} cannot be written: {error.strerror}") from None


def _print_ranks(split: Split, table: bool, devices: bool) -> None:
    for group in split.groups:
        listed = ",".join(map(str, group.devices))
        if table:
            echo(f"FABRIC_RANK:{group.mesh_id};{group.host_rank};{group.host};{listed}")
        if devices:
            echo(f"FABRIC_VISIBLE_DEVICES:{listed}")
