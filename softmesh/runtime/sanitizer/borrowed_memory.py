"""Copies to a device that read the program's own memory: torch tensors which a host tensor shares on a chip.

There a row-major host tensor of the same dtype is the torch tensor's memory. Here it has its own, so a change that
comes too early is found by comparing the torch tensor with what it held when the copy was enqueued.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import torch

from softmesh.callsite import resolved
from softmesh.runtime.sanitizer.findings import FindingKind, Report
from softmesh.runtime.sanitizer.vector_clocks import Clock, Step

if TYPE_CHECKING:
    from softmesh.runtime.commands import Command
    from softmesh.runtime.device import MeshDevice

LENDERS: WeakKeyDictionary[object, torch.Tensor] = WeakKeyDictionary()  # of a host tensor's storage; while observed


class _Copy(NamedTuple):
    step: Step
    source: torch.Tensor
    held: torch.Tensor


class Copies:
    """Return the copies that may still be in progress."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open: list[_Copy] = []

    def note(self, command: Command, step: Step, device: MeshDevice) -> None:
        for tensor in command.inputs:
            source = LENDERS.get(tensor.storage)
            if source is not None and not command.blocking:
                if not self._open:
                    device.tell_at_close.append(self._tell)
                self._open.append(_Copy(step, source, source.clone()))

    def settle(self, clock: Clock) -> None:
        """Look at the copies that the host knows to be done by now."""
        if self._open:
            self._tell(lambda copy: clock.knows(copy.step, None))

    def _tell(self, is_done: Callable[[_Copy], bool] = lambda copy: True) -> None:
        done = [copy for copy in self._open if is_done(copy)]
        self._open = [copy for copy in self._open if not is_done(copy)]
        for copy in done:
            if not torch.equal(copy.source.view(torch.uint8), copy.held.view(torch.uint8)):
                self._report.tell(FindingKind.RACE, [copy.step.site], partial(_words, copy))


def _words(copy: _Copy) -> str:
    return (
        f"the program writes to a torch tensor {list(copy.source.shape)} while a copy to the device reads it.\n"
        f"  {copy.step.name} ({resolved(copy.step.site)}) reads it\n"
        "On a chip a row-major host tensor that from_torch makes without changing the dtype has no memory of its own. "
        "The device may get the new values, the old ones or some of both. Wait before you write "
        "(ttnn.synchronize_device(mesh_device), or an event), or make the host tensor of a copy (tensor.clone())."
    )
