"""Records what training does to gradients and parameters, as entries of a run beside its ops.

A gradient is recorded when torch's engine brings it to a value of the forward pass, under the name and line of the op
that made the value: `gradient of linear`. What is done to all parameters at once (synchronised, clipped, a step of an
optimizer) is an entry for each of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from softmesh.autograd.gradient_wrapper import unwrap_gradient
from softmesh.autograd.leaves import BACKWARD_WATCHERS, gradient_distribution, gradient_tensor
from softmesh.callsite import CallSite, user_call_site
from softmesh.diff.entries import Entry, Operand, Recording
from softmesh.diff.value_store import Stored
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement
from softmesh.runtime.command_tensor import CommandTensor
from softmesh.tensor.tensor import Tensor
from softmesh.train.module import PHASE_WATCHERS, Phase

GRADIENT = "gradient of "
MOVED = "moved"  # an argument of a step: how far it moved the parameter, by its size


class GradientRecorder:
    """`put` keeps a tensor's value, and `known` tells which one a tensor has by its memory."""

    def __init__(
        self, run: Recording, put: Callable[[CommandTensor], Stored], known: Callable[[CommandTensor], Operand]
    ) -> None:
        self._run, self._put, self._known = run, put, known
        self._held: dict[str, Operand] = {}  # by parameter: its gradient, as the last phase left it
        self._tapped: dict[int, tuple[int, Entry | None]] = {}  # by node of torch's graph: the value, and what made it
        self._nodes: list[object] = []  # keeps what `_tapped` knows by id
        self._old: dict[str, int] = {}  # by parameter: its value before a step
        self._losses = 1  # of the backward pass: how many devices have one of their own
        self._gradients: dict[int, Operand] = {}  # by value: the one that came back to it
        self._readers: dict[int, list[Entry]] = defaultdict(list)
        self._makers: dict[int, Entry] = {}

    def made_by(self, entry: Entry) -> None:
        """Also while nothing asks for gradients: the program's first parameter comes before that."""
        self._makers.update((stored.number, entry) for stored in entry.outputs)

    def note(self, entry: Entry, inputs: Sequence[CommandTensor], outputs: Sequence[CommandTensor]) -> None:
        """An op of the forward pass: what it read and made is met again on the way back."""
        for operand, tensor in zip(entry.inputs, inputs, strict=True):
            self._readers[operand.value].append(entry)
            self._tap(tensor, operand.value, self._makers.get(operand.value))
        for stored, tensor in zip(entry.outputs, outputs, strict=True):
            self._tap(tensor, stored.number, entry)

    def _tap(self, tensor: CommandTensor, value: int, maker: Entry | None) -> None:
        """See the gradient that comes back to this tensor."""
        data = tensor.storage.data
        if data is None or not data.requires_grad:
            return
        node: object = data if data.grad_fn is None else data.grad_fn
        is_known = id(node) in self._tapped
        self._tapped[id(node)] = value, maker  # of a parameter, the latest value
        if is_known:
            return
        self._nodes.append(node)
        dist, dtype = tensor.storage.dist, tensor.dtype
        if data.dim() == dist.lead + len(tensor.shape):
            data.register_hook(lambda gradient: self._came_back(gradient, id(node), dist, dtype))

    def _came_back(self, gradient: torch.Tensor, node: int, dist: Distribution, dtype: object) -> None:
        value, maker = self._tapped[node]
        values = unwrap_gradient(gradient)
        found = gradient_distribution(dist, values)
        words = tuple(map(_gradient_word, dist.placements, found.placements))
        stored = self._run.store.put(values, found.with_placements(words), dtype)
        made = {out.number for reader in self._readers[value] for out in reader.outputs}
        inputs = tuple(self._gradients[number] for number in sorted(made) if number in self._gradients)
        self._gradients[value] = Operand(stored.number, stored.shape, stored.dist)
        name, site = ("a value", user_call_site()) if maker is None else (maker.name, maker.site)
        self._add(GRADIENT + name, site, inputs, stored, gradient_of=value, scale=float(self._losses))

    def started(self, tensors: Sequence[Tensor]) -> None:
        """A backward pass: of a loss that each device has of its own, gradients are those of so many losses."""
        dist = tensors[0].view_distribution()
        pairs = zip(dist.placements, dist.grid, strict=True)
        self._losses = math.prod(n for word, n in pairs if word is LOCAL or word is Partial("avg"))
        self._gradients.clear()

    def told(self, phase: Phase, who: str, params: Mapping[str, Tensor]) -> None:
        site = user_call_site()
        for name, tensor in params.items():
            if phase is Phase.BEFORE_STEP:
                self._old[name] = self._known(tensor).value
            gradient = tensor.storage.gradient
            if phase is Phase.STEP:
                inputs = tuple(one for one in (self._held.pop(name, None),) if one is not None)
                before = self._run.store.load(self._run.store.values[self._old.pop(name)])
                data = tensor.view_data().detach()
                before = before.reshape(data.shape)  # memory that was a whole weight's is known by its shape
                moved = float((data - before).float().norm()) / max(float(data.float().norm()), 1e-30)
                self._add(f"{who}.step", site, inputs, self._put(tensor), module=name, arguments={MOVED: moved})
            elif gradient is not None:
                earlier = self._held.get(name) or self._brought_to(self._known(tensor).value)
                stored = self._put(gradient_tensor(tensor.storage, tensor, gradient))
                named = phase.value if phase is not Phase.BEFORE_STEP else f"{GRADIENT}{who}.step"
                self._add(named, site, () if earlier is None else (earlier,), stored, module=name)
                self._held[name] = Operand(stored.number, stored.shape, stored.dist)

    def _brought_to(self, value: int) -> Operand | None:
        """Its gradient; or that of the whole weight which was gathered of it, where only that is in torch's graph."""
        gathered = (out.number for reader in self._readers[value] if reader.sends for out in reader.outputs)
        return next((self._gradients[one] for one in (value, *gathered) if one in self._gradients), None)

    def _add(
        self,
        name: str,
        site: CallSite,
        inputs: tuple[Operand, ...],
        stored: Stored,
        module: str = "",
        arguments: dict[str, object] | None = None,
        gradient_of: int | None = None,
        scale: float = 1.0,
    ) -> None:
        entries = self._run.entries
        entry = Entry(len(entries), name, site, inputs, (stored,), arguments or {}, False, (), module)
        entry.gradient_of, entry.scale = gradient_of, scale
        entries.append(entry)

    @contextmanager
    def watching(self) -> Iterator[None]:
        BACKWARD_WATCHERS.append(self.started)
        PHASE_WATCHERS.append(self.told)
        try:
            yield
        finally:
            BACKWARD_WATCHERS.remove(self.started)
            PHASE_WATCHERS.remove(self.told)


def _gradient_word(value: Placement, gradient: Placement) -> Placement:
    """The gradient of a sum is the gradient of each of its contributions: not one of several to be added up."""
    return LOCAL if isinstance(value, Partial) and gradient is not REPLICATE else gradient
