# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh import moreh_dot as dot
from softmesh.hardware.enums import (
    MorehSoftmaxBackwardOp as SoftmaxBackwardOp,
    MorehSoftmaxBackwardOpParallelizationStrategy as SoftmaxBackwardOpParallelizationStrategy,
    MorehSoftmaxOpParallelizationStrategy as SoftmaxOp,
    MorehSoftmaxOpParallelizationStrategy as SoftmaxOpParallelizationStrategy,
)
