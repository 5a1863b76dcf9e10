# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.ops.pool.image_sampling import (
    golden_grid_sample as golden_grid_sample,
    golden_upsample as golden_upsample,
)
from softmesh import *
from softmesh.ops.golden.golden_pool import *
