"""RunMode.NO_DISPATCH: ops are planned and their results have specs and memory, but nothing is computed.

Results hold undefined values, as they do on silicon, and reading them says so; what an op would have written in
place stays as it was. Transfers between host and mesh do take place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from softmesh.callsite import user_call_site
from softmesh.dispatch.entry_point import EntryPoint, Proceed
from softmesh.tensor.storage import alias
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import Undefined, devices_of, mark

if TYPE_CHECKING:
    pass


def without_dispatch(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
    given = [tensor for tensor in _tensors((args, kwargs)) if tensor.storage.data is not None]
    storages = {id(tensor.storage): tensor.storage for tensor in given}
    # A second owner makes every write go to a copy, which is then left behind.
    before = [
        (s, s.data, alias(s.data), s.dist, s.undefined) for s in storages.values() if s.data is not None
    ]
    for storage in storages.values():
        storage.undefined = None  # nothing is read in a dry run: nobody needs to be warned
    try:
        output = proceed(*args, **kwargs)
    finally:
        for storage, data, _, dist, undefined in before:
            storage.data, storage.dist, storage.undefined = data, dist, undefined
    for result in _tensors(output):
        if id(result.storage) not in storages:
            _leave_undefined(result, op.name)
    return output


def _leave_undefined(result: Tensor, op: str) -> None:
    storage = result.storage
    assert storage.data is not None
    nothing = math.nan if storage.data.is_floating_point() else torch.iinfo(storage.data.dtype).max
    storage.data = torch.full_like(storage.data, nothing)
    site, coords = user_call_site(), devices_of(result.view_distribution())
    mark(result, Undefined(f"{op} under RunMode.NO_DISPATCH", site, coords))


def _tensors(nest: Any) -> Iterator[Tensor]:
    if isinstance(nest, Tensor):
        yield nest
    elif isinstance(nest, dict):
        yield from _tensors(list(nest.values()))
    elif isinstance(nest, list | tuple):
        for item in nest:
            yield from _tensors(item)
