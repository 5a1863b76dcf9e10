"""The number of device operations that this process has launched, by which programs tell runs of ops apart."""

from __future__ import annotations


class LaunchCount:
    """Of all meshes of the process."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


LAUNCHED = LaunchCount()


def get_device_operation_id() -> int:
    """How many operations were launched or captured so far; a replay of a trace counts as one.

    An op of several programs counts once here, so differences may be smaller than TT-NN's.
    """
    return LAUNCHED.total
