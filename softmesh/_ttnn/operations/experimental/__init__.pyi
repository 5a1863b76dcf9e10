# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh._ttnn.operations.experimental import ccl_experimental as ccl_experimental
from softmesh.experimental import *
from softmesh import *
from softmesh.kernels.program.fusion_semaphores import *
