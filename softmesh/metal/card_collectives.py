"""all_reduce and all_gather over the cards of a mesh: through the host, or around the ring of cables.

Every card that holds a shard takes part with it, in the order of the ranks; so a replicated buffer, into which each
card may have written its own values, takes part once for each card.

On the ring each card computes by a program. A card's own shard lies where it was, those of the others one after
another in `scratch`, in the order of their ranks. A card that runs other than Python kernels is given a program of
its own with the same arguments:

    both      own, scratch and out addresses; own rank, number of ranks; pages of a shard, page size; DRAM banks
              that pages are dealt to (0: they are in L1)
    sum       then columns and holders: of each row of so many ranks, the first so many are added
    arrange   then run: so many pages of each rank in turn
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import torch

from softmesh.drivers.protocol import Event, Fabric, MemoryKind, Peers, ProgramSpec
from softmesh.drivers.python_kernels import Core, Pages
from softmesh.drivers.worker_thread import Deadline
from softmesh.errors import ArgumentError, MeshError
from softmesh.mesh import MeshShape, ring_order
from softmesh.metal.card import Card
from softmesh.metal.card_buffer import CardMeshBuffer, LockstepMemory
from softmesh.metal.card_mesh import CardMesh
from softmesh.metal.card_workload import Work, submitted
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import FACTS, DataType, Layout
from softmesh.tensor.page_bytes import from_pages, to_pages
from softmesh.tensor.spec import TensorSpec, make_spec

# The ring of cables through all cards of a mesh, each cable confirmed by both of its ends.


_Links = Mapping[tuple[Card, Card], tuple[int, int]]


class Link(NamedTuple):
    """From a card to the next of the ring: out of this port, into that port of the next."""

    card: Card
    out_port: int
    next_card: Card
    in_port: int


def find_ring(mesh: CardMesh) -> list[Link]:
    """In the order of the ranks, or else around the mesh as a grid; an error names the cables that are missing."""
    if mesh.num_devices < 2:
        return []
    links, doubts = _confirmed(mesh, _peers(mesh))
    broken = []
    for order in _orders(mesh.shape):
        cards = [mesh.cards[rank] for rank in order]
        hops = list(zip(cards, [*cards[1:], cards[0]], strict=True))
        missing = [hop for hop in hops if hop not in links]
        if not missing:
            return [Link(card, links[card, far][0], far, links[card, far][1]) for card, far in hops]
        broken.append(missing)
    raise MeshError(_no_ring(min(broken, key=len), doubts))


def _peers(mesh: CardMesh) -> dict[Card, Peers]:
    without = [card for card in mesh.cards if not isinstance(card.driver, Fabric)]
    if without:
        raise MeshError(
            f"mode='fabric': {without[0]} has no way to its neighbours: its driver ({without[0].info.kind}) knows no "
            "send and recv. Use mode='host'."
        )
    jobs = {card: card.driver.peers for card in mesh.cards if isinstance(card.driver, Fabric)}
    return mesh.each("asking for peers", jobs, mesh.timeouts.transfer)


def _confirmed(mesh: CardMesh, peers: Mapping[Card, Peers]) -> tuple[_Links, list[str]]:
    """The links that both ends tell of, and what is wrong with the others. Of parallel ones, the lowest port."""
    by_serial = {card.info.serial: card for card in mesh.cards}
    links: dict[tuple[Card, Card], tuple[int, int]] = {}
    doubts = []
    for card in mesh.cards:
        for port, (serial, far_port) in sorted(peers[card].items()):
            far = by_serial.get(serial)
            if far is None:
                continue
            answer = peers[far].get(far_port)
            if answer == (card.info.serial, port):
                links.setdefault((card, far), (port, far_port))
            else:
                heard = "nothing" if answer is None else f"port {answer[1]} of serial {answer[0]}"
                doubts.append(
                    f"{card} says that its port {port} is cabled to port {far_port} of {far}, which says {heard}"
                )
    return links, doubts


def _orders(shape: MeshShape) -> list[Sequence[int]]:
    orders: list[Sequence[int]] = [range(shape.mesh_size())]
    with suppress(MeshError):  # a shape without a ring of neighbours
        orders.append([shape.index(coordinate) for coordinate in ring_order(shape)])
    return orders


def _no_ring(missing: Sequence[tuple[Card, Card]], doubts: Sequence[str]) -> str:
    hops = "; ".join(f"no link from {card} to {far}" for card, far in missing)
    told = "".join(f"\n  {doubt}" for doubt in doubts)
    return (
        f"mode='fabric': the cards make no ring: {hops}.{told}\nCable them, open them in the order of their cables "
        "with device_ids=[...], or use mode='host'."
    )


# Kernels that cards run in collectives over the fabric, in Python for the software cards.


COMMON_ARGS = 8


class _Shards:
    """The pages of all ranks, as one card sees them."""

    def __init__(self, core: Core) -> None:
        own, scratch, out, self.rank, self.ranks, self.pages, page_size, banks = core.args[:COMMON_ARGS]
        mem: MemoryKind = "dram" if banks else "l1"
        self._own, self._scratch, self.out = (
            core.pages(address, page_size, mem=mem, banks=banks or None) for address in (own, scratch, out)
        )

    def page(self, rank: int, page: int) -> bytearray:
        source: Pages = self._own if rank == self.rank else self._scratch
        return source[page if rank == self.rank else rank * self.pages + page]


def total(addends: list[torch.Tensor], dtype: DataType) -> torch.Tensor:
    """Added in the order given, floats in fp32 and whole numbers exactly; rounded once."""
    wide = torch.float32 if FACTS[dtype].is_float else torch.int64
    added = addends[0].to(wide)
    for addend in addends[1:]:
        added = added + addend.to(wide)
    return round_to(added, dtype)


@lru_cache(maxsize=64)
def sum_program(page: TensorSpec) -> ProgramSpec:
    """Adds up the shards page by page; a page by itself looks like `page`."""

    def add_pages(core: Core) -> None:
        shards = _Shards(core)
        columns, holders = core.args[COMMON_ARGS:]
        ranks = [rank for rank in range(shards.ranks) if rank % columns < holders]
        for number in range(core.index, shards.pages, core.count):
            addends = [_values(shards.page(rank, number), page) for rank in ranks]
            shards.out[number] = _bytes(total(addends, page.dtype), page)

    return ProgramSpec({"compute": add_pages}, name="sum of shards")


@lru_cache(maxsize=1)
def arrange_program() -> ProgramSpec:
    """Lays shards side by side: `run` pages of each in turn."""

    def arrange_pages(core: Core) -> None:
        shards = _Shards(core)
        (run,) = core.args[COMMON_ARGS:]
        for number in range(core.index, shards.ranks * shards.pages, core.count):
            turn, place = divmod(number, run)
            row, rank = divmod(turn, shards.ranks)
            shards.out[number] = shards.page(rank, row * run + place)

    return ProgramSpec({"writer": arrange_pages}, name="shards side by side")


def page_of(spec: TensorSpec) -> TensorSpec:
    """What one page of a tensor is by itself: a tile, or a row."""
    shape = tuple(spec.tile.tile_shape) if spec.layout is Layout.TILE else (1, tuple(spec.padded_shape)[-1])
    return make_spec(shape, spec.dtype, spec.layout, spec.memory_config, spec.tile)


def _values(data: bytearray, page: TensorSpec) -> torch.Tensor:
    return from_pages(torch.frombuffer(data, dtype=torch.uint8).reshape(1, -1), page)


def _bytes(values: torch.Tensor, page: TensorSpec) -> bytes:
    return bytes(to_pages(values, page).reshape(-1).numpy().data)


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
    scratch = LockstepMemory(mesh, ranks * memory.pages, memory.page_size, memory.mem, "shards of other cards")
    for step in range(len(ring) - 1):
        posts = {link.card: _posting(ring, place, step, memory, scratch) for place, link in enumerate(ring)}
        what, seconds = f"step {step + 1} around the ring", mesh.timeouts.transfer
        events = mesh.each_or_fail(what, posts, seconds)
        mesh.each_or_fail(what, {card: _waiting(card, pair, seconds) for card, pair in events.items()}, seconds)
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
