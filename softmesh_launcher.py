"""The front door of `tt-run`. Launching needs no tensors, and `import softmesh` loads torch, which takes seconds.

So here `softmesh` is made a bare folder of modules, of which the launcher's are loaded and no others. The ranks, in
processes of their own, have all of it.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

_PACKAGE = "softmesh"


def tt_run() -> None:
    if _PACKAGE not in sys.modules:
        sys.modules[_PACKAGE] = _bare_folder()
    from softmesh.processes.launcher.command import tt_run

    tt_run(prog_name="tt-run")


def _bare_folder() -> ModuleType:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"tt-run: the package {_PACKAGE} is not installed beside {__file__}")
    folder = ModuleType(_PACKAGE)
    folder.__path__ = list(spec.submodule_search_locations)
    folder.__spec__ = spec
    return folder


if __name__ == "__main__":
    tt_run()
