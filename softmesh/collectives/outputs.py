"""Tensors given for the results of a collective: which argument each is, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.tensor import Tensor


def output_names(
    op: str, given: Mapping[str, Any], targets: Sequence[Tensor], named: str | None
) -> list[str]:
    """The arguments that hold the targets, as the caller wrote them: `output_tensors[1]`; one for each."""
    several = len(targets) > 1
    if named is not None:
        names = [f"{named}[{i}]" if several else named for i in range(len(targets))]
    else:
        names = [_name_of(target, given) for target in targets]
    for i, target in enumerate(targets):
        first = next(at for at, one in enumerate(targets) if one is target)
        if first != i:
            raise MeshError(
                f"{op}: results {first} and {i} would be written into the same tensor, {names[i]} {list(target.shape)}"
                ": give each result a tensor of its own."
            )
    return names


def _name_of(target: Tensor, given: Mapping[str, Any]) -> str:
    found = ["the output tensor"]
    for name, value in given.items():
        if name == "out":
            continue  # what the registry calls it
        if value is target:
            found.append(name)
        elif isinstance(value, list | tuple):
            found += [f"{name}[{i}]" for i, item in enumerate(value) if item is target]
    return found[-1]  # outputs come after operands


def check_output(
    op: str, name: str, own: TensorSpec, computed: TensorSpec, first: TensorSpec, config: MemoryConfig | None
) -> None:
    """An output must be what the collective makes, as TT-NN's own checks put it.

    `first` is the spec of the first operand, `config` the memory_config that was given. Where none was, only
    reduce_scatter asks for the operand's; a shard spec does not fit the result.
    """
    is_whole = "reduce_scatter" in op
    wanted = computed
    if config is None and (not is_whole or first.memory_config.is_sharded()):
        wanted = make_spec(
            tuple(computed.shape), computed.dtype, computed.layout, own.memory_config, computed.tile
        )
    hint = f"{op} writes into {name}, which must be allocated for its result."
    if is_whole and own != wanted:
        raise MeshError(f"Output tensor spec {own} does not match computed output spec {wanted}. {hint}")
    if tuple(own.shape) != tuple(wanted.shape):
        raise MeshError(f"Output tensor shape must be {wanted.shape}, got {own.shape}. {hint}")
    for what in ("dtype", "layout"):
        mine, other = getattr(own, what), getattr(wanted, what)
        if mine is not other:
            same = f"same as input tensor {what} {other}" if other is getattr(first, what) else f"{other}"
            raise MeshError(f"Output tensor {what} {mine} should be {same}. {hint}")
    if own.memory_config != wanted.memory_config:
        raise MeshError(
            f"Output tensor memory config {own.memory_config} should be same as memory_config "
            f"{wanted.memory_config}. {hint} Leave memory_config out, or give the tensor's own."
        )
