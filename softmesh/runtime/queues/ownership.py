"""Which queue the worker cores of a sub-device belong to: two queues may not launch on the same cores unordered."""

from __future__ import annotations

from collections.abc import Iterable

from softmesh.errors import MeshError


class _Workers:
    """`owner` launched last; `released_at` is its first event recorded since, by which another may take over."""

    __slots__ = ("owner", "released_at")

    def __init__(self) -> None:
        self.owner: int | None = None
        self.released_at: int | None = None


class Ownership:
    """Of all sub-devices of one mesh, by their numbers."""

    def __init__(self) -> None:
        self._workers: dict[int, _Workers] = {}

    def is_in_use(self) -> bool:
        return bool(self._workers)

    def launch(self, sub_device: int, queue: int) -> None:
        workers = self._workers.get(sub_device)
        if workers is None:
            workers = self._workers[sub_device] = _Workers()
        if workers.owner is not None and workers.owner != queue:
            raise MeshError(
                f"Sub device id {sub_device} currently in use by cq {workers.owner}: cq {queue} may use its cores "
                f"after cq {workers.owner} has finished, or once cq {queue} waits for an event that "
                f"cq {workers.owner} records after its work (ttnn.record_event, ttnn.wait_for_event)."
            )
        workers.owner, workers.released_at = queue, None

    def recorded(self, queue: int, event: int, sub_devices: Iterable[int]) -> None:
        for workers in self._owned_by(queue, sub_devices):
            if workers.released_at is None:
                workers.released_at = event

    def waited_for(self, queue: int, event: int) -> None:
        """Some queue waits for this event of `queue`: what it follows is over by then."""
        for workers in self._owned_by(queue, self._workers):
            if workers.released_at is not None and workers.released_at <= event:
                workers.owner = None

    def finished(self, queue: int, sub_devices: Iterable[int]) -> None:
        for workers in self._owned_by(queue, sub_devices):
            workers.owner = None

    def reset(self) -> None:
        self._workers.clear()

    def _owned_by(self, queue: int, sub_devices: Iterable[int]) -> list[_Workers]:
        found = (self._workers.get(number) for number in sub_devices)
        return [workers for workers in found if workers is not None and workers.owner == queue]
