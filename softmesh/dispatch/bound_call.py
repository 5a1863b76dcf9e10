"""One call of an op after binding: its arguments by position, its tensors, and their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from softmesh.arguments import described, exact_key
from softmesh.dispatch.signature import Signature, listed
from softmesh.errors import ArgumentError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor


class BoundCall:
    """`values` has one entry for each name of the signature; `tensors` and `data` are its operands, flat."""

    __slots__ = ("data", "is_marked", "key", "signature", "target", "tensors", "values")

    def __init__(self, signature: Signature, values: list[Any]) -> None:
        self.signature = signature
        self.values = values
        self.tensors: list[Tensor] = []
        self.data: list[Any] = []  # torch tensors, and what stands in their place
        self.key: list[Any] = []  # what a plan depends on
        self.is_marked = False  # whether an operand has pieces that nobody wrote
        for at in signature.operand_at:
            value = values[at]
            for item in value if isinstance(value, list | tuple) else (value,):
                self._take(item)
        output_at = signature.output_at
        self.target: Any = None if output_at is None else values[output_at]

    def _take(self, item: Any) -> None:
        if not isinstance(item, Tensor):
            self.key.append(type(item))
            self.data.append(item)
            return
        storage, is_plain = item.storage, item.shard_positions is None
        self.tensors.append(item)
        self.is_marked = self.is_marked or storage.undefined is not None
        self.key += (item.spec, storage.dist if is_plain else item.view_distribution())
        self.data.append(storage.data if is_plain else item.view_data())

    @property
    def device(self) -> MeshDevice | None:
        return self.tensors[0].storage.device

    @property
    def named(self) -> dict[str, Any]:
        return self.signature.named(self.values, range(len(self.values)))

    @property
    def targets(self) -> list[Any]:
        return [] if self.target is None else listed(self.target)

    def plan_key(self, more: Iterable[Any] = ()) -> tuple[Any, ...]:
        """Specs and distributions of the operands, kinds and values of the other arguments, the specs of outputs."""
        key, device = self.key, self.device
        key.append(None if device is None else device.torch_device)
        for at in self.signature.key_at:
            key.append(exact_key(self.values[at]))
        key += [target.spec for target in self.targets]
        key += more
        try:
            hash(found := tuple(key))
        except TypeError:  # an argument is a list
            return tuple(_hashable(part) for part in key)
        return found

    def refuse_without_tensor(self, op: str) -> None:
        given = ", ".join(map(_kind_in_words, self.data)) or "nothing"
        raise ArgumentError(
            f"{op}(): incompatible function arguments: it needs a ttnn.Tensor, got {given}. "
            "Make one with ttnn.from_torch(..., device=mesh_device)."
        )


def _kind_in_words(value: Any) -> str:
    return described(value) if hasattr(value, "shape") else type(value).__name__


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(item) for item in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
