"""Tensors as text: what `print(tensor)` shows, in TT-NN's own format.

Knows values, shapes and names; knows nothing of devices, and takes the header line of a shard as
given. The only state is the print options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import torch

from softmesh.arguments import checked, checked_int
from softmesh.errors import ArgumentValueError, MeshError, did_you_mean
from softmesh.tensor.dtype import FACTS, DataType, Layout

_OPENING = "ttnn.Tensor("
_EDGE = 2  # entries shown at each end of a shortened dim
_INTEGER_WIDTH = 5
_MOST_DIGITS = 100


class Profile(Enum):
    """How much of a tensor is printed."""

    SHORT = "short"
    FULL = "full"
    EMPTY = "empty"


@dataclass(frozen=True)
class PrintOptions:
    """`sci_mode` None chooses scientific notation by the range of the values."""

    profile: Profile = Profile.SHORT
    sci_mode: bool | None = None
    precision: int = 4


_SCI_MODES: dict[str, bool | None] = {"true": True, "false": False, "default": None, "none": None}

_options = PrintOptions()


def set_printoptions(*, profile: str, sci_mode: str | bool | None = None, precision: int | None = None) -> None:
    """Choose how tensors print from now on; what is left out goes back to its default.

    >>> set_printoptions(profile="full", sci_mode=False, precision=2)
    """
    global _options
    chosen = PrintOptions.precision if precision is None else precision
    digits = checked_int("set_printoptions", "precision", chosen)
    if not 0 <= digits <= _MOST_DIGITS:
        raise ArgumentValueError(f"precision counts decimals, from 0 to {_MOST_DIGITS}; got {precision}")
    _options = PrintOptions(_parse_profile(profile), _parse_sci_mode(sci_mode), digits)


def _parse_profile(text: str) -> Profile:
    checked("set_printoptions", "profile", text, str, "'short', 'full' or 'empty'")
    known = [profile.value for profile in Profile]
    if text.lower() not in known:
        raise MeshError(
            f"unknown print profile {text!r}; choose one of {', '.join(known)}.{did_you_mean(text.lower(), known)}"
        )
    return Profile(text.lower())


def _parse_sci_mode(mode: str | bool | None) -> bool | None:
    if mode is None or isinstance(mode, bool):
        return mode
    checked("set_printoptions", "sci_mode", mode, str, "True, False, None or one of their names")
    if mode.lower() not in _SCI_MODES:
        raise MeshError(f"unknown sci_mode {mode!r}; choose True, False, None or one of {', '.join(_SCI_MODES)}")
    return _SCI_MODES[mode.lower()]


def format_tensor(values: torch.Tensor, shape: Sequence[int], dtype: DataType, layout: Layout) -> str:
    """The text of one shard.

    >>> format_tensor(torch.ones(2), (2,), DataType.FLOAT32, Layout.ROW_MAJOR)
    'ttnn.Tensor([ 1.0000,  1.0000], shape=Shape([2]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)'
    """
    if _options.profile is Profile.EMPTY:
        return _enclose("...", shape, dtype, layout)
    if values.numel() == 0:
        return format_empty(shape, dtype, layout)
    # torch prints and reduces its narrow types only in part, and shows bool as a word
    plain = values.to(torch.float32 if FACTS[dtype].is_float else torch.int64)
    entry = _float_format(plain) if FACTS[dtype].is_float else _format_integer
    return _enclose(_format_values(plain, entry, depth=0), shape, dtype, layout)


def format_empty(shape: Sequence[int], dtype: DataType, layout: Layout) -> str:
    """The text of a tensor without elements."""
    return _enclose("[]", shape, dtype, layout)


def format_deallocated(shape: Sequence[int], dtype: DataType, layout: Layout) -> str:
    """The text of a tensor whose memory was given back."""
    return _enclose("<buffer is not allocated>", shape, dtype, layout)


def format_remote(shape: Sequence[int], dtype: DataType, layout: Layout) -> str:
    """The text of a tensor that other processes hold."""
    return _enclose("<held by other processes>", shape, dtype, layout)


def format_shards(
    shards: Iterable[tuple[str | None, torch.Tensor]],
    shape: Sequence[int],
    dtype: DataType,
    layout: Layout,
) -> str:
    """One text per shard, below its header line where it has one (`device_id: 4, ...`)."""
    texts = []
    for header, values in shards:
        text = format_tensor(values, shape, dtype, layout)
        texts.append(text if header is None else f"{header}\n{text}")
    return "\n".join(texts)


def _enclose(body: str, shape: Sequence[int], dtype: DataType, layout: Layout) -> str:
    return f"{_OPENING}{body}, shape=Shape({list(shape)}), dtype=DataType::{dtype.name}, layout=Layout::{layout.name})"


def _format_values(values: torch.Tensor, entry: Callable[[float], str], depth: int) -> str:
    if values.ndim == 0:
        return entry(values.item())
    if values.ndim == 1:
        return f"[{', '.join(_shorten(values, lambda row: map(entry, row.tolist()), ' ...'))}]"
    line_break = "\n" if values.ndim == 2 else "\n\n"
    indent = " " * (len(_OPENING) + depth + 1)
    blocks = _shorten(values, lambda part: (_format_values(v, entry, depth + 1) for v in part), "...")
    return f"[{f',{line_break}{indent}'.join(blocks)}]"


def _shorten(values: torch.Tensor, texts: Callable[[torch.Tensor], Iterable[str]], ellipsis: str) -> list[str]:
    """The texts of all entries along the first dim, or of both ends with an ellipsis between."""
    if _options.profile is Profile.FULL or len(values) <= 2 * _EDGE:
        return list(texts(values))
    return [*texts(values[:_EDGE]), ellipsis, *texts(values[-_EDGE:])]


def _format_integer(value: float) -> str:
    return f"{value:{_INTEGER_WIDTH}}"


def _float_format(values: torch.Tensor) -> Callable[[float], str]:
    precision = _options.precision
    scientific = _wants_scientific(values) if _options.sci_mode is None else _options.sci_mode
    spec = f"{precision + 7}.{precision}e" if scientific else f"{precision + 3}.{precision}f"
    return lambda value: format(value, spec)


def _wants_scientific(values: torch.Tensor) -> bool:
    magnitudes = values[values.isfinite() & (values != 0)].abs()
    if magnitudes.numel() == 0:
        return False
    low, high = magnitudes.min().item(), magnitudes.max().item()
    return high / low > 1000 or high > 1e8 or low < 1e-4
