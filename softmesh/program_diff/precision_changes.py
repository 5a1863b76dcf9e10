"""Changes of precision that can be tried on a program: one call in a wider dtype, one sum over devices in float32."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from softmesh.callsite import CallSite, call_site_of, is_ours
from softmesh.diff.entries import Entry
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.dispatch.operation import OPERATIONS
from softmesh.hardware.enums import DataType
from softmesh.tensor.tensor import Tensor

_WIDER = {
    DataType.BFLOAT4_B: DataType.BFLOAT8_B,
    DataType.BFLOAT8_B: DataType.BFLOAT16,
    DataType.FP8_E4M3: DataType.BFLOAT16,
    DataType.BFLOAT16: DataType.FLOAT32,
}
_MADE_BY_HOST = ("from_torch", "as_tensor")
_DTYPE = "dtype"

Place = tuple[str, CallSite, CallSite | None]  # the op, its line, and the line that called the function it stands in


@dataclass(frozen=True)
class PrecisionChange:
    """One call of the program, and the dtype that it is given instead."""

    place: Place
    now: DataType
    wider: DataType
    is_sum: bool = False

    def __str__(self) -> str:
        op, site, caller = self.place
        where = f"{site}" if caller is None or op not in _MADE_BY_HOST else f"{caller}"
        what = "adds up in" if self.is_sum else "in"
        return f"{op} at {where} {what} {self.wider.name.lower()}, not {self.now.name.lower()}"

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the block the call is answered in the wider type; what reads a sum sees the type it knows."""

        def changed(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
            if op.name != self.place[0] or _place_here(op.name) != self.place:
                return proceed(*args, **kwargs)
            if self.is_sum:
                return self._summed(args, kwargs, proceed)
            if any(isinstance(one, DataType) for one in args):
                return proceed(*(self.wider if one is self.now else one for one in args), **kwargs)
            return proceed(*args, **{**kwargs, _DTYPE: self.wider})

        with intercepting(changed):
            yield

    def _summed(self, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        cast = OPERATIONS["typecast"]
        wide = [cast(one, self.wider) if isinstance(one, Tensor) else one for one in args]
        made = proceed(*wide, **kwargs)
        return cast(made, self.now) if isinstance(made, Tensor) else made


def place_of(entry: Entry) -> Place:
    return entry.name, entry.site, entry.callers[0] if entry.callers else None


def change_for(entry: Entry) -> PrecisionChange | None:
    """What would make this op's result more precise; None where its call takes no dtype, or cannot be told apart."""
    now = entry.outputs[0].dtype if entry.outputs else None
    if not isinstance(now, DataType) or now not in _WIDER or entry.gradient_of is not None:
        return None
    if entry.within not in ((), (entry.name,)):
        return None
    if entry.sends:
        is_sum = entry.kind is not None and entry.kind.is_sum and len(entry.outputs) == 1
        return PrecisionChange(place_of(entry), now, DataType.FLOAT32, is_sum=True) if is_sum else None
    if entry.name in _MADE_BY_HOST and not entry.inputs:
        return PrecisionChange(place_of(entry), now, _WIDER[now])
    op = OPERATIONS.get(entry.name)
    takes = op is not None and entry.inputs and _takes_dtype(op)
    return PrecisionChange(place_of(entry), now, _WIDER[now]) if takes else None


def _takes_dtype(op: EntryPoint) -> bool:
    takes: Callable[[str], bool] | None = getattr(op, "takes", None)
    return takes is not None and takes(_DTYPE)


def _place_here(name: str) -> Place:
    site = call_site_of(sys._getframe(1))
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    outer = frame.f_back
    is_program = outer is not None and not is_ours(outer.f_code.co_filename) and "runpy" not in outer.f_code.co_filename
    caller = CallSite(outer.f_code.co_filename, outer.f_lineno, outer.f_code.co_name) if is_program and outer else None
    return name, site, caller
