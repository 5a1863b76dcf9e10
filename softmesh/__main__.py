"""`python -m softmesh file.py [args]` is `softmesh run file.py [args]`; the commands work here too."""

from __future__ import annotations

import os
import sys

import click

from softmesh.cli import commands, main


def as_command_line(argv: list[str]) -> list[str]:
    """
    >>> as_command_line(["train.py", "--steps", "10"])
    ['run', 'train.py', '--steps', '10']
    >>> as_command_line(["show", "--mesh", "2x4"])
    ['show', '--mesh', '2x4']
    """
    if not argv:
        return ["--help"]
    first = argv[0]
    if first == "-m" or os.path.isfile(first):  # a folder called bench is not a program
        return ["run", *argv]
    known = commands.list_commands(click.Context(commands))
    return argv if first.startswith("-") or first in known else ["run", *argv]


if __name__ == "__main__":
    main(as_command_line(sys.argv[1:]), prog_name="python -m softmesh")
