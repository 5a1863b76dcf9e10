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
    STATISTICS = "statistics"  # of a device's own part, for a norm of the whole

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
    SHIFT = "shift"  # from each device to the next

    # Moves values between the host and devices.
    HOST_FILL = "host fill"  # with values that the host makes: full, rand
    HOST_READ = "host read"
    HOST_WRITE = "host write"

    # Runs nothing.
    ALLOCATION = "allocation"
    CAPTURE_BEGIN = "begin of a capture"
    CAPTURE_END = "end of a capture"
    DEALLOCATION = "deallocation"
    HOST_USE = "use by the host"  # of values that it holds
    PIECES = "pieces"  # taken apart or put together, without a look at values
    QUERY_EVENT = "query of an event"
    RELEASE_TRACE = "release of a trace"
    SIGNPOST = "signpost"
    STEP = "step"
    VIEW = "view"  # of what is in memory

    # Other commands of a queue.
    FINISH = "finish"  # the host waits for a queue
    PROGRAM = "program"  # of the user's own kernels
    RECEIVE = "receive"  # from another mesh, or from the host
    RECORD_EVENT = "record of an event"
    REPLAY = "replay"
    SEND = "send"
    SYNCHRONIZE_EVENT = "synchronization with an event"  # by the host
    WAIT_FOR_EVENT = "wait for an event"  # by a queue

    @property
    def is_exchange(self) -> bool:
        return self in _EXCHANGES

    @property
    def keeps_whole(self) -> bool:
        """True if the whole value stays what it is, wherever devices hold it afterwards."""
        return self in _KEEPING

    @property
    def is_sum(self) -> bool:
        """True if it adds up the contributions of devices."""
        return self in _SUMS

    @property
    def is_movement(self) -> bool:
        """True if it computes nothing, and nothing leaves a device."""
        return self in _MOVEMENTS

    @property
    def is_host_transfer(self) -> bool:
        return self in _HOST_TRANSFERS

    @property
    def is_note(self) -> bool:
        """True if nothing runs: a mark, memory that comes or goes."""
        return self in _NOTES


def _from(first: Kind, last: Kind) -> frozenset[Kind]:
    kinds = list(Kind)
    return frozenset(kinds[kinds.index(first) : kinds.index(last) + 1])


_MOVEMENTS = _from(Kind.CACHE, Kind.RESHAPE)
_EXCHANGES = _from(Kind.ALL_BROADCAST, Kind.SHIFT)
_SUMS = frozenset({Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER})
_KEEPING = _SUMS | {Kind.ALL_BROADCAST, Kind.ALL_GATHER, Kind.BROADCAST, Kind.PARTITION}
_HOST_TRANSFERS = _from(Kind.HOST_FILL, Kind.HOST_WRITE)
_NOTES = _from(Kind.ALLOCATION, Kind.VIEW)
