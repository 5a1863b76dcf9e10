"""Mesh API over single cards, whatever drives each of them: open, buffers, workloads, all_reduce, all_gather.

    with open_mesh_device((1, 2)) as mesh:
        x = create_mesh_buffer(mesh, layout="sharded", global_shape=(64, 64), shard_shape=(64, 32))
        x.write(values)
        enqueue_mesh_workload(mesh, {MeshCoordinateRange(mesh.shape): (program, [x.address])})
        total = all_reduce(x, mode="host")

The five functions of the blackhole-py plan. Cards come from `drivers`, a function from an index to an open driver;
without one they are virtual. See `docs/drivers.md` for what a driver is, and what happens when one fails.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from softmesh.arguments import checked, checked_int, checked_ints, refused, reject_unknown_keywords
from softmesh.collectives import mode_collectives
from softmesh.drivers.protocol import MemoryKind, ProgramSpec
from softmesh.drivers.rack import virtual_rack
from softmesh.errors import MeshError
from softmesh.hardware.enums import BufferType
from softmesh.mesh import MeshShape
from softmesh.metal import card_collectives
from softmesh.metal.card import OpenCard, check_alike, checked_ids, close_all, open_cards
from softmesh.metal.card_buffer import BufferLayout, CardMeshBuffer, LockstepMemory, placed
from softmesh.metal.card_mesh import CardMesh, Timeouts
from softmesh.metal.card_workload import Launched, Submitted, run_on_mesh, submitted, works_by_card
from softmesh.runtime.buffers.buffer_config import (
    DeviceLocalBufferConfig,
    ReplicatedBufferConfig,
    Shape2D,
    ShardedBufferConfig,
)
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor

_A_MESH = "a mesh of cards: open one with softmesh.metal.open_mesh_device(shape)"
_A_BUFFER = "a buffer of softmesh.metal.create_mesh_buffer"


@reject_unknown_keywords
def open_mesh_device(
    shape: MeshShape | Sequence[int] | Sequence[str],
    device_ids: MeshShape | Sequence[int] | None = None,
    *,
    drivers: OpenCard | None = None,
    timeouts: Timeouts | None = None,
    dram_banks: int | None = None,
) -> CardMesh:
    """Open the cards one after another and place them row-major; close it, or use it in a `with` block.

    `device_ids` places the cards that the bus calls so, in that order. Without them, cards 0 to n - 1 are placed in
    the order of their serials, so that ranks stay with the cards when the bus numbers them anew. `dram_banks` uses
    only so many banks of each card: the way to mix boards with 7 and with 8. The two may also come the other way
    round, cards first: `open_mesh_device(paths_or_ids, shape)`, with paths such as /dev/tenstorrent/0.
    """
    cards_first = _comes_cards_first(shape, device_ids)
    extents, numbers = (device_ids, _ids_of(shape)) if cards_first else (shape, device_ids)
    mesh_shape = _checked_shape(extents)
    ids = checked_ids(numbers, mesh_shape)  # type: ignore[arg-type]
    cards = open_cards(mesh_shape, ids, drivers or virtual_rack(ids), by_serial=device_ids is None)
    try:
        check_alike(cards, dram_banks)
        if dram_banks is not None:
            _check_banks(checked_int("open_mesh_device", "dram_banks", dram_banks), cards)
        return CardMesh(mesh_shape, cards, timeouts or Timeouts(), dram_banks)
    except BaseException:
        close_all([card.driver for card in cards])
        raise


@reject_unknown_keywords
def create_mesh_buffer(
    mesh: CardMesh | MeshDevice,
    layout: BufferLayout = "replicated",
    global_shape: Sequence[int] = (),
    shard_shape: Sequence[int] | None = None,
    dtype: DataType = DataType.BFLOAT16,
    *,
    tensor_layout: Layout = Layout.TILE,
    mem: MemoryKind = "dram",
) -> CardMeshBuffer | MeshBuffer:
    """Memory at one address of all cards, whole on each of them or in shards.

    A zero in `shard_shape` replicates along that dim; the rest is dealt row-major. Values are padded and tilised
    here, on the way to the cards. On a mesh that `ttnn` opened it is a `ttnn.MeshBuffer`, with pages of the tensor.
    """
    where = "create_mesh_buffer"
    whole = tuple(checked_ints(where, "global_shape", global_shape))
    shard = None if shard_shape is None else tuple(checked_ints(where, "shard_shape", shard_shape))
    if not whole or min(whole) < 1 or min(shard or (0,)) < 0:
        raise refused(where, f"global_shape must be positive, got {list(whole)} in shards of {shard_shape}")
    if isinstance(mesh, MeshDevice):
        return _buffer_of_ttnn(mesh, layout, whole, shard, dtype, tensor_layout, mem)
    checked(where, "mesh", mesh, CardMesh, _A_MESH).check_usable(where)
    local, blocks = placed(mesh, layout, whole, shard)
    spec = TensorSpec(local, dtype, tensor_layout)
    label = f"{layout} {list(local)} {dtype}"
    memory = LockstepMemory(mesh, spec.num_pages(), spec.page_size(), mem, label)
    return CardMeshBuffer(memory, layout, whole, spec, blocks)


def _buffer_of_ttnn(
    mesh: MeshDevice,
    layout: BufferLayout,
    whole: tuple[int, ...],
    shard: tuple[int, ...] | None,
    dtype: DataType,
    tensor_layout: Layout,
    mem: MemoryKind,
) -> MeshBuffer:
    where = "create_mesh_buffer"
    is_sharded = layout == "sharded"
    if is_sharded and (len(whole) != 2 or shard is None or len(shard) != 2):
        raise refused(where, f"a sharded buffer has two dims and a shard_shape of two, got {list(whole)} and {shard}")
    extents = whole if shard is None else tuple(n or of for n, of in zip(shard, whole, strict=True))
    spec = TensorSpec(extents if is_sharded else whole, dtype, tensor_layout)
    kind = BufferType.L1 if mem == "l1" else BufferType.DRAM
    local = DeviceLocalBufferConfig(page_size=spec.page_size(), buffer_type=kind)
    if not is_sharded:
        return MeshBuffer.create(ReplicatedBufferConfig(spec.bytes()), local, mesh)
    pieces = math.prod(-(-of // n) for of, n in zip(whole, extents, strict=True))
    shape, cut = Shape2D(*whole), Shape2D(*(shard or whole))
    return MeshBuffer.create(ShardedBufferConfig(spec.bytes() * pieces, shape, cut), local, mesh)


@reject_unknown_keywords
def enqueue_mesh_workload(mesh: CardMesh | MeshDevice, workload: Any, blocking: bool = True) -> Submitted | Launched:
    """Submit `{range: program}` or `{range: (program, args)}`, or a MeshWorkload, to all cards that the ranges cover.

    Programs are compiled when they are first used. What is returned can be waited for; with `blocking` it is done. On
    a mesh that `ttnn` opened it is launched on the first queue; programs may be those of `CreateProgram` there, too.
    """
    if isinstance(mesh, MeshDevice):
        return run_on_mesh(mesh, workload, blocking)
    checked("enqueue_mesh_workload", "mesh", mesh, CardMesh, _A_MESH)
    work = submitted(mesh, "enqueue_mesh_workload", works_by_card(mesh, workload))
    if blocking:
        work.wait()
    return work


@reject_unknown_keywords
def all_reduce(tensor: Any, mode: str = "host", *, program: ProgramSpec | None = None) -> Any:
    """The sum of all cards' shards, on every card, in the memory of the shards.

    Added in fp32 in the order of the ranks and rounded once, so the same bits on every run and in both modes:
    "host" reads, adds and writes here; "fabric" passes shards around the ring of cables, and each card adds by
    `program` (a Python kernel unless given). A TT-NN tensor goes to `softmesh.collectives.all_reduce`.
    """
    if isinstance(tensor, Tensor):
        return mode_collectives.all_reduce(tensor, mode)
    buffer = checked("all_reduce", "tensor", tensor, CardMeshBuffer, _A_BUFFER)
    if card_collectives.checked_mode("all_reduce", mode) == "host":
        return card_collectives.summed_on_host(buffer)
    return card_collectives.summed_on_ring(buffer, program)


def all_reduce_host(tensor: Any) -> Any:
    """`all_reduce` by way of the host: shards are read, added here and written to all cards."""
    return all_reduce(tensor, mode="host")


def all_gather_host(tensor: Any, dim: int = 0) -> Any:
    """`all_gather` by way of the host: shards are read, put side by side here and written to all cards."""
    return all_gather(tensor, mode="host", dim=dim)


@reject_unknown_keywords
def all_gather(tensor: Any, mode: str = "host", dim: int = 0, *, program: ProgramSpec | None = None) -> Any:
    """All cards' shards side by side along `dim`, in the order of the ranks, as a new buffer that every card has whole.

    A TT-NN tensor goes to `softmesh.collectives.all_gather`.
    """
    if isinstance(tensor, Tensor):
        return mode_collectives.all_gather(tensor, dim, mode)
    buffer = checked("all_gather", "tensor", tensor, CardMeshBuffer, _A_BUFFER)
    way = card_collectives.checked_mode("all_gather", mode)
    at = _checked_dim(dim, len(buffer.shard_shape))
    extents = list(buffer.shard_shape)
    extents[at] *= len(buffer.holders)
    buffer.memory.check_alive("all_gather")
    room = create_mesh_buffer(
        buffer.mesh,
        "replicated",
        extents,
        dtype=buffer.spec.dtype,
        tensor_layout=buffer.spec.layout,
        mem=buffer.mem,
    )
    assert isinstance(room, CardMeshBuffer)
    if way == "host":
        return card_collectives.gathered_on_host(buffer, at, room)
    return card_collectives.gathered_on_ring(buffer, at, room, program)


def _comes_cards_first(first: Any, second: Any) -> bool:
    """Whether it is `(paths_or_ids, shape)`: paths, a shape that says so, or numbers that fit only this way."""
    if second is None or isinstance(first, MeshShape):
        return False
    if isinstance(second, MeshShape) or any(isinstance(one, str) for one in first):
        return True
    numbers = [*first, *second]
    if not all(isinstance(number, int) for number in numbers):
        return False
    return 0 in first or (math.prod(first) != len(second) and math.prod(second) == len(first))


def _ids_of(paths_or_ids: Any) -> list[int]:
    found = []
    for one in paths_or_ids:
        number = re.search(r"(\d+)$", one) if isinstance(one, str) else None
        if isinstance(one, str) and number is None:
            raise MeshError(f"open_mesh_device: {one[:80]!r} names no card: write a path such as /dev/tenstorrent/0")
        found.append(int(number[1]) if number is not None else checked_int("open_mesh_device", "paths_or_ids", one))
    return found


def _checked_shape(shape: object) -> MeshShape:
    given = shape if isinstance(shape, MeshShape) else MeshShape(checked_ints("open_mesh_device", "shape", shape))
    if given.mesh_size() == 0:
        raise MeshError(f"open_mesh_device: a mesh of {given} has no cards")
    return given


def _check_banks(banks: int, cards: Sequence[Any]) -> None:
    fewest = min(card.info.dram_banks for card in cards)
    if not 1 <= banks <= fewest:
        raise MeshError(f"open_mesh_device: dram_banks={banks}, and a card has {fewest}")


def _checked_dim(dim: object, rank: int) -> int:
    at = checked_int("all_gather", "dim", dim)
    if not -rank <= at < rank:
        raise MeshError(f"all_gather: dim={at} must lie between {-rank} and {rank - 1}")
    return at % rank
