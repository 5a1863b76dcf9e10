"""The recorder: an observer that prices every command of the stream and keeps what the clock and reports need.

Commands that are like an earlier one (the same op, specs, arguments and devices) are priced once. It keeps values,
never tensors.
"""

from __future__ import annotations

import os
import weakref
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

from softmesh.cost.calibration import Calibration
from softmesh.cost.command_cost import FREE, Bound, CommandCost
from softmesh.cost.link_traffic import LinkTable
from softmesh.cost.memory_journal import MeshJournal, regions_of
from softmesh.cost.pricing import price_of
from softmesh.cost.recorded_run import Form, Recorded, RecordedRun
from softmesh.cost.tensor_records import TensorRecords
from softmesh.cost.timeline import MeshRecord, Traffic
from softmesh.fabric import settings
from softmesh.fabric.system import current_system
from softmesh.hardware import FabricConfig, SubDeviceId
from softmesh.kinds import Kind
from softmesh.runtime.commands import Command
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.memory_map import worker_grid
from softmesh.systems.chip import Chip

STEP, SIGNPOST = "step ", "signpost "
_SETTLED_EVERY = 32  # commands
_SUB_DEVICE_NAMES = ("subdevice_id", "sub_device_id", "worker_subdevice_id", "worker_sub_device_id")


class RunRecorder:
    def __init__(self, calibration: Calibration | None = None, rank: int = 0) -> None:
        self.run = RecordedRun(rank)
        self._calibration = calibration
        self._tensors = TensorRecords()
        self._links = LinkTable()
        self._forms: dict[tuple[Any, ...], Form] = {}
        self._meshes: dict[int, int] = {}  # unique id of a mesh -> its index
        self._of_calls: dict[object, Form] = {}
        self._journals: dict[int, MeshJournal] = {}
        self._pools: dict[int, object] = {}
        self._since_settled = 0
        self._places: dict[int, int] = {}  # chip -> its place
        self._events: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def on_command(self, command: Command) -> None:
        device, run = command.device, self.run
        if device is None:
            run.commands.append(self._on_host(command))
            return
        index = self._meshes.get(device.unique_id)
        if index is None:
            index = self._add_mesh(device)
        call = command.call
        form = None if call is None else self._of_calls.get(call)
        if form is None:
            form = self._form(command, device, index)
            if call is not None:
                self._of_calls[call] = form
        records, recordings = self._tensors, device.captures.recordings
        has_more = command.has_extra_fields
        sends, receives = _messages(command) if has_more else ((), ())
        run.commands.append(
            Recorded(
                form,
                command.queue,
                command.raw_site,
                records.note(command.inputs),
                records.note(command.outputs),
                command.within,
                command.blocking,
                command.trace,
                self._event(command) if has_more else None,
                sends,
                receives,
                bool(recordings) and command.queue in recordings,
            )
        )
        self._since_settled += 1
        if self._since_settled >= _SETTLED_EVERY or device.memory.pools is not self._pools[index]:
            self._since_settled = 0
            self._journals[index].follow(device)
            self._pools[index] = device.memory.pools
            for journal in self._journals.values():
                journal.settle()

    def finish(self) -> RecordedRun:
        """What was seen; memory is not watched any longer."""
        run, tensors = self.run, self._tensors
        known, command_of = tensors.claims(), self._commands_of_allocations()
        entries = [entry for one in self._journals.values() for entry in one.stop(command_of, known)]
        run.memory = sorted(entries, key=lambda entry: entry.command)
        run.tensors = tensors
        run.links, run.chips = self._links.links, list(self._places)
        system = current_system()
        run.system = run.system or system.name
        run.machine = run.machine or getattr(system, "machine", None)
        run.fabric = run.fabric or settings.active().config.name
        return run

    def _commands_of_allocations(self) -> Callable[[int], int]:
        """By the number of an allocation: the command that asked for it, which was told of after that."""
        numbers: list[int] = []
        indices: list[int] = []
        latest = 0
        for index, command in enumerate(self.run.commands):
            for tensor in command.outputs:
                number = self._tensors.allocation_of(tensor)
                if number is not None and number > latest:
                    latest = number
                    numbers.append(number)
                    indices.append(index)
        last = max(len(self.run.commands) - 1, 0)

        def command_of(number: int) -> int:
            at = bisect_left(numbers, number)
            return indices[at] if at < len(indices) else last

        return command_of

    # -- what is alike -----------------------------------------------------------------------------

    def _form(self, command: Command, device: MeshDevice, index: int) -> Form:
        arguments = command.arguments
        sub_devices = device.sub_devices
        key: tuple[Any, ...] = (
            command.name,
            index,
            settings.serial,
            sub_devices.active.id,
            command.coords if isinstance(command.coords, tuple) else tuple(command.coords),
            tuple([tensor.spec for tensor in command.inputs]),
            tuple([tensor.spec for tensor in command.outputs]),
            tuple(arguments),
            tuple(arguments.values()),
            command.sub_devices,
            command.reads,
            command.writes,
            _moves_nothing(command),
        )
        try:
            known = self._forms.get(key)
        except TypeError:  # an argument cannot be hashed: it is priced by itself
            return self._new_form(command, device, index, arguments)
        if known is None:
            known = self._forms[key] = self._new_form(command, device, index, arguments)
        return known

    def _new_form(self, command: Command, device: MeshDevice, index: int, arguments: Mapping[str, object]) -> Form:
        kind = Kind.VIEW if _moves_nothing(command) else command.kind
        ids = tuple(device.get_device_id(coord) for coord in command.coords) or tuple(device.all_device_ids)
        chip = device.system.chip
        traffic = None if kind.is_note else self._links.traffic_of(command)
        chosen = _sub_devices(command, arguments)
        return Form(
            command.name,
            kind,
            index,
            ids,
            tuple(self._place(chip) for chip in ids),
            FREE if kind.is_note else _through_links(price_of(command, chip, self._calibration), traffic, chip),
            traffic,
            {name: _without_tensors(value) for name, value in arguments.items()},
            chosen,
            tuple(range(len(device.sub_devices.ids()))) if not chosen else (),
            _sharing_a_way(device, ids) if kind.is_host_transfer else 1,
        )

    def _place(self, chip: int) -> int:
        return self._places.setdefault(chip, len(self._places))

    def _event(self, command: Command) -> int | None:
        event = command.event
        if event is None:
            return None
        known = self._events.get(event)
        if known is None:
            known = self._events[event] = len(self.run.commands)
        return known

    def _add_mesh(self, device: MeshDevice) -> int:
        run, index = self.run, len(self.run.meshes)
        fabric = settings.active().config
        if fabric is not FabricConfig.DISABLED or not run.fabric:
            run.fabric = fabric.name
        run.system, run.machine = device.system.name, getattr(device.system, "machine", None)
        parent = device.get_parent_mesh()
        run.meshes.append(
            MeshRecord(
                index,
                run.rank,
                device.id(),
                tuple(device.shape),
                tuple(device.all_device_ids),
                device.system.chip,
                worker_grid(device.system.chip, device.options),
                len(device.queues),
                device.memory.memory_map.worker_l1_size,
                regions_of(device),
                None if parent is None else self._meshes.get(parent.unique_id),
                fabric.name,
            )
        )
        for journal in self._journals.values():
            journal.end_where_closed()
        self._meshes[device.unique_id] = index
        self._journals[index] = MeshJournal(index, device)
        self._pools[index] = device.memory.pools
        return index

    # -- what no device does -----------------------------------------------------------------------

    def _on_host(self, command: Command) -> Recorded:
        mark = None
        if command.kind in (Kind.STEP, Kind.SIGNPOST):
            mark = {name: str(value) for name, value in command.arguments.items() if value is not None}
        key = (command.name,)
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = Form(command.name, command.kind, -1, (), (), FREE, None, {}, (), (), 1)
        records = self._tensors
        return Recorded(
            form,
            command.queue,
            command.raw_site,
            records.note(command.inputs),
            records.note(command.outputs),
            command.within,
            False,
            None,
            None,
            (),
            tuple(map(id, command.receives)),
            False,
            mark,
        )


