"""Each remedy that lint prints is followed as printed, one after the other, until nothing is left to mend."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from descriptors import connection, mesh, node, two_meshes
from test_mgd_population import BROKEN as UNBUILDABLE
from test_mgd_validation import BROKEN, NOT_FOR_THE_RUNTIME

import softmesh as ttnn
from softmesh.cli import commands as softmesh
from softmesh.input_files.text_files import Finding, Severity
from softmesh.lint.linter import lint

MOST_STEPS = 12
Edit = Callable[[list[str], int, re.Match[str]], object]  # lines of the file, the finding's line, what the fix says


def swap(pattern: str, by: str) -> Edit:
    """Replace the first match from the finding's line on, or of the file; `{1}` is a group of the fix."""

    def edit(lines: list[str], at: int, said: re.Match[str]) -> None:
        for number in (*range(at, len(lines)), *range(at)):
            if re.search(pattern, lines[number]):
                lines[number] = re.sub(pattern, by.format(said[0], *said.groups()), lines[number], count=1)
                return
        raise AssertionError(f"{pattern} is not to be found")

    return edit


def add(text: str) -> Edit:
    """Add a line inside of the block that begins at the finding's line."""

    def edit(lines: list[str], at: int, said: re.Match[str]) -> None:
        wanted, line = text.format(said[0], *said.groups()), lines[at]
        opened, rest = line.split("{", 1)
        lines[at : at + 1] = [f"{opened}{{ {wanted} {rest}"]

    return edit


def write(text: str) -> Edit:
    """Replace the line that has the field already, or add one."""

    def edit(lines: list[str], at: int, said: re.Match[str]) -> None:
        wanted = text.format(said[0], *said.groups())
        there = [number for number, line in enumerate(lines) if line.strip().startswith(wanted.split()[0])]
        if there:
            lines[there[0]] = wanted
        else:
            add(wanted.replace("{", "{{").replace("}", "}}"))(lines, at, said)

    return edit


def put_first(lines: list[str], at: int, said: re.Match[str]) -> None:
    lines.insert(0, mesh())


def put_last(lines: list[str], at: int, said: re.Match[str]) -> None:
    lines.append(said[1])


def take_out(lines: list[str], at: int, said: re.Match[str]) -> None:
    del lines[at]


def name_a_dim(lines: list[str], at: int, said: re.Match[str]) -> None:
    dims = re.findall(r"\d+", lines[at])
    dims[int(said["dim"])] = said["now"]
    lines[at] = re.sub(r"\[.*\]", f"[ {', '.join(dims)} ]", lines[at])


def write_pairs(lines: list[str], at: int, said: re.Match[str]) -> None:
    lines[at : at + 1] = [connection(node(a), node(b)) for a, b in ((0, 1), (1, 2), (2, 0))]


def take_policy_of(lines: list[str], at: int, said: re.Match[str]) -> None:
    policy = re.search(r"policy: \w+", lines[int(said[1]) - 1])
    lines[at] = re.sub(r"policy: \w+", policy[0] if policy else "", lines[at])


def take_out_connection(lines: list[str], at: int, said: re.Match[str]) -> None:
    """Such a block may go over several lines."""
    depth, end = 0, at
    while True:
        depth += lines[end].count("{") - lines[end].count("}")
        end += 1
        if not depth:
            break
    del lines[at:end]


