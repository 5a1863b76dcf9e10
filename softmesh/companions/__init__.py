"""Modules that come with TT-NN beside `ttnn` itself, `tracy`, `tt_lib` and `graph_report`: there for a run's length.

A name below them that softmesh has not can be imported, and raises when it is used. `graph_report` is
`ttnn.graph_report`, as programs import it that put the folder of TT-NN's own modules on their path.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from softmesh.unmodelled import stand_in

# Which module of this package has the names of a companion, and of a module below it.
_CONTENTS = {"tracy": "tracy_module", "tt_lib": None, "tt_lib.utils": "tt_lib_utils"}
_REASONS = {"tracy": "tracy_module", "tt_lib": "tt_lib_utils"}
_OTHER_NAMES = {"graph_report": "softmesh.graph_report"}


def install() -> None:
    """From now on the companions can be imported, each unless there is a real one."""
    every = (*_REASONS, *_OTHER_NAMES)
    ours = [name for name in every if name not in sys.modules and importlib.util.find_spec(name) is None]
    if ours:
        sys.meta_path.append(_CompanionFinder(ours))


def uninstall() -> None:
    """Undo `install`; harmless where there is nothing to undo."""
    for finder in [one for one in sys.meta_path if isinstance(one, _CompanionFinder)]:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] in finder.names]:
            del sys.modules[name]


class _Companion(ModuleType):
    """One of the modules, or a module below one."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        source = _source(_REASONS[self.__name__.partition(".")[0]])
        return stand_in(f"{self.__name__}.{name}", vars(source)["REASON"])


class _CompanionFinder(MetaPathFinder, Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_ours = fullname.partition(".")[0] in self.names
        return ModuleSpec(fullname, self, is_package=True) if is_ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Companion(spec.name, __doc__)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in _OTHER_NAMES:  # the import system takes what stands there afterwards
            sys.modules[module.__name__] = importlib.import_module(_OTHER_NAMES[module.__name__])
            return
        source = _CONTENTS.get(module.__name__)
        if source is not None:
            names = vars(_source(source)).items()
            vars(module).update({name: value for name, value in names if not name.startswith("__")})


def _source(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
