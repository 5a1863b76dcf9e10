"""The step executor: runs a schedule hop by hop on torch tensors, the reference that the fast path is held against.

Knows pieces, slots and rounding; nothing of meshes, dtypes of TT-NN or machines. The same schedule and the
same inputs give the same bits, every time: sums are formed in the order that the schedule tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from softmesh.arguments import checked, described, refused
from softmesh.collectives.schedules.checker import refuse_broken
from softmesh.collectives.schedules.language import Action, Schedule, Step
from softmesh.errors import ArgumentValueError, MeshError

Pieces = Mapping[tuple[int, int], torch.Tensor]  # (device, piece)
Rounding = Callable[[torch.Tensor], torch.Tensor]
Slots = dict[tuple[int, int], torch.Tensor]  # (device, slot): a flat part of a piece


def run(
    schedule: Schedule,
    inputs: Pieces | Sequence[Sequence[torch.Tensor]],
    *,
    accumulate: torch.dtype | None = None,
    round_to: Rounding | None = None,
) -> dict[tuple[int, int], torch.Tensor]:
    """What the devices hold in the end: the pieces of the goal, by (device, piece).

    `inputs` has the pieces of the start the same way, or for each device a list of them in order. Sums are
    computed in float32 at least. By default each is rounded as soon as it is formed, at every hop, as the chip
    does; with `accumulate` partial sums travel in that type and are rounded once, at the end. `round_to` rounds
    element by element; left out, it rounds to the dtype of the inputs, to nearest even. A schedule that
    `violations` finds broken is refused with what is wrong; who is joined to whom is not asked.

    >>> from softmesh.collectives.schedules.generators import schedule_for
    >>> run(schedule_for("all_reduce", (2,)), [[torch.ones(2), torch.zeros(1)], [torch.ones(2), torch.ones(1)]])[0, 0]
    tensor([2., 2.])
    """
    refuse_broken("run", schedule)
    _check_rounding(accumulate, round_to)
    pieces = dict(inputs) if isinstance(inputs, Mapping) else _numbered(schedule, inputs)
    _check(schedule, pieces)
    if not pieces:
        return {}
    arithmetic = _Arithmetic(next(iter(pieces.values())).dtype, accumulate, round_to)
    slots = _cut(schedule, pieces)
    for number, step in enumerate(schedule.steps, 1):
        slots.update(_taken(step, number, slots, arithmetic))
    return _joined(schedule, slots, pieces, arithmetic)


def _check_rounding(accumulate: object, round_to: object) -> None:
    if accumulate is not None:
        checked("run", "accumulate", accumulate, torch.dtype, "a torch dtype such as torch.float32")
    if round_to is not None and not callable(round_to):
        raise refused("run", f"round_to must be a function of a torch.Tensor, got {described(round_to)}")


class _Arithmetic:
    """How sums are formed: in a wide type, rounded at each hop or at the end."""

    def __init__(self, dtype: torch.dtype, accumulate: torch.dtype | None, round_to: Rounding | None) -> None:
        self.dtype = dtype
        self.wide = torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else dtype
        self.travels = accumulate if dtype.is_floating_point else None
        self.rounding = round_to or (lambda tensor: tensor.to(dtype))

    def sum(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        total = values[0].to(self.travels or self.wide)
        for value in values[1:]:
            total = total + value.to(total.dtype)
        return total if self.travels else self.rounding(total)

    def final(self, value: torch.Tensor) -> torch.Tensor:
        return self.rounding(value) if value.dtype is self.travels and self.travels else value


def _taken(step: Step, number: int, slots: Slots, arithmetic: _Arithmetic) -> Slots:
    """What a step writes. Nothing is changed in place, so every send reads what the step found."""
    stored: Slots = {}
    terms: dict[tuple[int, int], list[torch.Tensor]] = {}
    for send in step:
        place, value = (send.receiver, send.target), slots[send.sender, send.slot]
        if send.action is Action.STORE:
            stored[place] = value
            continue
        own = terms.setdefault(place, [slots[place]])
        if value.shape != own[0].shape:
            raise MeshError(
                f"step {number} adds {value.numel()} elements to {own[0].numel()} at device {send.receiver}: pieces "
                "that are added up must have one size."
            )
        own.append(value)
    return stored | {place: arithmetic.sum(values) for place, values in terms.items()}


def _cut(schedule: Schedule, pieces: Pieces) -> Slots:
    return {
        (device, schedule.slot(piece, split)): part
        for (device, piece), value in pieces.items()
        for split, part in enumerate(value.reshape(-1).tensor_split(schedule.splits))
    }


def _joined(
    schedule: Schedule, slots: Slots, pieces: Pieces, arithmetic: _Arithmetic
) -> dict[tuple[int, int], torch.Tensor]:
    shapes = {piece: value.shape for (_, piece), value in pieces.items()}
    final: dict[tuple[int, int], torch.Tensor] = {}
    for device, piece in dict.fromkeys((device, slot // schedule.splits) for device, slot in schedule.goal):
        places = [(device, schedule.slot(piece, split)) for split in range(schedule.splits)]
        whole = torch.cat([slots[place] for place in places])
        final[device, piece] = arithmetic.final(whole).reshape(shapes.get(piece, whole.shape))
    return final


def _numbered(schedule: Schedule, inputs: Sequence[Sequence[torch.Tensor]]) -> dict[tuple[int, int], torch.Tensor]:
    if not isinstance(inputs, Sequence) or isinstance(inputs, str):
        raise refused("run", f"inputs must have a list of tensors for each device, got {described(inputs)}")
    if len(inputs) != schedule.devices:
        raise ArgumentValueError(
            f"{schedule.name} is for {schedule.devices} devices, but there are inputs for {len(inputs)}"
        )
    numbered: dict[tuple[int, int], torch.Tensor] = {}
    for device, values in enumerate(inputs):
        wanted = schedule.starting_pieces(device)
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise refused("run", f"inputs[{device}] must be a list of tensors, got {described(values)}")
        if len(values) != len(wanted):
            raise ArgumentValueError(
                f"{schedule.name} starts with {len(wanted)} pieces at device {device}, but {len(values)} are given"
            )
        numbered.update({(device, piece): value for piece, value in zip(wanted, values, strict=True)})
    return numbered


def _check(schedule: Schedule, pieces: Pieces) -> None:
    for place, value in pieces.items():
        if not (isinstance(place, tuple) and len(place) == 2 and all(isinstance(n, int) for n in place)):
            raise refused("run", f"inputs must be keyed by (device, piece), got {described(place)}")
        checked("run", f"inputs[{place[0]}, {place[1]}]", value, torch.Tensor, "a torch.Tensor")
    wanted = {(device, slot // schedule.splits) for device, slot in schedule.start}
    for device, piece in sorted(wanted ^ set(pieces)):
        fault = "needs" if (device, piece) in wanted else "does not start with"
        raise ArgumentValueError(f"{schedule.name} {fault} an input for piece {piece} of device {device}")
    first: dict[int, torch.Tensor] = {}
    for (device, piece), value in pieces.items():
        like = first.setdefault(piece, value)
        if value.shape != like.shape or value.dtype != next(iter(pieces.values())).dtype:
            raise ArgumentValueError(
                f"piece {piece} of device {device} is {list(value.shape)} of {value.dtype}, but another device's is "
                f"{list(like.shape)} of {next(iter(pieces.values())).dtype}; shapes and dtypes must agree"
            )
