"""Messages of the launcher: the error that ends a launch, and warnings and notes on stderr (stdout is the job's)."""

from __future__ import annotations

from softmesh.errors import MeshError
from softmesh.terminal_text import echo


class LaunchError(MeshError):
    """The launcher was asked for something that cannot be: one sentence, exit code 1."""


def warn(text: str) -> None:
    echo(f"tt-run: warning: {text}", err=True)


def say(text: str) -> None:
    echo(f"tt-run: {text}", err=True)
