"""Borders (halos) of pictures in one buffer, section after section: above, below, left and right of all frames."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from softmesh.tensor.broadcasting import broadcast_shapes


@dataclass(frozen=True)
class Border:
    """Of `frames` pictures of rows x columns: `high` rows above and below, `wide` columns at the sides."""

    frames: int
    rows: int
    columns: int
    width: int
    high: int
    wide: int

    @property
    def extents(self) -> list[tuple[int, int]]:
        """Rows and columns of each section: top, bottom, left and right, which have the corners."""
        level, upright = (self.high, self.columns), (self.rows + 2 * self.high, self.wide)
        return [level, level, upright, upright]

    @property
    def pixels(self) -> int:
        return self.frames * sum(a * b for a, b in self.extents)

    def sections(self, compact: torch.Tensor, lead: int) -> list[torch.Tensor]:
        """(*axes, frames, rows, columns, width) of each section, each over all frames."""
        pixels = compact.reshape(*compact.shape[:lead], -1, self.width)
        sizes = [self.frames * a * b for a, b in self.extents]
        parts = pixels[..., : self.pixels, :].split(sizes, -2)
        return [
            part.reshape(*part.shape[:-2], self.frames, *extent, self.width)
            for part, extent in zip(parts, self.extents, strict=True)
        ]

    def around(self, compact: torch.Tensor, inside: torch.Tensor, lead: int) -> torch.Tensor:
        """(*axes, frames, rows + 2 high, columns + 2 wide, width): pictures with their border."""
        axes = broadcast_shapes(compact.shape[:lead], inside.shape[:lead])
        middle = inside.reshape(*inside.shape[:lead], self.frames, self.rows, self.columns, self.width)
        parts = [middle, *self.sections(compact, lead)]
        middle, top, bottom, left, right = (part.expand(*axes, *part.shape[lead:]) for part in parts)
        return torch.cat([left, torch.cat([top, middle, bottom], -3), right], -2)

    def write(self, compact: torch.Tensor, padded: torch.Tensor, lead: int) -> None:
        """Over the border of `padded` (*axes, frames, rows + 2 high, columns + 2 wide, width)."""
        top, bottom, left, right = self.sections(compact, lead)
        high, wide, rows, columns = self.high, self.wide, self.rows, self.columns
        middle = padded.narrow(-2, wide, columns)
        middle.narrow(-3, 0, high).copy_(top)
        middle.narrow(-3, high + rows, high).copy_(bottom)
        padded.narrow(-2, 0, wide).copy_(left)
        padded.narrow(-2, wide + columns, wide).copy_(right)
