# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh import *
from softmesh.dispatch.registry import *
from softmesh.runtime.dispatch_modes import *
from softmesh.runtime.memory.memory_reports import *
from softmesh.runtime.profiling import *
