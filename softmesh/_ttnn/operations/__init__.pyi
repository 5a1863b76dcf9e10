# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh._ttnn.operations import ccl as ccl
from softmesh._ttnn.operations import core as core
from softmesh._ttnn.operations import data_movement as data_movement
from softmesh._ttnn.operations import experimental as experimental
from softmesh._ttnn.operations import point_to_point as point_to_point
from softmesh._ttnn.operations import trace as trace
from softmesh import *
