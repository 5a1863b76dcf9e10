"""Protocols of Python, numpy and torch on a Tensor: copies, and errors that name the call that was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from softmesh.dispatch.entry_point import Function
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentError
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor, tensor_method


@tensor_method("__copy__")
def copied(tensor: Tensor) -> Tensor:
    """Another tensor on the same memory."""
    return Tensor.make(tensor.storage, tensor.spec, tensor.topology_label, tensor.shard_positions)


@tensor_method("__deepcopy__")
def deep_copied(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    made: Tensor = _DEEP_COPY(tensor)
    memo[id(tensor)] = made
    return made


def _own_copy(tensor: Tensor) -> Tensor:
    """The same values in memory of its own, on the same devices, placed as they are."""
    tensor.check_readable("copy.deepcopy")
    values = tensor.view_data().detach().clone()
    storage = Storage(values, tensor.view_distribution(), tensor.storage.device)
    storage.undefined = tensor.storage.undefined
    return Tensor.make(storage, tensor.spec, tensor.topology_label)


_DEEP_COPY = Function(_own_copy, "Tensor.__deepcopy__")


@tensor_method("__reduce_ex__")
def refuse_pickling(tensor: Tensor, protocol: object) -> NoReturn:
    raise ArgumentError(
        "A ttnn.Tensor cannot be pickled: its memory belongs to a mesh of this process. Write it with "
        "ttnn.dump_tensor(path, tensor) and read it with ttnn.load_tensor(path, device=mesh), or hand over "
        "ttnn.to_torch(tensor)."
    )


@tensor_method("__array__")
def refuse_array(tensor: Tensor, *args: object, **kwargs: object) -> NoReturn:
    raise ArgumentError(
        "numpy cannot read a ttnn.Tensor: ttnn.to_torch(tensor).float().numpy() makes an array of it (with "
        "mesh_composer=... where its devices hold different pieces)."
    )


Tensor.__array_ufunc__ = None  # type: ignore[attr-defined]  # so that `np.float32(2) * tensor` asks the tensor


def refuse_torch_function(
    function: Callable[..., Any], types: object, args: object = (), kwargs: object = None
) -> NoReturn:
    name = getattr(function, "__name__", str(function)).strip("_")
    instead = f"ttnn.{name}(...) takes it" if name in OPERATIONS else "TT-NN's ops, ttnn.*, take it"
    raise ArgumentError(
        f"torch's {name}() was handed a ttnn.Tensor: {instead}, or make a torch tensor of it first with "
        "ttnn.to_torch(tensor)."
    )


Tensor.__torch_function__ = staticmethod(refuse_torch_function)  # type: ignore[attr-defined]
