"""Values that may stay in L1: results of ops, in pieces so small that all that live at once have room.

Each has the same share of the L1 that tensors may take, and no more of them live at once than there are shares. So a
layout may be chosen for each without a look at the others.
"""

from __future__ import annotations

import math
from itertools import groupby
from operator import itemgetter

import numpy as np

from softmesh.cost.chip_costs import l1_bytes
from softmesh.dispatch.operation import OPERATIONS
from softmesh.distributed.images import COUNT
from softmesh.hardware.enums import BufferType, Layout
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.planner.op_graph import GraphNode, OpGraph
from softmesh.systems.chip import Chip

L1_SHARES = 48
_LIVE = 40  # at once; others are left for what a caller holds on to while a layer runs
_LARGEST_PAGE = 4096  # a tile of float32


def l1_limits(graph: OpGraph, chip: Chip) -> dict[int, int]:
    """Return, by value, the largest piece that may stay in L1. Values with short live ranges go first."""
    last_uses = {number: max((node for node, _ in uses), default=-1) for number, uses in graph.consumers.items()}
    tied = _tied(graph)
    able = [
        (last_uses[number] - node.number, number, node.number)
        for node in graph.nodes
        if _takes_l1(node)
        for number in node.results
        if number not in tied
        and number not in graph.outputs
        and last_uses[number] >= 0
        and graph.values[number].layout is Layout.TILE
    ]
    live = np.zeros(len(graph.nodes), dtype=np.int32)
    row = math.prod(chip.grid()) * _LARGEST_PAGE  # a page on each core: what the smallest tensor takes
    limit = l1_bytes(chip) // L1_SHARES // row * row
    found: dict[int, int] = {}
    for _, alike in groupby(sorted(able), key=itemgetter(0)):  # all or none, so that equal layers stay equal
        values, then = list(alike), live.copy()
        for length, number, first in values:
            then[first : first + length + 1] += 1 + len(graph.consumers[number])  # each reader may want its own layout
        if then.max() > _LIVE:
            break
        live = then
        found |= dict.fromkeys((number for _, number, _ in values), limit)
    return found


def _takes_l1(node: GraphNode) -> bool:
    """True if the program leaves it open where its results lie, or wants them in L1, in no shards."""
    at = OPERATIONS[node.op].definition.signature.memory_config_at
    config = None if at is None else node.bound[at]
    wanted = isinstance(config, MemoryConfig) and config.buffer_type is BufferType.L1 and not config.is_sharded()
    return not node.writes and (config is None or wanted)


def _tied(graph: OpGraph) -> set[int]:
    """Values whose memory is not free to choose: another one shares it, follows it, or is computed otherwise in L1."""
    return {number for node in graph.nodes if _ties(node) for number in (*node.operands[:1], *node.results)}


def _ties(node: GraphNode) -> bool:
    """Views; ops without a memory config; ops of images, which work in slices on what comes from DRAM."""
    signature = OPERATIONS[node.op].definition.signature
    return node.is_view or signature.memory_config_at is None or COUNT in signature.names
