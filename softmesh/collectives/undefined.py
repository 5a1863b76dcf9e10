"""What stands where a collective writes nothing, and collectives that leave such places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from softmesh.callsite import user_call_site
from softmesh.collectives.collective import Collective
from softmesh.ops.definition import Definition
from softmesh.tensor.dtype import DataType, facts
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import Undefined

# The arguments by name, and a result -> the positions left unwritten; None: where its NaNs are.
Unwritten = Callable[[dict[str, Any], Tensor], frozenset[int] | None]


def poison(dtype: DataType) -> float | int:
    """NaN for floats; for integers, which have none, the largest value."""
    known = facts(dtype)
    if known.is_float:
        return math.nan
    is_signed = dtype in (DataType.INT8, DataType.INT32)
    return int(2 ** (known.bits - is_signed) - 1)


class Undefining(Collective):
    """A collective that does not write all of its result. In a tensor given for it, the rest stays as it was."""

    def __init__(self, definition: Definition, unwritten: Unwritten) -> None:
        super().__init__(definition)
        self._unwritten = unwritten

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        signature = self._signature
        values = signature.bind(args, kwargs)
        if signature.output_at is not None and values[signature.output_at] is not None:
            return made
        site = user_call_site()
        arguments = signature.named(values, range(len(values)))
        for result in made if isinstance(made, list) else [made]:
            positions = self._unwritten(arguments, result)
            if positions or (positions is None and facts(result.dtype).is_float):
                result._storage.undefined = Undefined(self.name, site, positions)
        return made


def all_but(name: str) -> Unwritten:
    """Everything is left out, except on the device whose coordinate is the argument `name`."""

    def unwritten(arguments: dict[str, Any], result: Tensor) -> frozenset[int]:
        coords = result.view_distribution().coordinates()
        return frozenset(i for i, coord in enumerate(coords) if coord != arguments[name])

    return unwritten


def some_rows(arguments: dict[str, Any], result: Tensor) -> None:
    """Which ones depends on the values: None, to be looked for."""
