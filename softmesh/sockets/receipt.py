"""A tensor that a receive will fill: whoever reads it meanwhile waits."""

from __future__ import annotations

from softmesh.sockets import arriving
from softmesh.sockets.transfers import TRANSFERS, Task
from softmesh.tensor.storage import Storage


class Receipt:
    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._task: Task | None = None
        self._expected = False

    def follow(self, task: Task) -> None:
        """Submit the receive; until it is over, readers of the storage wait for it."""
        self._task = task
        TRANSFERS.submit(task)
        if not task.done:
            self._expected = True
            arriving.expect(self.storage, self._wait)

    def settle(self, values: Storage) -> None:
        """It came."""
        arriving.put(self.storage, values.data, values.dist, values.undefined)
        self.give_up()

    def _wait(self) -> None:
        assert self._task is not None
        try:
            TRANSFERS.finish(self._task)
        finally:
            if self._task.error is not None:  # the tensor keeps what it had
                self.give_up()

    def give_up(self) -> None:
        """Nobody waits any longer; the tensor holds what it holds."""
        if self._expected:
            self._expected = False
            arriving.settle(self.storage, self._wait)
