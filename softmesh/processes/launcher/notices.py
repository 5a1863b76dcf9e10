"""What the launcher says beside the job's own output: always on stderr, so that stdout is the job's."""

from __future__ import annotations

import click


def warn(text: str) -> None:
    click.echo(f"tt-run: warning: {text}", err=True)


def say(text: str) -> None:
    click.echo(f"tt-run: {text}", err=True)
