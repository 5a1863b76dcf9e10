"""`with distribute(mapper_or_composer):` gives `from_torch` or `to_torch` a default for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from softmesh.errors import ArgumentValueError
from softmesh.tensor.composers import MeshToTensor
from softmesh.tensor.mappers import Mapper, ReplicateTensorToMeshWrapper, TensorToMesh


@contextmanager
def distribute(default: Mapper | MeshToTensor) -> Iterator[None]:
    """Within the block `ttnn.from_torch` maps, or `ttnn.to_torch` composes, as given here.

    An explicit keyword still wins; blocks nest. As in TT-NN the name in the namespace is rebound, so a
    function imported earlier with `from ttnn import from_torch` does not change.
    """
    if isinstance(default, TensorToMesh | ReplicateTensorToMeshWrapper):
        name, keyword = "from_torch", "mesh_mapper"
    elif isinstance(default, MeshToTensor):
        name, keyword = "to_torch", "mesh_composer"
    else:
        raise ArgumentValueError("Argument must be an instance of either TensorToMesh or MeshToTensor.")
    namespace = sys.modules["softmesh"]
    before = getattr(namespace, name)
    setattr(namespace, name, partial(before, **{keyword: default}))
    try:
        yield
    finally:
        setattr(namespace, name, before)


def public_function(name: str) -> Callable[..., Any]:
    """What `ttnn.<name>` is at this moment: inside of a `distribute` block, the function with its default."""
    found: Callable[..., Any] = getattr(sys.modules["softmesh"], name)
    return found
