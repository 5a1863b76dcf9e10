"""Numbers as options of commands: what help texts call NUMBER, and refuse in plain words."""

from __future__ import annotations

import click


class WholeNumber(click.IntRange):
    """An int between two bounds, both allowed."""

    name = "whole number"


class Number(click.FloatRange):
    """A float between two bounds, both allowed."""

    name = "number"
