"""`softmesh systems`: the machines that are built in, those that can be made, and how to choose one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click
from rich import box
from rich.table import Table

from softmesh.report.terminal import print_pictures
from softmesh.systems.machine import Machine
from softmesh.systems.named_systems import entries, load
from softmesh.systems.system_files import Variant
from softmesh.terminal_text import echo

_GIB = 2**30
_SHORT = {"wormhole_b0": "WH", "blackhole": "BH"}

GENERATED = {
    "mesh:RxC": "a grid of Wormhole chips, 4 links per edge: mesh:8x8",
    "torus:RxC": "the same with rows and columns closed to rings: torus:32x32",
    "line:N": "N chips in a row: line:16",
    "FILE.yaml": "a cluster descriptor, or a mapping of one for each rank",
}
_CHOOSING = """\
Choose one:
  softmesh run --system T3000 model.py
  SOFTMESH_SYSTEM=Galaxy python model.py
  softmesh show Closetbox
Without a choice, as many Wormhole chips as a program asks for, in any shape."""


@dataclass(frozen=True)
class Listed:
    """One built-in system as the list shows it; `mesh` is that of one host."""

    name: str
    aliases: tuple[str, ...]
    summary: str
    chips: int
    mesh: tuple[int, int] | None
    links_per_edge: int
    hosts: int
    arch: str
    memory_gib: int

    @property
    def mesh_text(self) -> str:
        if self.mesh is None:
            return "-"
        shape = "x".join(map(str, self.mesh))
        return shape if self.hosts == 1 else f"{self.hosts} of {shape}"


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  softmesh systems\n  softmesh systems --json",
)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def systems(as_json: bool) -> None:
    """List the machines that are built in, and how to choose one."""
    listed = [described(entry) for entry in entries()]
    if as_json:
        echo(json.dumps({"systems": [asdict(one) for one in listed], "generated": GENERATED}, indent=2))
    else:
        _print_table(listed)


def described(entry: Variant) -> Listed:
    machine = load(entry.name)
    return Listed(
        entry.name,
        entry.aliases,
        entry.summary,
        len(machine.asics),
        _host_mesh(machine),
        _links_per_edge(machine),
        len(machine.hosts),
        machine.chip.arch_name,
        round(len(machine.asics) * machine.chip.dram_banks * machine.chip.dram_bank_bytes / _GIB),
    )


def _host_mesh(machine: Machine) -> tuple[int, int] | None:
    from softmesh.fabric.descriptors.default_graphs import default_graph

    graph = default_graph(machine.cluster_type)
    is_whole = graph is not None and graph.size * len(machine.hosts) == len(machine.asics)
    return graph.mesh(0).shape if graph is not None and is_whole else None


def _links_per_edge(machine: Machine) -> int:
    counts = Counter(
        len(links)
        for chip, near in machine.neighbours.items()
        for other, links in near.items()
        if machine.asics[chip].host == machine.asics[other].host
    )
    return counts.most_common(1)[0][0] if counts else 0


def _print_table(listed: list[Listed]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head in ("system", "chips", "mesh", "links", "hosts", "arch", "GiB"):
        is_text = head in ("system", "arch")
        table.add_column(head, justify="left" if is_text else "right", no_wrap=True)
    table.add_column("also called", overflow="fold")
    for one in listed:
        table.add_row(*_row(one))
    print_pictures(table, *_notes())


def _row(one: Listed) -> Iterator[str]:
    yield one.name
    yield str(one.chips)
    yield one.mesh_text
    yield f"x{one.links_per_edge}" if one.links_per_edge else "-"
    yield str(one.hosts)
    yield _SHORT.get(one.arch, one.arch)
    yield str(one.memory_gib)
    yield ", ".join(one.aliases)


def _notes() -> Iterator[str]:
    yield "links: Ethernet channels between neighbours. arch: Wormhole, Blackhole. GiB: DRAM of all chips."
    yield "Names may be written in upper or lower case.\n"
    yield "Made on request:"
    width = max(map(len, GENERATED))
    yield from (f"  {form.ljust(width)}  {meaning}" for form, meaning in GENERATED.items())
    yield ""
    yield _CHOOSING
