"""Console entry points of `tt-run` and `softmesh` that load the launcher without torch.

Launching needs no tensors, and `import softmesh` loads torch, which takes seconds. So here `softmesh` is made a bare
package, of which the launcher's modules are loaded and no others. The ranks, in processes of their own, have all of it.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

_PACKAGE = "softmesh"
_WITH_VALUES = ("--system", "--down")  # options of `softmesh run` whose value is the next word


def softmesh() -> None:
    """All of its commands need the whole package but one, which only starts processes that do."""
    if starts_ranks(sys.argv[1:]):
        _make_bare()
    from softmesh.cli import main

    main()


def starts_ranks(arguments: list[str]) -> bool:
    """Whether this is `softmesh run -n N ...`; what comes behind the program is its own.

    >>> starts_ranks(["run", "--system", "T3000", "-n", "4", "train.py"])
    True
    >>> starts_ranks(["run", "train.py", "-n", "4"])
    False
    """
    if arguments[:1] != ["run"]:
        return False
    options = iter(arguments[1:])
    for option in options:
        if option.startswith("-n"):
            return True
        if not option.startswith("-"):
            return False
        if option in _WITH_VALUES:
            next(options, None)
    return False


def tt_run() -> None:
    _make_bare()
    from softmesh.processes.launcher.tt_run import tt_run

    tt_run(prog_name="tt-run")


def _make_bare() -> None:
    if _PACKAGE not in sys.modules:
        sys.modules[_PACKAGE] = _bare_folder()


def _bare_folder() -> ModuleType:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"The package {_PACKAGE} is not installed beside {__file__}")
    folder = ModuleType(_PACKAGE)
    folder.__path__ = list(spec.submodule_search_locations)
    folder.__spec__ = spec
    return folder


if __name__ == "__main__":
    tt_run()
