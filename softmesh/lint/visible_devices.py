"""TT_VISIBLE_DEVICES of the ranks: enough chips for each one's block, and no chip for two of them.

A binding does not say which host its rank runs on, so a chip number may be listed once for each host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from softmesh.errors import MeshError
from softmesh.fabric.finding import Finding, Severity
from softmesh.fabric.mesh_graph import LogicalMesh
from softmesh.processes.binding import VISIBLE_DEVICES, RankBinding
from softmesh.systems.machine import Machine
from softmesh.systems.visible import restricted

_MOST_CHIPS_OF_A_LISTED_ONE = 2  # boards of two come whole
_KEY = f"env_overrides.{VISIBLE_DEVICES}"


def check_visible_devices(
    bindings: Sequence[RankBinding], meshes: Mapping[int, LogicalMesh], machine: Machine | None
) -> list[Finding]:
    restricting = [binding for binding in bindings if devices_of(binding)]
    found: list[Finding] = []
    for binding in restricting:
        found += _check_rank(binding, meshes[binding.mesh_id], machine)
    if machine is not None and not found:
        found += [*_all_visible(bindings, machine), *check_shared_devices(restricting, machine)]
    return found


def _all_visible(bindings: Sequence[RankBinding], machine: Machine) -> Iterator[Finding]:
    """Ranks that must share a host, of which one sees every chip there."""
    greedy = [binding for binding in bindings if not devices_of(binding)]
    if greedy and len(bindings) > len(machine.hosts):
        hosts = "one host" if len(machine.hosts) == 1 else f"{len(machine.hosts)} hosts"
        message = (
            f"{len(bindings)} ranks on the {hosts} of {machine.name}, and rank {greedy[0].rank} sees every chip "
            "of its host: it and its neighbour would open the same ones"
        )
        fix = "list the chips of each rank in env_overrides: TT_VISIBLE_DEVICES"
        yield Finding("bindings/all-visible", Severity.WARNING, message, fix, line=greedy[0].line_of())


def devices_of(binding: RankBinding) -> list[str]:
    """What the rank lists; nothing where it sees every chip."""
    text = binding.visible_devices or ""
    return [token.strip() for token in text.split(",")] if text.strip() else []


def _check_rank(binding: RankBinding, mesh: LogicalMesh, machine: Machine | None) -> Iterator[Finding]:
    listed = devices_of(binding)
    if odd := [token for token in listed if not _is_device(token)]:
        message = f"rank {binding.rank}: TT_VISIBLE_DEVICES: {odd[0][:40]!r} is neither a chip number nor a PCI address"
        yield _finding("visible-devices", message, binding, 'list them as in "0,1,2" or "0000:01:00.0"')
        return
    needed = math.prod(mesh.host_block)
    if machine is None:
        most = _MOST_CHIPS_OF_A_LISTED_ONE * len(set(listed))
        if most < needed:
            of = f"at most {most} chips, on boards of two"
            yield _too_few(binding, mesh, of, needed)
        return
    yield from _check_on(machine, binding, mesh, needed)


def _check_on(machine: Machine, binding: RankBinding, mesh: LogicalMesh, needed: int) -> Iterator[Finding]:
    """Any host will do; the complaint is that of the last one where none does."""
    most = 0
    complaint = ""
    for host in machine.hosts:
        try:
            most = max(most, len(_seen(machine, binding, host)))
        except MeshError as error:
            complaint = str(error)
    if most == 0:
        yield _finding(
            "visible-devices", f"rank {binding.rank}: {complaint}", binding, "list chips that are there"
        )
    elif most < needed:
        yield _too_few(binding, mesh, f"{most} chips of {machine.name}", needed)


def check_shared_devices(bindings: Sequence[RankBinding], machine: Machine) -> list[Finding]:
    """Chips that more ranks list than there are hosts to tell them apart."""
    findings = []
    users: dict[str, list[int]] = {}
    for binding in bindings:
        shared = []
        for device in _claims(machine, binding):
            ranks = users.setdefault(device, [])
            if len(ranks) >= len(machine.hosts):
                shared.append((device, ranks[-1]))
            ranks.append(binding.rank)
        if shared:
            findings.append(_shared(binding, shared, machine))
    return findings


def _shared(binding: RankBinding, shared: list[tuple[str, int]], machine: Machine) -> Finding:
    hosts = "its one host" if len(machine.hosts) == 1 else f"its {len(machine.hosts)} hosts"
    chips = ", ".join(device for device, _ in shared[:8])
    message = (
        f"rank {binding.rank} lists chip {chips} in TT_VISIBLE_DEVICES, as rank {shared[0][1]} does: "
        f"{machine.name} has no more of them on {hosts}"
    )
    return _finding("shared-devices", message, binding, "give each rank chips of its own")


def _claims(machine: Machine, binding: RankBinding) -> list[str]:
    """What a rank takes: on one host the chips themselves (a board comes whole), else the numbers listed."""
    if len(machine.hosts) > 1:
        return sorted(set(devices_of(binding)))
    ids = {asic.unique_id: id for id, asic in machine.asics.items()}
    return [str(ids[unique_id]) for unique_id in sorted(_seen(machine, binding), key=ids.__getitem__)]


def _seen(machine: Machine, binding: RankBinding, host: str | None = None) -> set[int]:
    """Unique ids of the chips of one host that the rank sees."""
    host = host or machine.hosts[0]
    visible = restricted(machine, binding.visible_devices or "", host)
    return {asic.unique_id for asic in visible.asics.values() if asic.host == host}


def _is_device(token: str) -> bool:
    return token.isascii() and (token.isdigit() or token.count(":") == 2)


def _too_few(binding: RankBinding, mesh: LogicalMesh, seen: str, needed: int) -> Finding:
    rows, columns = mesh.host_block
    message = (
        f"rank {binding.rank} sees {seen}, too few for its {rows}x{columns} block of mesh {mesh.id}, "
        f"which has {needed}"
    )
    return _finding("too-few-devices", message, binding, "list more chips in TT_VISIBLE_DEVICES")


def _finding(rule: str, message: str, binding: RankBinding, fix: str) -> Finding:
    return Finding(f"bindings/{rule}", Severity.ERROR, message, fix, line=binding.line_of(_KEY))
