"""Reads constraints from the options of `softmesh plan`."""

from __future__ import annotations

from typing import Any

from softmesh.errors import ArgumentError, did_you_mean
from softmesh.hardware.enums import DataType
from softmesh.placement.placements import REPLICATE, Placement, Shard
from softmesh.planner.constraints import (
    Constraint,
    MemoryShare,
    MeshShapeIs,
    NotReplicated,
    PiecesOf,
    Pinned,
    TileAligned,
    UsersAxis,
    WeightDtypes,
)


def constraints_of(given: dict[str, Any]) -> list[Constraint]:
    made: list[Constraint] = [_pinned(text) for text in given["pin"]]
    made += [NotReplicated(name) for name in given["split"]]
    made += [_pieces(text) for text in given["pieces"]]
    if given["users_axis"] is not None:
        made.append(UsersAxis(given["users_axis"]))
    if given["tile_aligned"]:
        made.append(TileAligned())
    if given["memory_share"] is not None:
        made.append(MemoryShare(given["memory_share"]))
    if given["mesh"] is not None:
        made.append(MeshShapeIs(_shape(given["mesh"])))
    return made


def liberties_of(given: dict[str, Any]) -> list[WeightDtypes]:
    return [_liberty(text) for text in given["dtype"]]


def _shape(text: str) -> tuple[int, ...]:
    words = text.split("x")
    if not all(word.isdigit() and int(word) for word in words):
        raise ArgumentError(f"--mesh is a shape such as 2x4, got {text!r}.")
    return tuple(map(int, words))


def _pinned(text: str) -> Pinned:
    name, words = _named(text, "--pin", "layers.*.wq=R,S1")
    return Pinned(name, tuple(_word(word) for word in words))


def _word(text: str) -> Placement:
    if text.upper() == "R":
        return REPLICATE
    if text[:1].upper() == "S" and text[1:].lstrip("-").isdigit():
        return Shard(int(text[1:]))
    raise ArgumentError(f"--pin: a placement is R, or S and a dim (S0, S-1), got {text!r}.")


def _pieces(text: str) -> PiecesOf:
    name, words = _named(text, "--pieces", "layers.*.wqkv=1:128")
    dim, _, unit = words[0].partition(":")
    if len(words) != 1 or not dim.lstrip("-").isdigit() or not unit.isdigit() or not int(unit):
        raise ArgumentError(f"--pieces is written as layers.*.wqkv=1:128 (dim:elements), got {text!r}.")
    return PiecesOf(name, int(dim), int(unit))


def _liberty(text: str) -> WeightDtypes:
    name, words = _named(text, "--dtype", "layers.*=bfloat8_b")
    known = {dtype.name.lower(): dtype for dtype in DataType}
    for word in words:
        if word.lower() not in known:
            raise ArgumentError(f"--dtype: there is no dtype {word!r}.{did_you_mean(word, list(known))}")
    return WeightDtypes(name, tuple(known[word.lower()] for word in words))


def _named(text: str, option: str, example: str) -> tuple[str, list[str]]:
    name, equals, rest = text.partition("=")
    if not equals or not name or not rest:
        raise ArgumentError(f"{option} is written as {example}, got {text!r}.")
    return name, [word.strip() for word in rest.split(",")]
