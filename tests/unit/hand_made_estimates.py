"""Estimates written by hand: a few layers of a model on a mesh, with every kind of thing that a report shows."""

from __future__ import annotations

from softmesh.callsite import CallSite
from softmesh.cost.command_cost import Bound, CommandCost
from softmesh.cost.timeline import (
    DirectedLink,
    Estimate,
    LinkUse,
    Mark,
    MemoryEvent,
    MemoryRegion,
    MeshRecord,
    StepRecord,
    TensorRecord,
    TimedCommand,
    Traffic,
)
from softmesh.systems.chip import N300
from softmesh.systems.machine import Machine
from softmesh.systems.named_systems import load

US = 1e-6
ODD_NAME = "model <b>&\"'.py"
_SITES = tuple(CallSite(ODD_NAME, line, "forward") for line in (12, 14, 17, 18, 21))
_BANKS = {"DRAM": 12, "L1": 64}


def tensor(number: int, shape: tuple[int, ...], buffer_type: str | None = "DRAM", address: int = 4096) -> TensorRecord:
    padded = (*shape[:-2], *(-(-extent // 32) * 32 for extent in shape[-2:]))
    pages = 1
    for extent in padded:
        pages *= extent
    pages //= 1024
    banks = _BANKS.get(buffer_type or "", 0)
    return TensorRecord(
        tensor_id=number,
        shape=shape,
        padded_shape=padded,
        dtype="BFLOAT16",
        layout="TILE",
        memory_config=f"MemoryConfig(memory_layout=TensorMemoryLayout::INTERLEAVED,buffer_type=BufferType::{buffer_type})",
        memory_layout="INTERLEAVED",
        buffer_type=buffer_type,
        address=address if buffer_type else None,
        bytes_per_bank=-(-pages // banks) * 2048 if banks else 0,
        page_bytes=2048,
        banks=banks,
        shard_shape=None,
        placement=("Replicate", "Shard(-1)"),
    )


def hand_made_estimate(system: str = "T3000", shape: tuple[int, int] = (2, 4), layers: int = 2) -> Estimate:
    """`layers` times: a product, an activation on a second queue, a reduce over the links; then a replay."""
    machine = load(system)
    return _Builder(machine, system, shape).built(layers)


class _Builder:
    def __init__(self, machine: Machine, system: str, shape: tuple[int, int]) -> None:
        self.machine, self.system, self.shape = machine, system, shape
        self.devices = tuple(sorted(machine.asics)[: shape[0] * shape[1]])
        inside = set(self.devices)
        self.links = tuple(
            DirectedLink(*ends)
            for link in machine.links
            if {link.a.chip, link.b.chip} <= inside
            for ends in (tuple(link), tuple(link)[::-1])
        )
        self.commands: list[TimedCommand] = []
        self.memory: list[MemoryEvent] = []
        self.now = 0.0

    def command(self, name: str, seconds: float, bound: Bound, site: CallSite, **more: object) -> TimedCommand:
        number = len(self.commands)
        fields: dict[str, object] = {
            "rank": 0,
            "mesh": 0,
            "devices": self.devices,
            "queue": 0,
            "sub_devices": (),
            "issued": self.now,
            "inputs": (tensor(1, (64, 512)), tensor(2, (512, 1024), address=1 << 20)),
            "outputs": (tensor(10 + number, (64, 1024), "L1", 100_000 + 4096 * number),),
            "arguments": {"transpose_b": False, "note": "<script>alert(1)</script>"},
            "within": (),
            "is_blocking": False,
            "trace": None,
            "session": None,
            "step": None,
            "after": number - 1 if number else None,
            "traffic": None,
            **more,
        }
        start = fields.pop("start", self.now)
        cost = CommandCost(
            seconds,
            seconds * 0.8,
            seconds * 1.3,
            bound,
            "hand-made",
            2 * 64 * 512 * 1024,
            1 << 20,
            0,
            1 << 16,
            64,
            True,
        )
        made = TimedCommand(index=number, name=name, site=site, start=start, end=start + seconds, cost=cost, **fields)  # type: ignore[arg-type]
        self.commands.append(made)
        self.now = max(self.now, made.end)
        return made

    def allocate(self, record: TensorRecord, number: int, site: CallSite, sign: int = 1) -> None:
        assert record.buffer_type is not None
        self.memory.append(
            MemoryEvent(
                self.now,
                max(len(self.commands) - 1, 0),
                0,
                record.buffer_type,
                record.address,
                sign * record.bytes_per_bank,
                number,
                f"tensor {record.tensor_id}",
                record.tensor_id,
                site,
            )
        )

    def built(self, layers: int) -> Estimate:
        for number in (1, 2):
            self.allocate(tensor(number, (512, 1024), address=number << 20), number, _SITES[0])
        marks = [Mark(0.0, 0, 0, "start", "")]
        for layer in range(layers):
            product = self.command("matmul", 40 * US, Bound.COMPUTE, _SITES[1], step=0)
            self.allocate(product.outputs[0], 100 + layer, _SITES[1])
            self.command("gelu", 12 * US, Bound.DRAM, _SITES[2], queue=1, start=product.start + 30 * US, step=0)
            used = tuple((link, 1 << (12 + (link + layer) % 8)) for link in range(len(self.links)))
            self.command("all_reduce", 25 * US, Bound.LINK, _SITES[3], traffic=Traffic(used), step=0)
            self.allocate(product.outputs[0], 100 + layer, _SITES[1], -1)
        marks.append(Mark(self.now, len(self.commands), 0, "replay & <more>", ""))
        self.command("matmul", 38 * US, Bound.COMPUTE, _SITES[4], trace=7, session=0, step=1)
        self.command("to_layout", 90 * US, Bound.HOST, _SITES[4], is_blocking=True, outputs=(), step=1)
        uses = self._uses()
        return Estimate(
            program=ODD_NAME,
            system=self.system,
            machine=self.machine,
            fabric="FABRIC_1D",
            calibration="built-in",
            has_values=True,
            ranks=1,
            seconds=self.now,
            meshes=(self._mesh(),),
            commands=tuple(self.commands),
            links=uses,
            memory=tuple(self.memory),
            steps=(
                StepRecord(0, "prefill", 0, 0.0, 100 * US, None),
                StepRecord(1, "decode", 0, 100 * US, self.now, 32.0),
            ),
            marks=tuple(marks),
        )

    def _uses(self) -> tuple[LinkUse, ...]:
        total, busy = [0] * len(self.links), [0.0] * len(self.links)
        for command in self.commands:
            for link, size in command.traffic.bytes_by_link if command.traffic else ():
                total[link] += size
                busy[link] += command.seconds
        return tuple(map(LinkUse, self.links, total, busy))

    def _mesh(self) -> MeshRecord:
        regions = (
            MemoryRegion("DRAM", 12, 1_048_640, 1_072_693_184, 32),
            MemoryRegion("L1", 64, 100_000, 1_395_424, 16),
        )
        return MeshRecord(0, 0, 1, self.shape, self.devices, N300, (8, 8), 2, N300.l1_bytes, regions, None, "FABRIC_1D")
