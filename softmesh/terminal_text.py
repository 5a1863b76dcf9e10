"""Text on its way to a terminal, with what the terminal would obey written out: names come from anywhere.

Names in what softmesh's commands say leave through `echo` and `console`; errors and warnings are written out when they
are made. The output of users' programs is their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import click
    from rich.console import Console

CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_WORD_SHOWN = 80
_LONG_WORD = re.compile(r"\S{300,}")


def printable(text: str) -> str:
    """Write out what a terminal would obey, or show out of order.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return CONTROL_CHARACTER.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def readable(text: str) -> str:
    """The same, and words that nobody reads to their end cut short."""
    return _LONG_WORD.sub(lambda found: f"{found[0][:_WORD_SHOWN]}... ({len(found[0])} characters)", printable(text))


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    import click

    click.echo(printable(str(text)), err=err, nl=nl)


def console(**options: Any) -> Console:
    """A console of rich; its own colours and cursor moves are no part of the texts, and stay."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for part in super().render(renderable, options):
                yield part if part.control else part._replace(text=printable(part.text))

    return PrintableConsole(**options)


@contextmanager
def printable_refusals() -> Iterator[None]:
    """In the block: what click refuses is said in printable words, for it quotes the command line."""
    import click

    try:
        yield
    except click.ClickException as error:
        error.message = printable(error.message)  # type: ignore[misc]  # which is final to the type checker alone
        raise


def printable_command(kind: type[click.Command]) -> type[Any]:
    """The class of a command that refuses in printable words."""

    class PrintableCommand(kind):  # type: ignore[valid-type,misc]
        def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
            with printable_refusals():
                context: click.Context = super().make_context(*args, **kwargs)
                return context

        def invoke(self, ctx: click.Context) -> Any:
            with printable_refusals():
                return super().invoke(ctx)

    return PrintableCommand


class PrintableStream:
    """A text stream that is written to in printable words, and else the stream that it wraps."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
