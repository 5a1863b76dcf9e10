"""Found by `import ttnn` where PYTHONPATH has this folder: hands the name over to softmesh.

A real ttnn of the interpreter that reads this, which may be another than the launcher's, is loaded instead.
"""

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec


def _other_ttnn() -> "ModuleSpec | None":
    """A folder without code does not count: the root of a tt-metal checkout has one of that name."""
    path, here = sys.path[:], os.path.dirname(os.path.abspath(__file__))
    own = sys.modules.pop(__name__)
    sys.path[:] = [place for place in path if os.path.abspath(place) != here]
    try:
        found = importlib.util.find_spec(__name__)
    finally:
        sys.path[:] = path
        sys.modules[__name__] = own
    return found if found is not None and found.origin is not None else None


_other = None if os.environ.get("SOFTMESH_ALIAS") == "force" else _other_ttnn()
if _other is not None and _other.loader is not None:
    sys.modules[__name__] = importlib.util.module_from_spec(_other)
    _other.loader.exec_module(sys.modules[__name__])
else:
    from softmesh.alias import install

    install(force=True)  # what it puts aside is this module
