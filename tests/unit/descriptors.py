"""Texts of mesh graph descriptors, put together from parts, and what a check says about them."""

from __future__ import annotations

from pathlib import Path

from softmesh.fabric.descriptors.loader import CheckedDescriptor, check_text
from softmesh.input_files.text_files import Finding

FIXTURES = Path(__file__).parent.parent / "fixtures" / "mgd"


def mesh(
    name: str = "M0",
    dims: str = "2, 4",
    hosts: str = "host_topology { dims: [ 1, 1 ] }",
    arch: str = "arch: WORMHOLE_B0",
    channels: str = "channels { count: 2 }",
    more: str = "",
) -> str:
    return f"""mesh_descriptors {{
  name: "{name}"
  {arch}
  device_topology {{ dims: [ {dims} ] }}
  {hosts}
  {channels}
  {more}
}}
"""


def node(id: int = 0, name: str = "M0", device: int | None = None) -> str:
    chip = "" if device is None else f" device_id: {device}"
    return f'mesh {{ mesh_descriptor: "{name}" mesh_id: {id}{chip} }}'


def connection(*nodes: str, channels: str = "channels { count: 2 }", more: str = "") -> str:
    ends = " ".join(f"nodes {{ {end} }}" for end in nodes)
    return f"  connections {{ {ends} {channels} {more} }}\n"


def graph(*instances: str, more: str = "", name: str = "G0", type: str = 'type: "FABRIC"') -> str:
    children = "".join(f"  instances {{ {instance} }}\n" for instance in instances)
    return f'graph_descriptors {{\n  name: "{name}"\n  {type}\n{children}{more}}}\n'


def graph_ref(id: int = 0, name: str = "G0", more: str = "") -> str:
    return f'graph {{ graph_descriptor: "{name}" graph_id: {id} {more} }}'


TOP_MESH = f"top_level_instance {{ {node()} }}\n"
TOP_GRAPH = f"top_level_instance {{ {graph_ref()} }}\n"


def two_meshes(more: str = "") -> str:
    """A fabric of two meshes with whatever else is to stand in its graph."""
    return mesh() + graph(node(0), node(1), more=more) + TOP_GRAPH


def errors(checked: CheckedDescriptor) -> list[Finding]:
    return [finding for finding in checked.findings if finding.severity.value == "error"]


def messages(text: str, runtime: bool = False) -> list[str]:
    return [finding.message for finding in errors(check_text(text, runtime))]


def rules(text: str, runtime: bool = False) -> list[str]:
    return [finding.rule for finding in check_text(text, runtime).findings]


def line_of(text: str, fragment: str) -> int:
    """The line, counted from 1, on which a fragment first stands."""
    return text[: text.index(fragment)].count("\n") + 1
