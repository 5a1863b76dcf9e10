"""Records a run for comparison: its ops in order, with what each read and wrote."""

from __future__ import annotations

import gc
import math
import random
import runpy
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from softmesh.callsite import CallSite, is_ours, raw_callers, resolved
from softmesh.diff.entries import Entry, Given, Operand, Recording
from softmesh.diff.gradient_recording import GradientRecorder
from softmesh.diff.value_store import Stored, ValueStore
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.placement.distribution import Distribution
from softmesh.progress import counted
from softmesh.runtime.command_tensor import CommandTensor, TensorMemory
from softmesh.runtime.commands import Command, observe
from softmesh.runtime.grad_mode import GRADIENTS
from softmesh.tensor.tensor import Tensor

READS = ("to_torch", "from_device")  # what comes to the host is compared as if these had made it
_SILENT = ("deallocate", "get_device_tensors")
_SEED = 0
_SAMPLES = 16
_CALLERS = 4
_MUCH = 64 << 20  # bytes of values
_STARTERS = (runpy.__file__, "<frozen runpy>")
_SIGNPOST = "signpost "


class Held(NamedTuple):
    """The value in some memory; when that is freed, another value may come to the same address."""

    value: int
    sample: list[float]
    memory: StorageWeakRef

    @classmethod
    def of(cls, value: int, data: torch.Tensor) -> Held:
        return cls(value, _sample(data), StorageWeakRef(data.untyped_storage()))

    def is_in(self, data: torch.Tensor) -> bool:
        return not self.memory.expired() and self.sample == _sample(data)


def _keeps_whole(op: EntryPoint) -> bool:
    return isinstance(op, Operation) and op.definition.kind.keeps_whole


