"""Many equal meshes on a machine that is known to be a grid: cut the grid into straight tiles.

Thousands of chips have more tiles than can be listed, and these few are what a reader would draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from softmesh.fabric.matching.backtracking import Steps, StepsSpent
from softmesh.fabric.matching.embedding import Embedding, Piece
from softmesh.fabric.matching.partition import first_partition, trial_cost
from softmesh.fabric.matching.tiles import Listing, Tile, TileBook
from softmesh.fabric.matching.wiring import Wiring, union
from softmesh.fabric.matching.wishes import Wish

TRIALS_PER_MESH = 6


class StraightBook(TileBook):
    """Lists only the tiles of one regular cut, with the meshes' rows along those of the grid, or across."""

    def __init__(self, wiring: Wiring, across: bool) -> None:
        super().__init__(wiring)
        self._across = across

    def _made(self, piece: Piece, named: tuple[int, ...]) -> Listing:
        tiles = [Tile(union(one), one, openness=0) for one in self._cut(piece) if self._holds(piece, one)]
        return Listing(tiles, is_complete=False)

    def _cut(self, piece: Piece) -> Iterator[Embedding]:
        height, width = self.wiring.machine.grid or (0, 0)
        down, right = (width, 1) if not self._across else (1, width)
        rows, columns = piece.mesh.shape
        deep, wide = (columns, rows) if self._across else (rows, columns)
        for top in range(0, height - deep + 1, deep):
            for left in range(0, width - wide + 1, wide):
                first = top * width + left
                ids = [
                    first + row * down + column * right for row in range(rows) for column in range(columns)
                ]
                if all(id in self.wiring.index for id in ids):
                    yield [self.wiring.index[id] for id in ids]

    def _holds(self, piece: Piece, embedding: Embedding) -> bool:
        """Tried like any other answer: links (of rings too), pins and hosts decide."""
        joined, mesh = self.wiring.joined(piece.links), piece.mesh
        homes = {(mesh.host_rank(node), self.wiring.host_of[chip]) for node, chip in enumerate(embedding)}
        return (
            all(joined[embedding[one]] >> embedding[other] & 1 for one, other, _ in mesh.edges())
            and all(chips >> embedding[node] & 1 for node, chips in piece.pins)
            and all(piece.hosts[mesh.host_rank(node)] >> chip & 1 for node, chip in enumerate(embedding))
            and len(homes) == mesh.host_count
            and (not piece.apart or len({home for _, home in homes}) == mesh.host_count)
        )


def laid_straight(
    wiring: Wiring, pieces: Sequence[Sequence[Piece]], wanted: Sequence[Wish]
) -> list[Embedding] | None:
    """An embedding for each mesh, where a regular cut has one that is quickly found; None says nothing."""
    shapes = {one.mesh.shape for alternatives in pieces for one in alternatives}
    if wiring.machine.grid is None or len(shapes) != 1:
        return None
    ((rows, columns),) = shapes
    for across in (False, True) if rows != columns else (False,):
        steps = Steps(TRIALS_PER_MESH * len(pieces) * trial_cost(wiring))
        try:
            return first_partition(StraightBook(wiring, across), pieces, wanted, steps)
        except StepsSpent:
            continue
    return None