END = f"nodes {{ {node(1)} }}".replace("{", "{{").replace("}", "}}")
EDITS: dict[str, Edit] = {
    r"add mesh_descriptors \{": put_first,
    r"add (top_level_instance \{.*\}), or name": put_last,
    r"add name: \"\.\.\.\"": swap('name: ""', 'name: "M0"'),
    r"rename this one": swap('name: "M0"', 'name: "Another"'),
    r"write type: \"FABRIC\"": swap('type: "[A-Z]+"', 'type: "FABRIC"'),
    r"add (type: \"FABRIC\")": add("{1}"),
    r"write channels \{ count: N \}": add("channels {{ count: 1 }}"),
    r"give M1 the arch of the first": swap("arch: BLACKHOLE", "arch: WORMHOLE_B0"),
    r"write (arch: WORMHOLE_B0) or": add("{1}"),
    r"write two dims": swap(r"dims:? *\[?[\d, ]+\]?", "dims: [ 1, 1 ]"),
    r"dim (?P<dim>\d) is 0; write (?P<now>\d)": name_a_dim,
    r"2 dims take as many dim_types": swap("LINE, LINE, RING", "LINE, LINE"),
    r"write (host_topology \{.*\}) for one host": write("{1}"),
    r"hosts cannot share \d+ chips of dim (?P<dim>\d); (?P<now>\d)": name_a_dim,
    r"the chips are 0\.\.(\d+)": swap(r"dst: \d+", "dst: {1}"),
    r"add (instances \{.*\})": add("{1}"),
    r"name both ends": swap("channels", END + " channels"),
    r"add (physical_asic_position \{.*\})": add("{1}"),
    r"remove express_connections": take_out,
    r"write one connection for each pair": write_pairs,
    r"policy of the one in line (\d+)": take_policy_of,
    r"or use one of (\w+)\.": swap('"MO"', '"{1}"'),
    r"name what is meant, e.g. (mesh \{.*) 0 \} \}": swap(r"\{ +\}", "{{ {1} 1 }} }}"),
    r"name what is meant, e.g. (mesh .*mesh_id:) 0 \}": swap(r"\{ +\}", "{{ {1} 1 }} }}"),
    r"share their ids; (\d+) is free": swap(r"mesh_id: \d+", "mesh_id: {1}"),
    r"has the mesh ids 0, (\d+)": swap(r"mesh_id: 2", "mesh_id: {1}"),
    r"write (mesh_descriptor: \"M1\"), or another": swap(r'mesh_descriptor: "M0"(?= mesh_id: 1)', "{1}"),
    r"has the chips 0\.\.(\d+)": swap(r"device_id: \d+", "device_id: {1}"),
    r"give device_id on all nodes of the connection or on none": swap(r" device_id: \d+", ""),
    r"remove `directional: true`": swap("directional: true", ""),
    r"write (layout_type: ALL_TO_ALL) or": add("{1}"),
    r"make all child graphs of (\w+) of one type": swap('type: "RACK"', 'type: "POD"'),
    # what does not fit a machine
    r"With channels count (\d+) it fits": swap(r"channels \{ count: \d+", "channels {{ count: {1}"),
    r"With count (\d+) for \S+ <-> \S+ it fits": swap(r"channels \{ count: \d+", "channels {{ count: {1}"),
    r"Without the connection .* it fits": take_out_connection,
    r"Declare LINE for the rows": swap(r"dim_types: \[ RING, (\w+) \]", r"dim_types: [ LINE, \1 ]"),
    r"Declare LINE for the columns": swap(r"dim_types: \[ (\w+), RING \]", r"dim_types: [ \1, LINE ]"),
    r"The largest part of it that fits is (\d+)x(\d+)": swap(r"dims: \[[\d, ]+\]", "dims: [ {1}, {2} ]"),
    r"Declare arch: (\w+), or": swap(r"arch: \w+", "arch: {1}"),
    r"Positions of \S+ go from tray (\d+) asic (\d+)": swap(r"tray_id: \d+", "tray_id: {1} asic_location: {2}"),
    r"With the pinning at line (\d+) removed": take_out,
    r"Declare host_topology so that a host owns at most": swap(
        r"host_topology \{ .*\] \}", "host_topology {{ dims: [ 1, 2 ] }}"
    ),
}
NOT_EDITS = {"a graph may not contain itself"}  # what it should contain instead, only its author knows


def followed(path: Path, finding: Finding) -> Path:
    """The file to go on with."""
    if command := re.match(r"softmesh (flatten \S+ -o (\S+))", finding.fix):
        done = CliRunner().invoke(softmesh, shlex.split(command[1]))
        assert done.exit_code == 0, done.output
        return Path(command[2])
    for pattern, edit in EDITS.items():
        if said := re.search(pattern, finding.fix):
            lines = path.read_text().split("\n")
            edit(lines, (finding.line or 1) - 1 if finding.line else 0, said)
            path.write_text("\n".join(lines))
            return path
    raise AssertionError(f"nobody knows how to follow: {finding.fix}")


def steps(path: Path, **options: object) -> Iterator[Finding]:
    """The errors that were mended, the first of each round."""
    for _ in range(MOST_STEPS):
        [report] = lint([path], **options)
        wrong = [finding for finding in report.findings if finding.severity is Severity.ERROR]
        if not wrong:
            return
        yield wrong[0]
        path = followed(path, wrong[0])
    raise AssertionError(f"{report.verdict} after {MOST_STEPS} remedies: {wrong}")


