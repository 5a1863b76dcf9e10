# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.ops.moe.routed_experts import MoEActivationFunction as MoEActivationFunction
from softmesh import *
