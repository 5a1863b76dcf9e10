"""Undefined values: what calls make of pieces that nobody has written, and warnings to whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from softmesh.dispatch.definition import AfterRunning, Definition
from softmesh.dispatch.signature import BoundCall
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinate
from softmesh.placement.pieces import pieces_at
from softmesh.strictness import doubt, is_strict, warn_or_raise
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import HOOKS, Undefined, joined, mark, undefined_in

_SHOWN = 4


def _marker(undefined: Undefined | None) -> AfterRunning | None:
    if undefined is None:
        return None

    def tell(made: list[Tensor]) -> None:
        for result in made:
            mark(result, undefined)

    return tell


def carried_over(op: Definition, call: BoundCall) -> AfterRunning | None:
    """Each device reads its own piece: what is undefined in it comes to its result.

    A comparison makes a yes or no of a NaN, so that the result does not show it.
    """
    mark_of = _hidden_in if op.kind is Kind.COMPARISON else undefined_in
    return _marker(reduce(joined, map(mark_of, op.read(call)), None))


def selected(op: Definition, call: BoundCall) -> AfterRunning | None:
    """As `carried_over`, of an op whose first operand selects from the others, perhaps what was written of them."""
    first, *others = op.read(call)
    return _marker(_chosen(_hidden_in(first), reduce(joined, map(undefined_in, others), None)))


def warned_about(op: Definition, call: BoundCall) -> None:
    """Devices read each other's pieces."""
    for tensor in op.read(call):
        warn_if_undefined(tensor, op.name)


def _chosen(condition: Undefined | None, values: Undefined | None) -> Undefined | None:
    """The mark of what a condition selects from values; that may be the part of them that was written."""
    if condition is None:
        return values and values._replace(in_rows=True)
    both = condition if values is None else condition._replace(coords=condition.coords | values.coords)
    return both._replace(in_rows=condition.in_rows and (values is None or values.in_rows))


def _hidden_in(tensor: Tensor) -> Undefined | None:
    """The mark of what is decided by the values of the tensor: where a NaN stands now, none will."""
    undefined = undefined_in(tensor)
    left = undefined and undefined.within(frozenset(_still_undefined(tensor, undefined)))
    return left and left._replace(is_hidden=True)


def warn_if_undefined(tensor: Tensor, doing: str, among: frozenset[MeshCoordinate] | None = None) -> None:
    """Called where values leave for the host or for other devices; `among`: those of these devices only."""
    undefined = undefined_in(tensor)
    if undefined is not None and among is not None:
        undefined = undefined.within(among)
    found = () if undefined is None else _still_undefined(tensor, undefined)
    if undefined is None or not found:
        return
    what = f"{doing}: the tensor {tuple(tensor.shape)}"
    if undefined.ends_with_a_write:
        _warn_of_memory(undefined, f"{what} is made" if undefined.is_unreplayed else f"{what} is made of")
        return
    named = ", ".join(map(repr, _in_whole_mesh(tensor, found[:_SHOWN])))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    warn_or_raise(
        f"{what} holds undefined values on {named}{more}: {'rows of it were' if undefined.in_rows else 'it was'} never "
        f"written there by {undefined.op} ({undefined.site}). On silicon this reads what the memory held before; here "
        "it is NaN, or the largest integer. Read the shards that were written with ttnn.get_device_tensors(t), or give "
        f"{undefined.op} an output tensor whose contents are known."
    )


def _warn_of_memory(undefined: Undefined, doing: str) -> None:
    """Warn of memory whose mark ends with a write."""
    if undefined.is_unwritten:
        warn_or_raise(
            f"{doing} memory that nothing was written to since ttnn.{undefined.op} ({undefined.site}). On silicon this "
            "reads what the memory held before; here it is 0. Write to it first (ttnn.copy_host_to_device_tensor, or "
            "as an op's output tensor), or make it with ttnn.zeros."
        )
    elif undefined.is_unreplayed:
        warn_or_raise(
            f"{doing} by a trace that has not run yet, captured at {undefined.site}. A capture records calls and runs "
            "none of them: on silicon this reads what the memory held before; here it is what was there, or what the "
            "calls gave. Call ttnn.execute_trace first."
        )
    elif undefined.overwritten is not None:
        replayed, allocated = undefined.overwritten
        warn_or_raise(
            f"{doing} memory that a replay has written over ({replayed}): it was allocated"
            f"{f' at {allocated}' if allocated else ''} where the capture that began at {undefined.site} had put a "
            "result that was freed again, and each replay writes that result anew. Here it keeps its values. Allocate "
            "it before ttnn.begin_trace_capture, or use it before the replay."
        )


def _warn_before_leaving(tensor: Tensor, doing: str, among: frozenset[MeshCoordinate] | None) -> None:
    warn_if_undefined(tensor, doing, among)
    if is_strict():
        _doubt_part(tensor, doing)


def _doubt_part(tensor: Tensor, doing: str) -> None:
    """Who reads all of it may look at the part that was written only."""
    undefined, data = tensor.storage.undefined, tensor.storage.data
    if undefined is None or undefined.written is None or data is None:
        return
    written, dist = undefined.written.like(data), tensor.view_distribution()
    if written is None or pieces_at(written, tensor.storage.dist, dist.coordinates()).all():
        return
    doubt(
        f"{doing}: of the tensor {tuple(tensor.shape)} some was never written since ttnn.{undefined.op} "
        f"({undefined.site}). On silicon that part reads what the memory held before; here it is 0, or made of 0. Read "
        "what was written only (ttnn.slice), or make it with ttnn.zeros.",
    )


def _in_whole_mesh(tensor: Tensor, coords: Sequence[MeshCoordinate]) -> Sequence[MeshCoordinate]:
    """Where devices of this process's part lie in the mesh that several processes hold."""
    device = tensor.storage.device
    if device is None or device.block is None or tensor.storage.dist.spread is None:
        return coords
    origin = device.block.origin
    return [MeshCoordinate([first + at for first, at in zip(origin, coord, strict=True)]) for coord in coords]


def _still_undefined(tensor: Tensor, undefined: Undefined) -> Sequence[MeshCoordinate]:
    if 0 in tensor.shape:
        return []
    coords = tensor.view_distribution().coordinates()
    if undefined.in_rows and not undefined.is_hidden and (pieces := tensor.pieces()).is_floating_point():
        poisoned = pieces.isnan().flatten(1).any(1).tolist()
        coords = tuple(coord for coord, is_poisoned in zip(coords, poisoned, strict=True) if is_poisoned)
    return [coord for coord in coords if coord in undefined.coords]


HOOKS.leaving = _warn_before_leaving
HOOKS.of_memory = _warn_of_memory
