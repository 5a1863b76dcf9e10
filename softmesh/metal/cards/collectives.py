"""all_reduce and all_gather over the cards of a mesh: through the host, or around the ring of cables.

Every card that holds a shard takes part with it, in the order of the ranks; so a replicated buffer, into which each
card may have written its own values, takes part once for each card.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from softmesh.drivers.protocol import Event, Fabric, ProgramSpec
from softmesh.drivers.worker import Deadline
from softmesh.errors import ArgumentError, MeshError
from softmesh.metal.cards.buffer import CardMeshBuffer
from softmesh.metal.cards.memory import LockstepMemory
from softmesh.metal.cards.programs import arrange_program, page_of, sum_program, total
from softmesh.metal.cards.ring import Link, find_ring
from softmesh.metal.cards.seats import Card
from softmesh.metal.cards.workload import Work, submitted
from softmesh.tensor.dtype import Layout


def summed_on_host(buffer: CardMeshBuffer) -> CardMeshBuffer:
    shards = buffer.take(buffer.holders)
    result = total([shards[card] for card in buffer.holders], buffer.spec.dtype)
    buffer.put(dict.fromkeys(buffer.mesh.cards, result))
    return buffer.as_replicated()


def gathered_on_host(buffer: CardMeshBuffer, dim: int, room: CardMeshBuffer) -> CardMeshBuffer:
    shards = buffer.take(buffer.holders)
    whole = torch.cat([shards[card] for card in buffer.holders], dim)
    room.put(dict.fromkeys(buffer.mesh.cards, whole))
    return room


def summed_on_ring(buffer: CardMeshBuffer, program: ProgramSpec | None) -> CardMeshBuffer:
    """Every shard goes to every card, which adds them in the order of the ranks: the same bits as on the host."""
    scratch = _passed_around(buffer, find_ring(buffer.mesh))
    own = sum_program(page_of(buffer.spec))
    adding = Work(program) if program else _on_pages(own, buffer, buffer.num_pages)
    _compute(buffer, scratch, buffer.memory, adding, _holders(buffer))
    scratch.free()
    return buffer.as_replicated()


def gathered_on_ring(
    buffer: CardMeshBuffer, dim: int, room: CardMeshBuffer, program: ProgramSpec | None
) -> CardMeshBuffer:
    run = _pages_in_turn(buffer, dim)
    scratch = _passed_around(buffer, find_ring(buffer.mesh))
    arranging = Work(program) if program else _on_pages(arrange_program(), buffer, room.num_pages)
    _compute(buffer, scratch, room.memory, arranging, [run])
    scratch.free()
    return room


def _holders(buffer: CardMeshBuffer) -> list[int]:
    """Which ranks hold a shard: of each row of so many ranks, the first so many."""
    ranks = [card.rank for card in buffer.holders]
    in_one_row = ranks == list(range(len(ranks)))
    columns = buffer.mesh.num_devices if in_one_row else tuple(buffer.mesh.shape)[-1]
    return [columns, sum(rank < columns for rank in ranks)]


def _pages_in_turn(buffer: CardMeshBuffer, dim: int) -> int:
    """How many pages of one shard stand together where shards are laid side by side along `dim`."""
    spec, mesh = buffer.spec, buffer.mesh
    if len(buffer.holders) < mesh.num_devices:
        raise MeshError(
            f"all_gather(mode='fabric'): only {len(buffer.holders)} of {mesh.num_devices} cards hold a shard; use "
            "mode='host'"
        )
    shape = (1,) * (2 - len(spec.shape)) + tuple(spec.shape)
    at = dim + len(shape) - len(spec.shape)
    page = (*(1,) * (len(shape) - 2), *(spec.page_shape() if spec.layout is Layout.TILE else (1, shape[-1])))
    if shape[at] % page[at] or (spec.layout is not Layout.TILE and at == len(shape) - 1):
        raise MeshError(
            f"all_gather(mode='fabric') moves whole pages, and shards of {list(spec.shape)} meet inside one along dim "
            f"{dim}: make that extent a multiple of the tile, or use mode='host'"
        )
    pages = [-(-n // m) for n, m in zip(shape, page, strict=True)]
    return math.prod(pages[at:])


def _passed_around(buffer: CardMeshBuffer, ring: Sequence[Link]) -> LockstepMemory:
    """Memory in which every card finds the shards of all others, by rank; n - 1 steps around the ring."""
    mesh, memory = buffer.mesh, buffer.memory
    ranks = mesh.num_devices
    scratch = LockstepMemory(
        mesh, ranks * memory.pages, memory.page_size, memory.mem, "shards of other cards"
    )
    for step in range(len(ring) - 1):
        posts = {link.card: _posting(ring, place, step, memory, scratch) for place, link in enumerate(ring)}
        what, seconds = f"step {step + 1} around the ring", mesh.timeouts.transfer
        events = mesh.each_or_break(what, posts, seconds)
        mesh.each_or_break(
            what, {card: _waiting(card, pair, seconds) for card, pair in events.items()}, seconds
        )
    return scratch


def _posting(
    ring: Sequence[Link], place: int, step: int, own: LockstepMemory, scratch: LockstepMemory
) -> Callable[[], tuple[Event, Event]]:
    """Receive from the card before, then send to the one behind: a receive is the credit of the other's send."""
    link, before = ring[place], ring[place - 1]
    driver, size = link.card.driver, own.size
    assert isinstance(driver, Fabric)
    sent, received = ring[place - step].card, ring[place - 1 - step].card
    source = own.handles[link.card] if step == 0 else scratch.handles[link.card]
    offset = 0 if step == 0 else sent.rank * size

    def post() -> tuple[Event, Event]:
        arriving = driver.recv(before.in_port, scratch.handles[link.card], received.rank * size, size)
        return arriving, driver.send(link.out_port, source, offset, size)

    return post


def _waiting(card: Card, events: Sequence[Event], seconds: float) -> Callable[[], None]:
    def wait() -> None:
        deadline = Deadline(seconds)
        for event in events:
            card.driver.wait(event, deadline.left())

    return wait


def _on_pages(program: ProgramSpec, buffer: CardMeshBuffer, pages: int) -> Work:
    """On as many cores as there are pages for."""
    return Work(program, cores=min(pages, buffer.mesh.cards[0].info.num_cores))


def _compute(
    buffer: CardMeshBuffer,
    scratch: LockstepMemory,
    out: LockstepMemory,
    work: Work,
    more: Sequence[int],
) -> None:
    """Run the program on every card; it knows its card by the rank among its arguments."""
    mesh, own = buffer.mesh, buffer.memory
    banks = mesh.dram_banks if own.mem == "dram" else 0
    addresses = [own.address, scratch.address, out.address]
    shape = [mesh.num_devices, own.pages, own.page_size, banks]
    works = {card: work._replace(args=[*addresses, card.rank, *shape, *more]) for card in mesh.cards}
    submitted(mesh, work.program.name, works).wait()


def checked_mode(where: str, mode: object) -> str:
    if mode not in ("host", "fabric"):
        raise ArgumentError(
            f"{where}(): incompatible function arguments: mode must be 'host' or 'fabric', got {mode!r}."
        )
    return str(mode)
