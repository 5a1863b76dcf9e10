"""The two kernels among which TT-NN chooses to untilize, by name: here both are `untilize`."""

from __future__ import annotations

from softmesh.ops.data_movement.layout_conversion import untilize

untilize_force_native = untilize
untilize_force_codegen = untilize
