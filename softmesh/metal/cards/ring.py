"""The ring of cables through all cards of a mesh, each of them confirmed by both of its ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from softmesh.drivers.protocol import Fabric, Peers
from softmesh.errors import MeshError
from softmesh.mesh import MeshShape, ring_order
from softmesh.metal.cards.mesh import CardMesh
from softmesh.metal.cards.seats import Card

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
