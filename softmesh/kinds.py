"""The kinds of ops and of other commands: one taxonomy, which prices, warnings, comparisons and pictures ask."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """The kind of work that an op, or any other command of the stream, does.

    >>> Kind.ALL_GATHER.is_exchange, Kind.RESHAPE.is_movement, Kind.NORM.is_movement
    (True, True, False)
    """

    # Computes values on each device.
    ATTENTION = "attention"
    COMPARISON = "comparison"
    CONVOLUTION = "convolution"
    ELEMENTWISE = "element-wise"
    LOSS = "loss"
    NORM = "norm"  # softmax is one
    OPTIMIZER = "optimizer step"
    POOLING = "pooling"  # windows and samples of images
    PRODUCT = "matrix product"
    RANDOM = "random values"
    REDUCTION = "reduction"
    ROTARY = "rotary embedding"
    ROUTING = "routing to experts"
    SCAN = "scan"  # running sums and the like
    SELECTION = "selection"  # of places, by value

    # Moves values within each device.
    CACHE = "cache update"
    COPY = "copy"
    CREATION = "creation"
    HEADS = "heads"  # split or joined
    LAYOUT = "layout conversion"
    LOOKUP = "lookup"
    MOVEMENT = "data movement"
    PARTITION = "partition"  # each device keeps its share
    RELOCATION = "memory conversion"  # the same values in other memory of the device
    RESHAPE = "reshape"

    # Moves values between devices.
    ALL_BROADCAST = "all_broadcast"
    ALL_GATHER = "all_gather"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    NEIGHBOURS = "exchange of borders"
    POINT_TO_POINT = "point_to_point"
    REDUCE = "reduce"  # to one device
    REDUCE_SCATTER = "reduce_scatter"

    @property
    def is_exchange(self) -> bool:
        return self in _EXCHANGES

    @property
    def is_movement(self) -> bool:
        """True if it computes nothing, and nothing leaves a device."""
        return self in _MOVEMENTS


_ALL = list(Kind)
_MOVEMENTS = frozenset(_ALL[_ALL.index(Kind.CACHE) : _ALL.index(Kind.ALL_BROADCAST)])
_EXCHANGES = frozenset(_ALL[_ALL.index(Kind.ALL_BROADCAST) :])
