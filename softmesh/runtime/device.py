"""MeshDevice: a rectangle of chips that programs treat as one device.

Here a device is a name and a shape. Values live in tensors, whose leading dims are the mesh.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, overload

import torch

from softmesh import epoch
from softmesh.arguments import checked
from softmesh.cores import CoreCoord, CoreGrid, CoreRange, CoreRangeSet
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.fabric.system import System
from softmesh.hardware import NOC, Arch, SubDeviceId
from softmesh.hardware.fabric_config import FabricNodeId, MeshId
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.processes.lockstep import SharedCall
from softmesh.runtime.cpu_block_cache import release_results
from softmesh.runtime.memory.allocator import Allocator
from softmesh.runtime.memory.memory_map import memory_map_of, worker_grid
from softmesh.runtime.memory.out_of_memory import chosen_policy
from softmesh.runtime.mesh_view import A_COORDINATE, HELD_HERE, Holding, MeshDeviceView, end_calls, part
from softmesh.runtime.queues.device_queues import DeviceQueues
from softmesh.runtime.torch_device import chosen_torch_device
from softmesh.runtime.traces.trace import Captures
from softmesh.strictness import warn_or_raise


class ChipQueries:
    """Of a MeshDevice, which has the shape and the system."""

    _shape: MeshShape
    _system: System

    if TYPE_CHECKING:

        def _worker_grid(self) -> tuple[int, int]: ...

    def num_devices(self) -> int:
        return self._shape.mesh_size()

    def num_rows(self) -> int:
        return self._side("num_rows", 0)

    def num_cols(self) -> int:
        return self._side("num_cols", 1)

    def _side(self, method: str, axis: int) -> int:
        if self._shape.dims() != 2:
            raise MeshError(f"{method}: {self._shape} has {self._shape.dims()} axes: ask mesh.shape for them.")
        return int(self._shape[axis])

    def num_dram_channels(self) -> int:
        return self._system.chip.dram_banks

    def dram_size_per_channel(self) -> int:
        return self._system.chip.dram_bank_bytes

    def l1_size_per_core(self) -> int:
        return self._system.chip.l1_bytes

    def get_clock_rate_mhz(self) -> int:
        return round(self._system.chip.clock_ghz * 1000)

    def grid_size(self) -> CoreCoord:
        """Of all cores: Tensix, DRAM, Ethernet and PCIe."""
        return CoreCoord(*self._system.chip.noc_grid)

    def logical_grid_size(self) -> CoreCoord:
        """Of the Tensix cores, those that dispatch among them."""
        return CoreCoord(*self._system.chip.tensix_grid)

    def worker_cores(self) -> CoreRangeSet:
        x, y = self._worker_grid()
        return CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(x - 1, y - 1))])

    def num_worker_cores(self) -> int:
        x, y = self._worker_grid()
        return x * y


_IDS = itertools.count(1)
_NOWHERE = torch.device("meta")  # values of devices that other processes hold: shapes and dtypes only
_A_SHAPE = "a MeshShape such as ttnn.MeshShape(1, 2)"


def _check_core(name: str, core: CoreCoord, first: tuple[int, int], extent: tuple[int, int]) -> None:
    """Refuse a core outside the grid of `extent` (columns, rows) that begins at `first`."""
    checked("MeshDevice", name, core, CoreCoord, "a CoreCoord such as ttnn.CoreCoord(0, 0)")
    inside = all(a <= c < a + n for a, c, n in zip(first, (core.x, core.y), extent, strict=True))
    if not inside:
        last = CoreCoord(first[0] + extent[0] - 1, first[1] + extent[1] - 1)
        raise MeshError(
            f"No core coordinate found at location {core}: {name} lies between {CoreCoord(*first)} and {last}."
        )


class MeshDevice(ChipQueries, DeviceQueues):
    """Made by `open_mesh_device` and `create_submesh`. Any attribute may be set on it."""

    axis_names: Sequence[str]  # what a program calls the axes; it is there once the program has set it

    def __init__(
        self,
        shape: MeshShape,
        device_ids: Sequence[int] = (),
        system: System | None = None,
        *,
        parent: MeshDevice | None = None,
        options: dict[str, object] | None = None,
        holding: Holding = HELD_HERE,
    ) -> None:
        if system is None or not isinstance(shape, MeshShape):
            raise ArgumentError("MeshDevice(): a mesh is opened, with ttnn.open_mesh_device(mesh_shape)")
        self._holding = holding
        self.ranks = holding.ranks  # the processes that hold this mesh together; None: one process does
        self.block = holding.block  # the part of it that this process holds
        self._shape = shape
        self._ids = list(device_ids)
        self._system = system
        self._parent = parent  # keeps the parent alive while the submesh lives
        self._submeshes: list[weakref.ref[MeshDevice]] = []
        self.closed = False
        self.unique_id = next(_IDS)
        self.program_cache: set[object] = set()
        self._program_parts: set[object] = set()  # those of them that are parts of another, and not counted
        self._new_parts: list[object] | None = None  # of the fused op that runs
        self.tell_at_close: list[Callable[[], None]] = []  # of what others have left undone on it
        self.program_buffers: list[object] = []  # memory that programs keep as long as they are cached
        self._program_cache_enabled = True
        self._program_cache_misses_allowed = True
        self.captures = Captures()
        self.options = dict(options or {})
        self.implicit_operands: dict[object, object] = {}  # tensors that ops take without being given them
        memory_map, has_one_queue = memory_map_of(system.chip, self.options), self._queue_count() == 1
        self.memory = Allocator(memory_map, chosen_policy(), holding.is_remote, defers=has_one_queue)
        self.torch_device = _NOWHERE if holding.is_remote else chosen_torch_device()
        self._make_queues(self._worker_grid())

    def __repr__(self) -> str:
        grid = "x".join(map(str, self._shape))
        return f"MeshDevice({grid} grid, {self.get_num_devices()} devices)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise ArgumentError(
            "A MeshDevice cannot be copied or pickled: it is the mesh that this process opened. Hand on the device "
            "itself, or open another with ttnn.open_mesh_device(...) in the process that needs one."
        )

    def __enter__(self) -> MeshDevice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def shape(self) -> MeshShape:
        return self._shape

    @property
    def local_extents(self) -> tuple[int, ...]:
        """The shape of the part that this process holds."""
        return tuple(self._shape) if self.block is None else self.block.shape

    @property
    def system(self) -> System:
        """The machine this mesh was opened on."""
        return self._system

    def lines_along(self, axis: int) -> list[list[int]]:
        """The devices of each row (axis 1) or column (axis 0), in order; of each line in more dimensions."""
        lines: dict[tuple[int, ...], list[int]] = {}
        for coordinate, device_id in zip(self._shape.coordinates(), self._ids, strict=True):
            place = tuple(coordinate)
            lines.setdefault((*place[:axis], *place[axis + 1 :]), []).append(device_id)
        return list(lines.values())

    def id(self) -> int:
        return self.unique_id

    def get_num_devices(self) -> int:
        return len(self._ids)

    @property
    def all_device_ids(self) -> list[int]:
        """Of all processes that hold the mesh, row-major."""
        return list(self._ids)

    def get_device_ids(self) -> list[int]:
        """Of this process's own devices, row-major."""
        if self.block is None:
            return [] if self.is_remote_only() else list(self._ids)
        return [self._ids[self._shape.index(coord)] for coord in self.block.coordinates()]

    def get_device_id(self, coord: MeshCoordinate) -> int:
        device_id = self._device_at("get_device_id", coord)
        if not self._holding.is_local(tuple(coord)):
            raise MeshError(
                f"Device ID requested for MeshCoord {coord} not found. Another process holds that device: ask "
                "mesh.get_view().is_local(coord) first, or for its place in the fabric mesh.get_fabric_node_id(coord)."
            )
        return device_id

    def _device_at(self, where: str, coord: MeshCoordinate) -> int:
        if not self._shape.contains(checked(where, "coord", coord, MeshCoordinate, A_COORDINATE)):
            raise MeshError(f"Device ID requested for MeshCoord {coord} not found. The mesh is {self._shape}.")
        return self._ids[self._shape.index(coord)]

    def is_remote_only(self) -> bool:
        """Whether other processes hold all of its devices: then work for it does nothing here."""
        return self._holding.is_remote

    def check_local(self, doing: str) -> None:
        """Refuse what only a process with devices of this mesh can do, such as reading values."""
        if self.is_remote_only():
            raise MeshError(
                f"{doing}: {self!r} is remote-only in this process: others hold its devices, and what is on them. "
                "Let those do it (`if not mesh.is_remote_only()`), and send what others need to know."
            )

    def get_fabric_node_id(self, coord: MeshCoordinate) -> FabricNodeId:
        mesh, chip = self._system.node_of(self._device_at("get_fabric_node_id", coord))
        return FabricNodeId(MeshId(mesh), chip)

    def get_system_mesh_id(self) -> int:
        return self._system.node_of(self._ids[0])[0]

    def get_view(self) -> MeshDeviceView:
        return MeshDeviceView(self._shape, self._holding)

    def arch(self) -> Arch:
        return self._system.chip.arch

    def compute_with_storage_grid_size(self) -> CoreCoord:
        return CoreCoord(*self._worker_grid())

    @property
    def core_grid(self) -> CoreGrid:
        x, y = self._worker_grid()
        return CoreGrid(x=x, y=y)

    def is_initialized(self) -> bool:
        return self.is_open

    def _worker_grid(self) -> tuple[int, int]:
        """The cores programs may use: dispatch takes a row or a column of some chips."""
        return worker_grid(self._system.chip, self.options)

    def dram_grid_size(self) -> CoreCoord:
        return CoreCoord(*self._system.chip.dram_grid)

    def worker_core_from_logical_core(self, logical_core: CoreCoord) -> CoreCoord:
        chip = self._system.chip
        _check_core("logical_core", logical_core, (0, 0), self._worker_grid())
        x, y = chip.first_worker
        return CoreCoord(logical_core.x + x, logical_core.y + y)

    def logical_core_from_worker_core(self, virtual_core: CoreCoord) -> CoreCoord:
        chip = self._system.chip
        _check_core("virtual_core", virtual_core, chip.first_worker, self._worker_grid())
        x, y = chip.first_worker
        return CoreCoord(virtual_core.x - x, virtual_core.y - y)

    def dram_core_from_logical_core(self, logical_core: CoreCoord) -> CoreCoord:
        """The core of a DRAM bank. The model has one core for each bank, under its logical number."""
        _check_core("logical_core", logical_core, (0, 0), self._system.chip.dram_grid)
        return CoreCoord(logical_core.x, logical_core.y)

    @overload
    def get_optimal_dram_bank_to_logical_worker_assignment(self, noc: NOC) -> list[CoreCoord]: ...
    @overload
    def get_optimal_dram_bank_to_logical_worker_assignment(
        self, noc: NOC, coord: MeshCoordinate
    ) -> dict[int, CoreCoord]: ...
    def get_optimal_dram_bank_to_logical_worker_assignment(
        self, noc: NOC, coord: MeshCoordinate | None = None
    ) -> list[CoreCoord] | dict[int, CoreCoord]:
        """A worker core of its own for each DRAM bank; which one costs nothing here, so they go row by row."""
        checked("get_optimal_dram_bank_to_logical_worker_assignment", "noc", noc, NOC, "a ttnn.NOC")
        banks, columns = self._system.chip.dram_grid[0], self._worker_grid()[0]
        workers = [CoreCoord(bank % columns, bank // columns) for bank in range(banks)]
        if coord is None:
            return workers
        self.get_device_id(coord)
        return dict(enumerate(workers))

    def allocator(self, sub_device_id: SubDeviceId | None = None) -> Allocator:
        """What is allocated where: of the whole chips, or of a loaded sub-device's part of L1."""
        self.check_local("allocator")
        return self.memory if sub_device_id is None else self.memory.local(sub_device_id)

    def lowest_occupied_compute_l1_address(self, sub_device_ids: Sequence[SubDeviceId] = ()) -> int | None:
        """L1 is free below it; None where no tensor or buffer lies in L1."""
        return self.allocator().lowest_occupied_compute_l1_address(sub_device_ids)

    def sfpu_eps(self) -> float:
        return self._system.chip.sfpu_eps

    def sfpu_nan(self) -> float:
        return self._system.chip.sfpu_nan

    def sfpu_inf(self) -> float:
        return self._system.chip.sfpu_inf

    def create_submesh(self, submesh_shape: MeshShape, offset: MeshCoordinate | None = None) -> MeshDevice:
        """A mesh over a rectangle of this one; its coordinates start at 0 again.

        Processes that hold none of it get a mesh too, which is remote-only.
        """
        self.check_open("create_submesh")
        checked("create_submesh", "submesh_shape", submesh_shape, MeshShape, _A_SHAPE)
        if offset is not None:
            checked("create_submesh", "offset", offset, MeshCoordinate, A_COORDINATE)
        self._check_submesh(submesh_shape, offset)
        start = MeshCoordinate([0] * submesh_shape.dims()) if offset is None else offset
        ids = [
            self._ids[self._shape.index(MeshCoordinate([a + b for a, b in zip(start, piece, strict=True)]))]
            for piece in submesh_shape.coordinates()
        ]
        holding = part(self._holding, tuple(start), tuple(submesh_shape))
        submesh = MeshDevice(submesh_shape, ids, self._system, parent=self, options=self.options, holding=holding)
        if submesh.ranks is not None:
            submesh.ranks.calls.note(SharedCall(f"create_submesh({submesh_shape}, {start})"))
        self._submeshes.append(weakref.ref(submesh))
        return submesh

    def _check_submesh(self, shape: MeshShape, offset: MeshCoordinate | None) -> None:
        if any(n <= 0 for n in shape):
            raise MeshError(f"Invalid submesh shape: ({shape}). All dimensions must be positive.")
        if shape.dims() != self._shape.dims():
            raise MeshError(
                f"Submesh shape {shape} and mesh device shape {self._shape} must have the same number of dimensions."
            )
        if offset is not None and offset.dims() != shape.dims():
            raise MeshError(f"Submesh shape {shape} and offset {offset} must have the same number of dimensions.")
        start = [0] * shape.dims() if offset is None else list(offset)
        if any(a + n > m for a, n, m in zip(start, shape, self._shape, strict=True)):
            raise MeshError(
                f"Submesh shape {shape} and offset {MeshCoordinate(start)} does not fit within parent mesh "
                f"({self._shape})."
            )

    def create_submeshes(self, submesh_shape: MeshShape) -> list[MeshDevice]:
        """Tile this mesh with submeshes, row-major over the tile positions."""
        self.check_open("create_submeshes")
        checked("create_submeshes", "submesh_shape", submesh_shape, MeshShape, _A_SHAPE)
        self._check_submesh(submesh_shape, None)
        for dim, (n, m) in enumerate(zip(submesh_shape, self._shape, strict=True)):
            if m % n:
                raise MeshError(
                    f"Shape {self._shape} is not divisible by submesh shape {submesh_shape} along dimension {dim}"
                )
        tiles = MeshShape([m // n for n, m in zip(submesh_shape, self._shape, strict=True)])
        return [
            self.create_submesh(
                submesh_shape, MeshCoordinate([t * n for t, n in zip(tile, submesh_shape, strict=True)])
            )
            for tile in tiles.coordinates()
        ]

    def get_parent_mesh(self) -> MeshDevice | None:
        return self._parent

    def is_parent_mesh(self) -> bool:
        return self._parent is None

    def get_submeshes(self) -> list[MeshDevice]:
        alive = (ref() for ref in self._submeshes)
        return [submesh for submesh in alive if submesh is not None and not submesh.closed]

    def reshape(self, new_shape: MeshShape) -> None:
        """Give the same devices another shape. Tensors made before keep the shape they were made under."""
        self.check_open("reshape")
        checked("reshape", "new_shape", new_shape, MeshShape, _A_SHAPE)
        if self.ranks is not None and new_shape != self._shape:
            raise NotModelled(
                f"reshape: several processes hold {self!r}, each a block of it, and {new_shape} would not keep the "
                f"blocks. Open the mesh in the shape you need, with a descriptor that says so."
            )
        self._ids = self._system.reshape_devices(self._ids, self._shape, new_shape)
        self._shape = new_shape
        epoch.invalidate()

    def enable_program_cache(self) -> None:
        self._program_cache_enabled = True

    def clear_program_cache(self) -> None:
        self.program_cache.clear()
        self._program_parts.clear()
        self.program_buffers.clear()
        epoch.invalidate()

    def disable_and_clear_program_cache(self) -> None:
        self.clear_program_cache()
        self._program_cache_enabled = False

    def set_program_cache_misses_allowed(self, allowed: bool) -> None:
        self._program_cache_misses_allowed = allowed

    def num_program_cache_entries(self) -> int:
        return len(self.program_cache - self._program_parts)

    @contextmanager
    def one_program(self, name: str) -> Iterator[None]:
        """What the block compiles is one program, that of a fused op; within another such block, a part of that."""
        if self._new_parts is not None:
            yield
            return
        self._new_parts = []
        try:
            yield
        finally:
            parts, self._new_parts = self._new_parts, None
            if parts:
                self._program_parts.update(parts)
                self.program_cache.add((name, len(self.program_cache)))

    def note_program(self, key: object) -> None:
        """Count a distinct op configuration, as TT-NN's program cache would."""
        if key in self.program_cache or not self._program_cache_enabled:
            return
        if not self._program_cache_misses_allowed:
            raise MeshError(f"Device operation {key!r}: program cache miss occurred, but cache misses are forbidden")
        self.program_cache.add(key)
        if self._new_parts is not None:
            self._new_parts.append(key)

    @property
    def is_open(self) -> bool:
        return not self.closed

    def check_open(self, doing: str) -> None:
        if self.closed:
            raise MeshError(f"{doing}: {self!r} is closed. Open it again with ttnn.open_mesh_device({self._shape}).")

    def tell_ranks(self, call: str, addresses: tuple[int, ...] = ()) -> None:
        """Of a call that all processes make alike which hold this mesh together; where one does, nobody is told."""
        if self.ranks is not None:
            self.ranks.calls.note(SharedCall(call + self.told_place), addresses)

    @property
    def told_place(self) -> str:
        """Which mesh it is, to the other processes of its parent: one call on two submeshes is two calls."""
        return (
            ""
            if self._parent is None
            else f" on the {'x'.join(map(str, self._shape))} submesh of device {self._ids[0]}"
        )

    def close(self) -> None:
        """Close this mesh and its submeshes; closing twice is harmless."""
        if not self.closed:
            self._check_queues_apart()
        was_open = not self.closed
        for submesh in self.get_submeshes():
            submesh.close()
        self.closed = True
        epoch.invalidate()
        self.memory.close()
        if self._parent is None:
            release_results()
        if was_open and self.ranks is not None and self._parent is None:
            end_calls(self.ranks)
        if was_open and sys.exc_info()[0] is None:  # otherwise there is worse to tell
            self._tell_what_is_left()

    def _tell_what_is_left(self) -> None:
        for recording in self.captures.recordings.values():
            warn_or_raise(
                f"close_mesh_device: the trace capture that began at {recording.site} was never ended: nothing of it "
                "has run, and nothing can be replayed. Call ttnn.end_trace_capture(mesh_device, trace_id, cq_id).",
            )
        for tell in self.tell_at_close:
            tell()


A_MESH_DEVICE = "a MeshDevice: open one with ttnn.open_mesh_device(ttnn.MeshShape(rows, cols))"


def checked_open(where: str, name: str, device: object) -> MeshDevice:
    """The argument `name`, which is a mesh device that is open."""
    mesh = checked(where, name, device, MeshDevice, A_MESH_DEVICE)
    mesh.check_open(where)
    return mesh
