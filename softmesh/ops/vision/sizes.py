"""What ops on images share: numbers for height and width, images that come flat or apart, and their splits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.dispatch.operand import Operand
from softmesh.errors import ArgumentError, MeshError
from softmesh.placement import rules

Sides = tuple[int, int, int, int]  # top, bottom, left, right


def ints(op: str, argument: str, values: object, counts: tuple[int, ...], least: int) -> list[int]:
    """That many whole numbers, none of them below `least`."""
    if not isinstance(values, list | tuple) or not all(isinstance(n, int) for n in values):
        raise ArgumentError(f"{op}: {argument} must be a sequence of ints, got {values!r}")
    if len(values) not in counts or min(values) < least:
        wanted = " or ".join(map(str, counts))
        raise MeshError(f"{op}: {argument}={list(values)} must be {wanted} numbers of {least} or more.")
    return list(values)


def pair(op: str, argument: str, values: Sequence[int], least: int) -> tuple[int, int]:
    first, second = ints(op, argument, values, (2,), least)
    return first, second


def four_sides(op: str, padding: Sequence[int]) -> Sides:
    """(height, width) or (top, bottom, left, right) as the latter."""
    sides = ints(op, "padding", padding, (2, 4), 0)
    top, bottom, left, right = sides if len(sides) == 4 else (sides[0], sides[0], sides[1], sides[1])
    return top, bottom, left, right


def images_are_flat(op: str, images: Operand, sizes: tuple[int, int, int, int]) -> bool:
    """Whether they come as [1, 1, N*H*W, C], for sizes (N, H, W, C); an error where neither so nor apart."""
    n, height, width, channels = sizes
    flat, apart = (1, 1, n * height * width, channels), (n, height, width, channels)
    if images.shape not in (flat, apart):
        raise MeshError(
            f"{op}: {images.name} {list(images.shape)} must be {list(flat)} or {list(apart)} for {n} images of "
            f"{height}x{width} with {channels} channels, all of them those of each device."
        )
    return images.shape == flat


def check_apart(op: str, images: Operand) -> None:
    if images.rank != 4:
        raise MeshError(f"{op}: {images.name} {list(images.shape)} must be [N, H, W, C].")


def flat_results(flat: bool) -> rules.Rule:
    """Of images that come out as [1, 1, N*H*W, C]: split by image or by channel they stay so."""
    batch = {0: [(0, 0)], 1: [(0, 1)], 2: [(0, 2)]} if flat else {2: [(0, 0)]}
    table = rules.along({**batch, 3: [(0, 3)]})

    def rule(at: rules.Situation) -> Sequence[rules.Placement]:
        """An uneven split has filler at its end, which is no image."""
        is_uneven = isinstance(at.word, rules.Shard) and at.word.size is not None and at.word.dim < 3
        answer = rules.LOCAL if is_uneven else table(at)
        word = answer if isinstance(answer, rules.Placement) else answer[0]
        return [word] * len(at.out_shapes)

    return rule


def channels_first(images: torch.Tensor) -> torch.Tensor:
    """(*mesh, N, H, W, C) as torch's (mesh * N, C, H, W)."""
    return images.reshape(-1, *images.shape[-3:]).movedim(-1, -3)


def channels_last(images: torch.Tensor, lead: Sequence[int]) -> torch.Tensor:
    """The reverse: (mesh * N, C, H, W) as (*mesh, N, H, W, C)."""
    return images.movedim(-3, -1).unflatten(0, (*lead, -1))


def flattened(images: torch.Tensor) -> torch.Tensor:
    """(..., N, H, W, C) as (..., 1, 1, N*H*W, C)."""
    return images.flatten(-4, -2).unsqueeze(-3).unsqueeze(-3)
