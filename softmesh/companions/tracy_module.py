"""The module behind `import tracy` on softmesh: signposts become markers in the command stream.

Tracy's own tools read what a profiler measured on chips; they can be imported, and raise when used.
"""

from __future__ import annotations

from softmesh.arguments import checked
from softmesh.kinds import Kind
from softmesh.runtime import commands

REASON = "there is no profile of a chip to read; ttnn.log_commands() shows what ran"


def signpost(header: str, message: object = None) -> None:
    """A marker between what runs before and after it: a row `signpost HEADER` of `ttnn.log_commands()`."""
    text = checked("signpost", "header", header, str, "a text")
    if commands.observers:
        commands.emit(f"signpost {text}", Kind.SIGNPOST, (), (), coords=(), arguments=lambda: {"message": message})


class Profiler:
    """Switches around a part of a program: nothing is measured here."""

    def enable(self) -> None:
        """From here on a profiler would measure."""

    def disable(self) -> None:
        """And until here."""
