"""Every device keeps its slice of what it holds: nothing is sent.

As ttnn.mesh_partition, along any axis and also inside of tiles: features of a layer divide among devices, whether
or not tiles do.
"""

from __future__ import annotations

from softmesh.collectives.across import Across, Moved
from softmesh.collectives.collective import NOTHING_IS_SENT
from softmesh.collectives.expressions import partitioned
from softmesh.collectives.groups import Group
from softmesh.collectives.labels import dealing, label_by_rule, shares_one_value
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.placement.words import Shard
from softmesh.train.own_collectives import training_collective


@training_collective(**NOTHING_IS_SENT)
def own_slice(input_tensor: Operand, dim: int, *, cluster_axis: int) -> Across:
    at, shape = input_tensor.dim(dim, "dim"), input_tensor.shape

    def move(group: Group) -> Moved:
        if shape[at] % group.size:
            raise MeshError(
                f"scatter: dim {at} of {list(shape)} does not divide among the {group.size} devices along mesh axis "
                f"{cluster_axis}. Pad it to a multiple of {group.size}."
            )
        dist = dealing(group, at, from_one_value=shares_one_value(group))
        label = label_by_rule(group, dist, Shard(at), combines=False)
        return Moved(lambda data: partitioned(data, group, at), (dist,), label)

    return Across(cluster_axis, move, needs_fabric=False)
