"""`import tracy` for programs that run on softmesh: signposts become markers in the command stream.

Tracy's own tools read what a profiler measured on chips; they can be imported, and raise when used.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from softmesh.arguments import checked
from softmesh.runtime import commands
from softmesh.unmodelled import stand_in

_NAME = "tracy"
_REASON = "there is no profile of a chip to read; ttnn.log_commands() shows what ran"


def signpost(header: str, message: object = None) -> None:
    """A marker between what runs before and after it: a row `signpost HEADER` of `ttnn.log_commands()`."""
    text = checked("signpost", "header", header, str, "a text")
    if commands.observers:
        commands.emit(f"signpost {text}", (), (), coords=(), arguments=lambda: {"message": message})


class Profiler:
    """Switches around a part of a program: nothing is measured here."""

    def enable(self) -> None:
        """From here on a profiler would measure."""

    def disable(self) -> None:
        """And until here."""


class _Tracy(ModuleType):
    """The module, and each module below it."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return stand_in(f"{self.__name__}.{name}", _REASON)


class _TracyFinder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_ours = fullname.partition(".")[0] == _NAME
        return ModuleSpec(fullname, self, is_package=True) if is_ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Tracy(spec.name, __doc__)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == _NAME:
            vars(module).update(signpost=signpost, Profiler=Profiler)


def install() -> None:
    """From now on `import tracy` finds this one, unless there is a real one."""
    if _NAME not in sys.modules and importlib.util.find_spec(_NAME) is None:
        sys.meta_path.append(_TracyFinder())


def uninstall() -> None:
    """Undo `install`; harmless where there is nothing to undo."""
    for finder in [one for one in sys.meta_path if isinstance(one, _TracyFinder)]:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
            del sys.modules[name]
