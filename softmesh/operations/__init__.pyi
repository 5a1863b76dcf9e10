# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.operations import activations as activations
from softmesh.operations import ccl as ccl
from softmesh.operations import conv2d as conv2d
from softmesh.operations import embedding as embedding
from softmesh.operations import losses as losses
from softmesh.operations import matmul as matmul
from softmesh.operations import moreh as moreh
from softmesh.operations import normalization as normalization
from softmesh.operations import pool as pool
from softmesh.operations import reduction as reduction
from softmesh.operations import transformer as transformer
from softmesh import *