class Recorder:
    """Reads the stream of commands, and the calls that lead to them, and keeps every value in a file."""

    def __init__(
        self, run: Recording, module_of: Callable[[], str] | None, is_reference: bool, done: Callable[[], None]
    ) -> None:
        self.run, self._done = run, done
        self._module_of = module_of
        self._is_reference = is_reference
        self._is_silent = False
        self._section = ""  # as the program's last signpost names it
        self._known: dict[Hashable, Held] = {}  # by address and size, also with placements
        self._has_replayed = False
        self._is_capturing = False
        self._latest: WeakKeyDictionary[TensorMemory, int] = WeakKeyDictionary()  # the value that was put in each
        self.gradients = GradientRecorder(run, self._put, self._operand)
        self._calls: list[tuple[EntryPoint, tuple[Any, ...], dict[str, Any]]] = []

    def called(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        self._calls.append((op, args, kwargs))
        try:
            return proceed(*args, **kwargs)
        except MeshError:
            alone = self._alone(op, (*args, *kwargs.values()))
            if alone is None:
                raise
            return self._copied(alone)
        finally:
            self._calls.pop()

    def _alone(self, op: EntryPoint, given: Sequence[Any]) -> Tensor | None:
        """What a collective would move that is called on one device, where it is refused and has nothing to do."""
        if not (self._is_reference and op.reads_other_devices and _keeps_whole(op)):
            return None
        tensor = next((one for one in given if isinstance(one, Tensor)), None)
        device = None if tensor is None else tensor.storage.device
        return tensor if device is not None and device.get_num_devices() == 1 else None

    def _copied(self, tensor: Tensor) -> Tensor:
        """The same value in memory of its own: programs free what a collective has read."""
        number = self._operand(tensor).value
        self._is_silent = True
        try:
            made: Tensor = OPERATIONS["clone"](tensor)
        finally:
            self._is_silent = False
        data = made.view_data()
        self._keep(number, data, made.view_distribution())
        return made

    def on_command(self, command: Command) -> None:
        if self._is_silent:
            return
        if command.kind is Kind.SIGNPOST:
            self._section = command.name.removeprefix(_SIGNPOST)
        if command.kind is Kind.REPLAY:
            self._known.clear()  # what it wrote, it does not say
            self._latest.clear()
            self._has_replayed = True
        if command.kind in (Kind.CAPTURE_BEGIN, Kind.CAPTURE_END):
            self._is_capturing = command.kind is Kind.CAPTURE_BEGIN
        outputs = command.inputs if command.name in READS else command.outputs
        if not outputs or command.name in _SILENT:
            return
        run = self.run
        if command.device is not None:
            if command.device.ranks is not None:
                raise MeshError(
                    f"{command.name}: several processes hold this mesh, and each sees its own block alone, which says "
                    "nothing of the whole. Compare in one process, on a mesh of the same shape."
                )
            run.mesh = max(run.mesh, tuple(command.device.shape), key=lambda shape: (_product(shape), shape))
        written = {tensor.view_data().data_ptr() for tensor in command.outputs}
        inputs = tuple(self._operand(tensor, written) for tensor in command.inputs)
        if command.name in READS:
            made = tuple(run.store.values[operand.value] for operand in inputs)
        else:
            made = tuple(self._put(tensor, digested=not inputs) for tensor in outputs)
        op = OPERATIONS.get(command.name)
        entry = Entry(
            len(run.entries),
            command.name,
            command.site,
            inputs,
            made,
            _plain(dict(command.arguments)),
            op is not None and op.reads_other_devices,
            command.within,
            self._module_of() if self._module_of is not None else self._section,
            self._call_of(command),
            kind=command.kind,
            callers=_callers_of(command),
            is_captured=self._is_capturing,
        )
        run.entries.append(entry)
        self._done()
        if command.name not in READS:
            self.gradients.made_by(entry)
            if GRADIENTS.in_use:
                self.gradients.note(entry, command.inputs, outputs)

    def _operand(self, tensor: CommandTensor, written: Collection[int] = ()) -> Operand:
        """What the tensor held; where the op wrote in place, before it did."""
        data = tensor.view_data()
        known = self._in_memory(data, tensor.view_distribution())
        latest = self._latest.get(tensor.storage)
        held = 0 if latest is None else math.prod(self.run.store.values[latest].shape)
        if latest is not None and data.data_ptr() in written and held == data.numel():
            number = latest  # what memory holds by now is the result, and it may be other memory than before
        elif known is not None:
            number = known
        else:
            number = self._part(tensor)
        return Operand(number, tuple(data.shape), tensor.view_distribution())

    def _keep(self, number: int, data: torch.Tensor, dist: Distribution) -> None:
        held = Held.of(number, data)
        self._known.update((key, held) for key in _places(data, dist))

    def _in_memory(self, data: torch.Tensor, dist: Distribution) -> int | None:
        """The value there: the one that lies so, where shards and what was gathered of them share it."""
        found = (self._known.get(key) for key in _places(data, dist))
        return next((held.value for held in found if held is not None and held.is_in(data)), None)

    def _part(self, tensor: CommandTensor) -> int:
        """A value that no op has made: one device's share of another, or what moved to other memory."""
        origin = self._latest.get(tensor.storage)
        number = self._put(tensor).number
        if origin is not None:
            self.run.origins[number] = self._latest[tensor.storage] = origin
        if self._has_replayed and (origin is None or origin in self.run.replayed):
            self.run.replayed.add(number)
        return number

    def _put(self, tensor: CommandTensor, *, digested: bool = False) -> Stored:
        data = tensor.view_data()
        stored = self.run.store.put(data, tensor.view_distribution(), tensor.dtype, digested=digested)
        self._keep(stored.number, data, stored.dist)
        self._latest[tensor.storage] = stored.number
        return stored

    def _call_of(self, command: Command) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not self._calls or self._calls[-1][0].name != command.name or not command.inputs:
            return None
        _, args, kwargs = self._calls[-1]
        tensors = list(command.inputs)
        return _without_tensors(args, tensors), _without_tensors(kwargs, tensors)


def _places(data: torch.Tensor, dist: Distribution) -> tuple[Hashable, Hashable]:
    place = data.data_ptr(), data.numel()
    return (*place, dist.placements), place


_resolved = lru_cache(maxsize=4096)(resolved)


def _callers_of(command: Command) -> tuple[CallSite, ...]:
    """Up to the program's first line; ops are often called by a function of the program's own."""
    found = []
    for raw in raw_callers(command.raw_site, 2, _CALLERS):
        if is_ours(raw[0].co_filename) or raw[0].co_filename in _STARTERS:
            break
        found.append(_resolved(raw))
    return tuple(found)


def _sample(data: torch.Tensor) -> list[float]:
    """Some of the values, to tell whether memory holds what it did."""
    data = data.detach()
    count = data.numel()
    if not data.is_contiguous():
        data = data.flatten()
    step = max(1, count // _SAMPLES)
    found: list[float] = data.as_strided((min(_SAMPLES, count),), (step,)).tolist()
    return [0.0 if value != value else value for value in found]  # a NaN is not even itself


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _without_tensors(nest: Any, tensors: list[CommandTensor]) -> Any:
    if isinstance(nest, Tensor):
        return next((Given(at) for at, tensor in enumerate(tensors) if tensor is nest), None)
    if isinstance(nest, dict):
        return {name: _without_tensors(item, tensors) for name, item in nest.items()}
    return type(nest)(_without_tensors(item, tensors) for item in nest) if type(nest) in (list, tuple) else nest


def _plain(arguments: dict[str, object]) -> dict[str, object]:
    """What can be compared between two runs."""
    kinds = (bool, int, float, str, list, tuple)
    return {name: value for name, value in arguments.items() if isinstance(value, kinds)}


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Both runs draw the same, and whoever called goes on where they were."""
    python = random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        random.seed(_SEED)
        try:
            yield
        finally:
            random.setstate(python)


def recorded(
    program: Callable[[], object],
    module_of: Callable[[], str] | None = None,
    *,
    is_reference: bool = False,
    twin: Recording | None = None,
) -> Recording:
    """Run it; what it raises is kept with what it did until then. What `twin` put on devices as well is not kept twice.

    In a reference on one device, collectives that are refused there hand on what they were given.
    """
    run = Recording(ValueStore(twin=None if twin is None else twin.store))
    doing = "ops of the reference" if is_reference else "ops of the program"
    with counted(f"running {doing}", None if twin is None else len(twin.entries)) as done:
        _record(run, Recorder(run, module_of, is_reference, done), program)
    if run.store.size > _MUCH:
        gc.collect()  # models hold themselves in cycles, and the next run needs their memory
    return run


def _record(run: Recording, recorder: Recorder, program: Callable[[], object]) -> None:
    watching = recorder.gradients.watching()
    with same_random_numbers(), observe(recorder), intercepting(recorder.called), watching:
        try:
            run.result = program()
        except Exception as error:
            run.error = error
