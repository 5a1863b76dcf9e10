# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.hardware.convolution_configs import Conv2dConfig as Conv2dConfig
from softmesh.ops.conv.conv2d import get_conv_output_dim as get_conv_output_dim
from softmesh.ops.conv.conv_weights import (
    prepare_conv_bias as prepare_conv_bias,
    prepare_conv_bias as prepare_conv_transpose2d_bias,
    prepare_conv_transpose2d_weights as prepare_conv_transpose2d_weights,
    prepare_conv_weights as prepare_conv_weights,
)
from softmesh import *
