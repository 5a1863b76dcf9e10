"""Makes `import ttnn` mean softmesh: for this process, and only when asked.

`ttnn` and `ttnn.x` become further names of the modules `softmesh` and `softmesh.x`, the same objects.
A real ttnn is never put aside unless forced, and comes back when the alias ends.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from softmesh.errors import SoftmeshError

_HERE = __name__.partition(".")[0]
_THERE = "ttnn"
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep


class AliasRefused(SoftmeshError, ImportError):
    """A real ttnn is there, and nobody asked to put it aside."""


@contextmanager
def aliased(*, force: bool = False) -> Iterator[None]:
    """Within the block `import ttnn` gives softmesh; after it `sys.modules` names ttnn as before.

    >>> with aliased():
    ...     from ttnn.model_preprocessing import preprocess_model_parameters
    """
    installed = install(force=force)
    try:
        yield
    finally:
        if installed:
            uninstall()


def install(*, force: bool = False) -> bool:
    """From now on `import ttnn` gives softmesh. False if it already did."""
    if _installed() is not None:
        return False
    real = _real_ttnn()
    if real is not None and not force and os.environ.get("SOFTMESH_ALIAS") != "force":
        raise AliasRefused(
            f"ttnn is here already ({real}), and softmesh does not take its place unasked: set "
            "SOFTMESH_ALIAS=force to use softmesh all the same, or write `import softmesh as ttnn`."
        )
    from softmesh import companions  # which load tensors, as this module does not

    displaced = {name: sys.modules.pop(name) for name in _names_of_ttnn()}
    sys.modules[_THERE] = sys.modules[_HERE]
    sys.meta_path.insert(0, _TtnnFinder(displaced))
    companions.install()
    return True


def uninstall() -> None:
    """Undo `install`; harmless where there is nothing to undo."""
    finder = _installed()
    if finder is None:
        return
    from softmesh import companions

    sys.meta_path.remove(finder)
    companions.uninstall()
    for name in _names_of_ttnn():
        del sys.modules[name]
    sys.modules.update(finder.displaced)


def _installed() -> _TtnnFinder | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, _TtnnFinder)), None)


def _names_of_ttnn() -> list[str]:
    return [name for name in sys.modules if name == _THERE or name.startswith(f"{_THERE}.")]


def _real_ttnn() -> str | None:
    """Where a ttnn that is not softmesh comes from; None if there is none.

    A folder without `__init__.py` does not count: the root of a tt-metal checkout has one called ttnn.
    """
    loaded = sys.modules.get(_THERE)
    if loaded is not None:
        is_bare_folder = getattr(loaded, "__file__", None) is None and hasattr(loaded, "__path__")
        return None if is_bare_folder else getattr(loaded, "__file__", None) or repr(loaded)
    spec = importlib.util.find_spec(_THERE)
    if spec is None or (spec.origin or "").startswith(_OWN_FOLDER):  # the name that a launcher's ranks find
        return None
    return spec.origin


class _TtnnFinder(MetaPathFinder, Loader):
    """Finds `ttnn.x` in softmesh. Its presence on `sys.meta_path` is what "installed" means."""

    def __init__(self, displaced: dict[str, ModuleType]) -> None:
        self.displaced = displaced

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != _THERE:
            return None
        module = _counterpart(fullname)
        written = {name: getattr(module, name) for name in ("__spec__", "__loader__", "__package__")}
        return ModuleSpec(fullname, self, loader_state=(module, written))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: ModuleType = spec.loader_state[0]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run already; give it back what the import system has just written into it."""
        assert module.__spec__ is not None
        vars(module).update(module.__spec__.loader_state[1])


def _counterpart(name: str) -> ModuleType:
    """The module that `ttnn.x` names: `softmesh.x`."""
    from softmesh.namespaces import absent_module, with_stand_ins

    own = _HERE + name.removeprefix(_THERE)
    try:
        module = with_stand_ins(importlib.import_module(own))
    except ModuleNotFoundError as error:
        if error.name is None or not own.startswith(error.name):
            raise  # softmesh has the module, and the module lacks something of its own
        found = absent_module(_HERE, own.removeprefix(f"{_HERE}."))
        if found is None:
            raise _unknown(name) from None
        module = found
    parent, _, short = own.rpartition(".")
    if parent and getattr(sys.modules[parent], short) is not module:
        raise _unknown(name)  # the name belongs to a function; importing would put a module in its place
    return module


def _unknown(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}: softmesh, which stands in for ttnn, has none", name=name)
