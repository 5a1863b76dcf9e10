"""The wiring picture of a mesh graph: its meshes as groups, host blocks boxed, connections as bundles or wires."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from os.path import basename

from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, Side, policy_name
from softmesh.hardware import RoutingDirection
from softmesh.report.wiring.wiring_model import Block, Bundle, Cell, Group, Section, State, Wire, Wiring

Ranks = Mapping[tuple[int, int], str]  # (mesh id, host rank) -> what runs there

_AXES = {RoutingDirection.S: "N-S", RoutingDirection.E: "E-W"}
_LONGEST_LINE = 16


def graph_wiring(graph: MeshGraph, ranks: Ranks | None = None, title: str = "") -> Wiring:
    """`ranks` names the process of each host block, where bindings are known."""
    pinned = {node: pinning.positions for pinning in graph.pinnings for node in pinning.nodes}
    keys = {node: key for key, node in enumerate(graph.nodes)}
    exits = {
        Node(side.meshes[0], side.chip)
        for connection in graph.connections
        for side in (connection.a, connection.b)
        if side.chip is not None
    }
    groups = tuple(_group(mesh, keys, pinned, exits, ranks) for mesh in graph.meshes)
    wires = [wire for mesh in graph.meshes for wire in _mesh_wires(mesh, keys)]
    wires += [_chip_wire(connection, keys) for connection in graph.connections if connection.is_between_chips]
    bundles = [_bundle(connection) for connection in graph.connections if not connection.is_between_chips]
    return Wiring(
        title or basename(graph.source),
        _summary(graph),
        groups,
        tuple(wires),
        tuple(bundles),
        _sections(graph),
        tuple(map(mesh_title, graph.meshes)),
    )


def _summary(graph: MeshGraph) -> str:
    meshes = "1 mesh" if len(graph.meshes) == 1 else f"{len(graph.meshes)} meshes"
    count = len(graph.connections)
    policies = "/".join(dict.fromkeys(policy_name(connection.strict) for connection in graph.connections))
    joined = f", {count} {policies} connection{'s' * (count != 1)}" if count else ""
    whole = graph.levels[0] if graph.levels else None
    named = f"{whole.type} {whole.name}: " if whole is not None and whole.type != "FABRIC" else ""
    return f"{named}{meshes}, {graph.size} {graph.arch.name.lower()} chips{joined}"


def mesh_title(mesh: LogicalMesh) -> str:
    """`M3 Galaxy`; a template whose own name looks like a number would only confuse: `M3`."""
    return f"M{mesh.id}" if re.fullmatch(r"M\d*", mesh.name) else f"M{mesh.id} {mesh.name}"


def _group(
    mesh: LogicalMesh,
    keys: Mapping[Node, int],
    pinned: Mapping[Node, tuple[tuple[int, int], ...]],
    exits: set[Node],
    ranks: Ranks | None,
) -> Group:
    nodes = [Node(mesh.id, chip) for chip in range(mesh.size)]
    cells = tuple(_cell(mesh, node, keys[node], pinned.get(node, ()), node in exits, ranks) for node in nodes)
    kind = "switch " if mesh.is_switch else ""
    lengths = " x ".join(
        f"{extent} {'RING' if ring else 'LINE'}" for extent, ring in zip(mesh.shape, mesh.rings, strict=True)
    )
    caption = f"{kind}{lengths} · x{mesh.channels} {policy_name(mesh.strict)}"
    return Group(mesh_title(mesh), caption, drawn_shape(mesh), cells, _blocks(mesh, ranks), mesh.id)


def drawn_shape(mesh: LogicalMesh) -> tuple[int, int]:
    """Its own; a long line that one host owns is folded into rows of a length that divides it."""
    if 1 not in mesh.shape or mesh.size <= _LONGEST_LINE or mesh.host_count > 1:
        return mesh.shape
    longest = max(8, 2 * math.isqrt(mesh.size // 2))
    columns = max(length for length in range(1, longest + 1) if mesh.size % length == 0)
    return (mesh.size // columns, columns) if columns > 3 else mesh.shape


def _place(mesh: LogicalMesh, chip: int) -> tuple[int, int]:
    """Where a chip is drawn: a folded line goes to and fro."""
    shape = drawn_shape(mesh)
    if shape == mesh.shape:
        return mesh.coordinate(chip)
    row, column = divmod(chip, shape[1])
    return row, shape[1] - 1 - column if row % 2 else column


def _cell(
    mesh: LogicalMesh,
    node: Node,
    key: int,
    positions: tuple[tuple[int, int], ...],
    is_exit: bool,
    ranks: Ranks | None,
) -> Cell:
    rank = mesh.host_rank(node.chip)
    lines = [str(node), f"row {mesh.coordinate(node.chip)[0]}, column {mesh.coordinate(node.chip)[1]}"]
    lines.append(f"host rank {rank}")
    if ranks and (mesh.id, rank) in ranks:
        lines.append(ranks[mesh.id, rank])
    if positions:
        places = " or ".join(f"tray {tray} location {location}" for tray, location in positions[:8])
        lines.append(f"pinned to {places}{' ...' if len(positions) > 8 else ''}")
    return Cell(
        key,
        _place(mesh, node.chip),
        f"D{node.chip}",
        (f"pin t{positions[0][0]} l{positions[0][1]}",) if len(positions) == 1 else ("pinned",) * bool(positions),
        "\n".join(lines),
        mesh.id,
        is_pinned=bool(positions),
        is_exit=is_exit,
    )


def _blocks(mesh: LogicalMesh, ranks: Ranks | None) -> tuple[Block, ...]:
    """Boxes for the hosts: always where processes are bound, else only where there are several."""
    if mesh.host_count == 1 and ranks is None:
        return ()
    rows, columns = mesh.host_block if mesh.host_count > 1 else drawn_shape(mesh)
    blocks = []
    for rank in range(mesh.host_count):
        down, right = divmod(rank, mesh.hosts[1])
        label, short = f"host {rank}", f"h{rank}"
        if ranks is not None:
            label = short = ranks.get((mesh.id, rank), "no rank")
        blocks.append(Block((down * rows, right * columns), (rows, columns), label, short))
    return tuple(blocks)


def _mesh_wires(mesh: LogicalMesh, keys: Mapping[Node, int]) -> list[Wire]:
    return [
        Wire(
            keys[Node(mesh.id, chip)],
            keys[Node(mesh.id, other)],
            (State.UP,) * mesh.channels,
            f"{Node(mesh.id, chip)} <-> {Node(mesh.id, other)}, {_AXES[direction]}\n"
            f"{mesh.channels} channels {policy_name(mesh.strict)}",
        )
        for chip, other, direction in mesh.edges()
    ]


def _chip_wire(connection: Connection, keys: Mapping[Node, int]) -> Wire:
    a, b = _node(connection.a), _node(connection.b)
    return Wire(
        keys[a],
        keys[b],
        (State.UP,) * connection.count,
        _connection_tip(connection),
        is_special=True,
        note="Z" if connection.z else "",
    )


def _node(side: Side) -> Node:
    assert side.chip is not None  # asked of connections between chips only
    return Node(side.meshes[0], side.chip)


def _bundle(connection: Connection) -> Bundle:
    return Bundle(
        connection.a.meshes,
        connection.b.meshes,
        (State.UP,) * connection.count,
        _connection_tip(connection),
        "Z" if connection.z else "",
    )


def _connection_tip(connection: Connection) -> str:
    z = ", Z ports only" if connection.z else ""
    line = "" if connection.line is None else f"\nline {connection.line} of the descriptor"
    return f"{connection}\n{connection.count} channels {policy_name(connection.strict)}{z}{line}"


def _sections(graph: MeshGraph) -> tuple[Section, ...]:
    """Meshes that a connection takes as one side, where these sides do not overlap."""
    sides = dict.fromkeys(
        side.meshes for connection in graph.connections for side in (connection.a, connection.b) if len(side.meshes) > 1
    )
    meshes = [mesh for side in sides for mesh in side]
    if len(set(meshes)) < len(meshes):
        return ()
    names = {level.meshes: f"{level.type} {level.id} {level.name}" for level in graph.levels[1:]}
    return tuple(Section(names.get(side, f"group {number}"), side) for number, side in enumerate(sorted(sides)))
