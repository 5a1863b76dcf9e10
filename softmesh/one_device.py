"""A program on one device: it is the same, and gets one device wherever it opens a mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import softmesh
from softmesh.mesh import MeshShape
from softmesh.runtime import device_lifecycle
from softmesh.runtime.device import MeshDevice
from softmesh.tensor import composers, mappers

_ONE = MeshShape(1, 1)


@contextmanager
def on_one_device() -> Iterator[None]:
    """Every mesh that is opened has one device, and mappers and composers of its shape are for one device."""
    shapes: set[tuple[int, ...]] = set()
    opened, split, joined = device_lifecycle.open_mesh_device, mappers.ShardTensor2dMesh, composers.ConcatMesh2dToTensor

    def open_mesh_device(mesh_shape: Any = None, *args: Any, **options: Any) -> MeshDevice:
        if mesh_shape is not None:
            shapes.add(tuple(mesh_shape))
        kept = {name: value for name, value in options.items() if name not in ("offset", "physical_device_ids")}
        return opened(_ONE, *args[:4], **kept)

    def of_one(shape: Any) -> Any:
        return _ONE if isinstance(shape, MeshShape | tuple | list) and tuple(shape) in shapes else shape

    def for_one(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            return function(*map(of_one, args), **{k: of_one(v) if k == "mesh_shape" else v for k, v in named.items()})

        return called

    places: list[tuple[ModuleType, str, Any]] = [
        (device_lifecycle, "open_mesh_device", open_mesh_device),
        (softmesh, "open_mesh_device", open_mesh_device),
        (softmesh, split.__name__, for_one(split)),
        (softmesh, joined.__name__, for_one(joined)),
    ]
    with _replaced(places):
        yield


@contextmanager
def _replaced(places: list[tuple[ModuleType, str, Any]]) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    try:
        for module, name, value in places:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