def _through_links(cost: CommandCost, traffic: Traffic | None, chip: Chip) -> CommandCost:
    """No less than its busiest link takes: messages whose routes meet share it."""
    if traffic is None:
        return cost
    least = max(size for _, size in traffic.bytes_by_link) / (chip.link_gb_per_s * 1e9)
    if least <= cost.seconds:
        return cost
    scale = least / cost.seconds if cost.seconds else 1.0
    return cost._replace(seconds=least, low=least, high=max(cost.high * scale, least), bound=Bound.LINK)


def _moves_nothing(command: Command) -> bool:
    """A view, as a reshape may be: its result lies where its operand does."""
    inputs, outputs = command.inputs, command.outputs
    if len(outputs) != 1 or not inputs or not outputs[0].storage.is_shared():
        return False
    made = outputs[0].storage
    return all(tensor.storage is not made for tensor in inputs) and any(
        tensor.storage.address == made.address for tensor in inputs
    )


def _sub_devices(command: Command, arguments: Mapping[str, object]) -> tuple[int, ...]:
    if command.sub_devices:
        return command.sub_devices
    named = (arguments.get(name) for name in _SUB_DEVICE_NAMES)
    return tuple(value.id for value in named if isinstance(value, SubDeviceId))


def _messages(command: Command) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Channels that it sends into, and receives from; between ranks both ends know the chips that are joined."""
    sends: tuple[object, ...] = tuple(map(id, command.sends))
    receives: tuple[object, ...] = tuple(map(id, command.receives))
    if not sends and not receives and command.kind in (Kind.SEND, Kind.RECEIVE):
        pairs = getattr(command.arguments.get("mesh_socket"), "node_pairs", None)
        if callable(pairs):
            channel = (str(pairs()),)
            return (channel, ()) if command.kind is Kind.SEND else ((), channel)
    return sends, receives


def _sharing_a_way(device: MeshDevice, ids: tuple[int, ...]) -> int:
    """The most devices that one chip with a bus connects to the host: their bytes go one after the other."""
    counts: dict[int, int] = {}
    for chip in ids:
        bus = device.system.pcie_chip_of(chip)
        counts[bus] = counts.get(bus, 0) + 1
    return max(counts.values(), default=1)


def _without_tensors(value: object) -> object:
    """Tensors, and what may hold some, as texts."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(_without_tensors(item) for item in value)
    return value if type(value).__hash__ is not None and not hasattr(value, "storage") else str(value)


def recording_rank() -> int:
    """Of this process in its job."""
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    return int(rank) if rank.isdecimal() else 0
