"""Numbers as options of commands: what help texts call NUMBER, and refuse in plain words."""

from __future__ import annotations

import math
from typing import Any

import click


class WholeNumber(click.IntRange):
    """An int between two bounds, both allowed."""

    name = "whole number"


class Number(click.FloatRange):
    """A float between two bounds, both allowed."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if isinstance(found, float) and not math.isfinite(found):
            self.fail(f"{value!r} is no number that can be used.", param, ctx)
        return found
