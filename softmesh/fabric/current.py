"""The system of this process: a chosen machine under the fabric that is set, or the elastic one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.fabric.binding import Binding
from softmesh.fabric.elastic import ElasticSystem
from softmesh.fabric.system import System
from softmesh.systems.choice import chosen_machine, own_host

if TYPE_CHECKING:  # matching and routing load with the first machine
    from softmesh.fabric.machine_system import MachineSystem
    from softmesh.systems.machine import Machine

_ELASTIC = ElasticSystem()
_CACHED: tuple[Machine | None, object, MachineSystem] | None = None


def current_system() -> System:
    return _machine_system() or _ELASTIC


def _machine_system() -> MachineSystem | None:
    global _CACHED
    binding = Binding.from_environment()
    machine = chosen_machine(whole=binding.descriptor is not None and binding.mesh_id is not None)
    if machine is None and binding.descriptor is None:
        return None
    from softmesh.fabric.machine_system import MachineSystem
    from softmesh.fabric.routing.unreachable import PASS_THROUGH

    crossing = os.environ.get(PASS_THROUGH, "")
    key = (binding, _modified(binding.descriptor), settings.active(), crossing)
    if _CACHED is None or _CACHED[0] is not machine or _CACHED[1] != key:
        _CACHED = machine, key, MachineSystem(_seen(machine, binding), binding, settings.active())
    return _CACHED[2]


def _seen(machine: Machine | None, binding: Binding) -> Machine:
    """What this process has to do with: its host, or everything that its descriptor speaks of."""
    if machine is None:
        from softmesh.fabric.descriptors.reading import load_mesh_graph
        from softmesh.fabric.imagined import machine_for

        assert binding.descriptor is not None
        return machine_for(load_mesh_graph(binding.descriptor))
    sees_all = binding.descriptor is not None or len(machine.hosts) == 1
    return machine if sees_all else machine.only(machine.chips_of(own_host(machine)))


def _modified(path: str | None) -> float | None:
    return os.path.getmtime(path) if path is not None and os.path.exists(path) else None


def machine_system(wanted_for: str) -> MachineSystem:
    """The chosen machine; an error that says how to choose one where there is none."""
    system = _machine_system()
    if system is None:
        raise MeshError(
            f"{wanted_for}: the elastic machine has no links of its own. Choose a machine: "
            "SOFTMESH_SYSTEM=T3000, softmesh run --system T3000, or softmesh.use_system('torus:4x4')."
        )
    return system