REFUSED = {**BROKEN, **NOT_FOR_THE_RUNTIME, **UNBUILDABLE}


@pytest.mark.parametrize("rule", sorted(REFUSED.keys() - {"repeated-type"}))
def test_a_descriptor_is_mended_by_what_each_refusal_says(rule, tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")  # some are warnings otherwise
    path = tmp_path / "m.textproto"
    path.write_text(REFUSED[rule][0])
    assert f"mgd/{rule}" in [finding.rule for finding in steps(path)]


def test_a_graph_that_contains_itself_is_the_one_that_no_edit_mends(tmp_path):
    path = tmp_path / "m.textproto"
    path.write_text(REFUSED["repeated-type"][0])
    [wrong] = lint([path])[0].findings
    assert any(text in wrong.fix for text in NOT_EDITS)


STRICT = "channels { count: 4 policy: STRICT }"
RINGS = "8, 4 ] dim_types: [ RING, RING"
PINNED = "pinnings { logical_fabric_node_id { chip_id: 0 } physical_asic_position { tray_id: 99 } }\n"
TOP = f"top_level_instance {{ {node()} }}\n"
MISFITS = {
    "match/links": (mesh(channels=STRICT) + TOP, "T3000"),
    "match/connection": (two_meshes(connection(node(0), node(1), channels="channels { count: 40 }")), "Closetbox"),
    "match/ring": (mesh(dims=RINGS, channels="channels { count: 1 }") + TOP, "mesh:8x4"),
    "match/chip-count": (mesh(dims="4, 8") + TOP, "T3000"),
    "match/architecture": (mesh(arch="arch: BLACKHOLE") + TOP, "T3000"),
    "match/shape": (mesh(dims="4, 10") + TOP, "mesh:8x8"),
    "match/hosts": (mesh(dims="2, 8", channels="channels { count: 1 }") + TOP, "Closetbox"),
    "match/pinning": (mesh() + TOP + PINNED, "T3000"),
}


@pytest.mark.parametrize("rule", MISFITS)
def test_a_descriptor_that_does_not_fit_is_mended_by_the_nearest_thing_that_does(rule, tmp_path):
    text, system = MISFITS[rule]
    path = tmp_path / "m.textproto"
    path.write_text(text)
    assert rule in [finding.rule for finding in steps(path, system=system)]


def test_a_fabric_that_cannot_join_meshes_is_mended_by_the_one_that_is_named(tmp_path):
    path = tmp_path / "m.textproto"
    path.write_text(two_meshes(connection(node(0), node(1))))
    [report] = lint([path], fabric="FABRIC_1D")
    [wrong] = report.findings
    named = re.findall(r"FABRIC_\w+", wrong.fix)
    assert named == ["FABRIC_2D"]
    assert not [*steps(path, fabric=named[0])]


@pytest.mark.usefixtures("idle_machine")
def test_a_fabric_that_does_not_come_up_does_in_the_mode_that_is_named(tmp_path):
    path = tmp_path / "m.textproto"
    path.write_text(mesh(channels="channels { count: 2 policy: RELAXED }") + TOP)
    [report] = lint([path], system="T3000", down=["link:0/8"], fabric="FABRIC_2D")
    [wrong] = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    said = re.search(r"set_fabric_config\(FabricConfig\.(\w+), (\w+)\)", wrong.fix)
    assert said is not None, wrong.fix
    ttnn.use_system("T3000", down=["link:0/8"])
    ttnn.set_fabric_config(ttnn.FabricConfig[said[1]], ttnn.FabricReliabilityMode[said[2]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ttnn.SoftmeshWarning)  # of the planes that are left
        ttnn.open_mesh_device(ttnn.MeshShape(2, 4)).close()


Ranks = list[dict[str, Any]]


def bound(rank: int, mesh_id: int | None = None, host_rank: int = 0, chips: str = "") -> dict[str, Any]:
    devices = {"env_overrides": {"TT_VISIBLE_DEVICES": chips}} if chips else {}
    return {"rank": rank, "mesh_id": rank if mesh_id is None else mesh_id, "mesh_host_rank": host_rank, **devices}


# The remedy as an edit of the ranks; what the words leave open is decided as their reader would.
BINDING_EDITS: dict[str, Callable[[Ranks, re.Match[str]], object]] = {
    r"the descriptor has the mesh ids .*(\d+)": lambda ranks, said: ranks[-1].update(mesh_id=int(said[1])),
    r"mesh \d has the host ranks .*(\d+)": lambda ranks, said: ranks[-1].update(mesh_host_rank=int(said[1])),
    r"give each process of a mesh a mesh_host_rank of its own": lambda ranks, _: [
        entry.update(mesh_host_rank=number) for number, entry in enumerate(ranks)
    ],
    r"bind a rank to each (mesh|host rank)": lambda ranks, said: ranks.append(
        bound(len(ranks), 1) if said[1] == "mesh" else bound(len(ranks), 0, len(ranks))
    ),
    r"take ranks out": lambda ranks, _: ranks.pop(),
    r"number the ranks 0 to \d": lambda ranks, _: [entry.update(rank=at) for at, entry in enumerate(ranks)],
    r"give each process a rank of its own": lambda ranks, _: [entry.update(rank=at) for at, entry in enumerate(ranks)],
    r"give each rank chips|list the chips of each rank|list more chips|list chips that are there|list them as": (
        lambda ranks, _: [
            entry.update(env_overrides={"TT_VISIBLE_DEVICES": f"{2 * at},{2 * at + 1}"})
            for at, entry in enumerate(ranks)
        ]
    ),
    r"add `- (\{rank: 0, mesh_id: 0\})`": lambda ranks, said: ranks.append(yaml.safe_load(said[1])),
}
ONE_MESH = mesh(hosts="host_topology { dims: [ 1, 2 ] }") + TOP
PAIR = two_meshes(connection(node(0), node(1))).replace("[ 2, 4 ]", "[ 2, 2 ]")
BINDINGS = [
    ("unknown-mesh", PAIR, [bound(0), bound(1, 2)], None),
    ("unknown-host-rank", ONE_MESH, [bound(0, 0), bound(1, 0, 2)], None),
    ("claimed-twice", ONE_MESH, [bound(0, 0, 1), bound(1, 0, 1)], None),
    ("unclaimed", ONE_MESH, [bound(0, 0)], None),
    ("claimed-twice", PAIR, [bound(0), bound(1), bound(2, 1)], None),  # and there is no other place
    ("too-many-ranks", PAIR, [{"rank": rank, "mesh_id": min(rank, 1)} for rank in range(3)], None),
    ("duplicate-rank", PAIR, [bound(0), bound(0, 1)], None),
    ("rank-gap", PAIR, [bound(0), bound(2, 1)], None),
    ("no-ranks", PAIR, [], None),
    ("shared-devices", PAIR, [bound(0, chips="0,1"), bound(1, chips="1,2")], "T3000"),
    ("too-few-devices", PAIR, [bound(0, chips="0"), bound(1, chips="2,3")], "T3000"),
    ("visible-devices", PAIR, [bound(0, chips="0,nine"), bound(1, chips="2,3")], "T3000"),
    ("all-visible", PAIR, [bound(0), bound(1)], "T3000"),
]


@pytest.mark.parametrize(("rule", "descriptor", "ranks", "system"), BINDINGS)
def test_rank_bindings_are_mended_by_what_each_finding_says(rule, descriptor, ranks, system, tmp_path):
    (tmp_path / "m.textproto").write_text(descriptor)
    path, met = tmp_path / "ranks.yaml", []
    ranks = [dict(entry) for entry in ranks]
    for _ in range(MOST_STEPS):
        path.write_text(yaml.safe_dump({"rank_bindings": ranks, "mesh_graph_desc_path": str(tmp_path / "m.textproto")}))
        wrong = [one for one in lint([path], system=system)[0].findings if one.severity is not Severity.NOTE]
        if not wrong:
            break
        met.append(wrong[0].rule)
        edits = [(edit, said) for words, edit in BINDING_EDITS.items() if (said := re.search(words, wrong[0].fix))]
        assert edits, f"nobody knows how to follow: {wrong[0].fix}"
        edits[0][0](ranks, edits[0][1])
    assert not wrong, wrong
    assert any(name.endswith(f"/{rule}") for name in met), met
