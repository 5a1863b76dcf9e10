"""Finds a system by name: those of data/systems, generated ones, and files that describe one."""

from __future__ import annotations

import difflib
import os
from functools import cache, lru_cache
from pathlib import Path

from softmesh.errors import MeshError
from softmesh.systems.machine import Machine
from softmesh.systems.machine_builders import FORMS, build, generated, is_generated
from softmesh.systems.system_files import SystemFile, Variant, read_system_file

SYSTEMS_FOLDER = Path(__file__).parent / "data" / "systems"


def entries() -> list[Variant]:
    """The built-in systems, small ones first and Wormhole before Blackhole."""
    machines = (_built_in(name) for name in _system_files())
    ordered = sorted(machines, key=lambda machine: (machine.chip.arch.value, len(machine.asics)))
    return [_entry(machine.name) for machine in ordered]


def load(spec: str) -> Machine:
    """The machine of this name, in any case, of this form, or in this file.

    >>> load("t3k").name, len(load("mesh:16x16").asics)
    ('T3000', 256)
    """
    wanted = spec.strip()
    name = _names().get(_folded(wanted))
    if name is not None:
        return _built_in(name)
    if is_generated(wanted):
        return generated(wanted)
    if _is_path(wanted):
        from softmesh.systems.cluster_descriptor import load_cluster

        return load_cluster(wanted)
    raise _unknown(wanted)


def _unknown(wanted: str) -> MeshError:
    there = entries()
    spellings = {name.lower(): name for entry in there for name in (entry.name, *entry.aliases)}
    near = difflib.get_close_matches(wanted.lower(), spellings, n=1)
    hint = f" Did you mean {spellings[near[0]]!r}?" if near else ""
    names = ", ".join(entry.name for entry in there)
    return MeshError(
        f"No system is called {wanted[:60]!r}.{hint} There are {names}; also {FORMS}, "
        "or the path of a cluster descriptor (.yaml)."
    )


def _is_path(spec: str) -> bool:
    try:
        return spec.lower().endswith((".yaml", ".yml")) or (bool(spec) and os.path.exists(spec))
    except ValueError:  # a NUL inside
        return False


def _folded(name: str) -> str:
    """`P150_X4`, `p150x4` and `P150-x4` are one name."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


@lru_cache(maxsize=1)
def _system_files() -> dict[str, SystemFile]:
    """The file in which each system is described, by its full name."""
    files = sorted(SYSTEMS_FOLDER.glob("*.yaml"))
    return {name: system_file for system_file in map(read_system_file, files) for name in system_file.variants}


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Every name and alias, folded, to the full name."""
    found: dict[str, str] = {}
    for entry in map(_entry, _system_files()):
        for name in (entry.name, *entry.aliases):
            if found.setdefault(_folded(name), entry.name) != entry.name:
                raise MeshError(f"two systems are called {name}: {found[_folded(name)]} and {entry.name}")
    return found


def _entry(name: str) -> Variant:
    return _system_files()[name].variants[name]


@cache
def _built_in(name: str) -> Machine:
    return build(_system_files()[name], name, _described)


def _described(name: str) -> tuple[SystemFile, str]:
    """The file that describes this system, and its full name."""
    full_name = _names().get(_folded(name))
    if full_name is None:
        raise MeshError(f"No system is called {name!r}.")
    return _system_files()[full_name], full_name


def forget() -> None:
    """Read the data files again when the next system is asked for."""
    for cached in (_system_files, _names, _built_in):
        cached.cache_clear()
